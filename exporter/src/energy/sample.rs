//! A reading, and how a later one is compared with it.

use std::time::Duration;

/// More than any socket, memory or platform that RAPL measures draws, in microwatts: 2 kW. A counter that fell and
/// would have had to gain more than this was not wrapped but began anew.
pub const LARGEST_WRAPPED_POWER: u64 = 2_000_000_000;

/// How far a cumulative count goes before it begins at 0 again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// It never does.
    Full,
    /// It does at this many microjoules: a value below the one before is that much more.
    Wraps {
        /// Microjoules, never 0.
        at: u64,
    },
}

impl Range {
    /// Microjoules between two readings of one [`Sample::epoch`] with at most one wrap between them; with more it is
    /// too little, never too much. `None` for a counter that went back without a right to: nothing is known of that
    /// time.
    pub fn gain(self, before: u64, after: u64) -> Option<u64> {
        match (after.checked_sub(before), self) {
            (Some(gain), _) => Some(gain),
            (None, Self::Full) => None,
            (None, Self::Wraps { at }) => at.checked_sub(before)?.checked_add(after),
        }
    }
}

/// A zone's energy as read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Microjoules since whenever the counter began; only differences mean anything.
    pub energy_uj: u64,
    /// Its range.
    pub range: Range,
    /// Changes when the counter may have begun anew: its file was gone meanwhile, or its descriptor had to be opened
    /// again. Nothing can be said of the time between readings of different epochs.
    pub epoch: u32,
    /// Momentary power in microwatts, from sources that measure power.
    pub power_uw: Option<u64>,
}

impl Sample {
    /// Microjoules since an earlier sample of the same zone, read so long ago. `None` when nothing can be said: the
    /// counter may have begun anew, it went back, or what looks like a wrap would be more power than there is.
    pub fn gain_since(&self, earlier: &Self, elapsed: Duration) -> Option<u64> {
        if self.epoch != earlier.epoch || self.range != earlier.range {
            return None;
        }
        let gain = self.range.gain(earlier.energy_uj, self.energy_uj)?;
        let wrapped = self.energy_uj < earlier.energy_uj;
        let most = u128::from(LARGEST_WRAPPED_POWER) * elapsed.as_millis() / 1000;
        (!wrapped || u128::from(gain) <= most).then_some(gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_have_been_drawn_was_no_wrap() {
        let at = 262_143_328_851;
        let sample = |energy_uj| Sample { energy_uj, range: Range::Wraps { at }, epoch: 3, power_uw: None };
        let minute = Duration::from_secs(60);
        let late = sample(at - 1_000_000);
        assert_eq!(sample(5_000_000).gain_since(&late, minute), Some(6_000_000));
        assert_eq!(sample(0).gain_since(&sample(1), minute), None, "262 kJ in a minute is 4.4 kW");
        assert_eq!(sample(0).gain_since(&sample(1), minute * 3), Some(at - 1));
        assert_eq!(sample(at - 1).gain_since(&sample(0), Duration::ZERO), Some(at - 1), "no fall, no doubt");
        let other = Sample { epoch: 4, ..sample(5_000_000) };
        assert_eq!(other.gain_since(&sample(1), minute), None);
        let endless = Sample { range: Range::Full, ..sample(9) };
        assert_eq!(endless.gain_since(&sample(1), minute), None, "the range is another one");
    }

    #[test]
    fn a_wrap_is_counted_once_and_a_fall_of_an_endless_counter_is_no_energy() {
        let wraps = Range::Wraps { at: 1000 };
        for (range, before, after, gain) in [
            (wraps, 10, 30, Some(20)),
            (wraps, 990, 15, Some(25)),
            (wraps, 999, 0, Some(1)),
            (wraps, 7, 7, Some(0)),
            (Range::Full, 10, 30, Some(20)),
            (Range::Full, 30, 10, None),
            (wraps, 2000, 10, None), // the range became smaller: another counter
            (Range::Wraps { at: u64::MAX }, u64::MAX, u64::MAX - 1, Some(u64::MAX - 1)),
        ] {
            assert_eq!(range.gain(before, after), gain, "{range:?} {before} {after}");
        }
    }
}
