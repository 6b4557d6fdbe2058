//! Quantities over the time of a job.

use crate::metric::{GPU_BUSY_SECONDS, GPU_IDLE_SECONDS, Kind, Metric};

/// A quantity over time: of a node, of a GPU, or of the whole job.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What it is. A counter's values are its increase per second.
    pub metric: &'static Metric,
    /// Index of the node.
    pub node: Option<usize>,
    /// Index of the GPU among those of the node.
    pub gpu: Option<usize>,
    /// Index of the step or task among those of the node.
    pub part: Option<usize>,
    /// A value for each bin; NaN where nothing was seen.
    pub values: Vec<f64>,
}

/// Curves of a job over common bins of equal length; the last bin may be shorter, or half a second longer.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// The first bin's begin, seconds since the epoch.
    pub start: f64,
    /// Where the last bin ends.
    pub end: f64,
    /// The length of a bin in seconds.
    pub step: f64,
    /// The curves of nodes, GPUs and the job.
    pub curves: Vec<Curve>,
    /// Those of steps and tasks, which are in those of nodes, too.
    pub of_parts: Vec<Curve>,
}

/// The least, mean and greatest value of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Of the bins that were seen.
    pub min: f64,
    /// The mean over time.
    pub mean: f64,
    /// Of the bins that were seen.
    pub max: f64,
}

impl Curves {
    /// No curves yet.
    pub fn new(start: f64, end: f64, step: f64) -> Self {
        Self { start, end, step, curves: Vec::new(), of_parts: Vec::new() }
    }

    /// How many bins there are.
    pub fn bins(&self) -> usize {
        bins(self.end - self.start, self.step)
    }

    /// The ends of the bins, seconds since the epoch.
    pub fn ends(&self) -> impl Iterator<Item = f64> + '_ {
        (1..=self.bins()).map(|bin| self.edge(bin))
    }

    #[allow(clippy::cast_precision_loss, reason = "there are thousands of bins, not 2^53")]
    fn edge(&self, bin: usize) -> f64 {
        if bin >= self.bins() { self.end } else { self.start + bin as f64 * self.step }
    }

    /// Adds a curve of what was read: when, and the value. `total` is when a counter ended, or was last seen, and its value then.
    ///
    /// A counter begins with 0 at the start, and grows evenly between two readings. Its mean over a bin is its growth from one end to the
    /// other: nothing is extrapolated, so the curve's integral is the total. A gauge has the last value of a bin.
    /// Of a counter that is not the job's own nothing is known before it was first read.
    pub fn add(
        &mut self,
        (metric, node, gpu): (&'static Metric, Option<usize>, Option<usize>),
        points: &[(f64, f64)],
        total: Option<(f64, f64)>,
    ) {
        let values = match (metric.kind, points) {
            (Kind::Counter, [(begin, first), later @ ..]) if !metric.is_of_job() => {
                let grown: Vec<_> = later.iter().map(|(time, value)| (*time, value - first)).collect();
                self.slopes(*begin, &grown, None)
            }
            (Kind::Counter, _) => self.slopes(self.start, points, total),
            (Kind::Gauge | Kind::Last, _) => self.last(points),
        };
        self.curves.push(Curve { metric, node, gpu, part: None, values });
    }

    /// The same of a step or a task, which began at `begin` or later: nothing is known of it in bins before that.
    pub fn add_part(
        &mut self,
        (metric, node, part): (&'static Metric, usize, usize),
        begin: f64,
        points: &[(f64, f64)],
        total: Option<(f64, f64)>,
    ) {
        let values = match metric.kind {
            Kind::Counter => self.slopes(begin.max(self.start), points, total),
            Kind::Gauge | Kind::Last => self.last(points),
        };
        self.of_parts.push(Curve { metric, node: Some(node), gpu: None, part: Some(part), values });
    }

    fn last(&self, points: &[(f64, f64)]) -> Vec<f64> {
        let mut values = vec![f64::NAN; self.bins()];
        for (time, value) in points {
            if let Some(slot) = self.bin(*time).and_then(|bin| values.get_mut(bin)) {
                *slot = *value;
            }
        }
        values
    }

    /// The bin that a moment is in; one at its end belongs to it.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    fn bin(&self, time: f64) -> Option<usize> {
        let after = (time - self.start) / self.step;
        // Times of answers are rounded to milliseconds.
        (after > 0.001).then(|| ((after - 0.001).floor() as usize).min(self.bins().saturating_sub(1)))
    }

    fn slopes(&self, begin: f64, points: &[(f64, f64)], total: Option<(f64, f64)>) -> Vec<f64> {
        let until = total.map_or(f64::INFINITY, |(until, _)| until);
        let mut known = vec![(begin, 0.0)];
        for (time, value) in points.iter().copied().filter(|(time, _)| *time < until).chain(total) {
            // Parts that are added up may be seen at slightly different moments: their sum does not fall.
            if known.last().is_some_and(|(last, before)| time > *last && value >= *before) {
                known.push((time, value));
            }
        }
        let (mut means, mut from) = (Vec::with_capacity(self.bins()), self.start);
        let mut before = 0.0;
        for end in self.ends() {
            let value = at(&known, end);
            let seen = begin < end && known.last().is_some_and(|(last, _)| from < *last);
            means.push(if seen { (value - before) / (end - from) } else { f64::NAN });
            (from, before) = (end, value);
        }
        means
    }

    /// The sum of a metric over nodes and GPUs in each bin; NaN where none was seen. `None` if there is no such curve.
    pub fn sum(&self, metric: &Metric) -> Option<Vec<f64>> {
        self.join(self.of(metric), |sum, value| sum + value)
    }

    /// The greatest of a metric over nodes and GPUs in each bin.
    pub fn most(&self, metric: &Metric) -> Option<Vec<f64>> {
        self.join(self.of(metric), f64::max)
    }

    /// Curves joined to one, of what was seen in each bin; NaN where nothing was. `None` without curves.
    pub fn join<'a>(
        &self,
        curves: impl Iterator<Item = &'a Curve>,
        join: impl Fn(f64, f64) -> f64,
    ) -> Option<Vec<f64>> {
        let mut curves = curves.peekable();
        curves.peek()?;
        let mut joined = vec![f64::NAN; self.bins()];
        for curve in curves {
            for (joined, value) in joined.iter_mut().zip(&curve.values) {
                if value.is_finite() {
                    *joined = if joined.is_finite() { join(*joined, *value) } else { *value };
                }
            }
        }
        Some(joined)
    }

    /// How many GPUs were busy in each bin: the busy part of the time in which each was seen. `None` if no GPU was seen.
    pub fn gpus_busy(&self) -> Option<Vec<f64>> {
        let mut idle = self.of(&GPU_IDLE_SECONDS).peekable();
        idle.peek()?;
        let mut sums = vec![f64::NAN; self.bins()];
        for idle in idle {
            for (sum, part) in sums.iter_mut().zip(self.gpu_busy(idle)) {
                if part.is_finite() {
                    *sum = if sum.is_finite() { *sum + part } else { part };
                }
            }
        }
        Some(sums)
    }

    /// The busy part of the time in which a GPU was seen, by the curve of its idle time. GPUs are read at times of their own, so the busy
    /// time alone may be of a little more or less than the bin.
    pub fn gpu_busy(&self, idle: &Curve) -> Vec<f64> {
        let busy = self.of(&GPU_BUSY_SECONDS).find(|busy| (busy.node, busy.gpu) == (idle.node, idle.gpu));
        let part = |(bin, idle): (usize, &f64)| {
            // Without a counter of busy time nothing was busy while something was idle.
            let busy = busy.and_then(|busy| busy.values.get(bin)).copied().unwrap_or(0.0);
            busy / (busy + idle)
        };
        idle.values.iter().enumerate().map(part).collect()
    }

    /// The curves of a metric.
    pub fn of<'a>(&'a self, metric: &'a Metric) -> impl Iterator<Item = &'a Curve> {
        self.curves.iter().filter(move |curve| curve.metric == metric)
    }

    /// Least, mean and greatest of values in the bins; `None` if nothing was seen.
    pub fn summary(&self, values: &[f64]) -> Option<Summary> {
        let (mut min, mut max, mut area, mut time) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0);
        for (bin, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            let length = self.edge(bin + 1) - self.edge(bin);
            (min, max, area, time) = (min.min(*value), max.max(*value), area + value * length, time + length);
        }
        (time > 0.0).then(|| Summary { min, mean: area / time, max })
    }
}

/// The value at a time, on straight lines between what is known; after that the last one.
fn at(known: &[(f64, f64)], time: f64) -> f64 {
    let next = known.partition_point(|(known, _)| *known < time);
    match (next.checked_sub(1).and_then(|before| known.get(before)), known.get(next)) {
        (Some((t0, v0)), Some((t1, v1))) => v0 + (v1 - v0) * (time - t0) / (t1 - t0),
        (Some((_, value)), None) | (None, Some((_, value))) => *value,
        (None, None) => f64::NAN,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn bins(time: f64, step: f64) -> usize {
    // Half a second past a bin is no bin of its own.
    ((time - 0.5) / step).ceil().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metric::{CPU_SECONDS, MEMORY_USED_BYTES, NODE_CPU_IDLE_SECONDS};

    #[test]
    fn a_counters_curve_has_the_mean_of_each_bin() {
        let mut curves = Curves::new(1000.0, 1150.0, 60.0);
        assert_eq!(curves.ends().collect::<Vec<_>>(), [1060.0, 1120.0, 1150.0]);
        curves.add((&CPU_SECONDS, Some(0), None), &[(1060.0, 30.0), (1120.0, 150.0)], Some((1150.0, 210.0)));
        assert_eq!(curves.curves[0].values, [0.5, 2.0, 2.0]);
        // Not seen at the first end: both bins have the mean over them.
        curves.add((&CPU_SECONDS, Some(1), None), &[(1120.0, 60.0)], Some((1150.0, 60.0)));
        assert_eq!(curves.curves[1].values, [0.5, 0.5, 0.0]);
        assert_eq!(curves.sum(&CPU_SECONDS), Some(vec![1.0, 2.5, 2.0]));
        assert_eq!(curves.most(&CPU_SECONDS), Some(vec![0.5, 2.0, 2.0]));
        assert_eq!(curves.sum(&MEMORY_USED_BYTES), None);
        // Read at other times than the bins end.
        curves.add((&CPU_SECONDS, Some(3), None), &[(1030.0, 30.0), (1090.0, 30.0)], Some((1150.0, 90.0)));
        assert_eq!(curves.curves[2].values, [0.5, 0.5, 1.0]);
        // It ended in the second bin, and was retained: nothing is known of it afterwards.
        curves.add(
            (&CPU_SECONDS, Some(2), None),
            &[(1060.0, 60.0), (1120.0, 90.0), (1150.0, 90.0)],
            Some((1090.0, 90.0)),
        );
        let values = &curves.curves[3].values;
        assert_eq!((values[0], values[1], values[2].is_nan()), (1.0, 0.5, true));
    }

    #[test]
    fn a_counter_that_is_not_the_jobs_begins_with_its_first_reading() {
        let mut curves = Curves::new(1000.0, 1240.0, 60.0);
        let points = [(1060.0, 5000.0), (1120.0, 5030.0), (1180.0, 5090.0)];
        curves.add((&NODE_CPU_IDLE_SECONDS, Some(0), None), &points, None);
        let values = &curves.curves[0].values;
        assert!(values[0].is_nan() && values[3].is_nan(), "{values:?}");
        assert_eq!(values[1..3], [0.5, 1.0]);
        // Loaded again, a driver counts from 0: what came after is not known.
        curves.add((&NODE_CPU_IDLE_SECONDS, Some(1), None), &[(1060.0, 5000.0), (1120.0, 1.0)], None);
        assert!(curves.curves[1].values.iter().all(|value| value.is_nan()));
    }

    #[test]
    fn gpus_are_busy_for_a_part_of_the_time_seen() {
        let mut curves = Curves::new(0.0, 120.0, 60.0);
        assert_eq!(curves.gpus_busy(), None);
        // Seen for 45 s of the first minute, and for 75 s by the end of the next.
        curves.add((&GPU_BUSY_SECONDS, Some(0), Some(0)), &[(60.0, 45.0)], Some((120.0, 105.0)));
        curves.add((&GPU_IDLE_SECONDS, Some(0), Some(0)), &[(60.0, 0.0)], Some((120.0, 15.0)));
        curves.add((&GPU_IDLE_SECONDS, Some(0), Some(1)), &[(60.0, 60.0)], Some((120.0, 120.0)));
        assert_eq!(curves.gpus_busy(), Some(vec![1.0, 0.8]));
    }

    #[test]
    fn a_gauges_curve_has_its_gaps() {
        let mut curves = Curves::new(0.0, 180.0, 60.0);
        curves.add((&MEMORY_USED_BYTES, Some(0), None), &[(60.0, 5.0), (180.0, 7.0)], None);
        let values = &curves.curves[0].values;
        assert_eq!((values[0], values[1].is_nan(), values[2]), (5.0, true, 7.0));
        assert_eq!(curves.summary(values), Some(Summary { min: 5.0, mean: 6.0, max: 7.0 }));
        assert_eq!(curves.summary(&[f64::NAN; 3]), None);
    }

    proptest! {
        #[test]
        fn the_integral_of_a_counters_curve_is_its_total(
            increments in proptest::collection::vec(proptest::option::of(0.0..100.0f64), 1..50), last in 0.0..100.0f64, end in 0.001..1.0f64,
        ) {
            let step = 30.0;
            let time = (increments.len() as f64 + end) * step;
            let mut curves = Curves::new(7.0, 7.0 + time, step);
            let (mut value, mut points) = (0.0, Vec::new());
            for (bin, increment) in increments.iter().enumerate() {
                if let Some(increment) = increment {
                    value += increment;
                    points.push((7.0 + (bin as f64 + 1.0) * step, value));
                }
            }
            let total = value + last;
            curves.add((&CPU_SECONDS, None, None), &points, Some((7.0 + time, total)));
            let mean = curves.summary(&curves.curves[0].values).unwrap().mean;
            prop_assert!((mean * time - total).abs() < 1e-6 * total.max(1.0));
        }
    }
}
