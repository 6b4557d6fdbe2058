//! Values of metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metric::Metric;

/// The values that are known, by metric. A value that is not finite is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Values(BTreeMap<&'static str, f64>);

impl Values {
    /// `None` if it is not known.
    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.0.get(metric.key).copied()
    }

    /// Adds to what is there: parts of a number, such as the devices of a node.
    pub fn add(&mut self, metric: &'static Metric, value: f64) {
        if value.is_finite() {
            *self.0.entry(metric.key).or_default() += value;
        }
    }

    /// Replaces what is there.
    pub fn set(&mut self, metric: &'static Metric, value: f64) {
        if value.is_finite() {
            self.0.insert(metric.key, value);
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The sum of what is known; `None` if nothing is.
pub(crate) fn sum(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// The largest of what is known.
pub(crate) fn most(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().reduce(f64::max)
}

/// The smallest of what is known.
pub(crate) fn least(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().reduce(f64::min)
}

/// `None` where there is nothing to divide by.
pub fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let (part, whole) = (part?, whole?);
    (whole > 0.0).then(|| part / whole)
}
