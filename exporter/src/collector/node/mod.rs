//! Measurements of the node as a whole. One file per source.

pub mod counters;
pub mod cpu;
pub mod cpufreq;
pub mod hardware;
pub mod load;
pub mod memory;
pub mod network;
pub mod pressure;
pub mod validation;
