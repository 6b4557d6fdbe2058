//! The CPUs of a node: sets, sockets, NUMA nodes and microarchitectures.
//!
//! ```
//! use std::sync::Arc;
//! use cpu_topology::Topology;
//! use kernel_files::{NodeFiles, Roots};
//!
//! let topology = Topology::current(&mut NodeFiles::new(&Arc::new(Roots::default())));
//! println!("{} CPUs are online: {}", topology.whole.cpus.len(), topology.whole.cpus);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod microarchitecture;
mod set;
mod topology;

pub use set::CpuSet;
pub use topology::{
    NodeMemory, Part, Topology, count_cores, count_packages, node_memory, numa_nodes, online,
    parse_node_memory, possible,
};
