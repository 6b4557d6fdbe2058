//! A job's data in files that other programs read.
//!
//! A format's module lays out a [`job_report::Job`] and writes it to whatever can be written to; docs/export.md describes the formats.
//! [`atomic`] makes a file that is whole or not there at all.

pub mod anonymize;
pub mod atomic;
pub mod clustercockpit;
pub mod csv;
pub mod hdf5;
pub mod json;
pub mod parquet;
pub mod supremm;
pub mod table;

#[cfg(test)]
mod sample;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source of the job's data has no curves of it.
    #[error("nothing is known of the job over time")]
    NoCurves,
    /// What the format demands and is not known.
    #[error("the format demands what is not known of this job: {}", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// A text that would be a directory.
    #[error("the cluster's name {0:?} cannot be the name of a directory")]
    Directory(String),
    /// A step that the format cannot have.
    #[error("the format has whole seconds between values, and they are {0} seconds apart")]
    Step(f64),
    /// A key that can be guessed.
    #[error("the key has {0} bytes, and needs at least {least}", least = anonymize::KEY_BYTES)]
    Key(usize),
    /// The file.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// CSV.
    #[error(transparent)]
    Csv(#[from] ::csv::Error),
    /// Parquet.
    #[error(transparent)]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}
