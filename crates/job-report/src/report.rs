//! A report: a job, its numbers, advice, and how far they can be trusted.

use serde::Serialize;

use crate::advice::{self, Advice};
use crate::exact::{self, Reason, Subject, Unchecked};
use crate::job::{Job, Node};
use crate::numbers::Numbers;
use crate::thresholds::Thresholds;

/// How far the numbers can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Nodes that were seen.
    pub nodes_seen: usize,
    /// Nodes that the job has by SLURM, where that is known.
    pub nodes_allocated: Option<u64>,
    /// Part of the job's time on these nodes that scrapes cover. A gap costs rates, not totals.
    pub coverage: Option<f64>,
    /// Nodes that are not exported any more, and did not show the job's end.
    pub ends_not_seen: usize,
    /// Totals are exact: no reason says otherwise, and all was looked at.
    pub exact: bool,
    /// Why totals may not be exact.
    pub reasons: Vec<Reason>,
    /// What was not looked at.
    pub unchecked: Vec<Unchecked>,
    /// What else a reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The job as it was measured.
    pub job: Job,
    /// What follows from that.
    pub numbers: Numbers,
    /// What to change, the most important first.
    pub advice: Vec<Advice>,
    /// How far that can be trusted.
    pub quality: Quality,
}

impl Report {
    /// Derives all from what was measured. `notes` are what its source has to say of the data.
    pub fn new(job: Job, thresholds: &Thresholds, notes: Vec<String>) -> Self {
        let numbers = Numbers::of(&job);
        let coverage = coverage(&job);
        let (reasons, unchecked) = (exact::reasons(&job, coverage), exact::unchecked(&job));
        let mut advice = advice::all(&job, &numbers, thresholds);
        advice.retain(|advice| advice.piece.is_known(&reasons));
        let quality = Quality {
            nodes_seen: job.nodes.len(),
            nodes_allocated: job.nodes_allocated,
            coverage,
            ends_not_seen: exact::ends_not_seen(&job),
            exact: reasons.is_empty() && unchecked.is_empty(),
            reasons,
            unchecked,
            notes,
        };
        Self { job, numbers, advice, quality }
    }

    /// Whether a part of the job was not seen.
    pub fn is_incomplete(&self) -> bool {
        self.quality.reasons.iter().any(Reason::is_unseen_part)
    }

    /// Why a number of this kind cannot be judged. An end or a node that was not seen is a reason of its own ([`Self::is_incomplete`]).
    pub fn not_judged(&self, subject: Subject) -> Option<&Reason> {
        self.quality.reasons.iter().find(|reason| reason.is_about(subject))
    }
}

/// The mean over nodes, by their time, which goes on to SLURM's end of the job where a node was lost. Nodes whose coverage is not known are left out.
fn coverage(job: &Job) -> Option<f64> {
    let end = job.evidence.accounted.and_then(|run| run.end);
    let time = |node: &Node| match (node.end, end) {
        (None, Some(end)) if !node.running => node.present().max(end - node.start),
        _ => node.present(),
    };
    let known = || job.nodes.iter().filter_map(|node| Some((node.coverage? * node.present(), time(node))));
    let all: f64 = known().map(|(_, time)| time).sum();
    (all > 0.0).then(|| known().map(|(covered, _)| covered).sum::<f64>() / all)
}
