//! CPU time on real cgroup v1. Jobs of 0.1 to 3 s of several users, removed in SLURM's own order, while the exporter
//! is scraped now and then and is kept from running now and then. No job is charged with time of another one;
//! and the one race in which that happened.
//!
//! `JOBLEDGER_V1_JOBS=2000` runs more of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use jobledger_testkit::cgroups::{Site, accounting_v1, attach, make_groups, remove_group};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::{Record, Step};
use jobledger_testkit::tools::tool;
use jobledger_testkit::wait::QUIET;
use jobledger_testkit::{eventually, http};
use rustix::process::{Pid, Signal, kill_process};

const FIRST_ID: u32 = 40_000;
const CPU_SECONDS: &str = "jobledger_job_cpu_seconds_total";
/// The time of each job is rounded down to a microsecond, so what is unexplained has one of every job that runs.
const ROUNDING: u64 = 50;

/// Scattered over what is below a limit, the same each time.
fn scattered(number: u32, prime: u32, limit: u32) -> u64 {
    u64::from(number) * u64::from(prime) % u64::from(limit)
}

/// Nothing if it had no time for an answer.
fn scrape(exporter: &Exporter) -> Option<Exposition> {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer =
        http::get(exporter.address(), "/metrics", &header, QUIET).ok().filter(|a| a.status == 200)?;
    Some(parse(&answer.body, Format::OpenMetrics).unwrap())
}

/// What an exposition has of a job, by a family; microseconds of seconds.
fn of_job(now: &Exposition, family: &str, id: u32) -> Option<u64> {
    let samples: Vec<f64> =
        now.named(family).filter(|s| s.label("jobid") == Some(&id.to_string())).map(|s| s.value).collect();
    (!samples.is_empty()).then(|| usec(samples.iter().sum()))
}

fn cpu_usec(now: &Exposition, id: u32) -> u64 {
    of_job(now, CPU_SECONDS, id).unwrap_or(0)
}

fn start(site: &Site) -> Exporter {
    let flags = [
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.metadata-dir=/nonexistent".to_owned(),
        "--jobs.retention=1h".to_owned(),
        "--log.level=warn".to_owned(),
    ];
    Exporter::start(crate::BINARY, &flags)
}

/// Asserts that jobs and the rest are the node, and returns the rest.
fn balance(now: &Exposition, exported: u64) -> u64 {
    let of_node = |name: &str| usec(now.value(name, &[]).unwrap());
    let unattributed = of_node("jobledger_node_slurm_cpu_unattributed_seconds_total");
    let total = of_node("jobledger_node_slurm_cpu_seconds_total");
    assert!((exported + unattributed).abs_diff(total) <= ROUNDING, "{exported} + {unattributed} != {total}");
    unattributed
}

fn job(id: u32, records: &Scratch) -> Step {
    let wall_ms = 100 + scattered(id, 7919, if id.is_multiple_of(4) { 2900 } else { 500 });
    let cpu_ms = 10 + scattered(id, 104_729, 100).min(wall_ms - 50);
    let burn = tool("burn").display().to_string();
    let (cpu, sleep) = (format!("--cpu-ms={cpu_ms}"), format!("--sleep-ms={}", wall_ms - cpu_ms));
    let mut step = Step::new(id, records.path(), &[&burn, &cpu, &sleep]);
    step.uid = 1001 + id % 5;
    // Some end as one before them does.
    step.linger = Duration::from_millis([0, 0, 20, 150][id as usize / 3 % 4]);
    step
}

/// (jobs, CPU time used, exported, unattributed), microseconds.
fn history(site: &Site, jobs: u32, paused: bool) -> (u32, u64, u64, u64) {
    let records = Scratch::new("records");
    let exporter = start(site);
    drop(scrape(&exporter));
    let pid = Pid::from_raw(exporter.pid().cast_signed()).unwrap();
    let over = AtomicBool::new(false);
    let used: Vec<(u32, Record)> = thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(50 + scattered(turn, 7919, 900)));
                if paused && turn.is_multiple_of(2) {
                    kill_process(pid, Signal::STOP).unwrap();
                    thread::sleep(Duration::from_millis(scattered(turn, 104_729, 400)));
                    kill_process(pid, Signal::CONT).unwrap();
                }
                drop(scrape(&exporter));
            }
        });
        let mut running = Vec::new();
        for number in 0..jobs {
            let step = job(FIRST_ID + number, &records);
            running.push((step.job_id, scope.spawn(move || step.start(site).finish())));
            thread::sleep(Duration::from_millis(scattered(number, 7919, 140)));
        }
        let records = running.into_iter().map(|(id, job)| (id, job.join().unwrap()));
        let used = records.collect();
        over.store(true, Ordering::Relaxed);
        used
    });
    let mut now = None;
    eventually("all have ended", || {
        now = scrape(&exporter);
        let ended = now.as_ref().map(|now| now.named("jobledger_job_end_time_seconds").count());
        ended == Some(used.len())
    });
    let now = now.unwrap();
    let runs = now.value("jobledger_exporter_job_runs_total", &[]);
    assert_eq!(runs, Some(f64::from(jobs)), "each job has one run");
    let mut exported_of_all = 0;
    for (id, used) in &used {
        let exported = cpu_usec(&now, *id);
        let parts: Vec<_> =
            now.named(CPU_SECONDS).filter(|s| s.label("jobid") == Some(&id.to_string())).collect();
        assert!(
            exported <= used.job_usec.unwrap() + ROUNDING,
            "job {id}: {exported} us exported of {used:?}: {parts:?}"
        );
        exported_of_all += exported;
    }
    let unattributed = balance(&now, exported_of_all);
    (jobs, used.iter().filter_map(|(_, used)| used.job_usec).sum(), exported_of_all, unattributed)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of CPU time in a test")]
fn usec(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[test]
fn no_short_job_on_v1_is_charged_with_time_of_another_one() {
    let _beside = crate::CGROUPS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(site) = accounting_v1() else { return };
    let jobs = std::env::var("JOBLEDGER_V1_JOBS").map_or(150, |jobs| jobs.parse().unwrap());
    for paused in [false, true] {
        let (jobs, used, exported, unattributed) = history(&site, jobs, paused);
        println!(
            "{jobs} jobs on v1, paused {paused}: used {used} us, exported {exported} ({:.3} %), unattributed {unattributed}",
            exported as f64 / used as f64 * 100.0
        );
    }
}

/// A user's job whose CPU time cannot be read any more, while SLURM still removes its other directories, and one of another
/// user that ends in this moment.
struct Pair<'a> {
    site: &'a Site,
    first: u32,
}

impl Pair<'_> {
    fn dirs(&self, id: u32) -> Vec<(Option<&str>, PathBuf)> {
        self.site.job_dirs(&format!("job_{id}"), 1001 + id)
    }

    fn has(&self, exporter: &Exporter, family: &str, id: u32) -> bool {
        scrape(exporter).is_some_and(|now| of_job(&now, family, id).is_some())
    }

    fn make(&self, id: u32) {
        for (_, dir) in self.dirs(id) {
            make_groups(&[dir.parent().unwrap(), &dir]);
        }
    }

    /// Uses CPU time in it, and returns what its directory counted by then.
    fn work(&self, id: u32, cpu_ms: u32) -> u64 {
        let dirs: Vec<String> = self.dirs(id).into_iter().map(|(_, dir)| dir.display().to_string()).collect();
        let enter = "cpu=$1; burn=$2; shift 2; for dir in \"$@\"; do echo $$ > $dir/cgroup.procs; done; exec $burn --cpu-ms=$cpu";
        let mut worker = Command::new("sh");
        worker.args(["-c", enter, "sh", &cpu_ms.to_string()]).arg(tool("burn")).args(&dirs);
        assert!(worker.status().unwrap().success());
        let dir = self.site.job_dir(&format!("job_{id}"), 1001 + id);
        let text = fs::read_to_string(dir.join("cpuacct.usage")).unwrap();
        text.trim().parse::<u64>().unwrap() / 1000
    }

    fn remove(&self, id: u32, which: impl Fn(&str) -> bool) {
        for (controller, dir) in self.dirs(id) {
            // A joint hierarchy has the directory once.
            if which(controller.unwrap_or_default()) && dir.exists() {
                remove_group(&dir);
            }
        }
    }

    /// What the exporter was stopped for: (used and exported of the job that ended, the same of the other one).
    fn race(&self, exporter: &Exporter) -> [(u64, u64); 2] {
        let (ending, removed) = (self.first, self.first + 1);
        self.make(ending);
        self.make(removed);
        // SLURM's daemon is in the freezer's directory to the end.
        let mut daemon = Command::new("sleep").arg("600").spawn().unwrap();
        let (_, freezer) = self.dirs(removed).into_iter().find(|(c, _)| *c == Some("freezer")).unwrap();
        attach(&freezer, daemon.id()).unwrap();
        eventually("both are found", || {
            [ending, removed].iter().all(|id| self.has(exporter, "jobledger_job_start_time_seconds", *id))
        });
        let pid = Pid::from_raw(exporter.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let used = [self.work(ending, 15), self.work(removed, 20)];
        self.remove(removed, |controller| controller != "freezer");
        self.remove(ending, |_| true);
        kill_process(pid, Signal::CONT).unwrap();
        eventually("it has ended", || self.has(exporter, "jobledger_job_end_time_seconds", ending));
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        self.remove(removed, |_| true);
        eventually("both have ended", || self.has(exporter, "jobledger_job_end_time_seconds", removed));
        let now = scrape(exporter).unwrap();
        [(used[0], cpu_usec(&now, ending)), (used[1], cpu_usec(&now, removed))]
    }
}

/// Its time is unattributed where nothing proves whose it was, and never its neighbour's.
#[test]
fn on_v1_no_job_is_charged_with_time_of_one_whose_directory_goes_at_the_same_time() {
    let _beside = crate::CGROUPS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(site) = accounting_v1() else { return };
    let exporter = start(&site);
    let (mut used_by_all, mut exported_of_all) = (0, 0);
    for round in 0..50 {
        for (used, exported) in (Pair { site: &site, first: 3000 + 2 * round }).race(&exporter) {
            assert!(exported <= used + ROUNDING, "round {round}: {exported} us exported of {used}");
            used_by_all += used;
            exported_of_all += exported;
        }
    }
    let unattributed = balance(&scrape(&exporter).unwrap(), exported_of_all);
    assert!(
        exported_of_all + unattributed <= used_by_all + 100 * ROUNDING,
        "{unattributed} of {used_by_all}"
    );
    println!("100 jobs: used {used_by_all} us, exported {exported_of_all}, unattributed {unattributed}");
}
