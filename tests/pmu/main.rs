//! Counters of jobs on a hardware PMU: what is counted of known work, by the kernel's own driver.
//!
//! `make pmu` runs these tests on an emulated ARM machine, one instruction of which takes one nanosecond (qemu's `-icount`): its
//! PMUv3 has six counters and one for cycles, and work of known instructions has known counts. Elsewhere they are skipped.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, print what they measured, and fail by panicking"
)]

mod cost;
mod divided;
mod exporter;
mod groups;
mod hand_over;
mod hotplug;
mod machine;
mod neighbours;
