//! Plans for every microarchitecture, with SMT and watchdog on and off.

use std::collections::BTreeSet;

use perf_counters::Quantity;
use perf_counters::catalogue::{Catalogue, Class, Topic};
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
        for core in draft(machine, catalogue, &Class::ALL).cores {
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
                assert!(group.events.len() <= 16, "{name}");
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
        let draft = draft(machine, catalogue, &Class::ALL);
        let planned = topics(&draft);
        let absent: BTreeSet<&str> = draft.absent.iter().map(|absent| &*absent.what).collect();
        assert!(planned.is_disjoint(&absent), "{name}: {planned:?} {absent:?}");
        for topic in Topic::EXPECTED {
            assert!(planned.contains(topic.as_str()) || absent.contains(topic.as_str()), "{name}: {topic:?}");
        }
        let cores = catalogue.cores(name).unwrap();
        for core in cores {
            for event in &core.events {
                let topic = event.topic();
                let everywhere =
                    cores.iter().all(|core| core.events.iter().any(|event| event.topic() == topic));
                assert_eq!(planned.contains(topic.as_str()), everywhere, "{name}: {}", event.name);
                // All of it: a sum with a part missing would be too small.
                let here = draft.cores.iter().find(|kind| kind.known.as_ref() == Some(core)).unwrap();
                let counted = here.groups.iter().flat_map(|g| &g.events).any(|chosen| chosen.event == *event);
                assert_eq!(counted, everywhere, "{name}: {}", event.name);
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
    ];
    let speculative = [
        "Sandy Bridge-EP",
        "Ivy Bridge-EP",
        "Neoverse V1",
        "Neoverse N2",
        "Neoverse V2",
        "Neoverse N3",
        "Neoverse V3",
        "Olympus",
    ];
    every(|name, machine, catalogue| {
        let plan = plan(machine, catalogue, &Class::ALL);
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
            assert_eq!(group.events[0].quantity, Quantity::Cycles, "{name}: FLOPs are divided by cycles");
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
        for core in draft(machine, catalogue, &Class::ALL).cores {
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

/// How many groups a node of these years has to take turns with.
#[test]
fn groups_are_as_few_as_they_were() {
    let catalogue = Catalogue::built_in();
    let groups = |name: &str, smt, watchdog| {
        let machine = Machine::assumed(&catalogue, name, smt, watchdog).unwrap();
        draft(&machine, &catalogue, &Class::ALL).cores[0].groups.len()
    };
    for (name, smt, watchdog, expected) in [
        ("Broadwell-EP", true, false, 4),
        ("Skylake-SP", true, true, 5),
        ("Skylake-SP", true, false, 4),
        ("Skylake-SP", false, true, 3),
        ("Ice Lake-SP", true, false, 2),
        ("Ice Lake-SP", true, true, 3),
        ("Sapphire Rapids", true, false, 3),
        ("Zen 2", true, false, 3),
        ("Zen 4", true, false, 3),
        ("Zen 4", true, true, 4),
        ("Zen 5", true, true, 5),
        ("Neoverse V2", false, false, 2),
        ("A64FX", false, false, 2),
    ] {
        assert_eq!(groups(name, smt, watchdog), expected, "{name} {smt} {watchdog}");
    }
}

#[test]
fn only_what_is_wanted_is_planned() {
    let catalogue = Catalogue::built_in();
    let machine = Machine::assumed(&catalogue, "Ice Lake-SP", true, false).unwrap();
    let software = plan(&machine, &catalogue, &[Class::Software]);
    assert_eq!((software.groups.len(), software.absent.len(), software.events()), (1, 0, 4));
    let flops = draft(&machine, &catalogue, &[Class::Flops]);
    assert_eq!(topics(&flops), BTreeSet::from(["FLOPs", "cycles", "instructions", "reference cycles"]));
    let nothing = plan(&machine, &catalogue, &[]);
    assert_eq!((nothing.groups.len(), nothing.absent.len()), (0, 0));
    let branches = plan(&machine, &catalogue, &[Class::Branches]);
    assert_eq!((branches.groups.len(), branches.absent.len(), branches.flops), (1, 0, None));
    for class in Class::ALL {
        assert_eq!(Class::parse(class.as_str()), Some(class));
    }
    assert_eq!(Class::parse("FLOPS"), None);
}
