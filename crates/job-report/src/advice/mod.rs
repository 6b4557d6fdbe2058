//! Advice: what a job's owner could change. Conditions are those of the dashboards (grafana/src/advice.py), and some that need what only a
//! report knows, such as the time limit.

mod pieces;
mod sbatch;

use serde::Serialize;

use crate::exact::{Reason, Subject};
use crate::job::Job;
use crate::numbers::Numbers;
use crate::thresholds::{SHIPPED, Thresholds, ThresholdsError};

pub use pieces::{Piece, gpus_never_used};

/// How much depends on a piece of advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job failed by it, or most of what it held was wasted.
    Bad,
    /// Something was wasted.
    Warning,
    /// Worth to know for the next time.
    Hint,
}

/// A piece of advice that applies to a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Which one.
    pub piece: Piece,
    /// How much depends on it.
    pub severity: Severity,
    /// What was seen.
    pub what: String,
    /// The number that it rests on, in words.
    pub measured: String,
    /// When it applies.
    pub threshold: String,
    /// What to change.
    pub change: String,
    /// The option of sbatch that would have been right, without `#SBATCH`.
    pub sbatch: Option<String>,
}

impl Piece {
    /// Whether what it rests on is known in spite of the reasons. Of a part of a run that was not seen, the pieces themselves know what follows.
    pub(crate) fn is_known(self, reasons: &[Reason]) -> bool {
        let rests_on: &[Subject] = match self {
            Piece::OomKilled | Piece::TimedOut => &[],
            Piece::GpuNeverUsed | Piece::GpuStopped | Piece::GpuLowUse | Piece::GpuUneven => &[Subject::Gpus],
            Piece::MemoryOverAsked => &[Subject::Peaks],
            Piece::TimeOverAsked => &[Subject::Time],
            _ => &[Subject::Cpus],
        };
        let spoils = |reason: &Reason| {
            !reason.is_unseen_part() && rests_on.iter().any(|subject| reason.is_about(*subject))
        };
        !reasons.iter().any(spoils)
    }
}

/// Shorter jobs have no advice but that on what ended them: their rates mean little.
const LEAST_SECONDS: f64 = 120.0;

impl Thresholds {
    /// Those that alerts and dashboards are shipped with.
    pub fn shipped() -> Result<Self, ThresholdsError> {
        Self::parse(SHIPPED)
    }

    /// Reads a file of the layout of rules/thresholds.yaml. Numbers and texts that advice needs have to be there.
    pub fn parse(yaml: &str) -> Result<Self, ThresholdsError> {
        Self::read(yaml, pieces::needs(), Piece::ALL.iter().map(|piece| piece.name()))
    }
}

/// All that applies, the most important first.
pub(crate) fn all(job: &Job, numbers: &Numbers, thresholds: &Thresholds) -> Vec<Advice> {
    Piece::ALL
        .iter()
        .filter(|piece| piece.of_any_length() || numbers.elapsed_seconds >= LEAST_SECONDS)
        .filter_map(|piece| {
            let found = piece.check(job, numbers, thresholds)?;
            let texts = thresholds.texts(piece.name())?;
            Some(Advice {
                piece: *piece,
                severity: found.severity,
                what: texts.what.clone(),
                measured: found.measured,
                threshold: texts.when.clone(),
                change: texts.change.clone(),
                sbatch: found.sbatch,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
