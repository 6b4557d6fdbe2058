//! One group, groups that take turns, groups that are too large, and the end of a job.

use std::collections::BTreeSet;

use cpu_topology::CpuSet;
use perf_counters::probe::probe;
use perf_events::Kernel;

use crate::machine::{
    CYCLES, GENERAL, INSTRUCTIONS, Job, Pmu, STAND_INS, Work, assert_counted, count, counting, of,
};

#[test]
fn known_work_in_a_jobs_task_is_counted() {
    let Some(pmu) = Pmu::find() else { return };
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(true, 1)]));
    let mut counted = count(&mut counting, &job, "0");
    for runs in 1..=3 {
        Work::of(100_000_000).run(&job.task(0));
        counting.read(&mut counted);
        assert_counted(of(&counting, &counted, STAND_INS[0]), runs * 100_000_000, 1);
    }
}

#[test]
fn what_runs_elsewhere_is_not_counted() {
    let Some(pmu) = Pmu::find() else { return };
    let (job, other) = (Job::new(1), Job::new(2));
    let mut counting = counting(pmu.plan(&[(true, 1)]));
    let mut counted = count(&mut counting, &job, "0");
    let mine = Work::of(30_000_000).start(&job.task(0));
    let theirs = Work::of(60_000_000).start(&other.task(0));
    for mut child in [mine, theirs] {
        assert!(child.wait().unwrap().success());
    }
    counting.read(&mut counted);
    assert_counted(of(&counting, &counted, STAND_INS[0]), 30_000_000, 2);
}

/// What is counted of three groups that take turns, and for which part of the time each had counters.
fn by_turns(pmu: Pmu, work: &Work) -> Vec<(u64, f64)> {
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(true, 3), (true, 3), (true, 3)]));
    let mut counted = count(&mut counting, &job, "0");
    work.run(&job.task(0));
    counting.read(&mut counted);
    let counts = [0, 3, 6].map(|first| of(&counting, &counted, STAND_INS[first]).unwrap());
    let ratios = counted.tally().groups().map(|times| times.running as f64 / times.enabled as f64);
    counts.into_iter().zip(ratios).collect()
}

/// Three groups with three events each and cycles, where two of them fit.
#[test]
fn groups_that_take_turns_are_scaled_to_the_whole() {
    let Some(pmu) = Pmu::find() else { return };
    let work = Work::of(200_000_000);
    for (count, ratio) in by_turns(pmu, &work) {
        assert!((0.2..0.7).contains(&ratio), "{ratio}");
        assert_counted(Some(count), work.total(), 1);
    }
}

#[test]
fn bursts_that_are_shorter_than_a_turn_are_scaled_to_the_whole() {
    let Some(pmu) = Pmu::find() else { return };
    let work = Work { instructions: 200_000, bursts: 400, pause_us: 2000 };
    // What the kernel does for the pauses is a part of it.
    let whole = {
        let job = Job::new(1);
        let mut counting = counting(pmu.plan(&[(true, 1)]));
        let mut counted = count(&mut counting, &job, "0");
        work.run(&job.task(0));
        counting.read(&mut counted);
        of(&counting, &counted, STAND_INS[0]).unwrap()
    };
    assert_counted(Some(whole), work.total(), 10);
    for (count, ratio) in by_turns(pmu, &work) {
        println!("  {count} by turns, {ratio:.2} of the time; {whole} without");
        assert!(ratio < 0.9, "{ratio}");
        let off = count as f64 / whole as f64 - 1.0;
        assert!(off.abs() < 0.01, "{off}");
    }
}

#[test]
fn a_group_that_is_one_too_large_is_refused() {
    let Some(pmu) = Pmu::find() else { return };
    let full = [INSTRUCTIONS; GENERAL];
    assert!(pmu.open(0, &full).unwrap().read().running > 0);
    let cycles: Vec<u64> = std::iter::once(CYCLES).chain(full).collect();
    assert!(pmu.open(0, &cycles).unwrap().read().running > 0, "cycles have a counter of their own");
    assert!(pmu.open(0, &[INSTRUCTIONS; GENERAL + 1]).is_err());
}

#[test]
fn a_group_that_is_too_large_is_divided_and_all_of_it_counted() {
    let Some(pmu) = Pmu::find() else { return };
    let online = CpuSet::parse(b"0").unwrap();
    let plan =
        probe(&pmu.plan(&[(false, GENERAL + 1)]), &online, &BTreeSet::new(), &Kernel, &|| false).unwrap();
    let sizes: Vec<usize> = plan.groups.iter().map(|group| group.events.len()).collect();
    assert_eq!((sizes, plan.absent.len()), (vec![GENERAL, 1], 0));
    let job = Job::new(1);
    let mut counting = counting(plan);
    let mut counted = count(&mut counting, &job, "0");
    Work::of(100_000_000).run(&job.task(0));
    counting.read(&mut counted);
    for quantity in &STAND_INS[..=GENERAL] {
        assert_counted(of(&counting, &counted, *quantity), 100_000_000, 1);
    }
}

#[test]
fn the_counts_of_a_job_outlive_its_control_group() {
    let Some(pmu) = Pmu::find() else { return };
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(true, 1)]));
    let mut counted = count(&mut counting, &job, "0");
    Work::of(100_000_000).run(&job.task(1));
    job.remove();
    counting.close(&mut counted);
    assert_counted(of(&counting, &counted, STAND_INS[0]), 100_000_000, 1);
    assert_eq!(counting.descriptors().0, 0);
}
