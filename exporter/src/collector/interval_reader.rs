//! The thread that reads the node's counters when jobs come and go.
//!
//! What a node measures is split over jobs interval by interval, so an interval has to end when a job starts or ends.
//! Some readings may hang (an HCA's counters come from its firmware), and the thread that follows the jobs must not:
//! so they are made on a thread of their own, which is replaced when it does not come back. It sleeps without a timeout
//! unless a source has to be read from time to time.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use attribution::{Occupancy, Occupants, SavedOccupancy};
use parking_lot::Mutex;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId};
use worker_threads::Worker;

use crate::collector::durable::{Before, Durable, Unreadable};

/// A reading that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a source is called, the strongest reason last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// The source is due.
    Due,
    /// GPUs were read: all that is compared with their energy is to be read at the same time.
    Gpus,
    /// The meter of the whole node was read: its parts are to be read at the same time.
    Meter,
    /// Jobs came or went among others.
    Shared,
    /// Jobs came or went, and the only job on the node changed.
    Exclusive,
}

/// A source that splits what the node measures.
pub trait IntervalSource: Send + Sync {
    /// Reads and charges the time since the last reading. Must not wait for a call of its own that hangs on another
    /// thread.
    fn read_now(&self, call: Call);

    /// When it has to be read next if no job comes or goes and there is no scrape.
    fn due(&self) -> Option<Instant> {
        None
    }
}

/// The occupancy of the node, and the sources that split by it.
pub struct IntervalReader {
    occupancy: Mutex<Occupancy>,
    sources: Mutex<Vec<Weak<dyn IntervalSource>>>,
    /// The strongest call since the latest round.
    called: Mutex<Option<Call>>,
    worker: Worker,
}

impl std::fmt::Debug for IntervalReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntervalReader").field("occupancy", &self.occupancy).finish_non_exhaustive()
    }
}

impl IntervalReader {
    /// A reader without jobs, sources and thread.
    pub fn new() -> Self {
        Self {
            occupancy: Mutex::new(Occupancy::new(Instant::now())),
            sources: Mutex::default(),
            called: Mutex::default(),
            worker: Worker::new("ledger", 512 << 10),
        }
    }

    /// Adds a source, which is read for as long as somebody holds it.
    pub fn add(&self, source: &Arc<dyn IntervalSource>) {
        self.sources.lock().push(Arc::downgrade(source));
    }

    /// The jobs on the node between two readings.
    pub fn between(&self, from: Instant, to: Instant) -> Occupants {
        self.occupancy.lock().between(from, to)
    }

    /// How long a run had the node for itself.
    pub fn alone(&self, run: JobRunId) -> Duration {
        self.occupancy.lock().alone(run, Instant::now())
    }

    /// Checks when sources are due: one of them was read for the first time, or was notified.
    pub fn look(self: &Arc<Self>) {
        self.start();
        self.worker.notify();
    }

    /// GPUs were read.
    pub fn gpus_were_read(self: &Arc<Self>) {
        self.call(Call::Gpus);
    }

    /// The meter of the whole node was read.
    pub fn meter_was_read(self: &Arc<Self>) {
        self.call(Call::Meter);
    }

    fn call(self: &Arc<Self>, call: Call) {
        {
            let mut called = self.called.lock();
            *called = (*called).max(Some(call));
        }
        if self.worker.busy().is_some_and(|time| time > PATIENCE) {
            tracing::warn!("reading the node's counters hangs; another thread goes on");
            self.start_thread();
        }
        self.look();
    }

    fn start(self: &Arc<Self>) {
        if !self.worker.is_started() && !self.sources.lock().is_empty() {
            self.start_thread();
        }
    }

    fn start_thread(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        if let Err(error) = self.worker.start(move || move || this.upgrade()?.round()) {
            tracing::error!(%error, "no thread to read the node's counters on");
        }
    }

    fn sources(&self) -> Vec<Arc<dyn IntervalSource>> {
        self.sources.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Reads every source after a call, else those that are due. Returns when the next one is due.
    fn round(&self) -> Option<Instant> {
        let (call, now) = (self.called.lock().take(), Instant::now());
        let sources = self.sources();
        for source in &sources {
            if call.is_some() || source.due().is_some_and(|due| due <= now) {
                source.read_now(call.unwrap_or(Call::Due));
            }
        }
        sources.iter().filter_map(|source| source.due()).min()
    }
}

impl Default for IntervalReader {
    fn default() -> Self {
        Self::new()
    }
}

/// The interval reader's observer of jobs.
pub struct OccupancyObserver(pub Arc<IntervalReader>);

impl JobObserver for OccupancyObserver {
    fn initial_scan_done(&self) {
        let exclusive = self.0.occupancy.lock().looked(Instant::now());
        self.0.call(if exclusive { Call::Exclusive } else { Call::Shared });
    }

    fn job_started(&self, job: &Job) {
        let mut occupancy = self.0.occupancy.lock();
        let (exclusive, looked) = (occupancy.appeared(job.run, Instant::now()), occupancy.has_looked());
        drop(occupancy);
        // Before all jobs of the start are known nothing is read: an interval from before a restart may end with it.
        if looked {
            self.0.call(if exclusive { Call::Exclusive } else { Call::Shared });
        }
    }

    fn job_left_node(&self, run: JobRunId) {
        let mut occupancy = self.0.occupancy.lock();
        let (exclusive, looked) = (occupancy.left(run, Instant::now()), occupancy.has_looked());
        drop(occupancy);
        if looked {
            self.0.call(if exclusive { Call::Exclusive } else { Call::Shared });
        }
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.0.occupancy.lock().forget(run);
    }
}

impl Durable for IntervalReader {
    fn save(&self) -> Option<Vec<u8>> {
        self.occupancy.lock().save().map(|saved| durable_state::encode(&saved))
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: SavedOccupancy = durable_state::decode(section)?;
        self.occupancy.lock().restore(saved, before.seen, |run| before.knows(run));
        Ok(())
    }
}
