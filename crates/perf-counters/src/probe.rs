//! What of a plan this kernel really counts: each group is opened once, on a CPU that has it, counts for a moment, and is closed
//! again. A virtual machine, a firmware or an old kernel may have less than its CPU's name promises, and somebody else may keep a
//! counter: the kernel's watchdog, a profiler.
//!
//! A group that is too large for the free counters is divided. An event that is refused by itself takes with it all
//! events that are added to it, on all kinds of cores: a sum with a part missing would be too small.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cpu_topology::CpuSet;
use perf_events::{Counters, On, Open, OpenError, Reading};

use super::catalogue::Topic;
use super::tally::lacks_a_part;
use super::{Absent, Event, Group, Plan, Quantity, top_down};

/// How long a group's turn is waited for in all, in milliseconds: groups of others have theirs, of 4 ms unless somebody set
/// `perf_event_mux_interval_ms`. No wait is long: somebody may want the counters meanwhile.
const TURN: [u64; 11] = [1, 2, 5, 10, 20, 20, 20, 20, 20, 20, 20];

/// Why an event is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The kernel refuses it.
    Open(OpenError),
    /// It was opened, and never counted.
    Starved,
}

impl Refusal {
    /// Whether it may be counted in another group.
    fn is_for_room(self) -> bool {
        matches!(self, Self::Open(OpenError::Unfit) | Self::Starved)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Starved => {
                f.write_str("it never has its turn: somebody else keeps a counter that it needs")
            }
        }
    }
}

/// Leaves out of a plan what cannot be opened or never counts, and says of it why. It looks on those of the CPUs first that are
/// `suspect`. An error when the kernel lets this process count nothing of others. As soon as `stop` says so nothing more is opened,
/// and what is returned is of no use.
pub fn probe(
    plan: &Plan,
    online: &CpuSet,
    suspect: &BTreeSet<u32>,
    open: &dyn Open,
    stop: &dyn Fn() -> bool,
) -> Result<Plan, OpenError> {
    let mut probed = Plan { groups: Vec::new(), ..plan.clone() };
    let mut refused = Vec::new();
    for group in &plan.groups {
        let on_it = |cpu: &u32| group.cpus.as_ref().is_none_or(|cpus| cpus.contains(*cpu));
        let suspects = suspect.iter().copied().filter(|cpu| online.contains(*cpu));
        let Some(cpu) = suspects.chain(online.iter()).find(on_it) else { continue };
        let try_one = |group: &Group| {
            if stop() {
                return Ok(None);
            }
            match open.open(On::Host, cpu, &group.attrs()) {
                Ok(mut counters) => Ok((!counts_at_all(&mut *counters, stop)).then_some(Refusal::Starved)),
                Err(error @ (OpenError::Denied | OpenError::Descriptors)) => Err(error),
                Err(error) => Ok(Some(Refusal::Open(error))),
            }
        };
        match try_one(group)? {
            None => probed.groups.push(group.clone()),
            Some(_) => divide(plan, group, &try_one, &mut probed.groups, &mut refused)?,
        }
    }
    let mut lost: BTreeMap<Sum, Arc<str>> = BTreeMap::new();
    for (event, of, refusal) in refused {
        if probed.groups.iter().any(|group| group.cpus == of.cpus && counts(group, &event)) {
            continue;
        }
        lost.entry(sum(event.quantity)).or_insert(event.name.clone());
        let absent = Absent { what: event.name, why: refusal.to_string().into() };
        if !probed.absent.contains(&absent) {
            probed.absent.push(absent);
        }
    }
    for (lost, without) in lost {
        let part = |event: &Event| sum(event.quantity) == lost;
        if probed.groups.iter().flat_map(|group| &group.events).any(part) {
            let why = format!("without {without} the rest would look like the whole").into();
            probed.absent.push(Absent { what: lost.0.as_str().into(), why });
        }
        probed.groups.iter_mut().for_each(|group| group.events.retain(|event| !part(event)));
    }
    // Readings of slots in several groups are of different moments, and so are the parts of a difference.
    let unread = |group: &Group| {
        group.events.iter().any(top_down::is_reading)
            && top_down::categories_of(&group.events).next().is_none()
    };
    let mut torn: BTreeSet<Topic> =
        probed.groups.iter().filter(|group| unread(group)).map(|_| Topic::TopDown).collect();
    torn.extend(probed.groups.iter().flat_map(|group| {
        let lacking = group.events.iter().filter(|event| lacks_a_part(&probed, group, event));
        lacking.map(|event| Topic::of(event.quantity))
    }));
    for topic in torn {
        let why = "the events for it do not fit this machine's counters together".into();
        probed.absent.push(Absent { what: topic.as_str().into(), why });
        let part = |event: &Event| Topic::of(event.quantity) == topic;
        probed.groups.iter_mut().for_each(|group| group.events.retain(|event| !part(event)));
    }
    // The rest of a group may be in others already.
    for group in std::mem::take(&mut probed.groups) {
        let known = |event: &Event| {
            probed.groups.iter().any(|before| before.cpus == group.cpus && counts(before, event))
        };
        if !group.events.iter().all(known) {
            probed.groups.push(group);
        }
    }
    let flops = |event: &Event| matches!(event.quantity, Quantity::Flops { .. });
    if !probed.groups.iter().flat_map(|group| &group.events).any(flops) {
        (probed.flops, probed.limits.flops_per_cycle) = (None, None);
    }
    Ok(probed)
}

/// Reported only as a whole.
type Sum = (Topic, Option<Quantity>);

/// What the kernel counts by itself has no topic, and is each of its own.
fn sum(quantity: Quantity) -> Sum {
    let software = Topic::of(quantity) == Topic::Cycles && quantity != Quantity::Cycles;
    (Topic::of(quantity), software.then_some(quantity))
}

fn counts(group: &Group, event: &Event) -> bool {
    group.events.iter().any(|known| (known.quantity, known.attr) == (event.quantity, event.attr))
}

/// Whether a group that was just opened has its turn, as far as there is time to see it.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing wakes who waits for a turn of counters, and it is a sixth of a second at most"
)]
fn counts_at_all(counters: &mut dyn Counters, stop: &dyn Fn() -> bool) -> bool {
    let mut reading = Reading::default();
    let mut counts = || counters.read(&mut reading).is_err() || reading.running > 0 || reading.enabled == 0;
    counts()
        || TURN.iter().any(|wait| {
            std::thread::sleep(Duration::from_millis(*wait));
            stop() || counts()
        })
}

type Left = Vec<(Event, Refusal)>;
type Refused<'p> = Vec<(Event, &'p Group, Refusal)>;
/// Tries a group, and says why it does not count.
type Try<'t> = &'t dyn Fn(&Group) -> Result<Option<Refusal>, OpenError>;

/// Divides a group that is not opened as it is into some that are, in the order of the importance of its events.
fn divide<'p>(
    plan: &Plan,
    group: &'p Group,
    try_one: Try<'_>,
    groups: &mut Vec<Group>,
    refused: &mut Refused<'p>,
) -> Result<(), OpenError> {
    let (mut fits, mut left) = fill(group, Vec::new(), group.events.clone(), try_one)?;
    // An event that does not fit beside the others may fit alone; it is divided by cycles nevertheless.
    let cycles: Vec<Event> =
        fits.iter().filter(|event| event.quantity == Quantity::Cycles).take(1).cloned().collect();
    let mut name = group.name.clone();
    loop {
        if !fits.is_empty() {
            groups.push(Group { name, events: fits, ..group.clone() });
        }
        let known =
            |event: &Event| groups.iter().any(|before| before.cpus == group.cpus && counts(before, event));
        let (rest, never): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(event, refusal)| refusal.is_for_room() && !known(event));
        refused.extend(never.into_iter().map(|(event, refusal)| (event, group, refusal)));
        if rest.is_empty() {
            return Ok(());
        }
        let rest: Vec<Event> = rest.into_iter().map(|(event, _)| event).collect();
        (fits, left) = fill(group, cycles.clone(), rest.clone(), try_one)?;
        if fits.len() == cycles.len() {
            (fits, left) = fill(group, Vec::new(), rest, try_one)?;
        }
        if fits.is_empty() {
            refused.extend(left.into_iter().map(|(event, refusal)| (event, group, refusal)));
            return Ok(());
        }
        name = free_name(plan, groups, &group.name);
    }
}

/// Which of these events can be counted beside those that it begins with, and why the others cannot.
fn fill(
    group: &Group,
    begin: Vec<Event>,
    rest: Vec<Event>,
    try_one: Try<'_>,
) -> Result<(Vec<Event>, Left), OpenError> {
    let (mut fits, mut left) = (Group { events: begin, ..group.clone() }, Vec::new());
    for event in rest {
        fits.events.push(event.clone());
        if let Some(refusal) = try_one(&fits)? {
            fits.events.pop();
            left.push((event, refusal));
        }
    }
    Ok((fits.events, left))
}

/// The next name of its kind.
fn free_name(plan: &Plan, groups: &[Group], name: &str) -> Arc<str> {
    let word = name.split('_').next().unwrap_or(name);
    let taken = |name: &str| plan.groups.iter().chain(groups).any(|group| &*group.name == name);
    let mut number = 2;
    loop {
        let name = format!("{word}_{number}");
        if !taken(&name) {
            return name.into();
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use perf_events::Attr;

    use super::*;
    use crate::{CacheLevel, Event, Flow, PlausibilityLimits, Precision, Quantity, Width};

    /// Counts events below `kinds` of its own, at most `most` at a time, of which others keep all but `free`.
    struct Machine {
        kinds: u64,
        most: usize,
        free: usize,
        denies: bool,
    }

    /// A group that has its turn when it was read so often, or never.
    struct Turns {
        turn: Option<u64>,
        read: u64,
    }

    impl Counters for Turns {
        fn read(&mut self, into: &mut Reading) -> Result<(), kernel_files::ReadError> {
            self.read += 1;
            into.enabled = self.read;
            into.running = self.turn.map_or(0, |turn| self.read.saturating_sub(turn));
            Ok(())
        }
    }

    impl Open for Machine {
        fn open(&self, _on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
            // The first of 2-3 and of 4-7; only the latter have event 32.
            let other = group.iter().any(|attr| attr.config == 32);
            assert!(cpu == 4 || cpu == 2 && !other, "CPU {cpu} does not have {group:?}");
            if self.denies {
                return Err(OpenError::Denied);
            }
            if group.iter().any(|attr| attr.config >= self.kinds) {
                return Err(OpenError::Absent);
            }
            if group.len() > self.most {
                return Err(OpenError::Unfit);
            }
            let turn = (group.len() <= self.free).then_some(3);
            Ok(Box::new(Turns { turn, read: 0 }))
        }
    }

    /// By tens.
    fn quantity(config: u64) -> Quantity {
        let double =
            |bits| Quantity::Flops { precision: Precision::Double, width: Width::Bits(bits), each: 2 };
        let load = |level| Quantity::CacheTraffic { level, flow: Flow::Load, each: 64 };
        match config {
            1 => Quantity::Cycles,
            2 => Quantity::Instructions,
            3 => Quantity::Branches,
            11 => Quantity::MajorFaults,
            12 => Quantity::MinorFaults,
            4..=9 => double(128),
            20..=29 => double(256),
            30..=39 => load(CacheLevel::L3),
            _ => load(CacheLevel::L2),
        }
    }

    fn plan(groups: &[&[u64]]) -> Plan {
        let event = |config: &u64| Event {
            name: format!("event{config}").into(),
            quantity: quantity(*config),
            attr: Attr::new(4, *config),
            minus: false,
        };
        let group = |configs: &&[u64]| Group {
            name: "group".into(),
            hardware: true,
            cpus: cpu_topology::CpuSet::parse(b"2-3").ok(),
            events: configs.iter().map(event).collect(),
        };
        let limits = PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None };
        Plan {
            microarchitecture: None,
            flops: None,
            groups: groups.iter().map(group).collect(),
            absent: vec![],
            limits,
        }
    }

    fn configs(plan: &Plan) -> Vec<Vec<u64>> {
        plan.groups.iter().map(|group| group.events.iter().map(|event| event.attr.config).collect()).collect()
    }

    #[test]
    fn what_is_not_counted_is_left_out_and_named() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 10, most: 3, free: 3, denies: false };
        let planned = plan(&[&[1, 2, 3], &[4, 11, 5], &[1, 2, 3, 4], &[12]]);
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine, &|| false).unwrap();
        assert_eq!(
            configs(&probed),
            [vec![1, 2, 3], vec![4, 5]],
            "what is in others already is not counted again"
        );
        let absent: Vec<_> = probed.absent.iter().map(|absent| (&*absent.what, &*absent.why)).collect();
        assert_eq!(
            absent,
            [
                ("event11", "no PMU of this machine counts it (ENOENT)"),
                ("event12", "no PMU of this machine counts it (ENOENT)"),
            ]
        );
        let none_online = cpu_topology::CpuSet::parse(b"0-1").unwrap();
        assert!(
            probe(&planned, &none_online, &BTreeSet::new(), &machine, &|| false).unwrap().groups.is_empty()
        );
        let denying = Machine { denies: true, ..machine };
        assert_eq!(
            probe(&planned, &online, &BTreeSet::new(), &denying, &|| false).err(),
            Some(OpenError::Denied)
        );
    }

    /// A guest may have fewer counters than its CPU.
    #[test]
    fn a_group_that_does_not_fit_is_divided_and_nothing_of_it_lost() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 100, most: 4, free: 4, denies: false };
        let mut planned = plan(&[&[1, 2, 4, 5, 20, 21, 22], &[1, 2, 30, 31], &[1, 2, 3]]);
        planned.groups[1].name = "group_2".into();
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine, &|| false).unwrap();
        assert_eq!(
            configs(&probed),
            [vec![1, 2, 4, 5], vec![1, 20, 21, 22], vec![1, 2, 30, 31], vec![1, 2, 3]]
        );
        let names: Vec<_> = probed.groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["group", "group_3", "group_2", "group"]);
        assert!(probed.absent.is_empty(), "{:?}", probed.absent);
        let small = Machine { most: 1, ..machine };
        let alone = probe(&plan(&[&[1, 2, 4]]), &online, &BTreeSet::new(), &small, &|| false).unwrap();
        assert_eq!(configs(&alone), [[1], [2], [4]], "without cycles where there is no room for them");
    }

    #[test]
    fn a_difference_that_is_divided_is_not_counted() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let mut planned = plan(&[&[1, 2, 30, 31]]);
        planned.groups[0].events[3].minus = true;
        let machine = |most| Machine { kinds: 100, most, free: most, denies: false };
        assert_eq!(
            configs(&probe(&planned, &online, &BTreeSet::new(), &machine(4), &|| false).unwrap()),
            [[1, 2, 30, 31]]
        );
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine(3), &|| false).unwrap();
        assert_eq!(configs(&probed), [[1, 2]]);
        assert!(probed.absent.iter().any(|absent| absent.why.contains("together")), "{:?}", probed.absent);
    }

    /// What others keep counters of is opened like everything else, and never counts.
    #[test]
    fn a_group_that_never_has_its_turn_is_divided_and_an_event_that_never_has_it_is_left_out() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 100, most: 4, free: 3, denies: false };
        let planned = plan(&[&[1, 2, 4, 5], &[1, 3]]);
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine, &|| false).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2, 4], vec![1, 5], vec![1, 3]]);
        assert!(probed.absent.is_empty());
        let probed =
            probe(&planned, &online, &BTreeSet::new(), &Machine { free: 0, ..machine }, &|| false).unwrap();
        assert!(probed.groups.is_empty(), "{probed:?}");
        let why = "it never has its turn: somebody else keeps a counter that it needs";
        assert!(probed.absent.iter().any(|absent| &*absent.what == "event1" && &*absent.why == why));
    }

    /// The one that others keep counters on may be one of many.
    #[test]
    fn suspects_are_looked_at_first() {
        struct Kept;
        impl Open for Kept {
            fn open(&self, _on: On<'_>, cpu: u32, _: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
                Ok(Box::new(Turns { turn: (cpu != 3).then_some(0), read: 0 }))
            }
        }
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let groups = |suspect: &[u32]| {
            probe(&plan(&[&[1, 2]]), &online, &suspect.iter().copied().collect(), &Kept, &|| false)
                .unwrap()
                .groups
                .len()
        };
        assert_eq!((groups(&[]), groups(&[3]), groups(&[9, 7])), (1, 0, 1), "the group's CPUs are 2 and 3");
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        let online = cpu_topology::CpuSet::parse(b"0-7").unwrap();
        let machine = Machine { kinds: 35, most: 4, free: 4, denies: false };
        let mut planned = plan(&[&[1, 2, 4, 20], &[1, 30, 31, 36], &[2, 5]]);
        // Another kind of core counts it.
        planned.groups.push(Group {
            cpus: cpu_topology::CpuSet::parse(b"4-7").ok(),
            name: "other".into(),
            ..plan(&[&[1, 32]]).groups.remove(0)
        });
        planned.groups[1].events[3].quantity = quantity(30);
        planned.flops = Some("retired".into());
        planned.limits.flops_per_cycle = Some(32.0);
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine, &|| false).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2, 4, 20], vec![2, 5], vec![1]]);
        assert!(probed.flops.is_some() && probed.limits.flops_per_cycle.is_some());
        let absent: Vec<_> = probed.absent.iter().map(|absent| (&*absent.what, &*absent.why)).collect();
        assert_eq!(
            absent,
            [
                ("event36", "no PMU of this machine counts it (ENOENT)"),
                (Topic::of(quantity(30)).as_str(), "without event36 the rest would look like the whole"),
            ]
        );
        let probed =
            probe(&planned, &online, &BTreeSet::new(), &Machine { kinds: 20, ..machine }, &|| false).unwrap();
        assert_eq!(configs(&probed), [vec![1, 2], vec![1]], "no FLOPs of some widths only");
        assert_eq!((probed.flops, probed.limits.flops_per_cycle), (None, None));
    }

    /// A hypervisor that gives fewer counters: the readings of slots would be of different moments.
    #[test]
    fn slots_whose_readings_are_divided_are_not_counted() {
        use crate::SlotPart::{Backend, Frontend, Retiring};
        let event =
            |config, quantity| Event { name: "e".into(), quantity, attr: Attr::new(4, config), minus: false };
        let slots = |part| Quantity::TopDown { part, slots: 6 };
        let mut planned = plan(&[]);
        planned.groups = vec![Group {
            name: "topdown".into(),
            hardware: true,
            cpus: None,
            events: vec![
                event(1, Quantity::Cycles),
                event(2, slots(Retiring)),
                event(3, slots(Frontend)),
                event(4, slots(Backend)),
            ],
        }];
        let online = CpuSet::parse(b"4").unwrap();
        let machine = |most| Machine { kinds: 100, most, free: most, denies: false };
        assert_eq!(probe(&planned, &online, &BTreeSet::new(), &machine(4), &|| false).unwrap(), planned);
        let probed = probe(&planned, &online, &BTreeSet::new(), &machine(3), &|| false).unwrap();
        assert!(!probed.groups.iter().flat_map(|group| &group.events).any(top_down::is_reading));
        assert!(probed.groups.iter().any(|group| group.events[0].quantity == Quantity::Cycles));
        let absent = probed.absent.iter().find(|absent| &*absent.what == "pipeline slots").unwrap();
        assert_eq!(&*absent.why, "the events for it do not fit this machine's counters together");
    }
}
