//! What the run of jobs costs between scrapes, the start with jobs, and the search for SLURM's directory.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cgroups::DescriptorBudget;
use jobledger_testkit::cgroups::{Site, make_groups};
use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::cpu_ns;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::{RunningStep, Step};
use jobledger_testkit::strace::{self, Call};
use jobledger_testkit::wait::until;
use rustix::fs::inotify::{CreateFlags, init};
use slurm_jobs::scope;

use crate::config;
use crate::floor::Floor;
use crate::stats::{cost, median, row};

const JOBS: u32 = 400;
const PER_SECOND: u32 = 100;
/// How long a task runs, seconds.
const RUNS: &str = "0.05";

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");

fn exporter(flags: &[String]) -> Exporter {
    let flags: Vec<String> = flags.iter().cloned().chain(["--log.level=error".to_owned()]).collect();
    Exporter::start(BINARY, &flags)
}

/// Makes a job's directories and removes them.
fn live_empty(site: &Site, id: u32) {
    let step = match site {
        Site::V2 { .. } => &["", "step_0", "step_0/slurm", "step_0/user", "step_0/user/task_0"][..],
        Site::V1 { .. } => &["", "step_0", "step_0/task_0"][..],
    };
    let dirs = site.job_dirs(&format!("job_{id}"), 1001);
    let groups: Vec<PathBuf> =
        dirs.iter().flat_map(|(_, job)| step.iter().map(|below| job.join(below))).collect();
    groups.iter().for_each(|group| make_groups(&[group.parent().unwrap(), group]));
    groups.iter().rev().for_each(|group| fs::remove_dir(group).unwrap());
}

/// The least that the kernel is asked for what a start reads: each file opened, read and closed once, and each watch set
/// once. Median CPU time, milliseconds.
fn least_of_a_start(crowd: &Crowd) -> f64 {
    let traced = strace::Traced::of(BINARY);
    let flags: Vec<String> = crowd.flags().into_iter().chain(["--log.level=error".to_owned()]).collect();
    let exporter = Exporter::start(traced.script(), &flags);
    let _ = exporter.metrics();
    let pid = exporter.pid();
    assert_eq!(exporter.terminate(), Some(0));
    let mut floor = Floor::of_calls(&traced.calls(), pid);
    let inotify = || init(CreateFlags::CLOEXEC).expect("inotify");
    let mut costs: Vec<f64> = (0..9).map(|_| floor.cost_of_following(&inotify()) / 1e3).collect();
    median(&mut costs)
}

/// The same of the run of a job with processes, microseconds. One is traced. What was read of it after each wake-up is read
/// of others, after a pause as long, and once of each, since files of a new cgroup are not in the kernel's caches.
fn least_of_a_run(site: &Site) -> f64 {
    const TRACED: u32 = 299_999;
    const OTHERS: std::ops::Range<u32> = 299_900..299_930;
    let records = Scratch::new("records");
    let exporter = exporter(&[format!("--path.cgroupfs={}", site.cgroupfs().display())]);
    let _ = exporter.metrics();
    let run = || {
        let _ = Step::new(TRACED, records.path(), &["sleep", RUNS]).start(site).finish();
        sleep(Duration::from_millis(200));
    };
    let pid = exporter.pid();
    let calls = strace::during(pid, run, |call| call.name == "inotify_add_watch");
    drop(exporter);
    let of_other = |job: u32| {
        let step = Step::new(job, records.path(), &["sleep", "600"]).start(site);
        let record = format!("job_{job}/");
        until("a task", || {
            let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", step.pid())).unwrap_or_default();
            if cgroups.contains(&record) { Ok(()) } else { Err(cgroups) }
        });
        let calls: Vec<Call> = calls.iter().map(|call| of_job(call, TRACED, job)).collect();
        let inotify = init(CreateFlags::CLOEXEC).expect("inotify");
        let rounds = calls.split(|call| call.name == "ppoll").map(|calls| {
            let mut floor = Floor::of_calls(calls, pid);
            sleep(Duration::from_millis(2));
            floor.cost_of_following(&inotify)
        });
        rounds.sum()
    };
    median(&mut OTHERS.map(of_other).collect::<Vec<f64>>())
}

/// The call about another job. Its processes have ended; one is as another.
fn of_job(call: &Call, traced: u32, job: u32) -> Call {
    let mut call = call.clone();
    for text in [&mut call.at, &mut call.path].into_iter().flatten() {
        *text = text.replace(&traced.to_string(), &job.to_string());
        if let Some((pid, file)) = text.split_once('/')
            && pid.parse::<u32>().is_ok()
        {
            *text = format!("self/{file}");
        }
    }
    call
}

/// CPU time of the exporter per job without any scrape, microseconds.
fn of_each(site: &Site, with_processes: bool) -> f64 {
    let exporter = exporter(&[format!("--path.cgroupfs={}", site.cgroupfs().display())]);
    let _ = exporter.metrics();
    sleep(Duration::from_secs(6));
    let records = Scratch::new("records");
    let (before, begun) = (cpu_ns(exporter.pid()), Instant::now());
    let mut steps = VecDeque::new();
    for number in 0..JOBS {
        let due = begun + Duration::from_secs(1) / PER_SECOND * number;
        sleep(due.saturating_duration_since(Instant::now()));
        let id = 300_000 + number;
        if with_processes {
            steps.push_back(Step::new(id, records.path(), &["sleep", RUNS]).start(site));
            if steps.len() > PER_SECOND as usize {
                let _ = steps.pop_front().map(RunningStep::finish);
            }
        } else {
            live_empty(site, id);
        }
    }
    for step in steps {
        let _ = step.finish();
    }
    sleep(Duration::from_millis(1500));
    (cpu_ns(exporter.pid()) - before) as f64 / 1e3 / f64::from(JOBS)
}

/// What a job costs from its first directory to its last.
pub(crate) fn whole_run() {
    println!(
        "\n## Between scrapes\n\nCPU time for a job of one step, no scrape, {PER_SECOND} jobs a second:\n"
    );
    row(&["cgroup", "job", "microseconds", "the bare calls alone"]);
    row(&["---", "---", "---:", "---:"]);
    let sites = [("v2", Site::v2("slurmstepd.scope")), ("v1", Site::v1())];
    for (place, site) in sites.into_iter().filter_map(|(place, site)| Some((place, site?))) {
        for (job, with_processes) in [("directories alone", false), ("slurmstepd and a task", true)] {
            let least = with_processes.then(|| format!("{:.0}", least_of_a_run(&site)));
            let each = of_each(&site, with_processes);
            row(&[place, job, &format!("{each:.0}"), least.as_deref().unwrap_or_default()]);
        }
    }
}

/// The time from the start of the program to the end of the first page, and the CPU time until then.
pub(crate) fn first_page() {
    println!("\n## Start\n\nTo the first whole page, milliseconds:\n");
    row(&["cgroup", "jobs", "time", "CPU time", "CPU time of the bare calls"]);
    row(&["---", "---:", "---:", "---:", "---:"]);
    for (place, crowd) in [("v2", Crowd::real()), ("v1", Crowd::real_v1())] {
        let Some(mut crowd) = crowd else { continue };
        for jobs in [1, 10, 100] {
            crowd.grow_to(jobs);
            let (mut times, mut costs) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                let begun = Instant::now();
                let exporter = exporter(&crowd.flags());
                let _ = exporter.metrics();
                times.push(begun.elapsed().as_secs_f64() * 1e3);
                costs.push(cpu_ns(exporter.pid()) as f64 / 1e6);
            }
            let least = least_of_a_start(&crowd);
            let shown = [median(&mut times), median(&mut costs), least].map(|ms| format!("{ms:.0}"));
            row(&[place, &jobs.to_string(), &shown[0], &shown[1], &shown[2]]);
        }
    }
}

/// The search for SLURM's directories on a node with many other cgroups.
pub(crate) fn search() {
    let crowd = Crowd::real().expect("a cgroup2 mount");
    let roots = config(&crowd.flags()).roots;
    let budget = DescriptorBudget::new(0);
    let find =
        || median(&mut (0..50).map(|_| cost(|| drop(scope::find(&roots, &budget)))).collect::<Vec<_>>());
    let few = find();
    crowd.add_other_groups(1000);
    let many = find();
    println!(
        "\nThe search for SLURM's directory, at the start and when one appears: {few:.0} µs, with 1000 other cgroups \
         {many:.0} µs."
    );
}
