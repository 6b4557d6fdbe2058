//! Plans for every microarchitecture, with SMT and watchdog on and off.

use std::collections::BTreeSet;

use perf_counters::Quantity;
use perf_counters::catalogue::{Catalogue, Class, Extent, Topic};
use perf_counters::planner::{Draft, Machine, draft, plan};
use perf_events::Attr;

use crate::fits::fits;

fn every(mut check: impl FnMut(&str, &Machine, &Catalogue)) {
    let catalogue = Catalogue::built_in();
    assert!(catalogue.names().count() >= 47);
    for name in catalogue.names() {
        for (smt, watchdog) in [(false, false), (false, true), (true, false), (true, true)] {
            check(name, &Machine::assumed(&catalogue, name, smt, watchdog).unwrap(), &catalogue);
        }
    }
}

fn topics(draft: &Draft) -> BTreeSet<&'static str> {
    let groups = draft.cores.iter().flat_map(|core| &core.groups);
    groups.flat_map(|group| &group.events).map(|chosen| chosen.event.topic().as_str()).collect()
}

#[test]
fn every_group_fits_its_counters() {
    every(|name, machine, catalogue| {
        let both = Extent::ALL.map(|extent| draft(machine, catalogue, extent, &Class::ALL).cores);
        for core in both.into_iter().flatten() {
            let known = core.known.as_ref().unwrap();
            assert!(!core.groups.is_empty(), "{name}");
            for group in &core.groups {
                let events: Vec<_> = group.events.iter().map(|chosen| &chosen.event).collect();
                assert!(fits(known, machine.smt, machine.watchdog, &events), "{name} {machine:?} {group:?}");
                let attrs: BTreeSet<Attr> = group.events.iter().map(|chosen| chosen.attr).collect();
                assert_eq!(
                    attrs.len(),
                    group.events.len(),
                    "{name}: an event stands twice in {}",
                    group.name
                );
                assert!(group.events.len() <= 20, "{name}");
            }
            let all: Vec<_> =
                core.groups.iter().flat_map(|g| &g.events).map(|chosen| &chosen.event).collect();
            let together = core.groups.len() == 1 || fits(known, machine.smt, machine.watchdog, &all);
            assert_eq!(core.turns, !together, "{name}");
            let names: BTreeSet<_> = core.groups.iter().map(|group| group.name.clone()).collect();
            assert_eq!(names.len(), core.groups.len(), "{name}: a group's name stands twice");
        }
    });
}

#[test]
fn what_a_microarchitecture_has_is_planned_or_absent_with_a_reason() {
    every(|name, machine, catalogue| {
        let draft = draft(machine, catalogue, Extent::Full, &Class::ALL);
        let planned = topics(&draft);
        let absent: BTreeSet<&str> = draft.absent.iter().map(|absent| &*absent.what).collect();
        assert!(planned.is_disjoint(&absent), "{name}: {planned:?} {absent:?}");
        for topic in Topic::EXPECTED {
            assert!(planned.contains(topic.as_str()) || absent.contains(topic.as_str()), "{name}: {topic:?}");
        }
        let cores = catalogue.cores(name).unwrap();
        for core in cores {
            for event in core.events.iter().filter(|event| event.is_for(&machine.pmu_names)) {
                let topic = event.topic();
                let everywhere =
                    cores.iter().all(|core| core.events.iter().any(|event| event.topic() == topic));
                // Slots take the four counters of which the watchdog keeps one.
                let no_room = name == "Olympus" && machine.watchdog && topic == Topic::TopDown;
                let everywhere = everywhere && !no_room;
                assert_eq!(planned.contains(topic.as_str()), everywhere, "{name}: {}", event.name);
                // All of it: a sum with a part missing would be too small.
                let here = draft.cores.iter().find(|kind| kind.known.as_ref() == Some(core)).unwrap();
                let counted = here.groups.iter().flat_map(|g| &g.events).any(|chosen| chosen.event == *event);
                let in_this_plan = event.only_in != Some(Extent::Essential);
                assert_eq!(counted, everywhere && in_this_plan, "{name}: {}", event.name);
            }
        }
        for absent in &draft.absent {
            assert!(
                !absent.why.is_empty() && !absent.why.ends_with('.') && !absent.why.contains('\n'),
                "{absent:?}"
            );
            // Said by the catalogue, not for want of anything better.
            assert!(!absent.why.starts_with("no event is known for it on this core ("), "{name}: {absent:?}");
        }
    });
}

#[test]
fn flops_are_there_where_the_data_says_so_and_come_first() {
    let without = [
        "Haswell-EP",
        "Knights Landing",
        "Knights Mill",
        "Alder Lake",
        "Alder Lake-N",
        "Raptor Lake",
        "Neoverse N1",
        "AmpereOne",
        "AmpereOneX",
        "ThunderX2",
        "TaiShan v110",
        "POWER9",
        "POWER10",
        "Haswell",
    ];
    let speculative = [
        "Sandy Bridge-EP",
        "Ivy Bridge-EP",
        "Neoverse V1",
        "Neoverse N2",
        "Neoverse N2 r0p3",
        "Neoverse V2",
        "Neoverse N3",
        "Neoverse V3",
        "Olympus",
    ];
    every(|name, machine, catalogue| {
        let plan = plan(machine, catalogue, Extent::Full, &Class::ALL);
        let of_flops = |event: &perf_counters::Event| matches!(event.quantity, Quantity::Flops { .. });
        let counted = plan.groups.iter().any(|group| group.events.iter().any(of_flops));
        assert_eq!(counted, !without.contains(&name), "{name}");
        assert_eq!(counted, !plan.absent.iter().any(|absent| &*absent.what == "FLOPs"), "{name}");
        assert_eq!(counted, plan.limits.flops_per_cycle.is_some(), "{name}");
        let quality = if speculative.contains(&name) { "speculative" } else { "retired" };
        assert_eq!(plan.flops.as_deref(), counted.then_some(quality), "{name}");
        let has = |group: &perf_counters::Group, quantity| {
            group.events.iter().any(|event| event.quantity == quantity)
        };
        if counted {
            assert_eq!(&*plan.groups[0].name, "flops", "{name}");
        }
        for group in plan.groups.iter().filter(|group| group.events.iter().any(of_flops)) {
            // The kernel wants slots to lead what is derived from them.
            let slots = |event: &&perf_counters::Event| &*event.name == "slots";
            let first = group.events.iter().find(|event| !slots(event)).unwrap();
            assert_eq!(first.quantity, Quantity::Cycles, "{name}: FLOPs are divided by cycles");
        }
        assert!(
            plan.groups.iter().any(|g| has(g, Quantity::Cycles) && has(g, Quantity::Instructions)),
            "{name}"
        );
        let last = plan.groups.last().unwrap();
        assert_eq!((&*last.name, last.hardware, last.events.len()), ("software", false, 4), "{name}");
        assert!(plan.groups[..plan.groups.len() - 1].iter().all(|group| group.hardware), "{name}");
        assert_eq!(plan.microarchitecture.as_deref(), Some(name));
    });
}

#[test]
fn cycles_and_instructions_are_in_every_group_where_they_cost_nothing() {
    every(|name, machine, catalogue| {
        for core in draft(machine, catalogue, Extent::Full, &Class::ALL).cores {
            let fixed = &core.known.as_ref().unwrap().fixed;
            let free = |topic| fixed.contains(&topic) && !(topic == Topic::Cycles && machine.watchdog);
            for topic in [Topic::Cycles, Topic::Instructions].into_iter().filter(|topic| free(*topic)) {
                for group in &core.groups {
                    assert!(
                        group.events.iter().any(|c| c.event.topic() == topic),
                        "{name} {} {topic:?}",
                        group.name
                    );
                }
            }
        }
    });
}

/// What a machine of this kind usually has: SMT where its firmware knows it, and the watchdog, which Linux has on x86 and POWER alone
/// by default (HARDLOCKUP_DETECTOR_PERF; ARM has no non-maskable interrupt without pseudo_nmi).
pub(crate) fn usual(name: &str, catalogue: &Catalogue) -> Machine {
    let arm = catalogue.cores(name).unwrap().iter().any(|core| &*core.pmu == "armv8");
    Machine::assumed(catalogue, name, !arm, !arm && name != "POWER9").unwrap()
}

/// With SMT a thread of these has four counters, of which the watchdog leaves three beside cycles, and FLOPs take four or five: vectors
/// of each width are worth something else.
const TOO_FEW_COUNTERS: [&str; 11] = [
    "Broadwell",
    "Broadwell-DE",
    "Broadwell-EP",
    "Cascade Lake-SP",
    "Comet Lake",
    "Cooper Lake-SP",
    "Ivy Bridge-EP",
    "Kaby Lake/Coffee Lake",
    "Sandy Bridge-EP",
    "Skylake",
    "Skylake-SP",
];

#[test]
fn the_essential_plan_takes_no_turns_where_a_thread_has_counters_for_flops() {
    let catalogue = Catalogue::built_in();
    let mut in_turns = Vec::new();
    for name in catalogue.names() {
        let essential = draft(&usual(name, &catalogue), &catalogue, Extent::Essential, &Class::ALL);
        let full = draft(&usual(name, &catalogue), &catalogue, Extent::Full, &Class::ALL);
        for (core, full) in essential.cores.iter().zip(&full.cores) {
            assert!(core.groups.len() <= full.groups.len(), "{name}");
            match core.groups.len() {
                1 => assert!(!core.turns, "{name}"),
                2 => in_turns.push(name.to_owned()),
                more => panic!("{name}: {more} groups"),
            }
        }
        // What the full plan counts of these the essential one does, or says why not.
        let counts = |draft: &Draft, topic: Topic| topics(draft).contains(topic.as_str());
        for topic in [Topic::Cycles, Topic::Instructions, Topic::Flops] {
            assert_eq!(counts(&essential, topic), counts(&full, topic), "{name}: {topic:?}");
        }
        for topic in [Topic::MemoryLoads, Topic::TopDown] {
            let said = essential.absent.iter().any(|absent| &*absent.what == topic.as_str());
            assert_eq!(counts(&essential, topic), !said, "{name}: {topic:?}");
        }
        let essential_alone = topics(&essential);
        for topic in Topic::EXPECTED.into_iter().filter(|topic| !topic.is_essential()) {
            assert!(!essential_alone.contains(topic.as_str()), "{name}: {topic:?}");
        }
    }
    assert_eq!(in_turns, TOO_FEW_COUNTERS);
}

/// The order of importance: cycles, instructions, FLOPs, loads from memory, slots.
#[test]
fn what_is_left_out_of_the_essential_plan_is_less_important_than_what_is_in_it() {
    every(|name, machine, catalogue| {
        let draft = draft(machine, catalogue, Extent::Essential, &Class::ALL);
        let why = "not in the essential plan: what matters more takes the counters";
        let left_out: Vec<_> =
            draft.absent.iter().filter(|absent| &*absent.why == why).map(|absent| &*absent.what).collect();
        for core in draft.cores.iter().filter(|_| !left_out.is_empty()) {
            let events: Vec<_> = core.groups[0].events.iter().map(|chosen| &chosen.event).collect();
            let known = core.known.as_ref().unwrap();
            let stands_in = |event: &&perf_counters::catalogue::Event| event.only_in != Some(Extent::Full);
            for what in &left_out {
                let of =
                    known.events.iter().filter(|event| event.topic().as_str() == *what).filter(stands_in);
                let with: Vec<_> = events.iter().copied().chain(of).collect();
                assert!(!fits(known, machine.smt, machine.watchdog, &with), "{name}: {what} fits");
            }
        }
        assert!(!left_out.contains(&"FLOPs"), "{name}");
    });
}

/// How many groups a node of these years has to take turns with.
#[test]
fn groups_are_as_few_as_they_were() {
    let catalogue = Catalogue::built_in();
    let groups = |name: &str, smt, watchdog| {
        let machine = Machine::assumed(&catalogue, name, smt, watchdog).unwrap();
        draft(&machine, &catalogue, Extent::Full, &Class::ALL).cores[0].groups.len()
    };
    for (name, smt, watchdog, expected) in [
        ("Broadwell-EP", true, false, 4),
        ("Skylake-SP", true, true, 5),
        ("Skylake-SP", true, false, 4),
        ("Skylake-SP", false, true, 3),
        // Five events of caches and memory that only four counters count.
        ("Ice Lake-SP", true, false, 3),
        ("Ice Lake-SP", true, true, 3),
        ("Sapphire Rapids", true, false, 3),
        ("Zen 2", true, false, 3),
        ("Zen 4", true, false, 4),
        ("Zen 4", true, true, 5),
        ("Zen 5", true, true, 6),
        ("Neoverse V2", false, false, 3),
        // Refills of L2 are counted as misses and as a part of the loads, which one group cannot have both of.
        ("A64FX", false, false, 3),
    ] {
        assert_eq!(groups(name, smt, watchdog), expected, "{name} {smt} {watchdog}");
    }
}

#[test]
fn only_what_is_wanted_is_planned() {
    let catalogue = Catalogue::built_in();
    let machine = Machine::assumed(&catalogue, "Ice Lake-SP", true, false).unwrap();
    let software = plan(&machine, &catalogue, Extent::Full, &[Class::Software]);
    assert_eq!((software.groups.len(), software.absent.len(), software.events()), (1, 0, 4));
    let flops = draft(&machine, &catalogue, Extent::Full, &[Class::Flops]);
    assert_eq!(topics(&flops), BTreeSet::from(["FLOPs", "cycles", "instructions", "reference cycles"]));
    let nothing = plan(&machine, &catalogue, Extent::Full, &[]);
    assert_eq!((nothing.groups.len(), nothing.absent.len()), (0, 0));
    let branches = plan(&machine, &catalogue, Extent::Full, &[Class::Branches]);
    assert_eq!((branches.groups.len(), branches.absent.len(), branches.flops), (1, 0, None));
    for class in Class::ALL {
        assert_eq!(Class::parse(class.as_str()), Some(class));
    }
    assert_eq!(Class::parse("FLOPS"), None);
}
