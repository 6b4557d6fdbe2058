//! The energy of a part of the node (a socket, its memory) split over the jobs that were there.
//!
//! Weights are integrals over the interval (CPU-time held, CPU-time used, byte-time held), so what a job is charged with
//! does not depend on where an interval begins or ends as long as the power is even; how the power went up and down
//! within an interval is not known, which is why intervals end when jobs come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use readings::Gain;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::{Account, FittedPower, IdlePower, PowerModel, split};

/// How a share came about. The words are the `method` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    /// The idle power by the CPUs that a job held, the power beyond it by the CPU time that it used.
    HeldAndUsed,
    /// The same, with an idle power that follows from the power under load: the CPUs have not been seen idle (yet).
    FittedHeldAndUsed,
    /// All of it by the CPUs that a job held: the idle power is not known (yet).
    Held,
    /// By the memory that a job held.
    MemoryHeld,
}

impl Method {
    /// The `method` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeldAndUsed => "cpus_held_and_cpu_time",
            Self::FittedHeldAndUsed => "cpus_held_and_cpu_time_fitted",
            Self::Held => "cpus_held",
            Self::MemoryHeld => "memory_held",
        }
    }
}

/// What one job had and did of a part of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// CPUs allocated to it there, times nanoseconds.
    pub held_cpu_ns: u128,
    /// CPU time it used there, nanoseconds.
    pub used_cpu_ns: u128,
    /// Memory it held there, bytes times nanoseconds.
    pub held_byte_ns: u128,
}

impl Use {
    fn add(&mut self, other: Self) {
        self.held_cpu_ns = self.held_cpu_ns.saturating_add(other.held_cpu_ns);
        self.used_cpu_ns = self.used_cpu_ns.saturating_add(other.used_cpu_ns);
        self.held_byte_ns = self.held_byte_ns.saturating_add(other.held_byte_ns);
    }
}

/// What happened on a part of the node since it was looked at last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// How long it was.
    pub length: Duration,
    /// CPUs there, times nanoseconds.
    pub cpu_ns: u128,
    /// CPU time that was not idle, nanoseconds; `None` if that is not known.
    pub busy_ns: Option<u128>,
    /// Memory that was used there, whoever by, bytes times nanoseconds.
    pub byte_ns: u128,
    /// By job.
    pub uses: BTreeMap<JobRunId, Use>,
}

impl Interval {
    fn add(&mut self, other: &Self) {
        let fresh = self.length.is_zero();
        self.length += other.length;
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.busy_ns = match (self.busy_ns, other.busy_ns) {
            (Some(before), Some(more)) => Some(before.saturating_add(more)),
            (None, Some(more)) if fresh => Some(more),
            _ => None,
        };
        self.byte_ns = self.byte_ns.saturating_add(other.byte_ns);
        for (run, more) in &other.uses {
            self.uses.entry(*run).or_default().add(*more);
        }
    }
}

/// By what the energy of a part is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// CPUs held and used.
    Cpus,
    /// Memory held.
    Memory,
}

/// The accounts of one zone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnergyAccounts {
    basis: Basis,
    idle: IdlePower,
    model: PowerModel,
    account: Account<Method>,
    /// What happened since the zone was last read: a reading may fail, and what happened meanwhile counts for the next.
    pending: Interval,
}

impl EnergyAccounts {
    /// Accounts without any charge.
    pub fn new(basis: Basis, idle: IdlePower) -> Self {
        let model = PowerModel::default();
        Self { basis, idle, model, account: Account::default(), pending: Interval::default() }
    }

    /// Takes in what happened since the last call, and what the zone's counter gained in microjoules if it could be read.
    pub fn observe(&mut self, interval: &Interval, gain: Option<Gain>) {
        self.pending.add(interval);
        let Some(gain) = gain else { return };
        let pending = std::mem::take(&mut self.pending);
        if let Gain::Grown(energy) = gain {
            if let Some(busy_ns) = pending.busy_ns {
                self.idle.learn(pending.length, (busy_ns, pending.cpu_ns), energy);
                if self.basis == Basis::Cpus && self.idle.microwatts().is_none() {
                    self.model.learn(pending.length, busy_ns, energy);
                }
            }
            self.charge(energy, &pending);
        }
    }

    fn charge(&mut self, energy: u64, interval: &Interval) {
        let weights = |of: fn(&Use) -> u128| {
            interval
                .uses
                .iter()
                .map(|(run, used)| (*run, of(used)))
                .filter(|(_, weight)| *weight > 0)
                .collect()
        };
        let seen = self.idle.microwatts().map(|power| (power, Method::HeldAndUsed));
        let idle = seen.or_else(|| Some((self.fitted()?.microwatts, Method::FittedHeldAndUsed)));
        match (self.basis, idle.filter(|_| interval.busy_ns.is_some())) {
            (Basis::Memory, _) => {
                self.account
                    .charge(Method::MemoryHeld, split(energy, weights(|u| u.held_byte_ns), interval.byte_ns));
            }
            (Basis::Cpus, None) => {
                self.account.charge(Method::Held, split(energy, weights(|u| u.held_cpu_ns), interval.cpu_ns));
            }
            (Basis::Cpus, Some((power, method))) => {
                let idle = u128::from(power) * interval.length.as_nanos() / 1_000_000_000;
                let idle = u64::try_from(idle).unwrap_or(u64::MAX).min(energy);
                let busy = interval.busy_ns.unwrap_or(0);
                self.account.charge(method, split(idle, weights(|u| u.held_cpu_ns), interval.cpu_ns));
                self.account.charge(method, split(energy - idle, weights(|u| u.used_cpu_ns), busy));
            }
        }
    }

    /// The same accounts with an idle power that the site has set, or with the one that was learned.
    pub fn with_idle(self, idle: IdlePower) -> Self {
        match idle {
            IdlePower::Set(_) => Self { idle, ..self },
            IdlePower::Learned(_) => Self { idle: self.idle.learned(), ..self },
        }
    }

    /// Drops the job runs that are not known any more.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        self.pending.uses.retain(|run, _| known(*run));
        self.account.keep(known);
    }

    /// The basis of the split.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// A scrape shows what a job run is charged with.
    pub fn export(&mut self, run: JobRunId) {
        self.account.export(run);
    }

    /// A job run is not retained any more. Its part of an interval that is still to be split is unattributed.
    pub fn forget(&mut self, run: JobRunId) {
        self.pending.uses.remove(&run);
        self.account.forget(run);
    }

    /// Sum of the jobs, and the unattributed rest, microjoules.
    pub fn account(&self) -> &Account<Method> {
        &self.account
    }

    /// The idle power that the site has set, or that was seen.
    pub fn idle(&self) -> IdlePower {
        self.idle
    }

    /// The idle power that follows from the power under load, as long as there is no better one.
    pub fn fitted(&self) -> Option<FittedPower> {
        self.model.idle().filter(|_| self.idle.microwatts().is_none())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod truth;
