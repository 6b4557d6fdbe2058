//! Churn: jobs created and removed at 50 per second on real cgroup v2 directories, some of them requeued at once.
//! Every one is told, and neither descriptors nor threads nor memory grow. `make soak` runs it for five minutes; the
//! ordinary tests for some seconds.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::cgroups::{Site, make_group, skip_without_groups};
use jobledger_testkit::exporter::Exporter;

const PER_SECOND: u32 = 50;
const FIRST_ID: u32 = 100_000;

/// A job without processes: its directories as slurmstepd makes and removes them.
fn live(dir: &Path, time: Duration) {
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
    thread::sleep(time);
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

fn told(exposition: &str) -> BTreeSet<u32> {
    let id = |line: &str| {
        line.strip_prefix("jobledger_job_start_time_seconds{jobid=\"")?.split('"').next()?.parse().ok()
    };
    exposition.lines().filter_map(id).collect()
}

fn churn(seconds: u32) {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    let flags = [
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.retention=3s".to_owned(),
        std::env::var("SOAK_LOG").unwrap_or("--log.level=warn".to_owned()),
    ];
    let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags);
    let begun = Instant::now();
    let jobs = seconds * PER_SECOND;
    let (mut seen, mut prints) = (BTreeSet::new(), Vec::new());
    thread::scope(|scope| {
        let site = &site;
        // Eight hands, so that jobs overlap and a slow machine falls behind evenly.
        for hand in 0..8 {
            scope.spawn(move || {
                for number in (hand..jobs).step_by(8) {
                    let due = begun + Duration::from_secs(1) / PER_SECOND * number;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let dir = site.job_dir(&format!("job_{}", FIRST_ID + number), 0);
                    live(&dir, Duration::from_millis(u64::from(number * 37 % 120)));
                    if number % 16 == hand {
                        live(&dir, Duration::from_millis(20));
                    }
                }
            });
        }
        while begun.elapsed() < Duration::from_secs(seconds.into()) + Duration::from_secs(2) {
            thread::sleep(Duration::from_secs(1));
            seen.extend(told(&exporter.metrics()));
            prints.push(footprint(exporter.pid()));
        }
    });
    seen.extend(told(&exporter.metrics()));
    let missing: Vec<u32> = (FIRST_ID..FIRST_ID + jobs).filter(|id| !seen.contains(id)).collect();
    let (early, late) = (prints[prints.len() / 4], prints[prints.len() - 1]);
    println!(
        "{jobs} jobs in {:.0} s: {} seen, {early:?} after a quarter, {late:?} at the end, {:.2} s CPU",
        begun.elapsed().as_secs_f64(),
        seen.len(),
        exporter.cpu_seconds()
    );
    assert_eq!(missing, Vec::<u32>::new(), "jobs that no scrape told of");
    // What is retained comes and goes with the pace of the machine: 3 s of jobs, one descriptor each while running.
    assert!(late.descriptors <= early.descriptors + 16, "{early:?} {late:?}");
    assert!(late.threads <= early.threads + 1, "{early:?} {late:?}");
    assert!(late.rss_kib <= early.rss_kib + early.rss_kib / 8 + 512, "{early:?} {late:?}");
}

#[test]
fn some_seconds_of_churn_lose_no_job_and_leak_nothing() {
    churn(12);
}

#[test]
#[ignore = "five minutes: make soak"]
fn five_minutes_of_churn_lose_no_job_and_leak_nothing() {
    churn(300);
}
