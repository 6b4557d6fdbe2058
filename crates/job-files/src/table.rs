//! A job's curves as rows and columns, for formats that have these.
//!
//! A row is of the moment at which its bin ends. Gauges have their value then, counters their mean increase per second in the bin.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use job_report::metric::{self, Kind, Unit};
use job_report::{Curve, Curves, Job, Metric, Node, Part};

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A node of the job. What is measured of GPUs is that of all its GPUs there.
    Node,
    /// A GPU. What is measured of nodes is left out.
    Gpu,
    /// The job on all nodes.
    Job,
    /// A step on a node. What is not measured of steps is left out.
    Step,
    /// A task of a step on a node.
    Task,
}

impl By {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            By::Node => "node",
            By::Gpu => "gpu",
            By::Job => "job",
            By::Step => "step",
            By::Task => "task",
        }
    }

    /// The columns that say what a row is of.
    pub fn keys(self) -> &'static [Key] {
        match self {
            By::Job => &[],
            By::Node => &[Key::Node],
            By::Gpu => &[Key::Node, Key::Gpu],
            By::Step => &[Key::Node, Key::Step],
            By::Task => &[Key::Node, Key::Step, Key::Task],
        }
    }

    fn has(self, curve: &Curve) -> bool {
        match self {
            By::Node => curve.node.is_some(),
            By::Gpu => curve.node.is_some() && curve.gpu.is_some(),
            By::Job | By::Step | By::Task => true,
        }
    }

    fn is_of(self, part: &Part) -> bool {
        match self {
            By::Step => part.task.is_none(),
            By::Task => part.task.is_some(),
            By::Node | By::Gpu | By::Job => false,
        }
    }
}

/// A column that says what a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Key {
    Node,
    Gpu,
    Step,
    Task,
}

impl Key {
    /// The name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Key::Node => "node",
            Key::Gpu => "gpu",
            Key::Step => "step",
            Key::Task => "task",
        }
    }
}

/// Which columns there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A column for each metric.
    Wide,
    /// Columns for the metric, its unit, and the value. What a node or GPU does not have at all has no rows.
    Long,
}

impl Layout {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Layout::Wide => "wide",
            Layout::Long => "long",
        }
    }
}

/// The name of a metric's column: its key, and of a counter `_per_second`.
pub fn name(metric: &Metric) -> String {
    format!("{}{}", metric.key, per_second(metric))
}

/// The unit of a metric's column; of a mere number it is `count`.
pub fn unit(metric: &Metric) -> String {
    let word = if metric.unit == Unit::Count { "count" } else { metric.unit.word() };
    format!("{word}{}", per_second(metric))
}

fn per_second(metric: &Metric) -> &'static str {
    if metric.kind == Kind::Counter { "_per_second" } else { "" }
}

/// What a GPU is called among those of its node: its index; its UUID where it has none of its own, as parts of a divided GPU may not.
pub fn gpu_name(node: &Node, gpu: usize) -> &str {
    let Some(of) = node.gpus.get(gpu) else { return "" };
    let alike = node.gpus.iter().filter(|other| other.index == of.index).count();
    if of.index.is_empty() || alike > 1 { &of.uuid } else { &of.index }
}

/// The rows of a node, of a GPU, of a step or task, or of the job: one for each bin.
#[derive(Debug)]
pub struct Block<'a> {
    /// What the rows are of, in the order of [`By::keys`].
    names: Vec<&'a str>,
    /// The bins of which it has rows: of steps and tasks those from the first to the last with a value.
    pub rows: Range<usize>,
    /// The values of each column; `None` if there is nothing.
    columns: Vec<Option<Cow<'a, [f64]>>>,
}

impl Block<'_> {
    /// What the rows are of, in the order of [`By::keys`].
    pub fn names(&self) -> &[&str] {
        &self.names
    }

    /// The node, if the rows are of one.
    pub fn node(&self) -> Option<&str> {
        self.names.first().copied()
    }

    /// Whether there is anything of a column.
    pub fn has(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(Option::is_some)
    }

    /// Leaves out the rows before the first value and after the last.
    fn of_its_time(mut self) -> Self {
        let has = |row: &usize| (0..self.columns.len()).any(|column| self.value(column, *row).is_some());
        let first = self.rows.clone().find(has);
        let last = self.rows.clone().rev().find(has);
        self.rows = first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
        self
    }

    /// What is in a cell; `None` is a gap.
    pub fn value(&self, column: usize, row: usize) -> Option<f64> {
        self.columns.get(column)?.as_ref()?.get(row).copied().filter(|value| value.is_finite())
    }
}

/// A metric, and indices of a node and of a part of it.
type Place<'a> = (&'a str, Option<usize>, Option<usize>);

/// A job's curves as rows and columns.
#[derive(Debug)]
pub struct Table<'a> {
    /// What a row is of.
    pub by: By,
    /// When the bins end: milliseconds since the epoch.
    pub times: Vec<i64>,
    /// The columns, in the order of reports.
    pub metrics: Vec<&'static Metric>,
    /// The rows, those of a node side by side.
    pub blocks: Vec<Block<'a>>,
}

impl<'a> Table<'a> {
    /// Lays out a job; `None` if it has no curves.
    pub fn new(job: &'a Job, by: By) -> Option<Self> {
        let curves = job.curves.as_ref()?;
        let mut seen = BTreeSet::new();
        let mut of: BTreeMap<Place<'_>, Vec<&Curve>> = BTreeMap::new();
        let of_parts = matches!(by, By::Step | By::Task);
        let drawn = if of_parts { &curves.of_parts } else { &curves.curves };
        for curve in drawn.iter().filter(|curve| by.has(curve)) {
            seen.insert(curve.metric.key);
            of.entry((curve.metric.key, curve.node, curve.part)).or_default().push(curve);
        }
        let metrics: Vec<_> =
            metric::ALL.iter().copied().filter(|metric| seen.contains(metric.key)).collect();
        let block = |names, curves_of: &dyn Fn(&'static Metric) -> Vec<&'a Curve>| Block {
            names,
            rows: 0..curves.bins(),
            columns: metrics.iter().map(|metric| joined(curves, metric, curves_of(metric))).collect(),
        };
        let of_part =
            |metric: &Metric, node, part| of.get(&(metric.key, node, part)).cloned().unwrap_or_default();
        let on = |metric: &Metric, node| of_part(metric, node, None);
        let nodes = job.nodes.iter().enumerate();
        let blocks = match by {
            By::Job => vec![block(Vec::new(), &|metric| {
                // A curve of the whole job is that of its nodes already.
                let whole = on(metric, None);
                if whole.is_empty() { curves.of(metric).collect() } else { whole }
            })],
            By::Node => nodes
                .map(|(at, node)| block(vec![node.name.as_str()], &|metric| on(metric, Some(at))))
                .collect(),
            By::Gpu => nodes
                .flat_map(|(at, node)| (0..node.gpus.len()).map(move |gpu| (at, node, gpu)))
                .map(|(at, node, gpu)| {
                    block(vec![node.name.as_str(), gpu_name(node, gpu)], &|metric| {
                        on(metric, Some(at)).into_iter().filter(|curve| curve.gpu == Some(gpu)).collect()
                    })
                })
                .collect(),
            By::Step | By::Task => nodes
                .flat_map(|(at, node)| {
                    let parts = node.parts.iter().enumerate().filter(|(_, part)| by.is_of(part));
                    parts.map(move |(index, part)| (at, node, index, part))
                })
                .map(|(at, node, index, part)| {
                    let task = part.task.as_deref();
                    let names = [Some(node.name.as_str()), Some(part.step.as_str()), task];
                    let whole = block(names.into_iter().flatten().collect(), &|metric| {
                        of_part(metric, Some(at), Some(index))
                    });
                    whole.of_its_time()
                })
                .filter(|block| !block.rows.is_empty())
                .collect(),
        };
        Some(Self { by, times: curves.ends().map(milliseconds).collect(), metrics, blocks })
    }
}

fn joined<'a>(curves: &Curves, metric: &Metric, parts: Vec<&'a Curve>) -> Option<Cow<'a, [f64]>> {
    if let [one] = parts.as_slice() {
        return Some(Cow::Borrowed(&one.values));
    }
    let join = if metric.adds_up() { |sum, value| sum + value } else { f64::max };
    curves.join(parts.into_iter(), join).map(Cow::Owned)
}

/// What is whole of a number that is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
pub(crate) fn whole(number: f64) -> u64 {
    number.max(0.0).floor() as u64
}

/// Milliseconds since the epoch of seconds since it.
#[allow(clippy::cast_possible_truncation, reason = "saturates")]
pub fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

/// RFC 3339 in UTC, always with milliseconds: readers take the form of the first for that of all. `None` beyond the year 9999.
pub fn rfc3339(milliseconds: i64) -> Option<String> {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(milliseconds).ok()?))?;
    (time < UNIX_EPOCH + END_OF_9999).then(|| humantime::format_rfc3339_millis(time).to_string())
}

/// Years after it have five digits, which RFC 3339 does not allow.
const END_OF_9999: Duration = Duration::from_secs(253_402_300_800);

#[cfg(test)]
mod tests;
