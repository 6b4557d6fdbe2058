//! The scheduler: jobs start as soon as CPUs and GPUs are free. From time to time the whole node is reserved for one job.

use std::sync::Arc;

use super::{SECOND, World};
use crate::job::{Job, Planned, plan};
use crate::layout::CPUS;
use crate::profile::Profile;
use crate::random::{real, whole};
use crate::workloads::{USERS, Workload};

/// The first reservation, and the time from the end of a reservation to the next one. `speed` shortens both.
const FIRST: u64 = 1020 * SECOND;
const EVERY: u64 = 1200 * SECOND;
/// Lower limit of `EVERY`, whatever the speed.
const AT_LEAST_EVERY: u64 = 40 * SECOND;
/// The node is empty for this time before the job starts, as for a health check. Not shortened.
const CHECK: u64 = 5 * SECOND;
/// SLURM ends a job within this time.
const CLEAN_UP: u64 = 2 * SECOND;

/// When the node has to be empty for the job that needs all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reservation {
    pub(super) at: u64,
    every: u64,
}

impl Reservation {
    /// The first reservation of a node whose jobs are `speed` times as fast.
    pub(super) fn new(now: u64, speed: f64) -> Self {
        let faster = |time: u64| whole(real(time) / speed);
        Self { at: now + faster(FIRST), every: faster(EVERY).max(AT_LEAST_EVERY) }
    }

    /// Makes the next reservation.
    pub(crate) fn renew(&mut self, now: u64) {
        self.at = now + self.every;
    }

    /// How long another job may run if it starts now.
    fn time_left(&self, now: u64) -> u64 {
        // Batch scripts run a little longer than their steps.
        self.at.saturating_sub(now + CLEAN_UP) / 16 * 15
    }
}

/// Whether a job is worth starting that has to end after `most` microseconds.
fn is_long_enough(workload: &Workload, speed: f64, most: u64) -> bool {
    let (shortest, _) = workload.run;
    real(most) >= (shortest / 4.0 / speed).max(0.1) * real(SECOND)
}

impl World {
    /// How long a job of this kind may run now; `None` if it may not start.
    fn allowed_time(&self, workload: &Workload) -> Option<u64> {
        if workload.profile != Profile::Exclusive {
            return Some(self.reservation.time_left(self.now))
                .filter(|most| is_long_enough(workload, self.speed, *most));
        }
        // A left-behind directory holds nothing.
        let empty = self.jobs.iter().all(|job| job.removal_due.is_some());
        (empty && self.now >= self.reservation.at + CHECK).then_some(u64::MAX)
    }

    /// Starts the jobs of the kind `WORKLOADS[at]` if they are ready and find CPUs and GPUs.
    pub(super) fn start_workload(&mut self, at: usize) {
        let now = self.now;
        let Some(state) =
            self.workloads.get(at).filter(|state| state.ready.is_some_and(|ready| ready <= now))
        else {
            return;
        };
        let workload = state.workload;
        let allowed = self.allowed_time(workload);
        let taken: Vec<u32> = self.jobs.iter().flat_map(|job| job.cpus.iter().copied()).collect();
        let free: Vec<u32> = (0..CPUS).filter(|cpu| !taken.contains(cpu)).collect();
        let mut free = free.chunks_exact(workload.cpus);
        let held: Vec<usize> =
            self.jobs.iter().flat_map(|job| job.gpus.iter().map(|(unit, _)| *unit)).collect();
        let gpus = self.node_gpus.find(workload.gpus, &held);
        let together = usize::try_from(workload.together).unwrap_or(usize::MAX);
        let Some(state) = self.workloads.get_mut(at) else { return };
        let Some((most, gpus)) = allowed.filter(|_| free.len() >= together).zip(gpus) else {
            state.ready = Some(now + SECOND);
            return;
        };
        state.ready = None;
        let user = state.chance.pick(&USERS).copied().unwrap_or_default();
        let requeued = state.requeue.take();
        let leader = requeued.map_or(self.next_id, |(id, _)| id);
        if workload.profile == Profile::Requeued {
            let runs = requeued.map_or(1, |(_, runs)| runs + 1);
            state.requeue = (runs < 3).then_some((leader, runs));
        }
        let user = if workload.profile == Profile::Requeued { owner_of(leader) } else { user };
        for n in 0..workload.together {
            let Some(state) = self.workloads.get_mut(at) else { return };
            let job = Job {
                id: leader + n,
                workload,
                user,
                cpus: Arc::from(free.next().unwrap_or_default()),
                gpus: gpus.clone(),
                array: (workload.profile == Profile::Array).then_some((leader, n)),
                het: (workload.profile == Profile::Heterogeneous).then_some(leader),
                started: now,
                charged: now,
                plan: plan(workload, self.speed, most, &mut state.chance),
                steps: Vec::new(),
                removal_due: None,
            };
            self.next_id = self.next_id.max(job.id + 1);
            self.changes.metadata.push((job.id, Some(job.metadata(self.machine.boot))));
            let group = job.group();
            if let Some(scope) = self.scope_mut() {
                scope.children.push(group);
            }
            self.cpu_counters.job_started(job.id, job.cpus.len());
            self.jobs.push(job);
            let external = Planned {
                at: 0,
                name: "step_extern".to_owned(),
                tasks: 1,
                lasts: u64::MAX / 2,
                works: false,
            };
            self.begin_step(self.jobs.len() - 1, external);
        }
        if let Some(started) = self.started.get_mut(at) {
            *started += u64::from(workload.together);
        }
    }
}

/// The user of a requeued job: the same for every run of an id.
fn owner_of(id: u32) -> (&'static str, u32, &'static str) {
    let at = usize::try_from(id).unwrap_or(0) % USERS.len();
    USERS.get(at).copied().unwrap_or_default()
}
