//! Jobs of any size, with all that can be measured over time.

use job_report::metric::{self, Kind, Level, Metric};
use job_report::{Curve, Curves, Evidence, Gpu, Hardware, Identity, Job, Node};

use super::{GIB, START, values};

/// Seconds and the length of a bin: 480 bins.
const ELAPSED: f64 = 86_400.0;
const STEP: f64 = 180.0;

/// How high a curve goes, per second of a counter.
fn height(metric: &Metric) -> f64 {
    match metric.key {
        "cpu_seconds" => 60.0,
        "cpu_user_seconds" => 57.0,
        "cpu_system_seconds" => 3.0,
        "cpu_allocated_seconds" | "cpus" => 64.0,
        "counted_cpu_seconds" => 59.0,
        "memory_limit_bytes" => 256.0 * GIB,
        "memory_peak_bytes" | "memory_used_bytes" => 190.0 * GIB,
        "memory_anon_bytes" => 150.0 * GIB,
        "memory_shmem_bytes" => 12.0 * GIB,
        "energy_joules" => 480.0,
        "energy_package_joules" => 300.0,
        "energy_dram_joules" => 60.0,
        "energy_overhead_joules" => 110.0,
        "instructions" => 2.4e11,
        "cycles" => 1.8e11,
        "flops" => 3.1e11,
        "memory_traffic_bytes" => 9.0e10,
        "memory_load_bytes" => 6.0e10,
        "oom_kills" | "cpu_throttled_seconds" => 0.0,
        "gpu_allocated_seconds" => 1.0,
        "gpu_busy_seconds" => 0.8,
        "gpu_idle_seconds" => 0.2,
        "gpu_sm_active_seconds" => 0.6,
        "gpu_energy_joules" => 420.0,
        "gpu_memory_limit_bytes" => 80.0 * GIB,
        "gpu_memory_used_bytes" | "gpu_memory_peak_bytes" => 61.0 * GIB,
        _ if metric.unit == metric::Unit::Seconds => 0.05,
        _ if metric.unit == metric::Unit::Bytes => 2.0e8,
        _ => 100.0,
    }
}

/// A number from 0 to 1 that looks like chance.
fn chance(seed: usize) -> f64 {
    let mixed = (seed as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

/// Phases of a job, and some noise.
fn shape(metric: &Metric, row: usize, bin: usize) -> f64 {
    let (level, time) = (height(metric), bin as f64 / 480.0);
    let steady = metric.kind != Kind::Counter || metric.key.ends_with("allocated_seconds");
    let phase = if time < 0.03 {
        0.2
    } else if (0.5..0.54).contains(&time) {
        0.05
    } else {
        0.9 + 0.1 * (time * 40.0).sin()
    };
    let noise = 1.0 - 0.12 * chance(row * 7919 + bin * 31 + metric.key.len());
    if steady { level * (0.7 + 0.3 * time) } else { level * phase * noise }
}

/// Fills in totals, and curves of what has them.
fn measure(of: Level, place: (usize, Option<usize>), curves: &mut Curves) -> job_report::Values {
    let row = place.0 * 8 + place.1.unwrap_or(0);
    let bins = curves.bins();
    let mut totals = Vec::new();
    for metric in metric::ALL.iter().copied().filter(|metric| metric.level == of && metric.is_usual()) {
        let points: Vec<f64> = (0..bins).map(|bin| shape(metric, row, bin)).collect();
        match metric.kind {
            Kind::Counter => totals.push((metric, points.iter().sum::<f64>() * curves.step)),
            Kind::Last => totals.push((metric, height(metric))),
            Kind::Gauge => {}
        }
        if metric.kind != Kind::Last {
            curves.curves.push(Curve {
                metric,
                node: Some(place.0),
                gpu: place.1,
                part: None,
                values: points,
            });
        }
    }
    values(&totals)
}

/// A job of so many nodes with so many GPUs each, for a day.
pub fn large(nodes: usize, gpus: usize) -> Job {
    let mut curves = Curves::new(START, START + ELAPSED, STEP);
    let gpu = |index: usize, values| Gpu {
        index: index.to_string(),
        uuid: format!("GPU-{index}"),
        model: "NVIDIA H100 80GB HBM3".to_owned(),
        minor: index.to_string(),
        values,
        ..Gpu::default()
    };
    let node = |at: usize| Node {
        name: format!("node{:03}", at + 1),
        start: START,
        end: Some(START + ELAPSED),
        seen_until: START + ELAPSED,
        running: false,
        suspended_seconds: 0.0,
        hardware: Hardware {
            cpus: Some(64.0),
            cores: Some(64.0),
            memory_bytes: Some(512.0 * GIB),
            gpus: Some(gpus as f64),
        },
        values: measure(Level::Node, (at, None), &mut curves),
        memory_held_bytes: Some(162.0 * GIB),
        gpus_held: (gpus == 0).then_some(0.0),
        gpus: (0..gpus)
            .map(|index| gpu(index, measure(Level::Gpu, (at, Some(index)), &mut curves)))
            .collect(),
        boards: Vec::new(),
        parts: Vec::new(),
        coverage: Some(0.998),
    };
    let nodes: Vec<Node> = (0..nodes).map(node).collect();
    let job = super::job();
    let identity = Identity { name: "ordinals".to_owned(), ..job.identity };
    let nodes_allocated = u64::try_from(nodes.len()).ok();
    Job {
        identity,
        nodes,
        nodes_allocated,
        curves: Some(curves),
        grams_per_joule: Some(380.0 / 3.6e6),
        ..job
    }
}

/// A job of half a minute.
pub fn short() -> Job {
    let mut job = super::job();
    job.nodes.truncate(1);
    for node in &mut job.nodes {
        (node.end, node.seen_until) = (Some(START + 30.0), START + 30.0);
    }
    job.curves = Some(Curves::new(START, START + 30.0, 15.0));
    job
}

/// A job of which hardly anything is known.
pub fn bare() -> Job {
    let node = Node { name: "node1".to_owned(), start: START, seen_until: START, ..Node::default() };
    Job {
        identity: Identity::default(),
        cluster: None,
        ended: None,
        time_limit: None,
        nodes_allocated: None,
        queued_seconds: None,
        nodes: vec![node],
        restarts: None,
        evidence: Evidence::default(),
        ..super::job()
    }
}
