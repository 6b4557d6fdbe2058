//! The bytes that memory moved in an interval, and whose they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// What the memory of a part of the node moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// All of it, whoever moved it.
    pub bytes: u64,
    /// By job; `None` if it is not known of each job.
    pub jobs: Option<BTreeMap<JobRunId, u64>>,
}

impl Traffic {
    /// Bytes that no job moved.
    pub fn of_nobody(bytes: u64) -> Self {
        Self { bytes, jobs: Some(BTreeMap::new()) }
    }

    /// The sum. Who moved it is known if it is known of both.
    #[must_use]
    pub fn plus(mut self, more: &Self) -> Self {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.jobs = self.jobs.zip(more.jobs.as_ref()).map(|(mut jobs, more)| {
            for (run, bytes) in more {
                let sum = jobs.entry(*run).or_default();
                *sum = sum.saturating_add(*bytes);
            }
            jobs
        });
        self
    }

    /// Drops the other job runs: what they moved remains in the sum.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        self.jobs.iter_mut().for_each(|jobs| jobs.retain(|run, _| known(*run)));
    }

    /// The jobs' bytes as weights, of which whole.
    pub(crate) fn by_job(&self) -> Option<(Vec<(JobRunId, u128)>, u128)> {
        let jobs = self.jobs.as_ref()?;
        let weights = jobs.iter().map(|(run, bytes)| (*run, u128::from(*bytes)));
        Some((weights.collect(), u128::from(self.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_sum_is_is_known_if_it_is_known_of_all_of_it() {
        let (a, b) = (JobRunId(1), JobRunId(2));
        let of =
            |bytes, jobs: &[(JobRunId, u64)]| Traffic { bytes, jobs: Some(jobs.iter().copied().collect()) };
        let sum = Traffic::of_nobody(5).plus(&of(9, &[(a, 3)])).plus(&of(7, &[(a, 2), (b, 4)]));
        assert_eq!(sum, of(21, &[(a, 5), (b, 4)]));
        let unknown = Traffic { bytes: 1, jobs: None };
        assert_eq!(sum.clone().plus(&unknown), Traffic { bytes: 22, jobs: None });
        assert_eq!(unknown.plus(&sum), Traffic { bytes: 22, jobs: None });
    }
}
