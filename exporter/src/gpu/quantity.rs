//! What is counted of a GPU and booked to the jobs that had it.

use crate::metric::{Family, Unit};

/// Something that only grows, with a row for the GPU, one for the job, and one for what is nobody's.
#[derive(Debug)]
pub struct GpuCounter {
    /// `jobledger_gpu_…`: Σ jobs + unattributed, since this exporter started.
    pub gpu: Family,
    /// `jobledger_job_gpu_…`
    pub job: Family,
    /// `jobledger_gpu_unattributed_…`
    pub unattributed: Family,
    /// How many of what is read make one of the family's unit.
    pub per_unit: u64,
    /// How many of the family's unit one of what is read makes, where it is more than one.
    pub times: u64,
}

impl GpuCounter {
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
    /// Each is one static: the place is the identity.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Quantity {}

/// Declares a [`GpuCounter`]: quantity with its unit, unit, labels of the GPU's rows, labels of the job's row, how many of
/// what is read make one unit, help without a full stop.
macro_rules! gpu_counter {
    ($(#[$doc:meta])* $id:ident, $quantity:literal, $unit:expr, [$($label:literal),*], [$($own:literal),*], $per_unit:expr, $help:literal $(, $times:expr)?) => {
        $(#[$doc])*
        static $id: GpuCounter = GpuCounter {
            gpu: crate::metric::per_cgroup!(@row Node, concat!("jobledger_gpu_", $quantity), Counter, $unit, ["gpu", "uuid" $(, $label)*],
                concat!($help, ", since this exporter started: the sum over jobs plus the unattributed"), "0.1.0"),
            job: crate::metric::per_cgroup!(@row Job, concat!("jobledger_job_gpu_", $quantity), Counter, $unit, ["gpu", "uuid" $(, $label)* $(, $own)*],
                concat!($help, ", while the job had it"), "0.1.0"),
            unattributed: crate::metric::per_cgroup!(@row Node, concat!("jobledger_gpu_unattributed_", $quantity), Counter, $unit, ["gpu", "uuid" $(, $label)*],
                concat!($help, ", that no job can be charged with"), "0.1.0"),
            per_unit: $per_unit,
            times: gpu_counter!(@times $($times)?),
        };
    };
    (@times) => { 1 };
    (@times $times:expr) => { $times };
}

const NANOSECONDS: u64 = 1_000_000_000;

gpu_counter!(
    BUSY_ROWS,
    "busy_seconds_total",
    Some(Unit::Seconds),
    [],
    ["method"],
    NANOSECONDS,
    "Time in which at least one kernel ran on the GPU"
);
gpu_counter!(
    ENERGY_ROWS,
    "energy_joules_total",
    Some(Unit::Joules),
    [],
    ["method"],
    1_000_000,
    "Energy of the whole board as it measures it"
);
gpu_counter!(
    SM_ACTIVE_ROWS,
    "sm_active_seconds_total",
    Some(Unit::Seconds),
    [],
    [],
    NANOSECONDS,
    "Time in which multiprocessors had work, as a mean over all of them"
);
gpu_counter!(
    SM_OCCUPANCY_ROWS,
    "sm_occupancy_seconds_total",
    Some(Unit::Seconds),
    [],
    [],
    NANOSECONDS,
    "Time times the part of the warps that multiprocessors can hold that were there"
);
gpu_counter!(
    PIPE_ROWS,
    "pipe_active_seconds_total",
    Some(Unit::Seconds),
    ["pipe"],
    [],
    NANOSECONDS,
    "Time in which a pipe of the multiprocessors worked, as a mean over all of them"
);
gpu_counter!(
    DRAM_ACTIVE_ROWS,
    "dram_active_seconds_total",
    Some(Unit::Seconds),
    [],
    [],
    NANOSECONDS,
    "Time in which the GPU's memory moved data"
);
gpu_counter!(
    PCIE_RECEIVED_ROWS,
    "pcie_received_bytes_total",
    Some(Unit::Bytes),
    [],
    [],
    1,
    "Bytes that the GPU received over PCIe"
);
gpu_counter!(
    PCIE_TRANSMITTED_ROWS,
    "pcie_transmitted_bytes_total",
    Some(Unit::Bytes),
    [],
    [],
    1,
    "Bytes that the GPU sent over PCIe"
);
gpu_counter!(
    LINK_RECEIVED_ROWS,
    "link_received_bytes_total",
    Some(Unit::Bytes),
    ["type"],
    [],
    1,
    "Bytes that the GPU received over its links to other GPUs (nvlink, xgmi)"
);
gpu_counter!(
    LINK_TRANSMITTED_ROWS,
    "link_transmitted_bytes_total",
    Some(Unit::Bytes),
    ["type"],
    [],
    1,
    "Bytes that the GPU sent over its links to other GPUs (nvlink, xgmi)"
);
gpu_counter!(
    FLOPS_ROWS,
    "estimated_flops_total",
    None,
    ["pipe", "assumption"],
    [],
    1,
    "Operations that the pipe could have done while it was active: an upper bound under the assumption",
    // 64 bits of single operations are five hours at a petaflop a second.
    1_000_000
);

macro_rules! quantities {
    ($($(#[$doc:meta])* $id:ident = $rows:ident { $($key:literal: $value:literal),* };)*) => {
        impl Quantity {
            $($(#[$doc])* pub const $id: &'static Self = {
                static IT: Quantity = Quantity { counter: &$rows, labels: &[$(($key, $value)),*] };
                &IT
            };)*
        }
    };
}

quantities! {
    /// Nanoseconds in which a kernel ran.
    BUSY = BUSY_ROWS {};
    /// Microjoules.
    ENERGY = ENERGY_ROWS {};
    /// Nanoseconds times the part of the multiprocessors with work.
    SM_ACTIVE = SM_ACTIVE_ROWS {};
    /// Nanoseconds times the part of the warps.
    SM_OCCUPANCY = SM_OCCUPANCY_ROWS {};
    /// Nanoseconds of any tensor core operation.
    TENSOR = PIPE_ROWS { "pipe": "tensor" };
    /// Nanoseconds of double-precision tensor operations.
    TENSOR_FP64 = PIPE_ROWS { "pipe": "tensor_fp64" };
    /// Nanoseconds of tensor operations on FP16, BF16, TF32 and, not separable, FP8.
    TENSOR_HALF = PIPE_ROWS { "pipe": "tensor_fp16" };
    /// Nanoseconds of tensor operations on integers.
    TENSOR_INTEGER = PIPE_ROWS { "pipe": "tensor_integer" };
    /// Nanoseconds of double precision outside of tensor cores.
    FP64 = PIPE_ROWS { "pipe": "fp64" };
    /// Nanoseconds of single precision outside of tensor cores.
    FP32 = PIPE_ROWS { "pipe": "fp32" };
    /// Nanoseconds of half precision outside of tensor cores.
    FP16 = PIPE_ROWS { "pipe": "fp16" };
    /// Nanoseconds of integers outside of tensor cores.
    INTEGER = PIPE_ROWS { "pipe": "integer" };
    /// Nanoseconds in which memory moved data.
    DRAM_ACTIVE = DRAM_ACTIVE_ROWS {};
    /// Bytes.
    PCIE_RECEIVED = PCIE_RECEIVED_ROWS {};
    /// Bytes.
    PCIE_TRANSMITTED = PCIE_TRANSMITTED_ROWS {};
    /// Bytes.
    NVLINK_RECEIVED = LINK_RECEIVED_ROWS { "type": "nvlink" };
    /// Bytes.
    NVLINK_TRANSMITTED = LINK_TRANSMITTED_ROWS { "type": "nvlink" };
    /// Bytes.
    XGMI_RECEIVED = LINK_RECEIVED_ROWS { "type": "xgmi" };
    /// Bytes.
    XGMI_TRANSMITTED = LINK_TRANSMITTED_ROWS { "type": "xgmi" };
    /// Millions of operations.
    FLOPS_FP64 = FLOPS_ROWS { "pipe": "fp64", "assumption": "fma" };
    /// Millions of operations.
    FLOPS_FP32 = FLOPS_ROWS { "pipe": "fp32", "assumption": "fma" };
    /// Millions of operations.
    FLOPS_FP16 = FLOPS_ROWS { "pipe": "fp16", "assumption": "fma" };
    /// Millions of operations.
    FLOPS_TENSOR_FP64 = FLOPS_ROWS { "pipe": "tensor_fp64", "assumption": "dense" };
    /// Millions of operations.
    FLOPS_TENSOR_HALF = FLOPS_ROWS { "pipe": "tensor_fp16", "assumption": "dense_fp16" };
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
