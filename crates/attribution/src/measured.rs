//! An amount that was measured in an interval, and whose it is: bytes that memory moved, energy of cores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// What was measured on a part of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// All of it, whosever it is.
    pub amount: u64,
    /// By job; `None` if it is not known of each job.
    pub jobs: Option<BTreeMap<JobRunId, u64>>,
}

impl Measured {
    /// An amount of no job.
    pub fn of_nobody(amount: u64) -> Self {
        Self { amount, jobs: Some(BTreeMap::new()) }
    }

    /// The sum. Whose it is is known if it is known of both.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.amount = self.amount.saturating_add(more.amount);
        self.jobs = self.jobs.zip(more.jobs.as_ref()).map(|(mut jobs, more)| {
            for (run, amount) in more {
                let sum = jobs.entry(*run).or_default();
                *sum = sum.saturating_add(*amount);
            }
            jobs
        });
        self
    }

    /// Drops the other job runs: their part remains in the sum.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        self.jobs.iter_mut().for_each(|jobs| jobs.retain(|run, _| known(*run)));
    }

    /// The jobs' parts as weights, of which whole.
    pub(crate) fn by_job(&self) -> Option<(Vec<(JobRunId, u128)>, u128)> {
        let jobs = self.jobs.as_ref()?;
        let weights = jobs.iter().map(|(run, amount)| (*run, u128::from(*amount)));
        Some((weights.collect(), u128::from(self.amount)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_sum_is_is_known_if_it_is_known_of_all_of_it() {
        let (a, b) = (JobRunId(1), JobRunId(2));
        let of = |amount, jobs: &[(JobRunId, u64)]| Measured {
            amount,
            jobs: Some(jobs.iter().copied().collect()),
        };
        let sum = Measured::of_nobody(5).plus(&of(9, &[(a, 3)])).plus(&of(7, &[(a, 2), (b, 4)]));
        assert_eq!(sum, of(21, &[(a, 5), (b, 4)]));
        let unknown = Measured { amount: 1, jobs: None };
        assert_eq!(sum.clone().plus(&unknown), Measured { amount: 22, jobs: None });
        assert_eq!(unknown.plus(&sum), Measured { amount: 22, jobs: None });
    }
}
