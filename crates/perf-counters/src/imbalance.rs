//! How unevenly a job's CPUs of a node work. Pure.
//!
//! Which CPU is the busiest is found anew in every interval: a job whose ranks take turns is as uneven as one in which the same CPU
//! does everything.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The least interval that is looked at. In shorter ones a CPU is the busiest by chance.
const LEAST: Duration = Duration::from_secs(5);

/// A CPU that works for less than this part of an interval is idle: what wakes there is not the job's work.
const IDLE: u64 = 100;

/// What a CPU did in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Instructions.
    pub instructions: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// How long the job ran there, nanoseconds.
    pub busy: u64,
}

/// The sums over intervals that ended, and the one that goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imbalance {
    /// Instructions of the CPU that had the most.
    pub busiest_instructions: u64,
    /// Floating-point operations of the CPU that had the most.
    pub busiest_flops: u64,
    /// Time of CPUs that did next to nothing, nanoseconds over all CPUs.
    pub idle: u64,
    cpus: BTreeMap<u32, Work>,
    long: Duration,
}

impl Imbalance {
    /// A CPU did more.
    pub fn add(&mut self, cpu: u32, more: Work) {
        let work = self.cpus.entry(cpu).or_default();
        work.instructions = work.instructions.saturating_add(more.instructions);
        work.flops = work.flops.saturating_add(more.flops);
        work.busy = work.busy.saturating_add(more.busy);
    }

    /// The interval was longer by this. It ends here, unless it is too short and the job goes on.
    pub fn pass(&mut self, more: Duration, at_the_end: bool) {
        self.long = self.long.saturating_add(more);
        if self.long < LEAST && !at_the_end {
            return;
        }
        let most = |of: fn(&Work) -> u64| self.cpus.values().map(of).max().unwrap_or(0);
        let (instructions, flops) = (most(|work| work.instructions), most(|work| work.flops));
        self.busiest_instructions = self.busiest_instructions.saturating_add(instructions);
        self.busiest_flops = self.busiest_flops.saturating_add(flops);
        let long = u64::try_from(self.long.as_nanos()).unwrap_or(u64::MAX);
        let idle = self.cpus.values().filter(|work| work.busy < long / IDLE);
        self.idle = idle.fold(self.idle, |sum, _| sum.saturating_add(long));
        self.cpus.clear();
        self.long = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn work(instructions: u64, flops: u64, busy: u64) -> Work {
        Work { instructions, flops, busy }
    }

    #[test]
    fn the_busiest_cpu_is_found_anew_in_each_interval() {
        let mut sums = Imbalance::default();
        sums.add(0, work(70, 5, 5 * SECOND));
        sums.add(1, work(10, 6, 5 * SECOND));
        sums.add(0, work(30, 0, 0));
        sums.pass(Duration::from_secs(10), false);
        assert_eq!((sums.busiest_instructions, sums.busiest_flops, sums.idle), (100, 6, 0));
        sums.add(0, work(1, 1, 5 * SECOND));
        sums.add(1, work(50, 1, 5 * SECOND));
        sums.pass(Duration::from_secs(10), false);
        assert_eq!((sums.busiest_instructions, sums.busiest_flops, sums.idle), (150, 7, 0));
    }

    #[test]
    fn a_cpu_that_works_for_less_than_a_hundredth_is_idle() {
        let mut sums = Imbalance::default();
        sums.add(0, work(1, 0, SECOND / 10 - 1));
        sums.add(1, work(1, 0, SECOND / 10));
        sums.add(2, Work::default());
        sums.pass(Duration::from_secs(10), false);
        assert_eq!(sums.idle, 20 * SECOND);
    }

    #[test]
    fn a_short_interval_goes_on_unless_it_is_the_last() {
        let mut sums = Imbalance::default();
        sums.add(0, work(7, 0, SECOND));
        sums.pass(Duration::from_millis(4999), false);
        sums.add(0, work(3, 0, SECOND));
        assert_eq!((sums.busiest_instructions, sums.idle), (0, 0));
        sums.pass(Duration::from_millis(50), true);
        assert_eq!(sums.busiest_instructions, 10);
    }
}
