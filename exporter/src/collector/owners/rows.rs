//! The totals of owners: their families, and which family of jobs each is the sum of.

use exposition::{Family, Profile, Value};
use gpu_devices::Quantity;

use super::co2;
use crate::collector::devices::energy::metrics::{JOB_ENERGY, UNATTRIBUTED};
use crate::collector::devices::gpu::rows;
use crate::collector::job::cpu::CPU_SECONDS;
use crate::collector::job::{cpuset, memory};

const LABELS: &[&str] = &["user", "account", "partition", "qos"];
const LABELS_AND_DOMAIN: &[&str] = &["user", "account", "partition", "qos", "domain"];

pub(super) static CPU: Family = Family::counter("jobledger_owner_cpu_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("CPU time of the owner's jobs on this node, those too that are over");
pub(super) static HELD: Family = Family::counter("jobledger_owner_allocated_cpu_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("CPUs that the owner's jobs might use times their time on this node");
pub(super) static HELD_NODE: Family = Family::counter("jobledger_node_allocated_cpu_seconds_total")
    .profile(Profile::Lean)
    .help("CPUs that jobs might use times their time on this node: the sum over owners");
pub(super) static UNUSED: Family =
    Family::counter("jobledger_owner_unused_cpu_seconds_total").profile(Profile::Lean).labels(LABELS).help(
        "CPU time that the owner's jobs had and did not use: the most by which \
     the allocated time of each exceeded its CPU time so far",
    );
pub(super) static GPU_HELD: Family = Family::counter("jobledger_owner_gpu_allocated_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs, summed over GPUs");
pub(super) static GPU_BUSY: Family = Family::counter("jobledger_owner_gpu_busy_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time in which kernels of the owner's jobs ran, summed over GPUs");
pub(super) static GPU_IDLE: Family = Family::counter("jobledger_owner_gpu_idle_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Time for which the owner's jobs had GPUs and ran no kernel, as far as that was seen");
pub(super) static MEMORY: Family = Family::counter("jobledger_owner_memory_allocated_byte_seconds_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Memory limit of the owner's jobs times their time on this node, in bytes times seconds");
pub(super) static ENERGY: Family =
    Family::counter("jobledger_owner_energy_joules_total").profile(Profile::Lean).labels(LABELS_AND_DOMAIN).help(
        "Energy charged to the owner's jobs; the domains are disjoint and may be added up, gpu is that of GPUs",
    );
pub(super) static CHARGED: Family = Family::counter("jobledger_owner_charged_energy_joules_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Energy charged to the owner's jobs: the sum of jobledger_owner_energy_joules_total over domains");
pub(super) static CO2: Family = Family::counter("jobledger_owner_co2_grams_total").profile(Profile::Lean)
    .labels(LABELS)
    .help("CO2 equivalent of the energy charged to the owner's jobs, each joule by the factor of its time; only with --owner.co2-grams-per-kwh");
pub(super) static CO2_UNATTRIBUTED: Family = Family::counter("jobledger_node_co2_unattributed_grams_total")
    .profile(Profile::Lean)
    .help("CO2 equivalent of the energy of CPUs, memory and GPUs that no job can be charged with");
pub(super) static CO2_NODE: Family = Family::counter("jobledger_node_co2_grams_total")
    .profile(Profile::Lean)
    .help("CO2 equivalent of the energy that is attributed: the sum over owners plus the unattributed");
pub(super) static ENDED: Family = Family::counter("jobledger_owner_jobs_ended_total")
    .profile(Profile::Lean)
    .labels(LABELS)
    .help("Jobs of the owner that ended on this node, a requeued one each time");

/// One total of each owner.
pub(super) struct Row {
    pub(super) owners: &'static Family,
    /// Digits after the point that the total has: the finest of the jobs' values.
    pub(super) places: u32,
    /// Parts that are added up in the last digit.
    parts: u128,
    /// The jobs' family that it is the sum of; `None` for what is derived.
    pub(super) jobs: Option<fn() -> &'static Family>,
    /// What the label `domain` is, if it has one.
    pub(super) domain: Option<Domain>,
    /// Whether runs in one directory go on with the same count.
    pub(super) by_directory: bool,
    /// A label over which a job's samples are added up first: time may pass from one value to the other, and a GPU, which
    /// has a uuid, may get another index.
    pub(super) merged: Option<&'static str>,
}

/// What the label `domain` is.
pub(super) enum Domain {
    /// The job's own.
    Kept,
    Is(&'static str),
}

impl Row {
    const fn new(owners: &'static Family, places: u32) -> Self {
        Self { owners, places, parts: 1, jobs: None, domain: None, by_directory: false, merged: None }
    }

    const fn of(self, jobs: fn() -> &'static Family) -> Self {
        Self { jobs: Some(jobs), ..self }
    }

    const fn merged(self, label: &'static str) -> Self {
        Self { merged: Some(label), ..self }
    }

    /// What is shown for so many parts.
    pub(super) fn shown(&self, amount: u128) -> u128 {
        amount / self.parts
    }

    pub(super) fn value(&self, shown: u128) -> Value {
        Value::of_parts(shown, self.places)
    }
}

/// Digits of joules.
pub(super) const MICRO: u32 = 6;

/// The label of a GPU's index.
pub(super) const GPU: &str = "gpu";

pub(super) const CPU_ROW: usize = 0;
pub(super) const HELD_ROW: usize = 1;
pub(super) const UNUSED_ROW: usize = 2;
pub(super) const ENDED_ROW: usize = 3;
pub(super) const CO2_ROW: usize = 4;

pub(super) static ROWS: [Row; 11] = [
    Row { by_directory: true, ..Row::new(&CPU, 6).of(|| &CPU_SECONDS.job).merged("mode") },
    Row::new(&HELD, 9).of(|| &cpuset::ALLOCATED),
    Row::new(&UNUSED, 9),
    Row::new(&ENDED, 0),
    Row { parts: co2::PARTS_IN_NANOGRAM, ..Row::new(&CO2, 9) },
    Row::new(&GPU_HELD, 9).of(|| &rows::ALLOCATED).merged(GPU),
    Row::new(&GPU_BUSY, 9).of(|| &Quantity::BUSY.counter.job).merged(GPU),
    Row::new(&GPU_IDLE, 9).of(|| &rows::IDLE).merged(GPU),
    Row::new(&MEMORY, 0).of(|| &memory::ALLOCATED),
    Row { domain: Some(Domain::Kept), ..Row::new(&ENERGY, MICRO).of(|| &JOB_ENERGY) },
    Row {
        domain: Some(Domain::Is("gpu")),
        ..Row::new(&ENERGY, MICRO).of(|| &Quantity::ENERGY.counter.job).merged(GPU)
    },
];

/// What no job can be charged with of the energy that owners are.
pub(super) static UNATTRIBUTED_ENERGY: [fn() -> &'static Family; 2] =
    [|| &UNATTRIBUTED, || &Quantity::ENERGY.counter.unattributed];

pub(super) static FAMILIES: [&Family; 14] = [
    &CPU,
    &HELD,
    &HELD_NODE,
    &UNUSED,
    &GPU_HELD,
    &GPU_BUSY,
    &GPU_IDLE,
    &MEMORY,
    &ENERGY,
    &CHARGED,
    &CO2,
    &ENDED,
    &CO2_NODE,
    &CO2_UNATTRIBUTED,
];
