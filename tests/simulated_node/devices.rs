//! Device counters of the simulated node in the real binary: they equal the simulated files and are attributed completely,
//! and a job is charged with what it used in the simulation.
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
/// Of the simulated node: watts of an idle socket, watts of a busy core, and cores of a socket.
const IDLE: f64 = 42.0;
const CORE: f64 = 8.0;
const CORES: f64 = 24.0;
/// Watts of the board, and what the supplies lose of the parts' energy.
const BOARD: f64 = 60.0;
const LOSS: f64 = 0.12;

/// Attributed counters: of the node, of jobs, unattributed.
const SPLIT: [[&str; 3]; 8] = [
    [
        "jobledger_node_energy_joules_total",
        "jobledger_job_energy_joules_total",
        "jobledger_node_energy_unattributed_joules_total",
    ],
    [
        "jobledger_node_infiniband_received_bytes_total",
        "jobledger_job_infiniband_received_bytes_total",
        "jobledger_node_infiniband_unattributed_received_bytes_total",
    ],
    [
        "jobledger_node_infiniband_transmitted_packets_total",
        "jobledger_job_infiniband_transmitted_packets_total",
        "jobledger_node_infiniband_unattributed_transmitted_packets_total",
    ],
    [
        "jobledger_node_nfs_read_bytes_total",
        "jobledger_job_nfs_read_bytes_total",
        "jobledger_node_nfs_unattributed_read_bytes_total",
    ],
    [
        "jobledger_node_nfs_written_bytes_total",
        "jobledger_job_nfs_written_bytes_total",
        "jobledger_node_nfs_unattributed_written_bytes_total",
    ],
    [
        "jobledger_node_nfs_operations_total",
        "jobledger_job_nfs_operations_total",
        "jobledger_node_nfs_unattributed_operations_total",
    ],
    [
        "jobledger_node_disk_read_bytes_total",
        "jobledger_job_disk_read_bytes_total",
        "jobledger_node_disk_unattributed_read_bytes_total",
    ],
    [
        "jobledger_node_disk_written_bytes_total",
        "jobledger_job_disk_written_bytes_total",
        "jobledger_node_disk_unattributed_written_bytes_total",
    ],
];

/// The labels of a part, without the job and the method.
fn part(sample: &Sample) -> String {
    let kept = |key: &str| !["jobid", "method", "source"].contains(&key);
    sample
        .labels
        .iter()
        .filter(|(key, _)| kept(key))
        .map(|(_, value)| value.as_str())
        .collect::<Vec<_>>()
        .join("/")
}

fn sums(exposition: &Exposition, name: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for sample in exposition.named(name) {
        *sums.entry(part(sample)).or_default() += sample.value;
    }
    sums
}

fn by_job(exposition: &Exposition, name: &str, of: impl Fn(&Sample) -> bool) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for sample in exposition.named(name).filter(|sample| of(sample)) {
        *sums.entry(sample.label("jobid").unwrap().parse().unwrap()).or_default() += sample.value;
    }
    sums
}

/// By index in [`SPLIT`] and part.
type Amounts = BTreeMap<(usize, String), f64>;

/// The jobs' parts of the attributed counters, of all exported runs.
#[derive(Default)]
struct Charged {
    /// By job: the start of its latest run, and what that was charged with.
    runs: BTreeMap<u32, (f64, Amounts)>,
    closed: Amounts,
    /// Node minus jobs minus unattributed, in every scrape.
    rests: BTreeMap<(usize, String), Vec<f64>>,
}

impl Charged {
    fn balance(&mut self, exposition: &Exposition) {
        let starts = by_job(exposition, "jobledger_job_start_time_seconds", |_| true);
        let mut now: BTreeMap<u32, Amounts> = BTreeMap::new();
        for (at, [_, job, _]) in SPLIT.iter().enumerate() {
            for sample in exposition.named(job) {
                let id = sample.label("jobid").unwrap().parse().unwrap();
                *now.entry(id).or_default().entry((at, part(sample))).or_default() += sample.value;
            }
        }
        for (id, start) in starts {
            let charged = now.remove(&id).unwrap_or_default();
            match self.runs.insert(id, (start, charged)) {
                Some((was, charged)) if was != start => {
                    for (key, value) in charged {
                        *self.closed.entry(key).or_default() += value;
                    }
                }
                _ => {}
            }
        }
        let mut jobs = self.closed.clone();
        for (key, value) in self.runs.values().flat_map(|(_, charged)| charged) {
            *jobs.entry(key.clone()).or_default() += value;
        }
        for (at, [node, _, unattributed]) in SPLIT.iter().enumerate() {
            let unattributed = sums(exposition, unattributed);
            let node = sums(exposition, node);
            assert!(!node.is_empty(), "{:?}", SPLIT[at]);
            for (part, total) in node {
                // The node's own meter is not split, but what it counts beyond its parts.
                let Some(nobody) = unattributed.get(&part) else {
                    assert_eq!(part, "node/");
                    continue;
                };
                let jobs = jobs.get(&(at, part.clone())).copied().unwrap_or_default();
                let rest = total - nobody - jobs;
                assert!(rest > -1e-3, "{part} of {:?}: {rest} counted twice", SPLIT[at]);
                self.rests.entry((at, part)).or_default().push(rest);
            }
        }
    }

    /// Checks that no scrape has a rest.
    fn close(&self) {
        for ((at, part), rests) in &self.rests {
            assert!(rests.iter().all(|rest| *rest < 1e-3), "{part} of {:?}: {rests:?}", SPLIT[*at]);
        }
    }
}

fn text(node: &Path, file: &str) -> String {
    std::fs::read_to_string(node.join(file)).unwrap()
}

/// A number in a table: field `at` of the line with `word`.
fn field(text: &str, word: &str, at: usize) -> f64 {
    let line = text.lines().find(|line| line.split_whitespace().any(|w| w == word)).unwrap();
    line.split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// The simulation's own numbers, in the order of the totals that have to be equal.
#[derive(Default)]
struct Truth {
    /// Energy of the zones as last read, and without wraps.
    energy: BTreeMap<String, (u64, u64)>,
    /// Beyond the totals, least and most, in each scrape.
    beyond: BTreeMap<usize, Vec<[f64; 2]>>,
}

const ZONES: [(&str, &str, &str); 4] = [
    ("intel-rapl:0", "package", "0"),
    ("intel-rapl:1", "package", "1"),
    ("intel-rapl:0:0", "dram", "0"),
    ("intel-rapl:1:0", "dram", "1"),
];

impl Truth {
    fn read(&mut self, node: &Path) -> Vec<f64> {
        let mut all = Vec::new();
        for (zone, _, _) in ZONES {
            let directory = format!("sys/class/powercap/{zone}");
            let number =
                |file: &str| text(node, &format!("{directory}/{file}")).trim().parse::<u64>().unwrap();
            let (raw, most) = (number("energy_uj"), number("max_energy_range_uj"));
            let (last, sum) = self.energy.entry(zone.to_owned()).or_insert((raw, 0));
            *sum += if raw >= *last { raw - *last } else { raw + most + 1 - *last };
            *last = raw;
            #[expect(clippy::cast_precision_loss, reason = "some minutes")]
            all.push(*sum as f64 / 1e6);
        }
        let port = |file: &str| -> f64 {
            let path = format!("sys/class/infiniband/mlx5_0/ports/1/counters/{file}");
            text(node, &path).trim().parse().unwrap()
        };
        all.extend([port("port_rcv_data") * 4.0, port("port_xmit_packets")]);
        let mounts = text(node, "proc/self/mountstats");
        all.extend([field(&mounts, "bytes:", 5), field(&mounts, "bytes:", 6), field(&mounts, "READ:", 1)]);
        let disks = text(node, "proc/diskstats");
        all.extend([field(&disks, "sda", 5) * 512.0, field(&disks, "nvme0n1", 9) * 512.0]);
        all
    }

    fn totals(exposition: &Exposition) -> Vec<f64> {
        let value = |name: &str, labels: &[(&str, &str)]| exposition.value(name, labels).unwrap();
        let mut all = Vec::new();
        for (_, domain, socket) in ZONES {
            let labels = [("domain", domain), ("socket", socket), ("source", "powercap")];
            all.push(value("jobledger_node_energy_joules_total", &labels));
        }
        let port = [("device", "mlx5_0"), ("port", "1")];
        all.push(value("jobledger_node_infiniband_received_bytes_total", &port));
        all.push(value("jobledger_node_infiniband_transmitted_packets_total", &port));
        let home = [("export", "nas1:/export/home"), ("mountpoint", "/home")];
        all.push(value("jobledger_node_nfs_read_bytes_total", &home));
        all.push(value("jobledger_node_nfs_written_bytes_total", &home));
        let [export, mountpoint] = home;
        let read = [export, mountpoint, ("operation", "read")];
        all.push(value("jobledger_node_nfs_operations_total", &read));
        all.push(value("jobledger_node_disk_read_bytes_total", &[("device", "sda")]));
        all.push(value("jobledger_node_disk_written_bytes_total", &[("device", "nvme0n1")]));
        all
    }

    fn check(&mut self, before: &[f64], exposition: &Exposition, after: &[f64]) {
        for (at, total) in Self::totals(exposition).iter().enumerate() {
            self.beyond.entry(at).or_default().push([before[at] - total, after[at] - total]);
        }
    }

    /// The difference of files and totals was constant, or larger while a run was not exported yet: the next run of a
    /// requeued job waits until the end of the one before is exported.
    fn close(&self) {
        for (at, beyond) in &self.beyond {
            let same = beyond.iter().map(|[_, most]| *most).fold(f64::MAX, f64::min);
            let agree = beyond.iter().filter(|[least, _]| *least <= same + 1e-3).count();
            assert!(agree * 10 >= beyond.len() * 8, "number {at}: {beyond:?}");
        }
    }
}

/// The energy of a job, and the expected one from the CPUs that it held and used.
#[derive(Default)]
struct Drawn {
    seconds: f64,
    joules: f64,
    expected: f64,
    cpus: f64,
}

#[derive(Default)]
struct Meter {
    last: Option<(Instant, BTreeMap<u32, [f64; 4]>)>,
    drawn: BTreeMap<u32, Drawn>,
}

impl Meter {
    fn take_in(&mut self, at: Instant, exposition: &Exposition) {
        let ended = by_job(exposition, "jobledger_job_end_time_seconds", |_| true);
        let package = |sample: &Sample| sample.label("domain") == Some("package");
        let mut energy = by_job(exposition, "jobledger_job_energy_joules_total", package);
        let mut spent = by_job(exposition, "jobledger_job_cpu_seconds_total", |_| true);
        let cpus = by_job(exposition, "jobledger_job_cpus", |_| true);
        let starts = by_job(exposition, "jobledger_job_start_time_seconds", |_| true);
        let now: BTreeMap<u32, [f64; 4]> = starts
            .into_iter()
            .filter(|(id, _)| !ended.contains_key(id))
            .filter_map(|(id, start)| {
                Some((id, [start, energy.remove(&id)?, spent.remove(&id)?, *cpus.get(&id)?]))
            })
            .collect();
        if let Some((then, before)) = &self.last {
            let seconds = (at - *then).as_secs_f64();
            for (id, [start, joules, used, cpus]) in &now {
                let Some([_, joules_then, used_then, _]) = before.get(id).filter(|then| then[0] == *start)
                else {
                    continue;
                };
                let drawn = self.drawn.entry(*id).or_default();
                drawn.seconds += seconds;
                drawn.joules += joules - joules_then;
                drawn.expected += cpus * IDLE / CORES * seconds + CORE * (used - used_then);
                drawn.cpus = *cpus;
            }
        }
        // Until the idle power is known, energy is split by CPUs held alone.
        let known = idle_watts(exposition).count() == 2;
        self.last = known.then_some((at, now));
    }
}

/// The idle power of the sockets.
fn idle_watts(exposition: &Exposition) -> impl Iterator<Item = &Sample> {
    let all = exposition.named("jobledger_node_energy_idle_watts");
    all.filter(|sample| sample.label("domain") == Some("package"))
}

/// What the node's meter counts beyond its parts is what the board draws and the supplies lose, but for the time since the
/// last reading of all meters.
fn check_overhead(exposition: &Exposition, seconds: f64) {
    let sum = |name: &str, of: &[&str]| -> f64 {
        let samples = exposition.named(name);
        let wanted = samples.filter(|s| s.label("domain").is_none_or(|domain| of.contains(&domain)));
        wanted.map(|sample| sample.value).sum()
    };
    let node = "jobledger_node_energy_joules_total";
    let parts = sum(node, &["package", "dram"]) + sum("jobledger_gpu_energy_joules_total", &[]);
    let (overhead, expected) = (sum(node, &["overhead"]), BOARD * seconds + LOSS * parts);
    assert_eq!(exposition.value("jobledger_node_energy_overhead_deficit_joules", &[]), Some(0.0));
    assert!(overhead < 1.05 * expected, "{overhead} J in {seconds} s, expected at most {expected}");
    // A time of a minute may wait for the GPUs of jobs that come and go; the load is not even, either.
    let settled = (seconds - 90.0).max(0.0) / seconds;
    assert!(overhead >= 0.5 * settled * expected, "{overhead} J in {seconds} s, expected {expected}");
}

/// Checks the energy of each job that was observed for some seconds; returns watts per CPU by name.
fn check_power(meter: &Meter, names: &BTreeMap<u32, String>) -> BTreeMap<String, f64> {
    let mut watts = BTreeMap::new();
    for (id, drawn) in meter.drawn.iter().filter(|(_, drawn)| drawn.seconds > 8.0) {
        let Drawn { seconds, joules, expected, cpus } = drawn;
        let name = &names[id];
        // Energy is up to a second old, CPU time is current, and a busy machine lets seconds pass between the two.
        assert!(
            (joules - expected).abs() < 0.25 * expected + 5.0,
            "{name}: {joules} J, expected {expected} J"
        );
        watts.insert(name.clone(), joules / seconds / cpus);
    }
    watts
}

/// Checks the charges of jobs that were alone; returns the names of those with a complete run.
fn check_alone(exposition: &Exposition, names: &BTreeMap<u32, String>) -> BTreeSet<String> {
    let alone = by_job(exposition, "jobledger_job_alone_seconds_total", |_| true);
    let ended = by_job(exposition, "jobledger_job_end_time_seconds", |_| true);
    let received = by_job(exposition, "jobledger_job_infiniband_received_bytes_total", |_| true);
    let read = by_job(exposition, "jobledger_job_nfs_read_bytes_total", |_| true);
    let written = by_job(exposition, "jobledger_job_disk_written_bytes_total", |_| true);
    let mut whole = BTreeSet::new();
    for (id, bytes) in received {
        assert!(alone[&id] > 0.0, "{} was never alone on the node", names[&id]);
        if names[&id] != "lattice" || !ended.contains_key(&id) {
            continue;
        }
        // Its start and end are known to some tenths of a second.
        let rate = bytes / alone[&id];
        assert!((2.6e9..3.3e9).contains(&rate), "{rate} bytes per second");
        // It reads its input in its first 20 s, which take one second at this speed.
        assert!((150e6..400e6).contains(&read[&id]), "{}", read[&id]);
        assert!(written[&id] > 40e6 * (alone[&id] - 1.0), "{}", written[&id]);
        whole.insert(names[&id].clone());
    }
    whole
}

#[test]
fn counters_equal_the_simulation_and_are_attributed_completely() {
    let scratch = Scratch::new("demo-devices");
    let directory = format!("--demo.directory={}", scratch.path().display());
    let exporter = Exporter::start(
        BINARY,
        &[
            "--demo.speed=20",
            &directory,
            "--scrape.timeout=5m",
            "--jobs.retention=10m",
            "--jobs.stale-after=1s",
            "--metric.profile=full",
        ],
    );
    let node = node_below(&scratch);
    let (mut charged, mut truth, mut meter) = (Charged::default(), Truth::default(), Meter::default());
    let mut names = BTreeMap::new();
    let mut methods = BTreeSet::new();
    let started = Instant::now();
    let deadline = started + PATIENCE;
    loop {
        let before = truth.read(&node);
        let begun = Instant::now();
        let exposition = parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
        let middle = begun + begun.elapsed() / 2;
        let after = truth.read(&node);
        for sample in exposition.named("jobledger_job_info") {
            let id: u32 = sample.label("jobid").unwrap().parse().unwrap();
            names.insert(id, sample.label("name").unwrap().to_owned());
        }
        for collector in ["energy", "infiniband", "nfs", "node_disk", "node_network"] {
            let labels = [("collector", collector)];
            assert_eq!(
                exposition.value("jobledger_exporter_collector_success", &labels),
                Some(1.0),
                "{collector}"
            );
        }
        truth.check(&before, &exposition, &after);
        charged.balance(&exposition);
        meter.take_in(middle, &exposition);
        for sample in exposition.named("jobledger_job_energy_joules_total") {
            methods.insert(sample.label("method").unwrap().to_owned());
        }
        for sample in idle_watts(&exposition) {
            assert!((sample.value - IDLE).abs() < 0.05 * IDLE, "{sample:?}");
        }
        check_overhead(&exposition, started.elapsed().as_secs_f64());
        let whole = check_alone(&exposition, &names);
        let watts = check_power(&meter, &names);
        if let (Some(busy), Some(idle), true) =
            (watts.get("cfd-solver"), watts.get("notebook"), !whole.is_empty())
        {
            assert!(*busy > 3.0 * idle, "{busy} and {idle} watts per CPU");
            break;
        }
        assert!(Instant::now() < deadline, "not seen: {watts:?} {whole:?}");
        thread::sleep(Duration::from_secs(1));
    }
    charged.close();
    truth.close();
    // At this speed the node is idle before a minute was seen, which a fitted idle power needs.
    let all = ["cpus_held", "cpus_held_and_cpu_time", "energy", "memory_held"].map(str::to_owned);
    methods.retain(|method| !method.starts_with("cpus_held_and_energy"));
    assert_eq!(methods, BTreeSet::from(all));
    assert_eq!(exporter.terminate(), Some(0));
}
