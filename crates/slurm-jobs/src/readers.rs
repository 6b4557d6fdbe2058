//! Who has read the ends of jobs.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Who reads the exposition, and keeps what it read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reader {
    /// Somebody who logged in.
    User(String),
    /// Somebody at an address.
    Address(IpAddr),
}

/// Most readers that are distinguished; the end of a job has a bit for each.
const MOST: usize = 64;

/// Which readers have something: a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReadBy(u64);

impl ReadBy {
    /// How many they are.
    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// With those of `other`, too.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The readers that were seen.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Readers(Vec<Known>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    reader: Reader,
    #[serde(with = "durable_state::instant")]
    seen: Instant,
}

impl Readers {
    /// A reader has read now. Returns its bit, and the bit that no longer means what it meant: with more than
    /// [`MOST`] readers, the one that was away longest is forgotten.
    pub(crate) fn seen(&mut self, reader: &Reader, now: Instant) -> (ReadBy, ReadBy) {
        let bit = |at: usize| ReadBy(1_u64.checked_shl(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0));
        if let Some((at, known)) = self.0.iter_mut().enumerate().find(|(_, known)| known.reader == *reader) {
            known.seen = now;
            return (bit(at), ReadBy::default());
        }
        if self.0.len() < MOST {
            self.0.push(Known { reader: reader.clone(), seen: now });
            return (bit(self.0.len() - 1), ReadBy::default());
        }
        let Some((at, oldest)) = self.0.iter_mut().enumerate().min_by_key(|(_, known)| known.seen) else {
            return (ReadBy::default(), ReadBy::default());
        };
        *oldest = Known { reader: reader.clone(), seen: now };
        (bit(at), bit(at))
    }

    /// Whether one of them read within this time, so that it will come again.
    pub(crate) fn any_within(&self, time: Duration, now: Instant) -> bool {
        self.0.iter().any(|known| now.saturating_duration_since(known.seen) <= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: usize) -> Reader {
        Reader::User(number.to_string())
    }

    #[test]
    fn a_reader_counts_once_however_often_it_reads() {
        let (mut readers, now) = (Readers::default(), Instant::now());
        let reads = [0, 1, 0, 1, 1].map(|number| readers.seen(&user(number), now).0);
        let by = reads.into_iter().fold(ReadBy::default(), ReadBy::and);
        assert_eq!(by.count(), 2);
        assert_eq!(readers.seen(&Reader::Address([10, 0, 0, 1].into()), now).0.and(by).count(), 3);
    }

    #[test]
    fn of_too_many_the_one_that_was_away_longest_is_forgotten() {
        let (mut readers, begin) = (Readers::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for (number, second) in (0..MOST).zip(1..) {
            assert_eq!(readers.seen(&user(number), at(second)).1.count(), 0);
        }
        let (zero, _) = readers.seen(&user(0), at(100));
        let (new, forgotten) = readers.seen(&user(MOST), at(101));
        assert_eq!((new, new.count()), (forgotten, 1));
        assert_eq!(zero.without(forgotten).count(), 1, "it has read a second ago");
        assert_eq!(readers.0.len(), MOST);
    }

    #[test]
    fn a_reader_is_expected_for_a_while() {
        let (mut readers, begin) = (Readers::default(), Instant::now());
        let minute = Duration::from_secs(60);
        assert!(!readers.any_within(minute, begin));
        readers.seen(&user(1), begin);
        assert!(readers.any_within(minute, begin + minute));
        assert!(!readers.any_within(minute, begin + 2 * minute));
    }
}
