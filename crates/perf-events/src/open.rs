//! Opening and reading groups of events, behind traits so that most tests need no kernel.

use std::fmt;
use std::fs::File;

use kernel_files::ReadError;
use rustix::io::Errno;

use crate::Attr;

/// The counted processes.
#[derive(Debug, Clone, Copy)]
pub enum On<'a> {
    /// Those of the cgroup with this directory, and below it.
    Cgroup(&'a File),
    /// All of this system on the CPU; not what a virtual machine's guest executes there.
    Host,
    /// Everybody, as PMUs beside the cores count: they refuse to leave anything out.
    Everybody,
}

/// Why a group was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenError {
    /// EACCES, EPERM.
    Denied,
    /// ENOENT: no PMU counts this event, or the cgroup is gone or of a hierarchy without perf.
    Absent,
    /// EOPNOTSUPP, ENOSYS: the kernel or the PMU does not do that, or a virtual machine has the PMU for itself (mediated vPMU,
    /// kernel/events/core.c, `mediated_pmu_account_event`).
    Unsupported,
    /// EINVAL: the group can never be counted at once, or the event's encoding is wrong.
    Unfit,
    /// ENODEV, ENXIO: the CPU is not online.
    Offline,
    /// EMFILE, ENFILE.
    Descriptors,
    /// Any other errno.
    Io(i32),
}

impl OpenError {
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            Some(Errno::NOENT) => Self::Absent,
            Some(Errno::OPNOTSUPP | Errno::NOSYS) => Self::Unsupported,
            Some(Errno::INVAL) => Self::Unfit,
            Some(Errno::NODEV | Errno::NXIO) => Self::Offline,
            Some(Errno::MFILE | Errno::NFILE) => Self::Descriptors,
            Some(other) => Self::Io(other.raw_os_error()),
            // The attribute has fields that this kernel does not know.
            None => Self::Unsupported,
        }
    }
}

/// One line without a full stop.
impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("the kernel refuses it (EACCES)"),
            Self::Absent => f.write_str("no PMU of this machine counts it (ENOENT)"),
            Self::Unsupported => {
                f.write_str("the PMU does not count it, or a virtual machine has the PMU (EOPNOTSUPP)")
            }
            Self::Unfit => f.write_str("it does not fit this machine's counters (EINVAL)"),
            Self::Offline => f.write_str("the CPU is offline (ENODEV)"),
            Self::Descriptors => f.write_str("no descriptors are left (EMFILE)"),
            Self::Io(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// The class that the errno has where files are read.
impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Denied => Self::Denied,
            OpenError::Absent | OpenError::Offline => Self::Gone,
            OpenError::Unsupported => Self::Unsupported,
            OpenError::Unfit => Self::from_errno(Errno::INVAL),
            OpenError::Descriptors => Self::from_errno(Errno::MFILE),
            OpenError::Io(errno) => Self::Io(errno),
        }
    }
}

/// What the counters of a group say. All of it is of the same moment, and since the group was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Enabled time, nanoseconds: for a cgroup, the time in which its threads ran on this CPU.
    pub enabled: u64,
    /// How long of that it had counters, nanoseconds.
    pub running: u64,
    /// By event.
    pub counts: Vec<u64>,
}

/// An open group, which counts until it is stopped or dropped.
pub trait Counters: Send {
    /// Reads it. `Gone` when its CPU went offline: it counts no more.
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError>;

    /// Stops it; its counts can still be read. That is one call a group, where closing is one an event.
    fn stop(&mut self) {}
}

/// Opens groups.
pub trait Open: Send + Sync {
    /// Opens a group on a CPU; it counts from now on, and from 0. The first event is the leader.
    fn open(&self, on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError>;

    /// Whether the events are the running kernel's own, which its programs can read.
    fn is_kernel(&self) -> bool {
        false
    }

    /// Whether it follows cgroups.
    fn follows(&self) -> bool {
        false
    }

    /// Follows a cgroup: from now on it is counted on each CPU where it runs, without anything being opened for it.
    fn follow(&self, _cgroup: &File) -> Result<Box<dyn Following>, OpenError> {
        Err(OpenError::Unsupported)
    }
}

/// A cgroup that is followed until this is dropped.
pub trait Following: fmt::Debug + Send {
    /// The CPUs on which it ran.
    fn cpus(&self) -> Vec<u32>;

    /// Opens a group on one of them. It has counted since the cgroup is followed.
    fn open(&self, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError>;

    /// Whether all of it is counted. If not, there was no room for one of its CPUs.
    fn is_whole(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The collectors' reasons `denied`, `unsupported` and `io` follow from these classes.
    #[test]
    fn an_errno_is_of_the_same_class_as_where_files_are_read() {
        for errno in [
            Errno::ACCESS,
            Errno::PERM,
            Errno::NOENT,
            Errno::OPNOTSUPP,
            Errno::NOSYS,
            Errno::INVAL,
            Errno::NODEV,
            Errno::MFILE,
            Errno::BADF,
        ] {
            let error = OpenError::of(&std::io::Error::from_raw_os_error(errno.raw_os_error()));
            assert_eq!(ReadError::from(error), ReadError::from_errno(errno), "{error:?}");
        }
    }
}
