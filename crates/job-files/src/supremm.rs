//! A job as SUPReMM's summary, which XDMoD's job performance module reads from its MongoDB: one document for each job
//! (ubccr/supremm, src/supremm/assets/schema.json, summary-1.0.6).
//!
//! A group of numbers is called a plugin there. One without data has the number of an error in place of them (src/supremm/errors.py).

mod statistics;

use std::collections::BTreeMap;
use std::io::Write;

use job_report::{Curve, Curves, Gpu, Job, Metric, Node, State, Summary, metric};
use serde::Serialize;

use crate::Error;
use crate::table::{gpu_name, whole};
use statistics::Stat;

/// "Required raw metrics not available."
const NOT_MEASURED: u8 = 1;
/// "Not all of the hosts had raw metrics available"
const NOT_ON_ALL: u8 = 4;

/// What the document demands and the job's data do not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The number of the cluster in XDMoD.
    pub resource_id: u64,
    /// Now, seconds since the epoch.
    pub created: f64,
}

/// Writes a job that ended.
pub fn write(job: &Job, options: &Options, mut to: impl Write) -> Result<(), Error> {
    // The document's name has the end in it.
    if job.state() != State::Ended {
        return Err(Error::Missing(vec!["end"]));
    }
    let curves = job.curves.as_ref().ok_or(Error::NoCurves)?;
    serde_json::to_writer(&mut to, &Document::new(job, curves, options))?;
    to.write_all(b"\n")?;
    Ok(())
}

/// The numbers of a plugin, by name, some by device; or why there are none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Data {
    Stat(Stat),
    /// With the sum.
    Total {
        total: f64,
        #[serde(flatten)]
        of: Stat,
    },
    Count {
        cnt: u64,
    },
    Group(BTreeMap<String, Data>),
    Missing {
        error: u8,
    },
}

impl Data {
    /// Of values of all nodes, or of all GPUs of a number.
    fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let values: Vec<_> = values.into_iter().collect();
        let known: Vec<f64> = values.iter().copied().flatten().collect();
        match Stat::of(&known) {
            None => Data::Missing { error: NOT_MEASURED },
            Some(_) if known.len() < values.len() => Data::Missing { error: NOT_ON_ALL },
            Some(stat) => Data::Stat(stat),
        }
    }

    /// What is known of its members; if nothing is, that of a member which some have, if there is one.
    fn group<N: Into<String>>(of: impl IntoIterator<Item = (N, Data)>) -> Self {
        let mut error = NOT_MEASURED;
        let mut known = BTreeMap::new();
        for (name, data) in of {
            match data {
                Data::Missing { error: of } => error = error.max(of),
                data => {
                    known.insert(name.into(), data);
                }
            }
        }
        if known.is_empty() { Data::Missing { error } } else { Data::Group(known) }
    }
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(rename = "_id")]
    id: String,
    summarization: Summarization,
    acct: Account<'a>,
    #[serde(flatten)]
    plugins: BTreeMap<&'static str, Data>,
}

#[derive(Debug, Serialize)]
struct Summarization {
    version: &'static str,
    complete: bool,
    created: f64,
    datasource: &'static str,
}

#[derive(Debug, Serialize)]
struct Account<'a> {
    id: String,
    local_job_id: String,
    resource_id: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    account: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    partition: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    jobname: &'a str,
    nodes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ncpus: Option<u64>,
    host_list: Vec<&'a str>,
    start_time: u64,
    end_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timelimit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<String>,
}

impl<'a> Document<'a> {
    fn new(job: &'a Job, curves: &Curves, options: &Options) -> Self {
        let (start, end) = (whole(job.start()), whole(job.until()));
        let identity = &job.identity;
        let nodes = job.nodes_allocated.unwrap_or(job.nodes.len() as u64);
        let ended = job.ended.as_ref();
        Self {
            id: format!("{}-{end}", job.id),
            summarization: Summarization {
                version: "1.0.6",
                complete: nodes == job.nodes.len() as u64,
                created: options.created,
                datasource: "jobledger",
            },
            acct: Account {
                id: job.id.to_string(),
                local_job_id: job.id.to_string(),
                resource_id: options.resource_id,
                user: &identity.user,
                uid: identity.uid.parse().ok(),
                account: &identity.account,
                partition: &identity.partition,
                jobname: &identity.name,
                nodes,
                ncpus: job.total(&metric::CPUS).map(whole),
                host_list: job.nodes.iter().map(|node| node.name.as_str()).collect(),
                start_time: start,
                end_time: end,
                timelimit: job.time_limit.map(whole),
                exit_status: ended.map(|ended| ended.state.as_str()),
                exit_code: ended
                    .and_then(|ended| Some(format!("{}:{}", ended.exit_code?, ended.signal.unwrap_or(0)))),
            },
            plugins: plugins(job, curves),
        }
    }
}

fn plugins(job: &Job, curves: &Curves) -> BTreeMap<&'static str, Data> {
    let total = |metric: &'static Metric| nodes(job, |_, node| node.values.get(metric));
    let all_devices = |of: &[(&'static str, &'static Metric)]| {
        Data::group([("all", Data::group(of.iter().map(|(name, metric)| (*name, total(metric)))))])
    };
    BTreeMap::from([
        ("cpu", cpu(job)),
        ("process_memory", memory(job, curves)),
        ("cpuperf", Data::group([("flops", nodes(job, |_, node| flops_per_core(node)))])),
        ("uncperf", Data::group([("membw", total(&metric::MEMORY_TRAFFIC_BYTES))])),
        (
            "infiniband",
            all_devices(&[
                ("switch-in-bytes", &metric::INFINIBAND_RECEIVED_BYTES),
                ("switch-out-bytes", &metric::INFINIBAND_TRANSMITTED_BYTES),
            ]),
        ),
        (
            "network",
            all_devices(&[
                ("in-bytes", &metric::NETWORK_RECEIVED_BYTES),
                ("out-bytes", &metric::NETWORK_TRANSMITTED_BYTES),
            ]),
        ),
        (
            "lustre",
            all_devices(&[
                ("read_bytes-total", &metric::LUSTRE_READ_BYTES),
                ("write_bytes-total", &metric::LUSTRE_WRITTEN_BYTES),
            ]),
        ),
        (
            "block",
            all_devices(&[
                ("read", &metric::IO_READS),
                ("write", &metric::IO_WRITES),
                ("read_bytes", &metric::IO_READ_BYTES),
                ("write_bytes", &metric::IO_WRITTEN_BYTES),
            ]),
        ),
        ("gpu", gpus(job, |places| gpu_use(job, curves, places))),
        ("gpupower", gpus(job, |places| gpu_power(job, curves, places))),
    ])
}

fn nodes(job: &Job, of: impl Fn(usize, &Node) -> Option<f64>) -> Data {
    Data::of(job.nodes.iter().enumerate().map(|(at, node)| of(at, node)))
}

/// A CPU of its own is not seen: each number is of all that the job had on a node.
fn cpu(job: &Job) -> Data {
    let part = |node: &Node, metric| {
        let held = node.values.get(&metric::CPU_ALLOCATED_SECONDS).filter(|held| *held > 0.0)?;
        Some(node.values.get(metric)? / held)
    };
    let mut jobcpus = Data::group([
        ("user", nodes(job, |_, node| part(node, &metric::CPU_USER_SECONDS))),
        ("system", nodes(job, |_, node| part(node, &metric::CPU_SYSTEM_SECONDS))),
        ("idle", nodes(job, |_, node| Some((1.0 - part(node, &metric::CPU_SECONDS)?).max(0.0)))),
    ]);
    if let (Data::Group(of), Some(cnt)) = (&mut jobcpus, job.total(&metric::CPUS).map(whole)) {
        of.insert("all".to_owned(), Data::Count { cnt });
    }
    Data::group([("jobcpus", jobcpus)])
}

fn memory(job: &Job, curves: &Curves) -> Data {
    let used = |at| Some(summary(curves, &metric::MEMORY_USED_BYTES, (at, None))?.mean);
    let limit = |node: &Node| node.values.get(&metric::MEMORY_LIMIT_BYTES).filter(|limit| *limit > 0.0);
    Data::group([
        (
            "usage",
            Data::group([
                ("avg", nodes(job, |at, _| used(at))),
                ("max", nodes(job, |_, node| node.memory_peak())),
            ]),
        ),
        (
            "usageratio",
            Data::group([
                ("avg", nodes(job, |at, node| Some(used(at)? / limit(node)?))),
                ("max", nodes(job, |_, node| node.memory_use())),
            ]),
        ),
        ("limit", nodes(job, |_, node| limit(node))),
    ])
}

fn flops_per_core(node: &Node) -> Option<f64> {
    let cores = node.cores().filter(|cores| *cores > 0.0)?;
    Some(node.values.get(&metric::FLOPS)? / cores)
}

/// The GPUs of a number on all nodes: indices of node and GPU.
type Places = [(usize, usize)];

/// GPUs of the same number on several nodes are a device there.
fn gpus(job: &Job, of: impl Fn(&Places) -> Data) -> Data {
    let mut devices: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, node) in job.nodes.iter().enumerate() {
        for gpu in 0..node.gpus.len() {
            devices.entry(format!("gpu{}", gpu_name(node, gpu))).or_default().push((at, gpu));
        }
    }
    Data::group(devices.into_iter().map(|(name, places)| (name, of(&places))))
}

fn gpu_use(job: &Job, curves: &Curves, places: &Places) -> Data {
    let each =
        |of: &dyn Fn(usize, usize) -> Option<f64>| Data::of(places.iter().map(|(at, gpu)| of(*at, *gpu)));
    let most_active = |at, gpu| {
        let idle = find_curve(curves, &metric::GPU_IDLE_SECONDS, (at, Some(gpu)))?;
        Some(curves.summary(&curves.gpu_busy(idle))?.max * PERCENT)
    };
    Data::group([
        ("gpuactive", each(&|at, gpu| Some(find(job, at, gpu)?.utilization()? * PERCENT))),
        ("gpuactivemax", each(&most_active)),
        (
            "memused",
            each(&|at, gpu| Some(summary(curves, &metric::GPU_MEMORY_USED_BYTES, (at, Some(gpu)))?.mean)),
        ),
        ("memusedmax", each(&|at, gpu| find(job, at, gpu)?.values.get(&metric::GPU_MEMORY_PEAK_BYTES))),
    ])
}

/// A counter's slope is its power.
fn gpu_power(job: &Job, curves: &Curves, places: &Places) -> Data {
    let each =
        |of: &dyn Fn(usize, usize) -> Option<f64>| Data::of(places.iter().map(|(at, gpu)| of(*at, *gpu)));
    let power = |at, gpu| summary(curves, &metric::GPU_ENERGY_JOULES, (at, Some(gpu)));
    let joules = |at, gpu| find(job, at, gpu)?.values.get(&metric::GPU_ENERGY_JOULES);
    Data::group([
        (
            "power",
            Data::group([
                ("mean", each(&|at, gpu| Some(power(at, gpu)?.mean))),
                ("max", each(&|at, gpu| Some(power(at, gpu)?.max))),
            ]),
        ),
        (
            "energy",
            match each(&joules) {
                Data::Stat(of) => {
                    Data::Total { total: places.iter().filter_map(|(at, gpu)| joules(*at, *gpu)).sum(), of }
                }
                missing => missing,
            },
        ),
    ])
}

fn find(job: &Job, at: usize, gpu: usize) -> Option<&Gpu> {
    job.nodes.get(at)?.gpus.get(gpu)
}

fn summary(curves: &Curves, metric: &'static Metric, of: (usize, Option<usize>)) -> Option<Summary> {
    curves.summary(&find_curve(curves, metric, of)?.values)
}

fn find_curve<'a>(
    curves: &'a Curves,
    metric: &'static Metric,
    (node, gpu): (usize, Option<usize>),
) -> Option<&'a Curve> {
    curves.of(metric).find(|curve| (curve.node, curve.gpu) == (Some(node), gpu))
}

const PERCENT: f64 = 100.0;

#[cfg(test)]
mod tests;
