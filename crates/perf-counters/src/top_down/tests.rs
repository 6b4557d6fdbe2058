use perf_events::Attr;
use proptest::prelude::*;

use super::*;
use crate::catalogue::{Catalogue, Extent, Topic};

/// A group as the catalogue has it, with cycles: names, and the counts in their order.
fn readings(core: &str, extent: Extent, counts: &[(&str, u64)]) -> (Vec<Event>, Vec<u64>) {
    let catalogue = Catalogue::built_in();
    let core = &catalogue.cores(core).unwrap()[0];
    let other = if extent == Extent::Full { Extent::Essential } else { Extent::Full };
    let wanted = core.events.iter().filter(|event| {
        matches!(event.topic(), Topic::Cycles | Topic::TopDown | Topic::TopDownMemory)
            && event.only_in != Some(other)
    });
    let events: Vec<Event> = wanted
        .map(|event| Event {
            name: event.name.clone(),
            quantity: event.quantity,
            attr: Attr::default(),
            minus: false,
        })
        .collect();
    let count =
        |event: &Event| counts.iter().find(|(name, _)| *name == &*event.name).map(|(_, count)| *count);
    let counts: Vec<u64> = events.iter().map(|event| count(event).unwrap()).collect();
    (events, counts)
}

fn slots(made: &[(SlotCategory, u64)], category: SlotCategory) -> Option<u64> {
    made.iter().find(|(known, _)| *known == category).map(|(_, slots)| *slots)
}

/// Percentages of the slots, as a vendor's formula gives them.
fn assert_percent(made: &[(SlotCategory, u64)], expected: &[(SlotCategory, f64)]) {
    let all: u64 = made.iter().map(|(_, slots)| slots).sum();
    assert_eq!(made.len(), expected.len(), "{made:?}");
    for (category, percent) in expected {
        let is = slots(made, *category).unwrap() as f64 / all as f64 * 100.0;
        assert!((is - percent).abs() < 0.001, "{category:?}: {is} is not {percent}");
    }
}

use SlotCategory::{Backend, BackendCore, BackendMemory, BadSpeculation, Frontend, OtherThread, Retiring};

/// intel/perfmon, SPR/metrics: each of `topdown-*` over the sum of the four; `tma_memory_bound` likewise.
#[test]
fn intels_metrics_are_shares_of_their_sum() {
    let (slots, [ret, bad, fe, be, mem]) = (1_000_000_000_u64, [250e6, 40e6, 100e6, 606e6, 480e6]);
    let (events, counts) = readings(
        "Sapphire Rapids",
        Extent::Essential,
        &[
            ("CPU_CLK_UNHALTED.THREAD_P", 170_000_000),
            ("slots", slots),
            ("topdown-retiring", 250_000_000),
            ("topdown-bad-spec", 40_000_000),
            ("topdown-fe-bound", 100_000_000),
            ("topdown-be-bound", 606_000_000),
            ("topdown-mem-bound", 480_000_000),
        ],
    );
    let sum: f64 = ret + bad + fe + be;
    let percent = |part: f64| part / sum * 100.0;
    assert_percent(
        &categories(&events, &counts),
        &[
            (Retiring, percent(ret)),
            (BadSpeculation, percent(bad)),
            (Frontend, percent(fe)),
            (BackendMemory, percent(mem)),
            (BackendCore, percent(be) - percent(mem)),
        ],
    );
    // Ice Lake's CPUs do not count what waits for memory.
    let names = [Retiring, BadSpeculation, Frontend, Backend];
    let (events, _) = readings(
        "Ice Lake-SP",
        Extent::Full,
        &[
            ("CPU_CLK_UNHALTED.THREAD_P", 1),
            ("slots", 1),
            ("topdown-retiring", 1),
            ("topdown-bad-spec", 1),
            ("topdown-fe-bound", 1),
            ("topdown-be-bound", 1),
        ],
    );
    assert_eq!(categories_of(&events).collect::<Vec<_>>(), names);
}

/// intel/perfmon, SRF and ADL-N: `TOPDOWN_*` over 6 (or 5) slots of a cycle; what remains is bad speculation (ADL's formula).
#[test]
fn e_cores_count_empty_slots() {
    for (core, names, width) in [
        (
            "Sierra Forest",
            ["TOPDOWN_RETIRING.ALL_P", "TOPDOWN_FE_BOUND.ALL_P", "TOPDOWN_BE_BOUND.ALL_P"],
            6.0,
        ),
        (
            "Clearwater Forest",
            ["TOPDOWN_RETIRING.ALL_P", "TOPDOWN_FE_BOUND.ALL_P", "TOPDOWN_BE_BOUND.ALL_P"],
            8.0,
        ),
        ("Alder Lake-N", ["TOPDOWN_RETIRING.ALL", "TOPDOWN_FE_BOUND.ALL", "TOPDOWN_BE_BOUND.ALL"], 5.0),
    ] {
        let [retiring, frontend, backend] = names;
        let (events, counts) = readings(
            core,
            Extent::Essential,
            &[
                ("CPU_CLK_UNHALTED.THREAD_P", 1_000_000),
                (retiring, 1_900_000),
                (frontend, 600_000),
                (backend, 2_300_000),
            ],
        );
        let percent = |count: f64| count / (width * 1e6) * 100.0;
        assert_percent(
            &categories(&events, &counts),
            &[
                (Retiring, percent(1.9e6)),
                (Frontend, percent(0.6e6)),
                (Backend, percent(2.3e6)),
                (BadSpeculation, percent(width * 1e6 - 1.9e6 - 0.6e6 - 2.3e6)),
            ],
        );
    }
}

/// AMD's PPR, as perf's pipeline.json has it: `6 * ls_not_halted_cyc` slots on Zen 4 and 8 on Zen 5; bad speculation is what was
/// dispatched (0xaa/0x07) and did not retire.
#[test]
fn amds_slots_are_those_of_dispatch() {
    for (core, width) in [("Zen 4", 6_u64), ("Zen 4 MI300", 6), ("Zen 5", 8)] {
        let cycles = 1_000_000;
        let (frontend, backend, other, retired) = (700_000, 2_500_000, 400_000, 1_800_000);
        // The hardware's own law: a slot of a cycle is dispatched or empty for one of the reasons.
        let dispatched = width * cycles - frontend - backend - other;
        let (events, counts) = readings(
            core,
            Extent::Full,
            &[
                ("ls_not_halted_cyc", cycles),
                ("ex_ret_ops", retired),
                ("de_no_dispatch_per_slot.no_ops_from_frontend", frontend),
                ("de_no_dispatch_per_slot.backend_stalls", backend),
                ("de_no_dispatch_per_slot.smt_contention", other),
            ],
        );
        let percent = |count: u64| count as f64 / (width * cycles) as f64 * 100.0;
        assert_percent(
            &categories(&events, &counts),
            &[
                (Retiring, percent(retired)),
                (BadSpeculation, percent(dispatched - retired)),
                (Frontend, percent(frontend)),
                (Backend, percent(backend)),
                (OtherThread, percent(other)),
            ],
        );
    }
}

/// perf's metrics.json of neoverse-v1, -n2-v2, -n3 and -v3, in their own terms. Before r0p3 one slot of each cycle that N2 takes for the
/// front end's is not.
#[test]
fn arms_formulas_take_flushes_from_both_ends() {
    let (cycles, retired, spec, counted, be, flush) = (1e6, 1.8e6, 2.2e6, 1.1e6, 1.5e6, 20e3);
    let common = |flushes: &'static str| {
        [
            ("CPU_CYCLES", 1_000_000),
            ("OP_RETIRED", 1_800_000),
            ("OP_SPEC", 2_200_000),
            ("STALL_SLOT_FRONTEND", 1_100_000),
            ("STALL_SLOT_BACKEND", 1_500_000),
            (flushes, 20_000),
        ]
    };
    for (core, flushes, slots, lost_in_front, lost_behind, too_many) in [
        ("Neoverse V1", "BR_MIS_PRED", 8.0, 4.0, 0.0, 0.0),
        ("Neoverse N2", "BR_MIS_PRED", 5.0, 1.0, 3.0, cycles),
        ("Neoverse N2 r0p3", "BR_MIS_PRED", 5.0, 1.0, 3.0, 0.0),
        ("Neoverse V2", "BR_MIS_PRED", 8.0, 1.0, 3.0, 0.0),
        ("Neoverse N3", "STALL_FRONTEND_FLUSH", 5.0, 1.0, 0.0, 0.0),
        ("Neoverse V3", "STALL_FRONTEND_FLUSH", 10.0, 1.0, 0.0, 0.0),
    ] {
        let fe: f64 = counted - too_many;
        let (events, counts) = readings(core, Extent::Full, &common(flushes));
        let used = 1.0 - (fe + be) / (cycles * slots);
        let retiring = 100.0 * (retired / spec) * used;
        let frontend = 100.0 * (fe / (cycles * slots) - flush * lost_in_front / cycles);
        let backend = 100.0 * (be / (cycles * slots) - flush * lost_behind / cycles);
        let bad = 100.0 * ((1.0 - retired / spec) * used + flush * (lost_in_front + lost_behind) / cycles);
        assert_percent(
            &categories(&events, &counts),
            &[(Retiring, retiring), (BadSpeculation, bad), (Frontend, frontend), (Backend, backend)],
        );
    }
}

/// perf's metrics.json of t410: slots are counted, since a thread that is alone on its core has twice as many. What was sent is what had a
/// slot.
#[test]
fn olympus_counts_its_slots() {
    let (all, retired, fe, be) = (7_000_000_u64, 2_100_000, 1_400_000, 2_800_000);
    for extent in [Extent::Full, Extent::Essential] {
        let (events, counts) = readings(
            "Olympus",
            extent,
            &[
                ("CPU_CYCLES", 1_000_000),
                ("CPU_SLOT", all),
                ("OP_RETIRED", retired),
                ("STALL_SLOT_FRONTEND_WITHOUT_MISPRED", fe),
                ("STALL_SLOT_BACKEND", be),
            ],
        );
        assert_percent(
            &categories(&events, &counts),
            &[(Retiring, 30.0), (Frontend, 20.0), (Backend, 40.0), (BadSpeculation, 10.0)],
        );
    }
}

/// sbsa.json of perf, where what was sent is what had a slot.
#[test]
fn arms_essential_readings_give_the_common_formula() {
    let (cycles, slots, retired, fe, be) = (1_000_000_u64, 8, 3_000_000, 900_000, 3_500_000);
    let spec = slots * cycles - fe - be;
    let (events, counts) = readings(
        "Neoverse V2",
        Extent::Essential,
        &[
            ("CPU_CYCLES", cycles),
            ("OP_RETIRED", retired),
            ("STALL_SLOT_FRONTEND", fe),
            ("STALL_SLOT_BACKEND", be),
        ],
    );
    let stalled = (fe + be) as f64 / (slots * cycles) as f64;
    let done = retired as f64 / spec as f64;
    let percent = |count: u64| count as f64 / (slots * cycles) as f64 * 100.0;
    assert_percent(
        &categories(&events, &counts),
        &[
            (Retiring, done * (1.0 - stalled) * 100.0),
            (BadSpeculation, (1.0 - done) * (1.0 - stalled) * 100.0),
            (Frontend, percent(fe)),
            (Backend, percent(be)),
        ],
    );
}

#[test]
fn without_all_readings_there_are_no_categories() {
    let all = [("CPU_CYCLES", 1), ("OP_RETIRED", 1), ("STALL_SLOT_FRONTEND", 1), ("STALL_SLOT_BACKEND", 1)];
    let (events, counts) = readings("Neoverse V2", Extent::Essential, &all);
    for without in 0..events.len() {
        let (mut events, mut counts) = (events.clone(), counts.clone());
        let name = events.remove(without).name;
        counts.remove(without);
        assert!(categories(&events, &counts).is_empty(), "without {name}");
    }
    let cycles = events.iter().find(|event| event.quantity == Quantity::Cycles).unwrap().clone();
    assert!(categories(&[cycles], &[1]).is_empty(), "a group without slots");
}

fn cores() -> impl Strategy<Value = (&'static str, Extent)> {
    let of = |name, extent| (name, extent);
    prop::sample::select(vec![
        of("Sapphire Rapids", Extent::Full),
        of("Ice Lake-SP", Extent::Full),
        of("Sierra Forest", Extent::Full),
        of("Zen 5", Extent::Full),
        of("Neoverse V1", Extent::Full),
        of("Neoverse N2", Extent::Full),
        of("Olympus", Extent::Full),
        of("Neoverse V2", Extent::Full),
        of("Neoverse V2", Extent::Essential),
    ])
}

proptest! {
    /// Whatever is read: nobody knows in which order a CPU increments, and a hypervisor may give anything.
    #[test]
    fn categories_add_up_to_the_slots((core, extent) in cores(), counts in prop::collection::vec(0_u64..1 << 48, 12)) {
        let catalogue = Catalogue::built_in();
        let names = catalogue.cores(core).unwrap()[0].events.iter().map(|event| event.name.to_string());
        let given: Vec<(String, u64)> = names.zip(counts.into_iter().cycle()).collect();
        let given: Vec<(&str, u64)> = given.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let (events, counts) = readings(core, extent, &given);
        let made = categories(&events, &counts);
        let of = |quantity: fn(Quantity) -> bool| {
            events.iter().zip(&counts).find(|(event, _)| quantity(event.quantity)).map(|(_, count)| *count)
        };
        let all = of(|quantity| matches!(quantity, Quantity::TopDown { part: SlotPart::All, .. }));
        let width = events.iter().find_map(|event| match event.quantity {
            Quantity::TopDown { slots, .. } => Some(u64::from(slots)),
            _ => None,
        });
        let expected = all.unwrap_or_else(|| of(|quantity| quantity == Quantity::Cycles).unwrap() * width.unwrap());
        prop_assert_eq!(made.iter().map(|(_, slots)| slots).sum::<u64>(), expected);
    }
}
