//! Steps and tasks from the samples of their series.

use std::collections::BTreeMap;

use job_report::metric::Kind;
use job_report::part::{OF_PARTS, series_of_job};
use job_report::{Curves, Metric, Part, Values};
use prometheus_api::{Labels, Sample, Series};

use super::Measured;
use super::curves::{Line, Readings, in_order};
use crate::text::harmless;

/// The metrics of steps and tasks that a series is a part of.
fn metrics_of(labels: &Labels) -> impl Iterator<Item = &'static Metric> {
    let series = labels.name().and_then(series_of_job);
    OF_PARTS.into_iter().filter(move |metric| {
        let get = |name: &str| labels.get(name).unwrap_or_default();
        series.as_deref().is_some_and(|series| metric.matches(series, get))
    })
}

/// Of a step, and of a task of it.
type Names = (String, Option<String>);

fn names(labels: &Labels) -> Option<Names> {
    Some((harmless(labels.get("step")?), labels.get("task").map(harmless)))
}

impl Measured {
    /// Adds the last samples of steps and tasks.
    pub(in crate::source) fn add_parts(&mut self, answer: &[Sample]) {
        let mut found: BTreeMap<(usize, Names), Values> = BTreeMap::new();
        for sample in answer {
            let Some(key) = self.position(&sample.labels).zip(names(&sample.labels)) else { continue };
            let values = found.entry(key).or_default();
            for metric in metrics_of(&sample.labels).filter(|metric| metric.kind != Kind::Gauge) {
                values.add(metric, sample.value);
            }
        }
        for ((node, (step, task)), values) in found {
            if let Some(node) = self.nodes.get_mut(node) {
                node.parts.push(Part { step, task, values });
            }
        }
        for node in &mut self.nodes {
            node.parts.sort_by(Part::order);
        }
    }

    fn part(&self, node: usize, labels: &Labels) -> Option<usize> {
        let (step, task) = names(labels)?;
        let it = Part { step, task, ..Part::default() };
        self.nodes.get(node)?.parts.binary_search_by(|part| part.order(&it)).ok()
    }

    /// Draws what steps and tasks did. A step began after the last reading of its node that did not have it. It ended before the first that has no
    /// gauge of it: the exporter shows counters of what ended, and no gauges.
    pub(super) fn draw_parts(
        &self,
        curves: &mut Curves,
        series: &[Series],
        wanted: &[&'static Metric],
        read: &Readings,
    ) {
        let mut lines: BTreeMap<(&str, usize, usize), Line> = BTreeMap::new();
        for each in series {
            let at = self.position(&each.labels);
            let Some((node, part)) = at.and_then(|node| Some((node, self.part(node, &each.labels)?))) else {
                continue;
            };
            for metric in metrics_of(&each.labels).filter(|metric| wanted.contains(metric)) {
                let (_, points) =
                    lines.entry((metric.key, node, part)).or_insert_with(|| (metric, BTreeMap::new()));
                read.add(node, each, points);
            }
        }
        let mut seen: BTreeMap<(usize, usize), i64> = BTreeMap::new();
        for ((_, node, part), (_, points)) in
            lines.iter().filter(|(_, (metric, _))| metric.kind != Kind::Counter)
        {
            let last = seen.entry((*node, *part)).or_insert(i64::MIN);
            *last = points.keys().copied().chain([*last]).max().unwrap_or_default();
        }
        for ((_, at, part), (metric, points)) in lines {
            let Some(node) = self.nodes.get(at) else { continue };
            let points = in_order(points);
            let begin = points.first().and_then(|(first, _)| read.before(at, *first)).unwrap_or(node.start);
            let end = seen.get(&(at, part)).and_then(|last| read.after(at, *last)).unwrap_or(node.seen_until);
            let total = node.parts.get(part).and_then(|part| part.values.get(metric));
            let total = total.filter(|_| metric.kind == Kind::Counter).map(|total| (end, total));
            curves.add_part((metric, at, part), begin, &points, total);
        }
    }
}
