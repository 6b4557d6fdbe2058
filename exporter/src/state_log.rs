//! Which changes of a state are written to the log: each once, and a state that comes back again and again at most once a
//! minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Least time between two lines about the same state of the same cause.
const PAUSE: Duration = Duration::from_secs(60);

/// What was written of one cause.
#[derive(Debug)]
struct Written<S> {
    present: S,
    written: S,
    at: BTreeMap<S, Instant>,
    suppressed: u64,
}

/// The states of some causes, such as collectors, as the log has them. Causes and states are few and known beforehand: both
/// are kept for ever.
#[derive(Debug)]
pub struct StateLog<C, S>(BTreeMap<C, Written<S>>);

impl<C, S> Default for StateLog<C, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C: Ord, S: Ord + Copy> StateLog<C, S> {
    /// Notes the state that a cause has now. `Some` if a line is due, with the number of changes that were not written since
    /// the last line. `first` is the state of a cause that was never noted.
    ///
    /// A line that is held back comes with a later call, if the state is still another than the log says.
    pub fn line(&mut self, cause: C, first: S, present: S, now: Instant) -> Option<u64> {
        let known = self.0.entry(cause).or_insert_with(|| Written {
            present: first,
            written: first,
            at: BTreeMap::new(),
            suppressed: 0,
        });
        let changed = known.present != present;
        known.present = present;
        let paused = |at: &Instant| now.saturating_duration_since(*at) < PAUSE;
        if known.written == present || known.at.get(&present).is_some_and(paused) {
            known.suppressed += u64::from(changed);
            return None;
        }
        known.written = present;
        known.at.insert(present, now);
        Some(std::mem::take(&mut known.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "ok";
    const LATE: &str = "late";

    /// The lines of a history, one state a second: the second, the state, what was held back.
    fn lines(history: impl IntoIterator<Item = &'static str>) -> Vec<(u64, &'static str, u64)> {
        let begin = Instant::now();
        let mut log = StateLog::default();
        let at = |(second, state)| {
            let now = begin + Duration::from_secs(second);
            Some((second, state, log.line("memory", OK, state, now)?))
        };
        (0..).zip(history).filter_map(at).collect()
    }

    #[test]
    fn each_change_is_written_once() {
        assert_eq!(lines([OK, OK]), []);
        assert_eq!(lines([LATE, LATE, LATE, OK, OK]), [(0, LATE, 0), (3, OK, 0)]);
        assert_eq!(lines([LATE, "denied", OK]), [(0, LATE, 0), (1, "denied", 0), (2, OK, 0)]);
    }

    #[test]
    fn a_flapping_state_is_written_once_a_minute_with_the_number_of_changes_between() {
        let flapping = (0..130).map(|second| if second % 2 == 0 { LATE } else { OK });
        let wanted = [(0, LATE, 0), (1, OK, 0), (60, LATE, 58), (61, OK, 0), (120, LATE, 58), (121, OK, 0)];
        assert_eq!(lines(flapping), wanted);
    }

    #[test]
    fn the_last_state_is_written_in_the_end() {
        let history = [LATE, OK, LATE].into_iter().chain(std::iter::repeat_n(LATE, 90));
        assert_eq!(lines(history), [(0, LATE, 0), (1, OK, 0), (60, LATE, 1)]);
    }

    #[test]
    fn causes_do_not_hold_back_each_other() {
        let (mut log, now) = (StateLog::default(), Instant::now());
        assert_eq!(log.line("a", false, true, now), Some(0));
        assert_eq!(log.line("b", false, true, now), Some(0));
        assert_eq!(log.line("a", false, true, now), None);
    }
}
