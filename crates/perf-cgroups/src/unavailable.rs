//! Why there are no divided events.

use bpf::BpfError;
use bpf::btf::BtfError;
use perf_events::OpenError;

/// Why events cannot be divided here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The kernel refuses a table or a program.
    #[error("{0}")]
    Bpf(#[from] BpfError),
    /// It refuses the events of a CPU.
    #[error("opening the events of a CPU: {0}")]
    Events(OpenError),
    /// What the kernel says of its types is not understood.
    #[error("{0}")]
    Types(#[from] BtfError),
    /// It has no such controller, or keeps the cgroup of a task elsewhere.
    #[error("where the kernel keeps the cgroup of a task is not known")]
    NoCgroup,
    /// More events than an entry has room for.
    #[error("too many events")]
    TooLarge,
}
