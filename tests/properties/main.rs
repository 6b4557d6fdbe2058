//! What holds for every input: the catalogue of metrics, the text of labels, the order of directories, the ledger.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, lay out files, and fail by panicking"
)]

mod catalogue;
mod exporter;
mod history;
mod label_text;
mod machines;
mod owners;
mod profiles;
mod restarts;
