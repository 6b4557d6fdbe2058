//! The jobs of a node as they are at one moment.

use std::sync::Arc;

use cgroups::{Cgroup, Controller};
use kernel_files::Roots;

use crate::{Job, TableStats};

/// A root of SLURM's cgroups: a `slurmstepd.scope` of v2, a `slurm` directory of v1.
#[derive(Debug)]
pub struct SlurmCgroup {
    /// Paths below the cgroup mount point: one per hierarchy, in the order of its directories.
    pub paths: Vec<String>,
    /// SLURM's name of the node, where the name of the directory has it.
    pub node: Option<Arc<str>>,
    /// Identity of this root: v2 its inode, which changes when the root is made again; v1 a hash of its path.
    pub inode: u64,
    /// Its directories.
    pub cgroup: Cgroup,
}

impl SlurmCgroup {
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
pub struct NodeSnapshot {
    /// Jobs to publish, by id: running ones and retained ones.
    pub jobs: Vec<Arc<Job>>,
    /// Runs that are not published (yet): id unresolved, or the run before this one not yet scraped. Their
    /// spending is kept out of the residual.
    pub pending: Vec<Arc<Job>>,
    /// Job directories that SLURM left behind.
    pub stale: Vec<Arc<Job>>,
    /// SLURM's roots that are there now.
    pub scopes: Vec<Arc<SlurmCgroup>>,
    /// Why there is no root, when there is none.
    pub unavailable: Option<String>,
    /// Levels that are published.
    pub levels: Levels,
    /// Since when jobs are followed, seconds since the epoch: what is counted for them and for the node was 0 then. It
    /// survives restarts with the accounts.
    pub following_since: f64,
    /// Where the kernel's file systems are.
    pub roots: Arc<Roots>,
    /// How the job table fares.
    pub table: TableStats,
}
