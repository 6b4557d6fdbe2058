//! Jobledger's own layout (docs/hdf5.md).

use job_report::metric::{self, Kind, Metric, Unit};
use job_report::{Advice, Curve, Gpu, Job, Node, Origin, Report, Severity, State};

use super::writer::{Attributes, Cells, Value, Writer};
use super::{About, Error, seen};

/// The version of the layout. It changes when a reader has to.
const SCHEMA: u64 = 1;

/// The unit of times as netCDF's conventions write it, which xarray knows.
const EPOCH: &str = "seconds since 1970-01-01 00:00:00 UTC";

pub(super) fn lay_out(report: Report, about: &About, file: &mut impl Writer) -> Result<(), Error> {
    root(&report.job, about, file);
    let names: Vec<String> = report.job.nodes.iter().map(|node| node.name.clone()).collect();
    file.texts("nodes", &names, vec![described("Names of the nodes, in the order of all rows of nodes")]);
    gpus(&report.job, file)?;
    parts(&report.job, file)?;
    totals(&report.job, file);
    quality(&report, file);
    advice(&report, file)?;
    curves(report.job, file);
    Ok(())
}

fn root(job: &Job, about: &About, file: &mut impl Writer) {
    let identity = &job.identity;
    let state = match job.state() {
        State::Running => "running",
        State::Ended => "ended",
        State::NotSeen => "not_seen",
    };
    let origin = job.ended.as_ref().map(|ended| match ended.origin {
        Origin::Accounting => "accounting",
        Origin::Derived => "derived",
    });
    let texts = [
        ("jobledger_version", Some(env!("CARGO_PKG_VERSION"))),
        ("source", about.source.as_deref()),
        ("cluster", job.cluster.as_deref()),
        ("user", Some(&identity.user)),
        ("uid", Some(&identity.uid)),
        ("account", Some(&identity.account)),
        ("partition", Some(&identity.partition)),
        ("qos", Some(&identity.qos)),
        ("name", Some(&identity.name)),
        ("array_job_id", Some(&identity.array_job_id)),
        ("array_task_id", Some(&identity.array_task_id)),
        ("het_job_id", Some(&identity.het_job_id)),
        ("sluid", Some(&identity.sluid)),
        ("state", Some(state)),
        ("slurm_state", job.ended.as_ref().map(|ended| ended.state.as_str())),
        ("slurm_state_origin", origin),
    ];
    for (name, text) in texts {
        // An empty one is not known.
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            file.attribute("", name, Value::Text(text.to_owned()));
        }
    }
    let unsigned = [
        ("schema", Some(SCHEMA)),
        ("jobid", Some(job.id)),
        ("run", u64::try_from(job.run).ok()),
        ("runs", u64::try_from(job.runs).ok()),
        ("exit_code", job.ended.as_ref().and_then(|ended| ended.exit_code)),
        ("signal", job.ended.as_ref().and_then(|ended| ended.signal)),
    ];
    for (name, number) in unsigned {
        number.into_iter().for_each(|number| file.attribute("", name, Value::Unsigned(number)));
    }
    let numbers = [
        ("start", Some(job.start())),
        ("end", Some(job.until()).filter(|_| job.state() == State::Ended)),
        ("seen_until", Some(job.until())),
        ("generated", Some(about.generated)),
        ("step_seconds", job.curves.as_ref().map(|curves| curves.step)),
        ("time_limit_seconds", job.time_limit),
        ("queued_seconds", job.queued_seconds),
        ("grams_per_joule", job.grams_per_joule),
    ];
    for (name, number) in numbers {
        number.into_iter().for_each(|number| file.attribute("", name, Value::Number(number)));
    }
}

fn gpus(job: &Job, file: &mut impl Writer) -> Result<(), Error> {
    let texts = |of: fn(&Gpu) -> &String| Cells::Texts(job.gpus().map(|(_, gpu)| of(gpu).clone()).collect());
    let nodes = job.nodes.iter().zip(0..).flat_map(|(node, index)| node.gpus.iter().map(move |_| index));
    let columns = [
        ("node".to_owned(), Cells::Unsigned(nodes.collect())),
        ("gpu".to_owned(), texts(|gpu| &gpu.index)),
        ("uuid".to_owned(), texts(|gpu| &gpu.uuid)),
        ("model".to_owned(), texts(|gpu| &gpu.model)),
        ("profile".to_owned(), texts(|gpu| &gpu.profile)),
        ("shared".to_owned(), Cells::Unsigned(job.gpus().map(|(_, gpu)| u64::from(gpu.shared)).collect())),
    ];
    let text = "GPUs, in the order of all rows of GPUs; node is an index of /nodes";
    file.table("gpus", &columns, vec![described(text)])
}

/// None where the exporter does not publish them.
fn parts(job: &Job, file: &mut impl Writer) -> Result<(), Error> {
    let all = || {
        job.nodes.iter().zip(0..).flat_map(|(node, index)| node.parts.iter().map(move |part| (index, part)))
    };
    if all().next().is_none() {
        return Ok(());
    }
    let columns = [
        ("node".to_owned(), Cells::Unsigned(all().map(|(node, _)| node).collect())),
        ("step".to_owned(), Cells::Texts(all().map(|(_, part)| part.step.clone()).collect())),
        (
            "task".to_owned(),
            Cells::Texts(all().map(|(_, part)| part.task.clone().unwrap_or_default()).collect()),
        ),
    ];
    let text = "Steps and tasks, in the order of all rows of parts; node is an index of /nodes, task is empty of a step";
    file.table("parts", &columns, vec![described(text)])
}

fn totals(job: &Job, file: &mut impl Writer) {
    for metric in metric::ALL {
        let nodes = job.nodes.iter().map(|node| node.values.get(metric));
        let gpus = job.gpus().map(|(_, gpu)| gpu.values.get(metric));
        let parts = job.nodes.iter().flat_map(|node| &node.parts).map(|part| part.values.get(metric));
        let each = [("node", nodes.collect::<Vec<_>>()), ("gpu", gpus.collect()), ("part", parts.collect())];
        for (of, values) in each {
            if values.iter().any(Option::is_some) {
                let values: Vec<f64> = values.into_iter().map(seen).collect();
                let path = format!("totals/{of}/{}", metric.key);
                file.vector(&path, &values, about(metric, unit(metric.unit, false), &[of]));
            }
        }
    }
}

fn quality(report: &Report, file: &mut impl Writer) {
    let quality = &report.quality;
    for (name, nodes) in [
        ("nodes_seen", u64::try_from(quality.nodes_seen).ok()),
        ("nodes_allocated", quality.nodes_allocated),
        ("ends_not_seen", u64::try_from(quality.ends_not_seen).ok()),
    ] {
        nodes.into_iter().for_each(|nodes| file.attribute("quality", name, Value::Unsigned(nodes)));
    }
    if let Some(coverage) = quality.coverage {
        file.attribute("quality", "coverage", Value::Number(coverage));
    }
    if !quality.notes.is_empty() {
        file.attribute("quality", "notes", Value::Texts(quality.notes.clone()));
    }
    type Of = fn(&Node) -> Option<f64>;
    let columns: [(&str, Of, &str, &str); 4] = [
        ("start", |node| Some(node.start), EPOCH, "When the job started on the node"),
        ("end", |node| node.end, EPOCH, "When it ended there"),
        ("seen_until", |node| Some(node.seen_until), EPOCH, "When it was last seen there"),
        ("coverage", |node| node.coverage, "1", "Part of its time there that scrapes cover"),
    ];
    for (name, of, unit, text) in columns {
        let values: Vec<f64> = report.job.nodes.iter().map(|node| seen(of(node))).collect();
        let attributes = vec![described(text), ("unit", Value::Word(unit.to_owned())), dimensions(&["node"])];
        file.vector(&format!("quality/{name}"), &values, attributes);
    }
}

fn advice(report: &Report, file: &mut impl Writer) -> Result<(), Error> {
    let texts = |of: fn(&Advice) -> &str| {
        Cells::Texts(report.advice.iter().map(|item| of(item).to_owned()).collect())
    };
    let severity = |item: &Advice| match item.severity {
        Severity::Bad => "bad",
        Severity::Warning => "warning",
        Severity::Hint => "hint",
    };
    let columns = [
        ("id".to_owned(), texts(|item| item.piece.name())),
        ("severity".to_owned(), texts(severity)),
        ("what".to_owned(), texts(|item| &item.what)),
        ("measured".to_owned(), texts(|item| &item.measured)),
        ("threshold".to_owned(), texts(|item| &item.threshold)),
        ("change".to_owned(), texts(|item| &item.change)),
        ("sbatch".to_owned(), texts(|item| item.sbatch.as_deref().unwrap_or_default())),
    ];
    let text = "What to change, the most important first; sbatch is empty where no option says it";
    file.table("advice", &columns, vec![described(text)])
}

fn curves(job: Job, file: &mut impl Writer) {
    let Job { nodes, curves, .. } = job;
    let Some(mut curves) = curves else { return };
    let bins = curves.bins();
    let text = "Ends of the bins; the first one begins at the attribute start of this dataset";
    let attributes = vec![
        described(text),
        ("start", Value::Number(curves.start)),
        ("units", Value::Word(EPOCH.to_owned())),
        dimensions(&["time"]),
    ];
    file.vector("time", &curves.ends().collect::<Vec<_>>(), attributes);
    let (gpus, parts) =
        (Place::of(&nodes, |node| node.gpus.len()), Place::of(&nodes, |node| node.parts.len()));
    for metric in metric::ALL {
        let of_all = if metric.adds_up() { curves.sum(metric) } else { curves.most(metric) };
        let Some(of_all) = of_all else { continue };
        let unit = unit(metric.unit, metric.kind == Kind::Counter);
        let mut attributes = about(metric, unit.clone(), &["time"]);
        let join = if metric.adds_up() { "sum" } else { "highest" };
        attributes.push((join, Value::Word("of what was seen of nodes and GPUs".to_owned())));
        file.vector(&format!("job/{}", metric.key), &of_all, attributes);
        let (mut by_node, mut by_gpu, mut by_part) = (Rows::default(), Rows::default(), Rows::default());
        for Curve { node, gpu, values, .. } in curves.curves.extract_if(.., |curve| curve.metric == *metric) {
            match (node, gpu) {
                (Some(node), None) => by_node.set(node, nodes.len(), values, bins),
                (Some(node), Some(gpu)) => {
                    if let Some(row) = gpus.row(node, gpu) {
                        by_gpu.set(row, gpus.rows(), values, bins);
                    }
                }
                (None, _) => {}
            }
        }
        for Curve { node, part, values, .. } in
            curves.of_parts.extract_if(.., |curve| curve.metric == *metric)
        {
            if let Some(row) = node.zip(part).and_then(|(node, part)| parts.row(node, part)) {
                by_part.set(row, parts.rows(), values, bins);
            }
        }
        for (of, Rows(rows)) in [("node", by_node), ("gpu", by_gpu), ("part", by_part)] {
            if !rows.is_empty() {
                let path = format!("{of}/{}", metric.key);
                file.matrix(&path, rows, about(metric, unit.clone(), &[of, "time"]));
            }
        }
    }
}

/// Where the rows of the GPUs, or of the parts, of each node begin, and where the last ends.
struct Place(Vec<usize>);

impl Place {
    fn of(nodes: &[Node], count: impl Fn(&Node) -> usize) -> Self {
        let mut begins = vec![0];
        for node in nodes {
            begins.push(begins.last().copied().unwrap_or_default() + count(node));
        }
        Self(begins)
    }

    fn rows(&self) -> usize {
        self.0.last().copied().unwrap_or_default()
    }

    /// `None` of what is none of the node's.
    fn row(&self, node: usize, index: usize) -> Option<usize> {
        let row = self.0.get(node)? + index;
        (row < *self.0.get(node + 1)?).then_some(row)
    }
}

/// The rows of a dataset, one for each node, GPU or part; none as long as there is no curve.
#[derive(Default)]
struct Rows(Vec<Vec<f64>>);

impl Rows {
    fn set(&mut self, row: usize, rows: usize, mut values: Vec<f64>, bins: usize) {
        if self.0.is_empty() && row < rows {
            self.0 = vec![vec![f64::NAN; bins]; rows];
        }
        if let Some(slot) = self.0.get_mut(row) {
            values.resize(bins, f64::NAN);
            values.iter_mut().for_each(|value| *value = seen(Some(*value)));
            *slot = values;
        }
    }
}

fn about(metric: &Metric, unit: String, dimensions: &[&str]) -> Attributes {
    let selectors: Vec<String> =
        metric.labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    let series = match selectors.as_slice() {
        [] => metric.series.to_owned(),
        selectors => format!("{}{{{}}}", metric.series, selectors.join(",")),
    };
    let unit = ("unit", Value::Word(unit));
    vec![described(metric.help), unit, ("series", Value::Word(series)), self::dimensions(dimensions)]
}

fn unit(unit: Unit, per_second: bool) -> String {
    let word = if unit == Unit::Count { "1" } else { unit.word() };
    if per_second { format!("{word} per second") } else { word.to_owned() }
}

fn described(text: &str) -> (&'static str, Value) {
    ("description", Value::Word(text.to_owned()))
}

/// Names of dimensions, as in a shape.
fn dimensions(names: &[&str]) -> (&'static str, Value) {
    ("dimensions", Value::Word(names.join(", ")))
}
