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
