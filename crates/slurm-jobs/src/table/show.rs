//! The jobs as a scrape shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kernel_files::Dir;

use super::{JobLabel, Table};
use crate::job_run::{End, RunState};
use crate::readers::ReadBy;
use crate::{Job, JobRunId, NodeSnapshot, Reader, Users};

impl Table {
    /// The jobs as they are now.
    pub fn snapshot(&mut self) -> NodeSnapshot {
        self.kept_files.next_round();
        self.before_walk();
        self.verify();
        self.purge();
        if self.options.job_labels.contains(&JobLabel::User) {
            self.relabel();
        }
        let mut shown: BTreeMap<_, JobRunId> = BTreeMap::new();
        let (mut hidden, mut replaced): (Vec<JobRunId>, Vec<JobRunId>) = Default::default();
        // Runs of one job in the order they were seen. One of them is shown: an ended one until it makes room, then the
        // next; the others wait.
        let now = Instant::now();
        for tracked in self.runs.values() {
            let left = matches!(&tracked.state, RunState::LeftBehind(end) if end.has_run);
            if left && tracked.end().is_some_and(|end| self.is_retained_enough(end, now)) {
                // Nothing of it changes any more.
                continue;
            }
            let (Some(id), true) = (tracked.job.id, tracked.has_run()) else {
                hidden.push(tracked.run());
                continue;
            };
            let key = (id, tracked.job.slurm_node.clone());
            match shown.get(&key).and_then(|run| self.runs.get(run)) {
                Some(before) if !before.end().is_some_and(|end| self.makes_room(end, now)) => {
                    hidden.push(tracked.run());
                }
                Some(_) | None => replaced.extend(shown.insert(key, tracked.run())),
            }
        }
        for run in shown.values() {
            if let Some(end) = self.runs.get_mut(run).and_then(|tracked| tracked.end_mut()) {
                end.shown = true;
            }
        }
        for run in replaced {
            if let Some(end) = self.runs.get_mut(&run).and_then(|tracked| tracked.end_mut()) {
                end.made_room = true;
            }
        }
        let jobs = |runs: Vec<JobRunId>| -> Vec<Arc<Job>> {
            runs.iter().filter_map(|run| self.runs.get(run)).map(|t| t.job.clone()).collect()
        };
        let stale_after = self.options.stale_after;
        let stale =
            self.runs.values().filter(|t| t.left_behind(stale_after)).map(|t| t.job.clone()).collect();
        let mut stats = self.stats;
        for tracked in self.runs.values() {
            match (tracked.left_behind(stale_after), tracked.end(), tracked.job.id) {
                (true, ..) => stats.stale += 1,
                (_, Some(_), _) => stats.retained += 1,
                (_, None, None) => stats.unresolved += 1,
                (_, None, Some(_)) => stats.running += 1,
            }
        }
        stats.unfollowed = self.unfollowed.values().sum();
        stats.overflows_total = self.watches.overflows();
        stats.watch_failures_total = self.watches.failures();
        stats.without_metadata = self.without_metadata();
        stats.events_refused = self.watches.refused().map(rustix::io::Errno::raw_os_error);
        NodeSnapshot {
            jobs: jobs(shown.into_values().collect()),
            pending: jobs(hidden),
            stale,
            scopes: self.scopes.clone(),
            unavailable: self.unavailable.clone(),
            levels: self.options.levels,
            following_since: self.following_since,
            roots: self.roots.clone(),
            table: stats,
        }
    }

    fn without_metadata(&self) -> Option<usize> {
        Dir::open(self.options.jobs_dir.as_ref()?).ok()?;
        let running = self.runs.values().filter(|t| t.end().is_none() && t.job.id.is_some());
        // The file names its job; what is guessed without it does not.
        Some(running.filter(|t| t.job.metadata.job_id.is_none()).count())
    }

    /// How many jobs run.
    pub fn running(&self) -> usize {
        let there = self.by_dir.values().filter_map(|run| self.runs.get(run));
        there.filter(|t| matches!(t.state, RunState::Running) && t.job.id.is_some()).count()
    }

    /// A reader has got a whole exposition now, with the ends of these jobs in it.
    pub fn delivered(&mut self, reader: &Reader, jobs: &[Arc<Job>]) {
        let (read_by, forgotten) = self.readers.seen(reader, Instant::now());
        if forgotten != ReadBy::default() {
            for end in self.runs.values_mut().filter_map(|tracked| tracked.end_mut()) {
                end.read_by = end.read_by.without(forgotten);
            }
        }
        for job in jobs.iter().filter(|job| !job.is_running()) {
            if let Some(end) = self.runs.get_mut(&job.run).and_then(|tracked| tracked.end_mut()) {
                end.read_by = end.read_by.and(read_by);
            }
        }
    }

    /// Whether the readers have this end.
    pub(super) fn is_delivered(&self, end: &End) -> bool {
        end.read_by.count() >= self.options.readers
    }

    /// Whether a run with this end need not be exported any more: its readers have it and the retention is over, or the
    /// longest retention is.
    pub(super) fn is_retained_enough(&self, end: &End, now: Instant) -> bool {
        let ended_for = now.saturating_duration_since(end.at);
        ended_for > self.options.retention_max
            || (self.is_delivered(end) && ended_for > self.options.retention)
    }

    /// Whether the next run of the job may be shown in the place of one with this end. It is, once all readers have the end.
    /// When the retention is over, one reader is enough; and none is needed on a node that had none for the longest
    /// retention, once a snapshot had the end. A run that is shown remains so: a reader that comes or is forgotten later
    /// changes nothing.
    fn makes_room(&self, end: &End, now: Instant) -> bool {
        let retention_is_over = now.saturating_duration_since(end.at) > self.options.retention;
        let somebody_has_it = end.read_by.count() > 0;
        let nobody_reads = || !self.readers.any_within(self.options.retention_max, now);
        end.made_room
            || self.is_delivered(end)
            || (retention_is_over && (somebody_has_it || (end.shown && nobody_reads())))
    }

    /// Labels depend on how many slurmd share the host, and on names that take their time.
    pub(super) fn relabel(&mut self) {
        for tracked in self.runs.values_mut() {
            let labels = labels(&tracked.job, &self.options.job_labels, &self.users, self.several);
            if tracked.job.labels != labels {
                Arc::make_mut(&mut tracked.job).labels = labels;
            }
        }
    }
}

/// The labels of each series of a job.
pub(super) fn labels(
    job: &Job,
    wanted: &[JobLabel],
    users: &Users,
    several: bool,
) -> Vec<(&'static str, String)> {
    let mut labels = Vec::with_capacity(1 + usize::from(several) + wanted.len());
    if let Some(id) = job.id {
        labels.push(("jobid", id.to_string()));
    }
    if let Some(node) = job.slurm_node.as_ref().filter(|_| several) {
        labels.push(("slurm_node", node.to_string()));
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    for label in wanted {
        let metadata = &job.metadata;
        labels.push(match label {
            JobLabel::User => {
                let name = job.uid.and_then(|uid| users.name(uid)).map(|name| name.to_string());
                let uid = || job.uid.map(|uid| uid.to_string());
                ("user", name.or_else(|| metadata.user.clone()).or_else(uid).unwrap_or_default())
            }
            JobLabel::Account => ("account", text(&metadata.account)),
            JobLabel::Partition => ("partition", text(&metadata.partition)),
            JobLabel::Qos => ("qos", text(&metadata.qos)),
        });
    }
    labels
}
