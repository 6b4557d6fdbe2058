//! Jobs and snapshots for unit tests.
#![allow(clippy::unwrap_used, reason = "only tests use it: what fails here fails them")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::Cgroup;
use clocks::{Boottime, Moment};
use kernel_files::Roots;

use crate::{Job, JobId, JobRunId, Levels, NodeSnapshot, Step, StepId, Task, TaskId};

/// A moment so many seconds after the boot of a machine that was booted at the epoch.
pub fn moment(seconds: f64) -> Moment {
    let start = Moment { boottime: Boottime::from_nanoseconds(0), unix: 0.0 };
    start.at(start.boottime + Duration::from_secs_f64(seconds))
}

/// A snapshot with these jobs.
pub fn snapshot_of(roots: Roots, jobs: Vec<Job>) -> NodeSnapshot {
    NodeSnapshot {
        jobs: jobs.into_iter().map(Arc::new).collect(),
        pending: Vec::new(),
        stale: Vec::new(),
        scopes: Vec::new(),
        unavailable: None,
        levels: Levels::default(),
        following_since: 900.0,
        roots: Arc::new(roots),
        table: Default::default(),
    }
}

/// A running job with steps (`("0", &["0", "1"])`: a step and its tasks).
pub fn job(id: u32, cgroup: Cgroup, steps: &[(&str, &[&str])]) -> Job {
    let mut ordinals = 0..;
    let mut steps_of = Vec::new();
    for (step, tasks) in steps {
        let tasks = tasks.iter().map(|t| Task {
            id: TaskId::parse(t.as_bytes()).unwrap(),
            ordinal: ordinals.next().unwrap(),
            began: None,
        });
        steps_of.push(Step {
            id: StepId::parse(step.as_bytes()).unwrap(),
            name: Arc::from(format!("step_{step}")),
            ordinal: 0,
            tasks: tasks.collect(),
            since: Instant::now(),
            began: None,
            ended: None,
        });
    }
    for (step, ordinal) in steps_of.iter_mut().zip(ordinals) {
        step.ordinal = ordinal;
    }
    let inode = cgroup.dirs().next().and_then(|dir| dir.stat().ok()).map_or(0, |stat| stat.inode);
    Job {
        run: JobRunId(u64::from(id)),
        first_run: JobRunId(u64::from(id)),
        id: Some(JobId(id)),
        sluid: None,
        slurm_node: None,
        since: Instant::now(),
        started: moment(1000.0),
        ended: None,
        inode,
        cgroup: Arc::new(cgroup),
        uid: Some(1001),
        metadata: Arc::default(),
        steps: steps_of,
        labels: vec![("jobid", id.to_string())],
    }
}

/// The job as if it and its steps had been there for so long.
pub fn aged(job: &Job, by: Duration) -> Job {
    let since = Instant::now().checked_sub(by).unwrap();
    let mut job = Job { since, ..job.clone() };
    job.steps.iter_mut().for_each(|step| step.since = since);
    job
}

/// The job after its end.
pub fn ended(job: &Job) -> Job {
    Job { ended: Some(moment(2000.5)), ..job.clone() }
}
