//! `calculate_stats` of supremm (src/supremm/statistics.py), which is `scipy.stats.describe` and a median.

use serde::Serialize;

/// Of one value, or of equal ones, there is no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Stat {
    pub(super) avg: f64,
    pub(super) cnt: usize,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    spread: Option<Spread>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Spread {
    min: f64,
    max: f64,
    med: f64,
    /// Of three or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    std: Option<f64>,
    /// Skewness, biased.
    skw: f64,
    /// Kurtosis beyond that of a normal distribution, biased.
    krt: f64,
    /// The standard deviation of the mean, if that is above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    cov: Option<f64>,
}

impl Stat {
    /// `None` of no values.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        let cnt = values.len();
        if min >= max {
            return Some(Self { avg: min, cnt, spread: None });
        }
        #[allow(clippy::cast_precision_loss, reason = "a number of nodes or GPUs")]
        let count = cnt as f64;
        let avg = values.iter().sum::<f64>() / count;
        let moment = |power| values.iter().map(|value| (value - avg).powi(power)).sum::<f64>() / count;
        let (second, third, fourth) = (moment(2), moment(3), moment(4));
        let std = (second * count / (count - 1.0)).sqrt();
        Some(Self {
            avg,
            cnt,
            spread: Some(Spread {
                min,
                max,
                med: median(values),
                std: (cnt > 2).then_some(std),
                skw: third / second.powf(1.5),
                krt: fourth / (second * second) - 3.0,
                cov: (avg > 0.0).then(|| std / avg),
            }),
        })
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    f64::midpoint(at((sorted.len() - 1) / 2), at(sorted.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_and_equal_ones_are_their_mean() {
        assert_eq!(Stat::of(&[]), None);
        assert_eq!(Stat::of(&[3.0]), Some(Stat { avg: 3.0, cnt: 1, spread: None }));
        assert_eq!(Stat::of(&[3.0, 3.0]), Some(Stat { avg: 3.0, cnt: 2, spread: None }));
    }

    #[test]
    fn two_values_have_no_standard_deviation() {
        // Deviations −1 and 1: second moment 1, third 0, fourth 1; the sample's standard deviation is √2.
        let stat = Stat::of(&[2.0, 4.0]).unwrap();
        let spread = stat.spread.unwrap();
        assert_eq!((stat.avg, stat.cnt, spread.min, spread.max, spread.med), (3.0, 2, 2.0, 4.0, 3.0));
        assert_eq!((spread.std, spread.skw, spread.krt), (None, 0.0, -2.0));
        assert!((spread.cov.unwrap() - 2.0_f64.sqrt() / 3.0).abs() < 1e-15);
    }

    #[test]
    fn a_skewed_sample_by_hand() {
        // 1, 1, 1, 5: mean 2, deviations −1, −1, −1, 3. Second moment 12/4 = 3, third 24/4 = 6, fourth 84/4 = 21.
        let stat = Stat::of(&[1.0, 5.0, 1.0, 1.0]).unwrap();
        let spread = stat.spread.unwrap();
        assert_eq!((stat.avg, spread.med), (2.0, 1.0));
        assert!((spread.std.unwrap() - 2.0).abs() < 1e-15, "√(12/3)");
        assert!((spread.skw - 6.0 / 3.0_f64.powf(1.5)).abs() < 1e-15);
        assert!((spread.krt - (21.0 / 9.0 - 3.0)).abs() < 1e-15);
        assert!((spread.cov.unwrap() - 1.0).abs() < 1e-15);
        assert_eq!(Stat::of(&[-1.0, 1.0]).unwrap().spread.unwrap().cov, None);
    }
}
