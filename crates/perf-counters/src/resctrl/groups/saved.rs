//! The monitor's memory, saved for a restart of the exporter.
//!
//! The kernel counts on while no exporter runs. After a crash the groups are there still, with the jobs' threads in them, and their
//! growth is the jobs'. An exporter that ends removes its groups, and the kernel counts those threads in the control group: the
//! remainder grows by that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use readings::{Counter, Remainder};
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::super::parse::Unread;
use super::super::quantity::Quantity;
use super::{Group, Monitor, Refusal, Watched};

/// What is saved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SavedMonitor {
    groups: BTreeMap<String, Group>,
    monitored: Vec<(JobRunId, Duration)>,
    remainders: Vec<((String, Quantity, u32), Remainder)>,
    others: Vec<((String, Quantity, u32), Counter)>,
    identities: BTreeMap<String, u64>,
    refused: Vec<(Refusal, u64)>,
    unread: Vec<((Quantity, Unread), u64)>,
}

impl Monitor {
    /// What is to be saved.
    pub fn save(&self, now: Instant) -> SavedMonitor {
        let monitored = self.watched.keys().filter_map(|run| Some((*run, self.monitored(*run, now)?)));
        SavedMonitor {
            groups: self.groups.clone(),
            monitored: monitored.collect(),
            remainders: self
                .remainders
                .iter()
                .map(|(of, remainder)| (of.clone(), remainder.clone()))
                .collect(),
            others: self.others.iter().map(|(of, counter)| (of.clone(), *counter)).collect(),
            identities: self.identities.clone(),
            refused: self.refused.iter().map(|(refusal, times)| (*refusal, *times)).collect(),
            unread: self.unread.iter().map(|(of, times)| (*of, *times)).collect(),
        }
    }

    /// Takes over what was saved, of the job runs that are known, before the jobs are followed. The time without an exporter
    /// is not among the time that they were monitored: a new thread may have been in no group.
    pub fn restore(&mut self, saved: SavedMonitor, known: impl Fn(JobRunId) -> bool) {
        let SavedMonitor { groups, monitored, remainders, others, identities, refused, unread } = saved;
        self.groups = groups.into_iter().filter(|(_, group)| known(group.run)).collect();
        let watched = |(run, monitored)| (run, Watched { since: None, monitored });
        self.watched = monitored.into_iter().filter(|(run, _)| known(*run)).map(watched).collect();
        self.remainders = remainders.into_iter().collect();
        self.others = others.into_iter().collect();
        self.identities = identities;
        self.refused = refused.into_iter().collect();
        self.unread = unread.into_iter().collect();
    }
}
