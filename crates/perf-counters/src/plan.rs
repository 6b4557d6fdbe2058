//! The groups of events of a machine that fit its counters, the most important first.

use std::sync::Arc;

use cpu_topology::CpuSet;
use perf_events::Attr;

use super::Quantity;

/// One event of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The vendor's name, or the kernel's.
    pub name: Arc<str>,
    /// What it counts.
    pub quantity: Quantity,
    /// How the kernel is asked for it.
    pub attr: Attr,
    /// Whether its counts are taken off those of the events of its quantity in this group.
    pub minus: bool,
}

/// Events that are counted in the same moments, so that one may be divided by another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its purpose: the `group` label.
    pub name: Arc<str>,
    /// Whether its events take hardware counters; those of the kernel take none.
    pub hardware: bool,
    /// The CPUs that have them, where not every CPU of the machine does (hybrid CPUs).
    pub cpus: Option<CpuSet>,
    /// The first is the leader.
    pub events: Vec<Event>,
}

impl Group {
    /// How the kernel is asked for its events.
    pub fn attrs(&self) -> Vec<Attr> {
        self.events.iter().map(|event| event.attr).collect()
    }
}

/// Something that is not counted on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// What, in words: `FLOPs`, `cache misses of L3`.
    pub what: Arc<str>,
    /// Why, one line without a full stop.
    pub why: Arc<str>,
}

/// What no core of this machine can exceed: counts beyond it are not of this job's work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlausibilityLimits {
    /// Instructions per cycle.
    pub instructions_per_cycle: f64,
    /// Floating-point operations per cycle, of all precisions together; `None` where they are not counted.
    pub flops_per_cycle: Option<f64>,
}

/// The plan of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Name of the microarchitecture, where the catalogue has it.
    pub microarchitecture: Option<Arc<str>>,
    /// How good its FLOPs are: `retired`, `speculative`; `None` where they are not counted.
    pub flops: Option<Arc<str>>,
    /// The most important first. The kernel takes turns with those that do not fit together.
    pub groups: Vec<Group>,
    /// What is not counted, and why.
    pub absent: Vec<Absent>,
    /// The limits of plausible counts.
    pub limits: PlausibilityLimits,
}

impl Plan {
    /// How many events it has: descriptors per CPU.
    pub fn events(&self) -> usize {
        self.groups.iter().map(|group| group.events.len()).sum()
    }
}
