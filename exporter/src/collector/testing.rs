//! What the collectors' tests share: a machine laid out in a scratch directory, a scene of it, its exposition.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{BuildContext, Built, CollectError, Entry, Levels, LifeHook, Scene, Vanished};
use crate::cgroup::{Cgroup, Controller};
use crate::kernel_file::{Buffer, Dir};
use crate::metric::{Section, encode_openmetrics};
use crate::roots::Roots;
use crate::slurm::{Job, JobId, LifeId, Step, StepId, Task, TaskId, Users};

/// A scratch directory with `cgroup`, `proc`, `sys` and `dev`, removed at the end.
pub(crate) struct Machine {
    pub(crate) path: PathBuf,
}

impl Machine {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("jobledger-unit-{}-{number}", std::process::id()));
        for dir in ["cgroup", "proc", "sys", "dev"] {
            std::fs::create_dir_all(path.join(dir)).unwrap();
        }
        Self { path }
    }

    /// Writes a file, its directories included: `cgroup/job_1/cpu.stat`. A cgroup is alive: it has `cgroup.procs`.
    pub(crate) fn write(&self, file: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let below = |dir: &&Path| dir.starts_with(self.path.join("cgroup"));
        for dir in path.ancestors().skip(1).take_while(below).filter(|d| !d.join("cgroup.procs").exists()) {
            std::fs::write(dir.join("cgroup.procs"), "").unwrap();
        }
        std::fs::write(path, content).unwrap();
        self
    }

    /// Removes a file or a directory.
    pub(crate) fn remove(&self, path: &str) -> &Self {
        let path = self.path.join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        self
    }

    pub(crate) fn roots(&self) -> Roots {
        let at = |dir: &str| self.path.join(dir);
        Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev"))
    }

    /// A v2 cgroup at `cgroup/<path>`.
    pub(crate) fn v2(&self, path: &str) -> Cgroup {
        Cgroup::v2(Dir::open(&self.path.join("cgroup").join(path)).unwrap())
    }

    /// A v1 cgroup: hierarchies by their names, as in `("cpu,cpuacct", "slurm/uid_0/job_1")`.
    pub(crate) fn v1(&self, dirs: &[(&str, &str)]) -> Cgroup {
        let open = |(hierarchy, path): &(&str, &str)| {
            let controllers = hierarchy.split(',').filter_map(Controller::from_v1_name).collect();
            (controllers, Dir::open(&self.path.join("cgroup").join(hierarchy).join(path)).unwrap())
        };
        Cgroup::v1(dirs.iter().map(open).collect())
    }

    /// A scene of these jobs.
    pub(crate) fn scene(&self, jobs: Vec<Job>) -> Scene {
        Scene {
            jobs: jobs.into_iter().map(Arc::new).collect(),
            pending: Vec::new(),
            stale: Vec::new(),
            scopes: Vec::new(),
            unavailable: None,
            levels: Levels::default(),
            roots: Arc::new(self.roots()),
            table: Default::default(),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.path));
    }
}

/// A running job with steps (`("0", &["0", "1"])`: a step and its tasks).
pub(crate) fn job(id: u32, cgroup: Cgroup, steps: &[(&str, &[&str])]) -> Job {
    let mut ordinals = 0..;
    let mut steps_of = Vec::new();
    for (step, tasks) in steps {
        let tasks = tasks
            .iter()
            .map(|t| Task { id: TaskId::parse(t.as_bytes()).unwrap(), ordinal: ordinals.next().unwrap() });
        steps_of.push(Step {
            id: StepId::parse(step.as_bytes()).unwrap(),
            name: Arc::from(format!("step_{step}")),
            ordinal: 0,
            tasks: tasks.collect(),
            since: Instant::now(),
            ended: None,
        });
    }
    for (step, ordinal) in steps_of.iter_mut().zip(ordinals) {
        step.ordinal = ordinal;
    }
    let inode = cgroup.dirs().next().and_then(|dir| dir.stat().ok()).map_or(0, |stat| stat.inode);
    Job {
        life: LifeId(u64::from(id)),
        first_life: LifeId(u64::from(id)),
        id: Some(JobId(id)),
        sluid: None,
        slurm_node: None,
        since: Instant::now(),
        started: 1000.0,
        ended: None,
        inode,
        cgroup: Arc::new(cgroup),
        uid: Some(1001),
        metadata: Arc::default(),
        steps: steps_of,
        labels: vec![("jobid", id.to_string())],
    }
}

/// Builds a collector and gives what it makes of a scene: its outcome and its OpenMetrics text.
pub(crate) fn collect(entry: &Entry, scene: &Scene) -> (Result<(), CollectError>, String) {
    collect_many(entry, &[scene]).pop().unwrap()
}

/// The same for several scenes, one after the other, by one collector.
pub(crate) fn collect_many(entry: &Entry, scenes: &[&Scene]) -> Vec<(Result<(), CollectError>, String)> {
    let mut bench = Bench::new(entry, scenes.first().unwrap());
    scenes.iter().map(|scene| bench.collect(scene)).collect()
}

/// A collector whose source is read when jobs come and go, as a node's exporter has it.
pub(crate) fn built(entry: &Entry, context: &BuildContext) -> Built {
    let built = (entry.build)(context);
    built.source.iter().for_each(|source| context.attendance.attend(source));
    built
}

/// A collector at work, for tests that follow it through the life of a job.
pub(crate) struct Bench {
    built: Built,
    buffer: Buffer,
}

impl Bench {
    pub(crate) fn new(entry: &Entry, scene: &Scene) -> Self {
        Self::with_users(entry, scene, Users::start(Box::new(|_| None)).unwrap())
    }

    pub(crate) fn with_users(entry: &Entry, scene: &Scene, users: Users) -> Self {
        Self::with_context(entry, &BuildContext::new(scene.roots.clone(), Arc::new(users)))
    }

    pub(crate) fn with_context(entry: &Entry, context: &BuildContext) -> Self {
        Self { built: built(entry, context), buffer: Buffer::default() }
    }

    /// The ear to jobs' lives.
    pub(crate) fn life(&self) -> Arc<dyn LifeHook> {
        self.built.life.clone().unwrap()
    }

    /// What a scrape gives: its outcome and its OpenMetrics text.
    pub(crate) fn collect(&mut self, scene: &Scene) -> (Result<(), CollectError>, String) {
        let mut section = Section::default();
        let outcome = self.built.collector.collect(scene, &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    /// SLURM may have bound the job.
    pub(crate) fn bound(&mut self, job: &Job) {
        self.built.life.clone().unwrap().bound(job, &mut self.buffer);
    }

    /// Something of the job ended.
    pub(crate) fn checkpoint(&mut self, job: &Job) {
        let life = self.built.life.clone().unwrap();
        life.checkpoint(job, None, Levels::default(), &mut self.buffer);
    }

    /// The job's directory is gone.
    pub(crate) fn vanished(&mut self, job: &Job) {
        let gone = Vanished { job, others: Some(&[]), scopes: &[], alone: true };
        self.built.life.clone().unwrap().vanished(&gone, &mut self.buffer);
    }
}

/// The job as if it and its steps had been there for so long.
pub(crate) fn aged(job: &Job, by: Duration) -> Job {
    let since = Instant::now().checked_sub(by).unwrap();
    let mut job = Job { since, ..job.clone() };
    job.steps.iter_mut().for_each(|step| step.since = since);
    job
}

/// The job after its end.
pub(crate) fn ended(job: &Job) -> Job {
    Job { ended: Some(2000.5), ..job.clone() }
}

/// The value of a sample in an exposition.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}
