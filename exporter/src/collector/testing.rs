//! What the collectors' tests share: a collector at work on a scratch machine, and its exposition.

use std::sync::Arc;

use exposition::{Section, encode_openmetrics};
use kernel_files::Buffer;
pub(crate) use slurm_jobs::testing::{aged, ended, job, snapshot_of};
use slurm_jobs::{Job, Levels, LifeHook, Scene, Users, Vanished};
pub(crate) use test_machine::Machine;

use crate::collector::{BuildContext, Built, CollectError, Entry};

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

/// The value of a sample in an exposition.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}
