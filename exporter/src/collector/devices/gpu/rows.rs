//! Families of the jobs' GPUs, and of the source of that knowledge. `gpu_devices::quantity` has those of counts,
//! `gpu_devices::families` those of the hardware's state.

use exposition::{Family, Profile};
use gpu_devices::{COUNTERS, families as facts};

pub(super) static JOB_GPUS: Family =
    Family::gauge("jobledger_job_gpus").profile(Profile::Lean).labels(&["source"]).help(
        "GPUs, or parts of divided ones, that the job has; absent while \
     no source knows which, 0 if it is known to have none",
    );
pub(super) static JOB_INFO: Family = Family::info("jobledger_job_gpu_info")
    .profile(Profile::Lean)
    .labels(&["gpu", "uuid", "vendor", "model", "profile", "parent", "minor", "source", "shared"])
    .retained()
    .help(
        "A GPU that the job has, by what source that is known, and \
         whether other jobs had it at the same time",
    );
pub(in crate::collector) static ALLOCATED: Family =
    Family::counter("jobledger_job_gpu_allocated_seconds_total")
        .profile(Profile::Lean)
        .labels(&["gpu", "uuid"])
        .help("Time for which the job had the GPU, whether anything ran on it or not");
pub(in crate::collector) static IDLE: Family = Family::counter("jobledger_job_gpu_idle_seconds_total")
    .profile(Profile::Lean)
    .labels(&["gpu", "uuid"])
    .help(
        "Time for which the job had the GPU and none of its kernels ran, as far as \
         that was seen; busy, idle and what was not seen make up the allocated time",
    );
pub(super) static UTILIZATION: Family = Family::gauge("jobledger_job_gpu_utilization_ratio")
    .labels(&["gpu", "uuid"])
    .help("Part of the time between the last two readings in which the job's kernels ran");
pub(super) static MEMORY_USED: Family =
    Family::gauge("jobledger_job_gpu_memory_used_bytes").labels(&["gpu", "uuid"]).help(
        "GPU memory that the job has taken: all that is taken if it \
         has the GPU alone, else that of its processes",
    );
pub(super) static MEMORY_PEAK: Family = Family::gauge("jobledger_job_gpu_memory_peak_bytes")
    .labels(&["gpu", "uuid"])
    .retained()
    .help("Most of jobledger_job_gpu_memory_used_bytes over all readings");
pub(super) static MEMORY_LIMIT: Family = Family::gauge("jobledger_job_gpu_memory_limit_bytes")
    .labels(&["gpu", "uuid"])
    .retained()
    .help("GPU memory that there is");
pub(super) static PROCESSES: Family =
    Family::gauge("jobledger_job_gpu_processes").labels(&["gpu", "uuid"]).help(
        "Processes of the job that have the GPU open; only where \
         processes are read (shared GPUs, --collector.gpu.processes)",
    );
pub(super) static PROCESS_MEMORY: Family = Family::gauge("jobledger_job_gpu_process_memory_bytes")
    .labels(&["gpu", "uuid", "pid"])
    .help("GPU memory of a process of the job; only with --collector.gpu.processes");
pub(super) static PROCESS_BUSY: Family =
    Family::counter("jobledger_job_gpu_process_busy_seconds_total").labels(&["gpu", "uuid", "pid"]).help(
        "Time in which kernels of a process of the job ran, since the \
         exporter first saw it; only with --collector.gpu.processes",
    );
pub(super) static GPU_INFO: Family = Family::info("jobledger_gpu_info")
    .profile(Profile::Lean)
    .labels(&[
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
        "profile",
    ])
    .help(
        "A GPU or a part of a divided one; gpu is the index of the \
         vendor's tools, minor that of its device node",
    );
pub(super) static GPU_UP: Family = Family::gauge("jobledger_gpu_up")
    .profile(Profile::Lean)
    .labels(&["gpu", "uuid"])
    .help("Whether the GPU could be read the last time, and that is not long ago");
pub(super) static DOWN: Family = Family::info("jobledger_gpu_down_info")
    .labels(&["gpu", "uuid", "reason"])
    .help("Why a GPU cannot be read: lost, reset_required, or another word of its driver");
pub(super) static HOLDERS: Family =
    Family::gauge("jobledger_gpu_jobs").labels(&["gpu", "uuid"]).help("Jobs that have the GPU now");
pub(super) static WATCHED: Family = Family::counter("jobledger_gpu_observed_seconds_total")
    .profile(Profile::Lean)
    .labels(&["gpu", "uuid"])
    .help("Time between readings of the GPU since this exporter started");
pub(super) static VACANT: Family = Family::counter("jobledger_gpu_unallocated_seconds_total")
    .profile(Profile::Lean)
    .labels(&["gpu", "uuid"])
    .help("Part of jobledger_gpu_observed_seconds_total in which no job had it");
pub(super) static MEMORY: Family = Family::gauge("jobledger_gpu_memory_bytes")
    .labels(&["gpu", "uuid", "state"])
    .help("Memory of the GPU that is used, free, or reserved by its driver and firmware");
pub(super) static MEMORY_SIZE: Family =
    Family::gauge("jobledger_gpu_memory_size_bytes").labels(&["gpu", "uuid"]).help("Memory of the GPU");
pub(super) static AGE: Family = Family::gauge("jobledger_gpu_reading_age_seconds").labels(&["vendor"]).help(
    "How long ago the vendor's GPUs were read; gauges are absent \
     when that is longer than three periods and ten seconds",
);
pub(super) static TOOK: Family = Family::gauge("jobledger_gpu_reading_duration_seconds")
    .profile(Profile::Full)
    .labels(&["vendor"])
    .help("How long the last reading of the vendor's GPUs took");
pub(super) static STATE: Family = Family::gauge("jobledger_gpu_driver_state")
    .profile(Profile::Lean)
    .labels(&["vendor", "state"])
    .help("1 for how the reading of the vendor's GPUs fares: starting, running, failed, hanging or released");

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
