//! What this machine's resctrl has, looked at whenever jobs are followed: it may be unmounted, and its mode may be changed.

use std::collections::BTreeSet;

use kernel_files::parse::parse_integer;
use kernel_files::{ReadError, SourceError};

use super::super::assignment::{BY_ASSIGNMENT, parse_assign_mode, parse_counters, parse_event_filter};
use super::super::parse::{Features, parse_features};
use super::{Monitor, NEEDS, PREFIX, Refusal, WHAT, below};

/// What this machine's resctrl has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// What can be monitored.
    pub features: Features,
    /// How many groups there can be, at most.
    pub rmids: Option<u64>,
    /// How counters are given to groups; empty where the kernel does not say.
    pub mode: String,
    /// Counters of memory bandwidth in each domain, the least; `None` where they are not assigned.
    pub counters: Option<u64>,
    /// The same of those that are free.
    pub free_counters: Option<u64>,
    /// The transactions that are counted, with commas between; empty where the kernel does not say.
    pub counted: String,
}

impl Monitor {
    /// Looks, and at the first time takes over the groups of an exporter that was killed if its accounts go on; others that it
    /// left are removed.
    pub(super) fn look(&mut self) -> Result<(), SourceError> {
        let about = match self.about_now() {
            Ok(about) => about,
            Err(error) => {
                // Unmounting removes all groups (fs/resctrl/rdtgroup.c, `rdt_kill_sb`).
                if matches!(error, SourceError::Unsupported { .. }) && self.about.take().is_some() {
                    self.groups.clear();
                    self.remainders.clear();
                    self.others.clear();
                }
                return Err(error);
            }
        };
        if self.about.is_none() {
            self.take_over().map_err(SourceError::reading(WHAT, NEEDS))?;
        }
        self.about = Some(about);
        Ok(())
    }

    /// What there is now. Nothing is changed.
    fn about_now(&self) -> Result<About, SourceError> {
        let features =
            self.tree.read("info/L3_MON/mon_features").map_err(SourceError::reading(WHAT, NEEDS))?;
        let features = parse_features(&features).map_err(SourceError::parsing("info/L3_MON/mon_features"))?;
        if !features.total {
            return Err(SourceError::reading(WHAT, NEEDS)(ReadError::Gone));
        }
        let telemetry = self.tree.read("info/PERF_PKG_MON/mon_features").ok();
        let telemetry = telemetry.and_then(|bytes| parse_features(&bytes).ok()).unwrap_or_default();
        let features =
            Features { core_energy: telemetry.core_energy, activity: telemetry.activity, ..features };
        let number = |file: &str| parse_integer(&self.tree.read(file).ok()?).ok();
        // The smaller of the two (Documentation/filesystems/resctrl.rst).
        let rmids = [number("info/L3_MON/num_rmids"), number("info/PERF_PKG_MON/num_rmids")]
            .into_iter()
            .flatten()
            .min();
        let mode = self.tree.read("info/L3_MON/mbm_assign_mode").ok();
        let mode = mode.as_deref().and_then(parse_assign_mode).unwrap_or_default().to_owned();
        let mut about = About { features, rmids, mode, ..About::default() };
        if about.mode == BY_ASSIGNMENT {
            let least = |file: &str| parse_counters(&self.tree.read(file).ok()?).ok()?.into_values().min();
            about.counters = least("info/L3_MON/num_mbm_cntrs");
            about.free_counters = least("info/L3_MON/available_mbm_cntrs");
            let filter = self.tree.read("info/L3_MON/event_configs/mbm_total_bytes/event_filter").ok();
            let filter = filter.as_deref().and_then(parse_event_filter);
            about.counted = filter.map(|kinds| kinds.join(",")).unwrap_or_default();
        }
        Ok(about)
    }

    fn take_over(&mut self) -> Result<(), ReadError> {
        let mut there = BTreeSet::new();
        for control in self.controls()? {
            let groups = below(&control, "mon_groups");
            for name in self.tree.directories(&groups).unwrap_or_default() {
                let path = format!("{groups}/{name}");
                if self.groups.contains_key(&path) {
                    there.insert(path);
                } else if name.starts_with(PREFIX) {
                    // A group that could not be removed is found at the next start, and holds an RMID until then.
                    let removed = self.tree.remove(&path);
                    tracing::info!(group = name, ?removed, "removed a monitoring group of an earlier run");
                }
            }
        }
        self.groups.retain(|path, _| there.contains(path));
        Ok(())
    }

    /// What would keep jobs from being monitored, without making a group.
    pub fn check(&self) -> Result<(), SourceError> {
        let about = self.about_now()?;
        let groups = self.controls().unwrap_or_default().into_iter().map(|control| {
            let below = self.tree.directories(&below(&control, "mon_groups")).unwrap_or_default();
            1 + below.len()
        });
        let groups = u64::try_from(groups.sum::<usize>()).unwrap_or(u64::MAX);
        if about.rmids.is_some_and(|rmids| groups >= rmids) {
            return Err(Refusal::Exhausted.error(0));
        }
        if about.free_counters == Some(0) {
            return Err(Refusal::NoCounter.error(0));
        }
        Ok(())
    }
}
