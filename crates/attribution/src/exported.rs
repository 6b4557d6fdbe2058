//! What scrapes showed of each job run, kept in one place. Exported job runs + unattributed = node. So a dropped job
//! run counts as a job's exactly as far as a scrape showed it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// A count, or several that are kept together.
pub trait Amount: Copy + Default {
    /// The sum, at most what fits.
    fn plus(self, other: Self) -> Self;

    /// The difference where it is positive.
    fn minus(self, other: Self) -> Self;
}

impl Amount for u64 {
    fn plus(self, other: Self) -> Self {
        self.saturating_add(other)
    }

    fn minus(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

/// The latest amount that a scrape showed of each job run, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exported<A> {
    runs: HashMap<JobRunId, A>,
    /// Over all job runs, those too that are dropped by now.
    total: A,
}

impl<A: Amount> Exported<A> {
    /// A scrape shows this amount of a job run.
    pub fn show(&mut self, run: JobRunId, amount: A) {
        let before = self.runs.insert(run, amount).unwrap_or_default();
        self.total = self.total.plus(amount).minus(before);
    }

    /// A job run is dropped, with this amount. What no scrape showed of it is handed back: it is unattributed.
    pub fn drop_run(&mut self, run: JobRunId, amount: A) -> A {
        amount.minus(self.runs.remove(&run).unwrap_or_default())
    }

    /// The sum over all job runs that scrapes showed.
    pub fn total(&self) -> A {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: JobRunId = JobRunId(1);
    const B: JobRunId = JobRunId(2);

    #[test]
    fn a_dropped_run_remains_in_the_total_as_far_as_a_scrape_showed_it() {
        let mut exported = Exported::default();
        exported.show(A, 7_u64);
        exported.show(A, 10);
        exported.show(B, 5);
        assert_eq!(exported.total(), 15);
        assert_eq!(exported.drop_run(A, 14), 4, "what no scrape showed");
        assert_eq!(exported.drop_run(JobRunId(3), 9), 9, "no scrape showed any of it");
        assert_eq!(exported.total(), 15);
        assert_eq!(exported.runs.len(), 1);
    }
}
