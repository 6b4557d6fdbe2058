//! One test per row of the fault table (README.md): the real binary on a node that breaks while it runs.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

mod certificate;
mod clients;
mod clocks;
mod counters;
mod delivery;
mod events;
mod gpus;
mod groups;
mod hanging;
mod hostile;
mod ledger;
mod limits;
mod mounts;
mod owners;
mod process;
mod reading;
mod restarts;
mod scale;
mod support;
mod watchdog;
