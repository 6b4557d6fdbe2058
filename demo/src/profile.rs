//! The kinds of job that the simulated node runs.

/// A kind of job, each of which is always running or about to.
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
    /// Wants twice what its CPU bandwidth allows.
    Throttled,
    /// Has more threads than CPUs, and hardly enough memory.
    Pressured,
    /// Is over in a moment.
    Short,
    /// Runs one `srun` after the other in its batch script.
    MultiStep,
    /// Elements of a job array.
    Array,
    /// Two components of a heterogeneous job.
    Heterogeneous,
    /// Somebody at a terminal.
    Interactive,
    /// SLURM fails to remove its directory.
    LeftBehind,
    /// Is preempted and started again, under the same id.
    Requeued,
    /// Trains on four GPUs, which are busy all the time.
    Training,
    /// Holds a GPU and never uses it.
    IdleGpu,
    /// Holds a part of a GPU, and has done its work.
    Finished,
    /// Its GPU waits for the CPU.
    LowUse,
    /// Two of them share a GPU.
    Sharing,
    /// Uses a part of a GPU well.
    OnPart,
    /// Is over in a moment, and has a GPU meanwhile.
    ShortGpu,
    /// Has the whole node for itself.
    Exclusive,
}
