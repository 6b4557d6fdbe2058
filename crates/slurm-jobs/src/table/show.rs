//! The jobs as a scrape shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{JobLabel, Table};
use crate::job_run::RunState;
use crate::{Job, JobRunId, NodeSnapshot, Users};

impl Table {
    /// The jobs as they are now.
    pub fn snapshot(&mut self) -> NodeSnapshot {
        self.before_walk();
        self.verify();
        self.purge();
        if self.options.job_labels.contains(&JobLabel::User) {
            self.relabel();
        }
        let mut shown: BTreeMap<_, JobRunId> = BTreeMap::new();
        let mut hidden: Vec<JobRunId> = Vec::new();
        // Runs of one job in the order they were seen. One of them is exported: an ended one until a scrape was
        // served with it, then the next; the others wait.
        for tracked in self.runs.values() {
            let left = matches!(&tracked.state, RunState::LeftBehind(end) if end.has_run);
            if left && tracked.retained_enough(self.options.retention) {
                // Its end was exported, and nothing of it changes any more.
                continue;
            }
            let (Some(id), true) = (tracked.job.id, tracked.has_run()) else {
                hidden.push(tracked.run());
                continue;
            };
            let key = (id, tracked.job.slurm_node.clone());
            match shown.get(&key).and_then(|run| self.runs.get(run)) {
                Some(before) if before.end().is_none_or(|end| !end.exported) => hidden.push(tracked.run()),
                Some(_) | None => {
                    shown.insert(key, tracked.run());
                }
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

    /// How many jobs run.
    pub fn running(&self) -> usize {
        let there = self.by_dir.values().filter_map(|run| self.runs.get(run));
        there.filter(|t| matches!(t.state, RunState::Running) && t.job.id.is_some()).count()
    }

    /// A scrape was served with these jobs in it.
    pub fn exported(&mut self, jobs: &[Arc<Job>]) {
        for job in jobs.iter().filter(|j| !j.is_running()) {
            if let Some(tracked) = self.runs.get_mut(&job.run) {
                tracked.set_exported();
            }
        }
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
    let mut labels = Vec::with_capacity(2 + wanted.len());
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
