//! The cgroups in which a job's processes are, each process in one of them.
//!
//! v2: tasks in `step_X/user/task_K`, slurmstepd in `step_X/slurm`; a cgroup above a leaf has none of its own.
//! v1: the freezer has tasks in `step_X` and slurmstepd in the job's directory (SLURM, cgroup_v1.c); in the other
//! hierarchies tasks are in `step_X/task_K`, beside a `step_X` that has slurmstepd in it and, where the hierarchy
//! has no task directories, the tasks too.

use cgroups::{Controller, Version};
use kernel_files::{Buffer, ReadError};

use super::{Job, Step, Task};

/// What a cgroup lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Processes, by the id of their first thread.
    Processes,
    /// Threads.
    Threads,
}

impl List {
    fn file(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Processes, _) => "cgroup.procs",
            (Self::Threads, Version::V2) => "cgroup.threads",
            (Self::Threads, Version::V1) => "tasks",
        }
    }
}

/// Whether [`stepd_lists`] has nothing but slurmstepds in it.
pub fn excludes_stepd(job: &Job) -> bool {
    job.cgroup.version() == Version::V2 || has_freezer(job)
}

/// A v1 site may lack it (`ProctrackType` other than cgroup).
fn has_freezer(job: &Job) -> bool {
    job.cgroup.dir(Controller::Freezer).is_some()
}

/// Calls `f` with each list of a step's user processes; slurmstepd is in none of them. Says whether any list was
/// there.
pub fn step_lists(
    job: &Job,
    step: &Step,
    list: List,
    buffer: &mut Buffer,
    mut f: impl FnMut(&[u8]),
) -> Result<bool, ReadError> {
    let file = list.file(job.cgroup.version());
    let mut note = |bytes: Option<&[u8]>| bytes.map(&mut f).is_some();
    let user = step.user_view(job);
    let v2 = job.cgroup.version() == Version::V2;
    if let Some(view) = user.as_ref().filter(|_| !v2 && has_freezer(job)) {
        return Ok(note(view.read_list_of(Controller::Freezer, file, buffer)?));
    }
    let mut any = false;
    for view in step.tasks.iter().filter_map(|task| step.task_view(job, task)) {
        any |= note(view.read_list(file, buffer)?);
    }
    // Above tasks there is no process, and a list costs the kernel more than any other file.
    if let Some(view) = user.filter(|_| v2 && !any) {
        any = note(view.read_list(file, buffer)?);
    }
    Ok(any)
}

/// Calls `f` with each list of a job's user processes. `false` when there is no way to know them.
pub fn job_lists(
    job: &Job,
    list: List,
    buffer: &mut Buffer,
    mut f: impl FnMut(&[u8]),
) -> Result<bool, ReadError> {
    let mut any = excludes_stepd(job);
    for step in job.steps.iter().filter(|step| step.ended.is_none()) {
        any |= step_lists(job, step, list, buffer, &mut f)?;
    }
    Ok(any)
}

/// The list of a task's processes.
pub fn task_list<'b>(
    job: &Job,
    step: &Step,
    task: &Task,
    list: List,
    buffer: &'b mut Buffer,
) -> Result<Option<&'b [u8]>, ReadError> {
    let Some(view) = step.task_view(job, task) else { return Ok(None) };
    view.read_list(list.file(job.cgroup.version()), buffer)
}

/// Calls `f` with each list of a job's slurmstepds. On v1 without the freezer they are listed with the tasks that
/// have no directory of their own.
pub fn stepd_lists(job: &Job, buffer: &mut Buffer, mut f: impl FnMut(&[u8])) -> Result<(), ReadError> {
    let file = List::Processes.file(job.cgroup.version());
    if job.cgroup.version() == Version::V1 && has_freezer(job) {
        let bytes = job.cgroup.view().read_list_of(Controller::Freezer, file, buffer)?;
        bytes.into_iter().for_each(f);
        return Ok(());
    }
    for step in job.steps.iter().filter(|step| step.ended.is_none()) {
        let view = match job.cgroup.version() {
            Version::V2 => job.cgroup.view().below(format_args!("{}/slurm", step.name)),
            Version::V1 => step.view(job),
        };
        if let Some(bytes) = view.map(|view| view.read_list(file, buffer)).transpose()?.flatten() {
            f(bytes);
        }
    }
    Ok(())
}
