//! Series that are looked for by their names, besides those of metrics.

/// When a job started on a node.
pub(crate) const START: &str = "jobledger_job_start_time_seconds";
/// When it ended there.
pub(crate) const END: &str = "jobledger_job_end_time_seconds";
/// Who it is, by labels.
pub(crate) const INFO: &str = "jobledger_job_info";
/// The GPUs that it has, by labels.
pub(crate) const GPU_INFO: &str = "jobledger_job_gpu_info";
/// How many it has.
pub(crate) const GPUS: &str = "jobledger_job_gpus";
/// What a node is, but for its GPUs.
pub(crate) const OF_NODES: [&str; 3] =
    ["jobledger_node_cpus", "jobledger_node_cores", "jobledger_node_memory_total_bytes"];
/// The GPUs of a node, by labels.
pub(crate) const NODE_GPU_INFO: &str = "jobledger_gpu_info";
