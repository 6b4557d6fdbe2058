//! Signalling a thread to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// Stops whatever checks [`Stop::is_set`] when it is dropped: after a panic too, or the scope of the thread would wait for
/// it forever.
#[derive(Debug)]
pub struct Stop<'a>(&'a AtomicBool);

impl<'a> Stop<'a> {
    /// A flag that is false as long as nobody is to stop.
    #[must_use]
    pub fn when_dropped(flag: &'a AtomicBool) -> Self {
        Self(flag)
    }

    /// Whether to stop.
    #[must_use]
    pub fn is_set(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
