//! The simulated node in the real binary: everything in docs/demo.md is exported, no job is missed, the sums are right,
//! and no file is left. It takes minutes and little CPU time.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

mod counters;
mod devices;
mod gpus;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-demo");

/// The names of the jobs that start and end all the time.
const NAMES: [&str; 20] = [
    "cfd-solver",
    "docking",
    "embed",
    "fine-tune",
    "gpu-notebook",
    "gpu-test",
    "interactive",
    "llm-train",
    "mesh-refine",
    "monte-carlo",
    "notebook",
    "ocean+ice",
    "postprocess",
    "preview",
    "serving",
    "stage-in",
    "sweep",
    "train-loader",
    "unit-test",
    "workflow",
];
const PATIENCE: Duration = jobledger_testkit::wait::LONGEST;

fn node_below(scratch: &Scratch) -> PathBuf {
    let nodes: Vec<PathBuf> = scratch.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [node] = nodes.as_slice() else { panic!("not one node: {nodes:?}") };
    node.clone()
}

/// CPU time of SLURM's scope in seconds, from its file.
fn scope_seconds(node: &Path) -> f64 {
    let stat = std::fs::read_to_string(node.join("cgroup/system.slice/slurmstepd.scope/cpu.stat")).unwrap();
    stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap().parse::<f64>().unwrap() / 1e6
}

/// What the scrapes had so far.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, BTreeSet<u32>>,
    starts: BTreeMap<u32, BTreeSet<u64>>,
    steps: BTreeSet<String>,
    devices: BTreeSet<String>,
    stale: bool,
    killed: bool,
    throttled: bool,
    ended: BTreeSet<u32>,
    unnamed: BTreeSet<u32>,
}

impl Seen {
    fn take_in(&mut self, exposition: &Exposition) {
        let id = |sample: &jobledger_testkit::exposition::Sample| -> u32 {
            sample.label("jobid").unwrap().parse().unwrap()
        };
        for sample in exposition.named("jobledger_job_info") {
            let name = sample.label("name").unwrap().to_owned();
            if name.is_empty() {
                self.unnamed.insert(id(sample));
                continue;
            }
            self.unnamed.remove(&id(sample));
            for label in ["user", "account", "partition", "qos", "uid"] {
                assert!(!sample.label(label).unwrap().is_empty(), "{sample:?}");
            }
            assert_eq!(!sample.label("array_job_id").unwrap().is_empty(), name == "sweep");
            assert_eq!(!sample.label("het_job_id").unwrap().is_empty(), name == "ocean+ice");
            self.names.entry(name).or_default().insert(id(sample));
        }
        for sample in exposition.named("jobledger_job_start_time_seconds") {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since 1970")]
            self.starts.entry(id(sample)).or_default().insert(sample.value as u64);
        }
        self.ended.extend(exposition.named("jobledger_job_end_time_seconds").map(id));
        for sample in exposition.named("jobledger_step_cpu_seconds_total") {
            self.steps.insert(sample.label("step").unwrap().to_owned());
        }
        for sample in exposition.named("jobledger_job_io_read_bytes_total").filter(|s| s.value > 0.0) {
            self.devices.insert(sample.label("device").unwrap().to_owned());
        }
        let any = |name: &str| exposition.named(name).any(|sample| sample.value > 0.0);
        self.stale |= any("jobledger_node_stale_job_info");
        self.killed |= any("jobledger_job_oom_kills_total");
        self.throttled |= any("jobledger_job_cpu_throttled_seconds_total");
    }

    /// What no scrape had yet.
    fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> =
            NAMES.iter().filter(|n| !self.names.contains_key(**n)).map(ToString::to_string).collect();
        let mut want = |there: bool, what: &str| {
            if !there {
                missing.push(what.to_owned());
            }
        };
        want(self.stale, "a directory that SLURM left behind");
        want(self.killed, "an out-of-memory kill");
        want(self.throttled, "throttling");
        want(self.starts.values().any(|starts| starts.len() > 1), "a requeued job");
        want(self.devices.len() == 2, "two devices");
        for step in ["0", "1", "2", "3", "batch", "extern", "interactive"] {
            want(self.steps.contains(step), step);
        }
        let short = self.names.get("unit-test").map_or(0, |ids| ids.intersection(&self.ended).count());
        want(short >= 20, "20 short jobs that ended");
        missing
    }
}

/// The CPU time of every exported run.
#[derive(Default)]
struct Charged {
    /// By id: start of the latest run, and its seconds.
    runs: BTreeMap<String, (f64, f64)>,
    /// CPU time of runs that were replaced by a later one of the same id.
    closed: f64,
}

impl Charged {
    /// Checks jobs + unattributed = total, and returns the total.
    fn balance(&mut self, exposition: &Exposition) -> f64 {
        let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
        for sample in exposition.named("jobledger_job_cpu_seconds_total") {
            *seconds.entry(sample.label("jobid").unwrap().to_owned()).or_default() += sample.value;
        }
        for sample in exposition.named("jobledger_job_start_time_seconds") {
            let id = sample.label("jobid").unwrap().to_owned();
            let now = (sample.value, seconds.get(&id).copied().unwrap_or_default());
            match self.runs.insert(id, now) {
                Some((start, used)) if start != now.0 => self.closed += used,
                Some((_, used)) => assert!(used <= now.1, "a counter went back: {used}, {}", now.1),
                None => {}
            }
        }
        let value = |name| exposition.value(name, &[]).unwrap();
        let total = value("jobledger_node_slurm_cpu_seconds_total");
        let residual = value("jobledger_node_slurm_cpu_unattributed_seconds_total");
        let jobs: f64 = self.closed + seconds.values().sum::<f64>();
        assert!((jobs + residual - total).abs() < 1e-3, "{jobs} + {residual} is not {total}");
        assert!(residual < 0.01 * total + 1.0, "{residual} of {total}");
        total
    }
}

/// The difference of the scope's own file and the total, least and most, in every scrape. It is constant, or a little
/// larger while the next run of a requeued job waits until the end of the one before is exported.
fn check_truth(beyond: &[[f64; 2]]) {
    let same = beyond.iter().map(|[_, most]| *most).fold(f64::MAX, f64::min);
    let agree = beyond.iter().filter(|[least, _]| *least < same + 0.05).count();
    assert!(agree * 10 >= beyond.len() * 8, "{beyond:?}");
    assert!(beyond.iter().all(|[least, _]| *least < same + 3.0), "{beyond:?}");
}

#[test]
fn every_kind_of_job_is_exported_none_is_missed_and_the_sums_are_right() {
    let scratch = Scratch::new("demo");
    let directory = format!("--demo.directory={}", scratch.path().display());
    let flags = [
        "--demo.speed=20",
        &directory,
        "--scrape.timeout=5m",
        "--jobs.steps",
        "--jobs.retention=10m",
        "--jobs.stale-after=1s",
        "--metric.profile=full",
    ];
    let exporter = Exporter::start(BINARY, &flags);
    let node = node_below(&scratch);
    let scrape = || {
        let before = scope_seconds(&node);
        let text = exporter.metrics();
        let after = scope_seconds(&node);
        (before, parse(text.as_bytes(), Format::Text).unwrap(), after)
    };
    let mut seen = Seen::default();
    seen.take_in(&scrape().1);
    let first_ids: BTreeSet<u32> = seen.starts.keys().copied().collect();
    let deadline = Instant::now() + PATIENCE;
    let (mut charged, mut beyond) = (Charged::default(), Vec::new());
    let last = loop {
        let (before, exposition, after) = scrape();
        seen.take_in(&exposition);
        let total = charged.balance(&exposition);
        beyond.push([before - total, after - total]);
        let missing = seen.missing();
        if missing.is_empty() {
            break exposition;
        }
        assert!(Instant::now() < deadline, "not seen: {missing:?}");
        thread::sleep(Duration::from_secs(1));
    };
    check_truth(&beyond);
    // Ids are consecutive, so none between the first new one and the last may be missing. (A directory that was left
    // before the exporter started is no job.)
    let ids: BTreeSet<u32> = seen.starts.keys().copied().collect();
    let first_new = ids.iter().find(|id| *id > first_ids.last().unwrap()).unwrap();
    let missed: Vec<u32> = (*first_new..*ids.last().unwrap()).filter(|id| !ids.contains(id)).collect();
    assert!(missed.is_empty(), "{missed:?}");
    // Each has two slurmstepds; one of them ends after the last process.
    let has_ended = |id: &u32| {
        let mut ends = last.named("jobledger_job_end_time_seconds");
        ends.any(|s| s.label("jobid") == Some(&id.to_string()))
    };
    // Only ended jobs: a new one may have used nothing yet. With twenty times the speed a directory exists for some
    // hundredths of a second after its last process. So on a busy machine a few are removed before their last reading; their
    // CPU time is unattributed (`balance`).
    let short: Vec<_> = seen.names["unit-test"].iter().filter(|id| has_ended(id)).collect();
    let used = |id: &u32| -> Option<f64> {
        let of = |s: &&jobledger_testkit::exposition::Sample| s.label("jobid") == Some(&id.to_string());
        last.named("jobledger_job_cpu_seconds_total").filter(of).map(|s| s.value).reduce(|a, b| a + b)
    };
    // So are the metadata of a few: the prolog's file goes with the job.
    assert!(seen.unnamed.iter().all(has_ended), "{:?}", seen.unnamed);
    assert!(seen.unnamed.len() * 10 <= ids.len(), "{:?} of {ids:?}", seen.unnamed);
    let seconds: Vec<Option<f64>> = short.iter().map(|id| used(id)).collect();
    let whole = seconds.iter().flatten().filter(|seconds| **seconds > 0.025).count();
    assert!(whole * 10 >= short.len() * 9, "{whole} of {seconds:?}");
    for name in
        ["jobledger_exporter_unresolved_jobs_lost_total", "jobledger_exporter_retained_jobs_dropped_total"]
    {
        assert_eq!(last.value(name, &[]), Some(0.0), "{name}");
    }
    assert_eq!(exporter.terminate(), Some(0));
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "something is left");
}

#[test]
fn once_prints_a_node_with_history() {
    let scratch = Scratch::new("demo-once");
    let output = Command::new(BINARY)
        .args(["--demo.seed=5", "--once", "--log.level=error"])
        .arg(format!("--demo.directory={}", scratch.path().display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let exposition = parse(&output.stdout, Format::Text).unwrap();
    assert!(exposition.named("jobledger_job_info").count() >= 9);
    let used: f64 = exposition.named("jobledger_job_cpu_seconds_total").map(|s| s.value).sum();
    assert!(used > 100.0, "{used}");
    for collector in ["cpu", "job", "node_network"] {
        let success = exposition.value("jobledger_exporter_collector_success", &[("collector", collector)]);
        assert_eq!(success, Some(1.0), "{collector}");
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "something is left");
}

#[test]
fn the_next_demo_removes_the_files_of_a_killed_one() {
    let scratch = Scratch::new("demo-killed");
    let directory = format!("--demo.directory={}", scratch.path().display());
    let killed = Exporter::start(BINARY, &[&directory]);
    let left = node_below(&scratch);
    drop(killed);
    assert!(left.exists(), "a killed process removes nothing");
    let next = Exporter::start(BINARY, &[&directory]);
    assert_ne!(node_below(&scratch), left);
    assert_eq!(next.terminate(), Some(0));
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "something is left");
}
