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

use super::{Account, Charged, IdleEstimate, IdlePower, Measured, split};

/// Twice the standard error of a fitted idle power may be this part of the mean power.
const LARGEST_ERROR: f64 = 0.05;

/// How a share came about. The words are the `method` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Method {
    /// The idle power by the CPUs that a job held, the power beyond it by the CPU time that it used.
    HeldAndUsed,
    /// The same, with an idle power that follows from the power under load: the CPUs have not been seen idle (yet).
    FittedHeldAndUsed,
    /// The idle power by the CPUs that a job held, the power beyond it by the energy of cores that the CPU measured of each job.
    HeldAndCoreEnergy,
    /// The same, with an idle power that follows from the power under load.
    FittedHeldAndCoreEnergy,
    /// All of it by the CPUs that a job held: the idle power is not known (yet).
    Held,
    /// By the memory that a job held: who moved how much is not known, or the idle power is not (yet).
    MemoryHeld,
    /// The idle power of memory by the CPUs that a job held, the power beyond it by the bytes that it moved.
    HeldAndMoved,
    /// The same, with an idle power that follows from the power under load.
    FittedHeldAndMoved,
    /// Overhead: that of the idle node by the CPUs that a job held, the rest by the energy that it is charged with elsewhere.
    HeldAndJoules,
    /// The same, with an overhead of the idle node that follows from the overhead under load.
    FittedHeldAndJoules,
    /// Overhead, by the energy that a job is charged with elsewhere: that of the idle node is not known (yet).
    BookedJoules,
}

impl Method {
    /// The `method` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeldAndUsed => "cpus_held_and_cpu_time",
            Self::FittedHeldAndUsed => "cpus_held_and_cpu_time_fitted",
            Self::HeldAndCoreEnergy => "cpus_held_and_core_energy",
            Self::FittedHeldAndCoreEnergy => "cpus_held_and_core_energy_fitted",
            Self::Held => "cpus_held",
            Self::MemoryHeld => "memory_held",
            Self::HeldAndMoved => "cpus_held_and_memory_traffic",
            Self::FittedHeldAndMoved => "cpus_held_and_memory_traffic_fitted",
            Self::HeldAndJoules => "cpus_held_and_energy",
            Self::FittedHeldAndJoules => "cpus_held_and_energy_fitted",
            Self::BookedJoules => "energy",
        }
    }
}

/// What one job had and did of a part of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// CPUs allocated to it there, times nanoseconds.
    pub held_cpu_ns: u128,
    /// Time for which it kept cores busy there, nanoseconds: its CPU time, but for what two threads of a core did at once.
    pub used_core_ns: u128,
    /// Memory it held there, bytes times nanoseconds.
    pub held_byte_ns: u128,
}

impl Use {
    fn add(&mut self, other: Self) {
        self.held_cpu_ns = self.held_cpu_ns.saturating_add(other.held_cpu_ns);
        self.used_core_ns = self.used_core_ns.saturating_add(other.used_core_ns);
        self.held_byte_ns = self.held_byte_ns.saturating_add(other.held_byte_ns);
    }
}

/// How busy the CPUs of a part of the node were, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// CPU time that was not idle.
    pub cpus_ns: u128,
    /// Time for which cores were busy: what two threads of one core did at once counts once. A second thread adds little to the
    /// power of a core.
    pub cores_ns: u128,
}

impl Busy {
    /// Of CPUs that are a core each.
    pub fn of_cores(nanos: u128) -> Self {
        Self { cpus_ns: nanos, cores_ns: nanos }
    }

    fn plus(self, more: Self) -> Self {
        Self {
            cpus_ns: self.cpus_ns.saturating_add(more.cpus_ns),
            cores_ns: self.cores_ns.saturating_add(more.cores_ns),
        }
    }
}

/// What happened on a part of the node since it was looked at last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// How long it was.
    pub length: Duration,
    /// CPUs there, times nanoseconds.
    pub cpu_ns: u128,
    /// How busy the CPUs were; `None` if that is not known.
    pub busy: Option<Busy>,
    /// Memory that was used there, whoever by, bytes times nanoseconds.
    pub byte_ns: u128,
    /// Bytes that the memory there moved; `None` if that is not known for all of the time.
    pub traffic: Option<Measured>,
    /// What the CPU measured of its cores there, microjoules; `None` if that is not known for all of the time.
    pub core_energy: Option<Measured>,
    /// By job.
    pub uses: BTreeMap<JobRunId, Use>,
}

impl Interval {
    pub(crate) fn add(&mut self, other: &Self) {
        let fresh = self.length.is_zero();
        self.length += other.length;
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.busy = match (self.busy, other.busy) {
            (Some(before), Some(more)) => Some(before.plus(more)),
            (None, Some(more)) if fresh => Some(more),
            _ => None,
        };
        self.byte_ns = self.byte_ns.saturating_add(other.byte_ns);
        let sum = |before: Option<Measured>, more: &Option<Measured>| match (before, more) {
            (Some(before), Some(more)) => Some(before.plus(more)),
            (None, Some(more)) if fresh => Some(more.clone()),
            _ => None,
        };
        self.traffic = sum(self.traffic.take(), &other.traffic);
        self.core_energy = sum(self.core_energy.take(), &other.core_energy);
        for (run, more) in &other.uses {
            self.uses.entry(*run).or_default().add(*more);
        }
    }

    /// Drops the other job runs. What they held and used remains in the sums.
    pub(crate) fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        self.uses.retain(|run, _| known(*run));
        let measured = self.traffic.iter_mut().chain(&mut self.core_energy);
        measured.for_each(|measured| measured.keep(&known));
    }

    /// The CPUs that job runs held, times nanoseconds.
    pub(crate) fn held(&self) -> Vec<(JobRunId, u128)> {
        self.weights(|used| used.held_cpu_ns)
    }

    /// The energy of cores by job, of which whole. Where none was spent it divides nothing.
    fn by_core_energy(&self) -> Option<(Vec<(JobRunId, u128)>, u128)> {
        self.core_energy.as_ref().filter(|energy| energy.amount > 0).and_then(Measured::by_job)
    }

    fn weights(&self, of: impl Fn(&Use) -> u128) -> Vec<(JobRunId, u128)> {
        let weights = self.uses.iter().map(|(run, used)| (*run, of(used)));
        weights.filter(|(_, weight)| *weight > 0).collect()
    }
}

/// By what the energy of a part is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// CPUs held, and CPU time or the measured energy of cores.
    Cpus,
    /// CPUs held and bytes moved, or memory held.
    Memory,
}

/// The accounts of one zone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnergyAccounts {
    basis: Basis,
    idle: IdleEstimate,
    account: Account<Method>,
    /// What happened since the zone was last read: a reading may fail, and what happened meanwhile counts for the next.
    pending: Interval,
}

impl EnergyAccounts {
    /// Accounts without any charge.
    pub fn new(basis: Basis, idle: IdlePower) -> Self {
        let idle = IdleEstimate::new(idle, LARGEST_ERROR);
        Self { basis, idle, account: Account::default(), pending: Interval::default() }
    }

    /// Takes in what happened since the last call, and what the zone's counter gained in microjoules if it could be read.
    /// Returns what was charged, where the gain is known.
    pub fn observe(&mut self, interval: &Interval, gain: Option<Gain>) -> Option<Charged> {
        self.pending.add(interval);
        let gain = gain?;
        let pending = std::mem::take(&mut self.pending);
        let Gain::Grown(energy) = gain else { return None };
        match (self.basis, pending.busy, &pending.traffic) {
            (Basis::Cpus, Some(busy), _) => {
                let of_all = Some((busy.cpus_ns, pending.cpu_ns));
                self.idle.learn(pending.length, of_all, busy.cores_ns, energy);
            }
            (Basis::Memory, _, Some(traffic)) => {
                self.idle.learn_by_work(pending.length, traffic.amount, energy);
            }
            _ => {}
        }
        Some(self.charge(energy, &pending))
    }

    /// Takes in what the counter gained while the zone is not split. No job is charged with it, whatever happened.
    pub fn leave(&mut self, gain: Gain) {
        self.pending = Interval::default();
        if let Gain::Grown(energy) = gain {
            self.account.leave_unattributed(energy);
        }
    }

    fn charge(&mut self, energy: u64, interval: &Interval) -> Charged {
        let mut charged = Charged { energy, ..Charged::default() };
        let mut charge = |method, amount: u64, weights, whole| {
            let split = split(amount, weights, whole);
            for (run, share) in &split.shares {
                *charged.jobs.entry(*run).or_default() += share;
            }
            self.account.charge(method, split);
        };
        let measured = interval.by_core_energy().filter(|_| self.basis == Basis::Cpus);
        let by_cores = measured.is_some();
        let used = match self.basis {
            Basis::Cpus => measured.or_else(|| {
                interval.busy.map(|busy| (interval.weights(|used| used.used_core_ns), busy.cores_ns))
            }),
            Basis::Memory => interval.traffic.as_ref().and_then(Measured::by_job),
        };
        match (self.basis, self.idle.best().zip(used)) {
            (Basis::Memory, None) => {
                let held = interval.weights(|used| used.held_byte_ns);
                charge(Method::MemoryHeld, energy, held, interval.byte_ns);
            }
            (Basis::Cpus, None) => charge(Method::Held, energy, interval.held(), interval.cpu_ns),
            (basis, Some(((power, fitted), (used, whole)))) => {
                let method = match (basis, fitted) {
                    (Basis::Cpus, false) if by_cores => Method::HeldAndCoreEnergy,
                    (Basis::Cpus, true) if by_cores => Method::FittedHeldAndCoreEnergy,
                    (Basis::Cpus, false) => Method::HeldAndUsed,
                    (Basis::Cpus, true) => Method::FittedHeldAndUsed,
                    (Basis::Memory, false) => Method::HeldAndMoved,
                    (Basis::Memory, true) => Method::FittedHeldAndMoved,
                };
                let idle = u128::from(power) * interval.length.as_nanos() / 1_000_000_000;
                let idle = u64::try_from(idle).unwrap_or(u64::MAX).min(energy);
                charge(method, idle, interval.held(), interval.cpu_ns);
                charge(method, energy - idle, used, whole);
            }
        }
        charged
    }

    /// Takes an idle power that the site has set, or keeps the one that was learned.
    pub fn set_idle(&mut self, idle: IdlePower) {
        self.idle.set(idle);
    }

    /// Drops the job runs that are not known any more.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        self.pending.keep(&known);
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
        self.pending.keep(|other| other != run);
        self.account.forget(run);
    }

    /// Sum of the jobs, and the unattributed rest, microjoules.
    pub fn account(&self) -> &Account<Method> {
        &self.account
    }

    /// The idle power.
    pub fn idle(&self) -> &IdleEstimate {
        &self.idle
    }
}

#[cfg(test)]
mod core_truth;
#[cfg(test)]
mod memory_truth;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod truth;
