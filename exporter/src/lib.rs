//! The exporter, as a library that its binary, tests, benchmarks and fuzz targets use.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod app;
pub mod cli;
pub mod collector;
pub mod control;
pub mod scrape;
pub mod security;
pub mod state_log;
