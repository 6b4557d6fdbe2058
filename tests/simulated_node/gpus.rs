//! The simulated GPUs, through the real binary: their counts are split without rest at every scrape, jobs have the
//! GPUs that their prolog named, and each kind of job behaves as documented.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, Sample, parse};
use jobledger_testkit::scratch::Scratch;

use super::node_below;
use crate::BINARY;

const PATIENCE: Duration = jobledger_testkit::wait::LONGEST;

/// What is split over jobs.
const SPLIT: [&str; 11] = [
    "busy_seconds_total",
    "energy_joules_total",
    "sm_active_seconds_total",
    "sm_occupancy_seconds_total",
    "pipe_active_seconds_total",
    "dram_active_seconds_total",
    "pcie_received_bytes_total",
    "pcie_transmitted_bytes_total",
    "link_received_bytes_total",
    "link_transmitted_bytes_total",
    "estimated_flops_total",
];

/// Sums over all labels except those that name a unit or a pipe.
fn sums(exposition: &Exposition, name: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for sample in exposition.named(name) {
        let part: Vec<&str> = sample
            .labels
            .iter()
            .filter(|(key, _)| !["jobid", "method"].contains(&key.as_str()))
            .map(|(_, value)| value.as_str())
            .collect();
        *sums.entry(part.join("/")).or_default() += sample.value;
    }
    sums
}

/// Jobs and the unattributed rest make up every GPU's total. No job disappears early, and none appears twice.
fn check_accounts(exposition: &Exposition) {
    for quantity in SPLIT {
        let totals = sums(exposition, &format!("jobledger_gpu_{quantity}"));
        let unattributed = sums(exposition, &format!("jobledger_gpu_unattributed_{quantity}"));
        let jobs = sums(exposition, &format!("jobledger_job_gpu_{quantity}"));
        assert!(totals.len() >= 8, "{quantity}: {totals:?}");
        for (part, total) in &totals {
            let rest = total - unattributed[part] - jobs.get(part).copied().unwrap_or_default();
            assert!(rest.abs() <= 1e-6 + 1e-12 * total, "{quantity} of {part}: {rest} of {total}");
        }
        assert!(jobs.keys().all(|part| totals.contains_key(part)), "{quantity}: {jobs:?}");
    }
}

fn job_of(sample: &Sample) -> u32 {
    sample.label("jobid").unwrap().parse().unwrap()
}

/// By job, a sum over its GPUs.
fn by_job(exposition: &Exposition, name: &str) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for sample in exposition.named(name) {
        *sums.entry(job_of(sample)).or_default() += sample.value;
    }
    sums
}

/// Jobs have what their prolog named.
fn check_binding(node: &Path, exposition: &Exposition) -> usize {
    let mut bound_gpus: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for sample in exposition.named("jobledger_job_gpu_info") {
        assert_eq!(sample.label("source"), Some("prolog"), "{sample:?}");
        bound_gpus.entry(job_of(sample)).or_default().insert(sample.label("uuid").unwrap());
    }
    let mut seen = 0;
    for (id, units) in bound_gpus {
        // One that ended has no file any more.
        let Ok(text) = std::fs::read_to_string(node.join(format!("run/jobledger/jobs/{id}"))) else {
            continue;
        };
        let named = text.lines().find_map(|line| line.strip_prefix("gpu_uuids=")).unwrap();
        assert_eq!(named.split(',').collect::<BTreeSet<_>>(), units, "{text}");
        seen += 1;
    }
    seen
}

/// What is known of a job at a scrape.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    allocated: f64,
    busy: f64,
    idle: f64,
    joules: f64,
    tensor: f64,
    utilization: Option<f64>,
    gpus: usize,
    ended: bool,
}

fn known(exposition: &Exposition) -> BTreeMap<u32, Known> {
    let mut known: BTreeMap<u32, Known> = BTreeMap::new();
    let mut take = |name: &str, put: fn(&mut Known, f64)| {
        for (id, value) in by_job(exposition, name) {
            put(known.entry(id).or_default(), value);
        }
    };
    take("jobledger_job_gpu_allocated_seconds_total", |known, value| known.allocated = value);
    take("jobledger_job_gpu_busy_seconds_total", |known, value| known.busy = value);
    take("jobledger_job_gpu_idle_seconds_total", |known, value| known.idle = value);
    take("jobledger_job_gpu_energy_joules_total", |known, value| known.joules = value);
    take("jobledger_job_gpu_utilization_ratio", |known, value| known.utilization = Some(value));
    for sample in exposition.named("jobledger_job_gpu_pipe_active_seconds_total") {
        if sample.label("pipe") == Some("tensor") {
            known.entry(job_of(sample)).or_default().tensor += sample.value;
        }
    }
    for sample in exposition.named("jobledger_job_gpu_info") {
        known.entry(job_of(sample)).or_default().gpus += 1;
    }
    for sample in exposition.named("jobledger_job_end_time_seconds") {
        if let Some(known) = known.get_mut(&job_of(sample)) {
            known.ended = true;
        }
    }
    known
}

/// What was seen in all scrapes so far.
#[derive(Default)]
struct Seen {
    names: BTreeMap<u32, String>,
    done: BTreeSet<&'static str>,
    last: BTreeMap<u32, Known>,
    /// Ended short jobs, and those of them that were charged with what they did.
    short: (usize, usize),
    methods: BTreeSet<(String, String)>,
}

const WANTED: [&str; 10] = [
    "four GPUs used well",
    "a GPU never used",
    "idle after activity",
    "hardly used",
    "shared",
    "a part used well",
    "nobody has it",
    "short jobs charged",
    "a divided GPU's energy is its parts'",
    "a whole GPU's energy is its only job's",
];

impl Seen {
    fn take_in(&mut self, exposition: &Exposition) {
        for sample in exposition.named("jobledger_job_info") {
            self.names.insert(job_of(sample), sample.label("name").unwrap().to_owned());
        }
        for sample in exposition.named("jobledger_job_gpu_energy_joules_total") {
            let of_whole = sample.label("uuid").unwrap().starts_with("GPU-");
            assert!(of_whole, "energy is measured of the whole GPU: {sample:?}");
            let name = self.names[&job_of(sample)].clone();
            self.methods.insert((name, sample.label("method").unwrap().to_owned()));
        }
        let now = known(exposition);
        for (id, known) in &now {
            let was = self.last.get(id).copied().unwrap_or_default();
            assert!(
                known.busy >= was.busy && known.idle >= was.idle && known.joules >= was.joules,
                "{id}: {known:?} {was:?}"
            );
            // A job is seen a moment after it began, on each of its GPUs: later on a busy machine.
            #[expect(clippy::cast_precision_loss, reason = "a job has few GPUs")]
            let moments = 0.3 * known.gpus as f64 + 0.1 * known.allocated;
            assert!(known.busy + known.idle <= known.allocated + moments, "{id}: {known:?}");
            let name = self.names[id].clone();
            self.judge(&name, known);
        }
        let shared: Vec<&Sample> =
            exposition.named("jobledger_gpu_jobs").filter(|sample| sample.value > 1.0).collect();
        for sample in shared {
            self.judge_shared(sample.label("uuid").unwrap(), exposition, &now);
        }
        let vacant = exposition.named("jobledger_gpu_unallocated_seconds_total");
        if vacant.filter(|sample| sample.value > 2.0).count() >= 3 {
            self.done.insert("nobody has it");
        }
        let method = |name: &str, method: &str| self.methods.contains(&(name.to_owned(), method.to_owned()));
        // By activity once all parts were idle at a time, which may be long in coming.
        let divided = |name: &str| method(name, "slices_and_activity") || method(name, "slices");
        if divided("docking") && divided("fine-tune") {
            self.done.insert("a divided GPU's energy is its parts'");
        }
        if method("llm-train", "alone") && method("gpu-notebook", "alone") {
            self.done.insert("a whole GPU's energy is its only job's");
        }
        let short = now.iter().filter(|(id, known)| known.ended && self.names[id] == "gpu-test");
        let short: Vec<&Known> = short.map(|(_, known)| known).collect();
        self.short = (short.len(), short.iter().filter(|known| known.busy > 0.05).count());
        // On a busy machine the simulation itself is late to have some of them do anything.
        if self.short.1 >= 5 && self.short.1 * 4 >= self.short.0 {
            self.done.insert("short jobs charged");
        }
        self.last = now;
    }

    fn judge(&mut self, name: &str, known: &Known) {
        let Known { allocated, busy, idle, .. } = *known;
        match name {
            "llm-train" => {
                assert_eq!(known.gpus, 4);
                // Its activity is exported some seconds later.
                if allocated > 4.0 * 20.0 && busy > 0.5 * allocated {
                    assert!((0.6..1.0).contains(&(busy / (busy + idle))), "{known:?}");
                    assert!((0.4..0.7).contains(&(known.tensor / busy)), "{known:?}");
                    self.done.insert("four GPUs used well");
                }
            }
            "gpu-notebook" => {
                assert_eq!(busy, 0.0, "{known:?}");
                assert!(known.utilization.is_none_or(|utilization| utilization == 0.0));
                // Charged when every new job is known to have no GPU: some seconds later.
                assert!(idle > allocated - 40.0, "{known:?}");
                if idle > 25.0 {
                    // 70 W.
                    assert!((60.0..75.0).contains(&(known.joules / idle)), "{known:?}");
                    self.done.insert("a GPU never used");
                }
            }
            "fine-tune" if busy > 3.0 && idle > 5.0 && known.utilization == Some(0.0) => {
                self.done.insert("idle after activity");
            }
            "embed" if idle > 8.0 => {
                assert!((0.04..0.1).contains(&(busy / (busy + idle))), "{known:?}");
                self.done.insert("hardly used");
            }
            "docking" if allocated > 12.0 && busy > 6.0 => {
                assert!(busy / (busy + idle) > 0.6, "{known:?}");
                self.done.insert("a part used well");
            }
            _ => {}
        }
    }

    fn judge_shared(&mut self, uuid: &str, exposition: &Exposition, now: &BTreeMap<u32, Known>) {
        let on = |sample: &&Sample| sample.label("uuid") == Some(uuid);
        let bound_gpus = exposition.named("jobledger_job_gpu_info").filter(on);
        let jobs = bound_gpus.map(job_of).filter(|id| !now[id].ended && self.names[id] == "serving");
        let jobs: Vec<(u32, Known)> = jobs.map(|id| (id, now[&id])).collect();
        // One may be exported with the next reading.
        let [(one, first), (two, second)] = jobs.as_slice() else { return };
        assert_eq!(one.abs_diff(*two), 1, "they started together");
        let (most, least) = (first.busy.max(second.busy), first.busy.min(second.busy));
        let methods = exposition.named("jobledger_job_gpu_busy_seconds_total").filter(on);
        let by_process = methods.filter(|sample| [*one, *two].contains(&job_of(sample)));
        if by_process.filter(|sample| sample.label("method") == Some("processes")).count() == 2 && least > 1.5
        {
            // 0.35 of what is asked of the other.
            assert!((2.5..3.3).contains(&(most / least)), "{most} and {least}");
            self.done.insert("shared");
        }
    }

    fn missing(&self) -> Vec<&str> {
        WANTED.into_iter().filter(|wanted| !self.done.contains(wanted)).collect()
    }
}

#[test]
fn every_gpu_is_split_without_rest_and_shows_what_alerts_are_about() {
    let scratch = Scratch::new("demo-gpus");
    let directory = format!("--demo.directory={}", scratch.path().display());
    let flags = [
        "--demo.speed=8",
        "--scrape.timeout=5m",
        &directory,
        "--jobs.retention=10m",
        "--jobs.stale-after=1s",
        "--collector.gpu.period=1s",
    ];
    let exporter = Exporter::start(BINARY, &flags);
    let node = node_below(&scratch);
    let (mut seen, mut bound) = (Seen::default(), 0);
    let deadline = Instant::now() + PATIENCE;
    // The first reading is not at once.
    thread::sleep(Duration::from_secs(2));
    drop(exporter.metrics());
    loop {
        thread::sleep(Duration::from_secs(1));
        let exposition = parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
        let success = exposition.value("jobledger_exporter_collector_success", &[("collector", "gpu")]);
        assert_eq!(success, Some(1.0));
        check_accounts(&exposition);
        bound += check_binding(&node, &exposition);
        seen.take_in(&exposition);
        let missing = seen.missing();
        if missing.is_empty() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "not seen: {missing:?} {:?} {:?} {:?}",
            seen.short,
            seen.methods,
            seen.last
        );
    }
    assert!(bound > 50, "{bound}");
    assert_eq!(exporter.terminate(), Some(0));
}
