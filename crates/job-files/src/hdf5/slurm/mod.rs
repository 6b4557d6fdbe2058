//! The layout of SLURM's profile plugin: src/plugins/acct_gather_profile/hdf5/acct_gather_profile_hdf5.c for groups and attributes,
//! src/plugins/jobacct_gather/common/common_jag.c for tasks, src/plugins/acct_gather_{energy,filesystem,interconnect} for the rest.
//!
//! Two things differ on purpose. sh5util leaves the last step without `Number of Nodes`, which is set here. Times of SLURM are local to a
//! node without saying so, and UTC here.

mod members;
mod names;

use std::collections::BTreeMap;

use job_report::metric::{self, Metric};
use job_report::{Curves, Report};

use self::members::{Form, Member};
use super::writer::{Cells, Value, Writer};
use super::{About, Error};

/// What is known is of the job, not of its steps: it is in the step of the batch script.
const STEP: &str = "Steps/batch";
/// The only table of tasks of a node.
const TASK: &str = "0";

/// A member and the metrics that it is computed from; `None` if nobody measured them.
type Sourced = (&'static Member, Option<&'static [&'static Metric]>);

pub(super) fn lay_out(report: &Report, about: &About, file: &mut impl Writer) -> Result<(), Error> {
    let job = &report.job;
    let curves = job.curves.as_ref().filter(|_| !job.nodes.is_empty()).ok_or(Error::NoSamples)?;
    let sourced = |members: &'static [Member]| -> Vec<Sourced> {
        members.iter().map(|member| (member, source(curves, member))).collect()
    };
    let mut series: Vec<_> = members::ALL
        .iter()
        .map(|series| (series, sourced(series.members), sourced(series.of_gpus)))
        .collect();
    series.iter_mut().for_each(|(_, _, of_gpus)| of_gpus.retain(|(_, source)| source.is_some()));
    series.retain(|(series, members, of_gpus)| {
        series.of_tasks || members.iter().chain(of_gpus).any(|(_, source)| source.is_some())
    });

    let mut notes = Notes::default();
    let folders = names::components(job.nodes.iter().map(|node| node.name.as_str()));
    file.attribute("", "Number of Steps", Value::Int(1));
    file.attribute(STEP, "Number of Nodes", int(job.nodes.len()));
    for (index, (node, folder)) in job.nodes.iter().zip(&folders).enumerate() {
        let path = format!("{STEP}/Nodes/{folder}");
        let cpus = node.values.get(&metric::CPUS);
        notes.count("CPUs per Task", "nodes", &[cpus]);
        file.attribute(&path, "Node Index", int(index));
        file.attribute(&path, "Node Name", Value::FixedText(node.name.clone()));
        file.attribute(&path, "Number of Tasks", Value::Int(1));
        file.attribute(&path, "CPUs per Task", Value::Int(i32::try_from(whole(cpus)).unwrap_or(i32::MAX)));
        file.attribute(&path, "Start Time", Value::FixedText(names::ctime(curves.start)));
        let here = of_node(curves, index);
        for (series, members, of_gpus) in &series {
            let mut columns = times(&here);
            let mut add = |name: String, (member, source): Sourced, gpu| {
                let values = values(&here, member, source, gpu);
                notes.add(&format!("{}/{name}", series.name), source, &values);
                columns.push((name, cells(member, &values)));
            };
            members.iter().for_each(|sourced| add(sourced.0.name.to_owned(), *sourced, None));
            // Nodes with fewer GPUs have fewer members.
            for gpu in 0..node.gpus.len() {
                of_gpus
                    .iter()
                    .for_each(|sourced| add(format!("GPU{gpu}{}", sourced.0.name), *sourced, Some(gpu)));
            }
            let below = if series.of_tasks { format!("/{TASK}") } else { String::new() };
            file.table(&format!("{path}/{}{below}", series.name), &columns, Vec::new())?;
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

/// The metrics that a member is computed from: the first choice of which a node has all. `None` if nobody measured it.
fn source(curves: &Curves, member: &Member) -> Option<&'static [&'static Metric]> {
    let has = |node, metric: &Metric| curves.of(metric).any(|curve| curve.node == Some(node));
    let measured = |metrics: &[&'static Metric]| {
        let first = metrics.first()?;
        let mut nodes = curves.of(first).filter_map(|curve| curve.node);
        nodes.find(|node| metrics.iter().all(|metric| has(*node, metric)))
    };
    member.from.iter().copied().find(|metrics| measured(metrics).is_some())
}

/// What was seen on a node.
fn of_node(curves: &Curves, node: usize) -> Curves {
    let Curves { start, end, step, .. } = *curves;
    let here = curves.curves.iter().filter(|curve| curve.node == Some(node));
    Curves { start, end, step, curves: here.cloned().collect() }
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
