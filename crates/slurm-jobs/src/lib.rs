//! SLURM's jobs on a node: found by their control groups, identified from root's own sources, followed until they end.
//!
//! ```
//! use slurm_jobs::names::{self, JobName};
//! use slurm_jobs::JobId;
//!
//! assert!(matches!(names::job("job_4711"), Some(JobName::Id(JobId(4711)))));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod binding;
mod due_times;
pub mod environment;
mod follower;
pub mod gpus;
mod id;
pub mod identity;
mod job;
mod job_run;
pub mod leaves;
pub mod metadata;
pub mod names;
mod observer;
pub mod process;
mod readers;
pub mod scope;
mod snapshot;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod users;
pub mod watch;

pub use follower::{Follower, Pulse, TableSaver};
pub use id::{JobId, Sluid, StepId, StepKind, TaskId};
pub use job::{Job, JobRunId, Step, Task};
pub use observer::{Disposition, JobObserver, RemovedCgroup};
pub use readers::Reader;
pub use snapshot::{Levels, NodeSnapshot, SlurmCgroup};
pub use users::{Resolver, Users, name_service};

/// How the job table fares, for the exporter's own metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Jobs that run.
    pub running: usize,
    /// Ended jobs that are still exported.
    pub retained: usize,
    /// Directories whose job id is not known (yet).
    pub unresolved: usize,
    /// Directories that cannot be opened, for lack of descriptors above all.
    pub unfollowed: usize,
    /// Directories that SLURM left behind.
    pub stale: usize,
    /// Runs seen since the start.
    pub runs_total: u64,
    /// Runs that ended before their job id was known: their spending is in the residual.
    pub lost_total: u64,
    /// Retained jobs dropped before their readers had their end: for too long, or too many.
    pub dropped_total: u64,
    /// Overflows of the kernel's event queue; the next walk found what was missed.
    pub overflows_total: u64,
    /// Watches that could not be set; a walk at each scrape replaces them.
    pub watch_failures_total: u64,
    /// Running jobs without the prolog's file; none where its directory is not there.
    pub without_metadata: Option<usize>,
    /// Why the kernel reports nothing of jobs (an errno), so that scrapes alone find them.
    pub events_refused: Option<i32>,
}
