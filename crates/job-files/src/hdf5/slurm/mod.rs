//! The layout of SLURM's profile plugin: src/plugins/acct_gather_profile/hdf5/acct_gather_profile_hdf5.c for groups and attributes,
//! src/plugins/jobacct_gather/common/common_jag.c for tasks, src/plugins/acct_gather_{energy,filesystem,interconnect} for the rest.
//!
//! Two things differ on purpose. sh5util leaves the last step without `Number of Nodes`, which is set here. Times of SLURM are local to a
//! node without saying so, and UTC here.

mod members;
mod names;
mod steps;

use std::collections::BTreeMap;

use job_report::metric::{self, Metric};
use job_report::{Curve, Curves, Node, Report};

use self::members::{Form, Member, Series};
use self::steps::{Place, Seen};
use super::writer::{Cells, Value, Writer};
use super::{About, Error};

/// A member and the metrics that it is computed from; `None` if nobody measured them.
type Sourced = (&'static Member, Option<&'static [&'static Metric]>);

/// A series of SLURM's, and what its members are computed from.
struct Sources {
    series: &'static Series,
    members: Vec<Sourced>,
    of_gpus: Vec<Sourced>,
    /// Those of steps and tasks, of which less is measured than of the job.
    of_parts: Vec<Sourced>,
}

impl Sources {
    /// `None` if nobody measured any of it.
    fn of(series: &'static Series, curves: &Curves) -> Option<Self> {
        let sourced = |members: &'static [Member], curves: &[Curve]| -> Vec<Sourced> {
            members.iter().map(|member| (member, source(curves, member))).collect()
        };
        let mut found = Self {
            series,
            members: sourced(series.members, &curves.curves),
            of_gpus: sourced(series.of_gpus, &curves.curves),
            of_parts: sourced(series.members, &curves.of_parts),
        };
        found.of_gpus.retain(|(_, source)| source.is_some());
        let any = found.members.iter().chain(&found.of_gpus).any(|(_, source)| source.is_some());
        (series.of_tasks || any).then_some(found)
    }

    /// The columns of a table: of a node with so many GPUs, or of a part of it.
    fn columns(&self, here: &Curves, gpus: Option<usize>, notes: &mut Notes) -> Vec<(String, Cells)> {
        let mut columns = times(here);
        let mut add = |name: String, (member, source): Sourced, gpu| {
            let values = values(here, member, source, gpu);
            notes.add(&format!("{}/{name}", self.series.name), source, &values);
            columns.push((name, cells(member, &values)));
        };
        let members = if gpus.is_some() { &self.members } else { &self.of_parts };
        members.iter().for_each(|sourced| add(sourced.0.name.to_owned(), *sourced, None));
        // Nodes with fewer GPUs have fewer members.
        for gpu in 0..gpus.unwrap_or(0) {
            let of_gpus = self.of_gpus.iter();
            of_gpus.for_each(|sourced| add(format!("GPU{gpu}{}", sourced.0.name), *sourced, Some(gpu)));
        }
        columns
    }
}

pub(super) fn lay_out(report: &Report, about: &About, file: &mut impl Writer) -> Result<(), Error> {
    let job = &report.job;
    let curves = job.curves.as_ref().filter(|_| !job.nodes.is_empty()).ok_or(Error::NoSamples)?;
    let series: Vec<_> = members::ALL.iter().filter_map(|series| Sources::of(series, curves)).collect();
    let mut notes = Notes::default();
    let folders = names::components(job.nodes.iter().map(|node| node.name.as_str()));
    let (steps, seen) = (steps::of(job), Seen::of(curves));
    file.attribute("", "Number of Steps", int(steps.len()));
    let groups = names::components(steps.iter().map(|step| step.name.as_str()));
    for (step, group) in steps.iter().zip(groups) {
        let group = format!("Steps/{group}");
        file.attribute(&group, "Number of Nodes", int(step.nodes.len()));
        for (index, place) in step.nodes.iter().enumerate() {
            let Some((node, folder)) = job.nodes.get(place.node).zip(folders.get(place.node)) else {
                continue;
            };
            let path = format!("{group}/Nodes/{folder}");
            let bins = steps::seen(&seen.on(place.node, place.part));
            let of = |part| steps::during(&seen.on(place.node, part), &bins);
            let on_node = of(None);
            describe((node, place), (index, on_node.start), &path, &mut notes, file);
            for sources in &series {
                let name = sources.series.name;
                if sources.series.of_tasks {
                    for (task, part) in &place.tasks {
                        let gpus = part.is_none().then_some(node.gpus.len());
                        let columns = sources.columns(&of(*part), gpus, &mut notes);
                        file.table(&format!("{path}/{name}/{task}"), &columns, Vec::new())?;
                    }
                } else {
                    // SLURM has the node's here, too: of steps nobody measures it.
                    let columns = sources.columns(&on_node, Some(node.gpus.len()), &mut notes);
                    file.table(&format!("{path}/{name}"), &columns, Vec::new())?;
                }
            }
        }
    }
    file.attribute("", "jobledger:version", Value::Text(env!("CARGO_PKG_VERSION").to_owned()));
    if let Some(source) = &about.source {
        file.attribute("", "jobledger:source", Value::Text(source.clone()));
    }
    file.attribute("", "jobledger:absent", Value::Texts(notes.absent()));
    file.attribute("", "jobledger:measured", Value::Texts(notes.measured()));
    Ok(())
}

/// The attributes of a step on a node: which of its nodes it is, and when it began.
fn describe(
    (node, place): (&Node, &Place),
    (index, begin): (usize, f64),
    path: &str,
    notes: &mut Notes,
    file: &mut impl Writer,
) {
    let step = place.part.and_then(|part| node.parts.get(part)).map(|part| &part.values);
    let cpus = step.unwrap_or(&node.values).get(&metric::CPUS);
    notes.count("CPUs per Task", "steps on nodes", &[cpus]);
    let of_each = whole(cpus) / u64::try_from(place.tasks.len().max(1)).unwrap_or(u64::MAX);
    file.attribute(path, "Node Index", int(index));
    file.attribute(path, "Node Name", Value::FixedText(node.name.clone()));
    file.attribute(path, "Number of Tasks", int(place.tasks.len()));
    file.attribute(path, "CPUs per Task", Value::Int(i32::try_from(of_each).unwrap_or(i32::MAX)));
    file.attribute(path, "Start Time", Value::FixedText(names::ctime(begin)));
}

/// What a reader has to know of members: the layout has no room for it.
#[derive(Default)]
struct Notes {
    /// How many are missing and written as 0, of how many of what.
    absent: BTreeMap<String, (usize, usize, &'static str)>,
    /// The metrics that it is computed from.
    measured: BTreeMap<String, String>,
}

impl Notes {
    fn add(&mut self, member: &str, source: Option<&[&Metric]>, values: &[Option<f64>]) {
        self.count(member, "samples", values);
        if let Some(metrics) = source {
            let keys: Vec<_> = metrics.iter().map(|metric| metric.key).collect();
            self.measured.insert(member.to_owned(), keys.join(", "));
        }
    }

    fn count(&mut self, member: &str, of: &'static str, values: &[Option<f64>]) {
        let (missing, all, _) = self.absent.entry(member.to_owned()).or_insert((0, 0, of));
        *missing += values.iter().filter(|value| value.is_none()).count();
        *all += values.len();
    }

    fn absent(&self) -> Vec<String> {
        let missing = self.absent.iter().filter(|(_, (missing, ..))| *missing > 0);
        missing.map(|(member, (missing, all, of))| format!("{member}: {missing} of {all} {of}")).collect()
    }

    fn measured(&self) -> Vec<String> {
        self.measured.iter().map(|(member, metrics)| format!("{member}: {metrics}")).collect()
    }
}

/// The metrics that a member is computed from: the first choice of which a node, or a part of one, has all. `None` if nobody measured it.
fn source(curves: &[Curve], member: &Member) -> Option<&'static [&'static Metric]> {
    let has = |of: &Curve, metric: &Metric| {
        let is_it = |curve: &Curve| curve.metric == metric && (curve.node, curve.part) == (of.node, of.part);
        curves.iter().any(is_it)
    };
    let measured = |metrics: &[&'static Metric]| {
        let first = metrics.first()?;
        let mut of_first = curves.iter().filter(|curve| curve.metric == *first && curve.node.is_some());
        of_first.find(|of| metrics.iter().all(|metric| has(of, metric)))
    };
    member.from.iter().copied().find(|metrics| measured(metrics).is_some())
}

/// A metric on a node, of one of its GPUs or of all. `None` if there is no curve.
fn curve(here: &Curves, metric: &Metric, gpu: Option<usize>) -> Option<Vec<f64>> {
    let mut parts = here.of(metric).filter(|curve| gpu.is_none() || curve.gpu == gpu);
    let mut sums = parts.next()?.values.clone();
    for part in parts {
        // A sum without one of its parts is not known.
        let values = part.values.iter().copied().chain(std::iter::repeat(f64::NAN));
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    Some(sums)
}

/// The values of a member at the ends of the bins, of a node or of one of its GPUs.
fn values(
    here: &Curves,
    member: &Member,
    source: Option<&[&Metric]>,
    gpu: Option<usize>,
) -> Vec<Option<f64>> {
    let metrics = source.unwrap_or_default();
    let parts: Option<Vec<Vec<f64>>> = match member.form {
        Form::GpusBusy(_) => here.gpus_busy().map(|busy| vec![busy]),
        _ => metrics.iter().map(|metric| curve(here, metric, gpu)).collect(),
    };
    let parts = parts.unwrap_or_default();
    let (mut begin, mut total) = (here.start, 0.0);
    here.ends()
        .enumerate()
        .map(|(bin, end)| {
            let length = end - begin;
            begin = end;
            let mut values = parts.iter().map(|part| part.get(bin).copied().unwrap_or(f64::NAN));
            let first = values.next()?;
            let value = match member.form {
                Form::Quotient(scale) => scale * first / values.next()?,
                Form::Level(scale) | Form::GpusBusy(scale) => scale * (first + values.sum::<f64>()),
                Form::Increase(scale) => scale * (first + values.sum::<f64>()) * length,
                Form::Total(scale) => total + scale * (first + values.sum::<f64>()) * length,
            };
            let value = Some(value).filter(|value| value.is_finite());
            if let (Form::Total(_), Some(value)) = (member.form, value) {
                total = value;
            }
            value
        })
        .collect()
}

fn times(curves: &Curves) -> Vec<(String, Cells)> {
    let elapsed = curves.ends().map(|end| whole(Some(end - curves.start))).collect();
    let epoch = curves.ends().map(|end| whole(Some(end))).collect();
    vec![
        ("ElapsedTime".to_owned(), Cells::Unsigned(elapsed)),
        ("EpochTime".to_owned(), Cells::Unsigned(epoch)),
    ]
}

/// Where a value is not known a total does not change, and all else is 0.
fn cells(member: &Member, values: &[Option<f64>]) -> Cells {
    let mut last = 0.0;
    let values = values.iter().map(|value| {
        let value = value.unwrap_or(last);
        if matches!(member.form, Form::Total(_)) {
            last = value;
        }
        value
    });
    if member.whole {
        Cells::Unsigned(values.map(|value| whole(Some(value))).collect())
    } else {
        Cells::Numbers(values.collect())
    }
}

/// The nearest integer; 0 is all that the layout has for what is not known.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: Option<f64>) -> u64 {
    value.unwrap_or(0.0).round() as u64
}

fn int(number: usize) -> Value {
    Value::Int(i32::try_from(number).unwrap_or(i32::MAX))
}
