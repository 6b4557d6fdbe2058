//! When jobs start: as soon as there are CPUs and GPUs, but for the time that is reserved for the one that wants the whole node.

use std::sync::Arc;

use super::{SECOND, World};
use crate::job::{Job, Planned, plan};
use crate::layout::CPUS;
use crate::profile::Profile;
use crate::random::{real, whole};
use crate::workloads::{Traits, USERS};

/// The node is reserved that long after the beginning, and then as long after the reservation before.
const FIRST: u64 = 1020 * SECOND;
const EVERY: u64 = 1200 * SECOND;
/// But not more often than this, however fast jobs go.
const AT_LEAST_EVERY: u64 = 40 * SECOND;
/// Before the job that it is for, the node is checked: nothing runs. Not shortened.
const CHECK: u64 = 5 * SECOND;
/// What SLURM takes at most for the end of a job.
const CLEAN_UP: u64 = 2 * SECOND;

/// When the node is to be empty for a job that wants all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reservation {
    pub(super) at: u64,
    every: u64,
}

impl Reservation {
    /// The first one of a node whose jobs go `speed` times as fast.
    pub(super) fn new(now: u64, speed: f64) -> Self {
        let faster = |time: u64| whole(real(time) / speed);
        Self { at: now + faster(FIRST), every: faster(EVERY).max(AT_LEAST_EVERY) }
    }

    /// The one after it.
    pub(crate) fn over(&mut self, now: u64) {
        self.at = now + self.every;
    }

    /// How long a job of others may run that starts now.
    fn leaves(&self, now: u64) -> u64 {
        // Batch scripts outlast their steps a little.
        self.at.saturating_sub(now + CLEAN_UP) / 16 * 15
    }
}

/// Whether a job is worth starting that has to be over so soon.
fn is_enough(traits: &Traits, speed: f64, most: u64) -> bool {
    let (shortest, _) = traits.run;
    real(most) >= (shortest / 4.0 / speed).max(0.1) * real(SECOND)
}

impl World {
    /// How long a job of this kind may run now; `None` if it may not start.
    fn room(&self, traits: &Traits) -> Option<u64> {
        if traits.profile != Profile::Exclusive {
            return Some(self.reservation.leaves(self.now))
                .filter(|most| is_enough(traits, self.speed, *most));
        }
        // What was left behind holds nothing.
        let empty = self.jobs.iter().all(|job| job.swept.is_some());
        (empty && self.now >= self.reservation.at + CHECK).then_some(u64::MAX)
    }

    /// Starts what is ready and finds CPUs and GPUs.
    pub(super) fn start(&mut self, role: usize) {
        let now = self.now;
        let Some(workloads) =
            self.workloads.get(role).filter(|workloads| workloads.ready.is_some_and(|at| at <= now))
        else {
            return;
        };
        let traits = workloads.traits;
        let room = self.room(traits);
        let taken: Vec<u32> = self.jobs.iter().flat_map(|job| job.cpus.iter().copied()).collect();
        let free: Vec<u32> = (0..CPUS).filter(|cpu| !taken.contains(cpu)).collect();
        let mut free = free.chunks_exact(traits.cpus);
        let held: Vec<usize> =
            self.jobs.iter().flat_map(|job| job.gpus.iter().map(|(unit, _)| *unit)).collect();
        let gpus = self.node_gpus.find(traits.gpus, &held);
        let together = usize::try_from(traits.together).unwrap_or(usize::MAX);
        let Some(workloads) = self.workloads.get_mut(role) else { return };
        let Some((most, gpus)) = room.filter(|_| free.len() >= together).zip(gpus) else {
            workloads.ready = Some(now + SECOND);
            return;
        };
        workloads.ready = None;
        let user = workloads.chance.pick(&USERS).copied().unwrap_or_default();
        let requeued = workloads.requeue.take();
        let leader = requeued.map_or(self.next_id, |(id, _)| id);
        if traits.profile == Profile::Requeued {
            // Whose it is stays with the id.
            let runs = requeued.map_or(1, |(_, runs)| runs + 1);
            workloads.requeue = (runs < 3).then_some((leader, runs));
        }
        let user = if traits.profile == Profile::Requeued { owner_of(leader) } else { user };
        for n in 0..traits.together {
            let Some(workloads) = self.workloads.get_mut(role) else { return };
            let job = Job {
                id: leader + n,
                traits,
                user,
                cpus: Arc::from(free.next().unwrap_or_default()),
                gpus: gpus.clone(),
                array: (traits.profile == Profile::Array).then_some((leader, n)),
                het: (traits.profile == Profile::Heterogeneous).then_some(leader),
                started: now,
                charged: now,
                plan: plan(traits, self.speed, most, &mut workloads.chance),
                steps: Vec::new(),
                swept: None,
            };
            self.next_id = self.next_id.max(job.id + 1);
            self.changes.metadata.push((job.id, Some(job.metadata(self.machine.boot))));
            let group = job.group();
            if let Some(scope) = self.scope_mut() {
                scope.children.push(group);
            }
            self.cpu_counters.begin(job.id, job.cpus.len());
            self.jobs.push(job);
            let external = Planned {
                at: 0,
                name: "step_extern".to_owned(),
                tasks: 1,
                lasts: u64::MAX / 2,
                works: false,
            };
            self.begin(self.jobs.len() - 1, external);
        }
        if let Some(started) = self.started.get_mut(role) {
            *started += u64::from(traits.together);
        }
    }
}

/// Whose a requeued job is.
fn owner_of(id: u32) -> (&'static str, u32, &'static str) {
    let at = usize::try_from(id).unwrap_or(0) % USERS.len();
    USERS.get(at).copied().unwrap_or_default()
}
