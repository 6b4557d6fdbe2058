use super::*;
use crate::catalogue::Encoding;

fn catalogue(site: &str) -> Catalogue {
    Catalogue::with_site_bytes(site.as_bytes()).unwrap()
}

fn event(topic: Quantity, counters: u32, pair: bool) -> Event {
    Event {
        name: "a".into(),
        quantity: topic,
        encoding: Encoding::Fields(vec![("event", 1)]),
        counters,
        pair,
        verified: true,
        note: None,
    }
}

#[test]
fn counters_are_assigned_and_not_only_counted() {
    let counters = Counters { general: 4, fixed: vec![Topic::Cycles], watchdog: false };
    let any = event(Quantity::Branches, u32::MAX, false);
    let first = event(Quantity::Branches, 0b0001, false);
    let low = event(Quantity::Branches, 0b0011, false);
    let pair = event(Quantity::Branches, u32::MAX, true);
    let odd = event(Quantity::Branches, 0b1110, true);
    let cycles = event(Quantity::Cycles, u32::MAX, false);
    for (events, fit) in [
        (vec![], true),
        (vec![&any; 4], true),
        (vec![&any; 5], false),
        (vec![&any, &any, &any, &first], true),
        (vec![&first, &first], false),
        (vec![&low, &low, &first], false),
        (vec![&any, &any, &low, &first], true),
        (vec![&pair, &pair], true),
        (vec![&pair, &pair, &any], false),
        (vec![&pair, &first, &any], true),
        (vec![&pair, &low, &low], true),
        (vec![&odd, &low, &low], true),
        (vec![&odd, &pair], true),
        (vec![&odd, &odd], false),
        (vec![&any, &any, &any, &any, &cycles], true),
        (vec![&any, &any, &any, &cycles, &cycles], true),
        (vec![&any, &any, &any, &any, &cycles, &cycles], false),
    ] {
        assert_eq!(counters.fit(events.iter().copied()), fit, "{events:?}");
    }
    let watched = Counters { watchdog: true, ..counters.clone() };
    assert!(watched.fit([&any, &any, &any, &any]), "the watchdog has the fixed counter");
    assert!(!watched.fit([&any, &any, &any, &any, &cycles]));
    assert!(watched.fit([&any, &any, &any, &cycles]));
    let none_fixed = Counters { fixed: Vec::new(), watchdog: true, ..counters.clone() };
    assert!(none_fixed.fit([&any, &any, &any]) && !none_fixed.fit([&any, &any, &any, &any]));
    assert!(none_fixed.fit([&pair, &any]) && !none_fixed.fit([&pair, &pair]));
    assert_eq!((counters.able(&cycles), counters.able(&first), counters.able(&pair)), (0b11111, 1, 0b1111));
}

#[test]
fn events_of_one_request_share_its_register() {
    let counters = Counters { general: 8, fixed: Vec::new(), watchdog: false };
    let request = |value| Event {
        encoding: Encoding::Fields(vec![("event", 0xb7), ("offcore_rsp", value)]),
        ..event(Quantity::MemoryLoads { each: 64 }, u32::MAX, false)
    };
    let [a, b, c] = [1, 2, 3].map(request);
    assert!(counters.fit([&a, &b]) && counters.fit([&a, &a, &b, &b]) && !counters.fit([&a, &b, &c]));
}

/// What cannot be counted in any group is left out whole, and on all kinds of cores.
#[test]
fn what_never_fits_is_absent() {
    let site = catalogue(
        "microarchitectures: [{names: [Meteor Lake], cores: [{pmu: cpu_atom, counters: {smt_on: 1, smt_off: 1},
          events: [{name: FP_FLOPS_RETIRED.FP32, event: 0xc8, umask: 2, what: flops, precision: single, width: any, each: 1, pair: true}]}]}]",
    );
    let machine = Machine::assumed(&site, "Meteor Lake", false, false).unwrap();
    let plan = plan(&machine, &site, &Class::ALL);
    let absent = plan.absent.iter().find(|absent| &*absent.what == "FLOPs").unwrap();
    assert_eq!(&*absent.why, "an event for it does not fit the counters that are left");
    let events = plan.groups.iter().flat_map(|group| &group.events);
    assert!(events.clone().all(|event| !matches!(event.quantity, Quantity::Flops { .. })));
    assert!(events.clone().any(|event| event.quantity == Quantity::Branches), "{plan:?}");
    assert_eq!((plan.flops, plan.limits.flops_per_cycle), (None, None));
}

#[test]
fn groups_are_named_by_what_they_begin_with() {
    let built_in = Catalogue::built_in();
    let names = |name: &str, smt, watchdog| -> Vec<String> {
        let machine = Machine::assumed(&built_in, name, smt, watchdog).unwrap();
        plan(&machine, &built_in, &Class::ALL).groups.iter().map(|group| group.name.to_string()).collect()
    };
    assert_eq!(
        names("Skylake-SP", true, true),
        ["flops", "flops_2", "flops_3", "cache", "cache_2", "software"]
    );
    assert_eq!(names("Zen 4", true, false), ["flops", "memory", "cache", "software"]);
    assert_eq!(names("Haswell-EP", true, false), ["memory", "cache", "branches", "software"]);
    let machine = Machine::assumed(&built_in, "Haswell-EP", true, false).unwrap();
    let only = plan(&machine, &built_in, &[Class::Flops]);
    assert_eq!(
        only.groups.iter().map(|group| &*group.name).collect::<Vec<_>>(),
        ["cycles"],
        "IPC needs no FLOPs"
    );
}

#[test]
fn what_counts_together_remains_together_where_it_can() {
    let built_in = Catalogue::built_in();
    let machine = Machine::assumed(&built_in, "Skylake-SP", true, false).unwrap();
    let plan = plan(&machine, &built_in, &Class::ALL);
    let precision = |group: &Group| -> Vec<_> {
        let of = |event: &plan::Event| match event.quantity {
            Quantity::Flops { precision, .. } => Some(precision),
            _ => None,
        };
        group.events.iter().filter_map(of).collect()
    };
    use crate::Precision::{Double, Single};
    assert_eq!(precision(&plan.groups[0]), [Double; 4]);
    assert_eq!(precision(&plan.groups[1]), [Single; 4]);
    let with_branches =
        plan.groups.iter().find(|g| g.events.iter().any(|e| e.quantity == Quantity::Branches));
    assert!(with_branches.unwrap().events.iter().any(|event| event.quantity == Quantity::BranchMisses));
}

/// A code that stands twice would have to count the same: once in a group, and both are counted.
#[test]
fn a_code_that_stands_twice_is_in_two_groups() {
    let twice = catalogue(
        "microarchitectures: [{names: [Ice Lake-SP], cores: [{pmu: cpu, events: [
          {name: one, event: 0x99, what: branches}, {name: other, event: 0x99, what: branches}]}]}]",
    );
    let machine = Machine::assumed(&twice, "Ice Lake-SP", true, false).unwrap();
    let plan = plan(&machine, &twice, &[Class::Branches]);
    let with =
        |name: &str| plan.groups.iter().position(|g| g.events.iter().any(|e| &*e.name == name)).unwrap();
    assert_ne!(with("one"), with("other"));
}
