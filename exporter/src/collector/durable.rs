//! What of a collector survives a restart of the exporter. No collector knows where it is kept.

use std::collections::BTreeSet;
use std::time::Instant;

pub use durable_state::Unreadable;
use slurm_jobs::JobRunId;

/// What is known of the exporter before this one.
#[derive(Debug, Clone)]
pub struct Before {
    /// The job runs that its table had. What is charged to others is unattributed.
    pub runs: BTreeSet<JobRunId>,
    /// When it saved.
    pub seen: Instant,
}

impl Before {
    /// Whether a job run is known still.
    pub fn knows(&self, run: JobRunId) -> bool {
        self.runs.contains(&run)
    }
}

/// A collector's accounts. The last raw readings belong to them: the next reading is then charged as if it were late.
pub trait Durable: Send + Sync {
    /// The present accounts; `None` while a reading has them, which may hang. Then those that were saved before remain.
    fn save(&self) -> Option<Vec<u8>>;

    /// Changes with what is derived from other parts. If it changed while all were saved, they do not fit together.
    fn generation(&self) -> u64 {
        0
    }

    /// Reads once more what ends with this process, such as counts of descriptors: the process is about to end.
    fn read_last(&self) {}

    /// Takes over what was saved, before any job is found. A section that cannot be read changes nothing.
    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable>;
}
