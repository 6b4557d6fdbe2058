//! A job for ClusterCockpit's job archive: `CLUSTER/ID÷1000/ID mod 1000/START/{meta.json,data.json}` (ClusterCockpit/cc-specifications,
//! job-meta, job-data, job-metric-data, job-metric-statistics and unit.schema.json).
//!
//! The archive's `cluster.json` describes the site's hardware and is the site's to write.

mod metrics;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use job_report::{Job, State, metric};
use serde::Serialize;

use crate::Error;
use crate::atomic;
use crate::table::whole;
use metrics::{Measured, Statistics, Unit};

/// What the archive demands and the job's data do not have.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The part of the cluster, as the archive's `cluster.json` calls it.
    pub sub_cluster: String,
    /// Whether others could have jobs on the nodes: 0 anybody, 1 nobody, 2 the same user.
    pub exclusive: Option<u8>,
    /// Writes a job of which something is not known: 0, or an empty text, stands for it, and a tag of type `missing` names it.
    pub force: bool,
}

/// Writes both files below `archive`, and answers with their directory. If that fails, the files that were there are as they were.
pub fn write(job: &Job, options: &Options, archive: &Path) -> Result<PathBuf, Error> {
    let record = Record::new(job, options)?;
    let directory = archive.join(directory(job)?);
    std::fs::create_dir_all(&directory)?;
    // The archive has the job once its meta.json is there, and that is put there last.
    atomic::write(&directory.join("meta.json"), |meta| {
        record.write_meta(&mut *meta)?;
        meta.flush()?;
        atomic::write(&directory.join("data.json"), |data| record.write_data(data))
    })?;
    Ok(directory)
}

/// Where the archive has a job.
pub fn directory(job: &Job) -> Result<PathBuf, Error> {
    let cluster =
        job.cluster.as_deref().filter(|name| !name.is_empty()).ok_or(Error::Missing(vec!["cluster"]))?;
    if [".", ".."].contains(&cluster) || cluster.contains(['/', '\0']) {
        return Err(Error::Directory(cluster.to_owned()));
    }
    let mut path = PathBuf::from(cluster);
    path.extend([
        (job.id / 1000).to_string(),
        format!("{:03}", job.id % 1000),
        whole(job.start()).to_string(),
    ]);
    Ok(path)
}

/// Both files of a job.
#[derive(Debug)]
pub struct Record<'a> {
    meta: Meta<'a>,
    data: BTreeMap<&'static str, BTreeMap<&'static str, MetricData>>,
}

impl<'a> Record<'a> {
    /// Lays out a job. Fails if something is not known, unless it is forced.
    pub fn new(job: &'a Job, options: &'a Options) -> Result<Self, Error> {
        let curves = job.curves.as_ref().ok_or(Error::NoCurves)?;
        let timestep = whole(curves.step);
        #[allow(clippy::float_cmp, reason = "a whole number or not")]
        if timestep == 0 || timestep.to_string() != curves.step.to_string() {
            return Err(Error::Step(curves.step));
        }
        let measured = metrics::measured(job, curves);
        let known = |text: &'a str, name| if text.is_empty() { Err(name) } else { Ok(text) };
        let mut missing = Vec::new();
        let mut or_not = |known: Result<&'a str, &'static str>| {
            known.unwrap_or_else(|name| {
                missing.push(name);
                ""
            })
        };
        let user = or_not(known(&job.identity.user, "user"));
        let project = or_not(known(&job.identity.account, "project"));
        let sub_cluster = or_not(known(&options.sub_cluster, "subCluster"));
        let job_state = job_state(job).unwrap_or_else(|| {
            missing.push("jobState");
            // No state is empty. This one says nothing of success.
            "stopped"
        });
        let exclusive = options.exclusive.unwrap_or_else(|| {
            missing.push("exclusive");
            0
        });
        let mut statistics: BTreeMap<_, _> =
            measured.iter().map(|of| (of.name, JobStatistics { unit: of.unit, of: of.statistics })).collect();
        let mut data: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for of in measured {
            data.entry(of.name).or_default().insert(of.scope.word(), MetricData::new(of, timestep));
        }
        for (name, unit) in metrics::DEMANDED {
            if !statistics.contains_key(name) {
                missing.push(name);
                statistics.insert(name, JobStatistics { unit: *unit, of: Statistics::default() });
            }
        }
        if !(missing.is_empty() || options.force) {
            return Err(Error::Missing(missing));
        }
        let meta = Meta {
            job_id: job.id,
            user,
            project,
            cluster: job.cluster.as_deref().unwrap_or_default(),
            sub_cluster,
            partition: Some(job.identity.partition.as_str()).filter(|text| !text.is_empty()),
            array_job_id: job.identity.array_job_id.parse().ok(),
            num_nodes: job.nodes_allocated.unwrap_or(job.nodes.len() as u64),
            num_hwthreads: job.total(&metric::CPUS).map(whole).filter(|cpus| *cpus > 0),
            num_acc: Some(job.gpus().count()).filter(|gpus| *gpus > 0),
            exclusive,
            walltime: job.time_limit.map(whole).filter(|limit| *limit > 0),
            job_state,
            start_time: whole(job.start()),
            // A job shorter than a second has the least that the schema allows.
            duration: whole(job.elapsed()).max(1),
            resources: job.nodes.iter().map(Resource::of).collect(),
            meta_data: MetaData { job_name: &job.identity.name },
            tags: missing.iter().map(|name| Tag { kind: "missing", name }).collect(),
            statistics,
        };
        Ok(Self { meta, data })
    }

    /// `meta.json`.
    pub fn write_meta(&self, to: impl Write) -> Result<(), Error> {
        Ok(serde_json::to_writer(to, &self.meta)?)
    }

    /// `data.json`.
    pub fn write_data(&self, to: impl Write) -> Result<(), Error> {
        Ok(serde_json::to_writer(to, &self.data)?)
    }
}

/// SLURM's state in the archive's words, where the job's end is known.
fn job_state(job: &Job) -> Option<&'static str> {
    if job.state() != State::Ended {
        return None;
    }
    match job.ended.as_ref()?.state.as_str() {
        "COMPLETED" => Some("completed"),
        "FAILED" | "NODE_FAIL" | "BOOT_FAIL" => Some("failed"),
        "CANCELLED" | "PREEMPTED" | "REVOKED" => Some("cancelled"),
        "OUT_OF_MEMORY" => Some("out_of_memory"),
        "TIMEOUT" | "DEADLINE" => Some("timeout"),
        _ => None,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    job_id: u64,
    user: &'a str,
    project: &'a str,
    cluster: &'a str,
    sub_cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    array_job_id: Option<u64>,
    num_nodes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_hwthreads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_acc: Option<usize>,
    exclusive: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    walltime: Option<u64>,
    job_state: &'static str,
    start_time: u64,
    duration: u64,
    resources: Vec<Resource<'a>>,
    meta_data: MetaData<'a>,
    tags: BTreeSet<Tag>,
    statistics: BTreeMap<&'static str, JobStatistics>,
}

#[derive(Debug, Serialize)]
struct Resource<'a> {
    hostname: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accelerators: Vec<&'a str>,
}

impl<'a> Resource<'a> {
    fn of(node: &'a job_report::Node) -> Self {
        let accelerators = (0..node.gpus.len()).map(|gpu| metrics::accelerator(node, gpu)).collect();
        Self { hostname: &node.name, accelerators }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MetaData<'a> {
    job_name: &'a str,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Tag {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
}

#[derive(Debug, Serialize)]
struct JobStatistics {
    unit: Unit,
    #[serde(flatten)]
    of: Statistics,
}

#[derive(Debug, Serialize)]
struct MetricData {
    unit: Unit,
    timestep: u64,
    series: Vec<metrics::Series>,
}

impl MetricData {
    fn new(of: Measured, timestep: u64) -> Self {
        Self { unit: of.unit, timestep, series: of.series }
    }
}

#[cfg(test)]
mod tests;
