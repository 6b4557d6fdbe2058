//! The event catalogue and the planner: every microarchitecture, and machines as their kernels show them.
//!
//! `JOBLEDGER_BLESS=1` rewrites the expectations; the diff is the review.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes and fail by panicking"
)]

mod documents;
mod encodings;
mod fits;
mod machines;
mod plans;
mod slots;
