//! Who may use the hardware's counters: this exporter, or a user's profiler.
//!
//! A profiler that programs counters itself (LIKWID's direct mode, VTune's driver) does so behind the kernel's back, and
//! what both then read is wrong without any error. So whoever holds counters here takes part in one arbiter, which has
//! all of them let go when a lock changes hands or somebody orders it, and take up again afterwards.

mod lock;
mod owner;
mod ownership;

pub use lock::{Lock, Look};
pub use owner::{Owner, Unclear};
pub use ownership::{CounterOwnership, CounterUser, OwnershipStatus, Reason, Yielded};
