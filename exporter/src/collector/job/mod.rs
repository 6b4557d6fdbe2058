//! Measurements of each job, step and task. One file per source.

mod allocated;
pub mod cpu;
pub mod cpuset;
mod facts;
pub mod info;
pub mod io;
pub mod memory;
pub mod network;
pub mod perf;
pub mod pressure;
pub mod process_io;
pub mod process_totals;
pub mod processes;
