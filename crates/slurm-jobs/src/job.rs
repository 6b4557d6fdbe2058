//! A job, a step and a task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use cgroups::{Cgroup, Version, View};
use clocks::Moment;
use serde::{Deserialize, Serialize};

use super::metadata::Metadata;
use super::{JobId, NodeSnapshot, Sluid, StepId, TaskId};

/// One run of a job: a requeued job has the same id and another cgroup, so another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobRunId(pub u64);

/// A task of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Which one.
    pub id: TaskId,
    /// Its number among all tasks of the run, stable.
    pub ordinal: u32,
    /// When its counters were 0, seconds since the epoch: when its directory was seen being made, or when its step began.
    pub began: Option<f64>,
}

/// A step of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which one.
    pub id: StepId,
    /// Its directory's name.
    pub name: Arc<str>,
    /// Its number among all steps of the run, stable.
    pub ordinal: u32,
    /// Its tasks, those that ended too.
    pub tasks: Vec<Task>,
    /// Since when it is followed.
    pub since: Instant,
    /// When its counters were 0, seconds since the epoch: when its directory was seen being made, or when its slurmstepd
    /// started, which makes it. The directory itself does not say: its time is that of the first look at it, or of its
    /// last child (kernfs).
    pub began: Option<f64>,
    /// When its directory went away.
    pub ended: Option<Instant>,
}

impl Step {
    /// Takes when it began, unless that is known, for itself and for its tasks.
    pub(crate) fn began_by(&mut self, unix: f64) {
        let began = *self.began.get_or_insert(unix);
        self.tasks.iter_mut().for_each(|task| {
            task.began.get_or_insert(began);
        });
    }

    /// Its cgroup, seen from the job's.
    pub fn view<'a>(&self, job: &'a Job) -> Option<View<'a>> {
        job.cgroup.view().below(format_args!("{}", self.name))
    }

    /// The cgroup that holds its users' processes and limits: `user` on v2, itself on v1.
    pub fn user_view<'a>(&self, job: &'a Job) -> Option<View<'a>> {
        match job.cgroup.version() {
            Version::V2 => job.cgroup.view().below(format_args!("{}/user", self.name)),
            Version::V1 => self.view(job),
        }
    }

    /// A task's cgroup.
    pub fn task_view<'a>(&self, job: &'a Job, task: &Task) -> Option<View<'a>> {
        self.user_view(job)?.below(format_args!("task_{}", task.id))
    }
}

/// A job as it was when the [`NodeSnapshot`](slurm_jobs::NodeSnapshot) that holds it was made. Never changed afterwards.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which run.
    pub run: JobRunId,
    /// The first run in its directory: another one if SLURM left the directory behind and uses it again, so that its
    /// counters go on.
    pub first_run: JobRunId,
    /// Numeric id; `None` while the SLUID of its directory is not resolved.
    pub id: Option<JobId>,
    /// SLUID where SLURM gives it.
    pub sluid: Option<Sluid>,
    /// SLURM's name of the node, when several slurmd share this host.
    pub slurm_node: Option<Arc<str>>,
    /// Since when it is followed.
    pub since: Instant,
    /// Its start. Shown once, it never moves.
    pub started: Moment,
    /// Its end, while the job is retained: never before the start ([`Moment::at`]).
    pub ended: Option<Moment>,
    /// Its cgroup.
    pub cgroup: Arc<Cgroup>,
    /// Inode of its directory, on v2 the cgroup's id in the kernel (Linux 5.5); 0 if it was gone before it could be
    /// opened.
    pub inode: u64,
    /// Owner.
    pub uid: Option<u32>,
    /// What the prolog wrote (and hints, where allowed).
    pub metadata: Arc<Metadata>,
    /// Its steps, in the order they appeared, the ended ones too.
    pub steps: Vec<Step>,
    /// The labels of each of its series, `jobid` first.
    pub labels: Vec<(&'static str, String)>,
}

impl Job {
    /// Whether its cgroup is still there.
    pub fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    /// When the counters of its cgroup were 0, seconds since the epoch: at its start, but for a directory that SLURM uses
    /// again. When those began is not known.
    pub fn counters_began(&self) -> Option<f64> {
        (self.run == self.first_run).then_some(self.started.unix)
    }

    /// When what is counted for it since it is followed was 0: at its start, or when the exporter started.
    pub fn followed_from(&self, snapshot: &NodeSnapshot) -> Option<f64> {
        Some(self.started.unix.max(snapshot.following_since))
    }

    /// The same for a step or a task, which `began` then: it may be older than the exporter.
    pub fn part_followed_from(&self, began: Option<f64>, snapshot: &NodeSnapshot) -> Option<f64> {
        began.map(|began| began.max(snapshot.following_since)).or_else(|| self.followed_from(snapshot))
    }

    /// The steps that are exported. A step that is made again and the two spellings of the pending one are one
    /// series: the latest.
    pub fn exported_steps(&self) -> impl Iterator<Item = &Step> {
        let latest: HashMap<_, _> = self.steps.iter().map(|step| (step.id, step.ordinal)).collect();
        self.steps.iter().filter(move |step| latest.get(&step.id) == Some(&step.ordinal))
    }

    /// Its labels as the metric pipeline takes them.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.labels.iter().map(|(key, value)| (*key, value.as_str()))
    }
}
