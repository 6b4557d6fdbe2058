//! The CPUs of a node: sets, sockets, NUMA nodes and microarchitectures.
#![forbid(unsafe_code)]

pub mod microarchitecture;
mod set;
mod sockets;

pub use set::CpuSet;
pub use sockets::Topology;
