//! What open counters cost those who switch. An instruction takes a nanosecond on the emulated machine, so its clock counts them.

use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jobledger_testkit::tools::tool;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use perf_cgroups::Hierarchy;

use crate::machine::{Job, Pmu, Work, count, counting, dividing, hierarchies};

/// Groups of this many events, cycles among them.
const OPEN: [(&str, &[(bool, usize)]); 5] = [
    ("nothing", &[]),
    ("1 group of 2", &[(true, 1)]),
    ("1 group of 4", &[(true, 3)]),
    ("3 groups of 4, by turns", &[(true, 3); 3]),
    ("4 groups of 4, by turns", &[(true, 3); 4]),
];

/// Instructions of a switch between two processes that hand a byte to and fro.
fn switch(groups: [&Path; 2]) -> u64 {
    const PASSES: u64 = 4001;
    let (to_second, from_first) = std::io::pipe().unwrap();
    let (to_first, from_second) = std::io::pipe().unwrap();
    let start = |group: &Path, first: u32, input: PipeReader, output: PipeWriter| {
        let mut command = Command::new(tool("burn"));
        command.arg(format!("--passes={PASSES}")).arg(format!("--first={first}"));
        command.arg(format!("--enter={}", group.display())).stdin(input).stdout(output);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let second = start(groups[1], 0, to_second, from_second);
    let first = start(groups[0], 1, to_first, from_first);
    let [said, _] = [first, second].map(|child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    });
    said.parse::<u64>().unwrap() / (2 * (PASSES - 1))
}

/// Nanoseconds of a job's CPU time that each sleep takes.
fn sleep(job: &Job) -> u64 {
    const FEW: u64 = 20;
    const MANY: u64 = 220;
    let of_children = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
        let microseconds = [usage.user_time(), usage.system_time()].map(|time| time.num_microseconds());
        u64::try_from(microseconds.iter().sum::<i64>()).unwrap()
    };
    let used = |bursts| {
        let before = of_children();
        Work { instructions: 2, bursts, pause_us: 1000 }.run(&job.task(0));
        (of_children() - before) * 1000
    };
    let few = used(FEW);
    (used(MANY) - few) / (MANY - FEW)
}

/// What a switch takes while a job's counters are open: within a task, between two of its tasks, to another job; and a sleep.
fn costs(job: &Job, other: &Job) -> [u64; 4] {
    let tasks = [job.task(0), job.task(1)];
    [
        switch([&tasks[0], &tasks[0]]),
        switch([&tasks[0], &tasks[1]]),
        switch([&tasks[0], &other.task(0)]),
        sleep(job),
    ]
}

/// The rows of a way to count jobs of a hierarchy, beside those of nothing, where the first row is that. `divided` in BPF, with steps and
/// tasks or without.
fn rows(pmu: Pmu, way: &str, of: Hierarchy, divided: Option<bool>, bare: &mut Option<[u64; 4]>) {
    let (job, other) = (Job::of(of, 1), Job::of(of, 2));
    let begin = usize::from(bare.is_some());
    for (name, groups) in OPEN.iter().skip(begin) {
        let plan = pmu.plan(groups);
        let mut counting = match divided.filter(|_| !groups.is_empty()) {
            Some(steps) => dividing(of, plan, steps).1,
            None => counting(plan),
        };
        let counted = (!groups.is_empty()).then(|| count(&mut counting, &job, "0"));
        let parts = [job.step(0), job.task(0), job.task(1)];
        let follow = |part: &PathBuf| counting.follow(&File::open(part).unwrap(), None).unwrap();
        let followed: Vec<_> = parts.iter().filter(|_| divided == Some(true)).map(follow).collect();
        let now = costs(&job, &other);
        drop((counted, followed));
        let bare = *bare.get_or_insert(now);
        let more = [0, 1, 2, 3].map(|column| now[column].cast_signed() - bare[column].cast_signed());
        println!("| {way}: {name} | {} | {} | {} | {} |", now[0], now[1], now[2], now[3]);
        // A switch within one control group leaves the counters alone.
        assert!(more[0].abs() < 2500, "{name}: {more:?}");
        assert!(more.iter().all(|more| *more < 15_000), "{name}: {more:?}");
        assert!(groups.is_empty() || more[1] > 0, "{name}: {more:?}");
    }
}

/// docs/performance.md has this table.
#[test]
fn a_switch_costs_a_job_what_the_documents_say() {
    let Some(pmu) = Pmu::find() else { return };
    println!("| open for the job | same task | two tasks of it | another job | a sleep, charged to it |");
    let [unified, v1] = hierarchies();
    let mut bare = None;
    rows(pmu, "cgroup", unified, None, &mut bare);
    rows(pmu, "bpf", unified, Some(false), &mut bare);
    rows(pmu, "bpf, steps and tasks", unified, Some(true), &mut bare);
    rows(pmu, "bpf, v1", v1, Some(false), &mut None);
}
