//! Sharing the hardware counters between this exporter and a user's profiler.
//!
//! A profiler that programs counters itself (LIKWID's direct mode, VTune's driver) bypasses the kernel, and both then
//! read wrong values without any error. So every part of the exporter that holds counters registers with one owner,
//! which has all of them released when a lock changes hands or an order comes, and taken up again afterwards.

mod lock;
mod owner;
mod ownership;

pub use lock::{Lock, Look};
pub use owner::{Owner, Unclear};
pub use ownership::{CounterOwnership, CounterUser, OwnershipStatus, Reason, Yielded};
