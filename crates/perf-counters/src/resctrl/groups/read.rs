//! Reading the groups: the traffic of each job, and the rest of the control groups.

use std::collections::{BTreeMap, BTreeSet};

use readings::{Counter, Gain, Range};
use slurm_jobs::JobRunId;

use super::super::parse::{parse_domain, parse_value};
use super::{Group, Monitor, below};

/// What a round of readings gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Bytes by job and domain.
    pub jobs: Vec<(JobRunId, u32, u64)>,
    /// Bytes by domain that no job of ours moved.
    pub unattributed: Vec<(u32, u64)>,
    /// The domains that there are.
    pub domains: BTreeSet<u32>,
    /// Those that were read in every group.
    pub whole: BTreeSet<u32>,
    /// Jobs and domains that were read in every group of the job.
    pub read: BTreeSet<(JobRunId, u32)>,
    /// L3 occupancy by job and domain, bytes.
    pub occupancy: BTreeMap<(JobRunId, u32), u64>,
    /// Counters that went back.
    pub restarts: u64,
}

impl Monitor {
    pub(super) fn domains(&self, control: &str) -> BTreeSet<u32> {
        let names = self.tree.directories(&below(control, "mon_data")).unwrap_or_default();
        names.iter().filter_map(|name| parse_domain(name)).collect()
    }

    pub(super) fn value(&self, group: &str, domain: u32, event: &str) -> Option<u64> {
        let path = below(group, &format!("mon_data/mon_L3_{domain:02}/{event}"));
        parse_value(&self.tree.read(&path).ok()?).ok()?.bytes()
    }

    /// Reads everything. The counts of a control group include those of the monitoring groups below it; the rest is
    /// unattributed.
    pub fn read(&mut self) -> Round {
        let mut round = Round::default();
        let Some(features) = self.about.as_ref().map(|about| about.features) else { return round };
        let domains = self.domains("");
        let controls = self.controls().unwrap_or_default();
        round.domains.clone_from(&domains);
        round.whole = if controls.is_empty() { BTreeSet::new() } else { domains.clone() };
        let mut unread = BTreeSet::new();
        self.remainders.retain(|(control, _), _| controls.contains(control));
        for control in controls {
            let whole = |monitor: &Self| -> Vec<Option<u64>> {
                domains.iter().map(|domain| monitor.value(&control, *domain, "mbm_total_bytes")).collect()
            };
            let before = whole(self);
            let mut parts: BTreeMap<u32, Option<u64>> =
                domains.iter().map(|domain| (*domain, Some(0))).collect();
            let paths: Vec<String> = self
                .groups
                .iter()
                .filter(|(_, group)| group.control == control)
                .map(|(path, _)| path.clone())
                .collect();
            for path in paths {
                for domain in &domains {
                    let value = self.value(&path, *domain, "mbm_total_bytes");
                    let sum = parts.entry(*domain).or_default();
                    *sum = sum.zip(value).map(|(sum, value)| sum.saturating_add(value));
                    let occupancy =
                        features.occupancy.then(|| self.value(&path, *domain, "llc_occupancy")).flatten();
                    let Some(group) = self.groups.get_mut(&path) else { continue };
                    let of = (group.run, *domain);
                    take(group, *domain, value, &mut round);
                    if value.is_some() {
                        round.read.insert(of)
                    } else {
                        unread.insert(of)
                    };
                    if let Some(bytes) = occupancy {
                        *round.occupancy.entry(of).or_default() += bytes;
                    }
                }
                if let Some(group) = self.groups.get_mut(&path) {
                    group.fresh = false;
                }
            }
            let after = whole(self);
            for ((domain, before), after) in domains.iter().zip(before).zip(after) {
                let remainder = self.remainders.entry((control.clone(), *domain)).or_default();
                let parts = parts.get(domain).copied().flatten();
                let grown = match (before, parts, after) {
                    (Some(before), Some(parts), Some(after)) => {
                        remainder.observe(readings::Round { before, parts, after })
                    }
                    _ => {
                        remainder.lost();
                        None
                    }
                };
                match grown {
                    Some(bytes) => round.unattributed.push((*domain, bytes)),
                    None => drop(round.whole.remove(domain)),
                }
            }
        }
        round.read.retain(|of| !unread.contains(of));
        round
    }
}

/// Takes a value of a group. After a value that the hardware did not know, counting restarts: the counts meanwhile
/// are in no number.
pub(super) fn take(group: &mut Group, domain: u32, value: Option<u64>, round: &mut Round) {
    let begin = || if group.fresh { Counter::from_zero() } else { Counter::default() };
    let counter = group.counters.entry(domain).or_insert_with(begin);
    let Some(value) = value else { return counter.lost() };
    match counter.advance(value, Range::Full) {
        Gain::Restarted => round.restarts += 1,
        gain => round.jobs.push((group.run, domain, gain.amount())),
    }
}
