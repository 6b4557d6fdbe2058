//! Instants of the monotonic clock, which is the same for every process of one boot.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant that another process of the same boot can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SavedInstant(pub Instant);

/// One instant, and the reading of `CLOCK_MONOTONIC` at it. `Instant` is that clock on Linux.
fn anchor() -> (Instant, u64) {
    static ANCHOR: OnceLock<(Instant, u64)> = OnceLock::new();
    *ANCHOR.get_or_init(|| {
        let reading = clocks::monotonic_nanoseconds();
        (Instant::now(), reading)
    })
}

/// Nanoseconds of the monotonic clock.
fn nanos(at: Instant) -> u64 {
    let (then, reading) = anchor();
    let whole = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_duration_since(then) {
        Some(later) => reading.saturating_add(whole(later)),
        None => reading.saturating_sub(whole(then.saturating_duration_since(at))),
    }
}

/// The instant of a reading. None is later than now, whatever is written in a state.
fn instant(nanos: u64) -> Instant {
    let (then, reading) = anchor();
    let at = match nanos.checked_sub(reading) {
        Some(later) => then.checked_add(Duration::from_nanos(later)),
        None => then.checked_sub(Duration::from_nanos(reading.saturating_sub(nanos))),
    };
    let now = Instant::now();
    at.map_or(now, |at| at.min(now))
}

/// Serializes an instant.
pub fn serialize<S: Serializer>(at: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    nanos(*at).serialize(serializer)
}

/// Deserializes an instant.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Instant, D::Error> {
    u64::deserialize(deserializer).map(instant)
}

impl Serialize for SavedInstant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for SavedInstant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

/// The same for an instant that may be missing.
pub mod option {
    use super::{Deserialize, Deserializer, Instant, SavedInstant, Serialize, Serializer};

    /// Serializes it.
    pub fn serialize<S: Serializer>(at: &Option<Instant>, serializer: S) -> Result<S::Ok, S::Error> {
        at.map(SavedInstant).serialize(serializer)
    }

    /// Deserializes it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Instant>, D::Error> {
        Ok(Option::<SavedInstant>::deserialize(deserializer)?.map(|moment| moment.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_the_same_to_the_nanosecond() {
        let now = Instant::now();
        for at in [now, now - Duration::from_millis(1234), now - Duration::from_nanos(1)] {
            assert_eq!(instant(nanos(at)), at);
        }
    }

    #[test]
    fn no_moment_is_in_the_future() {
        let later = nanos(Instant::now() + Duration::from_secs(3600));
        for reading in [later, u64::MAX] {
            assert!(instant(reading) <= Instant::now());
        }
        assert!(instant(0) <= Instant::now());
    }
}
