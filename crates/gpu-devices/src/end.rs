//! The end of a process that has loaded a driver's library.

#![allow(
    unsafe_code,
    reason = "no safe interface ends a process without what libraries have registered for it"
)]

use std::io::Write;

/// Ends the process at once with this exit status. What a driver's library does when a process ends (exit(3)) may wait for a
/// call of it that hangs.
pub fn end_process(status: u8) -> ! {
    // Standard output is the only one with a buffer; whoever does not read it any more misses nothing.
    let _ = std::io::stdout().flush();
    // SAFETY: nothing of this process is used after it.
    unsafe { libc::_exit(status.into()) }
}
