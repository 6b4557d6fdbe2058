//! Curves from the samples of series over time.

use std::collections::BTreeMap;

use job_report::metric::{self, Kind, Level};
use job_report::{Curves, Gpu, Metric};
use prometheus_api::{Labels, Series};

use super::{Measured, metrics_of};

impl Measured {
    pub(in crate::source) fn draw(
        &self,
        mut curves: Curves,
        series: &[Series],
        wanted: &[&'static Metric],
    ) -> Curves {
        let read = self.times_of_readings(series);
        // Of several series of a metric, such as the modes of CPU time, the points are added up.
        let mut lines: BTreeMap<(&str, usize, Option<usize>), Line> = BTreeMap::new();
        for each in series {
            let Some(node) = self.position(&each.labels) else { continue };
            for metric in metrics_of(&each.labels).filter(|metric| wanted.contains(metric)) {
                let gpu = match metric.level {
                    Level::Node | Level::Host => None,
                    // What is of a board as a whole is the node's. Another GPU is of an earlier run.
                    Level::Gpu => match self.gpu(node, &each.labels) {
                        None if !self.has_board(node, &each.labels) => continue,
                        gpu => gpu,
                    },
                    Level::Device => match self.gpu(node, &each.labels) {
                        None => continue,
                        gpu => gpu,
                    },
                };
                let (_, points) =
                    lines.entry((metric.key, node, gpu)).or_insert_with(|| (metric, BTreeMap::new()));
                read.add(node, each, points);
            }
        }
        for ((_, node, gpu), (metric, points)) in lines {
            let Some(of) = self.nodes.get(node) else { continue };
            let points = in_order(points);
            let total = match gpu {
                None if metric.level == Level::Gpu => {
                    of.boards.iter().filter_map(|board| board.values.get(metric)).reduce(|a, b| a + b)
                }
                None => of.values.get(metric),
                Some(gpu) => of.gpus.get(gpu).and_then(|gpu| gpu.values.get(metric)),
            };
            let total = total.filter(|_| metric.kind == Kind::Counter).map(|total| (of.seen_until, total));
            curves.add((metric, Some(node), gpu), &points, total);
        }
        self.draw_parts(&mut curves, series, wanted, &read);
        curves
    }

    fn gpu(&self, node: usize, labels: &Labels) -> Option<usize> {
        self.nodes.get(node)?.gpus.iter().position(|gpu| is_of(labels, gpu))
    }

    fn has_board(&self, node: usize, labels: &Labels) -> bool {
        self.nodes.get(node).is_some_and(|node| node.boards.iter().any(|board| is_of(labels, board)))
    }

    /// When what the server gives for a node and a time was read on the node: it is the last scrape's, which may have been minutes ago. The CPU time
    /// that the job held by then says when that was. Where that was given before there is none: nothing was scraped since.
    fn times_of_readings(&self, series: &[Series]) -> Readings {
        let mut times = BTreeMap::new();
        for each in
            series.iter().filter(|each| each.labels.name() == Some(metric::CPU_ALLOCATED_SECONDS.series))
        {
            let Some((at, node)) = self.position(&each.labels).and_then(|at| Some((at, self.nodes.get(at)?)))
            else {
                continue;
            };
            let Some(held) = node.values.get(&metric::CPU_ALLOCATED_SECONDS).filter(|held| *held > 0.0)
            else {
                continue;
            };
            // It held no CPU time between its pieces, and begins with none where the counter began anew.
            let falls = each.points.iter().zip(each.points.iter().skip(1)).any(|((_, a), (_, b))| b < a);
            let (mut last, mut before) = (i64::MIN, f64::NAN);
            for (asked, value) in &each.points {
                let read = match self.in_pieces || falls {
                    true if *value != before => milliseconds(*asked),
                    true => last,
                    false => {
                        milliseconds(node.start + node.present() * value / held).min(milliseconds(*asked))
                    }
                };
                if read > last {
                    times.insert((at, milliseconds(*asked)), read);
                    last = read;
                }
                before = *value;
            }
        }
        Readings(times)
    }
}

fn is_of(labels: &Labels, gpu: &Gpu) -> bool {
    let get = |name| labels.get(name).unwrap_or_default();
    gpu.uuid == get("uuid") && gpu.index == get("gpu")
}

/// When what the server gives for a node and a time was read: both in milliseconds since the epoch.
pub(super) struct Readings(BTreeMap<(usize, i64), i64>);

impl Readings {
    /// Adds the values of a series of a node by when they were read. Of several series the values are added up.
    pub(super) fn add(&self, node: usize, series: &Series, to: &mut BTreeMap<i64, f64>) {
        for (time, value) in series.points.iter().filter(|(_, value)| value.is_finite()) {
            if let Some(read) = self.0.get(&(node, milliseconds(*time))) {
                *to.entry(*read).or_default() += value;
            }
        }
    }

    /// The reading of a node before one, in seconds since the epoch.
    pub(super) fn before(&self, node: usize, reading: f64) -> Option<f64> {
        self.of(node).filter(|read| *read < milliseconds(reading)).max().map(seconds)
    }

    /// The reading of a node after one in milliseconds, in seconds since the epoch.
    pub(super) fn after(&self, node: usize, reading: i64) -> Option<f64> {
        self.of(node).filter(|read| *read > reading).min().map(seconds)
    }

    fn of(&self, node: usize) -> impl Iterator<Item = i64> + '_ {
        self.0.range((node, i64::MIN)..=(node, i64::MAX)).map(|(_, read)| *read)
    }
}

/// Values by time, in seconds since the epoch.
pub(super) fn in_order(points: BTreeMap<i64, f64>) -> Vec<(f64, f64)> {
    points.into_iter().map(|(time, value)| (seconds(time), value)).collect()
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds since the epoch")]
fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

/// A metric, and its values by when they were read, in milliseconds.
pub(super) type Line = (&'static Metric, BTreeMap<i64, f64>);

#[allow(clippy::cast_possible_truncation, reason = "seconds since the epoch")]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}
