//! A reading, and how a later one is compared with it.

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
    /// Microjoules between two readings of one [`Sample::epoch`] with at most one wrap between them. `None` for a
    /// counter that went back without a right to: nothing is known of that time.
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

#[cfg(test)]
mod tests {
    use super::*;

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
