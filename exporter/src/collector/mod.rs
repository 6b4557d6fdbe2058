//! What a collector is, which ones there are, and what they are shown. One file per source.

pub mod attendance;
pub mod counters;
pub mod cpu;
pub mod cpuset;
pub(crate) mod descriptors;
pub mod energy;
pub mod exporter;
pub mod gpu;
pub mod infiniband;
pub mod io;
pub mod job;
pub mod lustre;
pub mod memory;
pub mod memory_traffic;
pub mod network;
pub mod nfs;
pub mod node_counters;
pub mod node_cpu;
pub mod node_cpufreq;
pub mod node_disk;
pub mod node_files;
pub mod node_hardware;
pub mod node_load;
pub mod node_memory;
pub mod node_network;
pub mod node_pressure;
pub mod per_cgroup;
pub mod perf;
pub mod pressure;
pub mod proc_pid;
pub mod processes;
pub mod procio;
pub mod procsum;
mod registry;
pub mod slingshot;
pub mod slot;
mod summed;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

pub use registry::{BuildContext, Built, Entry, Meters, REGISTRY, capabilities};

use crate::cgroup::{Cgroup, Controller};
use crate::kernel_file::{Buffer, ReadError};
use crate::metric::Section;
use crate::parse::ParseError;
use crate::roots::Roots;
use crate::slurm::process::Outside;
use crate::slurm::{Job, LifeId};

/// Why a collector yields nothing, or less than it should. The four outcomes that must not be confused (denied,
/// unsupported, failed, late) are variants of their own; an empty result is none of them but success.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The kernel refused; `fix` is what an admin can do.
    #[error("denied: {what}; {fix}")]
    Denied {
        /// What was refused.
        what: String,
        /// The command or setting that allows it.
        fix: &'static str,
    },
    /// This machine has no such thing.
    #[error("unsupported: needs {needs}")]
    Unsupported {
        /// What would be needed.
        needs: String,
    },
    /// A file is not of its documented form.
    #[error("malformed: {file}: {error}")]
    Malformed {
        /// Which file.
        file: &'static str,
        /// Where and how.
        error: ParseError,
    },
    /// Reading failed.
    #[error("failed: {file}: {error}")]
    Io {
        /// Which file.
        file: &'static str,
        /// How.
        error: ReadError,
    },
    /// A driver's library answered with an error of its own.
    #[error("failed: {call}: {says}")]
    Driver {
        /// What it was asked.
        call: &'static str,
        /// What it said, or what can be done.
        says: String,
    },
    /// Some of several objects could not be read; the others are served.
    #[error("partial: {failed} of {} failed, first {first}", .ok + .failed)]
    Partial {
        /// How many were read.
        ok: usize,
        /// How many were not.
        failed: usize,
        /// What the first failure was, a denial only if there was no other.
        first: Box<CollectError>,
    },
    /// Not finished by the deadline.
    #[error("late: not finished by the scrape's deadline")]
    TimedOut,
    /// A bug; the process lives on.
    #[error("panic: a bug in this collector, please report it")]
    Panicked,
}

impl From<Outside> for CollectError {
    fn from(_: Outside) -> Self {
        Self::Unsupported { needs: "the host's cgroup namespace".to_owned() }
    }
}

impl CollectError {
    /// The `reason` label.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "denied",
            Self::Unsupported { .. } => "unsupported",
            Self::Malformed { .. } => "malformed",
            Self::Io { .. } | Self::Driver { .. } => "io",
            Self::Partial { .. } => "partial",
            Self::TimedOut => "timeout",
            Self::Panicked => "panic",
        }
    }

    /// An error of reading a file of a cgroup, which everybody may read on an ordinary system. There `Gone` is no
    /// error, so nothing is said of what would be needed.
    pub fn reading_group(file: &'static str) -> impl FnOnce(ReadError) -> Self {
        const FIX: &str =
            "let the exporter's user read the cgroup file system (no stricter mode or LSM rule)";
        Self::reading(file, "", FIX)
    }

    /// The part of it that stays the same from scrape to scrape, for a label: of a partial failure the first one, since
    /// each change of the counts would be another series.
    pub fn lasting(&self) -> &Self {
        match self {
            Self::Partial { first, .. } => first.lasting(),
            other => other,
        }
    }

    /// An error of reading `file`; `needs` is what a machine without that file lacks.
    pub fn reading(file: &'static str, needs: &str, fix: &'static str) -> impl FnOnce(ReadError) -> Self {
        move |error| match error {
            ReadError::Gone | ReadError::Unsupported => Self::Unsupported { needs: needs.to_owned() },
            ReadError::Denied => Self::Denied { what: file.to_owned(), fix },
            error => Self::Io { file, error },
        }
    }

    /// An error of parsing `file`.
    pub fn parsing(file: &'static str) -> impl FnOnce(ParseError) -> Self {
        move |error| Self::Malformed { file, error }
    }
}

/// Collects outcomes of several objects into one result.
#[derive(Debug, Default)]
pub struct Tally {
    ok: usize,
    failed: usize,
    first: Option<CollectError>,
}

impl Tally {
    /// Notes an outcome and hands on its value.
    pub fn note<T>(&mut self, outcome: Result<T, CollectError>) -> Option<T> {
        match outcome {
            Ok(value) => {
                self.ok += 1;
                Some(value)
            }
            Err(error) => {
                self.failed += 1;
                // What is denied stays denied; a failure beside it is the news.
                let denied = |error: &CollectError| matches!(error, CollectError::Denied { .. });
                if self.first.as_ref().is_none_or(|first| denied(first) && !denied(&error)) {
                    self.first = Some(error);
                }
                None
            }
        }
    }

    /// All well, the error itself when nothing was read, or [`CollectError::Partial`].
    pub fn result(self) -> Result<(), CollectError> {
        match self.first {
            None => Ok(()),
            Some(first) if self.ok == 0 => Err(first),
            Some(first) => {
                Err(CollectError::Partial { ok: self.ok, failed: self.failed, first: Box::new(first) })
            }
        }
    }
}

/// Microseconds as the base unit.
fn seconds(usec: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
    let usec = usec as f64;
    usec / 1e6
}

/// A root of SLURM's cgroups: a `slurmstepd.scope` of v2, a `slurm` directory of v1.
#[derive(Debug)]
pub struct Scope {
    /// Paths below the cgroup mount point: one per hierarchy, in the order of its directories.
    pub paths: Vec<String>,
    /// SLURM's name of the node, where the name of the directory has it.
    pub node: Option<Arc<str>>,
    /// Identity of this root: v2 its inode, so that one made anew has another; v1 made of its path.
    pub inode: u64,
    /// Its directories.
    pub cgroup: Cgroup,
}

impl Scope {
    /// Its path in the hierarchy that is asked first.
    pub fn path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }

    /// Its path in the hierarchy that has a controller.
    pub fn path_of(&self, controller: Controller) -> Option<&str> {
        self.paths.get(self.cgroup.position(controller)?).map(String::as_str)
    }
}

/// Which levels below the job are published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    /// Steps.
    pub steps: bool,
    /// Tasks.
    pub tasks: bool,
}

/// What every collector of one scrape is shown: the jobs as they are now, and nothing it could change.
#[derive(Debug)]
pub struct Scene {
    /// Jobs to publish, by id: running ones and retained ones.
    pub jobs: Vec<Arc<Job>>,
    /// Lives that are not published (yet): id unresolved, or the life before this one not yet scraped. Their
    /// spending is kept out of the residual.
    pub pending: Vec<Arc<Job>>,
    /// Job directories that SLURM left behind.
    pub stale: Vec<Arc<Job>>,
    /// SLURM's roots that are there now.
    pub scopes: Vec<Arc<Scope>>,
    /// Why there is no root, when there is none.
    pub unavailable: Option<String>,
    /// Levels that are published.
    pub levels: Levels,
    /// Where the kernel's file systems are.
    pub roots: Arc<Roots>,
    /// How the job table fares.
    pub table: crate::slurm::TableStats,
}

/// A source of metrics. Runs on the collecting thread, in a scrape.
pub trait Collector: Send {
    /// Reads what there is now and pushes it. What was pushed before an error is served.
    fn collect(&mut self, scene: &Scene, out: &mut Section) -> Result<(), CollectError>;
}

/// The life of jobs as a source may follow it, called on the thread that watches the cgroups. What a source does not
/// need to know it need not hear.
pub trait LifeHook: Send + Sync {
    /// The jobs that were on the node when this exporter started are known now.
    fn looked(&self) {}

    /// The job is there: its cgroup was made, or found with processes in it.
    fn appeared(&self, _job: &Job) {}

    /// SLURM may have bound the job to its CPUs by now. When it has a task, it has done so where it does at all; told of each step and
    /// task that is made from then on.
    fn bound(&self, _job: &Job, _buffer: &mut Buffer) {}

    /// The job is not there any more: its cgroup went, or has no process and was left behind.
    fn left(&self, _life: LifeId) {}

    /// The job directories are about to be listed: whatever is read now was spent by jobs that the list will have.
    fn before_walk(&self, _scopes: &[Arc<Scope>], _buffer: &mut Buffer) {}

    /// Something of the job ended (a step's last process, a task's or step's directory): its numbers may be
    /// gone the next time, so read them now. `step` is the ordinal of the step that it happened in,
    /// `levels` what is published of steps and tasks.
    fn checkpoint(&self, _job: &Job, _step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {}

    /// The job's directory is gone.
    fn vanished(&self, _gone: &Vanished<'_>, _buffer: &mut Buffer) {}

    /// The job run is not retained any more.
    fn forget(&self, _life: LifeId, _disposition: Disposition) {}
}

/// A job whose directory is gone, and what there is beside it.
#[derive(Debug, Clone, Copy)]
pub struct Vanished<'a> {
    /// The job.
    pub job: &'a Job,
    /// The lives whose directories are there, those left behind too, unless they are too many to be asked.
    pub others: Option<&'a [Arc<Job>]>,
    /// SLURM's roots.
    pub scopes: &'a [Arc<Scope>],
    /// Whether no other life vanished since the last call.
    pub alone: bool,
}

/// Why a job run is not retained any more. What of its numbers counts as a job's does not depend on it:
/// [`Exported`](crate::ledger::Exported) knows what scrapes showed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_before_what_is_denied_and_the_first_of_each_before_others() {
        let denied = |what: &str| CollectError::Denied { what: what.to_owned(), fix: "give it" };
        let failed = |call| CollectError::Driver { call, says: "no".to_owned() };
        let first = |errors: Vec<CollectError>| {
            let mut tally = Tally::default();
            tally.note(Ok(()));
            for error in errors {
                assert!(tally.note::<()>(Err(error)).is_none());
            }
            tally.result().unwrap_err().to_string()
        };
        assert_eq!(first(vec![denied("a"), denied("b")]), "partial: 2 of 3 failed, first denied: a; give it");
        assert_eq!(
            first(vec![denied("a"), failed("c"), failed("d")]),
            "partial: 3 of 4 failed, first failed: c: no"
        );
        assert_eq!(first(vec![failed("c"), denied("a")]), "partial: 2 of 3 failed, first failed: c: no");
    }
}
