//! `rate_limit`: a bucket of requests that fills up by one per interval.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::config::Rate;

/// One bucket for all clients, as in the toolkit.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) rate: Rate,
    /// When the bucket will be full. Full minus the time until then is what is left in it, so that one instant
    /// says everything.
    full_at: Mutex<Instant>,
}

impl Limiter {
    /// A full bucket.
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Limiter { rate, full_at: Mutex::new(now) }
    }

    /// Takes one request out of the bucket, if there is one.
    pub(super) fn allow(&self, now: Instant) -> bool {
        let Rate { interval, burst } = self.rate;
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(after) = (*full_at).max(now).checked_add(interval) else { return false };
        let fits = interval.checked_mul(burst).is_none_or(|whole| after.duration_since(now) <= whole);
        if fits {
            *full_at = after;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_and_then_one_per_interval() {
        let start = Instant::now();
        let interval = Duration::from_secs(1);
        let limiter = Limiter::new(Rate { interval, burst: 3 }, start);
        let allowed = |at: Duration| limiter.allow(start + at);
        assert_eq!([0; 5].map(|_| allowed(Duration::ZERO)), [true, true, true, false, false]);
        assert!(!allowed(interval / 2));
        assert!(allowed(interval));
        assert!(!allowed(interval));
        assert_eq!([0; 4].map(|_| allowed(interval * 100)), [true, true, true, false]);
    }
}
