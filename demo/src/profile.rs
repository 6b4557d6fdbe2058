//! The kinds of job that the simulated node runs.

/// The kinds of jobs. A job of each kind runs or waits to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Profile {
    /// Uses all its CPUs.
    Busy,
    /// Holds CPUs and memory and does nothing.
    Idle,
    /// Uses one of its CPUs.
    Serial,
    /// Grows until the kernel kills it.
    Leaking,
    /// Reads one disk and writes another.
    IoHeavy,
    /// Needs twice its CPU bandwidth limit.
    Throttled,
    /// Has more threads than CPUs and little memory.
    Pressured,
    /// Runs for seconds.
    Short,
    /// Runs one `srun` after the other in its batch script.
    MultiStep,
    /// Elements of a job array.
    Array,
    /// Two components of a heterogeneous job.
    Heterogeneous,
    /// An interactive shell.
    Interactive,
    /// SLURM fails to remove its directory.
    LeftBehind,
    /// Is preempted and requeued, under the same id.
    Requeued,
    /// Trains on four GPUs, which are busy all the time.
    Training,
    /// Holds a GPU and never uses it.
    IdleGpu,
    /// Holds a MIG device after its work is done.
    Finished,
    /// Its GPU waits for the CPU.
    LowUse,
    /// Two of them share a GPU.
    Sharing,
    /// Uses a MIG device well.
    OnPart,
    /// Runs for seconds, with a GPU.
    ShortGpu,
    /// Is alone on the node.
    Exclusive,
}
