//! Rows that several formats have.

use std::fmt::Write;

use job_report::metric::{self, Metric};
use job_report::show::{bytes, digits, percent, si, time};
use job_report::{Node, Report, ratio};

use super::words::{count, count_of};

/// What a job used of what it had.
pub(super) struct Used {
    /// Indented where it is a part of the row above.
    pub(super) name: &'static str,
    /// 0 to 1; `None` if it is not known what it is of.
    pub(super) part: Option<f64>,
    /// What it is of.
    pub(super) of: String,
    /// The thresholds below which it is low, and fair.
    pub(super) bounds: Option<(&'static str, &'static str)>,
}

/// What is known of it.
pub(super) fn used(report: &Report) -> Vec<Used> {
    let (job, numbers) = (&report.job, &report.numbers);
    let mut rows = Vec::new();
    let mut row = |name, part: Option<f64>, of: String, bounds| rows.push(Used { name, part, of, bounds });
    if let (Some(part), Some(used), Some(cores)) = (numbers.cpu_use, numbers.cores_used, numbers.cores) {
        // CPUs of a job with GPUs may wait for these.
        let has_gpus = numbers.gpus.is_some_and(|gpus| gpus > 0.0);
        let bounds = (!has_gpus).then_some(("cpu_low_ratio", "cpu_fair"));
        row("CPU", Some(part), format!("{} of {}", digits(used), count(cores, "core")), bounds);
    }
    // Of the node where it is the largest part: another one may have more of both. Without a limit SLURM does not confine memory (ConstrainRAMSpace).
    let fullest = job.node_with_most(Node::memory_use).or_else(|| job.node_with_most(Node::memory_peak));
    if let Some(node) = fullest
        && let Some(peak) = node.memory_peak()
    {
        let on = if job.nodes.len() > 1 { format!(" on {}", node.name) } else { String::new() };
        let limit = node.values.get(&metric::MEMORY_LIMIT_BYTES);
        let of = limit
            .map_or_else(|| format!("{on}, no limit known"), |limit| format!(" of {}{on}", bytes(limit)));
        row("Memory, peak", node.memory_use(), bytes(peak) + &of, None);
    }
    let held = |node: &Node| node.memory_held_bytes;
    let most_held = job.node_with_most(Node::memory_held_use).or_else(|| job.node_with_most(held));
    if let Some(node) = most_held
        && let Some(held) = node.memory_held_bytes
    {
        let part = node.memory_held_use();
        let is_another = fullest.is_some_and(|fullest| fullest.name != node.name);
        let on = if is_another { format!(" on {}", node.name) } else { String::new() };
        row("  held", part, format!("{}{on}, without page cache", bytes(held)), None);
    }
    if let (Some(part), Some(used)) = (numbers.gpu_use, numbers.gpus_used) {
        let all = job.gpus().filter(|(_, gpu)| !gpu.shared).count();
        let of = format!("{} of {}", digits(used), count_of(all, "GPU"));
        row("GPU busy", Some(part), of, Some(("gpu_low_use_ratio", "gpu_fair")));
    }
    if let Some(part) = numbers.gpu_sm_active {
        row("  SM active", Some(part), "multiprocessors at work".to_owned(), None);
    }
    if let Some(part) = numbers.gpu_memory_use {
        row("GPU memory", Some(part), "peak of a GPU".to_owned(), None);
    }
    if let (Some(part), Some(limit)) = (numbers.time_use, job.time_limit) {
        row("Time limit", Some(part), format!("{} of {}", time(numbers.elapsed_seconds), time(limit)), None);
    }
    rows
}

/// Energy, waiting, what was moved, and operations: a line each.
pub(super) fn sums(report: &Report) -> Vec<String> {
    let (job, numbers) = (&report.job, &report.numbers);
    let total = |metric: &'static Metric| job.total(metric);
    let mut lines = Vec::new();
    if let Some(joules) = numbers.energy_joules {
        let mut line = format!("Energy {}", si(joules / 3600.0, "Wh"));
        let _ =
            total(&metric::GPU_ENERGY_JOULES).map(|gpus| write!(line, " (GPUs {})", si(gpus / 3600.0, "Wh")));
        let _ = numbers.carbon_grams.map(|grams| write!(line, ", {}g CO₂e", si(grams, "")));
        lines.push(line);
    }
    let waited =
        [("CPU", numbers.waited_cpu), ("memory", numbers.waited_memory), ("storage", numbers.waited_io)];
    let waited: Vec<String> =
        waited.into_iter().filter_map(|(name, part)| Some(format!("{name} {}", percent(part?)))).collect();
    if !waited.is_empty() {
        lines.push(format!("Waited for {}", waited.join(", ")));
    }
    let moved = |name: &str, read: &'static Metric, written: &'static Metric, words: (&str, &str)| {
        let (read, written) = (total(read)?, total(written)?);
        (read + written > 0.0)
            .then(|| format!("{name} {} {}, {} {}", bytes(read), words.0, bytes(written), words.1))
    };
    let (read, received) = (("read", "written"), ("received", "sent"));
    lines.extend(moved("Disks", &metric::IO_READ_BYTES, &metric::IO_WRITTEN_BYTES, read));
    lines.extend(moved("NFS", &metric::NFS_READ_BYTES, &metric::NFS_WRITTEN_BYTES, read));
    lines.extend(moved("Lustre", &metric::LUSTRE_READ_BYTES, &metric::LUSTRE_WRITTEN_BYTES, read));
    lines.extend(moved(
        "InfiniBand",
        &metric::INFINIBAND_RECEIVED_BYTES,
        &metric::INFINIBAND_TRANSMITTED_BYTES,
        received,
    ));
    lines.extend(moved("IP", &metric::NETWORK_RECEIVED_BYTES, &metric::NETWORK_TRANSMITTED_BYTES, received));
    if let (Some(flops), Some(counted)) = (total(&metric::FLOPS), total(&metric::COUNTED_CPU_SECONDS))
        && counted > 0.0
    {
        let each = ratio(total(&metric::INSTRUCTIONS), total(&metric::CYCLES))
            .map(|each| format!(", {} instructions per cycle", digits(each)))
            .unwrap_or_default();
        lines.push(format!(
            "{} on CPUs, {} per busy CPU{each}",
            si(flops, "FLOP"),
            si(flops / counted, "FLOP/s")
        ));
    }
    let slots: Vec<String> = [
        ("useful", numbers.slots_retiring),
        ("waiting for memory", numbers.slots_memory),
        ("waiting for data or units", numbers.slots_backend.filter(|_| numbers.slots_memory.is_none())),
        ("waiting for instructions", numbers.slots_frontend),
        ("lost to wrong guesses", numbers.slots_bad_speculation),
    ]
    .into_iter()
    .filter_map(|(what, part)| Some(format!("{} {what}", percent(part?))))
    .collect();
    if !slots.is_empty() {
        lines.push(format!("Core capacity: {}", slots.join(", ")));
    }
    if let (Some(alike), Some(idle)) = (numbers.cpus_alike, numbers.cores_idle) {
        lines.push(format!("Balance of a node's CPUs: {}; {} cores idle", percent(alike), digits(idle)));
    }
    if let Some(part) = numbers.vectors {
        lines.push(format!("{} of the floating-point operations vectorised", percent(part)));
    }
    lines
}
