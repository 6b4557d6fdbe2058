//! `rate_limit`: a bucket of requests that gains one per interval.

use std::time::Instant;

use parking_lot::Mutex;

use crate::config::Rate;

/// One bucket for all clients, as in the toolkit.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) rate: Rate,
    /// When the bucket will be full. Each interval until then is one request that is missing in it.
    full_at: Mutex<Instant>,
}

impl Limiter {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Limiter { rate, full_at: Mutex::new(now) }
    }

    /// Takes one request out of the bucket, if there is one.
    pub(crate) fn allow(&self, now: Instant) -> bool {
        let Rate { interval, burst } = self.rate;
        let mut full_at = self.full_at.lock();
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
    use std::time::Duration;

    use super::*;

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
