//! The exporter, as a library that its binary, tests, benchmarks and fuzz targets use.

pub mod scrape;
pub mod web;
