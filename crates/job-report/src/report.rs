//! A report: a job, its numbers, advice, and how far they can be trusted.

use serde::Serialize;

use crate::advice::{self, Advice};
use crate::job::Job;
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
        let advice = advice::all(&job, &numbers, thresholds);
        let quality = Quality {
            nodes_seen: job.nodes.len(),
            nodes_allocated: job.nodes_allocated,
            coverage: coverage(&job),
            ends_not_seen: job.nodes.iter().filter(|node| !node.running && node.end.is_none()).count(),
            notes,
        };
        Self { job, numbers, advice, quality }
    }

    /// Whether a part of the job was not seen.
    pub fn is_incomplete(&self) -> bool {
        let Quality { nodes_seen, nodes_allocated, ends_not_seen, .. } = &self.quality;
        *ends_not_seen > 0
            || nodes_allocated.is_some_and(|nodes| u64::try_from(*nodes_seen).is_ok_and(|seen| seen < nodes))
    }
}

/// The mean over nodes, by their time. Nodes whose coverage is not known are left out.
fn coverage(job: &Job) -> Option<f64> {
    let known = || job.nodes.iter().filter_map(|node| Some((node.coverage?, node.ran())));
    let time: f64 = known().map(|(_, ran)| ran).sum();
    (time > 0.0).then(|| known().map(|(coverage, ran)| coverage * ran).sum::<f64>() / time)
}
