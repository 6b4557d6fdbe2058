//! The counts of jobs over a restart of the exporter, and over another plan.
//!
//! The kernel closes the counters of a process that ends. So a job's counts go on from where they were, without what it did
//! meanwhile; its counted CPU time lacks that, too.

use std::collections::BTreeMap;

use perf_counters::counting::Mode;
use perf_counters::tally::SavedTally;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::PerfAccounts;
use super::parts::Part;
use crate::collector::durable::{Before, Unreadable};

/// What was counted of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct Kept {
    pub(super) tally: SavedTally,
    /// Whether it is its cgroup's alone, and not that of all processes on its CPUs.
    pub(super) of_cgroup: bool,
    pub(super) cpu_usec: Option<u64>,
    /// Its steps and tasks.
    pub(super) parts: BTreeMap<Part, SavedTally>,
}

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
struct SavedPerf {
    runs: BTreeMap<JobRunId, Kept>,
    /// How often an interval was not believed, by why.
    rejected: Vec<u64>,
}

impl PerfAccounts {
    /// What was counted of each run.
    pub(super) fn counts_of_all(&self) -> BTreeMap<JobRunId, Kept> {
        let mut all = self.kept.clone();
        for (run, known) in &self.runs {
            if let (Some(counting), Some(counted)) = (&self.counting, &known.counted) {
                let of_cgroup = matches!(counted.mode(), Mode::Cgroup(_));
                let (tally, parts) = (counting.save(counted), known.parts.save(counting));
                all.insert(*run, Kept { tally, of_cgroup, cpu_usec: known.cpu_usec, parts });
            }
        }
        all
    }

    /// What is to be saved.
    pub(in super::super) fn save(&self) -> Vec<u8> {
        let runs = self.counts_of_all();
        let rejected = self.rejected().into_iter().map(|(_, times)| times).collect();
        durable_state::encode(&SavedPerf { runs, rejected })
    }

    /// Takes over what was saved, before any job is found.
    pub(in super::super) fn restore(&mut self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let SavedPerf { mut runs, rejected } = durable_state::decode(section)?;
        runs.retain(|run, _| before.knows(*run));
        (self.kept, self.rejected_before) = (runs, rejected);
        Ok(())
    }
}
