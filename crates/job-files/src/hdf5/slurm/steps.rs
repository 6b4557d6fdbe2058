//! The steps of a job and their tasks, as SLURM's layout has them.

use std::collections::BTreeMap;
use std::ops::Range;

use job_report::{Curve, Curves, Job, Part};

/// The step of the batch script, which is the only one where steps are not known.
const BATCH: &str = "batch";
/// The only table of tasks of a step on a node where tasks are not known.
const TASK: &str = "0";

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The name of its group.
    pub(super) name: String,
    /// Where it ran.
    pub(super) nodes: Vec<Place>,
}

/// A step on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the node.
    pub(super) node: usize,
    /// Index of the step among the parts of the node; `None` where it stands for the job.
    pub(super) part: Option<usize>,
    /// Names of the tables, and which parts of the node they are.
    pub(super) tasks: Vec<(String, Option<usize>)>,
}

/// All steps, by name. Without steps that are known the job is the step of the batch script.
pub(super) fn of(job: &Job) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut add = |name: String, place: Place| {
        let at = *places.entry(name.clone()).or_insert(steps.len());
        match steps.get_mut(at) {
            Some(step) => step.nodes.push(place),
            None => steps.push(Step { name, nodes: vec![place] }),
        }
    };
    for (node, this) in job.nodes.iter().enumerate() {
        if this.parts.is_empty() {
            add(BATCH.to_owned(), Place { node, part: None, tasks: vec![(TASK.to_owned(), None)] });
        }
        let parts: Vec<(usize, &Part)> = this.parts.iter().enumerate().collect();
        // A step is before its tasks (`Part::order`), and is not there if tasks alone are known.
        for parts in parts.chunk_by(|(_, one), (_, other)| one.step == other.step) {
            let Some((_, first)) = parts.first() else { continue };
            let own = parts.iter().find(|(_, part)| part.task.is_none()).map(|(index, _)| *index);
            add(number(&first.step), Place { node, part: own, tasks: tasks(own, parts) });
        }
    }
    steps
}

/// The tables of a step on a node. SLURM numbers tasks; what else is in a step's cgroup has no table.
fn tasks(step: Option<usize>, parts: &[(usize, &Part)]) -> Vec<(String, Option<usize>)> {
    let number = |part: &Part| part.task.as_deref()?.parse::<u32>().ok();
    let tasks: Vec<_> =
        parts.iter().filter_map(|(index, part)| Some((number(part)?.to_string(), Some(*index)))).collect();
    if tasks.is_empty() { vec![(TASK.to_owned(), step)] } else { tasks }
}

/// SLURM's profile plugin writes the numbers of its own steps (slurm.h, `SLURM_EXTERN_CONT`, `SLURM_INTERACTIVE_STEP`).
fn number(step: &str) -> String {
    match step {
        "extern" => "4294967292".to_owned(),
        "interactive" => "4294967290".to_owned(),
        step => step.to_owned(),
    }
}

/// What was seen of each node, and of each of its parts.
pub(super) struct Seen<'a> {
    all: &'a Curves,
    of: BTreeMap<(Option<usize>, Option<usize>), Vec<&'a Curve>>,
}

impl<'a> Seen<'a> {
    pub(super) fn of(curves: &'a Curves) -> Self {
        let mut of: BTreeMap<_, Vec<&Curve>> = BTreeMap::new();
        for curve in curves.curves.iter().chain(&curves.of_parts) {
            of.entry((curve.node, curve.part)).or_default().push(curve);
        }
        Self { all: curves, of }
    }

    pub(super) fn on(&self, node: usize, part: Option<usize>) -> Curves {
        let here = self.of.get(&(Some(node), part)).into_iter().flatten().map(|curve| (*curve).clone());
        Curves { curves: here.collect(), ..Curves::new(self.all.start, self.all.end, self.all.step) }
    }
}

/// The bins from the first to the last in which something was seen; all if nothing was.
pub(super) fn seen(curves: &Curves) -> Range<usize> {
    let seen = |bin: &usize| {
        curves.curves.iter().any(|curve| curve.values.get(*bin).is_some_and(|value| value.is_finite()))
    };
    let bins = 0..curves.bins();
    let (first, last) = (bins.clone().find(seen), bins.clone().rev().find(seen));
    first.zip(last).map_or(bins, |(first, last)| first..last + 1)
}

/// These bins alone.
pub(super) fn during(curves: &Curves, bins: &Range<usize>) -> Curves {
    let edges: Vec<f64> = std::iter::once(curves.start).chain(curves.ends()).collect();
    let edge = |bin: usize, otherwise| edges.get(bin).copied().unwrap_or(otherwise);
    let (start, end) = (edge(bins.start, curves.start), edge(bins.end, curves.end));
    let mut part = Curves::new(start, end, curves.step);
    for curve in &curves.curves {
        let values = curve.values.iter().copied().skip(bins.start).take(bins.len()).collect();
        part.curves.push(Curve { values, ..curve.clone() });
    }
    part
}
