//! What of the accounts survives a restart.

use std::collections::BTreeMap;
use std::time::Instant;

use attribution::{EnergyAccounts, OverheadAccounts};
use durable_state::{SavedInstant, instant};
use energy_meters::{Sample, Zone};
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::account::Account;
use super::machine::SavedMachine;
use super::usages::SavedUsage;
use crate::collector::durable::{Before, Unreadable};

/// A zone's accounts as they are saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedAccount {
    pub(super) zone: Zone,
    pub(super) energy: EnergyAccounts,
    /// Of an [`Account`].
    beside: u64,
    overtaken: bool,
    pub(super) last: Option<(Sample, SavedInstant)>,
}

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedEnergy {
    pub(super) accounts: Vec<SavedAccount>,
    pub(super) overhead: Option<OverheadAccounts>,
    pub(super) usages: BTreeMap<JobRunId, SavedUsage>,
    pub(super) machine: SavedMachine,
    #[serde(with = "instant::option")]
    pub(super) last: Option<Instant>,
}

impl SavedAccount {
    /// The account as it goes on. Its zone is to be found yet.
    pub(super) fn restored(self) -> Account {
        let last = self.last.map(|(sample, at)| (sample, at.0));
        Account::restored(self.zone, self.energy, (self.beside, self.overtaken), last)
    }

    /// The epochs of a sample are those of who reads: a counter that counts by itself goes on.
    pub(super) fn of(account: &Account) -> Self {
        let last = account.last.filter(|_| account.zone.counts_by_itself());
        Self {
            zone: account.zone.clone(),
            energy: account.energy.clone(),
            beside: account.beside,
            overtaken: account.overtaken,
            last: last.map(|(sample, at)| (Sample { epoch: 0, ..sample }, SavedInstant(at))),
        }
    }
}

impl SavedEnergy {
    /// Reads what was saved, and leaves out job runs that are not known any more.
    pub(super) fn read(section: &[u8], before: &Before) -> Result<Self, Unreadable> {
        let mut saved: Self = durable_state::decode(section)?;
        saved.accounts.iter_mut().for_each(|account| account.energy.keep(|run| before.knows(run)));
        saved.overhead.iter_mut().for_each(|overhead| overhead.keep(|run| before.knows(run)));
        saved.usages.retain(|run, _| before.knows(*run));
        Ok(saved)
    }
}
