//! Axes: from the range of the data to a scale with ticks.

use crate::unit::Unit;

/// How the values of an axis are spread over its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Evenly, from zero on.
    #[default]
    Linear,
    /// Evenly, over what is there; zero may be out of sight.
    LinearWithoutZero,
    /// By decades. It has no place for what is not positive: that is left out, as what is not a number is.
    Log,
}

/// An axis of values.
#[derive(Debug, Clone, Copy)]
pub struct ValueAxis<'a> {
    /// What is measured; nothing if the title says that.
    pub label: &'a str,
    /// Unit of the values.
    pub unit: Unit<'a>,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// The axis shows this range at least, and all of the data always.
    pub at_least: Option<(f64, f64)>,
}

impl<'a> ValueAxis<'a> {
    /// A linear axis with zero, and with a label that the title gives.
    pub const fn of(unit: Unit<'a>) -> Self {
        Self { label: "", unit, scale: Scale::Linear, at_least: None }
    }
}

/// What is larger is no measurement, and sums of it would be infinite.
const LARGEST: f64 = 1e100;

/// A value that can be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    Some(value).filter(|v| v.abs() < LARGEST)
}

/// The smallest and the largest of values that can be drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    log: bool,
    range: Option<(f64, f64)>,
}

impl Extent {
    pub(crate) fn on(scale: Scale) -> Self {
        Self { log: scale == Scale::Log, range: None }
    }

    pub(crate) fn add(&mut self, value: f64) {
        if let Some(v) = drawable(value).filter(|v| !self.log || *v > 1.0 / LARGEST) {
            let (low, high) = self.range.unwrap_or((v, v));
            self.range = Some((low.min(v), high.max(v)));
        }
    }

    pub(crate) fn range(self) -> Option<(f64, f64)> {
        self.range
    }
}

/// A tick: where, from 0 to 1, and its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// A scale with its ticks.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    pub(crate) ticks: Vec<Tick>,
}

impl Axis {
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        Self { low, high, log: false, ticks: Vec::new() }
    }

    /// Where a value is, from 0 to 1; nothing outside of the axis, and for what cannot be drawn.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let value = drawable(value)?;
        let at = if self.log {
            if value <= 0.0 {
                return None;
            }
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // A billionth beyond the end is rounding.
        (-1e-9..=1.0 + 1e-9).contains(&at).then_some(at.clamp(0.0, 1.0))
    }

    pub(crate) fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    fn with_ticks(mut self, values: &[f64], label: impl Fn(f64) -> String) -> Self {
        self.ticks =
            values.iter().filter_map(|v| Some(Tick { at: self.place(*v)?, label: label(*v) })).collect();
        self
    }
}

/// An axis over data of this extent, with as many ticks as fit; none without data.
pub(crate) fn value_axis(spec: &ValueAxis<'_>, data: Extent, fits: impl Fn(&[Tick]) -> bool) -> Axis {
    let mut extent = data;
    if let Some((low, high)) = spec.at_least {
        extent.add(low);
        extent.add(high);
    }
    let Some((low, high)) = extent.range() else { return Axis::linear(0.0, 1.0) };
    if spec.scale == Scale::Log {
        return log_axis(spec.unit, low, high, fits);
    }
    let (low, high) = linear_range(low, high, spec.scale == Scale::Linear);
    linear_axis(spec.unit, low, high, fits)
}

/// A range that is wide enough for a step to be a number apart from the next.
fn linear_range(mut low: f64, mut high: f64, zero: bool) -> (f64, f64) {
    if zero {
        low = low.min(0.0);
        high = high.max(0.0);
    }
    let size = low.abs().max(high.abs());
    if size < 1e-100 {
        return (0.0, 1.0);
    }
    if high - low < size * 1e-9 {
        return (low - size * 0.1, high + size * 0.1);
    }
    (low, high)
}

fn linear_axis(unit: Unit<'_>, low: f64, high: f64, fits: impl Fn(&[Tick]) -> bool) -> Axis {
    let mut last = Axis::linear(low, high);
    // From twenty ticks to one.
    let mut step = nice_step((high - low) / 20.0, unit);
    for _ in 0..8 {
        let (first, end) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let mut values = Vec::new();
        let mut count = first;
        while count <= end {
            values.push(count * step);
            count += 1.0;
        }
        let axis = Axis::linear(first * step, end * step);
        let format = unit.format(axis.low.abs().max(axis.high.abs()), step);
        let axis = axis.with_ticks(&values, |v| format.show(v));
        if fits(&axis.ticks) {
            return axis;
        }
        last = Axis { ticks: Vec::new(), ..axis };
        step = nice_step(step * 1.01, unit);
    }
    last
}

/// The next of 1, 2, 5, 10, or the next power of two for what is counted in KiB.
fn nice_step(at_least: f64, unit: Unit<'_>) -> f64 {
    if matches!(unit, Unit::Binary(_)) {
        return 2f64.powf(at_least.log2().ceil());
    }
    let decade = 10f64.powf(at_least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|n| n * decade)
        .find(|step| *step >= at_least * 0.999_999)
        .unwrap_or(10.0 * decade)
}

fn log_axis(unit: Unit<'_>, low: f64, high: f64, fits: impl Fn(&[Tick]) -> bool) -> Axis {
    let (first, end) = (low.log10().floor(), high.log10().ceil());
    let mut fine = Vec::new();
    let mut decade = first;
    while decade <= end {
        fine.extend([1.0, 2.0, 5.0].map(|n| n * 10f64.powf(decade)));
        decade += 1.0;
    }
    let start = fine.iter().copied().rfind(|v| *v <= low * 1.000_001).unwrap_or(low);
    let mut stop = fine.iter().copied().find(|v| *v >= high * 0.999_999).unwrap_or(high);
    if stop <= start {
        stop = start * 10.0;
    }
    let axis = Axis { low: start, high: stop, log: true, ticks: Vec::new() };
    let label = |v: f64| unit.format(v, v).show(v);
    // The fine ones, then every decade, every second, and so on.
    for every in [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0, 24.0, 48.0, 96.0] {
        let on = |v: &f64| {
            let exponent = (v.log10() + 1e-9).floor();
            every == 0.0
                || ((v / 10f64.powf(exponent) - 1.0).abs() < 1e-6 && (exponent / every).fract() == 0.0)
        };
        let values: Vec<f64> = fine.iter().copied().filter(on).collect();
        let axis = axis.clone().with_ticks(&values, label);
        if fits(&axis.ticks) {
            return axis;
        }
    }
    axis
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(scale: Scale, low: f64, high: f64) -> Extent {
        let mut extent = Extent::on(scale);
        extent.add(low);
        extent.add(high);
        extent
    }

    fn labels(spec: &ValueAxis<'_>, low: f64, high: f64, most: usize) -> Vec<String> {
        let axis = value_axis(spec, extent(spec.scale, low, high), |ticks| ticks.len() <= most);
        axis.ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_of_known_ranges() {
        let gib = 1_073_741_824.0;
        let of = ValueAxis::of;
        assert_eq!(labels(&of(Unit::Number), 3.0, 9.8, 6), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(labels(&of(Unit::Si("W")), 610.0, 1390.0, 4), ["0 kW", "0.5 kW", "1 kW", "1.5 kW"]);
        assert_eq!(labels(&of(Unit::Percent), 0.1, 1.0, 6), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
        let bytes = of(Unit::Binary("B"));
        assert_eq!(labels(&bytes, 0.0, 128.0 * gib, 5), ["0 GiB", "32 GiB", "64 GiB", "96 GiB", "128 GiB"]);
        assert_eq!(labels(&of(Unit::Number), -3.0, 4.0, 5), ["-4", "-2", "0", "2", "4"]);
        assert_eq!(labels(&of(Unit::Number), 0.0, 0.0, 3), ["0", "0.5", "1"]);
        let loose = ValueAxis { scale: Scale::LinearWithoutZero, ..of(Unit::Number) };
        assert_eq!(labels(&loose, 1001.0, 1004.0, 5), ["1.001 k", "1.002 k", "1.003 k", "1.004 k"]);
    }

    #[test]
    fn ticks_of_decades() {
        let log = ValueAxis { scale: Scale::Log, ..ValueAxis::of(Unit::Si("B/s")) };
        assert_eq!(labels(&log, 1.5, 40.0, 6), ["1 B/s", "2 B/s", "5 B/s", "10 B/s", "20 B/s", "50 B/s"]);
        assert_eq!(labels(&log, 2.0, 3e4, 5), ["10 B/s", "100 B/s", "1 kB/s", "10 kB/s"]);
        assert_eq!(labels(&log, 1.0, 1e9, 4), ["1 B/s", "1 kB/s", "1 MB/s", "1 GB/s"]);
        // Nothing of it is positive.
        assert_eq!(labels(&log, -5.0, 0.0, 2), [""; 0]);
    }

    #[test]
    fn places_are_from_end_to_end() {
        let axis = value_axis(&ValueAxis::of(Unit::Number), extent(Scale::Linear, 0.0, 10.0), |_| true);
        assert_eq!(
            [-1.0, 0.0, 2.5, 10.0, 11.0, f64::NAN].map(|v| axis.place(v)),
            [None, Some(0.0), Some(0.25), Some(1.0), None, None]
        );
        let log = ValueAxis { scale: Scale::Log, ..ValueAxis::of(Unit::Number) };
        let axis = value_axis(&log, extent(Scale::Log, 1.0, 100.0), |_| true);
        assert_eq!([0.0, 1.0, 10.0, 100.0].map(|v| axis.place(v)), [None, Some(0.0), Some(0.5), Some(1.0)]);
    }

    #[test]
    fn a_range_that_is_wanted_is_shown_and_hides_nothing() {
        let percent = ValueAxis { at_least: Some((0.0, 1.0)), ..ValueAxis::of(Unit::Percent) };
        assert_eq!(
            value_axis(&percent, extent(Scale::Linear, 0.0, 0.02), |t| t.len() < 7).range(),
            (0.0, 1.0)
        );
        assert_eq!(
            value_axis(&percent, extent(Scale::Linear, 0.0, 1.7), |t| t.len() < 7).range(),
            (0.0, 2.0)
        );
    }
}
