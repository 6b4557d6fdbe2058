//! Time in which engines were busy, from the firmware's sums of percent.
//!
//! Once a cycle the firmware adds what percent of it an engine was busy, and counts the cycle; so of any two tables the
//! difference of the sums by that of the cycles is the mean in between. How long a cycle is need not be known: the
//! firmware's own clock says how long it was. Tables without a count of cycles have one a millisecond (AMD SMI's
//! amdsmi.h, `amdsmi_get_utilization_count`).

use std::time::Duration;

/// The sums wrap at 32 bits, at a full load of a cycle a millisecond after 12 hours: after this long nothing is certain.
const LONGEST: Duration = Duration::from_secs(3600);

/// A reading of the firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    /// By the firmware's clock, nanoseconds.
    pub(super) at_ns: u64,
    /// Cycles.
    pub(super) cycles: u32,
    /// Sums of percent: the whole GPU, its memory, its partitions; each of this many dies.
    pub(super) sums: Vec<Option<(u64, u64)>>,
}

/// Nanoseconds of being busy since the first reading.
#[derive(Debug, Default)]
pub(super) struct Activity {
    last: Option<Reading>,
    busy: Vec<Option<u64>>,
}

/// What became of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It continues the last reading.
    Continued,
    /// It does not: the time in between is not known.
    Begun,
    /// The sums grew by more than there were cycles: the time in between is not known.
    Excessive,
}

impl Activity {
    /// Takes a reading into account.
    pub(super) fn add(&mut self, reading: Reading) -> Taken {
        self.busy.resize(reading.sums.len(), None);
        for (busy, sum) in self.busy.iter_mut().zip(&reading.sums) {
            *busy = sum.map(|_| busy.unwrap_or_default());
        }
        let Some(last) = &self.last else {
            self.last = Some(reading);
            return Taken::Continued;
        };
        // The driver answers from its cache of a moment ago.
        if reading.cycles == last.cycles && reading.at_ns >= last.at_ns {
            return Taken::Continued;
        }
        let added = Self::between(last, &reading);
        self.last = Some(reading);
        let added = match added {
            Ok(added) => added,
            Err(why) => return why,
        };
        for (busy, added) in self.busy.iter_mut().zip(added) {
            *busy = busy.map(|busy| busy.saturating_add(added.unwrap_or_default()));
        }
        Taken::Continued
    }

    /// The growth between two readings, or why there is none: the firmware restarted in between, too long passed.
    fn between(last: &Reading, reading: &Reading) -> Result<Vec<Option<u64>>, Taken> {
        let elapsed =
            reading.at_ns.checked_sub(last.at_ns).filter(|ns| u128::from(*ns) <= LONGEST.as_nanos());
        let elapsed = elapsed.ok_or(Taken::Begun)?;
        let cycles = u128::from(reading.cycles.wrapping_sub(last.cycles));
        let sums = reading.sums.iter().zip(&last.sums);
        sums.map(|pair| match pair {
            (Some((now, dies)), Some((before, of))) if dies == of => {
                // One die's sum has 32 bits, those of several dies are added up from 64.
                let added = if *dies == 0 {
                    u128::from(now.wrapping_sub(*before) & 0xffff_ffff)
                } else {
                    u128::from(now.checked_sub(*before).ok_or(Taken::Begun)?)
                };
                let full = cycles * 100 * u128::from((*dies).max(1));
                // Sums are rounded: a little more than everything is everything.
                let added = if added > full && added <= full + full / 100 + 100 { full } else { added };
                if added > full {
                    return Err(if now < before { Taken::Begun } else { Taken::Excessive });
                }
                let busy = (u128::from(elapsed) * added).checked_div(full).map(u64::try_from);
                Ok(Some(busy.and_then(Result::ok).ok_or(Taken::Begun)?))
            }
            _ => Ok(None),
        })
        .collect()
    }

    /// Whether there was a reading.
    pub(super) fn is_read(&self) -> bool {
        self.last.is_some()
    }

    /// Nanoseconds of the sum at an index, while it is read.
    pub(super) fn busy(&self, index: usize) -> Option<u64> {
        self.busy.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn reading(seconds: u64, cycles: u32, sums: &[(u64, u64)]) -> Reading {
        Reading { at_ns: seconds * SECOND, cycles, sums: sums.iter().copied().map(Some).collect() }
    }

    #[test]
    fn the_mean_percent_times_the_time_is_busy() {
        let mut activity = Activity::default();
        assert_eq!(activity.add(reading(100, 1000, &[(7000, 0)])), Taken::Continued);
        assert_eq!(activity.busy(0), Some(0));
        activity.add(reading(110, 11_000, &[(7000 + 250_000, 0)]));
        assert_eq!(activity.busy(0), Some(2_500_000_000), "25 % of 10 s, a cycle a millisecond");
        activity.add(reading(110, 11_000, &[(7000 + 250_000, 0)]));
        assert_eq!(activity.busy(0), Some(2_500_000_000), "the same table once more");
        activity.add(reading(120, 16_000, &[(7000 + 250_000 + 500_050, 0)]));
        assert_eq!(activity.busy(0), Some(12_500_000_000), "100 % of 10 s in fewer cycles, rounded up");
        assert_eq!(activity.busy(1), None);
    }

    #[test]
    fn sums_and_cycles_wrap() {
        let mut activity = Activity::default();
        activity.add(reading(0, u32::MAX - 4999, &[(u64::from(u32::MAX) - 9, 0)]));
        assert_eq!(activity.add(reading(10, 5000, &[(499_990, 0)])), Taken::Continued);
        assert_eq!(activity.busy(0), Some(5 * SECOND));
    }

    #[test]
    fn partitions_are_the_mean_of_their_dies() {
        let mut activity = Activity::default();
        activity.add(reading(0, 0, &[(0, 0), (100, 2)]));
        activity.add(reading(10, 10_000, &[(0, 0), (100 + 500_000, 2)]));
        assert_eq!(activity.busy(1), Some(2_500_000_000), "one die half the time");
    }

    #[test]
    fn a_new_beginning_counts_nothing() {
        let mut activity = Activity::default();
        activity.add(reading(100, 50_000, &[(1_000_000, 0)]));
        activity.add(reading(110, 60_000, &[(2_000_000, 0)]));
        assert_eq!(activity.busy(0), Some(10 * SECOND));
        assert_eq!(activity.add(reading(5, 300, &[(100, 0)])), Taken::Begun, "its clock went back");
        assert_eq!(activity.busy(0), Some(10 * SECOND));
        assert_eq!(activity.add(reading(15, 10_300, &[(100, 0)])), Taken::Continued);
        assert_eq!(activity.add(reading(25, 20_300, &[(2_000_100, 0)])), Taken::Excessive, "200 %");
        assert_eq!(activity.add(reading(25 + 3601, 30_300, &[(2_000_200, 0)])), Taken::Begun, "too long ago");
        assert_eq!(activity.add(reading(25 + 3611, 40_300, &[(200, 0)])), Taken::Begun, "its sum began anew");
        assert_eq!(activity.busy(0), Some(10 * SECOND));
    }
}
