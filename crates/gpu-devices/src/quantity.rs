//! The counters of a GPU that are charged to its jobs.

use exposition::{Family, Profile, same_but_prefix};

/// A counter, with a family for the GPU, one for the job, and one for the unattributed rest.
#[derive(Debug)]
pub struct GpuCounter {
    /// `jobledger_gpu_…`: Σ jobs + unattributed, since this exporter started.
    pub gpu: Family,
    /// `jobledger_job_gpu_…`
    pub job: Family,
    /// `jobledger_gpu_unattributed_…`
    pub unattributed: Family,
    /// How many raw units make one of the family's.
    pub per_unit: u64,
    /// How many of the family's units one raw unit makes, where it is more than one.
    pub times: u64,
}

impl GpuCounter {
    /// The three whole names: of the GPU's total, of the job's part, and of the unattributed part.
    const fn new(gpu: &'static str, job: &'static str, unattributed: &'static str) -> Self {
        let all = (gpu, "jobledger_gpu_");
        assert!(same_but_prefix(all, (job, "jobledger_job_gpu_")), "the job's name is another");
        assert!(
            same_but_prefix(all, (unattributed, "jobledger_gpu_unattributed_")),
            "the rest's name is another"
        );
        let counter = Self {
            gpu: Family::counter(gpu)
                .help_suffix(", since this exporter started: the sum over jobs plus the unattributed"),
            job: Family::counter(job).help_suffix(", while the job had it"),
            unattributed: Family::counter(unattributed).help_suffix(", that no job can be charged with"),
            per_unit: 1,
            times: 1,
        };
        counter.labels(&["gpu", "uuid"])
    }

    /// With other labels than the GPU's two.
    const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { gpu: self.gpu.labels(labels), unattributed: self.unattributed.labels(labels), ..self }
            .job_labels(labels)
    }

    /// With other labels of the job's part.
    const fn job_labels(self, labels: &'static [&'static str]) -> Self {
        Self { job: self.job.labels(labels), ..self }
    }

    /// With this meaning, without a full stop: the help texts begin with it.
    const fn help(self, help: &'static str) -> Self {
        Self {
            gpu: self.gpu.help(help),
            job: self.job.help(help),
            unattributed: self.unattributed.help(help),
            ..self
        }
    }

    /// In this profile and those that have more, all three of them: a sum is whole or not there.
    const fn profile(self, profile: Profile) -> Self {
        Self {
            gpu: self.gpu.profile(profile),
            job: self.job.profile(profile),
            unattributed: self.unattributed.profile(profile),
            ..self
        }
    }

    const fn per_unit(self, per_unit: u64) -> Self {
        Self { per_unit, ..self }
    }

    const fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// The three rows of the catalogue.
    pub fn rows(&'static self) -> [&'static Family; 3] {
        [&self.gpu, &self.job, &self.unattributed]
    }
}

/// A counter with the labels that it has beyond the unit's.
#[derive(Debug)]
pub struct Quantity {
    /// Its rows.
    pub counter: &'static GpuCounter,
    /// Labels with their values.
    pub labels: &'static [(&'static str, &'static str)],
}

impl PartialEq for Quantity {
    /// A counter is one static: its place is its identity.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.counter, other.counter) && self.labels == other.labels
    }
}

impl Eq for Quantity {}

const NANOSECONDS: u64 = 1_000_000_000;

static BUSY_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_busy_seconds_total",
    "jobledger_job_gpu_busy_seconds_total",
    "jobledger_gpu_unattributed_busy_seconds_total",
)
.profile(Profile::Lean)
.job_labels(&["gpu", "uuid", "method"])
.per_unit(NANOSECONDS)
.help("Time in which at least one kernel ran on the GPU");
static ENERGY_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_energy_joules_total",
    "jobledger_job_gpu_energy_joules_total",
    "jobledger_gpu_unattributed_energy_joules_total",
)
.profile(Profile::Lean)
.job_labels(&["gpu", "uuid", "method"])
.per_unit(1_000_000)
.help("Energy of the whole board as it measures it");
static SM_ACTIVE_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_sm_active_seconds_total",
    "jobledger_job_gpu_sm_active_seconds_total",
    "jobledger_gpu_unattributed_sm_active_seconds_total",
)
.per_unit(NANOSECONDS)
.help("Time in which multiprocessors had work, as a mean over all of them");
static SM_OCCUPANCY_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_sm_occupancy_seconds_total",
    "jobledger_job_gpu_sm_occupancy_seconds_total",
    "jobledger_gpu_unattributed_sm_occupancy_seconds_total",
)
.per_unit(NANOSECONDS)
.help("Time times the part of the warps that multiprocessors can hold that were there");
static PIPE_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_pipe_active_seconds_total",
    "jobledger_job_gpu_pipe_active_seconds_total",
    "jobledger_gpu_unattributed_pipe_active_seconds_total",
)
.labels(&["gpu", "uuid", "pipe"])
.per_unit(NANOSECONDS)
.help("Time in which a pipe of the multiprocessors worked, as a mean over all of them");
static DRAM_ACTIVE_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_dram_active_seconds_total",
    "jobledger_job_gpu_dram_active_seconds_total",
    "jobledger_gpu_unattributed_dram_active_seconds_total",
)
.per_unit(NANOSECONDS)
.help("Time in which the GPU's memory moved data");
static PCIE_RECEIVED_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_pcie_received_bytes_total",
    "jobledger_job_gpu_pcie_received_bytes_total",
    "jobledger_gpu_unattributed_pcie_received_bytes_total",
)
.help("Bytes that the GPU received over PCIe");
static PCIE_TRANSMITTED_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_pcie_transmitted_bytes_total",
    "jobledger_job_gpu_pcie_transmitted_bytes_total",
    "jobledger_gpu_unattributed_pcie_transmitted_bytes_total",
)
.help("Bytes that the GPU sent over PCIe");
static LINK_RECEIVED_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_link_received_bytes_total",
    "jobledger_job_gpu_link_received_bytes_total",
    "jobledger_gpu_unattributed_link_received_bytes_total",
)
.labels(&["gpu", "uuid", "type"])
.help("Bytes that the GPU received over its links to other GPUs (nvlink, xgmi)");
static LINK_TRANSMITTED_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_link_transmitted_bytes_total",
    "jobledger_job_gpu_link_transmitted_bytes_total",
    "jobledger_gpu_unattributed_link_transmitted_bytes_total",
)
.labels(&["gpu", "uuid", "type"])
.help("Bytes that the GPU sent over its links to other GPUs (nvlink, xgmi)");
static FLOPS_ROWS: GpuCounter = GpuCounter::new(
    "jobledger_gpu_estimated_flops_total",
    "jobledger_job_gpu_estimated_flops_total",
    "jobledger_gpu_unattributed_estimated_flops_total",
)
.labels(&["gpu", "uuid", "pipe", "assumption"])
// 64 bits of single operations are five hours at a petaflop a second.
.times(1_000_000)
.help("Operations that the pipe could have done while it was active: an upper bound under the assumption");

impl Quantity {
    const fn new(counter: &'static GpuCounter, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self { counter, labels }
    }

    /// Nanoseconds in which a kernel ran.
    pub const BUSY: &'static Self = &Self::new(&BUSY_ROWS, &[]);
    /// Microjoules.
    pub const ENERGY: &'static Self = &Self::new(&ENERGY_ROWS, &[]);
    /// Nanoseconds times the part of the multiprocessors with work.
    pub const SM_ACTIVE: &'static Self = &Self::new(&SM_ACTIVE_ROWS, &[]);
    /// Nanoseconds times the part of the warps.
    pub const SM_OCCUPANCY: &'static Self = &Self::new(&SM_OCCUPANCY_ROWS, &[]);
    /// Nanoseconds of any tensor core operation.
    pub const TENSOR: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "tensor")]);
    /// Nanoseconds of double-precision tensor operations.
    pub const TENSOR_FP64: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "tensor_fp64")]);
    /// Nanoseconds of tensor operations on FP16, BF16, TF32 and, not separable, FP8.
    pub const TENSOR_HALF: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "tensor_fp16")]);
    /// Nanoseconds of tensor operations on integers.
    pub const TENSOR_INTEGER: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "tensor_integer")]);
    /// Nanoseconds of double precision outside of tensor cores.
    pub const FP64: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "fp64")]);
    /// Nanoseconds of single precision outside of tensor cores.
    pub const FP32: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "fp32")]);
    /// Nanoseconds of half precision outside of tensor cores.
    pub const FP16: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "fp16")]);
    /// Nanoseconds of integers outside of tensor cores.
    pub const INTEGER: &'static Self = &Self::new(&PIPE_ROWS, &[("pipe", "integer")]);
    /// Nanoseconds in which memory moved data.
    pub const DRAM_ACTIVE: &'static Self = &Self::new(&DRAM_ACTIVE_ROWS, &[]);
    /// Bytes.
    pub const PCIE_RECEIVED: &'static Self = &Self::new(&PCIE_RECEIVED_ROWS, &[]);
    /// Bytes.
    pub const PCIE_TRANSMITTED: &'static Self = &Self::new(&PCIE_TRANSMITTED_ROWS, &[]);
    /// Bytes.
    pub const NVLINK_RECEIVED: &'static Self = &Self::new(&LINK_RECEIVED_ROWS, &[("type", "nvlink")]);
    /// Bytes.
    pub const NVLINK_TRANSMITTED: &'static Self = &Self::new(&LINK_TRANSMITTED_ROWS, &[("type", "nvlink")]);
    /// Bytes.
    pub const XGMI_RECEIVED: &'static Self = &Self::new(&LINK_RECEIVED_ROWS, &[("type", "xgmi")]);
    /// Bytes.
    pub const XGMI_TRANSMITTED: &'static Self = &Self::new(&LINK_TRANSMITTED_ROWS, &[("type", "xgmi")]);
    /// Millions of operations.
    pub const FLOPS_FP64: &'static Self = &Self::new(&FLOPS_ROWS, &[("pipe", "fp64"), ("assumption", "fma")]);
    /// Millions of operations.
    pub const FLOPS_FP32: &'static Self = &Self::new(&FLOPS_ROWS, &[("pipe", "fp32"), ("assumption", "fma")]);
    /// Millions of operations.
    pub const FLOPS_FP16: &'static Self = &Self::new(&FLOPS_ROWS, &[("pipe", "fp16"), ("assumption", "fma")]);
    /// Millions of operations.
    pub const FLOPS_TENSOR_FP64: &'static Self =
        &Self::new(&FLOPS_ROWS, &[("pipe", "tensor_fp64"), ("assumption", "dense")]);
    /// Millions of operations.
    pub const FLOPS_TENSOR_HALF: &'static Self =
        &Self::new(&FLOPS_ROWS, &[("pipe", "tensor_fp16"), ("assumption", "dense_fp16")]);
    /// All of them.
    pub const ALL: [&'static Self; 24] = [
        Self::BUSY,
        Self::ENERGY,
        Self::SM_ACTIVE,
        Self::SM_OCCUPANCY,
        Self::TENSOR,
        Self::TENSOR_FP64,
        Self::TENSOR_HALF,
        Self::TENSOR_INTEGER,
        Self::FP64,
        Self::FP32,
        Self::FP16,
        Self::INTEGER,
        Self::DRAM_ACTIVE,
        Self::PCIE_RECEIVED,
        Self::PCIE_TRANSMITTED,
        Self::NVLINK_RECEIVED,
        Self::NVLINK_TRANSMITTED,
        Self::XGMI_RECEIVED,
        Self::XGMI_TRANSMITTED,
        Self::FLOPS_FP64,
        Self::FLOPS_FP32,
        Self::FLOPS_FP16,
        Self::FLOPS_TENSOR_FP64,
        Self::FLOPS_TENSOR_HALF,
    ];
}
/// Every counter, for the catalogue.
pub static COUNTERS: [&GpuCounter; 11] = [
    &BUSY_ROWS,
    &ENERGY_ROWS,
    &SM_ACTIVE_ROWS,
    &SM_OCCUPANCY_ROWS,
    &PIPE_ROWS,
    &DRAM_ACTIVE_ROWS,
    &PCIE_RECEIVED_ROWS,
    &PCIE_TRANSMITTED_ROWS,
    &LINK_RECEIVED_ROWS,
    &LINK_TRANSMITTED_ROWS,
    &FLOPS_ROWS,
];
