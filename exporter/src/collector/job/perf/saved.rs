//! The counts of jobs over a restart of the exporter.
//!
//! The kernel closes the counters of a process that ends. So a job's counts go on from where they were, without what it did
//! meanwhile; its counted CPU time lacks that, too.

use std::collections::BTreeMap;

use perf_counters::tally::SavedTally;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// What was counted of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) tally: SavedTally,
    /// Whether it is its cgroup's alone, and not that of all processes on its CPUs.
    pub(super) of_cgroup: bool,
    pub(super) cpu_usec: Option<u64>,
}

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedPerf {
    pub(super) runs: BTreeMap<JobRunId, Kept>,
    /// How often an interval was not believed, by why.
    pub(super) rejected: Vec<u64>,
}
