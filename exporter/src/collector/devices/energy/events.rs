//! What happens to jobs between two readings of the meters.

use std::sync::Arc;
use std::time::Instant;

use cgroups::Cgroup;
use slurm_jobs::JobRunId;

use super::usages::Facts;

/// What happened to jobs since the last reading, in order.
pub(super) enum Event {
    Appeared(JobRunId, Arc<Cgroup>, Facts, Instant),
    Read(JobRunId, Arc<Cgroup>, Facts),
    Left(JobRunId, Instant),
    Forgotten(JobRunId),
}

/// Events that wait to be read at most: more come only while a meter hangs.
pub(super) const MOST_EVENTS: usize = 16384;

#[derive(Default)]
pub(super) struct Events {
    pub(super) waiting: Vec<Event>,
    /// There were too many events: the next scrape has the present jobs.
    pub(super) lost: bool,
}

impl Events {
    pub(super) fn add(&mut self, event: Event) {
        if self.waiting.len() >= MOST_EVENTS {
            *self = Self { waiting: Vec::new(), lost: true };
        }
        self.waiting.push(event);
    }
}
