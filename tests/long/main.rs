//! What takes minutes of the clock and little of the processor, side by side.

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

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
