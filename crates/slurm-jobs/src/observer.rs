//! How a source follows the jobs of a node.

use std::sync::Arc;

use kernel_files::Buffer;

use crate::snapshot::{Levels, SlurmCgroup};
use crate::{Job, JobRunId};

/// The events of a job run, called on the thread that watches the cgroups. All methods have empty defaults.
pub trait JobObserver: Send + Sync {
    /// The jobs that were on the node when this exporter started are known now.
    fn initial_scan_done(&self) {}

    /// The job is there: its cgroup was made, or found with processes in it.
    fn job_started(&self, _job: &Job) {}

    /// SLURM may have set the job's cpuset. Once the job has a task this is certain, if cores are constrained at all.
    /// Called again for every later step and task.
    fn cpus_assigned(&self, _job: &Job, _buffer: &mut Buffer) {}

    /// A step of the job was made, or a directory in it; `step` is its ordinal. `None` when any of the steps that are there may be new.
    fn step_grew(&self, _job: &Job, _step: Option<u32>) {}

    /// The job is not there any more: its cgroup went, or has no process and was left behind.
    fn job_left_node(&self, _run: JobRunId) {}

    /// The job directories are about to be listed for a scrape: whatever is read now was spent by jobs that the list will have.
    fn before_walk(&self, _scopes: &[Arc<SlurmCgroup>], _buffer: &mut Buffer) {}

    /// Job runs are about to end: whatever is read now was spent by jobs that are known when their ends are reported.
    fn before_end(&self, _scopes: &[Arc<SlurmCgroup>], _buffer: &mut Buffer) {}

    /// A part of the job ended (a step's last process, a task's or step's directory). Its numbers may be gone the
    /// next time, so this is the time to read them. `step` is the ordinal of the step, `levels` says whether steps
    /// and tasks are exported.
    fn checkpoint(&self, _job: &Job, _step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {}

    /// The job's directory is gone.
    fn cgroup_removed(&self, _gone: &RemovedCgroup<'_>, _buffer: &mut Buffer) {}

    /// The job run is not retained any more.
    fn job_removed(&self, _run: JobRunId, _disposition: Disposition) {}
}

/// A job whose directory is gone, and the other jobs at that time.
#[derive(Debug, Clone, Copy)]
pub struct RemovedCgroup<'a> {
    /// The job.
    pub job: &'a Job,
    /// The runs with a directory, also those left behind, unless they are too many to be read.
    pub others: Option<&'a [Arc<Job>]>,
    /// SLURM's roots.
    pub scopes: &'a [Arc<SlurmCgroup>],
    /// Whether no other run can have vanished since the last call, not even one that came and went meanwhile.
    pub alone: bool,
}

/// Why a job run is not retained any more. What of its numbers counts as a job's does not depend on it: attribution knows what
/// scrapes showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Its end was exported, and the retention is over.
    Exported,
    /// Its end was not exported: too many job runs ended since the last scrape.
    Dropped,
    /// It ended before its job id was known.
    Unidentified,
    /// SLURM uses its directory again: the counters of the next job run include its own.
    Superseded,
    /// A directory left over from before this exporter started, which never had a process since.
    Foreign,
}
