//! The end of the process.

#![allow(
    unsafe_code,
    reason = "no safe interface ends a process without what libraries have registered for it"
)]

use std::io::Write;

use super::Failure;

/// Ends the process at once, with a run's exit status, after logging why it failed. What a driver's library does when a
/// process ends (exit(3)) may wait for a call of it that hangs.
pub fn end(outcome: Result<u8, Failure>) -> ! {
    let status = outcome.unwrap_or_else(|failure| {
        tracing::error!("{failure}");
        failure.status()
    });
    // Standard output is the only one with a buffer; whoever does not read it any more misses nothing.
    let _ = std::io::stdout().flush();
    // SAFETY: nothing of this process is used after it.
    unsafe { libc::_exit(status.into()) }
}
