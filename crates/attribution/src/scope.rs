//! The CPU ledger of SLURM's cgroup: Σ jobs + residual == total.
//!
//! The scope's own counter keeps the time of cgroups that were removed, so what a job spent after its last
//! reading is not lost: it is the scope's gain that no reading explains. The readings of one moment cannot be
//! taken at one moment: the scope is read before (`before`) and after (`after`) the jobs, and since every counter
//! only grows, the true unexplained time R lies between `before - jobs` and `after - jobs`. Everything published
//! is built on the lower bound, so that no job and no residual is ever charged with time that was not spent on it.

use serde::{Deserialize, Serialize};

/// One round of readings, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Sum over SLURM's scopes, read before the jobs and before they were listed.
    pub before: u64,
    /// Sum over all runs so far: running, retained and dropped.
    pub jobs: u64,
    /// Sum over SLURM's scopes, read after the jobs.
    pub after: u64,
}

impl Reading {
    fn low(&self) -> i128 {
        i128::from(self.before) - i128::from(self.jobs)
    }

    fn high(&self) -> i128 {
        i128::from(self.after) - i128::from(self.jobs)
    }
}

/// The running balance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeLedger {
    /// R at the first round, upper bound: history from before this exporter, which is unattributed.
    base: Option<i128>,
    /// Upper bound of R at the latest round.
    high: i128,
    /// Unexplained time since the first round, microseconds; only grows.
    residual: u64,
}

impl ScopeLedger {
    /// Takes a round of readings into account.
    pub fn observe(&mut self, reading: Reading) {
        let base = *self.base.get_or_insert(reading.high());
        let grown = u64::try_from(reading.low() - base).unwrap_or(0);
        self.residual = self.residual.max(grown);
        self.high = reading.high();
    }

    /// CPU time that the one run that vanished since the latest round used after its last reading, microseconds: the
    /// least that the rounds before and after prove. `reading.jobs` includes its last reading. The caller charges it
    /// to the job, and then observes the round with it in `jobs`.
    pub fn late_time(&self, reading: Reading) -> u64 {
        if self.base.is_none() {
            return 0;
        }
        u64::try_from(reading.low() - self.high).unwrap_or(0)
    }

    /// Unexplained time since the first round, microseconds.
    pub fn residual(&self) -> u64 {
        self.residual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_from_before_the_first_round_is_unattributed() {
        let mut ledger = ScopeLedger::default();
        ledger.observe(Reading { before: 1_000_000, jobs: 300, after: 1_000_000 });
        assert_eq!(ledger.residual(), 0);
        ledger.observe(Reading { before: 1_000_500, jobs: 700, after: 1_000_500 });
        assert_eq!(ledger.residual(), 100);
    }

    #[test]
    fn the_time_after_the_last_reading_goes_to_the_job_that_vanished() {
        let mut ledger = ScopeLedger::default();
        ledger.observe(Reading { before: 100, jobs: 100, after: 100 });
        // The job was last read at 150, spent 30 more and is gone.
        let round = Reading { before: 180, jobs: 150, after: 180 };
        assert_eq!(ledger.late_time(round), 30);
        ledger.observe(Reading { jobs: 180, ..round });
        assert_eq!(ledger.residual(), 0);
    }

    #[test]
    fn busy_neighbours_never_make_a_charge_that_is_not_proven() {
        let mut ledger = ScopeLedger::default();
        ledger.observe(Reading { before: 1000, jobs: 1000, after: 1040 });
        // While the jobs were read, the neighbours spent 40: less than that proves nothing.
        assert_eq!(ledger.late_time(Reading { before: 2030, jobs: 2000, after: 2070 }), 0);
        assert_eq!(ledger.late_time(Reading { before: 2100, jobs: 2000, after: 2140 }), 60);
    }

    /// Random histories with a known truth: a xorshift generator keeps them the same everywhere.
    #[test]
    fn total_lies_between_the_two_readings_of_the_scope_and_residual_never_shrinks() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..200 {
            let mut ledger = ScopeLedger::default();
            let (mut unexplained, mut jobs) = (random(1000), random(100_000));
            let history = unexplained;
            let mut last = 0;
            for _ in 0..100 {
                jobs += random(500);
                unexplained += if random(4) == 0 { random(50) } else { 0 };
                let before = jobs + unexplained;
                let read = jobs + random(100);
                let after = read + random(100) + unexplained;
                jobs = after - unexplained;
                ledger.observe(Reading { before, jobs: read, after });
                assert!(ledger.residual() >= last);
                assert!(ledger.residual() <= unexplained - history, "more than was unexplained");
                last = ledger.residual();
                let total = read + ledger.residual() + history;
                assert!(total <= after, "total beyond the scope's own reading");
            }
            // A quiet moment shows all but the uncertainty (100) and the growth (50) of the first round.
            let truth = unexplained - history;
            ledger.observe(Reading { before: jobs + unexplained, jobs, after: jobs + unexplained });
            assert!(truth - ledger.residual() <= 150);
        }
    }
}
