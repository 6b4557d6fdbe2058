//! The owners of packets: jobs + unattributed = total, exactly, after every round.
//!
//! The kernel's table only grows between rounds. Each round charges the growth of every entry to one account: a
//! run's, or the unattributed one. The growth of an unknown cgroup is held back for one round, since a job's packets
//! may come before the job is found. If the next list of jobs does not have it either, it is unattributed for good.
//! Pure: the caller passes the kernel's counts and the running jobs.

use std::collections::{HashMap, HashSet};

use attribution::{Amount, Exported};
use serde::{Deserialize, Serialize};
use slurm_jobs::{Disposition, JobRunId};

/// The counts of a cgroup, in the order of the kernel's table: bytes and packets received, sent, and over the
/// loopback device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts(pub(super) [u64; 6]);

impl Amount for Counts {
    fn plus(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self
    }

    fn minus(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(rest, less)| *rest = rest.saturating_sub(less));
        self
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        *self = self.plus(other);
    }

    /// The growth since an earlier reading of the same entry; the whole, if the entry was made again since.
    fn since(self, earlier: Self) -> Self {
        let mut gained = self;
        for (now, before) in gained.0.iter_mut().zip(earlier.0) {
            match now.checked_sub(before) {
                Some(more) => *now = more,
                None => return self,
            }
        }
        gained
    }

    fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Packets of all kinds.
    pub(super) fn packets(self) -> u64 {
        let [_, received, _, sent, _, looped] = self.0;
        received.saturating_add(sent).saturating_add(looped)
    }
}

/// Ids of the cgroups of an entry: the one directly below SLURM's, and the one below that where steps are counted
/// separately. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// Directly below the scope: a job's cgroup, or SLURM's `system`.
    pub(super) group: u64,
    /// Directly below that.
    pub(super) step: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Account {
    group: u64,
    counts: Counts,
    /// By id of the step's cgroup.
    steps: HashMap<u64, Counts>,
    /// Ids of the steps' cgroups, by ordinal.
    step_groups: HashMap<u32, u64>,
}

/// Cgroups of job runs that are not retained any more and that are remembered: as many as the kernel's table has room for.
const MOST_UNKNOWN: usize = 16_384;

/// A cgroup that is no known run's.
#[derive(Debug, Default, Serialize, Deserialize)]
struct UnknownCgroup {
    /// Held back.
    held: Counts,
    /// Whether a list of jobs was made without it after it had been seen.
    settled: bool,
}

/// The accounts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NetworkAccounts {
    accounts: HashMap<JobRunId, Account>,
    /// The run that a cgroup belongs to now.
    owners: HashMap<u64, JobRunId>,
    unknown: HashMap<u64, UnknownCgroup>,
    /// The kernel's table at the latest round. It is made anew by each exporter.
    #[serde(skip)]
    last: HashMap<Key, Counts>,
    #[serde(skip)]
    last_overflow: Counts,
    overflow: Counts,
    exported: Exported<Counts>,
    unattributed: Counts,
}

impl NetworkAccounts {
    /// Drops the job runs that are not known any more.
    pub(super) fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        let unknown: Vec<JobRunId> = self.accounts.keys().copied().filter(|run| !known(*run)).collect();
        unknown.into_iter().for_each(|run| self.forget(run, Disposition::Dropped));
    }

    /// A run whose cgroup is known. Earlier traffic of its cgroup is its own, too, if it was held back.
    pub(super) fn open(&mut self, run: JobRunId, group: u64) {
        if group == 0 || self.accounts.contains_key(&run) {
            return;
        }
        let held = self.unknown.remove(&group).map(|unknown| unknown.held).unwrap_or_default();
        self.owners.insert(group, run);
        self.accounts.insert(run, Account { group, counts: held, ..Account::default() });
    }

    /// A scrape shows what a job run's cgroup sent and received.
    pub(super) fn export(&mut self, run: JobRunId) {
        if let Some(account) = self.accounts.get(&run) {
            self.exported.show(run, account.counts);
        }
    }

    /// Whether the cgroup of a step is known.
    pub(super) fn knows_step(&self, run: JobRunId, ordinal: u32) -> bool {
        self.accounts.get(&run).is_some_and(|account| account.step_groups.contains_key(&ordinal))
    }

    /// The cgroup of a step.
    pub(super) fn step(&mut self, run: JobRunId, ordinal: u32, group: u64) {
        if let Some(account) = self.accounts.get_mut(&run) {
            account.step_groups.insert(ordinal, group);
        }
    }

    /// Drops the steps that the job has dropped, when they are many.
    pub(super) fn keep_steps(&mut self, run: JobRunId, there: impl Fn(u32) -> bool, number: usize) {
        let Some(account) = self.accounts.get_mut(&run) else { return };
        if account.steps.len().max(account.step_groups.len()) > 2 * number.max(8) {
            account.step_groups.retain(|ordinal, _| there(*ordinal));
            let kept: Vec<u64> = account.step_groups.values().copied().collect();
            account.steps.retain(|group, _| kept.contains(group));
        }
    }

    /// A round: the whole table of the kernel, and what did not fit into it. Gives the entries that may be removed from
    /// the table, idle and settled; `crowded` asks for those of running jobs as well.
    pub(super) fn round(&mut self, table: HashMap<Key, Counts>, overflow: Counts, crowded: bool) -> Vec<Key> {
        let mut idle = Vec::new();
        for unknown in self.unknown.values_mut().filter(|unknown| !unknown.settled) {
            unknown.settled = true;
            self.unattributed.add(std::mem::take(&mut unknown.held));
        }
        for (key, counts) in &table {
            let gained = counts.since(self.last.get(key).copied().unwrap_or_default());
            let account = self.owners.get(&key.group).and_then(|run| self.accounts.get_mut(run));
            let removable = match account {
                Some(account) => {
                    account.counts.add(gained);
                    if key.step != 0 {
                        account.steps.entry(key.step).or_default().add(gained);
                    }
                    crowded
                }
                None => {
                    let unknown = self.unknown.entry(key.group).or_default();
                    if unknown.settled {
                        self.unattributed.add(gained);
                    } else {
                        unknown.held.add(gained);
                    }
                    unknown.settled
                }
            };
            if removable && gained.is_zero() {
                idle.push(*key);
            }
        }
        let overflowed = overflow.since(self.last_overflow);
        self.unattributed.add(overflowed);
        self.overflow.add(overflowed);
        self.last_overflow = overflow;
        self.last = table;
        let last = &self.last;
        if self.unknown.len() > 2 * last.len().max(8) {
            let groups: HashSet<u64> = last.keys().map(|key| key.group).collect();
            self.unknown.retain(|group, unknown| !unknown.settled || groups.contains(group));
        }
        idle
    }

    /// An entry was removed from the kernel's table with this last value.
    pub(super) fn removed(&mut self, key: Key, counts: Counts) {
        let gained = counts.since(self.last.remove(&key).unwrap_or_default());
        match self.owners.get(&key.group).and_then(|run| self.accounts.get_mut(run)) {
            Some(account) => {
                account.counts.add(gained);
                if key.step != 0 {
                    account.steps.entry(key.step).or_default().add(gained);
                }
            }
            None => self.unattributed.add(gained),
        }
    }

    /// A job run is not retained any more. What no scrape showed of it is unattributed.
    pub(super) fn forget(&mut self, run: JobRunId, disposition: Disposition) {
        let Some(account) = self.accounts.remove(&run) else { return };
        if self.owners.get(&account.group) == Some(&run) {
            self.owners.remove(&account.group);
            // Late packets of its sockets are unattributed at once: no other job run can claim them. Where too many
            // cgroups are remembered already (they are tidied up in scrapes), its packets are held back for a round.
            let settled = disposition != Disposition::Superseded;
            if self.unknown.len() < MOST_UNKNOWN {
                self.unknown.insert(account.group, UnknownCgroup { settled, ..UnknownCgroup::default() });
            }
        }
        self.unattributed.add(self.exported.drop_run(run, account.counts));
    }

    /// What a run's cgroup sent and received.
    pub(super) fn of(&self, run: JobRunId) -> Option<Counts> {
        self.accounts.get(&run).map(|account| account.counts)
    }

    /// What a step of it sent and received; zeros if its cgroup is known and has sent nothing.
    pub(super) fn of_step(&self, run: JobRunId, ordinal: u32) -> Option<Counts> {
        let account = self.accounts.get(&run)?;
        let group = account.step_groups.get(&ordinal)?;
        Some(account.steps.get(group).copied().unwrap_or_default())
    }

    /// What no job is charged with.
    pub(super) fn unattributed(&self) -> Counts {
        self.unattributed
    }

    /// What did not fit into the kernel's table; it is in the unattributed.
    pub(super) fn overflow(&self) -> Counts {
        self.overflow
    }

    /// The exported part of the whole: exported job runs, also dropped ones, and the unattributed rest.
    pub(super) fn total(&self) -> Counts {
        self.exported.total().plus(self.unattributed)
    }

    /// What the total lacks: traffic of unexported runs and of cgroups that are not known yet.
    #[cfg(test)]
    fn pending(&self) -> Counts {
        let unseen =
            |(run, account): (&JobRunId, &Account)| self.exported.clone().drop_run(*run, account.counts);
        let held = self.unknown.values().map(|unknown| unknown.held);
        self.accounts.iter().map(unseen).chain(held).fold(Counts::default(), Counts::plus)
    }
}

#[cfg(test)]
mod tests;
