use perf_events::Attr;
use proptest::prelude::*;

use super::*;
use crate::{Event, Precision, Width};

const FMA: Quantity = Quantity::Flops { precision: Precision::Double, width: Width::Bits(256), each: 4 };
const LIMITS: PlausibilityLimits =
    PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: Some(16.0) };

fn group(name: &str, quantities: &[Quantity]) -> Group {
    let event = |quantity: &Quantity| Event {
        name: "event".into(),
        quantity: *quantity,
        attr: Attr::default(),
        minus: false,
    };
    Group { name: name.into(), hardware: true, cpus: None, events: quantities.iter().map(event).collect() }
}

fn plan(groups: Vec<Group>) -> Plan {
    Plan { microarchitecture: None, flops: None, groups, absent: Vec::new(), limits: LIMITS }
}

fn reading(enabled: u64, running: u64, counts: &[u64]) -> Reading {
    Reading { enabled, running, counts: counts.to_vec() }
}

fn look(group: &Group, last: &Reading, now: &Reading) -> (Interval, Vec<u64>) {
    let mut scaled = Vec::new();
    let interval = interval(group, &LIMITS, last, now, &mut scaled);
    (interval, scaled)
}

#[test]
fn counts_are_scaled_by_the_time_in_which_they_were_counted() {
    let group = group("flops", &[Quantity::Cycles, FMA]);
    let last = reading(100, 100, &[1000, 10]);
    let counted = |enabled, running| Interval::Counted { enabled, running };
    assert_eq!(look(&group, &last, &reading(300, 300, &[1600, 30])), (counted(200, 200), vec![600, 20]));
    assert_eq!(look(&group, &last, &reading(300, 150, &[1600, 30])), (counted(200, 50), vec![2400, 80]));
    assert_eq!(
        look(&group, &last, &reading(400, 300, &[1001, 10])),
        (counted(300, 200), vec![2, 0]),
        "to the nearest"
    );
    assert_eq!(look(&group, &last, &last), (counted(0, 0), vec![0, 0]), "nobody ran");
    assert_eq!(look(&group, &last, &reading(300, 100, &[1000, 10])).0, Interval::Waiting, "not its turn yet");
    let moment = look(&group, &last, &reading(10_099, 199, &[1010, 10]));
    assert_eq!(moment.0, Interval::Waiting, "99 of 9999 ns are no sample of it");
    let enough = look(&group, &last, &reading(10_100, 200, &[1010, 10]));
    assert_eq!(enough, (counted(10_000, 100), vec![1000, 0]));
}

/// A64FX: of the refills of L2 those that are none.
fn difference() -> Group {
    let loads = Quantity::MemoryLoads { each: 256 };
    let mut group = group("memory", &[Quantity::Cycles, loads, loads, loads]);
    for (at, event) in group.events.iter_mut().enumerate() {
        (event.attr, event.minus) = (Attr::new(8, at as u64), at > 1);
    }
    group
}

#[test]
fn what_is_counted_beside_loads_is_taken_off_and_never_more() {
    let group = difference();
    let last = reading(100, 100, &[0, 10, 0, 5]);
    let now = reading(300, 300, &[9, 110, 20, 15]);
    assert_eq!(look(&group, &last, &now).1, [9, 70, 0, 0]);
    let turns = reading(300, 150, &[9, 110, 20, 15]);
    assert_eq!(look(&group, &last, &turns).1, [36, 280, 0, 0], "scaled as one");
    let more = reading(300, 300, &[9, 20, 6, 11]);
    assert_eq!(look(&group, &last, &more).1, [9, 0, 0, 0], "never below zero");
    let plan = plan(vec![group]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    tally.opened(0);
    tally.add(&layout, 0, (200, 200), &look(&plan.groups[0], &last, &now).1);
    let published: Vec<_> = tally.quantities(&layout).collect();
    assert_eq!(published, [(Quantity::Cycles, 9), (Quantity::MemoryLoads { each: 256 }, 70 * 256)]);
}

#[test]
fn a_difference_of_events_that_take_turns_with_each_other_is_not_published() {
    let mut whole = difference();
    let mut part = whole.clone();
    part.events.drain(1..3);
    whole.events.pop();
    let plan = plan(vec![whole, part]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    for (number, counts) in [(0, vec![1, 5, 0]), (1, vec![1, 0])] {
        tally.opened(number);
        tally.add(&layout, number, (9, 9), &counts);
    }
    let published: Vec<_> = tally.quantities(&layout).map(|(quantity, _)| quantity).collect();
    assert_eq!(published, [Quantity::Cycles]);
}

/// A program that switches all the time: a sixth of it is the kernel's work at switches.
#[test]
fn counts_of_the_kernels_own_events_are_exact() {
    let mut group = group("software", &[Quantity::ContextSwitches]);
    group.hardware = false;
    let (interval, counts) = look(&group, &reading(0, 0, &[0]), &reading(1200, 1000, &[468]));
    assert_eq!((interval, counts), (Interval::Counted { enabled: 1200, running: 1200 }, vec![468]));
}

#[test]
fn what_no_core_can_do_is_rejected() {
    let group = group("flops", &[Quantity::Cycles, Quantity::Instructions, FMA]);
    let last = reading(0, 0, &[0, 0, 0]);
    let reject_reason = |now: Reading| match look(&group, &last, &now).0 {
        Interval::Rejected(reject_reason) => Some(reject_reason),
        _ => None,
    };
    assert_eq!(reject_reason(reading(100, 101, &[0, 0, 0])), Some(RejectReason::Running));
    assert_eq!(reject_reason(reading(100, 100, &[1_000_000, 8_000_000, 4_000_000])), None, "at the bounds");
    assert_eq!(
        reject_reason(reading(100, 100, &[1_000_000, 8_000_001, 0])),
        Some(RejectReason::Instructions)
    );
    assert_eq!(reject_reason(reading(100, 100, &[1_000_000, 0, 4_000_001])), Some(RejectReason::Flops));
    assert_eq!(reject_reason(reading(100, 50, &[1_000_000, 8_000_000, 0])), None, "before it is scaled");
    assert_eq!(
        reject_reason(reading(100, 100, &[99_999, 8_000_000, 4_000_000])),
        None,
        "too few cycles to say"
    );
    let went_back = |before: &Reading, now: &Reading| look(&group, before, now).0;
    let rejected = Interval::Rejected(RejectReason::Backwards);
    assert_eq!(went_back(&reading(100, 100, &[5, 5, 5]), &reading(200, 200, &[5, 4, 5])), rejected);
    assert_eq!(went_back(&reading(100, 100, &[0, 0, 0]), &reading(99, 100, &[0, 0, 0])), rejected);
    assert_eq!(
        went_back(&reading(1, 1, &[0, 0, 0]), &reading(2, 2, &[0, 0])),
        rejected,
        "a count is missing"
    );
}

#[test]
fn a_quantity_is_taken_from_the_first_group_that_has_it() {
    let plan = plan(vec![
        group("flops", &[Quantity::Cycles, FMA]),
        group("branches", &[Quantity::Cycles, Quantity::Branches]),
    ]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    tally.opened(0);
    tally.opened(1);
    tally.add(&layout, 0, (100, 100), &[1000, 10]);
    tally.covers(100);
    tally.add(&layout, 1, (100, 50), &[1111, 7]);
    let quantities_counted: Vec<_> = tally.quantities(&layout).collect();
    assert_eq!(quantities_counted, [(Quantity::Cycles, 1000), (FMA, 40), (Quantity::Branches, 7)]);
    assert_eq!(tally.covered(), 100);
}

/// Readings of slots are not published themselves; what is made of them is, and of two kinds of cores added up.
#[test]
fn categories_of_slots_are_counted_interval_by_interval() {
    use crate::{SlotCategory, SlotPart};
    let part = |part| Quantity::TopDown { part, slots: 6 };
    let readings =
        [Quantity::Cycles, part(SlotPart::Retiring), part(SlotPart::Frontend), part(SlotPart::Backend)];
    let plan = plan(vec![group("topdown", &readings)]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    tally.opened(0);
    let mut count = |last: &Reading, now: &Reading| {
        let (interval, scaled) = look(&plan.groups[0], last, now);
        let Interval::Counted { enabled, running } = interval else { panic!("{interval:?}") };
        tally.add(&layout, 0, (enabled, running), &scaled);
        tally.quantities(&layout).collect::<Vec<_>>()
    };
    let slots = |category, slots| (Quantity::PipelineSlots(category), slots);
    let begin = reading(0, 0, &[0, 0, 0, 0]);
    let first = reading(100, 50, &[1000, 2000, 500, 3000]);
    assert_eq!(
        count(&begin, &first),
        [
            (Quantity::Cycles, 2000),
            slots(SlotCategory::Retiring, 4000),
            slots(SlotCategory::BadSpeculation, 1000),
            slots(SlotCategory::Frontend, 1000),
            slots(SlotCategory::Backend, 6000),
        ],
        "it had its turn half of the time"
    );
    let second = reading(200, 150, &[2000, 2000, 500, 9000]);
    let sum: u64 = count(&first, &second).iter().skip(1).map(|(_, slots)| slots).sum();
    assert_eq!(sum, 6 * 3000, "all slots of all cycles");
}

/// Some quantities are the sum of several events, which may be in several groups.
#[test]
fn events_of_one_quantity_are_added_up_and_exported_only_when_all_of_them_count() {
    let with =
        |group: &mut Group, config| group.events.iter_mut().for_each(|event| event.attr.config = config);
    let (mut first, mut second) = (group("flops", &[FMA]), group("flops_2", &[FMA, Quantity::Branches]));
    with(&mut first, 1);
    with(&mut second, 2);
    let plan = plan(vec![first, second]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    tally.opened(0);
    tally.opened(1);
    tally.add(&layout, 0, (100, 50), &[10]);
    tally.add(&layout, 1, (100, 50), &[5, 7]);
    assert_eq!(tally.quantities(&layout).collect::<Vec<_>>(), [(FMA, 60), (Quantity::Branches, 7)]);
    tally.left_out(1);
    assert_eq!(tally.quantities(&layout).count(), 0, "a part is not the sum");
    tally.left_out(0);
    tally.opened(1);
    assert_eq!(tally.quantities(&layout).collect::<Vec<_>>(), [(Quantity::Branches, 7)]);
    tally.opened(0);
    assert_eq!(tally.quantities(&layout).count(), 2);
    let mut waiting = Tally::new(&layout);
    waiting.opened(0);
    waiting.opened(1);
    waiting.add(&layout, 0, (100, 50), &[10]);
    waiting.add(&layout, 1, (100, 0), &[]);
    assert_eq!(waiting.quantities(&layout).count(), 0, "one of them never had its turn");
}

#[test]
fn both_kinds_of_cores_of_a_hybrid_cpu_add_to_one_quantity() {
    let of = |name, cpus: &[u8]| Group {
        cpus: cpu_topology::CpuSet::parse(cpus).ok(),
        ..group(name, &[Quantity::Cycles])
    };
    let plan = plan(vec![of("big", b"0-3"), of("small", b"4-7")]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    tally.opened(0);
    tally.opened(1);
    tally.add(&layout, 0, (10, 10), &[5]);
    tally.add(&layout, 1, (10, 10), &[6]);
    assert_eq!(tally.quantities(&layout).collect::<Vec<_>>(), [(Quantity::Cycles, 11)]);
    let mut on_big = Tally::new(&layout);
    on_big.opened(0);
    on_big.add(&layout, 0, (10, 10), &[5]);
    assert_eq!(
        on_big.quantities(&layout).collect::<Vec<_>>(),
        [(Quantity::Cycles, 5)],
        "a job on one kind alone"
    );
}

#[test]
fn what_was_never_counted_is_absent_and_what_never_ran_is_zero() {
    let plan = plan(vec![group("flops", &[FMA]), group("branches", &[Quantity::Branches])]);
    let layout = Layout::new(&plan);
    let mut tally = Tally::new(&layout);
    assert_eq!(tally.quantities(&layout).count(), 0, "nothing was opened");
    tally.opened(0);
    assert_eq!(tally.quantities(&layout).collect::<Vec<_>>(), [(FMA, 0)], "no thread of it has run yet");
    tally.add(&layout, 0, (100, 0), &[]);
    assert_eq!(tally.quantities(&layout).count(), 0, "it ran and never had its turn");
    tally.add(&layout, 0, (100, 1), &[0]);
    assert_eq!(tally.quantities(&layout).collect::<Vec<_>>(), [(FMA, 0)]);
}

proptest! {
    /// Whoever looks more often sees the same where nothing takes turns, and what is within rounding where it does.
    #[test]
    fn how_often_is_read_makes_no_difference(
        steps in prop::collection::vec((1_u64..1_000_000, 0_u64..100_000), 1..30),
        looks in prop::collection::vec(any::<bool>(), 30),
        turns in 1_u64..4,
    ) {
        let group = group("branches", &[Quantity::Branches]);
        let mut now = reading(0, 0, &[0]);
        let (mut last, mut sum, mut times) = (now.clone(), 0, 0);
        let mut readings = 0;
        for (index, (time, count)) in steps.iter().enumerate() {
            now.enabled += time * turns;
            now.running += time;
            now.counts[0] += count;
            if looks[index] || index + 1 == steps.len() {
                let (interval, scaled) = look(&group, &last, &now);
                let Interval::Counted { enabled, .. } = interval else { panic!("{interval:?}") };
                sum += scaled[0];
                times += enabled;
                readings += 1;
                last = now.clone();
            }
        }
        prop_assert_eq!(times, now.enabled);
        prop_assert!(sum.abs_diff(now.counts[0] * turns) <= readings, "{} of {}", sum, now.counts[0] * turns);
        if turns == 1 {
            prop_assert_eq!(sum, now.counts[0]);
        }
    }
}

#[test]
fn a_saved_tally_goes_on_under_another_plan_as_far_as_that_has_it() {
    let hybrid = vec![
        group("flops", &[Quantity::Cycles, FMA]),
        group("flops", &[Quantity::Instructions]),
        group("branches", &[Quantity::Branches]),
    ];
    let before = plan(hybrid.clone());
    let layout = Layout::new(&before);
    let mut tally = Tally::new(&layout);
    for (number, times, counts) in [(0, (10, 10), &[5, 6][..]), (1, (20, 10), &[7]), (2, (30, 30), &[8])] {
        tally.opened(number);
        tally.add(&layout, number, times, counts);
    }
    tally.covers(40);
    let saved = tally.save(&layout, &before);
    assert_eq!(Tally::restored(&saved, &layout, &before), tally, "the same plan");
    // The branches are dropped, and misses are new.
    let after = plan(vec![hybrid[1].clone(), hybrid[0].clone(), group("misses", &[Quantity::BranchMisses])]);
    let layout = Layout::new(&after);
    let restored = Tally::restored(&saved, &layout, &after);
    let mut counts: Vec<_> = restored.quantities(&layout).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(Quantity::Cycles, 5), (Quantity::Instructions, 7), (FMA, 24)]);
    assert_eq!(restored.covered(), 40);
}
