//! Asking each source.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use cgroups::{Cgroup, Controller, Version};
use kernel_files::{Dir, ReadError, SourceError};
use slurm_jobs::environment::{GpuHints, parse_gpu_hints};
use slurm_jobs::identity::pids;
use slurm_jobs::leaves::{List, step_lists};
use slurm_jobs::{Job, StepKind};

use super::super::evidence::{Claim, by_list, by_programs};
use super::super::files::{self, Named};
use super::super::names::Names;
use super::{Binder, ProcessesOnUnits, Round, Source};

/// Most steps of a job whose environment is read.
const MOST_STEPS: usize = 8;

impl Binder {
    /// The v2 device programs of all jobs and of SLURM's directories above them, in one question.
    pub(super) fn ask_programs(&mut self, round: &mut Round<'_>) {
        let Some(access_source) = self.access_source.as_mut() else { return };
        let v2 = |cgroup: &Cgroup| cgroup.version() == Version::V2 && cgroup.dirs().next().is_some();
        let jobs: Vec<_> = round.jobs.iter().copied().filter(|job| v2(&job.cgroup)).collect();
        let scopes: Vec<_> = round.scopes.iter().filter(|scope| v2(&scope.cgroup)).collect();
        // SLURM puts the job's own program at its directory; below are those of steps and tasks, which have less.
        let cgroups = scopes.iter().map(|scope| &scope.cgroup).chain(jobs.iter().map(|job| &*job.cgroup));
        let descriptors: Vec<BorrowedFd<'_>> =
            cgroups.filter_map(|cgroup| cgroup.dirs().next().map(AsFd::as_fd)).collect();
        if jobs.is_empty() || round.nodes.is_empty() {
            return;
        }
        let mut answers = match access_source.ask(&descriptors, &round.nodes) {
            Ok(answers) if answers.len() == descriptors.len() => answers,
            Ok(_) => return,
            Err(problem) => return round.binding.problem(problem),
        };
        let of_jobs = answers.split_off(scopes.len());
        for (job, answer) in jobs.into_iter().zip(of_jobs) {
            let device_access = match answer {
                Ok(device_access) => device_access,
                Err(problem) => {
                    if !job.cgroup.is_gone() {
                        round.binding.problem(problem);
                    }
                    continue;
                }
            };
            let mine = round.above(job);
            let above = scopes
                .iter()
                .zip(&answers)
                .filter(|(scope, _)| mine.iter().any(|mine| std::ptr::eq(*mine, Arc::as_ptr(scope))));
            let above: Vec<_> = above.map(|(_, answer)| answer.as_ref().ok()).collect();
            if let Some(units) = by_programs(round.units, &round.nodes, &device_access, &above) {
                round.statements(job.run, Source::DeviceProgram, Claim::Exactly(units));
            }
        }
    }

    /// v1 `devices.list` of jobs and of SLURM's directory above them.
    pub(super) fn ask_lists(&mut self, round: &mut Round<'_>) {
        let Some(read) = self.devices_list else { return };
        let v1 =
            |cgroup: &Cgroup| cgroup.version() == Version::V1 && cgroup.dir(Controller::Devices).is_some();
        for job in round.jobs.clone() {
            if round.nodes.is_empty() || !v1(&job.cgroup) || !self.wanted(round, job.run, Source::DevicesList)
            {
                continue;
            }
            let mut ask = |cgroup: &Cgroup| read(cgroup, &round.nodes, &mut self.buffer);
            let device_access = match ask(&job.cgroup) {
                Ok(device_access) => device_access,
                Err(problem) => {
                    if !job.cgroup.is_gone() {
                        round.binding.problem(problem);
                    }
                    continue;
                }
            };
            let above = round.above(job).into_iter().filter(|scope| v1(&scope.cgroup));
            let above: Vec<_> = above.map(|scope| ask(&scope.cgroup).ok()).collect();
            let above: Vec<_> = above.iter().map(Option::as_ref).collect();
            if let Some(units) = by_list(round.units, &round.nodes, &device_access, &above) {
                round.statements(job.run, Source::DevicesList, Claim::Exactly(units));
            }
        }
    }

    /// The file of our own prolog, which was read with the job's metadata.
    pub(super) fn ask_prolog(&mut self, round: &mut Round<'_>) {
        let names = self.options.names(round.units);
        for job in round.jobs.clone() {
            let metadata = &job.metadata;
            // Several slurmd on a host share the file, and each has GPUs of its own.
            let of_another = match (&job.slurm_node, &metadata.node) {
                (Some(node), Some(said)) => **node != **said,
                _ => false,
            };
            if of_another || !self.wanted(round, job.run, Source::Prolog) {
                continue;
            }
            let ids = metadata.gpu_ids.iter().flatten().filter_map(|id| names.by_id(id));
            let mut units: Vec<_> = ids.map(|unit| unit.uuid.clone()).collect();
            if metadata.gpu_ids.is_none() {
                units = of_indices(names, metadata.gpus.as_deref().unwrap_or_default()).unwrap_or_default();
            }
            if !units.is_empty() {
                round.statements(job.run, Source::Prolog, Claim::Exactly(units));
            }
        }
    }

    /// Files that other prologs leave by GPU.
    pub(super) fn ask_files(&mut self, round: &mut Round<'_>) {
        let dirs = [
            (Source::Gpustat, self.options.gpustat_dir.clone()),
            (Source::JobMapping, self.options.job_mapping_dir.clone()),
        ];
        for (source, dir) in dirs {
            let jobs: Vec<_> =
                round.jobs.iter().copied().filter(|job| self.wanted(round, job.run, source)).collect();
            let (Some(dir), false) = (dir, jobs.is_empty()) else { continue };
            let owner =
                Dir::open(&self.roots.cgroup("")).and_then(|dir| dir.stat()).map_or(0, |stat| stat.uid);
            let names = self.options.names(round.units);
            let (claims, wrong) = files::read(source, &dir, round.units, names, owner, &mut self.buffer);
            wrong.into_iter().for_each(|problem| round.binding.problem(problem));
            for job in jobs {
                // Two slurmd on a host may each have a part of the job, and the files do not say which.
                let twice = round.jobs.iter().filter(|other| other.id == job.id).count() > 1;
                if twice || job.id.is_none() {
                    continue;
                }
                let (has, others): (Vec<_>, Vec<_>) =
                    claims.iter().partition(|(_, named)| named.iter().any(|named| is_named(named, job)));
                let units = |claims: Vec<&(Arc<str>, Vec<Named>)>| {
                    claims.into_iter().map(|(unit, _)| unit.clone()).collect()
                };
                round.statements(job.run, source, Claim::Each { has: units(has), lacks: units(others) });
            }
        }
    }

    pub(super) fn ask_processes(&mut self, round: &mut Round<'_>, processes: &ProcessesOnUnits) {
        for job in round.jobs.clone() {
            let has = processes.of(job.run).to_vec();
            if !has.is_empty() && self.wanted(round, job.run, Source::Processes) {
                round.statements(job.run, Source::Processes, Claim::Each { has, lacks: Vec::new() });
            }
        }
    }

    pub(super) fn ask_environment(&mut self, round: &mut Round<'_>) {
        if !self.options.environment_hints {
            return;
        }
        for job in round.jobs.clone() {
            if !self.wanted(round, job.run, Source::Environment) {
                continue;
            }
            let (hints, wrong) = self.hints(job);
            wrong.into_iter().for_each(|problem| round.binding.problem(problem));
            let names = self.options.names(round.units);
            let of_job = hints.iter().find_map(|hints| of_indices(names, hints.job.as_deref()?));
            let of_step = |hints: &GpuHints| {
                let ids = hints.ids.iter().flatten().filter_map(|id| names.by_id(id));
                let ids = ids.map(|unit| unit.uuid.clone());
                let indices = of_indices(names, hints.step.as_deref().unwrap_or_default());
                ids.chain(indices.unwrap_or_default()).collect::<Vec<_>>()
            };
            let has = of_job.unwrap_or_else(|| hints.iter().flat_map(of_step).collect());
            if !has.is_empty() {
                round.statements(job.run, Source::Environment, Claim::Each { has, lacks: Vec::new() });
            }
        }
    }

    /// What a process of each running step says, and the first thing that is wrong. The list of the job that an `srun` step
    /// has may be that of the node on which the batch script runs.
    fn hints(&mut self, job: &Job) -> (Vec<GpuHints>, Option<SourceError>) {
        const ENVIRON: &str = "/proc/PID/environ";
        let (mut hints, mut wrong) = (Vec::new(), None);
        let Ok(proc) = Dir::open(&self.roots.proc("")) else { return (hints, wrong) };
        for step in job.steps.iter().filter(|step| step.ended.is_none()).take(MOST_STEPS) {
            let mut first = None;
            let note = |list: &[u8]| first = first.or(pids(list, 1).first().copied());
            let listed = step_lists(job, step, List::Processes, &mut self.buffer, note);
            let (Ok(_), Some(pid)) = (listed, first) else { continue };
            match proc.read(&format!("{pid}/environ"), &mut self.buffer) {
                Ok(environ) => {
                    let mut said = parse_gpu_hints(environ);
                    let of_job = matches!(step.id.kind, StepKind::Batch | StepKind::Interactive);
                    said.job = said.job.filter(|_| of_job);
                    hints.push(said);
                }
                Err(ReadError::Gone) => {}
                Err(error) => wrong = wrong.or(Some(SourceError::reading(ENVIRON, "procfs")(error))),
            }
        }
        (hints, wrong)
    }
}

/// Whether a file means this job.
fn is_named(named: &Named, job: &Job) -> bool {
    let same = |uid| job.uid.is_none_or(|own| own == uid);
    job.id == Some(named.id) && named.uid.is_none_or(same)
}

/// The units with these indices in SLURM's list, if it is certain of each which it is.
fn of_indices(names: Names<'_>, indices: &[u32]) -> Option<Vec<Arc<str>>> {
    let units = indices.iter().map(|index| names.by_gres_index(*index).map(|unit| unit.uuid.clone()));
    units.collect::<Option<Vec<_>>>().filter(|units| !units.is_empty())
}
