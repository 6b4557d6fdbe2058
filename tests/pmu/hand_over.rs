//! What it takes to release counters. An instruction takes a nanosecond on the emulated machine, so its clock counts them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use jobledger_testkit::cgroups::{attach, cgroup2_mount};
use perf_events::{Counters, Kernel, On, Open, Reading};

use crate::machine::{Job, Pmu, count, dividing, hierarchies};

const GROUPS: u32 = 64;

/// Instructions of each group.
fn each(work: impl FnOnce()) -> u128 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() / u128::from(GROUPS)
}

/// The control group of the tests.
fn home() -> PathBuf {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let unified = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    cgroup2_mount().unwrap().join(unified.unwrap())
}

/// What stopping, reading and closing a group of cycles and three more takes; groups of a job that runs, or of one that does not.
fn costs(pmu: Pmu, job: &Job, runs: bool) -> [u128; 3] {
    let directory = File::open(&job.directory).unwrap();
    let attrs = pmu.plan(&[(true, 3)]).groups[0].attrs();
    let open = |_| Kernel.open(On::Cgroup(&directory), 0, &attrs).unwrap();
    let (home, task) = (home(), job.task(0));
    attach(if runs { &task } else { &home }, std::process::id()).unwrap();
    let mut open: Vec<Box<dyn Counters>> = (0..GROUPS).map(open).collect();
    let mut reading = Reading::default();
    let stop = each(|| open.iter_mut().for_each(|group| group.stop()));
    let read = each(|| open.iter_mut().for_each(|group| group.read(&mut reading).unwrap()));
    let close = each(|| drop(open));
    attach(&home, std::process::id()).unwrap();
    [stop, read, close]
}

/// docs/performance.md has this table.
#[test]
fn a_hand_over_costs_what_the_documents_say() {
    let Some(pmu) = Pmu::find() else { return };
    let job = Job::new(1);
    println!("| a group of 4 | stop | read | close |");
    for (what, runs) in [("its job does not run", false), ("its job runs", true)] {
        let [stop, read, close] = costs(pmu, &job, runs);
        println!("| {what} | {stop} | {read} | {close} |");
        // Stopping is what a profiler waits for.
        assert!(0 < stop && stop < close && close < 200_000, "{what}: {stop} {read} {close}");
    }
    println!("| `bpf`: a CPU with groups of 4 | stop and close |");
    for groups in [1, 3] {
        let plan = pmu.plan(&vec![(true, 3); groups]);
        let (divided, mut counting) = dividing(hierarchies()[0], plan, false);
        let counted = count(&mut counting, &job, "0");
        let begun = Instant::now();
        divided.release();
        println!("| {groups} | {} |", begun.elapsed().as_nanos());
        assert_eq!(divided.descriptors(), 0);
        drop(counted);
    }
}
