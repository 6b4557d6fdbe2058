//! The account of one measured quantity: the charges of each job run, and the unattributed rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::{Exported, Split};

/// One quantity (the energy of a socket, the bytes of a port) in its smallest unit, since this exporter started.
/// `M` says how a share came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account<M> {
    residual: u64,
    /// By job run, and by method in the order in which they were used.
    runs: BTreeMap<JobRunId, Vec<(M, u64)>>,
    exported: Exported<u64>,
}

impl<M> Default for Account<M> {
    fn default() -> Self {
        Self { residual: 0, runs: BTreeMap::new(), exported: Exported::default() }
    }
}

impl<M: Copy + Eq> Account<M> {
    /// Charges the shares of an interval.
    pub fn charge(&mut self, method: M, split: Split<JobRunId>) {
        self.residual = self.residual.saturating_add(split.rest);
        for (run, share) in split.shares {
            let methods = self.runs.entry(run).or_default();
            match methods.iter_mut().find(|(known, _)| *known == method) {
                Some((_, charged)) => *charged = charged.saturating_add(share),
                None => methods.push((method, share)),
            }
        }
    }

    /// Charges one job run with an amount.
    pub fn charge_to(&mut self, run: JobRunId, method: M, amount: u64) {
        self.charge(method, Split { shares: vec![(run, amount)], rest: 0 });
    }

    /// Adds an amount that no job run can be charged with.
    pub fn leave_unattributed(&mut self, amount: u64) {
        self.residual = self.residual.saturating_add(amount);
    }

    /// A job run is not retained any more. What no scrape showed of it is unattributed.
    pub fn forget(&mut self, run: JobRunId) {
        if let Some(methods) = self.runs.remove(&run) {
            let unseen = self.exported.drop_run(run, sum(&methods));
            self.residual = self.residual.saturating_add(unseen);
        }
    }

    /// A scrape shows what a job run is charged with.
    pub fn export(&mut self, run: JobRunId) {
        if let Some(methods) = self.runs.get(&run) {
            self.exported.show(run, sum(methods));
        }
    }

    /// Drops the job runs that are not known any more, as [`Account::forget`] does each.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        let unknown: Vec<JobRunId> = self.runs().filter(|run| !known(*run)).collect();
        unknown.into_iter().for_each(|run| self.forget(run));
    }

    /// What a scrape shows of the whole: Σ exported job runs + unattributed. What other job runs are charged with is not in it
    /// (yet): their ids may still be looked for.
    pub fn exported_total(&self) -> u64 {
        self.exported.total().saturating_add(self.residual)
    }

    /// What no job run can be charged with.
    pub fn residual(&self) -> u64 {
        self.residual
    }

    /// The job runs that are charged with anything.
    pub fn runs(&self) -> impl Iterator<Item = JobRunId> {
        self.runs.keys().copied()
    }

    /// What a job run is charged with, by method; empty when no interval was split with it.
    pub fn of(&self, run: JobRunId) -> impl Iterator<Item = (M, u64)> {
        self.runs.get(&run).into_iter().flatten().copied()
    }
}

fn sum<M>(methods: &[(M, u64)]) -> u64 {
    methods.iter().fold(0, |sum, (_, charged)| sum.saturating_add(*charged))
}

#[cfg(test)]
mod tests;
