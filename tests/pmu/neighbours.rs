//! Others that use the same counters.

use std::collections::BTreeSet;

use cpu_topology::CpuSet;
use perf_counters::probe::probe;
use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use perf_events::Kernel;

use crate::machine::{GENERAL, INSTRUCTIONS, Job, Pmu, STAND_INS, Work, assert_counted, count, counting, of};

/// Somebody else's event on CPU 0 that is always counted (`perf stat -e instructions:D`).
fn pinned(pmu: Pmu) -> Counter {
    let mut builder = Builder::new(Raw::new(INSTRUCTIONS));
    builder.attrs_mut().type_ = pmu.attr(INSTRUCTIONS).kind;
    builder.any_pid().one_cpu(0).exclude_kernel(false).pinned(true).enabled(true);
    builder.build().unwrap()
}

#[test]
fn beside_a_pinned_event_a_group_that_takes_all_counters_is_divided_at_once() {
    let Some(pmu) = Pmu::find() else { return };
    let _pinned = pinned(pmu);
    let online = CpuSet::parse(b"0").unwrap();
    let plan = probe(&pmu.plan(&[(false, GENERAL)]), &online, &BTreeSet::new(), &Kernel, &|| false).unwrap();
    let sizes: Vec<usize> = plan.groups.iter().map(|group| group.events.len()).collect();
    assert_eq!((sizes, plan.absent.len()), (vec![GENERAL - 1, 1], 0));
}

#[test]
fn a_group_that_never_has_its_turn_is_noticed() {
    let Some(pmu) = Pmu::find() else { return };
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(false, GENERAL), (true, 3)]));
    let mut counted = count(&mut counting, &job, "0");
    Work::of(20_000_000).run(&job.task(0));
    counting.read(&mut counted);
    assert!(counting.starving().is_empty());
    let neighbour = pinned(pmu);
    Work::of(3_200_000_000).run(&job.task(0));
    counting.read(&mut counted);
    assert_eq!(counting.starving().iter().copied().collect::<Vec<_>>(), [(0, 0)]);
    assert_eq!(counted.not_counted().map(|why| why.as_str()), Some("starved"));
    drop(neighbour);
    // More than a hundredth of what it waited for.
    Work::of(200_000_000).run(&job.task(0));
    counting.read(&mut counted);
    assert!(counting.starving().is_empty() && counted.not_counted().is_none());
}

#[test]
fn a_profiler_has_all_counters_as_soon_as_they_are_handed_over() {
    let Some(pmu) = Pmu::find() else { return };
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(true, 3), (true, 3), (true, 3)]));
    let mut counted = count(&mut counting, &job, "0");
    Work::of(20_000_000).run(&job.task(0));
    counting.release(std::iter::once(&mut counted));
    let before = of(&counting, &counted, STAND_INS[0]);
    assert_counted(before, 20_000_000, 3);
    let mut profiler = pmu.open(0, &[INSTRUCTIONS; GENERAL]).unwrap();
    Work::of(20_000_000).run(&job.task(0));
    let reading = profiler.read();
    assert_eq!(reading.running, reading.enabled);
    counting.read(&mut counted);
    assert_eq!(of(&counting, &counted, STAND_INS[0]), before);
    drop(profiler);
    counting.open(&mut counted, &CpuSet::parse(b"0").unwrap());
    Work::of(30_000_000).run(&job.task(0));
    counting.read(&mut counted);
    assert_counted(of(&counting, &counted, STAND_INS[0]), 50_000_000, 3);
}
