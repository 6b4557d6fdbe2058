//! What each socket's memory moved since the collector of energy asked last, and whose that was.

use attribution::Traffic;
use slurm_jobs::JobRunId;

use crate::collector::memory_moved::MovedBySocket;

/// The sums. A socket is known as long as every reading since the last question was complete.
#[derive(Debug, Default)]
pub(super) struct Moved(MovedBySocket);

impl Moved {
    /// A reading of all sockets. One that is not in it was not read.
    pub(super) fn round(&mut self, mut round: MovedBySocket) {
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
            let more = Traffic { bytes, jobs: Some([(run, bytes)].into()) };
            *sum = sum.take().map(|sum| sum.plus(&more));
        }
    }

    /// Hands over the sums, and begins anew.
    pub(super) fn take(&mut self) -> MovedBySocket {
        let begin = self.0.keys().map(|socket| (*socket, Some(Traffic::of_nobody(0)))).collect();
        std::mem::replace(&mut self.0, begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_known_if_every_reading_between_two_questions_was_complete() {
        const A: JobRunId = JobRunId(1);
        let of = |bytes| Some(Traffic::of_nobody(bytes));
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
        assert_eq!(moved.take()[&Some(0)], Some(Traffic { bytes: 7, jobs: Some([(A, 3)].into()) }));
    }
}
