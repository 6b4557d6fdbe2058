//! What was measured on each socket since the collector of energy asked last, and whose that was.

use attribution::Measured;
use perf_counters::resctrl::Round;
use slurm_jobs::JobRunId;

use crate::collector::memory_moved::BySocket;

/// The sums. A socket is known as long as every reading since the last question was complete.
#[derive(Debug, Default)]
pub(super) struct Moved(BySocket);

impl Moved {
    /// A reading of all sockets. One that is not in it was not read.
    pub(super) fn round(&mut self, mut round: BySocket) {
        for (socket, sum) in &mut self.0 {
            let more = round.remove(socket).flatten();
            *sum = sum.take().zip(more).map(|(sum, more)| sum.plus(&more));
        }
        // What one of them moved before its first reading is not known.
        self.0.extend(round.into_keys().map(|socket| (socket, None)));
    }

    /// A job moved more on a socket, by a reading of its own.
    pub(super) fn more(&mut self, socket: Option<u32>, run: JobRunId, bytes: u64) {
        if let Some(sum) = self.0.get_mut(&socket) {
            let more = Measured { amount: bytes, jobs: Some([(run, bytes)].into()) };
            *sum = sum.take().map(|sum| sum.plus(&more));
        }
    }

    /// Hands over the sums, and begins anew.
    pub(super) fn take(&mut self) -> BySocket {
        let begin = self.0.keys().map(|socket| (*socket, Some(Measured::of_nobody(0)))).collect();
        std::mem::replace(&mut self.0, begin)
    }
}

/// What a round of resctrl's measured since the one before, and whose that was if all jobs were monitored. Of a place that could not
/// be read, the next round says nothing either.
pub(super) fn measured_in(
    round: &Round,
    before: &Round,
    socket: impl Fn(u32) -> Option<u32>,
    monitored: bool,
) -> BySocket {
    let known = |place: &u32| {
        let whole = round.whole.contains(place) && before.whole.contains(place);
        round.restarts == 0 && whole && !round.began.contains(place)
    };
    let mut measured = BySocket::new();
    for place in &round.places {
        let mut here = Measured::of_nobody(0);
        for (run, _, amount) in round.jobs.iter().filter(|(_, of, _)| of == place) {
            here = here.plus(&Measured { amount: *amount, jobs: Some([(*run, *amount)].into()) });
        }
        let others = round.unattributed.iter().filter(|(of, _)| of == place);
        others.for_each(|(_, amount)| here.amount = here.amount.saturating_add(*amount));
        here.jobs = here.jobs.filter(|_| monitored);
        let sum = measured.entry(socket(*place)).or_insert(Some(Measured::of_nobody(0)));
        *sum = sum.take().filter(|_| known(place)).map(|sum| sum.plus(&here));
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_known_if_every_reading_between_two_questions_was_complete() {
        const A: JobRunId = JobRunId(1);
        let of = |bytes| Some(Measured::of_nobody(bytes));
        let mut moved = Moved::default();
        let mut at = |rounds: &[&[(u32, Option<u64>)]]| {
            for round in rounds {
                let round = round.iter().map(|(socket, bytes)| (Some(*socket), bytes.and_then(of)));
                moved.round(round.collect());
            }
            let taken = moved.take();
            [0, 1].map(|socket| taken.get(&Some(socket)).cloned().flatten())
        };
        assert_eq!(at(&[&[(0, Some(5))]]), [None, None], "nobody knows since when");
        assert_eq!(at(&[&[(0, Some(5)), (1, Some(1))], &[(0, Some(2)), (1, Some(1))]]), [of(7), None]);
        assert_eq!(at(&[&[(0, None), (1, Some(1))], &[(0, Some(2)), (1, Some(1))]]), [None, of(2)]);
        assert_eq!(at(&[&[(0, Some(2))]]), [of(2), None], "not read");
        moved.more(Some(0), A, 3);
        moved.round([(Some(0), of(4))].into());
        moved.more(Some(2), A, 3);
        assert_eq!(moved.take()[&Some(0)], Some(Measured { amount: 7, jobs: Some([(A, 3)].into()) }));
    }
}
