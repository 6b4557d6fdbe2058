//! A report whose numbers are known, for tests and fuzz targets.

mod large;

use std::sync::LazyLock;

use job_report::metric::{self, Metric};
use job_report::{Ended, Evidence, Gpu, Hardware, Identity, Job, Node, Origin, Report, Thresholds, Values};

use crate::text::harmless;

pub use large::{bare, large, short};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Friday, 4 March 2022, 06:56 in New York.
const START: f64 = 1_646_394_960.0;
/// 18:41:56
const ELAPSED: f64 = 67_316.0;

fn values(values: &[(&'static Metric, f64)]) -> Values {
    let mut all = Values::default();
    values.iter().for_each(|(metric, value)| all.set(metric, *value));
    all
}

fn gpu(index: u32, minor: u32, busy: f64) -> Gpu {
    Gpu {
        index: index.to_string(),
        uuid: format!("GPU-{minor}"),
        model: "NVIDIA A100-SXM4-40GB".to_owned(),
        minor: minor.to_string(),
        values: values(&[
            (&metric::GPU_ALLOCATED_SECONDS, ELAPSED),
            (&metric::GPU_BUSY_SECONDS, busy * ELAPSED),
            (&metric::GPU_IDLE_SECONDS, (1.0 - busy) * ELAPSED),
            (&metric::GPU_MEMORY_PEAK_BYTES, 26.5 * GIB),
            (&metric::GPU_MEMORY_LIMIT_BYTES, 40.0 * GIB),
        ]),
        ..Gpu::default()
    }
}

fn node(name: &str, cpu_seconds: f64, held: f64, gpus: Vec<Gpu>) -> Node {
    Node {
        name: name.to_owned(),
        start: START,
        end: Some(START + ELAPSED),
        seen_until: START + ELAPSED,
        running: false,
        hardware: Hardware {
            cpus: Some(48.0),
            cores: Some(48.0),
            memory_bytes: Some(512.0 * GIB),
            gpus: Some(4.0),
        },
        values: values(&[
            (&metric::CPUS, 24.0),
            (&metric::CPU_SECONDS, cpu_seconds),
            (&metric::CPU_ALLOCATED_SECONDS, 24.0 * ELAPSED),
            (&metric::MEMORY_LIMIT_BYTES, 128.0 * GIB),
            (&metric::MEMORY_PEAK_BYTES, held + 5.0 * GIB),
            (&metric::IO_READ_BYTES, 3.0 * GIB),
            (&metric::IO_WRITTEN_BYTES, GIB),
        ]),
        memory_held_bytes: Some(held),
        gpus_held: None,
        gpus,
        coverage: Some(1.0),
        ..Node::default()
    }
}

/// A job of two nodes with two GPUs each, of which one was never used.
pub fn job() -> Job {
    Job {
        id: 39_798_795,
        cluster: Some("della".to_owned()),
        identity: Identity {
            user: "aturing".to_owned(),
            uid: "1912".to_owned(),
            account: "math".to_owned(),
            partition: "gpu".to_owned(),
            qos: "della-gpu".to_owned(),
            name: harmless("ordinals|`<b>@all [x](http://e) \x1b[31m"),
            ..Identity::default()
        },
        run: 1,
        runs: 1,
        ended: Some(Ended {
            state: "COMPLETED".to_owned(),
            origin: Origin::Accounting,
            exit_code: Some(0),
            signal: None,
        }),
        time_limit: Some(96.0 * 3600.0),
        nodes_allocated: Some(2),
        queued_seconds: Some(42.0),
        nodes: vec![
            node("node1", 164_480.0, 7.9 * GIB, vec![gpu(0, 1, 0.646), gpu(1, 0, 0.655)]),
            node("node2", 154_135.0, 7.8 * GIB, vec![gpu(0, 2, 0.0), gpu(1, 3, 0.675)]),
        ],
        curves: None,
        grams_per_joule: None,
        restarts: Some(0),
        evidence: Evidence { resets: Some(0), interval: Some(30.0), ..Evidence::default() },
    }
}

/// A job of two nodes without GPUs whose counters saw everything: five and eight CPUs did nothing, and one of the second node did most.
pub fn counted() -> Job {
    let mut job = job();
    let (even, uneven) = ((5.0, 19e15, 1.1e15), (8.0, 16e15, 1.6e15));
    for (node, (idle, instructions, busiest)) in job.nodes.iter_mut().zip([even, uneven]) {
        let used = (24.0 - idle) * ELAPSED;
        (node.gpus, node.gpus_held) = (Vec::new(), Some(0.0));
        for (metric, value) in [
            (&metric::CPU_SECONDS, used),
            (&metric::COUNTED_CPU_SECONDS, used),
            (&metric::CYCLES, 12e15),
            (&metric::FLOPS, 4e15),
            (&metric::INSTRUCTIONS, instructions),
            (&metric::BUSIEST_CPU_INSTRUCTIONS, busiest),
            (&metric::CPUS_IDLE_SECONDS, idle * ELAPSED),
        ] {
            node.values.set(metric, value);
        }
    }
    job
}

/// The same job after its users, admins and devices have named all of it so.
pub fn named(text: &str) -> Job {
    let mut job = job();
    let text = harmless(text);
    let who = &mut job.identity;
    for name in [&mut who.user, &mut who.account, &mut who.partition, &mut who.qos, &mut who.name] {
        name.clone_from(&text);
    }
    job.cluster = Some(text.clone());
    for node in &mut job.nodes {
        node.name.clone_from(&text);
        for gpu in &mut node.gpus {
            for name in [&mut gpu.model, &mut gpu.minor, &mut gpu.index, &mut gpu.uuid] {
                name.clone_from(&text);
            }
        }
    }
    job
}

/// The shipped thresholds.
#[allow(clippy::expect_used, reason = "a test holds that they are read")]
pub static THRESHOLDS: LazyLock<Thresholds> =
    LazyLock::new(|| Thresholds::shipped().expect("the shipped thresholds are read"));

/// Its report.
pub fn report(job: Job) -> Report {
    Report::new(job, &THRESHOLDS, Vec::new())
}
