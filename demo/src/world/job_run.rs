//! What happens in the runs of simulated jobs, in the order that SLURM gives it.

use std::sync::Arc;

use super::{SCOPE, SECOND, World};
use crate::job::{Planned, Stage, Step};
use crate::process::Process;
use crate::profile::Profile;
use crate::random::{real, whole};

/// How long the directory that SLURM left behind stays; not shortened, so that it is seen as what it is.
const LEFT_BEHIND: u64 = 1200 * SECOND;

impl World {
    /// A job is over.
    pub(super) fn finish_job(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        self.cpu_counters.end(job.id);
        let directory = job.directory();
        self.remove(&[], &directory);
        self.changes.metadata.push((job.id, None));
        if job.traits.profile == Profile::Exclusive {
            self.reservation.over(self.now);
        }
        let others = self.jobs.iter().any(|other| other.traits.profile == job.traits.profile);
        let role = self.workloads.iter_mut().find(|role| role.traits.profile == job.traits.profile);
        if let Some(role) = role.filter(|_| !others) {
            let (low, high) = job.traits.pause;
            let pause = role.chance.between(low, high) / self.speed;
            role.ready = Some(self.now + whole(pause.max(0.2) * real(SECOND)));
        }
    }

    /// What is due of a job.
    pub(super) fn advance_job(&mut self, at: usize) {
        let now = self.now;
        loop {
            let Some(job) = self.jobs.get_mut(at) else { return };
            match job.plan.front() {
                Some(next) if job.started + next.at <= now => {}
                _ => break,
            }
            let Some(next) = job.plan.pop_front() else { break };
            self.begin(at, next);
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
        if job.swept.is_some_and(|swept| swept <= now) {
            job.swept = None;
        }
        // The external step lasts as long as any other.
        if job.plan.is_empty()
            && let [only] = job.steps.as_mut_slice()
            && only.name == "step_extern"
            && only.stage == Stage::Running
        {
            only.due = now + 20_000;
        }
    }

    pub(super) fn begin(&mut self, at: usize, planned: Planned) {
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
            // Its group is new: what slurmstepd spends on starting follows.
            poll: now + 1,
        });
        let directory = job.directory();
        if let Some(group_of_job) = self.scope_mut().and_then(|scope| scope.child_mut(&directory)) {
            group_of_job.children.push(group);
        }
        self.charge_slurm(3_000);
    }

    /// The tasks of a step end; its slurmstepd is left.
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
                user.evict(&mut ended);
            }
            // It waited for them, so their I/O is in its own now.
            let stepd = group.child_mut("slurm").and_then(|slurm| slurm.processes.first_mut());
            if let Some(stepd) = stepd {
                ended.iter().for_each(|process| stepd.io += process.io);
            }
        }
        self.buried(ended);
    }

    /// A slurmstepd removes its step's directory and leaves.
    fn end_step(&mut self, at: usize, step: &str) {
        self.charge_stepd(at, step, 4_000, 9_000);
        let Some(job) = self.jobs.get_mut(at) else { return };
        job.steps.retain(|s| s.name != step);
        if job.steps.is_empty() && job.traits.profile == Profile::LeftBehind {
            job.swept = Some(self.now + LEFT_BEHIND);
            // Nobody may use them, but they are not the job's any more.
            job.cpus = Arc::from([]);
        }
        let directory = job.directory();
        self.remove(&[&directory], step);
        self.charge_slurm(2_000);
    }

    fn buried(&mut self, processes: Vec<Process>) {
        processes.iter().for_each(|process| self.node_gpus.leave(process.pid));
        let known = processes.into_iter().filter(|process| process.published.is_some());
        self.changes.pids.extend(known.map(|process| process.pid));
    }

    /// Removes a group below SLURM's scope.
    fn remove(&mut self, path: &[&str], name: &str) {
        let mut ended = Vec::new();
        let removed = self.scope_mut().and_then(|scope| scope.below_mut(path)).and_then(|group| {
            group.child_mut(name)?.evict(&mut ended);
            group.remove(name)
        });
        self.buried(ended);
        if removed.is_some_and(|group| group.published.is_some()) {
            let path: Vec<&str> = SCOPE.iter().chain(path).copied().chain([name]).collect();
            self.changes.groups.push(path.join("/"));
        }
    }
}
