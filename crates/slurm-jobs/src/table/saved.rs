//! The table as it survives a restart of the exporter.
//!
//! A directory with the same path and inode as before is the same run: SLURM makes a directory for each. What is gone
//! when the node was looked at ended some time since it was seen last; that moment is the end that is known.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use cgroups::{Cgroup, Version};
use clocks::Moment;
use durable_state::instant;
use serde::{Deserialize, Serialize};

use super::Table;
use super::show::labels;
use crate::job_run::{End, JobRun, RunState, Seen};
use crate::metadata::Metadata;
use crate::readers::{ReadBy, Readers};
use crate::scope::join;
use crate::{Job, JobId, JobRunId, Sluid, SlurmCgroup, Step, StepId, Task, TaskId};

/// The table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedTable {
    next_run: u64,
    several: bool,
    following_since: f64,
    runs: Vec<SavedRun>,
    readers: Readers,
}

impl SavedTable {
    /// The runs in it.
    pub fn runs(&self) -> BTreeSet<JobRunId> {
        self.runs.iter().map(|saved| saved.run).collect()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedRun {
    run: JobRunId,
    first_run: JobRunId,
    id: Option<JobId>,
    sluid: Option<Sluid>,
    slurm_node: Option<Arc<str>>,
    #[serde(with = "instant")]
    since: Instant,
    started: Moment,
    ended: Option<Moment>,
    v1: bool,
    scope: u64,
    dir: String,
    path: String,
    inode: u64,
    uid: Option<u32>,
    metadata: Arc<Metadata>,
    steps: Vec<SavedStep>,
    next_ordinal: u32,
    fresh: bool,
    state: SavedState,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedStep {
    id: StepId,
    name: Arc<str>,
    ordinal: u32,
    tasks: Vec<(TaskId, u32, Option<f64>)>,
    #[serde(with = "instant")]
    since: Instant,
    began: Option<f64>,
    #[serde(with = "instant::option")]
    ended: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum SavedState {
    Found,
    Running,
    LeftBehind(SavedEnd),
    Ended(SavedEnd),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct SavedEnd {
    #[serde(with = "instant")]
    at: Instant,
    read_by: ReadBy,
    shown: bool,
    made_room: bool,
    has_run: bool,
}

impl From<End> for SavedEnd {
    fn from(End { at, read_by, shown, made_room, has_run }: End) -> Self {
        Self { at, read_by, shown, made_room, has_run }
    }
}

impl From<SavedEnd> for End {
    fn from(SavedEnd { at, read_by, shown, made_room, has_run }: SavedEnd) -> Self {
        Self { at, read_by, shown, made_room, has_run }
    }
}

impl SavedState {
    fn of(state: &RunState) -> Self {
        match state {
            RunState::Found => Self::Found,
            RunState::Running => Self::Running,
            RunState::LeftBehind(end) => Self::LeftBehind((*end).into()),
            RunState::Ended(end) => Self::Ended((*end).into()),
        }
    }

    fn restored(self) -> RunState {
        match self {
            Self::Found => RunState::Found,
            Self::Running => RunState::Running,
            Self::LeftBehind(end) => RunState::LeftBehind(end.into()),
            Self::Ended(end) => RunState::Ended(end.into()),
        }
    }
}

impl SavedStep {
    fn of(step: &Step) -> Self {
        Self {
            id: step.id,
            name: step.name.clone(),
            ordinal: step.ordinal,
            tasks: step.tasks.iter().map(|task| (task.id, task.ordinal, task.began)).collect(),
            since: step.since,
            began: step.began,
            ended: step.ended,
        }
    }

    fn restored(self) -> Step {
        let tasks = self.tasks.into_iter().map(|(id, ordinal, began)| Task { id, ordinal, began });
        Step {
            id: self.id,
            name: self.name,
            ordinal: self.ordinal,
            tasks: tasks.collect(),
            since: self.since,
            began: self.began,
            ended: self.ended,
        }
    }
}

impl SavedRun {
    fn of(tracked: &JobRun) -> Self {
        let job = &tracked.job;
        Self {
            run: job.run,
            first_run: job.first_run,
            id: job.id,
            sluid: job.sluid,
            slurm_node: job.slurm_node.clone(),
            since: job.since,
            started: job.started,
            ended: job.ended,
            v1: job.cgroup.version() == Version::V1,
            scope: tracked.scope,
            dir: tracked.dir.clone(),
            path: tracked.path.clone(),
            inode: inode(&job.cgroup).unwrap_or(tracked.inode),
            uid: job.uid,
            metadata: job.metadata.clone(),
            steps: job.steps.iter().map(SavedStep::of).collect(),
            next_ordinal: tracked.next_ordinal,
            fresh: tracked.fresh,
            state: SavedState::of(&tracked.state),
        }
    }

    /// Whether a directory at its path is its own. On v1 each hierarchy has an inode, and the one that comes first may
    /// be another now.
    fn is_at(&self, cgroup: Option<&Cgroup>, inode: u64) -> bool {
        let Some(cgroup) = cgroup else { return false };
        match cgroup.version() {
            Version::V2 => !self.v1 && self.inode == inode,
            Version::V1 => {
                self.v1 && cgroup.dirs().any(|dir| dir.stat().is_ok_and(|s| s.inode == self.inode))
            }
        }
    }

    /// The run, in this cgroup or in one that is gone.
    fn restored(self, cgroup: Option<Cgroup>) -> JobRun {
        let version = if self.v1 { Version::V1 } else { Version::V2 };
        let job = Job {
            run: self.run,
            first_run: self.first_run,
            id: self.id,
            sluid: self.sluid,
            slurm_node: self.slurm_node,
            since: self.since,
            started: self.started,
            ended: self.ended,
            cgroup: Arc::new(cgroup.unwrap_or_else(|| Cgroup::gone(version))),
            inode: self.inode,
            uid: self.uid,
            metadata: self.metadata,
            steps: self.steps.into_iter().map(SavedStep::restored).collect(),
            labels: Vec::new(),
        };
        let mut tracked = JobRun::new(job, self.scope, self.dir, self.path, self.inode, self.fresh);
        tracked.next_ordinal = self.next_ordinal;
        tracked.state = self.state.restored();
        tracked
    }
}

/// v1: the inode in the hierarchy that comes first now; more of them may have come since the run was found.
fn inode(cgroup: &Cgroup) -> Option<u64> {
    if cgroup.version() == Version::V2 {
        return None;
    }
    cgroup.dirs().next()?.stat().ok().map(|stat| stat.inode)
}

impl Table {
    /// What is to be saved.
    pub fn save(&self) -> SavedTable {
        SavedTable {
            next_run: self.next_run,
            several: self.several,
            following_since: self.following_since,
            runs: self.runs.values().map(|tracked| SavedRun::of(tracked)).collect(),
            readers: self.readers.clone(),
        }
    }

    /// Takes over what an exporter before this one saw at a moment, before the node is looked at.
    pub fn restore(&mut self, saved: SavedTable, seen: Instant) {
        self.next_run = self.next_run.max(saved.next_run);
        self.several |= saved.several;
        self.last_seen = Some(seen);
        self.following_since = saved.following_since;
        self.readers = saved.readers;
        for saved in saved.runs {
            self.next_run = self.next_run.max(saved.run.0);
            match saved.state {
                SavedState::Ended(end) => {
                    let run = saved.run;
                    self.insert(saved, None);
                    self.retain(end.at, run);
                }
                SavedState::Found | SavedState::Running | SavedState::LeftBehind(_) => {
                    self.awaited.insert(saved.path.clone(), saved);
                }
            }
        }
    }

    fn insert(&mut self, saved: SavedRun, cgroup: Option<Cgroup>) -> JobRunId {
        let mut tracked = saved.restored(cgroup);
        let run = tracked.run();
        let labels = labels(&tracked.job, &self.options.job_labels, &self.users, self.several);
        Arc::make_mut(&mut tracked.job).labels = labels;
        self.runs.insert(run, Box::new(tracked));
        run
    }

    /// The run from before the restart whose directory this is.
    pub(super) fn revive(
        &mut self,
        scope: &SlurmCgroup,
        dir: &str,
        cgroup: Option<&Cgroup>,
        inode: u64,
    ) -> Option<JobRunId> {
        let path = join(scope.path(), dir);
        if !self.awaited.get(&path)?.is_at(cgroup, inode) {
            return None;
        }
        let cgroup = scope.cgroup.open_below(dir).ok()?.without_absent_controllers(&mut self.buffer);
        let mut saved = self.awaited.remove(&path)?;
        saved.scope = scope.inode;
        saved.inode = inode;
        tracing::debug!(path, run = saved.run.0, "following a job as before");
        let key = (scope.inode, dir.to_owned());
        let run = self.insert(saved, Some(cgroup));
        let tracked = self.runs.get_mut(&run)?;
        tracked.watch_again(&self.roots, &mut self.watches);
        let found = matches!(tracked.state, RunState::Found);
        if found && tracked.has_processes(&mut self.buffer) != Some(false) {
            tracked.state = RunState::Running;
        }
        self.by_dir.insert(key, run);
        Some(run)
    }

    /// The node was looked at: the runs that were not found again went while no exporter looked. Nothing that they used since
    /// is proven to be theirs.
    pub(super) fn end_awaited(&mut self) {
        let awaited: Vec<SavedRun> = self.awaited.drain().map(|(_, saved)| saved).collect();
        let mut went: Vec<JobRunId> = awaited.into_iter().map(|saved| self.insert(saved, None)).collect();
        went.sort_unstable();
        let seen = self.last_seen.take().map(Seen::at);
        for run in went {
            if let Some(tracked) = self.runs.get_mut(&run) {
                tracked.last_seen = seen;
            }
            self.end(run, false, None);
        }
    }
}

#[cfg(test)]
mod tests;
