//! When something is due for which job run. The next one is found without a look at the others, of which there may be
//! thousands that ended.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::JobRunId;

/// One due time per job run at most.
#[derive(Debug, Default)]
pub(super) struct DueTimes {
    by_run: HashMap<JobRunId, Instant>,
    in_order: BTreeSet<(Instant, JobRunId)>,
}

impl DueTimes {
    /// Replaces the due time of a job run.
    pub(super) fn set(&mut self, run: JobRunId, at: Instant) {
        self.clear(run);
        self.by_run.insert(run, at);
        self.in_order.insert((at, run));
    }

    /// Nothing is due for this job run any more.
    pub(super) fn clear(&mut self, run: JobRunId) {
        if let Some(at) = self.by_run.remove(&run) {
            self.in_order.remove(&(at, run));
        }
    }

    /// The earliest due time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Takes out the job runs that are due, the earliest first.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<JobRunId> {
        let mut due = Vec::new();
        while let Some((_, run)) = self.in_order.first().copied().filter(|(at, _)| *at <= now) {
            self.clear(run);
            due.push(run);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runs_are_due_in_the_order_of_their_times_and_once() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut times = DueTimes::default();
        assert_eq!((times.next(), times.take_due(at(99))), (None, Vec::new()));
        for (run, seconds) in [(1, 5), (2, 3), (3, 3), (4, 8), (1, 4)] {
            times.set(JobRunId(run), at(seconds));
        }
        times.clear(JobRunId(3));
        assert_eq!(times.next(), Some(at(3)));
        assert_eq!(times.take_due(at(4)), [JobRunId(2), JobRunId(1)]);
        assert_eq!((times.take_due(at(4)), times.next()), (Vec::new(), Some(at(8))));
    }
}
