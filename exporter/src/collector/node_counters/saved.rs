//! Counters of the node over a restart of the exporter.

use std::time::{Duration, Instant};

use attribution::Account;
use durable_state::{SavedInstant, instant};
use readings::Counter;
use serde::{Deserialize, Serialize};

use super::{CounterAccount, Inner, NodeCounter, NodeSource, Shared};
use crate::collector::durable::{Before, Durable, Unreadable};

/// A counter's account as it is saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedCounter {
    family: String,
    labels: Vec<(String, Box<str>)>,
    pub(super) raw: Counter,
    #[serde(with = "instant")]
    pub(super) at: Instant,
    pub(super) device: u64,
    pub(super) account: Account<()>,
}

impl SavedCounter {
    fn of(counter: &CounterAccount) -> Self {
        Self {
            family: counter.family.node.name.to_owned(),
            labels: counter.labels.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
            raw: counter.raw,
            at: counter.at,
            device: counter.device,
            account: counter.account.clone(),
        }
    }

    pub(super) fn is(&self, family: &'static NodeCounter, labels: &[(&'static str, &str)]) -> bool {
        self.family == family.node.name
            && self.labels.len() == labels.len()
            && self.labels.iter().zip(labels).all(|((key, value), other)| (&**key, &**value) == *other)
    }
}

/// What is saved of a source.
#[derive(Debug, Serialize, Deserialize)]
struct SavedCounters {
    counters: Vec<SavedCounter>,
    read: Option<SavedInstant>,
    source: Option<Vec<u8>>,
}

impl<S: NodeSource> Durable for Shared<S> {
    fn save(&self) -> Option<Vec<u8>> {
        self.inner.with(Duration::ZERO, |Inner { source, accounts }| {
            let source = source.save();
            let counters =
                accounts.accounts.iter().map(SavedCounter::of).chain(accounts.saved.iter().cloned());
            let mut counters: Vec<SavedCounter> = counters.collect();
            if source.is_none() {
                counters.iter_mut().for_each(|counter| counter.raw.lost());
            }
            durable_state::encode(&SavedCounters { counters, read: accounts.read.map(SavedInstant), source })
        })
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let restore = |Inner { source, accounts }: &mut Inner<S>| {
            let saved: SavedCounters = durable_state::decode(section)?;
            if let Some(state) = &saved.source {
                source.restore(state)?;
            }
            accounts.saved = saved.counters;
            accounts.saved.iter_mut().for_each(|counter| counter.account.keep(|run| before.knows(run)));
            // Without the source's own memory nothing is known to have begun at 0 since.
            accounts.read = saved.read.map(|at| at.0).filter(|_| saved.source.is_some());
            Ok(())
        };
        self.inner.with(Duration::ZERO, restore).unwrap_or(Err(Unreadable))
    }
}
