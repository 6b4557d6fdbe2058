//! Churn: jobs created and removed at 50 per second on real cgroup v2 directories, some of them requeued at once.
//! Scraped, every one is exported, and neither descriptors nor threads nor memory grow; with processes in the jobs their CPU
//! time adds up besides. Never scraped, memory and the CPU time of a job's end are bounded. `make soak` runs each for
//! minutes, two more for an hour each (`JOBLEDGER_SOAK_MINUTES`); the ordinary tests run for some seconds.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use jobledger_testkit::cgroups::{Site, make_group, skip_without_groups};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::http;

const PER_SECOND: u32 = 50;
const FIRST_ID: u32 = 100_000;

/// What runs in a job's cgroup.
#[derive(Debug, Clone, Copy)]
enum Job {
    Empty,
    /// A process that uses CPU time.
    Busy,
}

/// A job: its directories as slurmstepd makes and removes them.
fn live(dir: &Path, job: Job, time: Duration) {
    let leaf = dir.join("step_0/user/task_0");
    for group in [
        dir.to_path_buf(),
        dir.join("step_0"),
        dir.join("step_0/slurm"),
        dir.join("step_0/user"),
        leaf.clone(),
    ] {
        make_group(&group);
    }
    match job {
        Job::Empty => thread::sleep(time),
        Job::Busy => {
            let procs = leaf.join("cgroup.procs");
            let rounds = 20 * time.as_millis();
            let script =
                format!("echo $$ > {}; i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done", procs.display());
            assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        }
    }
    for group in
        [leaf, dir.join("step_0/user"), dir.join("step_0/slurm"), dir.join("step_0"), dir.to_path_buf()]
    {
        fs::remove_dir(group).unwrap();
    }
}

#[derive(Debug, Clone, Copy)]
struct Footprint {
    descriptors: usize,
    threads: usize,
    rss_kib: u64,
}

fn footprint(pid: u32) -> Footprint {
    let proc = Path::new("/proc").join(pid.to_string());
    let status = fs::read_to_string(proc.join("status")).unwrap();
    let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    Footprint {
        descriptors: fs::read_dir(proc.join("fd")).unwrap().count(),
        threads: fs::read_dir(proc.join("task")).unwrap().count(),
        rss_kib: rss.split_whitespace().next().unwrap().parse().unwrap(),
    }
}

/// Makes `per_second` jobs in eight threads, so that jobs overlap and a slow machine falls behind evenly.
fn make_jobs<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    site: &'scope Site,
    (job, per_second): (Job, u32),
    jobs: std::ops::Range<u32>,
) -> Vec<thread::ScopedJoinHandle<'scope, ()>> {
    let begun = Instant::now();
    let hand = |hand: u32| {
        let jobs = jobs.clone();
        scope.spawn(move || {
            for number in jobs.clone().skip(hand as usize).step_by(8) {
                let due = begun + Duration::from_secs(1) / per_second * (number - jobs.start);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let dir = site.job_dir(&format!("job_{}", FIRST_ID + number), 0);
                live(&dir, job, Duration::from_millis(u64::from(number * 37 % 120)));
                if number % 16 == hand {
                    live(&dir, job, Duration::from_millis(20));
                }
            }
        })
    };
    (0..8).map(hand).collect()
}

fn start(site: &Site) -> Exporter {
    let flags = [
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.retention=3s".to_owned(),
        std::env::var("SOAK_LOG").unwrap_or("--log.level=warn".to_owned()),
    ];
    Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags)
}

fn scrape(exporter: &Exporter) -> Exposition {
    let accept = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &accept, Duration::from_secs(20)).unwrap();
    parse(&answer.body, Format::OpenMetrics).unwrap()
}

/// What was exported so far: the last CPU time of each job run. A requeued job starts from zero.
#[derive(Debug, Default)]
struct Seen(BTreeMap<(u32, u64), f64>);

impl Seen {
    fn take(&mut self, exposition: &Exposition) {
        let id = |sample: &jobledger_testkit::exposition::Sample| -> u32 {
            sample.label("jobid").unwrap().parse().unwrap()
        };
        let mut spent: BTreeMap<u32, f64> = BTreeMap::new();
        for sample in exposition.named("jobledger_job_cpu_seconds_total") {
            *spent.entry(id(sample)).or_default() += sample.value;
        }
        for sample in exposition.named("jobledger_job_start_time_seconds") {
            let id = id(sample);
            self.0.insert((id, sample.value.to_bits()), spent.get(&id).copied().unwrap_or(0.0));
        }
        let node = exposition.value("jobledger_node_slurm_cpu_seconds_total", &[]).unwrap();
        let unattributed =
            exposition.value("jobledger_node_slurm_cpu_unattributed_seconds_total", &[]).unwrap();
        let jobs: f64 = self.0.values().sum();
        assert!(
            (jobs + unattributed - node).abs() < 1e-3,
            "{jobs} of jobs and {unattributed} unattributed are not {node}"
        );
    }

    fn ids(&self) -> BTreeSet<u32> {
        self.0.keys().map(|(id, _)| *id).collect()
    }
}

fn churn(seconds: u32, job: Job) {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let exporter = start(&site);
    let begun = Instant::now();
    let jobs = seconds * PER_SECOND;
    let (mut seen, mut prints) = (Seen::default(), Vec::new());
    thread::scope(|scope| {
        let hands = make_jobs(scope, &site, (job, PER_SECOND), 0..jobs);
        while hands.iter().any(|hand| !hand.is_finished()) {
            thread::sleep(Duration::from_secs(1));
            seen.take(&scrape(&exporter));
            prints.push(footprint(exporter.pid()));
        }
    });
    for _ in 0..3 {
        seen.take(&scrape(&exporter));
    }
    let ids = seen.ids();
    let missing: Vec<u32> = (FIRST_ID..FIRST_ID + jobs).filter(|id| !ids.contains(id)).collect();
    let (early, late) = (prints[prints.len() / 4], prints[prints.len() - 1]);
    println!(
        "{jobs} jobs ({job:?}) in {:.0} s: {} seen, {early:?} after a quarter, {late:?} at the end, {:.2} s CPU",
        begun.elapsed().as_secs_f64(),
        ids.len(),
        exporter.cpu_seconds()
    );
    assert_eq!(missing, Vec::<u32>::new(), "jobs that no scrape showed");
    if matches!(job, Job::Busy) {
        let spent: f64 = seen.0.values().sum();
        assert!(spent > f64::from(jobs) * 1e-3, "{spent} s of CPU time in {jobs} jobs");
    }
    // The number of retained jobs depends on the machine's speed: 3 s of jobs, one descriptor each while running.
    assert!(late.descriptors <= early.descriptors + 16, "{early:?} {late:?}");
    assert!(late.threads <= early.threads + 1, "{early:?} {late:?}");
    assert!(late.rss_kib <= early.rss_kib + early.rss_kib / 8 + 512, "{early:?} {late:?}");
}

/// Prometheus is down: four times as many jobs as are retained, and then one scrape.
fn unscraped(part: u32) {
    const PARTS: u32 = 8;
    const MOST_RETAINED: u32 = 8192;
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let exporter = start(&site);
    let (mut cpu, mut prints) = (Vec::new(), Vec::new());
    for number in 0..PARTS {
        let before = exporter.cpu_seconds();
        thread::scope(|scope| {
            let jobs = number * part..(number + 1) * part;
            let _ = make_jobs(scope, &site, (Job::Empty, 4 * PER_SECOND), jobs);
        });
        cpu.push(exporter.cpu_seconds() - before);
        prints.push(footprint(exporter.pid()));
    }
    println!("never scraped: {part} jobs take {cpu:.2?} s CPU each time, {prints:?}");
    let exposition = scrape(&exporter);
    let value = |name: &str| exposition.value(name, &[]).unwrap();
    let retained = exposition.value("jobledger_exporter_jobs", &[("state", "retained")]).unwrap();
    let (runs, dropped) =
        (value("jobledger_exporter_job_runs_total"), value("jobledger_exporter_retained_jobs_dropped_total"));
    assert_eq!(retained + dropped, runs);
    assert!(runs >= f64::from(PARTS * part), "{runs} of {} jobs", PARTS * part);
    assert!(retained <= f64::from(MOST_RETAINED), "{retained}");
    let mut seen = Seen::default();
    seen.take(&exposition);
    let (half, last) = (prints[prints.len() / 2], prints[prints.len() - 1]);
    if part * PARTS / 2 > MOST_RETAINED {
        assert!(last.rss_kib <= half.rss_kib + half.rss_kib / 8 + 512, "{half:?} {last:?}");
        // The machine's speed makes some difference.
        let (first, last) = (cpu[0], cpu[cpu.len() - 1]);
        assert!(last <= 1.5 * first + 0.2, "the end of a job costs more when many are retained: {cpu:?}");
    }
    assert!(last.descriptors <= half.descriptors + 16, "{half:?} {last:?}");
    assert!(last.threads <= half.threads + 1, "{half:?} {last:?}");
}

#[test]
fn some_seconds_of_churn_lose_no_job_and_leak_nothing() {
    churn(12, Job::Empty);
}

#[test]
fn some_seconds_of_churn_with_processes_lose_no_job_and_no_cpu_time() {
    churn(6, Job::Busy);
}

#[test]
fn some_seconds_of_churn_without_scrapes_are_in_the_first_scrape() {
    unscraped(50);
}

/// Minutes of the long runs; an hour unless `JOBLEDGER_SOAK_MINUTES` says otherwise.
fn long_minutes() -> u64 {
    let minutes =
        std::env::var("JOBLEDGER_SOAK_MINUTES").ok().map(|minutes| minutes.parse().expect("minutes"));
    minutes.unwrap_or(60)
}

/// Most by which resident memory grows in the second half of a long run, KiB, however long that is. What is allocated does not
/// grow (tests/footprint.rs); the allocator's pieces do, by some 100 KiB a minute with scrapes.
const MOST_GROWTH_KIB: u64 = 4096;

/// The most resident memory of each quarter of a run, KiB.
fn quarters(rss_kib: &[u64]) -> Vec<u64> {
    let quarter = rss_kib.len().div_ceil(4).max(1);
    rss_kib.chunks(quarter).map(|part| part.iter().copied().max().unwrap_or_default()).collect()
}

/// Short jobs for a long time. With Prometheus away, the table of retained jobs has to be full for half of it.
fn stays_flat(pause: Duration, scraped: bool) {
    if skip_without_groups() {
        return;
    }
    let time = Duration::from_secs(60 * long_minutes());
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let exporter = start(&site);
    let per_second = if scraped { PER_SECOND } else { 4 * PER_SECOND };
    let jobs = u32::try_from(time.as_secs()).expect("a time") * per_second;
    let mut prints = Vec::new();
    thread::scope(|scope| {
        let hands = make_jobs(scope, &site, (Job::Empty, per_second), 0..jobs);
        while hands.iter().any(|hand| !hand.is_finished()) {
            thread::sleep(pause);
            if scraped {
                let _ = scrape(&exporter);
            }
            prints.push(footprint(exporter.pid()));
            println!("{:?}", prints[prints.len() - 1]);
        }
    });
    let rss: Vec<u64> = prints.iter().map(|print| print.rss_kib).collect();
    let quarters = quarters(&rss);
    println!(
        "{jobs} jobs, scraped: {scraped}; most RSS by quarter, KiB: {quarters:?}, {:.0} s CPU",
        exporter.cpu_seconds()
    );
    let (before, after) = (quarters[1], quarters[2..].iter().copied().max().unwrap_or_default());
    assert!(after <= before + MOST_GROWTH_KIB, "{quarters:?}");
    let (half, last) = (prints[prints.len() / 2], prints[prints.len() - 1]);
    assert!(last.descriptors <= half.descriptors + 16, "{half:?} {last:?}");
    assert!(last.threads <= half.threads + 1, "{half:?} {last:?}");
}

#[test]
#[ignore = "an hour: make soak"]
fn an_hour_of_churn_takes_no_more_memory_in_its_second_half() {
    stays_flat(Duration::from_secs(15), true);
}

#[test]
#[ignore = "an hour: make soak"]
fn an_hour_of_churn_without_scrapes_takes_no_more_memory_in_its_second_half() {
    stays_flat(Duration::from_secs(15), false);
}

#[test]
#[ignore = "five minutes: make soak"]
fn five_minutes_of_churn_lose_no_job_and_leak_nothing() {
    churn(300, Job::Empty);
}

#[test]
#[ignore = "five minutes: make soak"]
fn five_minutes_of_churn_with_processes_lose_no_job_and_no_cpu_time() {
    churn(300, Job::Busy);
}

#[test]
#[ignore = "some minutes: make soak"]
fn four_times_as_many_jobs_as_are_retained_take_no_more_memory_without_scrapes() {
    unscraped(4096);
}
