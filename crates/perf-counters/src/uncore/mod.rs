//! What a node's memory controllers count: which PMUs there are of them (data/memory_controllers.yaml, and what sysfs says
//! of this machine), and reading them.
//!
//! These PMUs count for a whole box, whoever moved the bytes: `perf_event_open` with no process, on the CPU that the PMU's
//! `cpumask` names. CAP_PERFMON (Linux 5.8; before that CAP_SYS_ADMIN), or `kernel.perf_event_paranoid` below 1. In
//! virtual machines there are none (arch/x86/events/intel/uncore.c, `intel_uncore_init`).

mod controllers;
mod counting;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use controllers::{Controllers, Found};
pub use counting::Reading;
pub use table::{Direction, Kind, MemoryControllers, Place};
