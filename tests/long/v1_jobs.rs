//! Random histories on real cgroup v1: jobs of 0.1 to 3 s of several users, removed in SLURM's own order, while the exporter
//! is scraped now and then and is kept from running now and then. No job is charged with time of another one.
//!
//! `JOBLEDGER_V1_JOBS=2000` runs more of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use jobledger_testkit::cgroups::{Site, accounting_v1};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::Step;
use jobledger_testkit::tools::tool;
use jobledger_testkit::wait::QUIET;
use jobledger_testkit::{eventually, http};
use rustix::process::{Pid, Signal, kill_process};

const FIRST_ID: u32 = 40_000;
/// The time of each job is rounded down to a microsecond, so what is unexplained has one of every job that runs.
const ROUNDING: u64 = 50;

/// xorshift64: the same histories everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(limit)).unwrap()
    }
}

/// Nothing if it had no time for an answer.
fn scrape(exporter: &Exporter) -> Option<Exposition> {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer =
        http::get(exporter.address(), "/metrics", &header, QUIET).ok().filter(|a| a.status == 200)?;
    Some(parse(&answer.body, Format::OpenMetrics).unwrap())
}

fn job(id: u32, random: &mut Random, records: &Scratch) -> Step {
    let wall_ms = 100 + random.below(if id.is_multiple_of(4) { 2900 } else { 500 });
    let cpu_ms = 10 + random.below(100).min(wall_ms - 50);
    let burn = tool("burn").display().to_string();
    let (cpu, sleep) = (format!("--cpu-ms={cpu_ms}"), format!("--sleep-ms={}", wall_ms - cpu_ms));
    let mut step = Step::new(id, records.path(), &[&burn, &cpu, &sleep]);
    step.uid = 1001 + random.below(5);
    // Some end as one before them does.
    step.linger = Duration::from_millis([0, 0, 20, 150][random.below(4) as usize]);
    step
}

/// (jobs, CPU time used, exported, unattributed), microseconds.
fn history(site: &Site, jobs: u32, paused: bool) -> (u32, u64, u64, u64) {
    let records = Scratch::new("records");
    let exporter = Exporter::start(
        crate::BINARY,
        &[
            format!("--path.cgroupfs={}", site.cgroupfs().display()),
            "--jobs.metadata-dir=/nonexistent".to_owned(),
            "--jobs.retention=1h".to_owned(),
            "--log.level=warn".to_owned(),
        ],
    );
    drop(scrape(&exporter));
    let pid = Pid::from_raw(exporter.pid().cast_signed()).unwrap();
    let over = AtomicBool::new(false);
    let used: Vec<(u32, u64)> = thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0x5eed);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(50 + u64::from(random.below(900))));
                if paused && random.below(2) == 0 {
                    kill_process(pid, Signal::STOP).unwrap();
                    thread::sleep(Duration::from_millis(u64::from(random.below(400))));
                    kill_process(pid, Signal::CONT).unwrap();
                }
                drop(scrape(&exporter));
            }
        });
        let mut random = Random(0x00c0_ffee);
        let mut running = Vec::new();
        for number in 0..jobs {
            let step = job(FIRST_ID + number, &mut random, &records);
            running.push((step.job_id, scope.spawn(move || step.start(site).finish())));
            thread::sleep(Duration::from_millis(u64::from(random.below(140))));
        }
        let records = running.into_iter().map(|(id, job)| (id, job.join().unwrap()));
        let used = records.map(|(id, record)| (id, record.job_usec.unwrap())).collect();
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
    let mut exported_of_all = 0;
    for (id, used) in &used {
        let of_job = now.named("jobledger_job_cpu_seconds_total");
        let seconds: f64 =
            of_job.filter(|s| s.label("jobid") == Some(&id.to_string())).map(|s| s.value).sum();
        let exported = usec(seconds);
        assert!(exported <= used + ROUNDING, "job {id}: {exported} us exported of {used}");
        exported_of_all += exported;
    }
    let of_node = |name: &str| usec(now.value(name, &[]).unwrap());
    let unattributed = of_node("jobledger_node_slurm_cpu_unattributed_seconds_total");
    let total = of_node("jobledger_node_slurm_cpu_seconds_total");
    assert!(
        (exported_of_all + unattributed).abs_diff(total) <= ROUNDING,
        "{exported_of_all} + {unattributed} != {total}"
    );
    (jobs, used.iter().map(|(_, used)| used).sum(), exported_of_all, unattributed)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of CPU time in a test")]
fn usec(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[test]
fn no_short_job_on_v1_is_charged_with_time_of_another_one() {
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
