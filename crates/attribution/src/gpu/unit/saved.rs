//! The accounts of a unit over a restart of the exporter.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use durable_state::{SavedInstant, instant};
use readings::Counter;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::super::super::{Account, IdlePower};
use super::super::Roles;
use super::{CounterAccount, GpuMethod, GpuUsage, Interval, Part, RESTORED, Shares, UnitAccounts};

/// The accounts of a unit as they are saved, with quantities by name.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct SavedUnit {
    last: Option<SavedInstant>,
    counters: Vec<SavedCounter>,
    waiting: Vec<SavedInterval>,
    usage: BTreeMap<JobRunId, GpuUsage>,
    idle_power: IdlePower,
    watched: Duration,
    vacant: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedCounter {
    quantity: String,
    #[serde(with = "instant")]
    at: Instant,
    standing: Option<u64>,
    account: Account<GpuMethod>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedInterval {
    #[serde(with = "instant")]
    from: Instant,
    #[serde(with = "instant")]
    to: Instant,
    seen: bool,
    gains: Vec<(String, u64)>,
    shares: Option<Shares>,
    parts: Vec<Part>,
}

impl<Q: Copy + Eq> UnitAccounts<Q> {
    pub(in super::super) fn save(&self, name: impl Fn(Q) -> String) -> SavedUnit {
        let gains =
            |interval: &Interval<Q>| interval.gains.iter().map(|(q, gain)| (name(*q), *gain)).collect();
        SavedUnit {
            last: self.last.map(SavedInstant),
            counters: self
                .counters
                .iter()
                .map(|line| SavedCounter {
                    quantity: name(line.quantity),
                    at: line.at,
                    standing: line.standing,
                    account: line.account.clone(),
                })
                .collect(),
            waiting: self
                .waiting
                .iter()
                .map(|interval| SavedInterval {
                    from: interval.from,
                    to: interval.to,
                    seen: interval.seen,
                    gains: gains(interval),
                    shares: interval.shares.clone(),
                    parts: interval.parts.clone(),
                })
                .collect(),
            usage: self.usage.clone(),
            idle_power: self.idle_power,
            watched: self.watched,
            vacant: self.vacant,
        }
    }

    /// The accounts of before. The counts restart with their reader.
    pub(in super::super) fn restored(
        roles: Roles<Q>,
        saved: SavedUnit,
        quantity: impl Fn(&str) -> Option<Q>,
        known: impl Fn(JobRunId) -> bool,
    ) -> Self {
        let counter = |line: SavedCounter| {
            let mut account = line.account;
            account.keep(&known);
            Some(CounterAccount {
                quantity: quantity(&line.quantity)?,
                raw: Counter::default(),
                at: line.at,
                standing: line.standing,
                account,
            })
        };
        let interval = |saved: SavedInterval| Interval {
            from: saved.from,
            to: saved.to,
            seen: saved.seen,
            gains: saved
                .gains
                .into_iter()
                .filter_map(|(name, gain)| Some((quantity(&name)?, gain)))
                .collect(),
            shares: saved.shares,
            parts: saved.parts,
        };
        Self {
            roles,
            epoch: RESTORED,
            last: saved.last.map(|at| at.0),
            counters: saved.counters.into_iter().filter_map(counter).collect(),
            waiting: saved.waiting.into_iter().map(interval).collect(),
            usage: saved.usage.into_iter().filter(|(run, _)| known(*run)).collect(),
            idle_power: saved.idle_power,
            counted_until: None,
            watched: saved.watched,
            vacant: saved.vacant,
        }
    }
}
