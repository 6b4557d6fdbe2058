//! The numbers of a report, each with its definition. docs/cli.md has the same in words, and the dashboards show the same.

use serde::Serialize;

use crate::job::{Gpu, Job, Node};
use crate::metric;
use crate::values::{least, most, ratio, sum};

/// What follows from a job's measurements. A ratio leaves out nodes where a side of it is missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Seconds from the start on the first node to the end on the last, or to when it was last seen.
    pub elapsed_seconds: f64,
    /// Elapsed of the time limit.
    pub time_use: Option<f64>,
    /// CPUs (hardware threads) held.
    pub cpus: Option<f64>,
    /// Cores that these are.
    pub cores: Option<f64>,
    /// CPU time used of the core time held; with SMT one thread on each core is all of it.
    pub cpu_use: Option<f64>,
    /// CPU time used of the CPU time held: seff's CPU Efficiency, with slurmstepd's own time.
    pub cpu_efficiency: Option<f64>,
    /// `cpu_use` times the cores.
    pub cores_used: Option<f64>,
    /// CPU time used in the kernel of that in the kernel and in user mode.
    pub cpu_system: Option<f64>,
    /// The highest peak of a node, page cache included.
    pub memory_peak_bytes: Option<f64>,
    /// The node that has it.
    pub memory_peak_node: Option<usize>,
    /// The most that a node held and the kernel cannot drop, in a scrape.
    pub memory_held_bytes: Option<f64>,
    /// The lowest limit of a node.
    pub memory_limit_bytes: Option<f64>,
    /// The highest peak of a limit.
    pub memory_use: Option<f64>,
    /// The most that was held of a limit.
    pub memory_held_use: Option<f64>,
    /// GPUs, or parts of divided ones.
    pub gpus: Option<f64>,
    /// Busy time of the time seen, GPUs that others had too left out.
    pub gpu_use: Option<f64>,
    /// Part of the time held in which these GPUs were seen.
    pub gpu_seen: Option<f64>,
    /// `gpu_use` times the GPUs that it had alone.
    pub gpus_used: Option<f64>,
    /// Idle time of GPUs that it had alone.
    pub gpu_idle_seconds: Option<f64>,
    /// Part of the multiprocessors that worked, over the time that it had these GPUs.
    pub gpu_sm_active: Option<f64>,
    /// The most GPU memory used on a GPU of what that has.
    pub gpu_memory_use: Option<f64>,
    /// The mean GPU's use of the busiest one's.
    pub gpus_alike: Option<f64>,
    /// The mean node's CPU use of the busiest one's.
    pub nodes_alike: Option<f64>,
    /// The mean CPU's instructions of the busiest one's, of the CPUs that worked, on the node where they are least alike.
    pub cpus_alike: Option<f64>,
    /// That node.
    pub cpus_alike_node: Option<usize>,
    /// Cores of which no CPU worked, on average.
    pub cores_idle: Option<f64>,
    /// Part of the time in which a task waited for a CPU, on the node where it was most.
    pub waited_cpu: Option<f64>,
    /// The same for memory.
    pub waited_memory: Option<f64>,
    /// The same for storage.
    pub waited_io: Option<f64>,
    /// Part of the pipeline's slots whose operations were done.
    pub slots_retiring: Option<f64>,
    /// Part that was given up.
    pub slots_bad_speculation: Option<f64>,
    /// Part that waited for instructions.
    pub slots_frontend: Option<f64>,
    /// Part that waited for data or for units.
    pub slots_backend: Option<f64>,
    /// Part that waited for memory, where the CPUs of all nodes count it.
    pub slots_memory: Option<f64>,
    /// Part of the floating-point operations that was in vectors, where the CPUs count these apart.
    pub vectors: Option<f64>,
    /// Floating-point operations a cycle.
    pub flops_per_cycle: Option<f64>,
    /// CPUs, memory, overhead and GPUs; of a job with GPUs only with theirs.
    pub energy_joules: Option<f64>,
    /// Grams of CO2 equivalent of it.
    pub carbon_grams: Option<f64>,
    /// Seconds in which all of its GPUs, or if it has none all of its CPUs, did nothing at one stretch, after they had worked.
    pub longest_idle_seconds: Option<f64>,
    /// When that began, seconds since the epoch.
    pub longest_idle_start: Option<f64>,
}

/// Below this part of the GPUs or CPUs held, nothing worked.
const IDLE: f64 = 0.01;

impl Numbers {
    /// Derives them.
    pub fn of(job: &Job) -> Self {
        let total = |metric| job.total(metric);
        let nodes = || job.nodes.iter();
        let elapsed = job.elapsed();
        let held = |node: &Node| node.core_seconds().filter(|held| *held > 0.0);
        let cores = sum(nodes().map(Node::cores));
        let cpu_use = ratio(
            sum(nodes()
                .filter(|node| held(node).is_some())
                .map(|node| node.values.get(&metric::CPU_SECONDS))),
            sum(nodes().filter(|node| node.values.get(&metric::CPU_SECONDS).is_some()).map(held)),
        )
        .map(|part| part.min(1.0));
        let (user, system) = (total(&metric::CPU_USER_SECONDS), total(&metric::CPU_SYSTEM_SECONDS));
        let own: Vec<&Gpu> = job.gpus().map(|(_, gpu)| gpu).filter(|gpu| !gpu.shared).collect();
        let idle = sum(own.iter().map(|gpu| gpu.values.get(&metric::GPU_IDLE_SECONDS)));
        let busy = sum(own.iter().map(|gpu| gpu.busy()));
        let gpu_use = ratio(busy, sum([busy, idle]));
        // Nodes without counters have neither.
        let of_slots = |parts: &[&'static metric::Metric]| {
            ratio(sum(parts.iter().map(|part| total(part))), total(&metric::SLOTS))
        };
        let total_is_above_0 = |metric| total(metric).is_some_and(|slots| slots > 0.0);
        let energy = energy(job);
        let longest_idle = longest_idle(job);
        let peak = job.most(Node::memory_peak);
        let cpus_alike = least(nodes().map(Node::cpus_alike));
        Self {
            elapsed_seconds: elapsed,
            time_use: ratio(Some(elapsed), job.time_limit),
            cpus: sum(nodes().map(|node| node.values.get(&metric::CPUS))),
            cores,
            cpu_use,
            cpu_efficiency: ratio(total(&metric::CPU_SECONDS), total(&metric::CPU_ALLOCATED_SECONDS))
                .map(|part| part.min(1.0)),
            cores_used: cpu_use.zip(cores).map(|(part, cores)| part * cores),
            cpu_system: ratio(system, sum([user, system])),
            memory_peak_bytes: peak,
            memory_peak_node: job
                .nodes
                .iter()
                .position(|node| node.memory_peak().is_some() && node.memory_peak() == peak),
            memory_held_bytes: job.most(|node| node.memory_held_bytes),
            memory_limit_bytes: least(nodes().map(|node| node.values.get(&metric::MEMORY_LIMIT_BYTES))),
            memory_use: job.most(Node::memory_use),
            memory_held_use: job.most(Node::memory_held_use),
            gpus: gpus(job),
            gpu_use,
            gpu_seen: ratio(
                sum([busy, idle]),
                sum(own.iter().map(|gpu| gpu.values.get(&metric::GPU_ALLOCATED_SECONDS))),
            )
            .map(|part| part.min(1.0)),
            gpus_used: gpu_use.map(|part| part * count(own.len())),
            gpu_idle_seconds: idle,
            gpu_sm_active: gpu_part(job, &metric::GPU_SM_ACTIVE_SECONDS),
            gpu_memory_use: most(job.gpus().map(|(_, gpu)| {
                ratio(
                    gpu.values.get(&metric::GPU_MEMORY_PEAK_BYTES),
                    gpu.values.get(&metric::GPU_MEMORY_LIMIT_BYTES),
                )
            })),
            gpus_alike: alike(own.iter().map(|gpu| gpu.utilization())),
            nodes_alike: alike(nodes().map(Node::cpu_use)),
            cpus_alike,
            cpus_alike_node: job
                .nodes
                .iter()
                .position(|node| cpus_alike.is_some() && node.cpus_alike() == cpus_alike),
            cores_idle: sum(nodes().map(Node::cores_idle)),
            waited_cpu: job.most(|node| node.waited(&metric::WAITED_CPU_SECONDS)),
            waited_memory: job.most(|node| node.waited(&metric::WAITED_MEMORY_SECONDS)),
            waited_io: job.most(|node| node.waited(&metric::WAITED_IO_SECONDS)),
            slots_retiring: of_slots(&[&metric::SLOTS_RETIRING]),
            slots_bad_speculation: of_slots(&[&metric::SLOTS_BAD_SPECULATION]),
            slots_frontend: of_slots(&[&metric::SLOTS_FRONTEND]),
            slots_backend: of_slots(&[&metric::SLOTS_BACKEND, &metric::SLOTS_MEMORY, &metric::SLOTS_CORE]),
            slots_memory: of_slots(&[&metric::SLOTS_MEMORY])
                .filter(|_| !total_is_above_0(&metric::SLOTS_BACKEND)),
            vectors: vectors(job),
            flops_per_cycle: ratio(total(&metric::FLOPS), total(&metric::CYCLES)),
            energy_joules: energy,
            carbon_grams: energy.zip(job.grams_per_joule).map(|(joules, grams)| joules * grams),
            longest_idle_seconds: longest_idle.map(|(_, seconds)| seconds),
            longest_idle_start: longest_idle.map(|(start, _)| start),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of nodes or GPUs")]
pub(crate) fn count(things: usize) -> f64 {
    things as f64
}

/// 0 if every node says so; `None` if one does not know.
fn gpus(job: &Job) -> Option<f64> {
    let seen = job.gpus().count();
    if seen > 0 {
        return Some(count(seen));
    }
    job.nodes.iter().all(|node| node.gpus_held == Some(0.0)).then_some(0.0).filter(|_| !job.nodes.is_empty())
}

fn energy(job: &Job) -> Option<f64> {
    let cpus = job.total(&metric::ENERGY_JOULES)?;
    if job.gpus().next().is_none() {
        return Some(cpus);
    }
    Some(cpus + job.total(&metric::GPU_ENERGY_JOULES)?)
}

/// What a counter of GPU time is of the time that the job had these GPUs.
fn gpu_part(job: &Job, part: &'static metric::Metric) -> Option<f64> {
    let with = || job.gpus().filter(|(_, gpu)| gpu.values.get(part).is_some());
    let value = sum(with().map(|(_, gpu)| gpu.values.get(part)));
    ratio(value, sum(with().map(|(_, gpu)| gpu.values.get(&metric::GPU_ALLOCATED_SECONDS))))
        .map(|part| part.min(1.0))
}

/// The part in vectors of the operations, of nodes whose CPUs count these apart.
fn vectors(job: &Job) -> Option<f64> {
    let counts_apart = |node: &&Node| {
        node.values.get(&metric::FLOPS_SCALAR).is_some()
            && node.values.get(&metric::FLOPS_ANY_WIDTH).is_none_or(|any| any == 0.0)
    };
    let total = |metric| sum(job.nodes.iter().filter(counts_apart).map(|node| node.values.get(metric)));
    ratio(total(&metric::FLOPS_SCALAR), total(&metric::FLOPS)).map(|scalar| (1.0 - scalar).clamp(0.0, 1.0))
}

/// The mean of the greatest, of two or more.
fn alike(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let parts: Vec<f64> = parts.flatten().collect();
    let greatest = parts.iter().copied().reduce(f64::max)?;
    (parts.len() > 1 && greatest > 0.0).then(|| parts.iter().sum::<f64>() / count(parts.len()) / greatest)
}

/// The longest stretch in which nothing worked: its start and its length.
fn longest_idle(job: &Job) -> Option<(f64, f64)> {
    idle(job)?.into_iter().reduce(|longest, next| if next.1 > longest.1 { next } else { longest })
}

/// The length of the one that lasted to the job's end.
pub(crate) fn idle_at_end(job: &Job) -> Option<f64> {
    let (start, seconds) = idle(job)?.pop()?;
    (start + seconds >= job.until() - 1.0).then_some(seconds)
}

/// Stretches of bins in which nothing worked, after something had: their starts and their lengths.
fn idle(job: &Job) -> Option<Vec<(f64, f64)>> {
    let curves = job.curves.as_ref()?;
    // A pause in which SLURM had suspended it is not idle, and when that was is not known.
    if job.suspended_seconds().is_some_and(|seconds| seconds > 0.0) {
        return None;
    }
    let gpus = job.gpus().count();
    let (busy, held) = if gpus > 0 {
        (curves.gpus_busy()?, count(gpus))
    } else {
        (curves.sum(&metric::CPU_SECONDS)?, sum(job.nodes.iter().map(|node| node.values.get(&metric::CPUS)))?)
    };
    // What was not seen is not idle, and ends a stretch: all from when a node was lost.
    let lost =
        job.nodes.iter().filter(|node| !node.running && node.end.is_none()).map(|node| node.seen_until);
    let seen_until = lost.reduce(f64::min).unwrap_or(f64::INFINITY);
    let (mut worked, mut lasts, mut from) = (false, false, curves.start);
    let mut stretches: Vec<(f64, f64)> = Vec::new();
    for (value, end) in busy.iter().zip(curves.ends()) {
        let is_idle = *value < IDLE * held && from < seen_until;
        match stretches.last_mut().filter(|_| lasts) {
            Some((start, length)) if is_idle => *length = end - *start,
            _ if is_idle && worked => stretches.push((from, end - from)),
            _ => worked |= value.is_finite() && !is_idle,
        }
        (lasts, from) = (is_idle && worked, end);
    }
    Some(stretches)
}
