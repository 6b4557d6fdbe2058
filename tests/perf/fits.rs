//! Whether a group fits, found by trying every assignment: slow, and unlike the planner's own way.

use std::collections::HashSet;

use perf_counters::catalogue::{Core, Event, Topic};

/// Sets of counters that an event can take, as bits: general ones first, then the fixed ones.
fn choices(core: &Core, general: u32, event: &Event) -> Vec<u32> {
    let mut choices = Vec::new();
    for at in 0..general {
        if event.counters >> at & 1 == 0 {
            continue;
        }
        if !event.pair {
            choices.push(1 << at);
        } else if at % 2 == 0 && at + 1 < general {
            choices.push(0b11 << at);
        }
    }
    choices.extend(fixed(core, general, event.topic()));
    choices
}

fn fixed(core: &Core, general: u32, topic: Topic) -> Option<u32> {
    let at = core.fixed.iter().position(|fixed| *fixed == topic)?;
    Some(1 << (general + u32::try_from(at).unwrap()))
}

/// Every set of counters that can be taken by all the events so far.
pub(crate) fn fits(core: &Core, smt: bool, watchdog: bool, events: &[&Event]) -> bool {
    let general = if smt { core.counters_smt_on } else { core.counters_smt_off };
    let counted = events.iter().filter(|event| !event.free);
    let mut all: Vec<Vec<u32>> = counted.map(|event| choices(core, general, event)).collect();
    if watchdog {
        let own = fixed(core, general, Topic::Cycles);
        all.push((0..general).map(|at| 1 << at).chain(own).collect());
    }
    let mut taken: HashSet<u32> = HashSet::from([0]);
    for choices in all {
        taken = taken
            .iter()
            .flat_map(|taken| choices.iter().filter(move |c| *c & taken == 0).map(move |c| c | taken))
            .collect();
    }
    let requests: HashSet<u64> = events.iter().filter_map(|event| event.offcore()).collect();
    !taken.is_empty() && requests.len() <= 2
}

#[test]
fn what_must_not_fit_does_not() {
    use perf_counters::catalogue::Catalogue;
    let catalogue = Catalogue::built_in();
    let core = |name: &str| catalogue.cores(name).unwrap()[0].clone();
    let named =
        |core: &Core, name: &str| core.events.iter().find(|event| &*event.name == name).unwrap().clone();
    let zen = core("Zen 5");
    let pairs: Vec<&Event> = zen.events.iter().filter(|event| event.pair).collect();
    assert!(fits(&zen, true, false, &pairs[..3]) && !fits(&zen, true, false, &pairs[..4]));
    assert!(!fits(&zen, true, true, &pairs[..3]));
    let icelake = core("Ice Lake-SP");
    let lines = named(&icelake, "L2_LINES_IN.ALL");
    assert!(fits(&icelake, true, true, &[&lines; 4]) && !fits(&icelake, true, false, &[&lines; 5]));
    let mut requests = [0, 1, 2].map(|_| named(&icelake, "OCR.READS_TO_CORE.DRAM"));
    assert!(fits(&icelake, true, true, &requests.each_ref()));
    for (at, event) in requests.iter_mut().enumerate() {
        use perf_counters::catalogue::{Encoding, OFFCORE};
        event.encoding = Encoding::Fields(vec![(OFFCORE, at as u64 + 1)]);
    }
    assert!(!fits(&icelake, true, true, &requests.each_ref()));
    // What the CPU derives from slots takes no counter; of slots there is one.
    let slots = named(&icelake, "slots");
    let derived = named(&icelake, "topdown-retiring");
    assert!(fits(&icelake, true, true, &[&slots, &derived, &derived, &lines, &lines, &lines, &lines]));
    assert!(!fits(&icelake, true, true, &[&slots, &slots]));
    let knl = core("Knights Landing");
    let cycles = named(&knl, "CPU_CLK_UNHALTED.THREAD_P");
    assert!(fits(&knl, true, false, &[&cycles; 3]) && !fits(&knl, true, true, &[&cycles; 3]));
}
