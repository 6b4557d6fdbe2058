//! Owners and the unattributed rest are the node, to the last digit of every page: of CPU time, energy, CO2 and GPUs' busy
//! time. Where the node has no total, owners are all that was ever exported of jobs. Random histories: job runs are
//! dropped, owners are found late or are too many, readers do not come, the exporter is restarted or killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::metadata;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpu_binding::{DeviceAccess, DeviceAccessSlot, DeviceAccessSource};
use gpu_devices::{Backend, DeviceNode, Quantity, Sample, Unit, UnitSample, Vendor, Wanted};
use jobledger_exporter::collector::SourceError;
use jobledger_exporter::collector::devices::gpu::{GpuOptions, MakeBackend};
use jobledger_exporter::collector::options::Options;
use jobledger_exporter::collector::owners::OwnerOptions;
use jobledger_testkit::exposition::{Exposition, Sample as Shown};
use jobledger_testkit::machine::Machine;
use jobledger_testkit::wait::LONGEST;
use proptest::prelude::*;
use slurm_jobs::table::{JobLabel, TableOptions};
use slurm_jobs::{JobRunId, NodeSnapshot};

use crate::exporter::{Exporter, SCOPE, Setup, lay_out, machine, resize, show_joules, stat, table_options};

const COLLECTORS: [&str; 6] = ["cpu", "cpuset", "memory", "energy", "gpu", "owners"];
/// Grams for each kilowatt hour.
const FACTOR: &str = "380.123457";
/// Owners beyond it are `other`.
const LIMIT: usize = 2;
const GPUS: u32 = 2;

/// The sums of owners, of what they are the sums, and the digits after the point.
const OF_JOBS: [(&str, &str, usize); 5] = [
    ("jobledger_owner_allocated_cpu_seconds_total", "jobledger_job_allocated_cpu_seconds_total", 9),
    (
        "jobledger_owner_memory_allocated_byte_seconds_total",
        "jobledger_job_memory_allocated_byte_seconds_total",
        0,
    ),
    ("jobledger_owner_gpu_allocated_seconds_total", "jobledger_job_gpu_allocated_seconds_total", 9),
    ("jobledger_owner_gpu_idle_seconds_total", "jobledger_job_gpu_idle_seconds_total", 9),
    ("jobledger_owner_gpu_busy_seconds_total", "jobledger_job_gpu_busy_seconds_total", 9),
];

#[derive(Debug, Clone)]
enum Op {
    /// A job starts with so many CPUs, so much memory, and maybe some GPUs, which may be others' too.
    Start(u32, u64, Option<Vec<u32>>),
    /// One ends. The exporter is notified of it or not.
    End(u32, bool),
    /// One ends in a collection, whose page a reader gets or not.
    EndWhileCollected(u32, bool),
    Resize(u32, u32),
    /// It is known whose it is.
    Identify(u32, u32),
    /// A job uses CPU time.
    Spend(u32, u64),
    /// A GPU runs kernels and uses energy, and is read or not.
    Gpu(u32, u64, u64, bool),
    Joules(u64),
    Wake,
    /// A reader gets the page or not.
    Scrape(bool),
    Restart,
    Crash,
}

fn history() -> impl Strategy<Value = Vec<Op>> {
    let id = 0..4_u32;
    let gpus = proptest::option::of(proptest::sample::subsequence((0..GPUS).collect::<Vec<_>>(), 0..=2));
    let op = prop_oneof![
        4 => ((1..=4_u32), (1..1_u64 << 40), gpus).prop_map(|(cpus, bytes, gpus)| Op::Start(cpus, bytes, gpus)),
        3 => (id.clone(), any::<bool>()).prop_map(|(id, seen)| Op::End(id, seen)),
        2 => (id.clone(), any::<bool>()).prop_map(|(id, served)| Op::EndWhileCollected(id, served)),
        1 => (id.clone(), 1..=4_u32).prop_map(|(id, cpus)| Op::Resize(id, cpus)),
        3 => (id.clone(), 0..5_u32).prop_map(|(id, account)| Op::Identify(id, account)),
        2 => (id, 1..5_000_000_u64).prop_map(|(id, usec)| Op::Spend(id, usec)),
        6 => (0..GPUS, 0..9_000_000_u64, 0..500_u64, any::<bool>())
            .prop_map(|(gpu, busy, energy, read)| Op::Gpu(gpu, busy, energy, read)),
        2 => (1..500_u64).prop_map(Op::Joules),
        3 => Just(Op::Wake),
        5 => any::<bool>().prop_map(Op::Scrape),
        1 => Just(Op::Restart),
        1 => Just(Op::Crash),
    ];
    proptest::collection::vec(op, 1..60)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs' counts: nanoseconds busy, microjoules.
#[derive(Clone, Default)]
struct Gpus(Arc<Mutex<[(u64, u64); GPUS as usize]>>);

impl Gpus {
    fn count(&self, gpu: u32, busy: u64, energy: u64) {
        let counts = &mut locked(&self.0)[usize::try_from(gpu).unwrap()];
        *counts = (counts.0 + busy, counts.1 + energy);
    }
}

impl Backend for Gpus {
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }

    fn is_present(&self) -> bool {
        true
    }

    fn sample(&mut self, _wanted: Wanted) -> Result<Sample, SourceError> {
        let began = Instant::now();
        let unit = |(minor, (busy, energy)): (u32, &(u64, u64))| {
            let unit = Unit {
                vendor: Vendor::Nvidia,
                uuid: format!("GPU-{minor}").into(),
                index: Some(minor),
                minor: Some(minor),
                pci: None,
                model: "NVIDIA Test".into(),
                nodes: vec![DeviceNode { major: 195, minor }],
                part: None,
                divided: false,
            };
            let mut sample = UnitSample::new(Arc::new(unit), 0);
            sample.counts = vec![(Quantity::BUSY, *busy), (Quantity::ENERGY, *energy)];
            sample
        };
        let units = (0..).zip(locked(&self.0).iter()).map(unit).collect();
        let (vendor, ended) = (Vendor::Nvidia, Instant::now());
        Ok(Sample { vendor, began, ended, units, facts: Vec::new(), failed: Vec::new() })
    }

    fn release(&mut self) {}
}

/// By the inode of a job's directory, the minors that it may open.
#[derive(Clone, Default)]
struct Constraints(Arc<Mutex<BTreeMap<u64, Vec<u32>>>>);

impl DeviceAccessSource for Constraints {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        let constraints = locked(&self.0);
        let answer = |cgroup: &BorrowedFd<'_>| {
            let inode = rustix::fs::fstat(cgroup).unwrap().st_ino;
            let Some(minors) = constraints.get(&inode) else { return Ok(DeviceAccess::NoProgram) };
            let nodes = nodes.iter().map(|node| minors.contains(&node.minor)).collect();
            Ok(DeviceAccess::Allowed { nodes, programs: vec![1] })
        };
        Ok(cgroups.iter().map(answer).collect())
    }
}

/// SLURM removes a job's directory, which the kernel reports.
fn remove(machine: &Machine, id: u32) {
    machine.remove(format!("{SCOPE}/job_{id}"));
}

/// A decimal in units of its last place, exactly as it is written.
fn digits(text: &str, places: usize) -> u128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = if fraction == "0" { "" } else { fraction };
    assert!(fraction.len() <= places, "{text} has more than {places} digits");
    format!("{whole}{fraction:0<places$}").parse().unwrap_or_else(|_| panic!("{text} is no decimal"))
}

fn sum(page: &Exposition, name: &str, places: usize) -> u128 {
    page.named(name).map(|sample| digits(&sample.text, places)).sum()
}

struct Node {
    machine: Machine,
    gpus: Gpus,
    constraints: Constraints,
    most_retained: usize,
    exporter: Option<Exporter>,
    /// CPU time of the jobs that are there, microseconds.
    jobs: BTreeMap<u32, u64>,
    ids: u32,
    scope: u64,
    joules: u64,
    /// What was ever exported of job runs, as it was last.
    exported: BTreeMap<(JobRunId, String), u128>,
    checked_gpus: u32,
}

impl Node {
    fn new(most_retained: usize) -> Self {
        let mut node = Self {
            machine: machine(),
            gpus: Gpus::default(),
            constraints: Constraints::default(),
            most_retained,
            exporter: None,
            jobs: BTreeMap::new(),
            ids: 100,
            scope: 0,
            joules: 0,
            exported: BTreeMap::new(),
            checked_gpus: 0,
        };
        node.machine.write("run/jobledger/jobs/.keep", "");
        // One that was there before.
        node.apply(&Op::Start(2, 1 << 30, Some(vec![0])));
        node.start();
        node.scrape(true, None);
        node
    }

    /// Another exporter with what this one saved.
    fn start(&mut self) {
        let before = self.exporter.take().map(|exporter| exporter.saved);
        let (gpus, constraints) = (self.gpus.clone(), self.constraints.clone());
        let options = move |options: &mut Options| {
            let simulated = gpus.clone();
            let make: MakeBackend = Arc::new(move |_| Box::new(simulated.clone()));
            options.set(GpuOptions {
                period: Duration::from_secs(3600),
                backends: vec![(Vendor::Nvidia, make)],
                access_source: DeviceAccessSlot::new(Ok(Box::new(constraints.clone()))),
                ..GpuOptions::default()
            });
            let co2 = Some(FACTOR.parse().unwrap());
            options.set(OwnerOptions { labels: vec![JobLabel::Account], limit: LIMIT, co2 });
        };
        let table = TableOptions {
            jobs_dir: Some(self.machine.jobs_dir()),
            most_retained: self.most_retained,
            ..table_options()
        };
        let setup = Setup { collectors: &COLLECTORS, options: &options, table };
        self.exporter = Some(Exporter::start(&self.machine, &setup, before.as_ref()));
        self.read_gpus();
    }

    fn exporter(&mut self) -> &mut Exporter {
        self.exporter.as_mut().unwrap()
    }

    fn read_gpus(&self) {
        if let Some(exporter) = &self.exporter {
            let control = exporter.options.get::<GpuOptions>().control.get().cloned();
            control.iter().for_each(|control| control.settle(LONGEST));
        }
    }

    /// By place, so that histories hit jobs that are there.
    fn job(&self, at: u32) -> Option<u32> {
        let there: Vec<u32> = self.jobs.keys().copied().collect();
        there.get(usize::try_from(at).unwrap() % there.len().max(1)).copied()
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Start(cpus, bytes, gpus) if self.jobs.len() < 4 => {
                self.ids += 1;
                let id = self.ids;
                lay_out(&self.machine, id, *cpus);
                self.machine.write(format!("{SCOPE}/job_{id}/memory.max"), format!("{bytes}\n"));
                let inode = metadata(self.machine.path(format!("{SCOPE}/job_{id}"))).unwrap().ino();
                locked(&self.constraints.0).remove(&inode);
                if let Some(gpus) = gpus {
                    locked(&self.constraints.0).insert(inode, gpus.clone());
                }
                self.jobs.insert(id, 0);
            }
            Op::Start(..) => {}
            Op::End(at, seen) => {
                let Some(id) = self.job(*at) else { return };
                self.jobs.remove(&id);
                remove(&self.machine, id);
                if *seen {
                    self.exporter().wake();
                }
            }
            Op::EndWhileCollected(at, served) => self.scrape(*served, self.job(*at)),
            Op::Resize(at, cpus) => {
                self.job(*at).iter().for_each(|id| resize(&self.machine, *id, *cpus));
            }
            Op::Identify(at, account) => {
                if let Some(id) = self.job(*at) {
                    let text = format!("job_id={id}\naccount=a{account}\n");
                    self.machine.write(format!("run/jobledger/jobs/{id}"), text);
                }
            }
            Op::Spend(at, usec) => {
                let Some(id) = self.job(*at) else { return };
                let spent = self.jobs.get_mut(&id).unwrap();
                *spent += usec;
                self.scope += usec;
                self.machine.write(format!("{SCOPE}/job_{id}/cpu.stat"), stat(*spent));
                self.machine.write(format!("{SCOPE}/cpu.stat"), stat(self.scope));
            }
            Op::Gpu(gpu, busy, energy, read) => {
                self.gpus.count(*gpu, *busy, energy * 1_000_003);
                if *read {
                    self.read_gpus();
                }
            }
            Op::Joules(joules) => {
                self.joules += joules;
                show_joules(&self.machine, self.joules);
            }
            Op::Wake => self.exporter().wake(),
            Op::Scrape(served) => self.scrape(*served, None),
            Op::Restart => {
                self.exporter().save();
                self.start();
            }
            Op::Crash => self.start(),
        }
    }

    /// A scrape, in which a job ends.
    fn scrape(&mut self, served: bool, ends: Option<u32>) {
        self.jobs.retain(|id, _| Some(*id) != ends);
        let Self { machine, exporter, .. } = self;
        let meanwhile = || ends.iter().for_each(|id| remove(machine, *id));
        let (snapshot, page) = exporter.as_mut().unwrap().scrape(served, meanwhile);
        self.note(&snapshot, &page);
        self.check(&page);
    }

    fn note(&mut self, snapshot: &NodeSnapshot, page: &Exposition) {
        let run = |sample: &Shown| {
            let id = sample.label("jobid").unwrap();
            let of = snapshot.jobs.iter().find(|job| job.id.unwrap().to_string() == id);
            of.unwrap_or_else(|| panic!("job {id} is no job of the snapshot")).run
        };
        for (_, family, places) in OF_JOBS {
            for sample in page.named(family) {
                let now = digits(&sample.text, places);
                let series = format!("{family}{:?}", sample.labels);
                let before = self.exported.insert((run(sample), series.clone()), now);
                assert!(before.is_none_or(|before| now >= before), "{series} fell from {before:?} to {now}");
            }
        }
    }

    fn check(&mut self, page: &Exposition) {
        for (owners, jobs, places) in OF_JOBS {
            let mine = self.exported.iter().filter(|((_, series), _)| series.starts_with(jobs));
            let jobs: u128 = mine.map(|(_, last)| *last).sum();
            assert_eq!(sum(page, owners, places), jobs, "{owners}");
        }
        let held = sum(page, "jobledger_owner_allocated_cpu_seconds_total", 9);
        assert_eq!(
            held,
            sum(page, "jobledger_node_allocated_cpu_seconds_total", 9),
            "CPU time that jobs had"
        );

        let cpu = sum(page, "jobledger_owner_cpu_seconds_total", 6);
        let rest = sum(page, "jobledger_node_slurm_cpu_unattributed_seconds_total", 6);
        assert_eq!(cpu + rest, sum(page, "jobledger_node_slurm_cpu_seconds_total", 6), "CPU time");

        let co2 = sum(page, "jobledger_owner_co2_grams_total", 9);
        let rest = sum(page, "jobledger_node_co2_unattributed_grams_total", 9);
        let node = sum(page, "jobledger_node_co2_grams_total", 9);
        assert_eq!(co2 + rest, node, "CO2");

        let accounts: BTreeSet<_> =
            page.named("jobledger_owner_jobs_ended_total").map(|s| s.label("account")).collect();
        assert!(accounts.len() <= LIMIT + 1, "{accounts:?}");

        // After a start the GPUs are not known until they were read.
        if page.named("jobledger_gpu_energy_joules_total").count() < usize::try_from(GPUS).unwrap() {
            return;
        }
        self.checked_gpus += 1;
        let busy = sum(page, "jobledger_owner_gpu_busy_seconds_total", 9);
        let rest = sum(page, "jobledger_gpu_unattributed_busy_seconds_total", 9);
        assert_eq!(busy + rest, sum(page, "jobledger_gpu_busy_seconds_total", 9), "GPUs' busy time");
        let energy = sum(page, "jobledger_owner_energy_joules_total", 6);
        assert_eq!(
            energy,
            sum(page, "jobledger_owner_charged_energy_joules_total", 6),
            "energy of all domains"
        );
        let rest = sum(page, "jobledger_node_energy_unattributed_joules_total", 6)
            + sum(page, "jobledger_gpu_unattributed_energy_joules_total", 6);
        let all = sum(page, "jobledger_node_energy_joules_total", 6)
            + sum(page, "jobledger_gpu_energy_joules_total", 6);
        assert_eq!(energy + rest, all, "energy");
        // Nanograms, each total rounded down by less than one.
        let wanted = all * digits(FACTOR, 6) / 3_600_000_000;
        assert!((node..node + 10).contains(&wanted), "{all} microjoules emit {wanted}, not {node}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn owners_and_the_rest_are_the_node(ops in history(), most_retained in 0..4_usize) {
        let mut node = Node::new(most_retained);
        for op in &ops {
            node.apply(op);
        }
        node.read_gpus();
        for _ in 0..3 {
            node.scrape(true, None);
        }
        prop_assert!(node.checked_gpus > 0);
    }
}
