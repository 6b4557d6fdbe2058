//! `jobledger`: reports of SLURM jobs at the shell, from what the exporter measured.
//!
//! A [`source`] finds a job and measures it, crate `job-report` says what that means, and [`formats`] show it.
#![allow(
    clippy::disallowed_methods,
    reason = "they are for the exporter: this program is started by a user, reads that user's files and environment, and starts SLURM's commands"
)]

pub mod arguments;
pub mod commands;
pub mod config;
pub mod digest;
mod documents;
mod failure;
pub mod formats;
pub mod job_id;
pub mod mail;
mod output;
pub mod own_job;
pub mod privacy;
pub mod recording;
mod series;
mod slurm_command;
pub mod source;
pub mod spool;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
pub mod top;

pub use failure::{Failure, Kind};
