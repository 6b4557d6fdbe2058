//! Keeps a collector and the simulator apart while either is at it.
//!
//! The kernel's counters of a group and of those below it are of one moment whenever they are read. Files that are
//! written one after the other are not, and the ledger would find time in between that nobody spent. So the
//! simulator writes while no collector reads, and before one begins; the collectors themselves do not know of it. Every method of their
//! traits is handed on here: none may have a default, or it would not be.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use exposition::Section;
use jobledger_exporter::collector::interval_reader::{Call, IntervalSource};
use jobledger_exporter::collector::{Built, CollectError, Collector};
use kernel_files::Buffer;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup, SlurmCgroup};

/// How old what is shown may be when a collector begins. Counters of time and energy go by the moment of the reading: a
/// second's staleness would be a second's energy more or less.
const FRESH: Duration = Duration::from_millis(20);
/// Longer than any writing; what is there is read then.
const PATIENCE: Duration = Duration::from_millis(500);

/// What wakes the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Somebody is about to read.
    Show,
    /// It is over.
    Stop,
}

/// When the files were written last, and how often they were.
#[derive(Debug)]
struct Shown {
    at: Instant,
    times: u64,
}

#[derive(Debug)]
struct Inner {
    files: RwLock<()>,
    shown: Mutex<Shown>,
    anew: Condvar,
    wake: Sender<Wake>,
}

/// Many read, or one writes.
#[derive(Debug, Clone)]
pub(crate) struct Barrier(Arc<Inner>);

impl Barrier {
    /// That of a simulator that listens to `wake`.
    pub(super) fn new(wake: Sender<Wake>) -> Self {
        let shown = Mutex::new(Shown { at: Instant::now(), times: 0 });
        Self(Arc::new(Inner { files: RwLock::default(), shown, anew: Condvar::new(), wake }))
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.shown.lock()
    }

    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        // It guards files, which are whole at any moment: a panic elsewhere changes nothing.
        self.0.files.read()
    }

    /// The same, of files that show what is so now.
    fn reading_fresh(&self) -> RwLockReadGuard<'_, ()> {
        let mut shown = self.shown();
        if shown.at.elapsed() > FRESH && self.0.wake.send(Wake::Show).is_ok() {
            let before = shown.times;
            self.0.anew.wait_while_for(&mut shown, |shown| shown.times == before, PATIENCE);
        }
        drop(shown);
        self.reading()
    }

    /// Writes while nobody reads.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let writing = self.0.files.write();
        let at = Instant::now();
        let result = write();
        drop(writing);
        let mut shown = self.shown();
        *shown = Shown { at, times: shown.times + 1 };
        drop(shown);
        self.0.anew.notify_all();
        result
    }

    /// Has a collector read only while nothing is written.
    pub(crate) fn guard(&self, built: Built) -> Built {
        let observer =
            built.observer.map(|inner| -> Arc<dyn JobObserver> { Arc::new(Guarded(inner, self.clone())) });
        let source =
            built.source.map(|inner| -> Arc<dyn IntervalSource> { Arc::new(Guarded(inner, self.clone())) });
        Built { collector: Box::new(Guarded(built.collector, self.clone())), observer, source }
    }

    /// Reads fresh files while nothing is written.
    pub(super) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        let _reading = self.reading_fresh();
        read()
    }
}

struct Guarded<T>(T, Barrier);

impl Collector for Guarded<Box<dyn Collector>> {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), CollectError> {
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

    fn job_left_node(&self, run: JobRunId) {
        let _reading = self.1.reading();
        self.0.job_left_node(run);
    }

    fn before_walk(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        let _reading = self.1.reading();
        self.0.before_walk(scopes, buffer);
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
