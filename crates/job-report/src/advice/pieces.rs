//! The conditions. Each says what has to be known for it; where that is not known, the piece or its option is left out.

use serde::{Serialize, Serializer};

use super::Severity::{self, Bad, Hint, Warning};
use super::sbatch;
use crate::job::{Gpu, Job, Node};
use crate::metric;
use crate::numbers::{Numbers, count, idle_at_end};
use crate::show::{bytes, digits, percent, short_time, time};
use crate::thresholds::Thresholds;
use crate::values::{ratio, sum};

/// What a condition found.
pub(super) struct Found {
    pub(super) severity: Severity,
    pub(super) measured: String,
    pub(super) sbatch: Option<String>,
}

macro_rules! pieces {
    ($($name:ident $text:literal $label:literal $check:ident [$($need:literal),*];)*) => {
        /// A piece of advice; its texts are in rules/thresholds.yaml.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "rules/thresholds.yaml says what each is")]
        pub enum Piece { $($name,)* }

        impl Piece {
            /// All of them, the most important first.
            pub const ALL: &'static [Piece] = &[$(Piece::$name,)*];

            /// Its name in rules/thresholds.yaml and in files.
            pub fn name(self) -> &'static str {
                match self { $(Piece::$name => $text,)* }
            }

            /// The same in a few words, for a column of a table.
            pub fn label(self) -> &'static str {
                match self { $(Piece::$name => $label,)* }
            }

            pub(super) fn check(self, job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
                match self { $(Piece::$name => $check(job, numbers, thresholds),)* }
            }
        }

        /// The numbers that conditions rest on.
        pub(super) fn needs() -> impl Iterator<Item = &'static str> {
            [$($($need,)*)*].into_iter()
        }
    };
}

pieces! {
    OomKilled "oom_killed" "out of memory" oom_killed [];
    TimedOut "timed_out" "hit its time limit" timed_out [];
    GpuNeverUsed "gpu_never_used" "GPUs never used" gpu_never_used ["gpu_seen", "gpu_idle_busy_ratio"];
    GpuStuck "gpu_stuck" "GPUs stuck" gpu_stuck ["gpu_stuck_busy_ratio", "gpu_stuck_sm_ratio", "gpu_stuck_dram_ratio", "gpu_stuck_bytes_per_second"];
    GpuStopped "gpu_stopped" "GPUs idle at its end" gpu_stopped ["gpu_stopped_seconds", "gpu_stopped_ratio"];
    GpuLowUse "gpu_low_use" "GPUs hardly used" gpu_low_use ["gpu_low_use_ratio"];
    GpuUneven "gpu_uneven" "GPUs uneven" gpu_uneven ["gpu_uneven"];
    NodeIdle "node_idle" "a node idle" node_idle ["node_idle_cores", "node_busy_cores"];
    Serial "serial" "one core used" serial ["cpu_serial_least_cores", "cpu_serial_most_cores", "cpu_serial_least_held"];
    CpuLow "cpu_low" "few cores used" cpu_low ["cpu_low_ratio"];
    CpusIdle "cpus_idle" "cores idle" cpus_idle ["cpus_idle"];
    NodesUneven "nodes_uneven" "nodes uneven" nodes_uneven ["nodes_uneven"];
    Imbalance "imbalance" "CPUs uneven" imbalance ["imbalance"];
    CpuThrottled "cpu_throttled" "CPU limit" cpu_throttled ["cpu_throttled"];
    WaitedMemory "waited_memory" "short of memory" waited_memory ["waited_memory"];
    WaitedIo "waited_io" "waits for storage" waited_io ["waited_io"];
    StalledIo "stalled_io" "storage stalls" stalled_io ["stall_waiting", "stall_minutes"];
    WaitedCpu "waited_cpu" "too many threads" waited_cpu ["waited_cpu", "waited_cpu_use"];
    SlotsMemory "slots_memory" "limited by memory" slots_memory ["slots_memory"];
    SlotsBackend "slots_backend" "waits for data" slots_backend ["slots_backend"];
    VectorsLow "vectors_low" "few vectors" vectors_low ["vectors_low", "vectors_least_flops"];
    MemoryOverAsked "memory_over_asked" "asked too much memory" memory_over_asked ["memory_over_asked_ratio", "memory_over_asked_least_bytes"];
    TimeOverAsked "time_over_asked" "asked too much time" time_over_asked ["time_over_asked_ratio", "time_over_asked_least_seconds"];
}

impl Piece {
    /// It is about what ended the job, however soon that was.
    pub(super) fn of_any_length(self) -> bool {
        matches!(self, Piece::OomKilled | Piece::TimedOut)
    }
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

#[allow(clippy::unnecessary_wraps, reason = "the last line of each condition")]
fn found(severity: Severity, measured: String, sbatch: Option<String>) -> Option<Found> {
    Some(Found { severity, measured, sbatch })
}

/// Needs a kill that a node counted, or SLURM's word. The option needs one limit of all nodes, and room for more on them: sbatch refuses what no node
/// has.
fn oom_killed(job: &Job, _: &Numbers, _: &Thresholds) -> Option<Found> {
    let killed = |node: &Node| node.values.get(&metric::OOM_KILLS).filter(|kills| *kills > 0.0);
    let kills: f64 = job.nodes.iter().filter_map(killed).sum();
    let by_slurm = job.ended.as_ref().is_some_and(|ended| ended.state == "OUT_OF_MEMORY");
    if kills == 0.0 && !by_slurm {
        return None;
    }
    // Without a kill that was seen it is not known on which nodes it was.
    let hit = job.nodes.iter().filter(|node| kills == 0.0 || killed(node).is_some());
    let limit = common_limit(hit);
    let of = limit.map(|limit| format!(" at {}", bytes(limit))).unwrap_or_default();
    let processes = if kills == 1.0 { "process" } else { "processes" };
    let measured =
        if kills > 0.0 { format!("{} {processes} killed{of}", digits(kills)) } else { format!("killed{of}") };
    let enough = limit_of_all(job).map(|limit| limit * 1.25);
    let has_room = |node: &Node| node.hardware.memory_bytes >= enough.map(sbatch::rounded);
    let option = enough.filter(|_| job.nodes.iter().all(has_room)).map(sbatch::memory);
    found(Bad, measured, option)
}

/// The memory limit, where it is the same on all of these nodes.
fn common_limit<'a>(nodes: impl Iterator<Item = &'a Node>) -> Option<f64> {
    let mut limits = nodes.map(|node| node.values.get(&metric::MEMORY_LIMIT_BYTES));
    let first = limits.next()??;
    limits.all(|limit| limit == Some(first)).then_some(first)
}

/// The same of all nodes that the job has. `--mem` is of each node: where they differ, or some were not seen, none is right.
fn limit_of_all(job: &Job) -> Option<f64> {
    common_limit(job.nodes.iter()).filter(|_| job.all_nodes_seen())
}

/// Needs SLURM's word for the end. The option needs the limit: the time that was seen may be a part of it.
fn timed_out(job: &Job, numbers: &Numbers, _: &Thresholds) -> Option<Found> {
    if job.ended.as_ref()?.state != "TIMEOUT" {
        return None;
    }
    let limit = job.time_limit.unwrap_or(numbers.elapsed_seconds);
    // A job that did nothing at its end hung, and more time would not have helped.
    match idle_at_end(job).filter(|seconds| *seconds >= 600.0) {
        Some(seconds) => found(Bad, format!("idle for its last {}", time(seconds)), None),
        None => {
            let option = job.time_limit.map(|limit| sbatch::time(limit * 1.5));
            found(Bad, format!("ended after {}", time(limit)), option)
        }
    }
}

/// GPUs that a job had alone, that were seen and on which nothing ran: those of the advice `gpu_never_used`.
pub fn gpus_never_used<'a>(job: &'a Job, thresholds: &Thresholds) -> Vec<&'a Gpu> {
    let unused = never_used(job, thresholds).map(|(unused, _)| unused).unwrap_or_default();
    unused.into_iter().map(|(_, gpu)| gpu).collect()
}

/// The same with their nodes; and how many the job had alone.
fn never_used<'a>(job: &'a Job, thresholds: &Thresholds) -> Option<(Vec<(&'a Node, &'a Gpu)>, usize)> {
    let (seen, busy) = (thresholds.value("gpu_seen"), thresholds.value("gpu_idle_busy_ratio"));
    let own: Vec<_> = job.gpus().filter(|(_, gpu)| !gpu.shared).collect();
    let all = own.len();
    let is_unused = |gpu: &Gpu| {
        let get = |metric| gpu.values.get(metric);
        match (get(&metric::GPU_IDLE_SECONDS), get(&metric::GPU_ALLOCATED_SECONDS)) {
            (Some(idle), Some(held)) => {
                held > 0.0 && idle >= seen * held && gpu.busy().unwrap_or(0.0) <= busy * idle
            }
            _ => false,
        }
    };
    let unused: Vec<_> = own.into_iter().filter(|(_, gpu)| is_unused(gpu)).collect();
    (!unused.is_empty()).then_some((unused, all))
}

/// Of more than these, a number is enough.
const MOST_NAMED: usize = 3;

/// Needs GPUs that no other job had, each seen for nine tenths of its time. The option needs all GPUs of the job, whole ones on one node.
fn gpu_never_used(job: &Job, _: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (unused, of) = never_used(job, thresholds)?;
    let used = of - unused.len();
    let name = |(node, gpu): &(&Node, &Gpu)| match job.nodes.len() {
        1 => gpu.index.clone(),
        _ => format!("{} of {}", gpu.index, node.name),
    };
    let named = unused.len() <= MOST_NAMED && used > 0 && unused.iter().all(|(_, gpu)| !gpu.index.is_empty());
    let names = if named {
        format!(" ({})", unused.iter().map(name).collect::<Vec<_>>().join(", "))
    } else {
        String::new()
    };
    let option = (used > 0 && all_are_whole_gpus(job, of)).then(|| format!("--gpus={used}"));
    found(Bad, format!("{} of {of} GPUs{names}", unused.len()), option)
}

/// How many on each node is known if all nodes have the same, and how many in all if the job had no others. Parts of GPUs have another option.
fn all_are_whole_gpus(job: &Job, gpus: usize) -> bool {
    let [node] = job.nodes.as_slice() else { return false };
    job.all_nodes_seen()
        && node.gpus.len() == gpus
        && node.gpus_held.is_none_or(|held| held <= count(gpus))
        && node.gpus.iter().all(|gpu| gpu.profile.is_empty())
}

/// GPUs that look busy and do nothing, as the alert `JobledgerJobStuck` has it, over the whole run. A collective operation that waits for a lost process
/// looks like this.
///
/// Needs, of each GPU of the job: busy time, the multiprocessors' and the memory's work, and that no other job had it; and the bytes that the job moved.
/// One GPU that works shows that the job goes on.
fn gpu_stuck(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let is_at_most = |gpu: &Gpu, metric, of: f64, name| {
        gpu.values.get(metric).is_some_and(|seconds| seconds <= thresholds.value(name) * of)
    };
    let is_stuck = |gpu: &Gpu| {
        gpu.values.get(&metric::GPU_ALLOCATED_SECONDS).is_some_and(|held| {
            held > 0.0
                && gpu.busy() >= Some(thresholds.value("gpu_stuck_busy_ratio") * held)
                && is_at_most(gpu, &metric::GPU_SM_ACTIVE_SECONDS, held, "gpu_stuck_sm_ratio")
                && is_at_most(gpu, &metric::GPU_DRAM_ACTIVE_SECONDS, held, "gpu_stuck_dram_ratio")
        })
    };
    let all = job.gpus().count();
    let moved = sum([
        &metric::IO_READ_BYTES,
        &metric::IO_WRITTEN_BYTES,
        &metric::NETWORK_RECEIVED_BYTES,
        &metric::NETWORK_TRANSMITTED_BYTES,
        &metric::INFINIBAND_TRANSMITTED_BYTES,
    ]
    .map(|metric| job.total(metric)))?;
    let apply = all > 0
        && job.gpus().all(|(_, gpu)| !gpu.shared && is_stuck(gpu))
        && moved <= thresholds.value("gpu_stuck_bytes_per_second") * numbers.elapsed_seconds;
    let active = percent(numbers.gpu_sm_active?);
    apply.then(|| found(Bad, format!("multiprocessors {active} active"), None))?
}

/// Needs the curves of all GPUs to the job's end.
fn gpu_stopped(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    job.gpus().next()?;
    let seconds = idle_at_end(job)?;
    let least = thresholds
        .value("gpu_stopped_seconds")
        .max(thresholds.value("gpu_stopped_ratio") * numbers.elapsed_seconds);
    (seconds >= least).then(|| found(Bad, format!("idle for its last {}", time(seconds)), None))?
}

fn low_gpu_use(numbers: &Numbers, thresholds: &Thresholds) -> Option<f64> {
    let part = numbers.gpu_use.filter(|part| *part < thresholds.value("gpu_low_use_ratio"));
    part.filter(|_| thresholds.gpus_were_seen(numbers))
}

/// Needs GPUs that no other job had, seen for nine tenths of their time.
fn gpu_low_use(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let part = low_gpu_use(numbers, thresholds)?;
    // That some were never used is said already, if those are all that is wrong.
    match never_used(job, thresholds) {
        Some((unused, of))
            if unused.len() == of
                || part * count(of) / count(of - unused.len()) >= thresholds.value("gpu_low_use_ratio") =>
        {
            None
        }
        _ => found(Warning, percent(part), None),
    }
}

/// Needs the use of two GPUs or more that no other job had.
fn gpu_uneven(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let less = 1.0 - numbers.gpus_alike?;
    let apply = less > thresholds.value("gpu_uneven")
        && low_gpu_use(numbers, thresholds).is_none()
        && never_used(job, thresholds).is_none();
    apply.then(|| found(Warning, format!("{} less", percent(less)), None))?
}

fn is_serial(numbers: &Numbers, thresholds: &Thresholds) -> bool {
    let (least, most) =
        (thresholds.value("cpu_serial_least_cores"), thresholds.value("cpu_serial_most_cores"));
    let held = numbers.cores.is_some_and(|cores| cores >= thresholds.value("cpu_serial_least_held"));
    held && numbers.cores_used.is_some_and(|used| (least..=most).contains(&used))
}

/// Needs CPU time, CPUs and the node's cores. The option needs all nodes, and curves that never show more than one core at work: eight cores in an eighth
/// of the time are one core on average, too.
fn serial(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (used, cores) = (numbers.cores_used?, numbers.cores?);
    let on_one_node = job.most(Node::cpus_used) >= Some(thresholds.value("cpu_serial_least_cores"));
    let most = thresholds.value("cpu_serial_most_cores");
    let never_more = job
        .curves
        .as_ref()
        .and_then(|curves| curves.sum(&metric::CPU_SECONDS))
        .is_some_and(|curve| !curve.iter().any(|cores| *cores > most));
    let is_right = on_one_node && never_more && all_cores_seen(job);
    let option = is_right.then(|| "--ntasks=1 --cpus-per-task=1".to_owned());
    is_serial(numbers, thresholds).then(|| found(Warning, cores_of(used, cores), option))?
}

/// Without it others may have worked, and how many would have been enough is not known.
fn all_cores_seen(job: &Job) -> bool {
    job.all_nodes_seen() && job.nodes.iter().all(|node| node.cpu_use().is_some())
}

fn cores_of(used: f64, cores: f64) -> String {
    format!("{} of {} cores", digits(used), digits(cores))
}

fn has_gpus(numbers: &Numbers) -> bool {
    numbers.gpus.is_some_and(|gpus| gpus > 0.0)
}

fn low_cpu_use(numbers: &Numbers, thresholds: &Thresholds) -> Option<f64> {
    numbers.cpu_use.filter(|part| *part < thresholds.value("cpu_low_ratio"))
}

/// Needs CPU time, CPUs and the node's cores; and that the job has no GPU, as far as that is known. It has no option: how many tasks the job has, and how
/// many threads each, is not known, nor whether all cores worked at times.
fn cpu_low(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    low_cpu_use(numbers, thresholds)?;
    if is_serial(numbers, thresholds) || has_gpus(numbers) {
        return None;
    }
    found(Warning, cores_of(numbers.cores_used?, numbers.cores?), None)
}

/// The CPUs that each node kept busy.
fn busy_cpus(job: &Job) -> Vec<f64> {
    job.nodes.iter().filter_map(Node::cpus_used).collect()
}

/// Needs CPU time of two nodes or more. The option needs that of all nodes.
fn node_idle(job: &Job, _: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let used = busy_cpus(job);
    let (idle, busy) = (thresholds.value("node_idle_cores"), thresholds.value("node_busy_cores"));
    if !used.iter().any(|cpus| *cpus > busy) {
        return None;
    }
    let unused = used.iter().filter(|cpus| **cpus < idle).count();
    let of = used.len();
    let option = (of == job.nodes.len() && job.all_nodes_seen()).then(|| format!("--nodes={}", of - unused));
    (unused > 0).then(|| found(Bad, format!("{unused} of {of} nodes"), option))?
}

/// Needs the CPU use of two nodes or more, and that the job has no GPU, as far as that is known.
fn nodes_uneven(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let less = 1.0 - numbers.nodes_alike?;
    let other = low_cpu_use(numbers, thresholds).is_some()
        || has_gpus(numbers)
        || node_idle(job, numbers, thresholds).is_some();
    (less > thresholds.value("nodes_uneven") && !other)
        .then(|| found(Warning, format!("{} less", percent(less)), None))?
}

/// Few cores that worked, and a node that did nothing, are said already; a GPU may need no more than the CPUs that feed it.
///
/// Needs hardware counters.
fn cpus_idle(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (idle, cores) = (numbers.cores_idle?, numbers.cores?);
    let other = low_cpu_use(numbers, thresholds).is_some()
        || is_serial(numbers, thresholds)
        || has_gpus(numbers)
        || node_idle(job, numbers, thresholds).is_some();
    (idle > thresholds.value("cpus_idle") * cores && !other)
        .then(|| found(Warning, cores_of(idle, cores), None))?
}

/// Needs hardware counters.
fn imbalance(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let less = 1.0 - numbers.cpus_alike?;
    let other = low_cpu_use(numbers, thresholds).is_some() || has_gpus(numbers);
    let on = match numbers.cpus_alike_node.and_then(|at| job.nodes.get(at)) {
        Some(node) if job.nodes.len() > 1 => format!(" on {}", node.name),
        _ => String::new(),
    };
    (less > thresholds.value("imbalance") && !other)
        .then(|| found(Hint, format!("{} less{on}", percent(less)), None))?
}

/// Needs the time in which a bandwidth limit of the cgroup held the job back.
fn cpu_throttled(job: &Job, _: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (throttled, used) = (job.total(&metric::CPU_THROTTLED_SECONDS)?, job.total(&metric::CPU_SECONDS)?);
    let part = ratio(Some(throttled), Some(throttled + used))?;
    (part > thresholds.value("cpu_throttled")).then(|| found(Warning, percent(part), None))?
}

fn waited(part: Option<f64>, threshold: f64) -> Option<Found> {
    let part = part.filter(|part| *part > threshold)?;
    found(Warning, format!("{} of its time", percent(part)), None)
}

/// Needs pressure by cgroup, as the next ones do.
fn waited_memory(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    waited(numbers.waited_memory, thresholds.value("waited_memory"))
}

fn waited_io(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    waited(numbers.waited_io, thresholds.value("waited_io"))
}

/// Minutes in which tasks of a node waited for most of the time.
///
/// Needs the curve of that.
fn stalled_io(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    if numbers.waited_io.is_some_and(|part| part > thresholds.value("waited_io")) {
        return None;
    }
    let curves = job.curves.as_ref()?;
    let waited = curves.most(&metric::WAITED_IO_SECONDS)?;
    let (limit, mut from, mut stalled) = (thresholds.value("stall_waiting"), curves.start, 0.0);
    for (value, end) in waited.iter().zip(curves.ends()) {
        stalled += if *value > limit { end - from } else { 0.0 };
        from = end;
    }
    (stalled >= thresholds.value("stall_minutes") * 60.0).then(|| found(Hint, short_time(stalled), None))?
}

/// Needs CPU use beside the pressure: tasks of an idle job do not lack CPUs.
fn waited_cpu(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    numbers.cpu_use.filter(|part| *part > thresholds.value("waited_cpu_use"))?;
    waited(numbers.waited_cpu, thresholds.value("waited_cpu"))
}

fn of_its_slots(part: Option<f64>, threshold: f64) -> Option<Found> {
    let part = part.filter(|part| *part > threshold)?;
    found(Hint, format!("{} of what they could have done", percent(part)), None)
}

/// Needs hardware counters that count memory and units apart.
fn slots_memory(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    of_its_slots(numbers.slots_memory, thresholds.value("slots_memory"))
}

/// Where the CPUs count what waits for memory, that is the advice.
///
/// Needs hardware counters.
fn slots_backend(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let whole = numbers.slots_backend.filter(|_| numbers.slots_memory.is_none());
    of_its_slots(whole, thresholds.value("slots_backend"))
}

/// Needs hardware counters that count vectors and scalars apart, and enough operations.
fn vectors_low(_: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    numbers.flops_per_cycle.filter(|flops| *flops >= thresholds.value("vectors_least_flops"))?;
    let part = numbers.vectors.filter(|part| *part < thresholds.value("vectors_low"))?;
    found(Hint, format!("{} of its operations", percent(part)), None)
}

/// Needs a limit, a peak, and a node of which the job left cores to others: nobody can have the memory of a node without cores. The option needs one limit
/// of all nodes.
fn memory_over_asked(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    if !job.nodes.iter().any(|node| node.holds_all_cores() == Some(false)) {
        return None;
    }
    let part = numbers.memory_use.filter(|part| *part < thresholds.value("memory_over_asked_ratio"))?;
    if numbers.memory_limit_bytes? < thresholds.value("memory_over_asked_least_bytes") {
        return None;
    }
    let node = job.node_with_most(Node::memory_use)?;
    let (peak, limit) = (node.memory_peak()?, node.values.get(&metric::MEMORY_LIMIT_BYTES)?);
    let measured = format!("{} of {}, {}", bytes(peak), bytes(limit), percent(part));
    let enough = peak * 1.2;
    let option = limit_of_all(job).filter(|limit| sbatch::rounded(enough) < *limit);
    found(Warning, measured, option.map(|_| sbatch::memory(enough)))
}

/// Needs the whole of a job's work: SLURM's word that it was completed, its limit, all of its nodes, and a single run. A run after a requeue may have gone
/// on from a checkpoint; a job that failed might have needed its time; a node that was not seen may have begun before the others.
fn time_over_asked(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let completed = job.ended.as_ref().is_some_and(|ended| ended.state == "COMPLETED");
    let is_whole = completed && job.runs == 1 && job.nodes_allocated.is_some() && job.end_was_seen();
    let (limit, part) = (job.time_limit?, numbers.time_use?);
    let rest = limit - numbers.elapsed_seconds;
    let over = part < thresholds.value("time_over_asked_ratio")
        && rest >= thresholds.value("time_over_asked_least_seconds");
    let measured = format!("{} of {}", time(numbers.elapsed_seconds), time(limit));
    let option = Some(sbatch::time(numbers.elapsed_seconds * 1.2));
    (is_whole && over).then(|| found(Hint, measured, option))?
}
