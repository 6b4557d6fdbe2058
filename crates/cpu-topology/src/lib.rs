//! The CPUs of a node: sets, sockets, NUMA nodes and microarchitectures.
//!
//! ```
//! let cpu = cpu_topology::microarchitecture::parse_cpuinfo(b"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n");
//! assert_eq!(cpu.vendor.as_deref(), Some("AuthenticAMD"));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod microarchitecture;
mod sockets;

pub use sockets::Topology;
