//! A report as one JSON document (docs/export.md has its schema).

use std::io::Write;

use job_report::{
    Advice, Curve, Curves, Ended, Identity, Job, Metric, Node, Numbers, Quality, Report, State, metric,
};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::Error;
use crate::table::{gpu_name, name, unit};

/// The version of the document: a change of a name or a meaning raises it, an addition does not.
const SCHEMA: u32 = 1;

/// Writes a report. Curves are written as they are, not copied.
pub fn write(report: &Report, mut to: impl Write) -> Result<(), Error> {
    let Report { job, numbers, advice, quality } = report;
    let curves = job.curves.as_ref().map(|curves| Over { job, curves });
    serde_json::to_writer(
        &mut to,
        &Document { schema: SCHEMA, job: Head::of(job), numbers, advice, quality, curves },
    )?;
    to.write_all(b"\n")?;
    Ok(())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    job: Head<'a>,
    numbers: &'a Numbers,
    advice: &'a [Advice],
    quality: &'a Quality,
    curves: Option<Over<'a>>,
}

/// A job without its curves.
#[derive(Serialize)]
struct Head<'a> {
    id: u64,
    cluster: &'a Option<String>,
    identity: &'a Identity,
    run: usize,
    runs: usize,
    state: State,
    start: f64,
    until: f64,
    ended: &'a Option<Ended>,
    time_limit: Option<f64>,
    nodes_allocated: Option<u64>,
    queued_seconds: Option<f64>,
    suspended_seconds: Option<f64>,
    restarts: Option<u64>,
    submit: Option<f64>,
    nodes: &'a [Node],
    grams_per_joule: Option<f64>,
}

impl<'a> Head<'a> {
    fn of(job: &'a Job) -> Self {
        let Job {
            id,
            cluster,
            identity,
            run,
            runs,
            ended,
            time_limit,
            nodes_allocated,
            queued_seconds,
            nodes,
            curves: _,
            grams_per_joule,
            restarts,
            evidence,
        } = job;
        Self {
            id: *id,
            cluster,
            identity,
            run: *run,
            runs: *runs,
            state: job.state(),
            start: job.start(),
            until: job.ended_at(),
            ended,
            time_limit: *time_limit,
            nodes_allocated: *nodes_allocated,
            queued_seconds: *queued_seconds,
            suspended_seconds: job.suspended_seconds(),
            restarts: *restarts,
            submit: evidence.accounted.and_then(|run| run.submit),
            nodes,
            grams_per_joule: *grams_per_joule,
        }
    }
}

struct Over<'a> {
    job: &'a Job,
    curves: &'a Curves,
}

impl Serialize for Over<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let curves = self.curves;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("start", &curves.start)?;
        map.serialize_entry("end", &curves.end)?;
        map.serialize_entry("step", &curves.step)?;
        map.serialize_entry("ends", &Each(|| curves.ends()))?;
        map.serialize_entry("metrics", &Metrics { over: self, of: &curves.curves })?;
        if !curves.of_parts.is_empty() {
            map.serialize_entry("of_parts", &Metrics { over: self, of: &curves.of_parts })?;
        }
        map.end()
    }
}

struct Metrics<'a> {
    over: &'a Over<'a>,
    of: &'a [Curve],
}

impl Serialize for Metrics<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for metric in metric::ALL {
            if self.of.iter().any(|curve| curve.metric == *metric) {
                map.serialize_entry(&name(metric), &Of { of: self, metric })?;
            }
        }
        map.end()
    }
}

struct Of<'a> {
    of: &'a Metrics<'a>,
    metric: &'static Metric,
}

impl Serialize for Of<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Metrics { over: Over { job, .. }, of } = self.of;
        let series = || {
            let curves = of.iter().filter(|curve| curve.metric == self.metric);
            curves.map(|curve| Series::of(job, curve))
        };
        let mut map = to.serialize_map(Some(3))?;
        map.serialize_entry("unit", &unit(self.metric))?;
        map.serialize_entry("description", self.metric.help)?;
        map.serialize_entry("series", &Each(series))?;
        map.end()
    }
}

#[derive(Serialize)]
struct Series<'a> {
    node: Option<&'a str>,
    gpu: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    /// A gap is null: JSON has no NaN.
    values: &'a [f64],
}

impl<'a> Series<'a> {
    fn of(job: &'a Job, curve: &'a Curve) -> Self {
        let node = curve.node.and_then(|node| job.nodes.get(node));
        let part = node.zip(curve.part).and_then(|(node, part)| node.parts.get(part));
        Self {
            node: node.map(|node| node.name.as_str()),
            gpu: node.zip(curve.gpu).map(|(node, gpu)| gpu_name(node, gpu)),
            step: part.map(|part| part.step.as_str()),
            task: part.and_then(|part| part.task.as_deref()),
            values: &curve.values,
        }
    }
}

/// Writes one after the other, without a list of them.
struct Each<F>(F);

impl<T: Serialize, I: Iterator<Item = T>, F: Fn() -> I> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut seq = to.serialize_seq(None)?;
        for item in (self.0)() {
            seq.serialize_element(&item)?;
        }
        seq.end()
    }
}

#[cfg(test)]
mod tests;
