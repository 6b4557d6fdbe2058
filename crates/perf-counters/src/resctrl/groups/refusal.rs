//! Why a job is not monitored.

use kernel_files::{ReadError, SourceError};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::WHAT;

/// Why a job's threads could not all be put into a group of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// No RMID is free, or those that are were used too recently.
    Exhausted,
    /// The kernel says that it is not ours to do.
    Denied,
    /// Another program has the lock.
    Locked,
    /// A thread is in another program's monitoring group.
    Foreign,
    /// No counter is free for the bytes of a job's group (`mbm_event` mode).
    NoCounter,
    /// Anything else.
    Failed,
}

impl Refusal {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Denied => "denied",
            Self::Locked => "locked",
            Self::Foreign => "foreign",
            Self::NoCounter => "no_counter",
            Self::Failed => "failed",
        }
    }

    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            // RMIDs that were freed are in limbo until little of the cache is tagged with them.
            Errno::NOSPC | Errno::BUSY => Self::Exhausted,
            Errno::PERM | Errno::ACCESS | Errno::ROFS => Self::Denied,
            _ => Self::Failed,
        }
    }

    pub(super) fn error(self, errno: i32) -> SourceError {
        let needs = match self {
            Self::Denied => return SourceError::Denied { what: format!("{WHAT}'s groups") },
            Self::Exhausted => {
                "free monitoring ids (RMIDs) in resctrl; other programs' groups and those of jobs that ended hold them"
            }
            Self::Locked => "the lock on /sys/fs/resctrl, which another program holds",
            Self::Foreign => "jobs' tasks that are in no monitoring group of somebody else",
            Self::NoCounter => {
                "free counters of memory bandwidth (available_mbm_cntrs); other groups have them, and a job without one has no bytes"
            }
            Self::Failed => {
                return SourceError::Io { file: WHAT, error: ReadError::Io(errno) };
            }
        };
        SourceError::Unsupported { needs: needs.to_owned() }
    }
}
