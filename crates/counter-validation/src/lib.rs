//! Compares what counters count of known work (`known-work`) with what it is, and measures what a node can do at most.
//!
//! [`known`](known::known) says what a quantity is to be, [`compare`](compare::compare) compares; both are pure. [`Session`] counts a
//! loop as a job is counted, and [`validate`](validate::validate) goes through all of them. [`Results`] is what comes out: what an
//! administrator reads, sends in, and leaves for the exporter.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod cgroup;
pub mod compare;
mod counts;
pub mod facts;
pub mod idle;
pub mod known;
mod memory;
pub mod peaks;
pub mod results;
mod session;
pub mod validate;

pub use results::{Facts, Peaks, Results, Row, Verdict};
pub use session::{Session, Stopped};
