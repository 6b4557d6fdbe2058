//! What the integration tests share.
//!
//! Nothing here is linked into the exporter, and nothing here uses the exporter's code: a test that checks the exporter
//! with the exporter's own parser checks nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "the disallowed calls are the exporter's policy on a compute node; tests start processes and read files"
)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test kit fails the test it serves by panicking"
)]

pub mod allocations;
pub mod cgroups;
pub mod crowd;
pub mod device_programs;
pub mod exporter;
pub mod exposition;
pub mod footprint;
pub mod golden;
pub mod http;
pub mod machine;
pub mod networks;
pub mod nvml;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod scratch;
pub mod servers;
#[cfg(feature = "service")]
pub mod service;
pub mod short_jobs;
pub mod skip;
pub mod stepd;
pub mod stop;
pub mod strace;
pub mod tools;
pub mod wait;

pub use skip::{kernel_types, skip, skip_without_root};
pub use wait::{eventually, in_time};
