//! Each condition: true, false, at its boundary, and with data missing.

use super::*;
use crate::curves::Curves;
use crate::job::{Ended, Gpu, Hardware, Identity, Node, Origin};
use crate::metric::{self, Metric};

mod inside_nodes;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
const HOUR: f64 = 3600.0;

/// A job of an hour on a node with 16 cores of two CPUs, of which it has eight and used half, with half of its 16 GiB.
fn node() -> Node {
    let mut node = Node {
        name: "n1".to_owned(),
        start: 0.0,
        end: Some(HOUR),
        seen_until: HOUR,
        hardware: Hardware {
            cpus: Some(32.0),
            cores: Some(16.0),
            memory_bytes: Some(64.0 * GIB),
            gpus: None,
        },
        gpus_held: Some(0.0),
        ..Node::default()
    };
    for (metric, value) in [
        (&metric::CPUS, 16.0),
        (&metric::CPU_ALLOCATED_SECONDS, 16.0 * HOUR),
        (&metric::CPU_SECONDS, 4.0 * HOUR),
        (&metric::MEMORY_LIMIT_BYTES, 16.0 * GIB),
        (&metric::MEMORY_PEAK_BYTES, 8.0 * GIB),
    ] {
        node.values.set(metric, value);
    }
    node
}

fn job(nodes: Vec<Node>) -> Job {
    Job {
        id: 7,
        cluster: None,
        identity: Identity::default(),
        run: 1,
        runs: 1,
        ended: None,
        time_limit: None,
        nodes_allocated: None,
        queued_seconds: None,
        nodes,
        curves: None,
        grams_per_joule: None,
        restarts: None,
        evidence: crate::evidence::Evidence::default(),
    }
}

fn gpu(busy: Option<f64>, idle: Option<f64>, held: f64) -> Gpu {
    let mut gpu = Gpu::default();
    for (metric, value) in [
        (&metric::GPU_BUSY_SECONDS, busy),
        (&metric::GPU_IDLE_SECONDS, idle),
        (&metric::GPU_ALLOCATED_SECONDS, Some(held)),
    ] {
        value.into_iter().for_each(|value| gpu.values.set(metric, value));
    }
    gpu
}

fn with(metric: &'static Metric, value: f64) -> Job {
    let mut node = node();
    node.values.set(metric, value);
    job(vec![node])
}

fn with_gpus(gpus: Vec<Gpu>) -> Job {
    job(vec![Node { gpus, gpus_held: None, ..node() }])
}

/// A job with GPUs whose first bins they were busy in.
fn stopping(busy: f64, hours: f64) -> Job {
    let mut job = with_gpus(vec![gpu(Some(busy), Some(hours * HOUR - busy), hours * HOUR)]);
    job.nodes[0].seen_until = hours * HOUR;
    job.nodes[0].end = Some(hours * HOUR);
    let mut curves = Curves::new(0.0, hours * HOUR, 300.0);
    let points: Vec<_> = curves.ends().map(|end| (end, end.min(busy))).collect();
    curves.add((&metric::GPU_BUSY_SECONDS, Some(0), Some(0)), &points, Some((hours * HOUR, busy)));
    let points: Vec<_> = curves.ends().map(|end| (end, end - end.min(busy))).collect();
    curves.add(
        (&metric::GPU_IDLE_SECONDS, Some(0), Some(0)),
        &points,
        Some((hours * HOUR, hours * HOUR - busy)),
    );
    job.curves = Some(curves);
    job
}

/// A job of eight hours with a GPU that was busy in the first and the sixth: a pause of four hours, and an end of two.
fn pausing() -> Job {
    let mut job = stopping(2.0 * HOUR, 8.0);
    let mut curves = Curves::new(0.0, 8.0 * HOUR, HOUR);
    let busy = |end: f64| end.min(HOUR) + (end - 5.0 * HOUR).clamp(0.0, HOUR);
    let points: Vec<_> = curves.ends().map(|end| (end, busy(end))).collect();
    curves.add((&metric::GPU_BUSY_SECONDS, Some(0), Some(0)), &points, None);
    let points: Vec<_> = curves.ends().map(|end| (end, end - busy(end))).collect();
    curves.add((&metric::GPU_IDLE_SECONDS, Some(0), Some(0)), &points, None);
    job.curves = Some(curves);
    job
}

fn ended(state: &str, limit: f64) -> Job {
    let mut job = job(vec![node()]);
    job.ended =
        Some(Ended { state: state.to_owned(), origin: Origin::Derived, exit_code: None, signal: None });
    job.time_limit = Some(limit);
    job
}

fn find(job: &Job) -> Vec<Advice> {
    all(job, &Numbers::of(job), &Thresholds::shipped().unwrap())
}

/// `expected` is what was measured and what to ask for; `None` if the piece does not apply.
#[track_caller]
fn gives(job: &Job, piece: Piece, expected: Option<(&str, Option<&str>)>) {
    let found = find(job).into_iter().find(|advice| advice.piece == piece);
    let found = found.as_ref().map(|advice| (advice.measured.as_str(), advice.sbatch.as_deref()));
    assert_eq!(found, expected, "{piece:?}");
}

#[test]
fn the_shipped_file_has_all() {
    let shipped = Thresholds::shipped().unwrap();
    assert_eq!(shipped.value("gpu_low_use_ratio"), 0.15);
    assert_eq!(shipped.texts("gpu_low_use").unwrap().when, "busy for less than 15% of the time seen");
    assert_eq!(shipped.texts("serial").unwrap().when, "0.85 to 1.1 cores used of 4 or more");
    let never = "busy for at most 0.1% of the time, and seen for at least nine tenths of it";
    assert_eq!(shipped.texts("gpu_never_used").unwrap().when, never);
}

#[test]
fn what_is_missing_is_named() {
    let error = |from: &str, to: &str| Thresholds::parse(&SHIPPED.replace(from, to)).unwrap_err().to_string();
    assert_eq!(error("    cpu_low_ratio:", "    other:"), "cpu_low: {cpu_low_ratio:.0%} is not understood");
    assert_eq!(error("  waited_cpu_use:", "  other:"), "waited_cpu_use is missing");
    assert_eq!(error("  waited_io:\n    what", "  other:\n    what"), "waited_io is missing");
    assert!(Thresholds::parse("[").is_err());
}

#[test]
fn a_good_job_has_none() {
    assert_eq!(find(&job(vec![node()])), []);
    assert_eq!(find(&job(vec![])), []);
    assert_eq!(
        find(&job(vec![Node { start: 0.0, seen_until: HOUR, ..Node::default() }])),
        [],
        "nothing is known"
    );
}

#[test]
fn short_jobs_have_advice_on_their_end_alone() {
    let mut short = with(&metric::OOM_KILLS, 1.0);
    short.nodes[0].seen_until = 119.0;
    short.nodes[0].values.set(&metric::CPU_SECONDS, 0.0);
    assert_eq!(find(&short).iter().map(|advice| advice.piece).collect::<Vec<_>>(), [Piece::OomKilled]);
    short.nodes[0].seen_until = 120.0;
    assert_eq!(
        find(&short).iter().map(|advice| advice.piece).collect::<Vec<_>>(),
        [Piece::OomKilled, Piece::CpuLow]
    );
}

#[test]
fn out_of_memory() {
    gives(
        &with(&metric::OOM_KILLS, 2.0),
        Piece::OomKilled,
        Some(("2 processes killed at 16 GiB", Some("--mem=20G"))),
    );
    gives(&with(&metric::OOM_KILLS, 0.0), Piece::OomKilled, None);
    gives(&ended("OUT_OF_MEMORY", HOUR), Piece::OomKilled, Some(("killed at 16 GiB", Some("--mem=20G"))));
    // The node has no more, or it is not known what it has.
    for memory in [Some(19.0 * GIB), None] {
        let mut full = with(&metric::OOM_KILLS, 2.0);
        full.nodes[0].hardware.memory_bytes = memory;
        gives(&full, Piece::OomKilled, Some(("2 processes killed at 16 GiB", None)));
    }
}

/// Two nodes of different sizes, as a job with `--mem-per-cpu` has them: 64 and 16 GiB, of which it used these parts.
fn unlike(peaks: [f64; 2]) -> Job {
    let mut job = two_nodes(4.0, 4.0);
    for (node, (limit, peak)) in job.nodes.iter_mut().zip([64.0, 16.0].into_iter().zip(peaks)) {
        node.values.set(&metric::MEMORY_LIMIT_BYTES, limit * GIB);
        node.values.set(&metric::MEMORY_PEAK_BYTES, peak * GIB);
    }
    job
}

#[test]
fn out_of_memory_on_nodes_of_different_sizes() {
    let mut killed = unlike([20.0, 16.0]);
    killed.nodes[1].values.set(&metric::OOM_KILLS, 1.0);
    gives(&killed, Piece::OomKilled, Some(("1 process killed at 16 GiB", None)));
    // SLURM's word for it is of no node.
    killed.ended = ended("OUT_OF_MEMORY", HOUR).ended;
    gives(&killed, Piece::OomKilled, Some(("1 process killed at 16 GiB", None)));
    killed.nodes[0].values.set(&metric::OOM_KILLS, 2.0);
    gives(&killed, Piece::OomKilled, Some(("3 processes killed", None)));
    killed.nodes.iter_mut().for_each(|node| node.values.set(&metric::OOM_KILLS, 0.0));
    gives(&killed, Piece::OomKilled, Some(("killed", None)));
    // The nodes that were not seen may have another limit.
    let unseen = Job { nodes_allocated: Some(2), ..with(&metric::OOM_KILLS, 2.0) };
    gives(&unseen, Piece::OomKilled, Some(("2 processes killed at 16 GiB", None)));
}

#[test]
fn timed_out() {
    gives(&ended("TIMEOUT", HOUR), Piece::TimedOut, Some(("ended after 01:00:00", Some("--time=01:30:00"))));
    gives(&ended("FAILED", HOUR), Piece::TimedOut, None);
    let unseen = |time_limit| Job { time_limit, nodes_allocated: Some(2), ..ended("TIMEOUT", HOUR) };
    gives(&unseen(None), Piece::TimedOut, Some(("ended after 01:00:00", None)));
    let known = unseen(Some(2.0 * HOUR));
    gives(&known, Piece::TimedOut, Some(("ended after 02:00:00", Some("--time=03:00:00"))));
    let mut hung = ended("TIMEOUT", 2.0 * HOUR);
    let stopped = stopping(HOUR, 2.0);
    (hung.nodes, hung.curves) = (stopped.nodes, stopped.curves);
    gives(&hung, Piece::TimedOut, Some(("idle for its last 01:00:00", None)));
    // It had a longer pause before.
    let paused = pausing();
    (hung.nodes, hung.curves) = (paused.nodes, paused.curves);
    gives(&hung, Piece::TimedOut, Some(("idle for its last 02:00:00", None)));
}

#[test]
fn gpus_never_used() {
    let (idle, used) = (|| gpu(Some(3.0), Some(3597.0), HOUR), || gpu(Some(3000.0), Some(600.0), HOUR));
    gives(
        &with_gpus(vec![idle(), used(), used()]),
        Piece::GpuNeverUsed,
        Some(("1 of 3 GPUs", Some("--gpus=2"))),
    );
    let named = |index: &str, gpu: Gpu| Gpu { index: index.to_owned(), ..gpu };
    let one = with_gpus(vec![named("0", idle()), named("1", used())]);
    gives(&one, Piece::GpuNeverUsed, Some(("1 of 2 GPUs (0)", Some("--gpus=1"))));
    let two = job(vec![one.nodes[0].clone(), Node { name: "n2".to_owned(), ..one.nodes[0].clone() }]);
    gives(&two, Piece::GpuNeverUsed, Some(("2 of 4 GPUs (0 of n1, 0 of n2)", None)));
    gives(&with_gpus(vec![idle()]), Piece::GpuNeverUsed, Some(("1 of 1 GPUs", None)));
    gives(&with_gpus(vec![gpu(None, Some(3600.0), HOUR)]), Piece::GpuNeverUsed, Some(("1 of 1 GPUs", None)));
    gives(&with_gpus(vec![gpu(Some(3.7), Some(3596.3), HOUR)]), Piece::GpuNeverUsed, None);
    // Seen for less than nine tenths; not seen at all; shared.
    gives(&with_gpus(vec![gpu(None, Some(3200.0), HOUR)]), Piece::GpuNeverUsed, None);
    gives(&with_gpus(vec![gpu(None, None, HOUR)]), Piece::GpuNeverUsed, None);
    gives(&with_gpus(vec![Gpu { shared: true, ..idle() }]), Piece::GpuNeverUsed, None);
    // How many it needs is not known where it had more than these: on other nodes, on this one, shared with others.
    let some = || with_gpus(vec![idle(), used()]);
    for more in [
        Job { nodes_allocated: Some(2), ..some() },
        job(vec![Node { gpus_held: Some(3.0), ..some().nodes[0].clone() }]),
        with_gpus(vec![idle(), used(), Gpu { shared: true, ..used() }]),
    ] {
        gives(&more, Piece::GpuNeverUsed, Some(("1 of 2 GPUs", None)));
    }
    // Parts of divided GPUs are asked for by their profile: --gpus may be whole ones.
    let part = |gpu| Gpu { profile: "1g.10gb".to_owned(), ..gpu };
    gives(&with_gpus(vec![part(idle()), part(used())]), Piece::GpuNeverUsed, Some(("1 of 2 GPUs", None)));
}

#[test]
fn gpus_hardly_used() {
    let of = |busy: f64| gpu(Some(busy), Some(HOUR - busy), HOUR);
    gives(&with_gpus(vec![of(0.14 * HOUR)]), Piece::GpuLowUse, Some(("14 %", None)));
    gives(&with_gpus(vec![of(0.15 * HOUR)]), Piece::GpuLowUse, None);
    // One of two was never used: the other one decides.
    gives(&with_gpus(vec![of(0.0), of(0.2 * HOUR)]), Piece::GpuLowUse, None);
    gives(&with_gpus(vec![of(0.0), of(0.1 * HOUR)]), Piece::GpuLowUse, Some(("5.0 %", None)));
    gives(&with_gpus(vec![gpu(None, None, HOUR)]), Piece::GpuLowUse, None);
    // Seen for less than nine tenths.
    gives(&with_gpus(vec![gpu(Some(0.1 * HOUR), Some(0.7 * HOUR), HOUR)]), Piece::GpuLowUse, None);
    gives(
        &with_gpus(vec![gpu(Some(0.1 * HOUR), Some(0.8 * HOUR), HOUR)]),
        Piece::GpuLowUse,
        Some(("11 %", None)),
    );
}

#[test]
fn gpus_that_differ() {
    let of = |busy: f64| gpu(Some(busy * HOUR), Some((1.0 - busy) * HOUR), HOUR);
    gives(&with_gpus(vec![of(0.9), of(0.6)]), Piece::GpuUneven, Some(("17 % less", None)));
    gives(&with_gpus(vec![of(0.9), of(0.73)]), Piece::GpuUneven, None);
    gives(&with_gpus(vec![of(0.9)]), Piece::GpuUneven, None);
    gives(&with_gpus(vec![of(0.9), of(0.0)]), Piece::GpuUneven, None);
}

#[test]
fn gpus_that_stopped() {
    gives(&stopping(HOUR, 2.0), Piece::GpuStopped, Some(("idle for its last 01:00:00", None)));
    // Half an hour and a quarter of the time; less of either; never used at all.
    gives(&stopping(1.5 * HOUR, 2.0), Piece::GpuStopped, Some(("idle for its last 00:30:00", None)));
    gives(&stopping(0.75 * HOUR, 1.0), Piece::GpuStopped, None);
    gives(&stopping(3.5 * HOUR, 4.0), Piece::GpuStopped, None);
    gives(&stopping(0.0, 2.0), Piece::GpuStopped, None);
    // The longest pause was before.
    let paused = pausing();
    assert_eq!(Numbers::of(&paused).longest_idle_seconds, Some(4.0 * HOUR));
    gives(&paused, Piece::GpuStopped, Some(("idle for its last 02:00:00", None)));
    // Another node ended when they stopped; it was not seen any more from then on.
    let mut two = stopping(HOUR, 2.0);
    two.nodes.push(Node { name: "n2".to_owned(), seen_until: HOUR, end: Some(HOUR), ..two.nodes[0].clone() });
    two.curves.as_mut().unwrap().add((&metric::GPU_IDLE_SECONDS, Some(1), Some(0)), &[], Some((HOUR, 0.0)));
    gives(&two, Piece::GpuStopped, Some(("idle for its last 01:00:00", None)));
    two.nodes[1].end = None;
    gives(&two, Piece::GpuStopped, None);
}

/// The same with a curve: cores that worked in each tenth of the hour.
fn over_time(mut job: Job, cores: [f64; 10]) -> Job {
    let mut curves = Curves::new(0.0, HOUR, HOUR / 10.0);
    let mut used = 0.0;
    let points: Vec<_> = curves
        .ends()
        .zip(cores)
        .map(|(end, cores)| {
            used += cores * HOUR / 10.0;
            (end, used)
        })
        .collect();
    curves.add((&metric::CPU_SECONDS, Some(0), None), &points, Some((HOUR, used)));
    job.curves = Some(curves);
    job
}

#[test]
fn one_core_worked() {
    let one = || with(&metric::CPU_SECONDS, 1.0 * HOUR);
    let all_the_time = over_time(one(), [1.0; 10]);
    gives(&all_the_time, Piece::Serial, Some(("1 of 8 cores", Some("--ntasks=1 --cpus-per-task=1"))));
    // Without a curve it is not known, and five cores that work for a fifth of the time need five.
    gives(&one(), Piece::Serial, Some(("1 of 8 cores", None)));
    let at_times = over_time(one(), [5.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    gives(&at_times, Piece::Serial, Some(("1 of 8 cores", None)));
    gives(&with(&metric::CPU_SECONDS, 0.84 * HOUR), Piece::Serial, None);
    gives(&with(&metric::CPU_SECONDS, 1.11 * HOUR), Piece::Serial, None);
    let mut few = with(&metric::CPU_SECONDS, 1.0 * HOUR);
    few.nodes[0].values.set(&metric::CPUS, 6.0);
    few.nodes[0].values.set(&metric::CPU_ALLOCATED_SECONDS, 6.0 * HOUR);
    gives(&few, Piece::Serial, None);
    let unseen = Job { nodes_allocated: Some(2), ..all_the_time };
    gives(&unseen, Piece::Serial, Some(("1 of 8 cores", None)));
    // Both nodes worked a little: one core is not enough for that.
    let two = |first, second| over_time(two_nodes(first, second), [1.0; 10]);
    gives(&two(0.5, 0.5), Piece::Serial, Some(("1 of 16 cores", None)));
    gives(&two(1.0, 0.0), Piece::Serial, Some(("1 of 16 cores", Some("--ntasks=1 --cpus-per-task=1"))));
}

#[test]
fn few_cores_worked() {
    // Tasks or threads: only the job's owner knows.
    gives(&with(&metric::CPU_SECONDS, 1.5 * HOUR), Piece::CpuLow, Some(("1.5 of 8 cores", None)));
    gives(&with(&metric::CPU_SECONDS, 1.6 * HOUR), Piece::CpuLow, None);
    gives(&with(&metric::CPU_SECONDS, 1.0 * HOUR), Piece::CpuLow, None);
    let mut gpus = with(&metric::CPU_SECONDS, 1.5 * HOUR);
    gpus.nodes[0].gpus = vec![gpu(Some(HOUR), Some(0.0), HOUR)];
    gives(&gpus, Piece::CpuLow, None);
    let mut unknown = with(&metric::CPU_SECONDS, 1.5 * HOUR);
    unknown.nodes[0].hardware = Hardware::default();
    gives(&unknown, Piece::CpuLow, None);
}

fn two_nodes(first: f64, second: f64) -> Job {
    let mut job = job(vec![node(), node()]);
    job.nodes[0].values.set(&metric::CPU_SECONDS, first * HOUR);
    job.nodes[1].values.set(&metric::CPU_SECONDS, second * HOUR);
    job
}

#[test]
fn a_node_did_nothing() {
    gives(&two_nodes(8.0, 0.009), Piece::NodeIdle, Some(("1 of 2 nodes", Some("--nodes=1"))));
    gives(&two_nodes(8.0, 0.01), Piece::NodeIdle, None);
    gives(&two_nodes(0.5, 0.0), Piece::NodeIdle, None);
    // What the third one did is not known.
    let unseen = Job { nodes_allocated: Some(3), ..two_nodes(8.0, 0.0) };
    gives(&unseen, Piece::NodeIdle, Some(("1 of 2 nodes", None)));
    let mut untold = two_nodes(8.0, 0.0);
    untold.nodes.push(Node { values: crate::Values::default(), ..node() });
    gives(&untold, Piece::NodeIdle, Some(("1 of 2 nodes", None)));
}

#[test]
fn nodes_that_differ() {
    gives(&two_nodes(8.0, 4.7), Piece::NodesUneven, Some(("21 % less", None)));
    gives(&two_nodes(8.0, 4.9), Piece::NodesUneven, None);
    gives(&two_nodes(8.0, 0.0), Piece::NodesUneven, None);
    gives(&job(vec![node()]), Piece::NodesUneven, None);
}

#[test]
fn held_back_by_a_limit() {
    gives(&with(&metric::CPU_THROTTLED_SECONDS, HOUR), Piece::CpuThrottled, Some(("20 %", None)));
    gives(&with(&metric::CPU_THROTTLED_SECONDS, 0.44 * HOUR), Piece::CpuThrottled, None);
}

#[test]
fn waiting() {
    gives(
        &with(&metric::WAITED_MEMORY_SECONDS, 0.11 * HOUR),
        Piece::WaitedMemory,
        Some(("11 % of its time", None)),
    );
    gives(&with(&metric::WAITED_MEMORY_SECONDS, 0.1 * HOUR), Piece::WaitedMemory, None);
    gives(&with(&metric::WAITED_IO_SECONDS, 0.21 * HOUR), Piece::WaitedIo, Some(("21 % of its time", None)));
    gives(&with(&metric::WAITED_IO_SECONDS, 0.2 * HOUR), Piece::WaitedIo, None);
    let mut full = with(&metric::WAITED_CPU_SECONDS, 0.31 * HOUR);
    gives(&full, Piece::WaitedCpu, None);
    full.nodes[0].values.set(&metric::CPU_SECONDS, 7.0 * HOUR);
    gives(&full, Piece::WaitedCpu, Some(("31 % of its time", None)));
}

#[test]
fn stalled() {
    let stalling = |minutes: f64| {
        let mut job = job(vec![node()]);
        let mut curves = Curves::new(0.0, HOUR, 300.0);
        let points: Vec<_> = curves.ends().map(|end| (end, 0.6 * end.min(minutes * 60.0))).collect();
        curves.add((&metric::WAITED_IO_SECONDS, Some(0), None), &points, None);
        job.curves = Some(curves);
        job
    };
    gives(&stalling(10.0), Piece::StalledIo, Some(("00:10:00", None)));
    gives(&stalling(5.0), Piece::StalledIo, None);
    let mut all_the_time = stalling(10.0);
    all_the_time.nodes[0].values.set(&metric::WAITED_IO_SECONDS, 0.3 * HOUR);
    gives(&all_the_time, Piece::StalledIo, None);
}

#[test]
fn memory_asked_for() {
    gives(
        &with(&metric::MEMORY_PEAK_BYTES, 5.5 * GIB),
        Piece::MemoryOverAsked,
        Some(("5.5 GiB of 16 GiB, 34 %", Some("--mem=7G"))),
    );
    gives(&with(&metric::MEMORY_PEAK_BYTES, 5.6 * GIB), Piece::MemoryOverAsked, None);
    let mut small = with(&metric::MEMORY_PEAK_BYTES, GIB);
    small.nodes[0].values.set(&metric::MEMORY_LIMIT_BYTES, 7.9 * GIB);
    gives(&small, Piece::MemoryOverAsked, None);
    // Without a peak what was held in a scrape counts.
    let mut held =
        job(vec![Node { memory_held_bytes: Some(GIB), values: crate::Values::default(), ..node() }]);
    held.nodes[0].values.set(&metric::MEMORY_LIMIT_BYTES, 16.0 * GIB);
    held.nodes[0].values.set(&metric::CPUS, 16.0);
    gives(&held, Piece::MemoryOverAsked, Some(("1 GiB of 16 GiB, 6.2 %", Some("--mem=2G"))));
    // Peak and limit are those of one node; what each needs is no single number, nor known of nodes that were not seen.
    gives(&unlike([20.0, 4.8]), Piece::MemoryOverAsked, Some(("20 GiB of 64 GiB, 31 %", None)));
    gives(&unlike([16.0, 5.0]), Piece::MemoryOverAsked, Some(("5 GiB of 16 GiB, 31 %", None)));
    let unseen = Job { nodes_allocated: Some(2), ..with(&metric::MEMORY_PEAK_BYTES, 5.5 * GIB) };
    gives(&unseen, Piece::MemoryOverAsked, Some(("5.5 GiB of 16 GiB, 34 %", None)));
    // Nobody can have the memory of nodes that have no core left; one with some is enough. Whether there are any has to be known.
    let cores = |cpus: &[f64]| {
        let with_cpus = |cpus: &f64| {
            let mut node = with(&metric::MEMORY_PEAK_BYTES, 5.5 * GIB).nodes.remove(0);
            node.values.set(&metric::CPUS, *cpus);
            node
        };
        job(cpus.iter().map(with_cpus).collect())
    };
    gives(&cores(&[32.0]), Piece::MemoryOverAsked, None);
    gives(&cores(&[32.0, 32.0]), Piece::MemoryOverAsked, None);
    gives(&cores(&[30.0]), Piece::MemoryOverAsked, Some(("5.5 GiB of 16 GiB, 34 %", Some("--mem=7G"))));
    gives(&cores(&[32.0, 30.0]), Piece::MemoryOverAsked, Some(("5.5 GiB of 16 GiB, 34 %", Some("--mem=7G"))));
    let mut unknown = cores(&[16.0]);
    unknown.nodes[0].hardware.cores = None;
    gives(&unknown, Piece::MemoryOverAsked, None);
    // A site's own threshold: what would be asked for has to be less than it had.
    let site = Thresholds::parse(
        &SHIPPED.replace("over_asked_ratio: {value: 0.35", "over_asked_ratio: {value: 0.9"),
    );
    let nearly_all = with(&metric::MEMORY_PEAK_BYTES, 14.0 * GIB);
    let found = all(&nearly_all, &Numbers::of(&nearly_all), &site.unwrap());
    assert_eq!(found.iter().map(|advice| advice.sbatch.as_deref()).collect::<Vec<_>>(), [None]);
}

#[test]
fn time_asked_for() {
    let whole = |state: &str, limit: f64| Job { nodes_allocated: Some(1), ..ended(state, limit) };
    gives(
        &whole("COMPLETED", 2.0 * HOUR),
        Piece::TimeOverAsked,
        Some(("01:00:00 of 02:00:00", Some("--time=01:15:00"))),
    );
    gives(&whole("COMPLETED", 1.6 * HOUR), Piece::TimeOverAsked, None);
    gives(&whole("FAILED", 9.0 * HOUR), Piece::TimeOverAsked, None);
    let of_a_part = |change: &dyn Fn(&mut Job)| {
        let mut job = whole("COMPLETED", 9.0 * HOUR);
        change(&mut job);
        gives(&job, Piece::TimeOverAsked, None);
    };
    of_a_part(&|job| job.nodes[0].running = true);
    of_a_part(&|job| job.nodes[0].end = None);
    of_a_part(&|job| job.nodes_allocated = Some(2));
    of_a_part(&|job| job.nodes_allocated = None);
    of_a_part(&|job| (job.run, job.runs) = (2, 2));
}

/// A job of an hour whose GPUs were busy: the time in which multiprocessors and memory worked, and the bytes that it moved.
fn looks_busy(gpus: &[(Option<f64>, Option<f64>)], moved: Option<f64>) -> Job {
    let each = |(sm, dram): &(Option<f64>, Option<f64>)| {
        let mut gpu = gpu(Some(0.96 * HOUR), Some(0.04 * HOUR), HOUR);
        for (metric, value) in
            [(&metric::GPU_SM_ACTIVE_SECONDS, sm), (&metric::GPU_DRAM_ACTIVE_SECONDS, dram)]
        {
            value.iter().for_each(|value| gpu.values.set(metric, value * HOUR));
        }
        gpu
    };
    let mut job = with_gpus(gpus.iter().map(each).collect());
    moved.into_iter().for_each(|bytes| job.nodes[0].values.set(&metric::IO_READ_BYTES, bytes * HOUR));
    job
}

#[test]
fn gpus_that_look_busy() {
    let stuck = (Some(0.004), Some(0.001));
    let found = Some(("multiprocessors 0.4 % active", None));
    gives(&looks_busy(&[stuck, stuck], Some(1e3)), Piece::GpuStuck, found);
    gives(
        &looks_busy(&[(Some(0.25), Some(0.01))], Some(1e5)),
        Piece::GpuStuck,
        Some(("multiprocessors 25 % active", None)),
    );
    // Multiprocessors, memory or the job's I/O did something; one GPU did; something was not measured.
    for (gpus, moved) in [
        (&[(Some(0.26), Some(0.001))][..], Some(1e3)),
        (&[(Some(0.004), Some(0.02))], Some(1e3)),
        (&[stuck], Some(1.01e5)),
        (&[stuck, (Some(0.9), Some(0.4))], Some(1e3)),
        (&[(None, Some(0.001))], Some(1e3)),
        (&[(Some(0.004), None)], Some(1e3)),
        (&[stuck], None),
    ] {
        gives(&looks_busy(gpus, moved), Piece::GpuStuck, None);
    }
    let mut others = looks_busy(&[stuck], Some(1e3));
    others.nodes[0].gpus[0].shared = true;
    gives(&others, Piece::GpuStuck, None);
    let mut half = looks_busy(&[stuck], Some(1e3));
    half.nodes[0].gpus[0].values.set(&metric::GPU_BUSY_SECONDS, 0.94 * HOUR);
    gives(&half, Piece::GpuStuck, None);
}

/// A job whose CPUs counted these slots of a hundred, and the rest as done.
fn with_slots(parts: &[(&'static Metric, f64)]) -> Job {
    let mut job = job(vec![node()]);
    let values = &mut job.nodes[0].values;
    values.set(&metric::SLOTS, 100.0);
    parts.iter().for_each(|(part, slots)| values.set(part, *slots));
    job
}

#[test]
fn waiting_for_memory() {
    let memory = |slots| with_slots(&[(&metric::SLOTS_MEMORY, slots), (&metric::SLOTS_CORE, 20.0)]);
    gives(&memory(61.0), Piece::SlotsMemory, Some(("61 % of what they could have done", None)));
    gives(&memory(50.0), Piece::SlotsMemory, None);
    gives(&memory(75.0), Piece::SlotsBackend, None);
    let backend = |slots| with_slots(&[(&metric::SLOTS_BACKEND, slots)]);
    gives(&backend(61.0), Piece::SlotsBackend, Some(("61 % of what they could have done", None)));
    gives(&backend(60.0), Piece::SlotsBackend, None);
    gives(&backend(90.0), Piece::SlotsMemory, None);
    gives(&job(vec![node()]), Piece::SlotsMemory, None);
    // On another node it is not known what waited for memory.
    let mut both = memory(80.0);
    both.nodes.extend(backend(90.0).nodes);
    gives(&both, Piece::SlotsMemory, None);
    gives(&both, Piece::SlotsBackend, Some(("95 % of what they could have done", None)));
}

#[test]
fn arithmetic_in_vectors() {
    let operations = |all, scalar, cycles| {
        let mut job = job(vec![node()]);
        let values = &mut job.nodes[0].values;
        values.set(&metric::FLOPS, all);
        values.set(&metric::FLOPS_SCALAR, scalar);
        values.set(&metric::CYCLES, cycles);
        job
    };
    gives(&operations(100.0, 90.0, 100.0), Piece::VectorsLow, Some(("10 % of its operations", None)));
    gives(&operations(100.0, 70.0, 100.0), Piece::VectorsLow, None);
    gives(&operations(100.0, 90.0, 1001.0), Piece::VectorsLow, None);
    let mut untold = operations(100.0, 90.0, 100.0);
    untold.nodes[0].values.set(&metric::FLOPS_ANY_WIDTH, 10.0);
    gives(&untold, Piece::VectorsLow, None);
    // Only nodes whose CPUs count vectors apart are in the ratio.
    untold.nodes.extend(operations(100.0, 80.0, 100.0).nodes);
    gives(&untold, Piece::VectorsLow, Some(("20 % of its operations", None)));
}

#[test]
fn the_page_for_users_has_all() {
    let page = include_str!("../../../../docs/reading-a-report.md");
    let shipped = Thresholds::shipped().unwrap();
    for piece in Piece::ALL {
        let what = &shipped.texts(piece.name()).unwrap().what;
        let row = format!("\n| {} | `{}` | {what} |", piece.label(), piece.name());
        assert!(page.contains(&row), "{row}");
    }
}
