//! The archive's metrics, from those of a job.

use job_report::metric::{self, Level};
use job_report::{Curve, Curves, Job, Metric, Node};
use serde::Serialize;

use crate::table::gpu_name;

/// A unit of the archive. It has none for per cent: these are numbers without one.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Unit {
    base: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<&'static str>,
}

const NUMBER: Unit = Unit { base: "", prefix: None };
const WATTS: Unit = Unit { base: "W", prefix: None };
const GIGABYTES: Unit = Unit { base: "B", prefix: Some("G") };
const GIGABYTES_PER_SECOND: Unit = Unit { base: "B/s", prefix: Some("G") };
const GIGAFLOPS: Unit = Unit { base: "F/s", prefix: Some("G") };

const PERCENT: f64 = 100.0;
const GIGA: f64 = 1e-9;

/// What no record may lack (job-meta.schema.json).
pub(super) const DEMANDED: &[(&str, Unit)] = &[
    ("cpu_user", NUMBER),
    ("cpu_load", NUMBER),
    ("mem_used", GIGABYTES),
    ("flops_any", GIGAFLOPS),
    ("mem_bw", GIGABYTES_PER_SECOND),
];

/// How the archive's metric is made of the job's.
struct Rule {
    name: &'static str,
    unit: Unit,
    factor: f64,
    /// All of them are added up.
    of: &'static [&'static Metric],
    /// Of what the job has of each node.
    per: Option<&'static Metric>,
}

const fn rule(name: &'static str, unit: Unit, factor: f64, of: &'static [&'static Metric]) -> Rule {
    Rule { name, unit, factor, of, per: None }
}

static RULES: &[Rule] = &[
    // Per cent of the CPUs that the job has on the node.
    Rule { per: Some(&metric::CPUS), ..rule("cpu_user", NUMBER, PERCENT, &[&metric::CPU_USER_SECONDS]) },
    // The archive means the load average of the node. The CPUs that the job kept busy are what is known of the job alone.
    rule("cpu_load", NUMBER, 1.0, &[&metric::CPU_SECONDS]),
    rule("mem_used", GIGABYTES, GIGA, &[&metric::MEMORY_USED_BYTES]),
    // "Total flop rate with DP flops scaled up": each operation in double precision counts as two. Where precisions are counted as one
    // there is nothing.
    rule("flops_any", GIGAFLOPS, GIGA, &[&metric::FLOPS, &metric::FLOPS_DOUBLE]),
    rule("flops_dp", GIGAFLOPS, GIGA, &[&metric::FLOPS_DOUBLE]),
    rule("mem_bw", GIGABYTES_PER_SECOND, GIGA, &[&metric::MEMORY_TRAFFIC_BYTES]),
    rule("ic_read_bw", GIGABYTES_PER_SECOND, GIGA, &[&metric::INFINIBAND_RECEIVED_BYTES]),
    rule("ic_write_bw", GIGABYTES_PER_SECOND, GIGA, &[&metric::INFINIBAND_TRANSMITTED_BYTES]),
    rule("cpu_power", WATTS, 1.0, &[&metric::ENERGY_PACKAGE_JOULES]),
    rule("mem_power", WATTS, 1.0, &[&metric::ENERGY_DRAM_JOULES]),
    // Of its idle time follows the busy part of the time in which a GPU was seen.
    rule("acc_utilization", NUMBER, PERCENT, &[&metric::GPU_IDLE_SECONDS]),
    rule("acc_mem_used", GIGABYTES, GIGA, &[&metric::GPU_MEMORY_USED_BYTES]),
    rule("acc_power", WATTS, 1.0, &[&metric::GPU_ENERGY_JOULES]),
];

/// What a series is of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    Node,
    Accelerator,
}

impl Scope {
    pub(super) fn word(self) -> &'static str {
        match self {
            Scope::Node => "node",
            Scope::Accelerator => "accelerator",
        }
    }
}

/// Of the values that are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Statistics {
    pub(super) avg: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Statistics {
    /// Of several of them, which count alike.
    fn over(each: &[Statistics]) -> Option<Self> {
        let all = each.iter().copied().reduce(|all, one| Self {
            avg: all.avg + one.avg,
            min: all.min.min(one.min),
            max: all.max.max(one.max),
        })?;
        #[allow(clippy::cast_precision_loss, reason = "a number of nodes or GPUs")]
        Some(Self { avg: all.avg / each.len() as f64, ..all })
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Series {
    hostname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    statistics: Statistics,
    /// A gap is null: JSON has no NaN.
    data: Vec<f64>,
}

/// A metric of the archive.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) scope: Scope,
    pub(super) statistics: Statistics,
    pub(super) series: Vec<Series>,
}

/// What a GPU is called in resources and series: its UUID, which is unique in the cluster, else its index.
pub(super) fn accelerator(node: &Node, gpu: usize) -> &str {
    node.gpus
        .get(gpu)
        .map(|of| of.uuid.as_str())
        .filter(|uuid| !uuid.is_empty())
        .unwrap_or_else(|| gpu_name(node, gpu))
}

/// All metrics of the archive of which anything is known.
pub(super) fn measured(job: &Job, curves: &Curves) -> Vec<Measured> {
    RULES.iter().filter_map(|rule| rule.measured(job, curves)).collect()
}

impl Rule {
    fn measured(&self, job: &Job, curves: &Curves) -> Option<Measured> {
        let (first, others) = self.of.split_first()?;
        let series: Vec<Series> = curves
            .of(first)
            .filter_map(|curve| {
                let node = job.nodes.get(curve.node?)?;
                let idle = *first == &metric::GPU_IDLE_SECONDS;
                let mut data = if idle { curves.gpu_busy(curve) } else { curve.values.clone() };
                for other in others {
                    // Without one of its parts nothing is known.
                    let part =
                        curves.of(other).find(|part| (part.node, part.gpu) == (curve.node, curve.gpu))?;
                    data.iter_mut().zip(&part.values).for_each(|(sum, value)| *sum += value);
                }
                let whole = match self.per {
                    None => 1.0,
                    Some(whole) => node.values.get(whole).filter(|whole| *whole > 0.0)?,
                };
                data.iter_mut().for_each(|value| *value *= self.factor / whole);
                let summary = curves.summary(&data)?;
                Some(Series {
                    hostname: node.name.clone(),
                    id: gpu(curve).map(|gpu| accelerator(node, gpu).to_owned()),
                    statistics: Statistics { avg: summary.mean, min: summary.min, max: summary.max },
                    data,
                })
            })
            .collect();
        let each: Vec<Statistics> = series.iter().map(|series| series.statistics).collect();
        let scope = if first.level == Level::Gpu { Scope::Accelerator } else { Scope::Node };
        Some(Measured {
            name: self.name,
            unit: self.unit,
            scope,
            statistics: Statistics::over(&each)?,
            series,
        })
    }
}

fn gpu(curve: &Curve) -> Option<usize> {
    curve.gpu.filter(|_| curve.metric.level == Level::Gpu)
}
