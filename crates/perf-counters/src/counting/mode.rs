//! Which processes are counted for a job, and why some are not.

use std::fs::File;

use perf_events::{Following, OpenError};

/// The processes that the counters of a job count.
#[derive(Debug)]
pub enum Mode {
    /// That of its cgroup: exact.
    Cgroup(File),
    /// The same, on the CPUs on which it ran since it is followed.
    Followed(Box<dyn Following>),
    /// All processes on its CPUs, which are no other job's.
    Cpus,
}

impl Mode {
    /// The `mode` label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cgroup(_) | Self::Followed(_) => "cgroup",
            Self::Cpus => "cpus",
        }
    }
}

/// Why a job is not counted, or not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotCounted {
    /// The kernel refuses.
    Denied,
    /// A group has had no counters for seconds: somebody else keeps them.
    Starved,
    /// More descriptors than may be used.
    Descriptors,
    /// No more room in the kernel's table of steps and tasks.
    Room,
    /// Its cgroup cannot be counted, and it shares its CPUs.
    Shared,
    /// The kernel failed otherwise.
    Failed(OpenError),
}

impl NotCounted {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Starved => "starved",
            Self::Descriptors => "descriptors",
            Self::Room => "room",
            Self::Shared => "shared_cpus",
            Self::Failed(_) => "failed",
        }
    }
}
