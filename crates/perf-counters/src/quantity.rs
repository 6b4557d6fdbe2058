//! What a count means for a job.

use serde::{Deserialize, Serialize};

/// How precise the numbers of a floating-point operation are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Precision {
    /// 64 bits.
    Double,
    /// 32 bits.
    Single,
    /// 16 bits, IEEE 754.
    Half,
    /// 16 bits, of which 8 are the exponent.
    Bfloat16,
    /// The hardware counts all of them as one.
    Any,
}

impl Precision {
    /// The `precision` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Single => "single",
            Self::Half => "half",
            Self::Bfloat16 => "bfloat16",
            Self::Any => "any",
        }
    }
}

/// How wide the instructions are that did the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Width {
    /// One number at a time.
    Scalar,
    /// A vector of this many bits.
    Bits(u16),
    /// A vector of any width.
    Packed,
    /// The hardware counts all of them as one.
    Any,
}

impl Width {
    /// The `width` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Bits(128) => "128",
            Self::Bits(256) => "256",
            Self::Bits(512) => "512",
            Self::Packed => "packed",
            Self::Bits(_) | Self::Any => "any",
        }
    }
}

/// A level of the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CacheLevel {
    /// First level, data.
    L1d,
    /// Second level.
    L2,
    /// Third level.
    L3,
}

impl CacheLevel {
    /// The `level` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::L1d => "l1d",
            Self::L2 => "l2",
            Self::L3 => "l3",
        }
    }
}

/// Which way bytes go between a cache and the one that is nearer to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Flow {
    /// Towards the core.
    Load,
    /// Away from it.
    Evict,
}

impl Flow {
    /// The `direction` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Evict => "evict",
        }
    }
}

/// What became of a slot: a place for one operation in a cycle. Each slot is of one category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SlotCategory {
    /// Its operation retired.
    Retiring,
    /// Its operation was given up, or it was lost while the pipeline recovered from one that was.
    BadSpeculation,
    /// Empty: no operation came from the front end.
    Frontend,
    /// Empty: the back end could not take one. All of it, where the CPU does not count what waits for memory.
    Backend,
    /// The part of the back end's that waited for loads or stores.
    BackendMemory,
    /// The rest of the back end's.
    BackendCore,
    /// The cycle was the other hardware thread's.
    OtherThread,
}

impl SlotCategory {
    /// The `category` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retiring => "retiring",
            Self::BadSpeculation => "bad_speculation",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::BackendMemory => "backend_memory",
            Self::BackendCore => "backend_core",
            Self::OtherThread => "other_thread",
        }
    }
}

/// What an event counts of slots. `crate::top_down` makes the categories of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SlotPart {
    /// All slots. Without it there are as many in each cycle as the event says.
    All,
    /// Slots of operations that retired.
    Retiring,
    /// Operations that were sent for execution, of which some retired.
    Speculative,
    /// Slots that were lost to what was given up.
    BadSpeculation,
    /// Slots that were empty for the front end.
    Frontend,
    /// Slots that were empty for the back end.
    Backend,
    /// The part of these that waited for memory.
    Memory,
    /// Slots of the other hardware thread.
    OtherThread,
    /// Each is so many cycles of the front end's and of the back end's empty slots that are not theirs, but of a flush.
    Flush {
        /// Cycles that are among the front end's.
        frontend: u32,
        /// Cycles that are among the back end's.
        backend: u32,
    },
    /// Slots that were empty for the front end, and one more in each cycle.
    FrontendAndCycles,
}

impl SlotPart {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Retiring => "retiring",
            Self::Speculative => "speculative",
            Self::BadSpeculation => "bad_speculation",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::Memory => "memory",
            Self::OtherThread => "other_thread",
            Self::Flush { .. } => "flush",
            Self::FrontendAndCycles => "frontend_and_cycles",
        }
    }
}

/// What is counted, and how much of it one count stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Quantity {
    /// Cycles in which the core was not halted, at the frequency it ran at.
    Cycles,
    /// The same at a frequency that never changes.
    ReferenceCycles,
    /// Instructions retired.
    Instructions,
    /// Branches retired.
    Branches,
    /// Branches that were foreseen wrongly.
    BranchMisses,
    /// Accesses to a cache.
    CacheReferences(CacheLevel),
    /// Accesses that it could not serve.
    CacheMisses(CacheLevel),
    /// Floating-point operations; a fused multiply-add is two.
    Flops {
        /// Of which numbers.
        precision: Precision,
        /// By which instructions.
        width: Width,
        /// Operations per count.
        each: u32,
    },
    /// The same of all types, by one event of a CPU that has an event for each type: the sum of these should be it.
    FlopsOfAllTypes,
    /// Bytes between a cache and the one nearer to the core: `L2` is the traffic between L2 and L1d.
    CacheTraffic {
        /// The outer one of the two levels.
        level: CacheLevel,
        /// Which way.
        flow: Flow,
        /// Bytes per count.
        each: u32,
    },
    /// Bytes that came from memory into the core's caches, as far as the cores' own events see them.
    MemoryLoads {
        /// Bytes per count.
        each: u32,
    },
    /// A reading that the categories of slots are made of; not published by itself.
    TopDown {
        /// What it counts.
        part: SlotPart,
        /// Slots in a cycle.
        slots: u32,
    },
    /// Slots of a category. No event counts it: it is made of a group's readings.
    PipelineSlots(SlotCategory),
    /// Switches of a CPU from a thread of the job to another thread.
    ContextSwitches,
    /// Moves of a thread to another CPU.
    Migrations,
    /// Page faults that needed no I/O.
    MinorFaults,
    /// Page faults that did.
    MajorFaults,
}

impl Quantity {
    /// What one count is worth.
    pub fn each(self) -> u64 {
        match self {
            Self::Flops { each, .. } | Self::CacheTraffic { each, .. } | Self::MemoryLoads { each } => {
                u64::from(each)
            }
            _ => 1,
        }
    }
}
