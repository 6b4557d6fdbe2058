//! The jobs' monitoring groups: made, kept in step with the jobs' threads, read, removed.

mod read;
mod refusal;
mod saved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::Cgroup;
use kernel_files::parse::parse_integer;
use kernel_files::processes::parse_pids;
use kernel_files::{NodeFiles, ReadError, Roots, SourceError};
pub use read::Round;
use read::take;
use readings::{Counter, Remainder};
pub use refusal::Refusal;
use rustix::io::Errno;
pub use saved::SavedMonitor;
use serde::{Deserialize, Serialize};
use slurm_jobs::{JobId, JobRunId};

use super::parse::{Features, parse_assign_mode, parse_features, parse_task_groups};
use super::tasks::threads;
use super::tree::Tree;

/// What our groups' names begin with; whatever begins so is ours to remove.
pub(super) const PREFIX: &str = "jobledger_job_";
/// How often a job's threads are looked at in one go until no new one is found.
const MOST_LOOKS: u32 = 8;
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
    /// One per domain.
    counters: BTreeMap<u32, Counter>,
    /// Made by us just now, so that it counts from 0.
    fresh: bool,
}

/// How long all of a job's threads are in groups of ours.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    since: Option<Instant>,
    monitored: Duration,
}

/// What this machine's resctrl has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// What can be monitored.
    pub features: Features,
    /// How many groups there can be, at most.
    pub rmids: Option<u64>,
    /// How counters are given to groups; empty where the kernel does not say.
    pub mode: String,
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
    /// By control group and domain.
    remainders: BTreeMap<(String, u32), Remainder>,
    /// How often a job could not be monitored whole.
    pub refused: BTreeMap<Refusal, u64>,
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
            refused: BTreeMap::new(),
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

    /// Reads the present groups. Those of an exporter that was killed go on if its accounts do; others are removed.
    fn begin(&mut self) -> Result<(), SourceError> {
        let failed = |error| SourceError::reading(WHAT, NEEDS)(error);
        if self.about.is_some() {
            return Ok(());
        }
        let features = self.tree.read("info/L3_MON/mon_features").map_err(failed)?;
        let features = parse_features(&features).map_err(SourceError::parsing("info/L3_MON/mon_features"))?;
        if !features.total {
            return Err(failed(ReadError::Gone));
        }
        let rmids = self.tree.read("info/L3_MON/num_rmids").ok().and_then(|bytes| parse_integer(&bytes).ok());
        let mode = self.tree.read("info/L3_MON/mbm_assign_mode").ok();
        let mode = mode.as_deref().and_then(parse_assign_mode).unwrap_or_default().to_owned();
        let mut there = BTreeSet::new();
        for control in self.controls().map_err(failed)? {
            let groups = below(&control, "mon_groups");
            for name in self.tree.directories(&groups).unwrap_or_default() {
                let path = format!("{groups}/{name}");
                if self.groups.contains_key(&path) {
                    there.insert(path);
                } else if name.starts_with(PREFIX) {
                    // A group that could not be removed is found at the next start, and holds an RMID until then.
                    let removed = self.tree.remove(&path);
                    tracing::info!(group = name, ?removed, "removed a monitoring group of an earlier run");
                }
            }
        }
        self.groups.retain(|path, _| there.contains(path));
        self.about = Some(About { features, rmids, mode });
        Ok(())
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
    pub fn follow(&mut self, jobs: &[Job], now: Instant) -> Round {
        let mut last = Round::default();
        if self.ended {
            return last;
        }
        self.problem = self.begin().err();
        if self.problem.is_some() {
            return last;
        }
        let there: BTreeSet<JobRunId> = jobs.iter().map(|job| job.run).collect();
        let gone: Vec<String> = self
            .groups
            .iter()
            .filter(|(_, group)| !there.contains(&group.run))
            .map(|(path, _)| path.clone())
            .collect();
        if !gone.is_empty() {
            self.finish(&gone, &mut last);
        }
        for (run, watched) in &mut self.watched {
            if !there.contains(run)
                && let Some(since) = watched.since.take()
            {
                watched.monitored += now.saturating_duration_since(since);
            }
        }
        for job in jobs {
            let outcome = self.put(job);
            let watched = self.watched.entry(job.run).or_default();
            if let Some(since) = watched.since.take() {
                watched.monitored += now.saturating_duration_since(since);
            }
            match outcome {
                Ok(whole) => watched.since = whole.then_some(now),
                Err(refusal) => {
                    *self.refused.entry(refusal).or_default() += 1;
                    self.problem.get_or_insert_with(|| refusal.error(self.errno));
                }
            }
        }
        last
    }

    fn finish(&mut self, gone: &[String], last: &mut Round) {
        // The program that changes groups now may rely on the present ones: next time.
        let Ok(Some(_lock)) = self.tree.lock() else { return };
        let domains = self.domains("");
        for path in gone {
            let Some(mut group) = self.groups.remove(path) else { continue };
            for domain in &domains {
                let value = self.value(path, *domain, "mbm_total_bytes");
                take(&mut group, *domain, value, last);
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

    /// Puts a job's threads into groups of ours until no new one is found; whether all of them are. What they fork from then
    /// on is born there.
    fn put(&mut self, job: &Job) -> Result<bool, Refusal> {
        for _ in 0..MOST_LOOKS {
            let there = threads(&job.cgroup).map_err(|_| Refusal::Failed)?;
            let mut missing = there;
            for (path, _) in self.groups.iter().filter(|(_, group)| group.run == job.run) {
                let tasks = self.tree.read(&format!("{path}/tasks")).unwrap_or_default();
                // A list that is torn ends where it is torn: then a thread is put in once more, which changes nothing.
                let _ = parse_pids(&tasks, |thread| {
                    missing.remove(&thread);
                });
            }
            if missing.is_empty() {
                return Ok(true);
            }
            for thread in missing {
                self.put_one(job, thread)?;
            }
        }
        Ok(false)
    }

    fn put_one(&mut self, job: &Job, thread: u32) -> Result<(), Refusal> {
        let Some(control) = self.control_of(thread)? else { return Ok(()) };
        let id = job.id.map_or_else(|| "unknown".to_owned(), |id| id.0.to_string());
        let name = below(&control, &format!("mon_groups/{PREFIX}{id}_{}", job.run.0));
        let known = self.groups.iter().find(|(_, group)| group.run == job.run && group.control == control);
        let path = match known {
            Some((path, _)) => path.clone(),
            None => self.make(name, job.run, control)?,
        };
        match self.tree.add_task(&path, thread) {
            // Gone, or moved to another control group meanwhile: the next look finds it there.
            Ok(()) | Err(Errno::SRCH | Errno::INVAL) => Ok(()),
            Err(errno) => {
                if matches!(errno, Errno::NOENT | Errno::NODEV) {
                    // Another program removed the group.
                    self.groups.remove(&path);
                }
                Err(self.refuse(errno))
            }
        }
    }

    fn refuse(&mut self, errno: Errno) -> Refusal {
        self.errno = errno.raw_os_error();
        Refusal::of(errno)
    }

    fn make(&mut self, path: String, run: JobRunId, control: String) -> Result<String, Refusal> {
        let lock = self.tree.lock();
        let _lock = lock.map_err(|errno| self.refuse(errno))?.ok_or(Refusal::Locked)?;
        let fresh = match self.tree.make(&path) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(self.refuse(errno)),
        };
        self.groups.insert(path.clone(), Group { run, control, counters: BTreeMap::new(), fresh });
        Ok(path)
    }

    /// The control group of a thread; `None` when it is gone.
    fn control_of(&mut self, thread: u32) -> Result<Option<String>, Refusal> {
        let bytes = match self.files.read(&format!("proc/{thread}/cpu_resctrl_groups")) {
            Ok(bytes) => bytes,
            Err(ReadError::Gone) => {
                let gone = self.files.stat_of(&format!("proc/{thread}")).is_err();
                // The file is there since Linux 5.6.
                return if gone { Ok(None) } else { self.search(thread) };
            }
            Err(_) => return Err(Refusal::Failed),
        };
        match parse_task_groups(bytes) {
            // It ended while it was read.
            _ if bytes.is_empty() => Ok(None),
            Ok(Some(groups)) if groups.monitor.is_empty() || groups.monitor.starts_with(PREFIX) => {
                Ok(Some(groups.control.to_owned()))
            }
            Ok(Some(_)) => Err(Refusal::Foreign),
            Ok(None) | Err(_) => Err(Refusal::Failed),
        }
    }

    /// The same from the groups' own lists; the root's, which is long, is not needed for that.
    fn search(&self, thread: u32) -> Result<Option<String>, Refusal> {
        let holds = |group: &str| {
            let tasks = self.tree.read(&below(group, "tasks")).unwrap_or_default();
            let mut found = false;
            let _ = parse_pids(&tasks, |task| found |= task == thread);
            found
        };
        let controls = self.controls().map_err(|_| Refusal::Failed)?;
        for control in &controls {
            let groups = below(control, "mon_groups");
            for name in self.tree.directories(&groups).unwrap_or_default() {
                if !name.starts_with(PREFIX) && holds(&format!("{groups}/{name}")) {
                    return Err(Refusal::Foreign);
                }
            }
        }
        let control = controls.into_iter().skip(1).find(|control| holds(control));
        Ok(Some(control.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests;
