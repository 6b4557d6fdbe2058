//! One total made of the same counter of several things that come and go: the targets of a file system, its mounts.

use std::collections::BTreeMap;

use readings::{Counter, Gain, Range};
use serde::{Deserialize, Serialize};

/// The sum of the members' counts while this exporter runs. It never falls, whichever member goes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Summed {
    total: u64,
    members: BTreeMap<u64, Counter>,
}

impl Summed {
    /// Takes the reading of a member. One that is not known yet adds nothing, unless it is known to have begun at 0 since
    /// the last reading. Whether the counter went back without a wrap.
    pub(super) fn add(&mut self, member: u64, raw: u64, range: Range, from_zero: bool) -> bool {
        let counter = self
            .members
            .entry(member)
            .or_insert_with(|| if from_zero { Counter::from_zero() } else { Counter::default() });
        let gain = counter.advance(raw, range);
        self.total = self.total.saturating_add(gain.amount());
        gain == Gain::Restarted
    }

    /// Forgets the members that are gone; their counts are kept.
    pub(super) fn keep(&mut self, there: impl Fn(u64) -> bool) {
        self.members.retain(|member, _| there(*member));
    }

    /// What they counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_never_goes_back_and_history_is_not_in_it() {
        let mut sum = Summed::default();
        assert!(!sum.add(1, 1000, Range::Full, false));
        sum.add(2, 50, Range::Full, true);
        assert_eq!(sum.total(), 50);
        sum.add(1, 1007, Range::Full, false);
        assert_eq!(sum.total(), 57);
        sum.keep(|member| member != 1);
        assert_eq!(sum.total(), 57);
        sum.add(1, 2000, Range::Full, false);
        assert_eq!(sum.total(), 57, "it came back as another");
        assert!(sum.add(2, 3, Range::Full, false), "it was reset");
        sum.add(2, 4, Range::Full, false);
        assert_eq!(sum.total(), 58);
        sum.add(1, 2, Range::Wraps { at: 2001 }, false);
        assert_eq!(sum.total(), 61);
    }
}
