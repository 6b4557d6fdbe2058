//! Hardware counters: which events a CPU has, which of them fit its counters together, and how those of a job are opened, read and
//! closed. The crate `perf-events` talks to the kernel.
//!
//! The pure parts know nothing of the kernel: a [`Plan`] is made of the catalogue and of what sysfs says of this
//! machine, and is the only thing that the counting needs. [`uncore`] are the memory controllers' counters, [`resctrl`] the kernel's
//! monitoring groups, and [`sharing`] decides whether this process or a user's profiler has the hardware's counters.
//!
//! ```
//! use perf_counters::catalogue::Catalogue;
//!
//! let events = Catalogue::built_in();
//! # let _ = events;
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod catalogue;
pub mod counting;
pub mod imbalance;
pub mod plan;
pub mod planner;
pub mod pmu;
pub mod probe;
pub mod quantity;
pub mod resctrl;
pub mod sharing;
pub mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod top_down;
pub mod uncore;

pub use plan::{Absent, Event, Group, Plan, PlausibilityLimits};
pub use quantity::{CacheLevel, Flow, Precision, Quantity, SlotCategory, SlotPart, Width};
