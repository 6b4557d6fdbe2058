//! What the collectors' tests share: a collector at work on a scratch machine, and its exposition.

use std::sync::Arc;
use std::time::Instant;

use exposition::{Section, encode_openmetrics};
use kernel_files::Buffer;
pub(crate) use slurm_jobs::testing::{aged, ended, job, snapshot_of};
use slurm_jobs::{Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup, Users};
pub(crate) use test_machine::Machine;

use crate::collector::durable::{Before, Durable};
use crate::collector::{BuildContext, Built, Entry, SourceError};

/// Builds a collector and gives what it makes of a snapshot: its outcome and its OpenMetrics text.
pub(crate) fn collect(entry: &Entry, snapshot: &NodeSnapshot) -> (Result<(), SourceError>, String) {
    collect_many(entry, &[snapshot]).pop().unwrap()
}

/// The same for several snapshots, one after the other, by one collector.
pub(crate) fn collect_many(
    entry: &Entry,
    scenes: &[&NodeSnapshot],
) -> Vec<(Result<(), SourceError>, String)> {
    let mut bench = Bench::new(entry, scenes.first().unwrap());
    scenes.iter().map(|snapshot| bench.collect(snapshot)).collect()
}

/// A collector whose source is read when jobs come and go, as a node's exporter has it.
pub(crate) fn built(entry: &Entry, context: &BuildContext) -> Built {
    let built = (entry.build)(context);
    built.source.iter().for_each(|source| context.interval_reader.add(source));
    built
}

/// A collector at work, for tests that follow it through the run of a job.
pub(crate) struct Bench {
    built: Built,
    buffer: Buffer,
}

impl Bench {
    pub(crate) fn new(entry: &Entry, snapshot: &NodeSnapshot) -> Self {
        Self::with_users(entry, snapshot, Users::start(Box::new(|_| None)).unwrap())
    }

    pub(crate) fn with_users(entry: &Entry, snapshot: &NodeSnapshot, users: Users) -> Self {
        Self::with_context(entry, &BuildContext::new(snapshot.roots.clone(), Arc::new(users)))
    }

    pub(crate) fn with_context(entry: &Entry, context: &BuildContext) -> Self {
        Self { built: built(entry, context), buffer: Buffer::default() }
    }

    /// What survives a restart.
    pub(crate) fn durable(&self) -> Arc<dyn Durable> {
        self.built.durable.clone().unwrap()
    }

    /// The collector of an exporter that comes after this one and knows these runs still.
    pub(crate) fn restarted(&self, entry: &Entry, context: &BuildContext, runs: &[JobRunId]) -> Self {
        let after = Self::with_context(entry, context);
        restore(&*self.durable(), &*after.durable(), runs);
        after
    }

    /// The observer of job runs.
    pub(crate) fn run(&self) -> Arc<dyn JobObserver> {
        self.built.observer.clone().unwrap()
    }

    /// What a scrape gives: its outcome and its OpenMetrics text.
    pub(crate) fn collect(&mut self, snapshot: &NodeSnapshot) -> (Result<(), SourceError>, String) {
        let mut section = Section::default();
        let outcome = self.built.collector.collect(snapshot, &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    /// SLURM may have bound the job.
    pub(crate) fn bound(&mut self, job: &Job) {
        self.built.observer.clone().unwrap().cpus_assigned(job, &mut self.buffer);
    }

    /// Something of the job ended.
    pub(crate) fn checkpoint(&mut self, job: &Job) {
        let run = self.built.observer.clone().unwrap();
        run.checkpoint(job, None, Levels::default(), &mut self.buffer);
    }

    /// The job's directory is gone.
    pub(crate) fn vanished(&mut self, job: &Job) {
        let gone = RemovedCgroup { job, others: Some(&[]), scopes: &[], alone: true };
        self.built.observer.clone().unwrap().cgroup_removed(&gone, &mut self.buffer);
    }
}

/// Saves one and restores it into another, which knows these runs still.
pub(crate) fn restore(before: &dyn Durable, after: &dyn Durable, runs: &[JobRunId]) {
    let seen = Before { runs: runs.iter().copied().collect(), seen: Instant::now() };
    after.restore(&before.save().unwrap(), &seen).unwrap();
}

/// The value of a sample in an exposition.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}
