//! The jobs' monitoring groups: made, kept in step with the jobs' threads, read, removed.

mod about;
mod members;
mod read;
mod refusal;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use about::About;
use cgroups::Cgroup;
use kernel_files::{NodeFiles, ReadError, Roots, SourceError};
use read::take;
pub use read::{Round, Rounds};
use readings::{Counter, Remainder};
pub use refusal::Refusal;
use rustix::io::Errno;
pub use saved::SavedMonitor;
use serde::{Deserialize, Serialize};
use slurm_jobs::{JobId, JobRunId};

use super::parse::Unread;
use super::quantity::Quantity;
use super::tree::Tree;

/// What our groups' names begin with; whatever begins so is ours to remove.
pub(super) const PREFIX: &str = "jobledger_job_";
const WHAT: &str = "resctrl";
const NEEDS: &str = "resctrl, mounted (mount -t resctrl resctrl /sys/fs/resctrl), and a CPU that monitors bandwidth (cqm_mbm_total)";

/// A job that is there.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which run of it.
    pub run: JobRunId,
    /// Its id, where known.
    pub id: Option<JobId>,
    /// Its cgroup.
    pub cgroup: Arc<Cgroup>,
}

/// One of our groups.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Group {
    run: JobRunId,
    /// Name of the control group that it is below; empty for the root.
    control: String,
    /// One per quantity and domain or package.
    counters: BTreeMap<(Quantity, u32), Counter>,
    /// Made by us just now, so that its bytes count from 0.
    fresh: bool,
    /// Its bytes have no counter in some domain (`mbm_event` mode).
    uncounted: bool,
}

/// How long all of a job's threads are in groups of ours.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    since: Option<Instant>,
    monitored: Duration,
}

impl Watched {
    fn pause(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.monitored += now.saturating_duration_since(since);
        }
    }
}

/// All of it.
pub struct Monitor {
    tree: Box<dyn Tree>,
    files: NodeFiles,
    /// Since the groups of an earlier run were removed.
    about: Option<About>,
    /// By path. Those of an exporter before this one are among them, until it is known whether they are there still.
    groups: BTreeMap<String, Group>,
    watched: BTreeMap<JobRunId, Watched>,
    /// By control group, quantity, and domain or package.
    remainders: BTreeMap<(String, Quantity, u32), Remainder>,
    /// What other programs' monitoring groups counted, by path. It is no job's.
    others: BTreeMap<(String, Quantity, u32), Counter>,
    /// By path of a group that is not ours: one that is made again is another one.
    identities: BTreeMap<String, u64>,
    /// By name: groups of ours that another program removed, or moved below another control group.
    vanished: BTreeMap<String, Group>,
    /// How often a job could not be monitored whole.
    pub refused: BTreeMap<Refusal, u64>,
    /// Readings that gave no number.
    pub unread: BTreeMap<(Quantity, Unread), u64>,
    problem: Option<SourceError>,
    /// The last error that has no class of its own.
    errno: i32,
    ended: bool,
}

fn below(control: &str, path: &str) -> String {
    if control.is_empty() { path.to_owned() } else { format!("{control}/{path}") }
}

impl Monitor {
    /// Nothing is read or made yet.
    pub fn new(roots: &Arc<Roots>, tree: Box<dyn Tree>) -> Self {
        Self {
            tree,
            files: NodeFiles::new(roots),
            about: None,
            groups: BTreeMap::new(),
            watched: BTreeMap::new(),
            remainders: BTreeMap::new(),
            others: BTreeMap::new(),
            identities: BTreeMap::new(),
            vanished: BTreeMap::new(),
            refused: BTreeMap::new(),
            unread: BTreeMap::new(),
            problem: None,
            errno: Errno::IO.raw_os_error(),
            ended: false,
        }
    }

    /// What this machine's resctrl has, once it was looked at.
    pub fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }

    /// For how long all threads of a job were in groups of ours; `None` if they never were.
    pub fn monitored(&self, run: JobRunId, now: Instant) -> Option<Duration> {
        let watched = self.watched.get(&run)?;
        let running = watched.since.map(|since| now.saturating_duration_since(since)).unwrap_or_default();
        Some(watched.monitored + running).filter(|monitored| !monitored.is_zero())
    }

    /// Whether all threads of a job are in groups of ours.
    pub fn is_monitored(&self, run: JobRunId) -> bool {
        self.watched.get(&run).is_some_and(|watched| watched.since.is_some())
    }

    /// A run is not exported any more.
    pub fn forget(&mut self, run: JobRunId) {
        self.watched.remove(&run);
    }

    /// Why not all jobs are monitored.
    pub fn problem(&self) -> Option<&SourceError> {
        self.problem.as_ref()
    }

    /// The control groups, the root first.
    fn controls(&self) -> Result<Vec<String>, ReadError> {
        let others = self.tree.directories("")?;
        let others =
            others.into_iter().filter(|name| !matches!(name.as_str(), "info" | "mon_groups" | "mon_data"));
        Ok(std::iter::once(String::new()).chain(others).collect())
    }

    /// Follows the jobs that are there: groups of those that went are read a last time and removed, threads that are in no
    /// group of ours yet are put into one.
    pub fn follow(&mut self, jobs: &[Job], now: Instant) -> Rounds {
        let mut last = Rounds::default();
        if self.ended {
            return last;
        }
        self.problem = self.look().err();
        if self.problem.is_some() {
            self.watched.values_mut().for_each(|watched| watched.pause(now));
            return last;
        }
        let there: BTreeSet<JobRunId> = jobs.iter().map(|job| job.run).collect();
        self.vanished.retain(|_, group| there.contains(&group.run));
        let gone: Vec<String> = self
            .groups
            .iter()
            .filter(|(_, group)| !there.contains(&group.run))
            .map(|(path, _)| path.clone())
            .collect();
        if !gone.is_empty() {
            self.finish(&gone, &mut last);
        }
        let left = self.watched.iter_mut().filter(|(run, _)| !there.contains(run));
        left.for_each(|(_, watched)| watched.pause(now));
        for job in jobs {
            let outcome = self.put(job);
            let watched = self.watched.entry(job.run).or_default();
            watched.pause(now);
            match outcome {
                Ok(whole) => watched.since = whole.then_some(now),
                Err(refusal) => self.note(refusal),
            }
        }
        self.assign_counters();
        last
    }

    fn note(&mut self, refusal: Refusal) {
        *self.refused.entry(refusal).or_default() += 1;
        self.problem.get_or_insert_with(|| refusal.error(self.errno));
    }

    fn refuse(&mut self, errno: Errno) -> Refusal {
        self.errno = errno.raw_os_error();
        Refusal::of(errno)
    }

    fn finish(&mut self, gone: &[String], last: &mut Rounds) {
        // The program that changes groups now may rely on the present ones: next time.
        let Ok(Some(_lock)) = self.tree.lock() else { return };
        let places = self.all_places();
        for path in gone {
            let Some(mut group) = self.groups.remove(path) else { continue };
            for (quantity, place) in &places {
                let value = self.value(path, *quantity, *place);
                take(&mut group, (*quantity, *place), value, last.entry(*quantity).or_default());
            }
            match self.tree.remove(path) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    tracing::warn!(group = path, %errno, "could not remove a monitoring group");
                    group.fresh = false;
                    self.groups.insert(path.clone(), group);
                }
            }
        }
    }

    /// Removes all of our groups, for good: the exporter ends.
    pub fn remove_all(&mut self) {
        self.ended = true;
        for path in std::mem::take(&mut self.groups).into_keys() {
            // What remains is removed at the next start.
            let _ = self.tree.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests;
