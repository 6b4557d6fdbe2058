//! Where reports come from.

pub mod accounting;
pub mod prometheus;

use std::future::Future;

use job_report::{Metric, Report};

use crate::Failure;
use crate::job_id::JobId;

/// Which run of a job is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichRun {
    /// The last one.
    Last,
    /// The first is 1.
    Number(usize),
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The job.
    pub id: &'a JobId,
    /// Of a requeued job.
    pub run: WhichRun,
    /// At most so many bins of curves.
    pub bins: usize,
    /// The length of bins in seconds, if it matters.
    pub step: Option<f64>,
    /// The metrics that have curves.
    pub curves: &'a [&'static Metric],
}

/// What gives reports: a server of time series, or one day a service that gives each user the reports of their own jobs. Access control is the
/// source's: this program runs with its user's rights.
pub trait Source {
    /// The report of one job.
    fn report(&self, wanted: &Wanted<'_>) -> impl Future<Output = Result<Report, Failure>>;
}
