//! Energy and activity of cores, which some CPUs measure for each monitoring group of resctrl (Intel's Application Energy
//! Telemetry).
//!
//! The energy of cores is a part of the package's, so it has families of its own and is added to nothing. The collector of energy
//! splits the package by it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use attribution::Account;
use exposition::{Family, Section, SubjectId, Value};
use perf_counters::resctrl::{Monitor, Quantity, Round, Rounds};
use slurm_jobs::{Job, JobRunId, NodeSnapshot};

use super::moved::{Moved, measured_in};

static JOB_ENERGY: Family = Family::counter("jobledger_job_core_energy_joules_total").labels(&["socket"]).help(
    "Energy of the cores (with L1 and L2) while they ran the job's tasks, as the CPU measures it for resctrl's \
     groups; a part of the package's energy, never to be added to it",
);
static NODE_ENERGY: Family =
    Family::counter("jobledger_node_core_energy_joules_total").labels(&["socket"]).help(
        "Energy of the cores since this exporter started, as the CPU measures it for resctrl's groups: \
     the sum over jobs plus the unattributed",
    );
static UNATTRIBUTED: Family =
    Family::counter("jobledger_node_core_energy_unattributed_joules_total").labels(&["socket"]).help(
        "Energy of the cores while they ran no job's tasks: the system's, those of other programs' groups, \
         and those of jobs until they were in a group",
    );
static ACTIVITY: Family =
    Family::counter("jobledger_job_core_activity_farads_total").labels(&["socket"]).help(
        "Work of the cores for the job's tasks whatever their clock, as switched capacitance: \
     the CPU measures it beside the energy",
    );

/// Rows of the catalogue.
pub(super) fn families() -> [&'static Family; 4] {
    [&JOB_ENERGY, &NODE_ENERGY, &UNATTRIBUTED, &ACTIVITY]
}

/// The accounts by quantity and package, and the last reading.
#[derive(Debug, Default)]
pub(super) struct Telemetry {
    pub(super) accounts: BTreeMap<(Quantity, u32), Account<()>>,
    rounds: Rounds,
    /// Scrapes that follow each other more closely get the same numbers: energy that is read often shows what others compute
    /// (`energy::PAUSE`).
    pub(super) pause: Duration,
    at: Option<Instant>,
    /// Whether every job was monitored at the last reading.
    monitored: bool,
    /// For the energy of sockets.
    pub(super) spent: Moved,
    pub(super) restarts: u64,
}

impl Telemetry {
    /// Nothing is read yet.
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause, ..Self::default() }
    }

    pub(super) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= self.pause)
    }

    /// Reads and charges. `monitored`: every job is now.
    pub(super) fn read(&mut self, monitor: &mut Monitor, monitored: bool) {
        let rounds = monitor.read_telemetry();
        self.at = Some(Instant::now());
        rounds.iter().for_each(|(quantity, round)| self.charge(*quantity, round));
        let known = std::mem::replace(&mut self.monitored, monitored) && monitored;
        let none = Round::default();
        let [now, before] =
            [&rounds, &self.rounds].map(|rounds| rounds.get(&Quantity::CoreEnergy).unwrap_or(&none));
        self.spent.round(measured_in(now, before, Some, known));
        self.rounds = rounds;
    }

    /// Groups were read a last time.
    pub(super) fn finish(&mut self, last: &Rounds) {
        let telemetry = last.iter().filter(|(quantity, _)| **quantity != Quantity::Bytes);
        for (quantity, round) in telemetry {
            self.charge(*quantity, round);
            if *quantity == Quantity::CoreEnergy {
                for (run, package, amount) in &round.jobs {
                    self.spent.more(Some(*package), *run, *amount);
                }
            }
        }
    }

    fn charge(&mut self, quantity: Quantity, round: &Round) {
        for (run, package, amount) in &round.jobs {
            self.accounts.entry((quantity, *package)).or_default().charge_to(*run, (), *amount);
        }
        for (package, amount) in &round.unattributed {
            self.accounts.entry((quantity, *package)).or_default().leave_unattributed(*amount);
        }
        self.restarts += round.restarts;
    }

    pub(super) fn forget(&mut self, run: JobRunId) {
        self.accounts.values_mut().for_each(|account| account.forget(run));
    }

    /// Whether a package's number is emitted for a job now. An ended job keeps its numbers.
    fn shows(&self, job: &Job, (quantity, package): (Quantity, u32)) -> bool {
        let read = self.rounds.get(&quantity).is_some_and(|round| round.read.contains(&(job.run, package)));
        read || !job.is_running()
    }

    /// Emits what is of the node, and notes what this scrape shows of jobs.
    pub(super) fn emit(&mut self, snapshot: &NodeSnapshot, since_start: SubjectId, out: &mut Section) {
        out.note_restarts(std::mem::take(&mut self.restarts));
        for of in self.accounts.keys().copied().collect::<Vec<_>>() {
            let shown = snapshot.jobs.iter().filter(|job| self.shows(job, of)).map(|job| job.run);
            let shown: Vec<JobRunId> = shown.collect();
            if let Some(account) = self.accounts.get_mut(&of) {
                shown.into_iter().for_each(|run| account.export(run));
            }
        }
        let energy = self.accounts.iter().filter(|((quantity, _), _)| *quantity == Quantity::CoreEnergy);
        for ((quantity, package), account) in energy {
            if self.rounds.get(quantity).is_some_and(|round| round.whole.contains(package)) {
                let socket = package.to_string();
                let labels = [("socket", socket.as_str())];
                out.push(&NODE_ENERGY, since_start, &labels, Value::micro(account.exported_total()));
                out.push(&UNATTRIBUTED, since_start, &labels, Value::micro(account.residual()));
            }
        }
    }

    /// Emits what is a job's.
    pub(super) fn emit_job(
        &self,
        job: &Job,
        mut subject: impl FnMut(&mut Section) -> SubjectId,
        out: &mut Section,
    ) {
        for (of, account) in self.accounts.iter().filter(|(of, _)| self.shows(job, **of)) {
            let family = if of.0 == Quantity::CoreEnergy { &JOB_ENERGY } else { &ACTIVITY };
            for ((), amount) in account.of(job.run) {
                let subject = subject(out);
                out.push(family, subject, &[("socket", of.1.to_string().as_str())], Value::micro(amount));
            }
        }
    }
}
