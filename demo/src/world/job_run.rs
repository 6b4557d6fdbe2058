//! The changes in a simulated job's run, in SLURM's order.

use std::sync::Arc;

use super::{SCOPE, SECOND, World};
use crate::job::{Planned, Stage, Step};
use crate::process::Process;
use crate::profile::Profile;
use crate::random::{real, whole};

/// When a directory that SLURM left behind is removed. `speed` does not shorten it, so that it is reported as stale.
const LEFT_BEHIND: u64 = 1200 * SECOND;

impl World {
    /// Removes a job that has ended, and lets the next one of its kind wait.
    pub(super) fn finish_job(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        self.cpu_counters.job_ended(job.id);
        let directory = job.directory();
        self.remove(&[], &directory);
        self.changes.metadata.push((job.id, None));
        if job.workload.profile == Profile::Exclusive {
            self.reservation.renew(self.now);
        }
        let others = self.jobs.iter().any(|other| other.workload.profile == job.workload.profile);
        let state = self.workloads.iter_mut().find(|state| state.workload.profile == job.workload.profile);
        if let Some(state) = state.filter(|_| !others) {
            let (low, high) = job.workload.pause;
            let pause = state.chance.between(low, high) / self.speed;
            state.ready = Some(self.now + whole(pause.max(0.2) * real(SECOND)));
        }
    }

    /// Makes the changes of a job that are due.
    pub(super) fn advance_job(&mut self, at: usize) {
        let now = self.now;
        loop {
            let Some(job) = self.jobs.get_mut(at) else { return };
            match job.plan.front() {
                Some(next) if job.started + next.at <= now => {}
                _ => break,
            }
            let Some(next) = job.plan.pop_front() else { break };
            self.begin_step(at, next);
        }
        let Some(job) = self.jobs.get(at) else { return };
        let due: Vec<(String, Stage)> =
            job.steps.iter().filter(|s| s.due <= now).map(|s| (s.name.clone(), s.stage)).collect();
        for (name, stage) in due {
            match stage {
                Stage::Running => self.end_tasks(at, &name),
                Stage::Ended => self.end_step(at, &name),
            }
        }
        let Some(job) = self.jobs.get_mut(at) else { return };
        if job.removal_due.is_some_and(|removal_due| removal_due <= now) {
            job.removal_due = None;
        }
        // The external step ends after all others.
        if job.plan.is_empty()
            && let [only] = job.steps.as_mut_slice()
            && only.name == "step_extern"
            && only.stage == Stage::Running
        {
            only.due = now + 20_000;
        }
    }

    pub(super) fn begin_step(&mut self, at: usize, planned: Planned) {
        let now = self.now;
        let mut next_pid = self.next_pid;
        let Some(job) = self.jobs.get_mut(at) else { return };
        let group = job.step_group(&planned, now, |threads| {
            let pid = next_pid;
            next_pid += threads.max(1);
            pid
        });
        self.next_pid = next_pid;
        job.steps.push(Step {
            name: planned.name.clone(),
            works: planned.works,
            begun: now,
            stage: Stage::Running,
            due: now.saturating_add(planned.lasts),
            // The start of slurmstepd is charged at its first poll.
            poll: now + 1,
        });
        let directory = job.directory();
        if let Some(group_of_job) = self.scope_mut().and_then(|scope| scope.child_mut(&directory)) {
            group_of_job.children.push(group);
        }
        self.charge_slurm(3_000);
    }

    /// Ends the tasks of a step. Its slurmstepd remains.
    fn end_tasks(&mut self, at: usize, step: &str) {
        let now = self.now;
        // SLURM leaves 133 to 407 ms between the last task and the end of the directory.
        let clean_up = whole(self.chance.between(150e3, 400e3));
        let Some(job) = self.jobs.get_mut(at) else { return };
        if let Some(step) = job.steps.iter_mut().find(|s| s.name == step) {
            step.stage = Stage::Ended;
            step.due = now + clean_up;
        }
        let directory = job.directory();
        let mut ended = Vec::new();
        let group = self.scope_mut().and_then(|scope| scope.below_mut(&[&directory, step]));
        if let Some(group) = group {
            if let Some(user) = group.child_mut("user") {
                user.take_processes(&mut ended);
            }
            // It waited for them, so the kernel adds their I/O to its own.
            let stepd = group.child_mut("slurm").and_then(|slurm| slurm.processes.first_mut());
            if let Some(stepd) = stepd {
                ended.iter().for_each(|process| stepd.io += process.io);
            }
        }
        self.record_exits(ended);
    }

    /// Ends a slurmstepd: the step's directory is removed.
    fn end_step(&mut self, at: usize, step: &str) {
        self.charge_stepd(at, step, 4_000, 9_000);
        let Some(job) = self.jobs.get_mut(at) else { return };
        job.steps.retain(|s| s.name != step);
        if job.steps.is_empty() && job.workload.profile == Profile::LeftBehind {
            job.removal_due = Some(self.now + LEFT_BEHIND);
            // The left-behind directory holds no CPUs.
            job.cpus = Arc::from([]);
        }
        let directory = job.directory();
        self.remove(&[&directory], step);
        self.charge_slurm(2_000);
    }

    fn record_exits(&mut self, processes: Vec<Process>) {
        processes.iter().for_each(|process| self.node_gpus.leave(process.pid));
        let known = processes.into_iter().filter(|process| process.published.is_some());
        self.changes.pids.extend(known.map(|process| process.pid));
    }

    /// Removes a group below SLURM's scope.
    fn remove(&mut self, path: &[&str], name: &str) {
        let mut ended = Vec::new();
        let removed = self.scope_mut().and_then(|scope| scope.below_mut(path)).and_then(|group| {
            group.child_mut(name)?.take_processes(&mut ended);
            group.remove(name)
        });
        self.record_exits(ended);
        if removed.is_some_and(|group| group.published.is_some()) {
            let path: Vec<&str> = SCOPE.iter().chain(path).copied().chain([name]).collect();
            self.changes.groups.push(path.join("/"));
        }
    }
}
