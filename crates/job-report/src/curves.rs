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
    /// A counter begins with 0 at the start, and grows evenly between two readings. Its mean over a bin is its growth in the part of the bin that
    /// was seen: nothing is extrapolated, so that the curve's integral is the total where all was seen. Where readings are much farther apart than most
    /// are, nothing was seen: there is a gap. A counter that falls began anew at 0, and the curve goes on. A gauge has the last value of a bin.
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
        // What it had counted before it began anew, and the last reading.
        let (mut counted, mut last) = (0.0, 0.0);
        for (time, value) in points.iter().copied().filter(|(time, _)| *time < until) {
            if value < BEGAN_ANEW * last {
                counted += last;
                last = 0.0;
            }
            // Parts that are added up may be seen at slightly different moments: their sum does not fall.
            if known.last().is_some_and(|(before, _)| time > *before) && value >= last {
                known.push((time, counted + value));
                last = value;
            }
        }
        known.extend(total.filter(|(until, value)| {
            known.last().is_some_and(|(time, before)| until > time && value >= before)
        }));
        let longest = longest_pause(&known, self.step);
        let (mut means, mut from) = (Vec::with_capacity(self.bins()), self.start);
        for end in self.ends() {
            means.push(mean(&known, longest, (from, end)));
            from = end;
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

/// A counter below this part of what it was began anew.
const BEGAN_ANEW: f64 = 0.9;
/// Readings so many times farther apart than most are, or than bins are long, have a gap between them.
const GAP: f64 = 2.5;

/// The longest time between two readings that is no gap.
fn longest_pause(known: &[(f64, f64)], step: f64) -> f64 {
    let mut pauses: Vec<f64> = known.iter().zip(known.iter().skip(1)).map(|(a, b)| b.0 - a.0).collect();
    pauses.sort_by(f64::total_cmp);
    // Two readings do not say how far apart most are.
    let usual = pauses.get(pauses.len() / 2).copied().filter(|_| pauses.len() > 2);
    match usual {
        Some(usual) => GAP * usual.max(step),
        None => f64::INFINITY,
    }
}

/// The growth for each second in the part of a bin that was seen, if that is half of it or more.
fn mean(known: &[(f64, f64)], longest: f64, (from, end): (f64, f64)) -> f64 {
    let (mut grown, mut seen) = (0.0, 0.0);
    let first = known.partition_point(|(time, _)| *time <= from).saturating_sub(1);
    let later = known.iter().skip(first);
    for ((t0, v0), (t1, v1)) in later.clone().zip(later.skip(1)).take_while(|((t0, _), _)| *t0 < end) {
        let time = (t1.min(end) - t0.max(from)).max(0.0);
        if t1 - t0 <= longest {
            grown += (v1 - v0) * time / (t1 - t0);
            seen += time;
        }
    }
    // What began or ended in the bin was seen for all of its time there.
    let (begin, last) = (known.first().map_or(end, |(t, _)| *t), known.last().map_or(from, |(t, _)| *t));
    let length = last.min(end) - begin.max(from);
    if seen > 0.0 && seen >= length / 2.0 { grown / (end - from - (length - seen)) } else { f64::NAN }
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
    }

    #[test]
    fn a_curve_goes_on_after_a_counter_began_anew() {
        let mut curves = Curves::new(0.0, 240.0, 60.0);
        let points = [(60.0, 60.0), (120.0, 120.0), (180.0, 30.0)];
        curves.add((&GPU_BUSY_SECONDS, Some(0), Some(0)), &points, Some((240.0, 210.0)));
        assert_eq!(curves.curves[0].values, [1.0, 1.0, 0.5, 1.0]);
        // The parts of a sum are read at slightly different moments.
        let points = [(60.0, 60.0), (120.0, 59.0), (180.0, 180.0)];
        curves.add((&CPU_SECONDS, Some(0), None), &points, Some((240.0, 240.0)));
        assert_eq!(curves.curves[1].values, [1.0; 4]);
        // The total does not know of what was before.
        curves.add((&CPU_SECONDS, Some(1), None), &[(60.0, 60.0), (120.0, 120.0)], Some((180.0, 30.0)));
        assert!(curves.curves[2].values[2].is_nan(), "{:?}", curves.curves[2].values);
    }

    #[test]
    fn a_counters_curve_has_a_gap_where_nothing_was_read() {
        let mut curves = Curves::new(0.0, 600.0, 60.0);
        let read = |minute: u32| (f64::from(minute) * 60.0, f64::from(minute) * 30.0);
        // First read after two minutes; nothing between the fourth and the eighth.
        let points = [1, 2, 3, 4, 8, 9].map(read);
        curves.add((&CPU_SECONDS, Some(0), None), &points, Some((600.0, 300.0)));
        let seen: Vec<bool> = curves.curves[0].values.iter().map(|value| value.is_finite()).collect();
        assert_eq!(seen, [true, true, true, true, false, false, false, false, true, true]);
        assert!(curves.curves[0].values.iter().all(|value| value.is_nan() || *value == 0.5));
        // The job was there before the readings.
        let late = [6, 7, 8, 9].map(read);
        curves.add((&CPU_SECONDS, Some(1), None), &late, Some((600.0, 300.0)));
        assert!(curves.curves[1].values[..6].iter().all(|value| value.is_nan()));
        assert_eq!(curves.curves[1].values[6..], [0.5; 4]);
        // One scrape that failed is no gap.
        let one = [1, 2, 3, 5, 6, 7, 8, 9].map(read);
        curves.add((&CPU_SECONDS, Some(2), None), &one, Some((600.0, 300.0)));
        assert_eq!(curves.curves[2].values, [0.5; 10]);
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
            let (mut value, mut points, mut missed) = (0.0, Vec::new(), false);
            for (bin, increment) in increments.iter().enumerate() {
                // Where two readings in a row are missing there is a gap.
                let increment = increment.or(missed.then_some(0.0));
                missed = increment.is_none();
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
