//! What GPUs counted, split over the jobs that had them.
//!
//! A GPU that one job has is charged to that job whole, idle time included. Where several jobs have it, only what the
//! driver reports by process is split; the rest is unattributed. An interval is charged once the GPUs of every job in
//! it are known: SLURM constrains a job's devices some time after it created the job's cgroup.

mod allocations;
mod unit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allocations::Allocations;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;
pub use unit::{GpuMethod, GpuUsage, Part, Shares};
use unit::{SavedUnit, UnitAccounts};

use super::{Account, EnergyCharge};

/// Which of the quantities have a meaning for attribution; all others are split like the unit itself.
#[derive(Debug, Clone, Copy)]
pub struct Roles<Q> {
    /// Nanoseconds in which a kernel ran.
    pub busy: Q,
    /// Microjoules of the whole board.
    pub energy: Q,
}

/// The readings of a unit at one moment.
#[derive(Debug, Clone, Copy)]
pub struct GpuReading<'a, Q> {
    /// When.
    pub at: Instant,
    /// Whether the unit could be read all the time since the last reading: else idle time was not observed.
    pub seen: bool,
    /// Which beginning the counts go on from.
    pub epoch: u64,
    /// Numbers that only grow.
    pub counts: &'a [(Q, u64)],
    /// Counters as they stand, which go on while nobody reads them.
    pub standing: &'a [(Q, u64)],
    /// What processes of jobs did since the observation before, where that was asked.
    pub shares: Option<&'a Shares>,
    /// The parts of a divided GPU.
    pub parts: &'a [Part],
}

/// The accounts of all GPUs of a node.
#[derive(Debug)]
pub struct GpuLedger<Q> {
    roles: Roles<Q>,
    allocations: Allocations,
    units: BTreeMap<Arc<str>, UnitAccounts<Q>>,
    restarts: u64,
    /// Charged since these were taken last.
    energy: Vec<(Arc<str>, EnergyCharge)>,
}

/// The accounts as they are saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedGpuLedger {
    allocations: Allocations,
    units: BTreeMap<Arc<str>, SavedUnit>,
}

impl<Q: Copy + Eq> GpuLedger<Q> {
    /// What is to be saved; `name` names a quantity.
    pub fn save(&self, name: impl Fn(Q) -> String) -> SavedGpuLedger {
        let units = self.units.iter().map(|(uuid, unit)| (uuid.clone(), unit.save(&name)));
        SavedGpuLedger { allocations: self.allocations.clone(), units: units.collect() }
    }

    /// Takes over what was saved at a moment, of the job runs that are known. The counts of units begin with their next
    /// reading: what they counted meanwhile is known of counters that stood there before and after alone.
    pub fn restore(
        &mut self,
        saved: SavedGpuLedger,
        seen: Instant,
        quantity: impl Fn(&str) -> Option<Q>,
        known: impl Fn(JobRunId) -> bool,
    ) {
        let roles = self.roles;
        let unit = |(uuid, unit)| (uuid, UnitAccounts::restored(roles, unit, &quantity, &known));
        self.units = saved.units.into_iter().map(unit).collect();
        self.allocations = saved.allocations.restored(seen, known);
    }

    /// Without any unit.
    pub fn new(roles: Roles<Q>) -> Self {
        Self {
            roles,
            allocations: Allocations::default(),
            units: BTreeMap::new(),
            restarts: 0,
            energy: Vec::new(),
        }
    }

    /// A job is there.
    pub fn appeared(&mut self, run: JobRunId, at: Instant) {
        self.allocations.appeared(run, at);
    }

    /// A job is gone.
    pub fn left(&mut self, run: JobRunId, at: Instant) {
        self.allocations.left(run, at);
    }

    /// It is known which units a job has: since it came when nothing was known of it before, else since `at`.
    pub fn bind(&mut self, run: JobRunId, units: &[Arc<str>], at: Instant) {
        self.allocations.bind(run, units, at);
    }

    /// Nothing more will be found out about a job that is gone.
    pub fn give_up(&mut self, run: JobRunId) {
        self.allocations.give_up(run);
    }

    /// Jobs whose units are not known and waited for.
    pub fn unsettled(&self, now: Instant) -> impl Iterator<Item = JobRunId> {
        self.allocations.unsettled(now)
    }

    /// A job run is not retained any more.
    pub fn forget(&mut self, run: JobRunId) {
        self.allocations.forget(run);
        self.units.values_mut().for_each(|unit| unit.forget(run));
    }

    /// A scrape shows what a job run is charged with of a unit.
    pub fn export(&mut self, run: JobRunId, uuid: &str) {
        if let Some(unit) = self.units.get_mut(uuid) {
            unit.export(run);
        }
    }

    /// Takes a reading of a unit.
    pub fn observe(&mut self, uuid: &Arc<str>, gpu_reading: &GpuReading<'_, Q>) {
        let unit = self.units.entry(uuid.clone()).or_insert_with(|| UnitAccounts::new(self.roles));
        self.restarts += unit.observe(gpu_reading);
    }

    /// Charges the intervals whose jobs are known.
    pub fn settle(&mut self, now: Instant) {
        let until = self.allocations.settled_until(now);
        for (uuid, unit) in &mut self.units {
            while let Some(interval) = unit.next_until(until) {
                let energy = unit.charge(uuid, &interval, &self.allocations);
                self.energy.extend(energy.map(|energy| (uuid.clone(), energy)));
            }
        }
        for run in self.allocations.forgotten() {
            self.units.values_mut().for_each(|unit| unit.forget(run));
        }
        self.allocations.tidy(self.units.values().filter_map(|unit| unit.pending_since(now)).min());
    }

    /// The energy that was charged since the last call, by unit.
    pub fn take_energy(&mut self) -> Vec<(Arc<str>, EnergyCharge)> {
        std::mem::take(&mut self.energy)
    }

    /// The accounts of a unit, by quantity.
    pub fn accounts(&self, uuid: &str) -> impl Iterator<Item = (Q, &Account<GpuMethod>)> {
        self.units.get(uuid).into_iter().flat_map(UnitAccounts::accounts)
    }

    /// The units that have accounts.
    pub fn units(&self) -> impl Iterator<Item = &Arc<str>> {
        self.units.keys()
    }

    /// Whether a job run that is retained has or had a unit, or is charged with something of it.
    pub fn is_of_a_job(&self, uuid: &str) -> bool {
        self.allocations.had(uuid) || self.accounts(uuid).any(|(_, account)| account.runs().next().is_some())
    }

    /// How long a unit was watched, and how much of that no job had it.
    pub fn watched(&self, uuid: &str) -> Option<(Duration, Duration)> {
        self.units.get(uuid).map(UnitAccounts::watched)
    }

    /// How long each unit was a job's, up to now; of a job that is gone, up to its end.
    pub fn allocated(&self, run: JobRunId, now: Instant) -> Vec<(Arc<str>, Duration)> {
        self.allocations.allocated(run, now)
    }

    /// How a job stands with a unit.
    pub fn usage(&self, run: JobRunId, uuid: &str) -> Option<GpuUsage> {
        self.units.get(uuid)?.usage(run)
    }

    /// How many jobs have a unit now.
    pub fn holders(&self, uuid: &str) -> usize {
        self.allocations.holders(uuid)
    }

    /// How many counters restarted since the last call, which lost counts.
    pub fn take_restarts(&mut self) -> u64 {
        std::mem::take(&mut self.restarts)
    }
}

#[cfg(test)]
mod tests;
