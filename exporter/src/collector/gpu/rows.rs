//! Rows of the catalogue of what jobs have of GPUs and of how it is known. What is counted is `crate::gpu::quantity`'s, what the
//! hardware tells of itself `crate::gpu::families`'.

use crate::gpu::{COUNTERS, families as facts};
use crate::metric::{Family, Unit as Base, node_family};

macro_rules! job {
    ($id:ident, $name:literal, $kind:ident, $unit:expr, [$($label:literal),*], $help:literal $(, $stays:literal)?) => {
        node_family!(pub(super) $id, Job, $name, $kind, $unit, [$($label),*], $help, "0.1.0" $(, $stays)?);
    };
}
macro_rules! gpu {
    ($id:ident, $name:literal, $kind:ident, $unit:expr, [$($label:literal),*], $help:literal) => {
        node_family!(pub(super) $id, Node, $name, $kind, $unit, [$($label),*], $help, "0.1.0");
    };
}

job!(
    JOB_GPUS,
    "jobledger_job_gpus",
    Gauge,
    None,
    ["source"],
    "GPUs, or parts of divided ones, that the job has; absent while nothing tells which they are, 0 if it is known to have none"
);
job!(
    JOB_INFO,
    "jobledger_job_gpu_info",
    Info,
    None,
    ["gpu", "uuid", "vendor", "model", "profile", "parent", "minor", "source", "shared"],
    "A GPU that the job has, by what source that is known, and whether other jobs had it at the same time",
    true
);
job!(
    ALLOCATED,
    "jobledger_job_gpu_allocated_seconds_total",
    Counter,
    Some(Base::Seconds),
    ["gpu", "uuid"],
    "Time for which the job had the GPU, whether anything ran on it or not"
);
job!(
    IDLE,
    "jobledger_job_gpu_idle_seconds_total",
    Counter,
    Some(Base::Seconds),
    ["gpu", "uuid"],
    "Time for which the job had the GPU and none of its kernels ran, as far as that was seen; busy, idle and what was not seen make up the allocated time"
);
job!(
    UTILIZATION,
    "jobledger_job_gpu_utilization_ratio",
    Gauge,
    Some(Base::Ratio),
    ["gpu", "uuid"],
    "Part of the time between the last two readings in which the job's kernels ran"
);
job!(
    MEMORY_USED,
    "jobledger_job_gpu_memory_used_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid"],
    "GPU memory that the job has taken: all that is taken if it has the GPU alone, else that of its processes"
);
job!(
    MEMORY_PEAK,
    "jobledger_job_gpu_memory_peak_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid"],
    "Most of jobledger_job_gpu_memory_used_bytes over all readings",
    true
);
job!(
    MEMORY_LIMIT,
    "jobledger_job_gpu_memory_limit_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid"],
    "GPU memory that there is"
);
job!(
    PROCESSES,
    "jobledger_job_gpu_processes",
    Gauge,
    None,
    ["gpu", "uuid"],
    "Processes of the job that have the GPU open; only where processes are read (shared GPUs, --collector.gpu.processes)"
);
job!(
    PROCESS_MEMORY,
    "jobledger_job_gpu_process_memory_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid", "pid"],
    "GPU memory of a process of the job; only with --collector.gpu.processes"
);
job!(
    PROCESS_BUSY,
    "jobledger_job_gpu_process_busy_seconds_total",
    Counter,
    Some(Base::Seconds),
    ["gpu", "uuid", "pid"],
    "Time in which kernels of a process of the job ran, since the exporter first saw it; only with --collector.gpu.processes"
);
gpu!(
    GPU_INFO,
    "jobledger_gpu_info",
    Info,
    None,
    [
        "gpu",
        "uuid",
        "vendor",
        "model",
        "minor",
        "pci_bus_id",
        "divided",
        "parent",
        "gpu_instance",
        "compute_instance",
        "profile"
    ],
    "A GPU or a part of a divided one; gpu is the index of the vendor's tools, minor that of its device node"
);
gpu!(
    GPU_UP,
    "jobledger_gpu_up",
    Gauge,
    None,
    ["gpu", "uuid"],
    "Whether the GPU could be read the last time, and that is not long ago"
);
gpu!(
    DOWN,
    "jobledger_gpu_down_info",
    Info,
    None,
    ["gpu", "uuid", "reason"],
    "Why a GPU cannot be read: lost, reset_required, or another word of its driver"
);
gpu!(HOLDERS, "jobledger_gpu_jobs", Gauge, None, ["gpu", "uuid"], "Jobs that have the GPU now");
gpu!(
    WATCHED,
    "jobledger_gpu_observed_seconds_total",
    Counter,
    Some(Base::Seconds),
    ["gpu", "uuid"],
    "Time between readings of the GPU since this exporter started"
);
gpu!(
    VACANT,
    "jobledger_gpu_unallocated_seconds_total",
    Counter,
    Some(Base::Seconds),
    ["gpu", "uuid"],
    "Part of jobledger_gpu_observed_seconds_total in which no job had it"
);
gpu!(
    MEMORY,
    "jobledger_gpu_memory_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid", "state"],
    "Memory of the GPU that is used, free, or reserved by its driver and firmware"
);
gpu!(
    MEMORY_SIZE,
    "jobledger_gpu_memory_size_bytes",
    Gauge,
    Some(Base::Bytes),
    ["gpu", "uuid"],
    "Memory of the GPU"
);
gpu!(
    AGE,
    "jobledger_gpu_reading_age_seconds",
    Gauge,
    Some(Base::Seconds),
    ["vendor"],
    "How long ago the vendor's GPUs were read; gauges are absent when that is longer than three periods and ten seconds"
);
gpu!(
    TOOK,
    "jobledger_gpu_reading_duration_seconds",
    Gauge,
    Some(Base::Seconds),
    ["vendor"],
    "How long the last reading of the vendor's GPUs took"
);
gpu!(
    STATE,
    "jobledger_gpu_driver_state",
    Gauge,
    None,
    ["vendor", "state"],
    "1 for how the reading of the vendor's GPUs fares: starting, running, failed, hanging or released"
);

/// Rows of the catalogue.
pub(super) fn families() -> Vec<&'static Family> {
    let mut rows: Vec<&'static Family> = vec![&JOB_GPUS, &JOB_INFO, &ALLOCATED, &IDLE, &UTILIZATION];
    rows.extend([&MEMORY_USED, &MEMORY_PEAK, &MEMORY_LIMIT, &PROCESSES, &PROCESS_MEMORY, &PROCESS_BUSY]);
    rows.extend(COUNTERS.iter().flat_map(|counter| counter.rows()));
    rows.extend([&GPU_INFO, &GPU_UP, &DOWN, &HOLDERS, &WATCHED, &VACANT, &MEMORY, &MEMORY_SIZE]);
    rows.extend([&AGE, &TOOK, &STATE]);
    rows.extend(facts::all());
    rows
}
