//! The power that a device draws while it is idle.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FittedPower, PowerModel};

/// Idle power, microwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdlePower {
    /// Set by the site.
    Set(u64),
    /// The least of all idle intervals so far.
    Learned(Option<u64>),
}

/// A shorter interval says nothing about power: the counters themselves step by milliseconds.
const SHORTEST: Duration = Duration::from_millis(900);
/// An interval is idle if at most this part of it is busy (one of 50).
const PARTS: u128 = 50;

impl IdlePower {
    /// Microwatts, where known.
    pub fn microwatts(self) -> Option<u64> {
        match self {
            Self::Set(power) => Some(power),
            Self::Learned(power) => power,
        }
    }

    /// What was learned; nothing where it was set.
    fn learned(self) -> Self {
        match self {
            Self::Set(_) => Self::Learned(None),
            Self::Learned(_) => self,
        }
    }

    /// Takes an interval: its length, the device's busy time of all its time (nanoseconds), and its energy (microjoules).
    /// One that is short or busy changes nothing.
    pub(crate) fn learn(&mut self, length: Duration, (busy_ns, all_ns): (u128, u128), energy_uj: u64) {
        let Self::Learned(least) = self else { return };
        if length < SHORTEST || busy_ns.saturating_mul(PARTS) > all_ns {
            return;
        }
        let power = u128::from(energy_uj) * 1_000_000_000 / length.as_nanos();
        let power = u64::try_from(power).unwrap_or(u64::MAX);
        *least = Some(least.map_or(power, |least| least.min(power)));
    }
}

/// The idle power: set, seen, or following from the power under load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdleEstimate {
    seen: IdlePower,
    model: PowerModel,
    /// The most work in a second, where nothing else says how busy the device is.
    most_work: u64,
}

impl IdleEstimate {
    /// One that has learned nothing. What follows from the power under load is used while twice its standard error is at most such a
    /// part of the mean power.
    pub fn new(seen: IdlePower, largest_error: f64) -> Self {
        Self { seen, model: PowerModel::new(largest_error), most_work: 0 }
    }

    /// Takes an interval: its length, the device's busy time of all its time (nanoseconds) where they are known, its work in
    /// any unit, and its energy (microjoules).
    pub(crate) fn learn(&mut self, length: Duration, busy: Option<(u128, u128)>, work: u128, energy_uj: u64) {
        if let Some(busy) = busy {
            self.seen.learn(length, busy, energy_uj);
        }
        self.model.learn(length, work, energy_uj);
    }

    /// The same for a device of which nothing but its work is known: it is idle while it does next to nothing of the most that it
    /// ever did.
    pub(crate) fn learn_by_work(&mut self, length: Duration, work: u64, energy_uj: u64) {
        let (work, nanos) = (u128::from(work), length.as_nanos());
        if length >= SHORTEST {
            let rate = work.saturating_mul(1_000_000_000) / nanos;
            self.most_work = self.most_work.max(u64::try_from(rate).unwrap_or(u64::MAX));
        }
        let most = u128::from(self.most_work).saturating_mul(nanos) / 1_000_000_000;
        self.learn(length, Some((work, most)), work, energy_uj);
    }

    /// Microwatts, and whether they follow from the power under load.
    pub(crate) fn best(&self) -> Option<(u64, bool)> {
        let seen = self.seen.microwatts().map(|power| (power, false));
        seen.or_else(|| Some((self.fitted()?.microwatts, true)))
    }

    /// Takes an idle power that the site has set, or keeps the one that was learned.
    pub(crate) fn set(&mut self, idle: IdlePower) {
        self.seen = match idle {
            IdlePower::Set(_) => idle,
            IdlePower::Learned(_) => self.seen.learned(),
        };
    }

    /// What the site has set, or what was seen.
    pub fn seen(&self) -> IdlePower {
        self.seen
    }

    /// What follows from the power under load, as long as there is nothing better.
    pub fn fitted(&self) -> Option<FittedPower> {
        self.model.fit().filter(|_| self.seen.microwatts().is_none())
    }

    /// The energy of 10⁹ units of work beyond the idle power, microjoules.
    pub fn energy_of_work(&self) -> Option<u64> {
        self.model.fit().map(|fit| fit.microjoules_of_work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_power_of_long_idle_intervals_counts() {
        let mut power = IdlePower::Learned(None);
        let second = Duration::from_secs(1);
        let ns = second.as_nanos();
        power.learn(second, (ns / 49, ns), 5);
        power.learn(Duration::from_millis(899), (0, ns), 5);
        assert_eq!(power.microwatts(), None, "busy, and too short");
        power.learn(second, (ns / 50, ns), 40_000_000);
        power.learn(2 * second, (0, 2 * ns), 60_000_000);
        power.learn(second, (0, ns), 35_000_000);
        assert_eq!(power.microwatts(), Some(30_000_000));
        let mut set = IdlePower::Set(7);
        set.learn(second, (0, ns), 1);
        assert_eq!(set, IdlePower::Set(7));
    }

    #[test]
    fn a_device_that_does_a_fiftieth_of_the_most_it_did_is_idle() {
        let mut power = IdleEstimate::new(IdlePower::Learned(None), 0.05);
        let mut learn = |millis: u64, work: u64, energy_uj: u64| {
            power.learn_by_work(Duration::from_millis(millis), work, energy_uj);
            power.seen().microwatts()
        };
        assert_eq!(learn(10_000, 20, 90), None, "nothing says that this is little");
        assert_eq!(learn(100, 1000, 9), None, "too short for a rate");
        assert_eq!(learn(10_000, 20, 90), None);
        assert_eq!(learn(10_000, 1000, 900), None);
        assert_eq!(learn(10_000, 21, 100), None);
        assert_eq!(learn(10_000, 20, 110), Some(11));
        assert_eq!(learn(500, 0, 1), Some(11), "too short for a power");
        assert_eq!(learn(20_000, 40, 200), Some(10));
    }
}
