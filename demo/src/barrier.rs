//! Lets either the collectors read the simulated files or the simulator write them.
//!
//! The kernel's counters of a cgroup and of its children belong to one moment. Files written one after the other do not, and
//! attribution would find CPU time that no job used. So the simulator writes only while no collector reads, and it writes
//! just before a collector starts. The collectors do not know of that: every method of their traits is forwarded here.
//! None of these methods may have a default, or the default would run instead.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use exposition::Section;
use jobledger_exporter::collector::interval_reader::{Call, IntervalSource};
use jobledger_exporter::collector::{Built, Collector, SourceError};
use kernel_files::Buffer;
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup, SlurmCgroup};

/// How old the files may be when a collector starts. Collectors relate time and energy to the moment of the reading, so files
/// that are a second old would misplace a second's energy.
const FRESH: Duration = Duration::from_millis(50);
/// Longer than any write. After that the collector reads the files as they are.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// What wakes the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// A collector is about to read.
    Publish,
    /// The same of GPUs, which are not read from files.
    PublishGpus,
    /// The simulation ends.
    Stop,
}

/// The latest writes.
#[derive(Debug)]
struct Published {
    files: Instant,
    gpus: Instant,
    /// Writes of the files so far, and of the GPUs with or without them.
    files_written: u64,
    gpus_written: u64,
}

#[derive(Debug)]
struct Inner {
    files: RwLock<()>,
    published: Mutex<Published>,
    written: Condvar,
    wake: Sender<Wake>,
}

/// A lock for many readers or one writer.
#[derive(Debug, Clone)]
pub(crate) struct Barrier(Arc<Inner>);

impl Barrier {
    /// `wake` wakes the simulator.
    pub(super) fn new(wake: Sender<Wake>) -> Self {
        let now = Instant::now();
        let published = Mutex::new(Published { files: now, gpus: now, files_written: 0, gpus_written: 0 });
        Self(Arc::new(Inner { files: RwLock::default(), published, written: Condvar::new(), wake }))
    }

    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.0.files.read()
    }

    /// Like [`Self::reading`], after the simulator has written the current state.
    fn reading_fresh(&self) -> RwLockReadGuard<'_, ()> {
        self.await_fresh(Wake::Publish, |published| (published.files, published.files_written));
        self.reading()
    }

    fn await_fresh(&self, wake: Wake, of: impl Fn(&Published) -> (Instant, u64)) {
        let mut published = self.0.published.lock();
        let (at, before) = of(&published);
        if at.elapsed() > FRESH && self.0.wake.send(wake).is_ok() {
            self.0.written.wait_while_for(&mut published, |now| of(now).1 == before, WRITE_TIMEOUT);
        }
    }

    /// Runs `write` while no collector reads. It returns whether it wrote the files, too, and not the GPUs alone.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> (bool, T)) -> T {
        let writing = self.0.files.write();
        let at = Instant::now();
        let (files, result) = write();
        drop(writing);
        let mut published = self.0.published.lock();
        published.gpus = at;
        published.gpus_written += 1;
        if files {
            published.files = at;
            published.files_written += 1;
        }
        drop(published);
        self.0.written.notify_all();
        result
    }

    /// Makes a collector read only while nothing is written.
    pub(crate) fn guard(&self, built: Built) -> Built {
        let observer =
            built.observer.map(|inner| -> Arc<dyn JobObserver> { Arc::new(Guarded(inner, self.clone())) });
        let source =
            built.source.map(|inner| -> Arc<dyn IntervalSource> { Arc::new(Guarded(inner, self.clone())) });
        Built {
            collector: Box::new(Guarded(built.collector, self.clone())),
            observer,
            source,
            durable: None,
            summary: built.summary,
        }
    }

    /// Runs `read` on fresh GPUs while nothing is written.
    pub(super) fn read_gpus<T>(&self, read: impl FnOnce() -> T) -> T {
        self.await_fresh(Wake::PublishGpus, |published| (published.gpus, published.gpus_written));
        let _reading = self.reading();
        read()
    }
}

struct Guarded<T>(T, Barrier);

impl Collector for Guarded<Box<dyn Collector>> {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let _reading = self.1.reading_fresh();
        self.0.collect(snapshot, out)
    }
}

impl IntervalSource for Guarded<Arc<dyn IntervalSource>> {
    fn read_now(&self, call: Call) {
        let _reading = self.1.reading_fresh();
        self.0.read_now(call);
    }

    fn due(&self) -> Option<Instant> {
        self.0.due()
    }
}

impl JobObserver for Guarded<Arc<dyn JobObserver>> {
    fn initial_scan_done(&self) {
        self.0.initial_scan_done();
    }

    fn job_started(&self, job: &Job) {
        let _reading = self.1.reading();
        self.0.job_started(job);
    }

    fn cpus_assigned(&self, job: &Job, buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.cpus_assigned(job, buffer);
    }

    fn step_grew(&self, job: &Job, step: Option<u32>) {
        let _reading = self.1.reading();
        self.0.step_grew(job, step);
    }

    fn job_left_node(&self, run: JobRunId) {
        let _reading = self.1.reading();
        self.0.job_left_node(run);
    }

    fn before_walk(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.before_walk(scopes, buffer);
    }

    fn before_end(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.before_end(scopes, buffer);
    }

    fn checkpoint(&self, job: &Job, step: Option<u32>, levels: Levels, buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.checkpoint(job, step, levels, buffer);
    }

    fn cgroup_removed(&self, gone: &RemovedCgroup<'_>, buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.cgroup_removed(gone, buffer);
    }

    fn job_removed(&self, run: JobRunId, disposition: Disposition) {
        self.0.job_removed(run, disposition);
    }
}
