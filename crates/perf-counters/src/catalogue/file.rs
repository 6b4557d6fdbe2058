//! The form of data/pmu_events.yaml and of a site's file, and how the second goes over the first.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::{Extent, Topic};

/// A file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) sets: BTreeMap<String, Vec<EventRow>>,
    #[serde(default)]
    pub(super) microarchitectures: Vec<Row>,
}

/// Microarchitectures with the same cores.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) names: Vec<String>,
    pub(super) cores: Vec<CoreRow>,
}

/// A kind of core. What a site's file leaves out keeps its value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CoreRow {
    pub(super) pmu: String,
    pub(super) counters: Option<Counters>,
    pub(super) fixed: Option<Vec<Topic>>,
    pub(super) peak: Option<Peak>,
    pub(super) flops: Option<FlopsRow>,
    pub(super) verified: Option<bool>,
    #[serde(default)]
    pub(super) sets: Vec<String>,
    #[serde(default)]
    pub(super) events: Vec<EventRow>,
    #[serde(default)]
    pub(super) absent: Vec<AbsentRow>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    pub(super) sources: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counters {
    pub(super) smt_on: u32,
    pub(super) smt_off: u32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peak {
    pub(super) instructions_per_cycle: f64,
    pub(super) flops_per_cycle: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FlopsRow {
    Retired,
    Speculative,
    None,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AbsentRow {
    pub(super) what: Topic,
    pub(super) why: String,
}

/// An event.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventRow {
    pub(super) name: String,
    pub(super) event: Option<u64>,
    pub(super) umask: Option<u64>,
    pub(super) cmask: Option<u64>,
    pub(super) inv: Option<bool>,
    pub(super) edge: Option<bool>,
    pub(super) offcore_rsp: Option<u64>,
    pub(super) hardware: Option<u64>,
    pub(super) what: Option<EventKind>,
    pub(super) precision: Option<PrecisionRow>,
    pub(super) width: Option<WidthRow>,
    pub(super) level: Option<LevelRow>,
    pub(super) flow: Option<FlowRow>,
    pub(super) each: Option<u32>,
    pub(super) part: Option<PartRow>,
    pub(super) slots: Option<u32>,
    pub(super) flush: Option<FlushRow>,
    /// Counted in one of the plans alone.
    pub(super) plan: Option<Extent>,
    pub(super) counters: Option<String>,
    #[serde(default)]
    pub(super) pair: bool,
    #[serde(default = "yes")]
    pub(super) verified: bool,
    pub(super) note: Option<String>,
    /// Its counts are taken off those of the others.
    #[serde(default)]
    pub(super) minus: bool,
    /// A PMU that the machine has to have.
    pub(super) with_pmu: Option<String>,
    /// A PMU that it must not have.
    pub(super) without_pmu: Option<String>,
    /// Only in a site's file: the event of this name is not used.
    #[serde(default)]
    pub(super) remove: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EventKind {
    Cycles,
    Instructions,
    ReferenceCycles,
    Branches,
    BranchMisses,
    CacheReferences,
    CacheMisses,
    CacheTraffic,
    MemoryLoads,
    Flops,
    FlopsOfAllTypes,
    TopDown,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PartRow {
    All,
    Retiring,
    Speculative,
    BadSpeculation,
    Frontend,
    FrontendAndCycles,
    Backend,
    Memory,
    OtherThread,
    Flush,
}

/// Cycles that are lost to each flush.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlushRow {
    pub(super) frontend: u32,
    pub(super) backend: u32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PrecisionRow {
    Double,
    Single,
    Half,
    Bfloat16,
    Any,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(super) enum WidthRow {
    Bits(u16),
    Word(WidthWord),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WidthWord {
    Scalar,
    Packed,
    Any,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LevelRow {
    L1d,
    L2,
    L3,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FlowRow {
    Load,
    Evict,
}

impl File {
    pub(super) fn built_in() -> Result<Self, String> {
        static BUILT_IN: OnceLock<Result<File, String>> = OnceLock::new();
        BUILT_IN.get_or_init(|| Self::parse(include_bytes!("../../data/pmu_events.yaml"))).clone()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file: Option<Self> = serde_yaml::from_slice(bytes).map_err(|error| error.to_string())?;
        let mut file = file.unwrap_or_default();
        // One row for each name: the name identifies the row.
        let rows = std::mem::take(&mut file.microarchitectures);
        for row in rows {
            for name in &row.names {
                if file.microarchitectures.iter().any(|known| known.names.contains(name)) {
                    return Err(format!("{name} stands in two rows"));
                }
                file.microarchitectures.push(Row { names: vec![name.clone()], cores: row.cores.clone() });
            }
        }
        Ok(file)
    }

    /// What another file says goes before what this one does: of microarchitectures, cores and events with the same name.
    pub(super) fn extended_by(mut self, site: Self) -> Result<Self, String> {
        for (name, events) in site.sets {
            if self.sets.insert(name.clone(), events).is_some() {
                return Err(format!("the set {name} is one of the program's own"));
            }
        }
        for row in site.microarchitectures {
            match self.microarchitectures.iter_mut().find(|known| known.names == row.names) {
                Some(known) => row.cores.into_iter().for_each(|core| known.replace(core)),
                None => self.microarchitectures.push(row),
            }
        }
        Ok(self)
    }
}

impl Row {
    fn replace(&mut self, site: CoreRow) {
        let Some(core) = self.cores.iter_mut().find(|core| core.pmu == site.pmu) else {
            return self.cores.push(site);
        };
        core.counters = site.counters.or(core.counters);
        core.fixed = site.fixed.or_else(|| core.fixed.take());
        core.peak = site.peak.or(core.peak);
        core.flops = site.flops.or(core.flops);
        core.verified = site.verified.or(core.verified);
        core.sets.extend(site.sets);
        // Later ones of a name go before earlier ones.
        core.events.extend(site.events);
        core.absent.splice(0..0, site.absent);
        core.notes.extend(site.notes);
        core.sources.extend(site.sources);
    }
}
