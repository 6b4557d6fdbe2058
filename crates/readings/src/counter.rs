//! One total that only grows, made of the readings of a kernel counter that wraps, restarts or vanishes.

use serde::{Deserialize, Serialize};

/// How far a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Range {
    /// 64 bits: it does not wrap in the run of a machine.
    Full,
    /// Begins again at 0 after `at - 1`, so that a lower reading is a wrap. It must be read more often than it wraps.
    Wraps {
        /// How many values it has.
        at: u64,
    },
    /// Saturates at this value (32-bit InfiniBand counters): from then on it says nothing.
    Saturates {
        /// Its last value.
        at: u64,
    },
}

impl Range {
    /// What lies between two readings with at most one wrap between them; with more it is too little, never too much.
    /// `None` for a counter that went back without a right to: nothing is known of that time.
    pub fn gain(self, before: u64, after: u64) -> Option<u64> {
        match (after.checked_sub(before), self) {
            (Some(gain), _) => Some(gain),
            // Where the range is not what the kernel said, this is no wrap.
            (None, Self::Wraps { at }) => at.checked_sub(before)?.checked_add(after),
            (None, Self::Full | Self::Saturates { .. }) => None,
        }
    }
}

/// What a reading adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// The first reading: history is unattributed.
    First,
    /// The growth since the last reading.
    Grown(u64),
    /// It is lower than before without a wrap (a reset by hand, a reloaded driver). The counts in between are not
    /// known, so nothing is added; counting goes on from here.
    Restarted,
    /// It is at the end of its range and counts no more.
    Saturated,
}

impl Gain {
    /// What is to be charged.
    pub fn amount(self) -> u64 {
        match self {
            Self::Grown(amount) => amount,
            Self::First | Self::Restarted | Self::Saturated => 0,
        }
    }
}

/// The last reading of a counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    last: Option<u64>,
}

impl Counter {
    /// Takes a reading.
    pub fn advance(&mut self, now: u64, range: Range) -> Gain {
        let Some(last) = self.last.replace(now) else { return Gain::First };
        match (range.gain(last, now), range) {
            (Some(0), Range::Saturates { at }) if now >= at => Gain::Saturated,
            (Some(grown), _) => Gain::Grown(grown),
            (None, _) => Gain::Restarted,
        }
    }

    /// One that is known to have started at 0, so that its first reading is its count.
    pub fn from_zero() -> Self {
        Self { last: Some(0) }
    }

    /// The device is gone: the next reading is a first one.
    pub fn lost(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(range: Range, readings: &[u64]) -> Vec<Gain> {
        let mut counter = Counter::default();
        readings.iter().map(|reading| counter.advance(*reading, range)).collect()
    }

    #[test]
    fn history_is_unattributed_and_growth_is_what_lies_between() {
        assert_eq!(run(Range::Full, &[700, 700, 750]), [Gain::First, Gain::Grown(0), Gain::Grown(50)]);
    }

    #[test]
    fn a_wrap_is_corrected_by_the_range() {
        let range = Range::Wraps { at: 1000 };
        assert_eq!(run(range, &[990, 5, 4]), [Gain::First, Gain::Grown(15), Gain::Grown(999)]);
    }

    #[test]
    fn a_wrap_beyond_the_range_that_the_kernel_reported_is_a_restart() {
        assert_eq!(run(Range::Wraps { at: 100 }, &[990, 5]), [Gain::First, Gain::Restarted]);
    }

    #[test]
    fn a_counter_that_goes_back_is_neither_clamped_nor_guessed() {
        assert_eq!(
            run(Range::Full, &[1000, 3, 10]),
            [Gain::First, Gain::Restarted, Gain::Grown(7)],
            "the 3 may be of any time"
        );
        assert_eq!(run(Range::Saturates { at: 99 }, &[98, 2]), [Gain::First, Gain::Restarted]);
    }

    #[test]
    fn what_began_at_zero_has_no_history() {
        assert_eq!(Counter::from_zero().advance(7, Range::Full), Gain::Grown(7));
    }

    #[test]
    fn a_saturated_counter_is_distinguished_from_one_that_rests() {
        let range = Range::Saturates { at: 99 };
        assert_eq!(
            run(range, &[50, 50, 99, 99]),
            [Gain::First, Gain::Grown(0), Gain::Grown(49), Gain::Saturated]
        );
    }

    #[test]
    fn a_wrap_is_counted_once_and_a_fall_of_an_endless_counter_is_nothing() {
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

    #[test]
    fn a_device_that_came_back_begins_anew() {
        let mut counter = Counter::default();
        counter.advance(10, Range::Full);
        counter.lost();
        assert_eq!(counter.advance(500, Range::Full), Gain::First);
        assert_eq!(counter.advance(501, Range::Full).amount(), 1);
    }
}
