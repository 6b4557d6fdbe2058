//! The end of the process.

use gpu_devices::end_process;

use super::Failure;

/// Ends the process with a run's exit status, after logging why it failed. A driver's library is not waited for.
pub fn end(outcome: Result<u8, Failure>) -> ! {
    end_process(outcome.unwrap_or_else(|failure| {
        tracing::error!("{failure}");
        failure.status()
    }))
}
