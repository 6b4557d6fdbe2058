//! A job as HDF5, in one of two layouts.

mod library;
mod own;
mod slurm;
mod writer;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use job_report::Report;

use self::library::Library;
use self::writer::Writer;

/// What is where in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// All that a report has: tables of nodes and GPUs by time, with units, totals and advice. What was not seen is NaN.
    Jobledger,
    /// That of SLURM's profile plugin acct_gather_profile/hdf5, for sh5util and what reads its files. It has no missing values: they are 0
    /// there, and an attribute of the file counts them.
    Slurm,
}

/// Where the data comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// The server that was asked, without credentials.
    pub source: Option<String>,
    /// When the file is written, seconds since the epoch.
    pub generated: f64,
}

/// Why there is no file, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// HDF5 has no room for this.
    #[error("HDF5: {0}")]
    Format(String),
    /// SLURM's layout holds samples alone.
    #[error("the job has no samples, and SLURM's layout holds nothing else")]
    NoSamples,
}

/// Writes a report. Its curves are given up one by one, so that a large job is not in memory twice.
pub fn write(report: Report, about: &About, layout: Layout, to: impl Write) -> Result<(), Error> {
    let mut file = Library::default();
    match layout {
        Layout::Jobledger => own::lay_out(report, about, &mut file)?,
        Layout::Slurm => slurm::lay_out(&report, about, &mut file)?,
    }
    file.finish(to)
}

/// What nobody saw is NaN, and infinity is no measurement.
fn seen(value: Option<f64>) -> f64 {
    value.filter(|value| value.is_finite()).unwrap_or(f64::NAN)
}
