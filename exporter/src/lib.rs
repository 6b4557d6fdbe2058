//! The exporter, as a library that its binary, tests, benchmarks and fuzz targets use.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod cgroup;
pub mod collector;
pub mod kernel_file;
pub mod ledger;
pub mod metric;
pub mod microarchitecture;
pub mod parse;
pub mod roots;
pub mod scrape;
pub mod slurm;
