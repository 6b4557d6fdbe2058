//! The CPUs of a node: sets, sockets, NUMA nodes and microarchitectures.
#![forbid(unsafe_code)]

pub mod microarchitecture;
mod sockets;

pub use sockets::Topology;
