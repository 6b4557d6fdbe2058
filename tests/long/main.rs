//! What takes minutes of the clock and little of the processor.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

mod short_jobs;
mod v1_jobs;

use std::sync::RwLock;

/// Who measures what an exporter can read in time has it alone. Where v1 jobs come and go, the kernel's lock of all cgroups is held while
/// a process moves (cgroup_attach_task_all and the files `cgroup.procs`, kernel/cgroup/cgroup.c): on a busy machine for longer than
/// slurmstepd lingers.
static CGROUPS: RwLock<()> = RwLock::new(());

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
