//! Hardware counters: which events a CPU has, which of them fit its counters together, and how they are opened,
//! read and let go.
//!
//! The pure parts know nothing of the kernel: a [`Plan`] is made of the catalogue and of what sysfs says of this
//! machine, and is the only thing that the counting needs.

pub mod attr;
pub mod catalogue;
pub mod counting;
pub mod open;
pub mod plan;
pub mod planner;
pub mod pmu;
pub mod probe;
pub mod quantity;
pub mod single;
pub mod tally;
#[cfg(test)]
pub(crate) mod testing;

pub use attr::Attr;
pub use plan::{Absent, Event, Group, Plan, Sound};
pub use quantity::{CacheLevel, Flow, Precision, Quantity, Width};
