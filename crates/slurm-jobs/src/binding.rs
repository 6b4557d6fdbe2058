//! Whether SLURM may still bind a job or a step to CPUs (`ConstrainCores=yes`).
//!
//! slurmstepd makes a step's directories first (proctrack/cgroup). It writes `cpuset.cpus` of the job and of the
//! step's `user` in `task_g_pre_setuid`: after plugins that may take their time (job_container, SPANK), and before it
//! forks the first task (SLURM, src/slurmd/slurmstepd/mgr.c, `_spawn_job_container` and `_fork_all_tasks`;
//! task_cgroup_cpuset.c). In between, v2's `cpuset.cpus.effective` is that of the directory above: all CPUs of the
//! node. Without `ConstrainCores` the file remains empty. On v1 both are empty until SLURM writes them: it turns
//! `cgroup.clone_children` off (cgroup_v1.c). Where only the cpuset and freezer hierarchies exist, no directory shows
//! the first task, and the write itself is waited for.
//!
//! Memory nodes are not waited for: those that SLURM writes are the ones of its own root (task_cgroup_cpuset.c, `allow_mems`).

use std::time::Duration;

use cgroups::{Controller, View};
use kernel_files::{Buffer, ReadError};

use super::{Job, Step, TaskId};

/// How long a job without a task is waited for (an allocation that is not used yet, an extern step of 25.05 and
/// later).
const LONGEST: Duration = Duration::from_secs(60);

/// Where SLURM writes a job's CPUs, and a step's.
pub const FILE: &str = "cpuset.cpus";

/// `task_special` is no task: what plugins and pam_slurm_adopt add may be in it earlier.
fn has_task(step: &Step) -> bool {
    step.tasks.iter().any(|task| matches!(task.id, TaskId::Rank(_)))
}

/// Whether a job has a task: nothing of it is waited for then.
pub fn works(job: &Job) -> bool {
    job.steps.iter().any(has_task)
}

/// Whether it may still be bound, as far as that is known without reading a file.
fn may_be(job: &Job, step: Option<&Step>) -> bool {
    match step {
        None => job.since.elapsed() < LONGEST && !works(job),
        Some(step) => step.since.elapsed() < LONGEST && !has_task(step),
    }
}

/// Whether the binding of a job, or of a step, is waited for. `limits` is the cgroup that carries it. Reads a file
/// only if there is no task yet. If this returns false, a later reading of the cpuset is not older than the binding.
pub fn is_awaited(
    job: &Job,
    step: Option<&Step>,
    limits: &View<'_>,
    buffer: &mut Buffer,
) -> Result<bool, ReadError> {
    if !may_be(job, step) {
        return Ok(false);
    }
    let written = limits.read(Controller::Cpuset, FILE, buffer)?;
    Ok(written.is_some_and(|cpus| cpus.trim_ascii().is_empty()))
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;
    use crate::testing::{aged, job};

    #[test]
    fn it_is_waited_for_until_it_is_there_or_a_task_is_or_for_a_minute() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cpuset.cpus", "\n").write("cgroup/job_7/step_0/user/cpuset.cpus", "\n");
        let of = |steps: &[(&str, &[&str])]| job(7, machine.v2("job_7"), steps);
        let awaited = |job: &Job| {
            let ask = |step: Option<&Step>| {
                let limits = step.map_or_else(|| job.cgroup.view(), |step| step.user_view(job).unwrap());
                is_awaited(job, step, &limits, &mut Buffer::default()).unwrap()
            };
            (ask(None), job.steps.first().map(|step| ask(Some(step))))
        };
        assert_eq!(awaited(&of(&[])), (true, None));
        assert_eq!(awaited(&of(&[("0", &[])])), (true, Some(true)));
        assert_eq!(awaited(&of(&[("0", &["special"])])), (true, Some(true)));
        assert_eq!(awaited(&of(&[("0", &["3"])])), (false, Some(false)));
        assert_eq!(awaited(&of(&[("0", &[]), ("1", &["0"])])), (false, Some(true)), "another step's task");
        assert!(works(&of(&[("0", &[]), ("1", &["0"])])) && !works(&of(&[("0", &["special"])])));
        assert_eq!(awaited(&aged(&of(&[("0", &[])]), LONGEST)), (false, Some(false)));
        machine.write("cgroup/job_7/cpuset.cpus", "0-1\n");
        assert_eq!(awaited(&of(&[("0", &[])])), (false, Some(true)), "a new step of a bound job");
        machine.write("cgroup/job_7/step_0/user/cpuset.cpus", "0\n");
        assert_eq!(awaited(&of(&[("0", &[])])), (false, Some(false)));
        machine.remove("cgroup/job_7/cpuset.cpus");
        assert_eq!(awaited(&of(&[])), (false, None), "no cpuset controller");
    }
}
