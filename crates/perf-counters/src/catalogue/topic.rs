//! What can be counted, as a site and a user name it.

use serde::Deserialize;

use crate::{CacheLevel, Flow, Precision, Quantity, SlotPart};

/// How much is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// What fits a CPU's counters at once: cycles, instructions, FLOPs, loads from memory and pipeline slots, in this order.
    #[default]
    Essential,
    /// All that there is, in turns where it does not fit.
    Full,
}

impl Extent {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Essential, Self::Full];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Essential => "essential",
            Self::Full => "full",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|extent| extent.as_str() == word)
    }
}

/// What a site can have counted or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Floating-point operations.
    Flops,
    /// Bytes from memory, as far as cores see them.
    Memory,
    /// What became of the pipeline's slots.
    TopDown,
    /// Misses and traffic of caches.
    Cache,
    /// Branches.
    Branches,
    /// What the kernel counts.
    Software,
}

impl Class {
    /// All, in the order of their importance.
    pub const ALL: [Self; 6] =
        [Self::Flops, Self::Memory, Self::TopDown, Self::Cache, Self::Branches, Self::Software];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flops => "flops",
            Self::Memory => "memory",
            Self::TopDown => "topdown",
            Self::Cache => "cache",
            Self::Branches => "branches",
            Self::Software => "software",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }

    /// Whether anything of it is in the essential plan.
    pub fn is_essential(self) -> bool {
        !matches!(self, Self::Cache | Self::Branches)
    }
}

/// What a user asks for, whatever counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Floating-point operations.
    Flops,
    /// Floating-point operations once more, to compare them with.
    FlopsOfAllTypes,
    /// Cycles.
    Cycles,
    /// Instructions.
    Instructions,
    /// Cycles of a clock that never changes.
    ReferenceCycles,
    /// Bytes from memory.
    MemoryLoads,
    /// What became of the pipeline's slots.
    TopDown,
    /// How many of them wait for memory.
    TopDownMemory,
    /// Misses of L3.
    L3Misses,
    /// Misses of L2.
    L2Misses,
    /// Misses of L1d.
    L1dMisses,
    /// Accesses to a cache.
    CacheReferences,
    /// Bytes into L2.
    L3Load,
    /// Bytes out of L2.
    L3Evict,
    /// Bytes into L1d.
    L2Load,
    /// Bytes out of L1d.
    L2Evict,
    /// Branches.
    Branches,
    /// Branches foreseen wrongly.
    BranchMisses,
}

impl Topic {
    /// What a user misses where it is not counted. L1d and L2 have misses of their own only where L3 has none, and few CPUs count
    /// the slots that wait for memory.
    pub const EXPECTED: [Self; 14] = [
        Self::Flops,
        Self::Cycles,
        Self::Instructions,
        Self::ReferenceCycles,
        Self::MemoryLoads,
        Self::TopDown,
        Self::L3Misses,
        Self::CacheReferences,
        Self::L3Load,
        Self::L3Evict,
        Self::L2Load,
        Self::L2Evict,
        Self::Branches,
        Self::BranchMisses,
    ];

    /// What an event is of.
    pub fn of(quantity: Quantity) -> Self {
        match quantity {
            Quantity::Flops { .. } => Self::Flops,
            Quantity::FlopsOfAllTypes => Self::FlopsOfAllTypes,
            Quantity::Instructions => Self::Instructions,
            Quantity::ReferenceCycles => Self::ReferenceCycles,
            Quantity::MemoryLoads { .. } => Self::MemoryLoads,
            Quantity::CacheMisses(CacheLevel::L3) => Self::L3Misses,
            Quantity::CacheMisses(CacheLevel::L2) => Self::L2Misses,
            Quantity::CacheMisses(CacheLevel::L1d) => Self::L1dMisses,
            Quantity::CacheReferences(_) => Self::CacheReferences,
            Quantity::CacheTraffic { level: CacheLevel::L3, flow: Flow::Load, .. } => Self::L3Load,
            Quantity::CacheTraffic { level: CacheLevel::L3, flow: Flow::Evict, .. } => Self::L3Evict,
            Quantity::CacheTraffic { flow: Flow::Load, .. } => Self::L2Load,
            Quantity::CacheTraffic { flow: Flow::Evict, .. } => Self::L2Evict,
            Quantity::Branches => Self::Branches,
            Quantity::BranchMisses => Self::BranchMisses,
            Quantity::TopDown { part: SlotPart::Memory, .. } => Self::TopDownMemory,
            Quantity::TopDown { .. } | Quantity::PipelineSlots(_) => Self::TopDown,
            // What the kernel counts is no event of a core; the cycles of one are.
            Quantity::Cycles
            | Quantity::ContextSwitches
            | Quantity::Migrations
            | Quantity::MinorFaults
            | Quantity::MajorFaults => Self::Cycles,
        }
    }

    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flops => "FLOPs",
            Self::FlopsOfAllTypes => "FLOPs of all types by one event",
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::ReferenceCycles => "reference cycles",
            Self::MemoryLoads => "loads from memory",
            Self::TopDown => "pipeline slots",
            Self::TopDownMemory => "pipeline slots that wait for memory",
            Self::L3Misses => "misses of L3",
            Self::L2Misses => "misses of L2",
            Self::L1dMisses => "misses of L1d",
            Self::CacheReferences => "cache references",
            Self::L3Load => "traffic from L3 to L2",
            Self::L3Evict => "traffic from L2 to L3",
            Self::L2Load => "traffic from L2 to L1d",
            Self::L2Evict => "traffic from L1d to L2",
            Self::Branches => "branches",
            Self::BranchMisses => "branch misses",
        }
    }

    /// Whether it is in the essential plan, where it fits.
    pub fn is_essential(self) -> bool {
        !matches!(self, Self::ReferenceCycles | Self::FlopsOfAllTypes)
            && self.class().is_none_or(Class::is_essential)
    }

    /// The class that includes it; `None` for topics that go with all hardware counters.
    pub fn class(self) -> Option<Class> {
        match self {
            Self::Cycles | Self::Instructions | Self::ReferenceCycles => None,
            Self::Flops | Self::FlopsOfAllTypes => Some(Class::Flops),
            Self::MemoryLoads => Some(Class::Memory),
            Self::TopDown | Self::TopDownMemory => Some(Class::TopDown),
            Self::Branches | Self::BranchMisses => Some(Class::Branches),
            _ => Some(Class::Cache),
        }
    }
}

/// Topics that are counted in one group where possible, because they are divided by each other or added up. Ordered
/// by importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bundle {
    /// FLOPs of all precisions that are counted as one.
    FlopsTogether,
    /// FLOPs of one precision.
    Flops(Precision),
    /// For the ratio to cycles.
    Instructions,
    /// Bytes from memory.
    Memory,
    /// What became of slots: all of it or nothing.
    TopDown,
    /// Misses of caches, and references.
    Misses,
    /// Traffic between L3 and L2, either way.
    L3,
    /// Traffic between L2 and L1d, either way.
    L2,
    /// Branches, and those foreseen wrongly.
    Branches,
    /// Only for comparison.
    ReferenceCycles,
    /// The same, and only where there is room.
    FlopsOfAllTypes,
}

impl Bundle {
    /// Where an event belongs; cycles belong everywhere.
    pub fn of(quantity: Quantity) -> Option<Self> {
        match quantity {
            Quantity::Flops { precision: Precision::Any, .. } => return Some(Self::FlopsTogether),
            Quantity::Flops { precision, .. } => return Some(Self::Flops(precision)),
            _ => {}
        }
        match Topic::of(quantity) {
            Topic::Cycles | Topic::Flops => None,
            Topic::FlopsOfAllTypes => Some(Self::FlopsOfAllTypes),
            Topic::Instructions => Some(Self::Instructions),
            Topic::ReferenceCycles => Some(Self::ReferenceCycles),
            Topic::MemoryLoads => Some(Self::Memory),
            Topic::TopDown | Topic::TopDownMemory => Some(Self::TopDown),
            Topic::L3Misses | Topic::L2Misses | Topic::L1dMisses | Topic::CacheReferences => {
                Some(Self::Misses)
            }
            Topic::L3Load | Topic::L3Evict => Some(Self::L3),
            Topic::L2Load | Topic::L2Evict => Some(Self::L2),
            Topic::Branches | Topic::BranchMisses => Some(Self::Branches),
        }
    }
}
