//! The events of each microarchitecture: the table in data/pmu_events.yaml, and a site's additions in a file of the
//! same form. Without either a microarchitecture has the kernel's own events alone.

mod check;
mod file;
mod topic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cpu_topology::microarchitecture::Microarchitectures;
use file::File;
pub use topic::{Bundle, Class, Extent, Topic};

use super::{PlausibilityLimits, Quantity};

/// How good the FLOPs of a core are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Of instructions that were done.
    Retired,
    /// Includes speculative instructions that did not retire.
    Speculative,
}

impl Quality {
    /// The word that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retired => "retired",
            Self::Speculative => "speculative",
        }
    }
}

/// How the kernel is asked for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// Fields of the core's PMU.
    Fields(Vec<(&'static str, u64)>),
    /// A number of `PERF_TYPE_HARDWARE`, whose code the kernel knows.
    Hardware(u64),
}

/// One event of a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The vendor's name, or the kernel's.
    pub name: Arc<str>,
    /// What it counts.
    pub quantity: Quantity,
    /// Its code.
    pub encoding: Encoding,
    /// The general-purpose counters that can count it, one bit each.
    pub counters: u32,
    /// Whether it takes an even counter and the next one.
    pub pair: bool,
    /// Whether it takes no counter: the CPU derives it from another's.
    pub free: bool,
    /// The plan that it is counted in, where that is not both.
    pub only_in: Option<Extent>,
    /// Whether its code is the vendor's word.
    pub verified: bool,
    /// What a reader of the number must know.
    pub note: Option<Arc<str>>,
    /// Whether its counts are taken off those of the other events of its quantity.
    pub minus: bool,
    /// A PMU that the machine has to have for it.
    pub with_pmu: Option<Arc<str>>,
    /// A PMU in whose presence another event counts instead.
    pub without_pmu: Option<Arc<str>>,
}

impl Event {
    /// The topic of the event.
    pub fn topic(&self) -> Topic {
        Topic::of(self.quantity)
    }

    /// Whether it is for a machine that has PMUs of these names.
    pub fn is_for(&self, pmus: &BTreeSet<String>) -> bool {
        let there = |name: &Arc<str>| pmus.contains(&**name);
        self.with_pmu.as_ref().is_none_or(there) && !self.without_pmu.as_ref().is_some_and(there)
    }

    /// The request that needs one of the core's two registers for it.
    pub fn offcore(&self) -> Option<u64> {
        match &self.encoding {
            Encoding::Fields(fields) => {
                fields.iter().find(|(name, _)| *name == OFFCORE).map(|(_, value)| *value)
            }
            Encoding::Hardware(_) => None,
        }
    }
}

/// The field of requests that leave the core (arch/x86/events/intel/core.c).
pub const OFFCORE: &str = "offcore_rsp";

/// A kind of core.
#[derive(Debug, Clone, PartialEq)]
pub struct Core {
    /// Its PMU's name in sysfs; [`ARMV8`] is any PMU of such cores.
    pub pmu: Arc<str>,
    /// General-purpose counters of a hardware thread that has a core with another.
    pub counters_smt_on: u32,
    /// The same where the firmware has switched SMT off.
    pub counters_smt_off: u32,
    /// The topics that have a fixed counter.
    pub fixed: Vec<Topic>,
    /// The limits of its counts.
    pub peak: PlausibilityLimits,
    /// How good its FLOPs are; `None` where they are not counted.
    pub flops: Option<Quality>,
    /// Its events.
    pub events: Vec<Event>,
    /// Topics without an event, and why.
    pub absent: Vec<(Topic, Arc<str>)>,
    /// What a reader of the numbers must know.
    pub notes: Vec<Arc<str>>,
    /// Where its codes are from.
    pub sources: Vec<Arc<str>>,
    /// Whether they are the vendor's word.
    pub verified: bool,
}

/// A PMU of ARMv8 cores, however it is called.
pub const ARMV8: &str = "armv8";

impl Core {
    /// Why nothing is counted of a topic.
    pub fn why_absent(&self, topic: Topic) -> Arc<str> {
        let listed = self.absent.iter().find(|(absent, _)| *absent == topic);
        listed.map_or_else(|| "no event is known for it on this core".into(), |(_, why)| why.clone())
    }
}

/// The table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalogue {
    rows: BTreeMap<Arc<str>, Vec<Core>>,
}

impl Catalogue {
    /// The table that is built in.
    pub fn built_in() -> Self {
        // It is data of this crate and a test parses it; without it only the kernel's own events are counted.
        Self::parse(File::built_in()).unwrap_or_default()
    }

    /// That table and that of a site's file.
    pub fn with_site_bytes(bytes: &[u8]) -> Result<Self, String> {
        Self::parse(File::built_in().and_then(|built_in| built_in.extended_by(File::parse(bytes)?)))
    }

    fn parse(file: Result<File, String>) -> Result<Self, String> {
        Ok(Self { rows: check::rows(&file?, &Microarchitectures::built_in())? })
    }

    /// The kinds of cores that a microarchitecture has.
    pub fn cores(&self, microarchitecture: &str) -> Option<&[Core]> {
        self.rows.get(microarchitecture).map(Vec::as_slice)
    }

    /// The names of all microarchitectures, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(AsRef::as_ref)
    }
}

/// A mask with a bit for each of this many counters.
pub(super) fn ones(counters: u32) -> u32 {
    1_u32.checked_shl(counters).map_or(u32::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests;
