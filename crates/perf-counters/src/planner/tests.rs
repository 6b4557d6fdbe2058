use super::*;
use crate::catalogue::{Encoding, Extent};

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
        free: false,
        only_in: None,
        verified: true,
        note: None,
        minus: false,
        with_pmu: None,
        without_pmu: None,
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
    let plan = plan(&machine, &site, Extent::Full, &Class::ALL);
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
        plan(&machine, &built_in, Extent::Full, &Class::ALL)
            .groups
            .iter()
            .map(|group| group.name.to_string())
            .collect()
    };
    assert_eq!(
        names("Skylake-SP", true, true),
        ["flops", "flops_2", "flops_3", "cache", "cache_2", "software"]
    );
    assert_eq!(names("Zen 4", true, false), ["flops", "memory", "topdown", "cache", "software"]);
    assert_eq!(names("Haswell-EP", true, false), ["memory", "cache", "branches", "software"]);
    let machine = Machine::assumed(&built_in, "Haswell-EP", true, false).unwrap();
    let only = plan(&machine, &built_in, Extent::Full, &[Class::Flops]);
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
    let plan = plan(&machine, &built_in, Extent::Full, &Class::ALL);
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
    let plan = plan(&machine, &twice, Extent::Full, &[Class::Branches]);
    let with =
        |name: &str| plan.groups.iter().position(|g| g.events.iter().any(|e| &*e.name == name)).unwrap();
    assert_ne!(with("one"), with("other"));
}

/// Intel's bits of DRAM and those of PMM, which HBM has on Xeon Max, are disjoint.
#[test]
fn reads_from_hbm_are_loads_from_memory_where_there_is_hbm() {
    let built_in = Catalogue::built_in();
    let mut machine = Machine::assumed(&built_in, "Sapphire Rapids", true, false).unwrap();
    let requests = |machine: &Machine| -> Vec<u64> {
        let groups = plan(machine, &built_in, Extent::Full, &[Class::Memory]).groups;
        let loads = |event: &plan::Event| matches!(event.quantity, Quantity::MemoryLoads { .. });
        groups.iter().flat_map(|group| &group.events).filter(|e| loads(e)).map(|e| e.attr.config1).collect()
    };
    assert_eq!(requests(&machine), [0x7_3c00_4477, 0x9400_2380]);
    machine.pmu_names.extend(["uncore_imc_0".to_owned(), "uncore_hbm_0".to_owned()]);
    assert_eq!(requests(&machine), [0x7_3fc0_4477, 0x9400_2380]);
    let files = test_machine::Machine::new();
    crate::uncore::testing::intel(&files, 0x8f, 8);
    crate::uncore::testing::pmu(&files, "uncore_hbm_0", 40, "0", &crate::uncore::testing::IMC, &[]);
    let read = Machine::read(&Arc::new(files.roots()));
    assert_eq!(read.microarchitecture.as_deref(), Some("Sapphire Rapids"));
    assert!(read.pmu_names.contains("uncore_hbm_0"), "{read:?}");
}

/// What is taken off has to happen in the same moments.
#[test]
fn a_difference_is_counted_in_one_group_or_not_at_all() {
    let loads = |catalogue: &Catalogue| {
        let machine = Machine::assumed(catalogue, "A64FX", false, false).unwrap();
        let plan = plan(&machine, catalogue, Extent::Full, &Class::ALL);
        let of_loads = |event: &plan::Event| matches!(event.quantity, Quantity::MemoryLoads { .. });
        let groups =
            plan.groups.iter().map(|group| group.events.iter().filter(|e| of_loads(e)).map(|e| e.minus));
        let found: Vec<Vec<bool>> =
            groups.map(Iterator::collect).filter(|found: &Vec<bool>| !found.is_empty()).collect();
        (found, plan.absent)
    };
    assert_eq!(loads(&Catalogue::built_in()).0, [[false, true, true]]);
    let small =
        "microarchitectures: [{names: [A64FX], cores: [{pmu: armv8, counters: {smt_on: 2, smt_off: 2}}]}]";
    let (found, absent) = loads(&catalogue(small));
    assert!(found.is_empty());
    let why = absent.iter().find(|absent| &*absent.what == "loads from memory").unwrap();
    assert_eq!(&*why.why, "an event for it does not fit the counters that are left");
}

/// It is there for comparison: what it costs is counters that nothing else takes.
#[test]
fn flops_of_all_types_have_no_group_of_their_own() {
    let name = "fp_ret_sse_avx_ops.all";
    let site = |rest: &str| {
        catalogue(&format!("microarchitectures: [{{names: [Zen 5], cores: [{{pmu: cpu, {rest}}}]}}]"))
    };
    let groups = |catalogue: &Catalogue, watchdog| {
        let machine = Machine::assumed(catalogue, "Zen 5", true, watchdog).unwrap();
        plan(&machine, catalogue, Extent::Full, &Class::ALL)
    };
    let counted = |plan: &Plan| {
        let events = plan.groups.iter().flat_map(|group| &group.events);
        events.filter(|event| event.quantity == Quantity::FlopsOfAllTypes).count()
    };
    let without = site(&format!("events: [{{name: {name}, remove: true}}]"));
    for watchdog in [true, false] {
        let (with, without) = (groups(&Catalogue::built_in(), watchdog), groups(&without, watchdog));
        assert_eq!((counted(&with), counted(&without)), (1, 0));
        assert_eq!(with.groups.len(), without.groups.len());
    }
    // Two counters, which an event of FLOPs has for itself.
    let small = groups(&site("counters: {smt_on: 2, smt_off: 2}"), false);
    assert_eq!(counted(&small), 0);
    assert!(small.flops.is_some());
    assert!(small.absent.iter().any(|absent| &*absent.what == "FLOPs of all types by one event"));
}

/// A machine of this kind, with SMT and the watchdog on.
fn machine(name: &str) -> (Machine, Catalogue) {
    let built_in = Catalogue::built_in();
    (Machine::assumed(&built_in, name, true, true).unwrap(), built_in)
}

fn names(plan: &Plan) -> Vec<Vec<&str>> {
    let hardware = plan.groups.iter().filter(|group| group.hardware);
    hardware.map(|group| group.events.iter().map(|event| &*event.name).collect()).collect()
}

#[test]
fn what_does_not_fit_the_one_group_is_not_in_the_essential_plan() {
    let (zen5, built_in) = machine("Zen 5");
    let plan = plan(&zen5, &built_in, Extent::Essential, &Class::ALL);
    let events =
        ["ls_not_halted_cyc", "ex_ret_instr", "fp_ret_sse_avx_ops.all", "l2_fill_rsp_src.dram_io_all"];
    assert_eq!(names(&plan), [events]);
    let why = |what: &str| plan.absent.iter().find(|absent| &*absent.what == what).map(|absent| &*absent.why);
    assert_eq!(
        why("pipeline slots"),
        Some("not in the essential plan: what matters more takes the counters")
    );
    assert_eq!(why("branches"), Some("not in the essential plan"));
    assert_eq!(why("cache"), Some("not in the essential plan"));
    assert_eq!(why("reference cycles"), Some("not in the essential plan"));
    assert_eq!(plan.absent.len(), 4, "{:?}", plan.absent);
}

/// docs/counters.md says how Zen 4 and 5 count slots without turns.
#[test]
fn slots_fit_where_flops_are_not_wanted() {
    let built_in = Catalogue::built_in();
    for name in ["Zen 4", "Zen 5"] {
        let machine = Machine::assumed(&built_in, name, true, false).unwrap();
        let plan = plan(&machine, &built_in, Extent::Essential, &[Class::TopDown, Class::Software]);
        let groups = names(&plan);
        assert_eq!((groups.len(), groups[0].len()), (1, 6), "{name}: {groups:?}");
        assert!(groups[0].contains(&"ex_ret_ops"), "{name}: {groups:?}");
    }
}

/// The kernel refuses `topdown-*` in a group that `slots` does not lead.
#[test]
fn slots_lead_the_group_of_what_is_derived_from_them() {
    for extent in Extent::ALL {
        for name in ["Ice Lake-SP", "Sapphire Rapids", "Granite Rapids"] {
            let (machine, built_in) = machine(name);
            let plan = plan(&machine, &built_in, extent, &Class::ALL);
            let groups = names(&plan);
            let with = |event: &str| groups.iter().position(|group| group.contains(&event)).unwrap();
            let group = with("topdown-retiring");
            assert_eq!(groups[group][0], "slots", "{name}");
            for other in ["topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"] {
                assert_eq!(with(other), group, "{name}: {other}");
            }
        }
    }
}

#[test]
fn a_kernel_without_slots_and_topdown_events_is_not_asked_for_them() {
    let (mut guest, built_in) = machine("Ice Lake-SP");
    guest.derives_slots = false;
    for extent in Extent::ALL {
        let plan = plan(&guest, &built_in, extent, &Class::ALL);
        assert!(names(&plan).concat().iter().all(|name| *name != "slots" && !name.starts_with("topdown")));
        let absent = plan.absent.iter().find(|absent| &*absent.what == "pipeline slots").unwrap();
        assert_eq!(&*absent.why, "this kernel has no events slots and topdown-* for it");
    }
}

#[test]
fn what_the_cpu_says_of_its_counters_and_slots_goes_before_the_table() {
    let (mut machine, built_in) = machine("Ice Lake-SP");
    machine.general = Some(4);
    let guest = draft(&machine, &built_in, Extent::Essential, &Class::ALL);
    assert_eq!(guest.cores[0].counters.general, 4);
    let built_in = Catalogue::built_in();
    let mut grace = Machine::assumed(&built_in, "Neoverse V2", false, false).unwrap();
    let slots = |machine: &Machine| {
        let plan = plan(machine, &built_in, Extent::Essential, &Class::ALL);
        let mut events = plan.groups.into_iter().flat_map(|group| group.events);
        events.find_map(|event| match event.quantity {
            Quantity::TopDown { slots, .. } => Some(slots),
            _ => None,
        })
    };
    assert_eq!(slots(&grace), Some(8));
    grace.slots = Some(10);
    assert_eq!(slots(&grace), Some(10));
}

#[test]
fn slots_are_counted_whole_or_not_at_all() {
    let site = catalogue(
        "microarchitectures: [{names: [Zen 4], cores: [{pmu: cpu, counters: {smt_on: 4, smt_off: 4}}]}]",
    );
    let machine = Machine::assumed(&site, "Zen 4", true, true).unwrap();
    let plan = plan(&machine, &site, Extent::Full, &Class::ALL);
    let reading = |event: &plan::Event| matches!(event.quantity, Quantity::TopDown { .. });
    assert!(!plan.groups.iter().flat_map(|group| &group.events).any(reading));
    let absent = plan.absent.iter().find(|absent| &*absent.what == "pipeline slots").unwrap();
    assert_eq!(&*absent.why, "an event for it does not fit the counters that are left");
}
