//! What a whole counted and none of its parts did, where both are read one after the other and parts come and go.

use serde::{Deserialize, Serialize};

/// One round of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// The whole, read before its parts.
    pub before: u64,
    /// The sum of the parts that are there.
    pub parts: u64,
    /// The whole, read after them.
    pub after: u64,
}

/// The running remainder of a whole that contains exactly the parts that are present: a part that goes takes its
/// counts out of both. Since all of them only grow, the true remainder lies between `before - parts` and `after -
/// parts`; only the lower end is ever counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remainder {
    bounds: Option<Bounds>,
    /// It went back in the last round: growth in the next one may be what was missing in that.
    went_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Bounds {
    /// How much was taken into account; at first the most that it can have been.
    counted: i128,
    /// The most that it was at least.
    proven: i128,
}

impl Remainder {
    /// Takes a round. Returns what is to be left unattributed; `None` when the remainder went back, which it cannot
    /// do by itself.
    pub fn observe(&mut self, round: Round) -> Option<u64> {
        let low = i128::from(round.before) - i128::from(round.parts);
        let high = i128::from(round.after) - i128::from(round.parts);
        // History from before the first round is unattributed.
        let first = Bounds { counted: high, proven: low };
        let went_back = std::mem::take(&mut self.went_back);
        let before = self.bounds.filter(|_| !went_back).unwrap_or(first);
        if high < before.proven {
            (self.bounds, self.went_back) = (Some(first), true);
            return None;
        }
        let counted = before.counted.max(low);
        self.bounds = Some(Bounds { counted, proven: before.proven.max(low) });
        Some(u64::try_from(counted - before.counted).unwrap_or(0))
    }

    /// It could not be read: the next round is a first one.
    pub fn lost(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(remainder: &mut Remainder, whole: u64, parts: u64) -> Option<u64> {
        remainder.observe(Round { before: whole, parts, after: whole })
    }

    #[test]
    fn history_is_unattributed_and_growth_that_no_part_explains_is_the_remainders() {
        let mut remainder = Remainder::default();
        assert_eq!(exact(&mut remainder, 1000, 100), Some(0));
        assert_eq!(exact(&mut remainder, 1500, 300), Some(300));
        assert_eq!(exact(&mut remainder, 1600, 400), Some(0));
    }

    #[test]
    fn a_part_that_goes_takes_what_it_counted_out_of_both() {
        let mut remainder = Remainder::default();
        exact(&mut remainder, 1000, 600);
        assert_eq!(exact(&mut remainder, 410, 0), Some(10));
        assert_eq!(exact(&mut remainder, 500, 50), Some(40));
    }

    #[test]
    fn parts_that_grow_while_they_are_read_make_no_remainder() {
        let mut remainder = Remainder::default();
        remainder.observe(Round { before: 1000, parts: 1000, after: 1040 });
        assert_eq!(remainder.observe(Round { before: 2000, parts: 2030, after: 2070 }), Some(0));
        assert_eq!(
            remainder.observe(Round { before: 3100, parts: 3000, after: 3100 }),
            Some(60),
            "the least it can be"
        );
    }

    /// Where the kernel leaves a group out of the sum that the hardware did not know, it is in it again the next time.
    #[test]
    fn what_was_missing_once_is_not_charged_when_it_is_back() {
        let mut remainder = Remainder::default();
        exact(&mut remainder, 1_000_000, 900_000);
        assert_eq!(exact(&mut remainder, 100_000, 900_000), None);
        assert_eq!(exact(&mut remainder, 1_000_050, 900_000), Some(0));
        assert_eq!(exact(&mut remainder, 1_000_070, 900_000), Some(20));
        remainder.lost();
        assert_eq!(exact(&mut remainder, 5_000_000, 0), Some(0));
    }

    /// Random histories with a known truth: never more than the truth, and in the end all of it but the uncertainty.
    #[test]
    fn never_more_than_the_truth() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..200 {
            let mut remainder = Remainder::default();
            let (mut own, mut parts, mut remainders) = (random(1000), vec![random(1000)], 0);
            let history = own;
            let mut uncertainty = 0;
            for round in 0..100 {
                own += random(50);
                match random(8) {
                    0 => parts.push(0),
                    1 => drop(parts.pop()),
                    _ => {}
                }
                let before = own + parts.iter().sum::<u64>();
                parts.iter_mut().for_each(|part| *part += random(30));
                let read: u64 = parts.iter().sum();
                parts.iter_mut().for_each(|part| *part += random(30));
                own += random(10);
                let after = own + parts.iter().sum::<u64>();
                remainders +=
                    remainder.observe(Round { before, parts: read, after }).expect("it never went back");
                assert!(remainders <= own - history, "round {round}");
                uncertainty = after - before;
            }
            let first = 2 * 30 * 2 + 10 + 50;
            assert!(remainders + uncertainty + first >= own - history, "{remainders} of {}", own - history);
        }
    }
}
