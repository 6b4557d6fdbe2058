//! CPUs that are taken away, and come back.

use std::fs;

use cpu_topology::CpuSet;
use rustix::thread::{CpuSet as Affinity, sched_getaffinity, sched_setaffinity};

use crate::machine::{Job, Pmu, STAND_INS, Work, assert_counted, count, counting, of};

fn online(state: bool) {
    fs::write("/sys/devices/system/cpu/cpu1/online", if state { "1" } else { "0" }).unwrap();
}

/// Does something on one CPU, in this thread and in what it starts.
fn on_cpu<T>(cpu: usize, action: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).unwrap();
    let mut only = Affinity::new();
    only.set(cpu);
    sched_setaffinity(None, &only).unwrap();
    let result = action();
    sched_setaffinity(None, &before).unwrap();
    result
}

/// The counts of qemu's second CPU advance while the first one executes, too: what is compared runs alone.
#[test]
fn counts_of_a_cpu_that_goes_offline_are_kept_and_it_is_counted_again_when_it_is_back() {
    let Some(pmu) = Pmu::find() else { return };
    online(true);
    let job = Job::new(1);
    let mut counting = counting(pmu.plan(&[(true, 1)]));
    let mut counted = count(&mut counting, &job, "0-1");
    on_cpu(1, || Work::of(50_000_000).run(&job.task(0)));
    counting.read(&mut counted);
    let instructions = |counting: &_, counted: &_| of(counting, counted, STAND_INS[0]);
    assert_counted(instructions(&counting, &counted), 50_000_000, 2);
    online(false);
    on_cpu(0, || Work::of(50_000_000).run(&job.task(0)));
    counting.read(&mut counted);
    assert_counted(instructions(&counting, &counted), 100_000_000, 2);
    assert_eq!(counted.cpus().iter().copied().collect::<Vec<_>>(), [0]);
    online(true);
    counting.open(&mut counted, &CpuSet::parse(b"0-1").unwrap());
    on_cpu(1, || Work::of(50_000_000).run(&job.task(0)));
    counting.read(&mut counted);
    assert_counted(instructions(&counting, &counted), 150_000_000, 2);
    online(false);
}
