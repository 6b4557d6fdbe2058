//! Where reports come from.

pub mod accounting;
mod endings;
mod identity;
mod labels;
mod measured;
pub mod prometheus;
pub mod recordings;

pub(crate) use identity::several_clusters;
pub(crate) use measured::node_name;

use std::future::Future;

use job_report::{Metric, Report, metric};

use crate::job_id::JobId;
use crate::{Failure, Kind};

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
    /// What is wanted of steps and tasks.
    pub parts: Parts,
}

/// What is wanted of steps and tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// Nothing.
    None,
    /// Totals.
    Totals,
    /// Totals, and of the busiest steps the curves that plots have.
    Plots,
    /// Totals, and the curves that the job has.
    Curves,
}

/// Steps that have a line in a plot: a plot has seven colours.
pub const PLOTTED_STEPS: usize = 7;
/// What of them has curves.
pub static OF_PLOTTED_STEPS: [&Metric; 3] =
    [&metric::CPU_SECONDS, &metric::MEMORY_ANON_BYTES, &metric::MEMORY_SHMEM_BYTES];

/// What gives reports: a server of time series, or one day a service that gives each user the reports of their own jobs. Access control is the
/// source's: this program runs with its user's rights.
pub trait Source {
    /// The report of one job.
    fn report(&self, wanted: &Wanted<'_>) -> impl Future<Output = Result<Report, Failure>>;
}

/// The run that is wanted, of those that were seen, the earliest first; with its number from 1.
fn pick_run<T>(wanted: &Wanted<'_>, mut runs: Vec<(usize, T)>) -> Result<(usize, T), Failure> {
    let seen: Vec<String> = runs.iter().map(|(number, _)| number.to_string()).collect();
    let run = match wanted.run {
        WhichRun::Last => runs.pop(),
        WhichRun::Number(wanted) => runs.into_iter().find(|(number, _)| *number == wanted),
    };
    let missing = || {
        let says = match seen.as_slice() {
            [one] => format!("job {} was seen in one run: --run={one}", wanted.id),
            some => {
                format!("job {} was seen in these runs: --run with one of {}", wanted.id, some.join(", "))
            }
        };
        Failure::new(Kind::NotFound, says)
    };
    run.ok_or_else(missing)
}

/// Lengths of bins that people read easily, in seconds.
const STEPS: [f64; 20] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 7200.0,
    10_800.0, 21_600.0, 43_200.0, 86_400.0,
];
/// The length of a bin of at least `least` seconds, of which there are at most `most`.
fn round_step(time: f64, most: usize, least: f64) -> f64 {
    let least = (time / f64::from(u32::try_from(most.max(1)).unwrap_or(u32::MAX))).max(least);
    STEPS.iter().copied().find(|step| *step >= least).unwrap_or_else(|| (least / 86_400.0).ceil() * 86_400.0)
}
