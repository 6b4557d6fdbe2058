//! The power of a device as a straight line of its work (CPUs that are busy, bytes that are moved), learned while it works.
//!
//! Least squares over the last minutes, with each interval weighted by its length: energy is idle power × time + energy of a unit
//! of work × work. Both are sums over an interval, so it does not matter how the load went up and down within it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Shorter intervals are put together: the counters of sockets step by milliseconds.
const SHORTEST: Duration = Duration::from_secs(2);
/// Weight of what lies this far back is 1/e: clocks and programs change the power of a busy CPU.
const MEMORY_SECONDS: f64 = 900.0;
/// Before this much was seen nothing is known, and with fewer intervals.
const LEAST_SECONDS: f64 = 60.0;
const LEAST_INTERVALS: f64 = 8.0;

/// An idle power that was not seen but follows from the power under load, microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FittedPower {
    /// The power at which the line meets no load.
    pub microwatts: u64,
    /// Its standard error. It has no part for a power that is not a straight line.
    pub error_microwatts: u64,
    /// What 10⁹ units of work take beyond it: a second of a busy CPU, a gigabyte.
    pub microjoules_of_work: u64,
}

/// Sums over the intervals seen, the older ones with less weight; seconds, joules and 10⁹ units of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PowerModel {
    /// An interval that is still too short.
    open: Interval,
    intervals: f64,
    time: f64,
    work: f64,
    energy: f64,
    /// Products, divided by the interval's length.
    work_work: f64,
    work_energy: f64,
    energy_energy: f64,
    /// The least mean power of an interval, watts.
    least: Option<f64>,
    /// Twice the standard error of the idle power may be this part of the mean power.
    largest_error: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Interval {
    length: Duration,
    work: u128,
    energy_uj: u64,
}

impl PowerModel {
    /// One that has learned nothing.
    pub fn new(largest_error: f64) -> Self {
        Self { largest_error, ..Self::default() }
    }

    /// Takes an interval: its length, the work done (busy time of CPUs in nanoseconds, or what else its power follows), and its energy in
    /// microjoules.
    pub fn learn(&mut self, length: Duration, work: u128, energy_uj: u64) {
        self.open.length += length;
        self.open.work = self.open.work.saturating_add(work);
        self.open.energy_uj = self.open.energy_uj.saturating_add(energy_uj);
        if self.open.length < SHORTEST {
            return;
        }
        let Interval { length, work, energy_uj } = std::mem::take(&mut self.open);
        let (time, work, energy) = (length.as_secs_f64(), work as f64 / 1e9, energy_uj as f64 / 1e6);
        let kept = (-time / MEMORY_SECONDS).exp();
        for (sum, more) in [
            (&mut self.intervals, 1.0),
            (&mut self.time, time),
            (&mut self.work, work),
            (&mut self.energy, energy),
            (&mut self.work_work, work * work / time),
            (&mut self.work_energy, work * energy / time),
            (&mut self.energy_energy, energy * energy / time),
        ] {
            *sum = *sum * kept + more;
        }
        let power = energy / time;
        self.least = Some(self.least.map_or(power, |least| least.min(power)));
    }

    /// The line, once the load has varied enough for the idle power to be known.
    pub fn fit(&self) -> Option<FittedPower> {
        if self.time < LEAST_SECONDS || self.intervals < LEAST_INTERVALS {
            return None;
        }
        let determinant = self.time * self.work_work - self.work * self.work;
        // A load that is the same all the time; what is left of the sums is rounding.
        if determinant <= 1e-6 * self.time * self.work_work {
            return None;
        }
        let idle = (self.work_work * self.energy - self.work * self.work_energy) / determinant;
        let of_work = (self.time * self.work_energy - self.work * self.energy) / determinant;
        let unexplained = self.energy_energy - idle * self.energy - of_work * self.work_energy;
        let variance = unexplained.max(0.0) / (self.intervals - 2.0) * self.work_work / determinant;
        let error = variance.sqrt();
        let plausible =
            idle >= 0.0 && of_work >= 0.0 && 2.0 * error <= self.largest_error * self.energy / self.time;
        // No interval can have had less than the idle power.
        let idle = self.least.map_or(idle, |least| idle.min(least));
        plausible.then(|| FittedPower {
            microwatts: micro(idle),
            error_microwatts: micro(error),
            microjoules_of_work: micro(of_work),
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number that is too large or negative ends at the bound"
)]
fn micro(amount: f64) -> u64 {
    (amount * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "invented seconds and joules are small and positive"
    )]

    use super::*;

    const SECOND: u128 = 1_000_000_000;

    /// `busy` CPUs for so long at 40 W and 8 W for each, with so many watts more.
    fn learn(model: &mut PowerModel, seconds: u64, busy: f64, more: f64) {
        let energy = (40.0 + 8.0 * busy + more) * seconds as f64;
        model.learn(
            Duration::from_secs(seconds),
            (busy * 1e9) as u128 * u128::from(seconds),
            (energy * 1e6) as u64,
        );
    }

    #[test]
    fn a_load_that_varies_shows_the_idle_power() {
        let mut model = PowerModel::new(0.05);
        for number in 0..5 {
            learn(&mut model, 10, 10.0 + f64::from(number % 3), 0.0);
            assert_eq!(model.fit(), None, "not enough of it");
        }
        (5..12).for_each(|number| learn(&mut model, 10, 10.0 + f64::from(number % 3), 0.0));
        let idle = model.fit().unwrap();
        assert!(idle.microwatts.abs_diff(40_000_000) < 20_000 && idle.error_microwatts < 20_000, "{idle:?}");
        assert!(idle.microjoules_of_work.abs_diff(8_000_000) < 2_000, "{idle:?}");
    }

    #[test]
    fn a_load_that_does_not_vary_shows_nothing() {
        let mut model = PowerModel::new(0.05);
        (0..100).for_each(|_| learn(&mut model, 10, 12.0, 0.0));
        assert_eq!(model.fit(), None);
    }

    #[test]
    fn power_that_does_not_follow_the_load_is_no_idle_power_but_an_error() {
        let mut model = PowerModel::new(0.05);
        // Of three CPUs more or fewer, 60 W more or less.
        (0..100).for_each(|n| {
            learn(&mut model, 10, 12.0 + f64::from(n % 4), if n % 8 < 4 { 30.0 } else { -30.0 })
        });
        assert_eq!(model.fit(), None);
        // With a wider load and less noise it is known well enough.
        (0..900).for_each(|n| {
            learn(&mut model, 2, 4.0 + f64::from(n % 16) * 4.0, if n % 32 < 16 { 3.0 } else { -3.0 })
        });
        let idle = model.fit().unwrap();
        let far = idle.microwatts.abs_diff(40_000_000);
        assert!(far < 3 * idle.error_microwatts && idle.error_microwatts > 100_000, "{idle:?}");
    }

    #[test]
    fn less_power_with_more_load_is_no_line_of_a_device() {
        let mut model = PowerModel::new(0.05);
        (0..100).for_each(|n| learn(&mut model, 10, f64::from(n % 4), -10.0 * f64::from(n % 4)));
        assert_eq!(model.fit(), None);
    }

    #[test]
    fn short_intervals_are_put_together_and_old_ones_fade() {
        let mut model = PowerModel::new(0.05);
        let mut quick = PowerModel::new(0.05);
        for number in 0..60 {
            let busy = f64::from(number % 5);
            learn(&mut model, 2, busy, 0.0);
            for _ in 0..20 {
                let energy = ((40.0 + 8.0 * busy) * 0.1 * 1e6) as u64;
                quick.learn(Duration::from_millis(100), (busy * 0.1 * 1e9) as u128, energy);
            }
        }
        assert!(model.fit().unwrap().microwatts.abs_diff(quick.fit().unwrap().microwatts) < 50_000);
        // After an hour the power of another clock counts alone.
        for number in 0..400_u64 {
            let busy = number % 7;
            model.learn(
                Duration::from_secs(10),
                u128::from(busy) * 10 * SECOND,
                (30 + 4 * busy) * 10_000_000,
            );
        }
        assert!(model.fit().unwrap().microwatts.abs_diff(30_000_000) < 2_000_000, "{:?}", model.fit());
    }
}
