//! Reads every source for every job, and keeps the bindings.
//!
//! Costs, each time: one question to the kernel about all running jobs (asked every time, since the ids of SLURM's programs
//! change with each step and their answers hardly ever do); a file per GPU where prologs leave such; and a process's
//! environment per step of the jobs of which nothing better is known, if that is allowed.

mod asking;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cgroups::Cgroup;
use gpu_devices::{DeviceNode, Unit};
use kernel_files::{Buffer, Roots, SourceError};
use slurm_jobs::{Job, JobRunId, SlurmCgroup};

use super::evidence::{Claim, Evidence, decide, nodes_of};
use super::names::{GresName, Names};
use super::{Bound, DeviceAccess, DeviceAccessSource, ProcessesOnUnits, Source};

/// Most problems that one round reports.
const MOST_PROBLEMS: usize = 16;

/// Reads whether a v1 cgroup allows these nodes, in their order (`devices.list`).
pub type DevicesList = fn(&Cgroup, &[DeviceNode], &mut Buffer) -> Result<DeviceAccess, SourceError>;

/// Where to look beyond the kernel and our own prolog's file, which is in each job's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BindOptions {
    /// Directory in the manner of Princeton's jobstats, `/run/gpustat`.
    pub gpustat_dir: Option<PathBuf>,
    /// Directory in the manner of dcgm-exporter's `hpc-job-mapping-dir`.
    pub job_mapping_dir: Option<PathBuf>,
    /// Whether the environment of users' processes is used when no other source knows.
    pub environment_hints: bool,
    /// The GPUs in the order of SLURM's list, where an admin gives it.
    pub gres_order: Option<Vec<GresName>>,
}

impl BindOptions {
    fn names<'a>(&'a self, units: &'a [Arc<Unit>]) -> Names<'a> {
        Names::new(units, self.gres_order.as_deref())
    }
}

/// A job's binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobBinding {
    /// Its units, and their source.
    Known(Bound),
    /// No source knows. The job may have none or all.
    Unknown,
}

/// Which job has which unit.
#[derive(Debug, Default)]
pub struct Binding {
    /// Of every job that was asked for, the ended ones too.
    pub jobs: BTreeMap<JobRunId, JobBinding>,
    /// Units that several running jobs have (shards, MPS).
    pub shared: BTreeSet<Arc<str>>,
    /// Sources that could not be asked, though they are there.
    pub problems: Vec<SourceError>,
}

impl Binding {
    fn problem(&mut self, problem: SourceError) {
        if self.problems.len() < MOST_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Finds out which job has which unit.
pub struct Binder {
    roots: Arc<Roots>,
    options: BindOptions,
    access_source: Option<Box<dyn DeviceAccessSource>>,
    devices_list: Option<DevicesList>,
    known: BTreeMap<JobRunId, Bound>,
    buffer: Buffer,
}

impl std::fmt::Debug for Binder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binder")
            .field("options", &self.options)
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// One round: its jobs and units, and the statements so far.
struct Round<'a> {
    jobs: Vec<&'a Job>,
    scopes: &'a [Arc<SlurmCgroup>],
    units: &'a [Arc<Unit>],
    nodes: Vec<DeviceNode>,
    statements: BTreeMap<JobRunId, Vec<Evidence>>,
    binding: Binding,
}

impl<'a> Round<'a> {
    fn statements(&mut self, run: JobRunId, source: Source, claim: Claim) {
        self.statements.entry(run).or_default().push(Evidence { source, claim });
    }

    /// SLURM's directories that may be above a job's: those of its slurmd, where several share the host.
    fn above(&self, job: &Job) -> Vec<&'a SlurmCgroup> {
        let version = job.cgroup.version();
        let scopes = || self.scopes.iter().map(Arc::as_ref).filter(|scope| scope.cgroup.version() == version);
        let own: Vec<_> = scopes().filter(|scope| scope.node == job.slurm_node).collect();
        if own.is_empty() { scopes().collect() } else { own }
    }
}

impl Binder {
    /// `access_source` asks the kernel for its programs' answers, where that is permitted.
    pub fn new(
        roots: Arc<Roots>,
        options: BindOptions,
        access_source: Option<Box<dyn DeviceAccessSource>>,
    ) -> Self {
        let (known, buffer) = (BTreeMap::new(), Buffer::default());
        Self { roots, options, access_source, devices_list: None, known, buffer }
    }

    /// Has `devices.list` of v1 asked as well.
    pub fn with_devices_list(self, read: DevicesList) -> Self {
        Self { devices_list: Some(read), ..self }
    }

    /// The units of each job, as far as any source knows. `units` are all known units, lost ones included; while
    /// there are none, nothing new is learnt. An ended job keeps its binding.
    pub fn bind(
        &mut self,
        jobs: &[Arc<Job>],
        scopes: &[Arc<SlurmCgroup>],
        units: &[Arc<Unit>],
        processes: &ProcessesOnUnits,
    ) -> Binding {
        let asked: BTreeSet<JobRunId> = jobs.iter().map(|job| job.run).collect();
        self.known.retain(|run, _| asked.contains(run));
        let mut round = Round {
            jobs: jobs.iter().map(Arc::as_ref).filter(|job| job.is_running()).collect(),
            scopes,
            units,
            nodes: nodes_of(units),
            statements: BTreeMap::new(),
            binding: Binding::default(),
        };
        if !units.is_empty() && !round.jobs.is_empty() {
            self.ask_programs(&mut round);
            self.ask_lists(&mut round);
            self.ask_prolog(&mut round);
            self.ask_files(&mut round);
            self.ask_processes(&mut round, processes);
            self.ask_environment(&mut round);
        }
        let Round { statements, mut binding, .. } = round;
        for (run, statements) in statements {
            match decide(self.known.get(&run), &statements) {
                Some(bound) => self.known.insert(run, bound),
                None => self.known.remove(&run),
            };
        }
        let mut had = BTreeSet::new();
        for job in jobs {
            let known = self.known.get(&job.run);
            if job.is_running() {
                let units = known.into_iter().flat_map(|bound| &bound.units);
                binding.shared.extend(units.filter(|unit| !had.insert(Arc::clone(unit))).cloned());
            }
            binding.jobs.insert(job.run, known.cloned().map_or(JobBinding::Unknown, JobBinding::Known));
        }
        binding
    }

    /// Whether a source can change a job's binding. A source that may contradict itself later is read for as long as
    /// its statement is used.
    fn wanted(&self, round: &Round<'_>, run: JobRunId, source: Source) -> bool {
        let stronger = |other: Source| other < source;
        let said = round
            .statements
            .get(&run)
            .into_iter()
            .flatten()
            .any(|statements| stronger(statements.source) && statements.names_units());
        !said && !self.known.get(&run).is_some_and(|bound| stronger(bound.source))
    }
}

#[cfg(test)]
mod tests;
