//! The thread that reads the node's counters when jobs come and go, and who is there.
//!
//! What a node measures is split over jobs interval by interval, so an interval has to end when who is there changes.
//! Some of these readings may hang (an HCA's counters come from its firmware), which the thread that follows the jobs
//! must not: so they are made on a thread of their own, which is given up for a new one when it does not come back.
//! It sleeps without a timeout unless a source has to be read from time to time.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use attribution::{Occupancy, Occupants};
use parking_lot::{Condvar, Mutex};
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId};

/// A reading that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why a source is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Jobs came or went, and with them who has the node for itself.
    Exclusive,
    /// Jobs came or went among others.
    Shared,
    /// It said that it is due.
    Due,
}

/// A source that splits what the node measures.
pub trait IntervalSource: Send + Sync {
    /// Reads and charges the time since the last reading. Must not wait for a call of its own that hangs on another
    /// thread.
    fn read_now(&self, call: Call);

    /// When it has to be read although no job comes or goes and nobody scrapes.
    fn due(&self) -> Option<Instant> {
        None
    }
}

#[derive(Debug, Default)]
struct State {
    /// The most that was called for and not begun.
    called: Option<Call>,
    /// Which thread is in charge; one with another number ends.
    thread: u64,
    /// Since when it reads.
    busy: Option<Instant>,
    /// How often when sources are due may have changed.
    changes: u64,
}

/// Who is there, and the sources that want to know.
pub struct IntervalReader {
    occupancy: Mutex<Occupancy>,
    sources: Mutex<Vec<Weak<dyn IntervalSource>>>,
    state: Mutex<State>,
    wakeup: Condvar,
}

impl std::fmt::Debug for IntervalReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attendance").field("occupancy", &self.occupancy).finish_non_exhaustive()
    }
}

impl IntervalReader {
    /// Nobody is there, and no thread is started yet.
    pub fn new() -> Self {
        Self {
            occupancy: Mutex::new(Occupancy::new(Instant::now())),
            sources: Mutex::default(),
            state: Mutex::default(),
            wakeup: Condvar::new(),
        }
    }

    /// Has a source called from now on. It is known as long as somebody holds it.
    pub fn read_now(self: &Arc<Self>, source: &Arc<dyn IntervalSource>) {
        self.sources.lock().push(Arc::downgrade(source));
    }

    /// Who was there between two readings.
    pub fn between(&self, from: Instant, to: Instant) -> Occupants {
        self.occupancy.lock().between(from, to)
    }

    /// How long a run had the node for itself.
    pub fn alone(&self, run: JobRunId) -> Duration {
        self.occupancy.lock().alone(run, Instant::now())
    }

    /// Checks when sources are due: one of them was read for the first time, or was notified.
    pub fn look(self: &Arc<Self>) {
        self.state.lock().changes += 1;
        self.start();
        self.wakeup.notify_all();
    }

    fn notify(self: &Arc<Self>, call: Call) {
        {
            let mut state = self.state.lock();
            if state.called != Some(Call::Exclusive) {
                state.called = Some(call);
            }
            if state.busy.is_some_and(|since| since.elapsed() > PATIENCE) {
                tracing::warn!("reading the node's counters hangs; another thread goes on");
                state.thread += 1;
                state.busy = None;
                self.spawn_worker(state.thread);
            }
        }
        self.start();
        self.wakeup.notify_all();
    }

    fn start(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.thread == 0 && !self.sources.lock().is_empty() {
            state.thread = 1;
            self.spawn_worker(1);
        }
    }

    fn spawn_worker(self: &Arc<Self>, number: u64) {
        let interval_reader = Arc::downgrade(self);
        let work = move || {
            while let Some(interval_reader) = interval_reader.upgrade() {
                if !interval_reader.serve(number) {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("ledger".to_owned()).stack_size(512 << 10).spawn(work);
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to read the node's counters on");
        }
    }

    fn due(&self) -> Option<Instant> {
        let sources: Vec<_> = self.sources.lock().iter().filter_map(Weak::upgrade).collect();
        sources.iter().filter_map(|source| source.due()).min()
    }

    /// Waits for a call and has every source read; false when another thread is in charge.
    fn serve(&self, number: u64) -> bool {
        let call = loop {
            let changes = self.state.lock().changes;
            let due = self.due();
            let mut state = self.state.lock();
            if state.thread != number {
                return false;
            }
            // The wake-up came before a thread was there to take it.
            if state.changes != changes {
                continue;
            }
            if let Some(call) = state.called.take() {
                state.busy = Some(Instant::now());
                break call;
            }
            let now = Instant::now();
            match due {
                Some(due) if due <= now => {
                    state.busy = Some(now);
                    break Call::Due;
                }
                Some(due) => drop(self.wakeup.wait_until(&mut state, due)),
                None => self.wakeup.wait(&mut state),
            }
        };
        let sources: Vec<_> = self.sources.lock().iter().filter_map(Weak::upgrade).collect();
        let now = Instant::now();
        for source in sources {
            if call != Call::Due || source.due().is_some_and(|due| due <= now) {
                source.read_now(call);
            }
        }
        let mut state = self.state.lock();
        if state.thread == number {
            state.busy = None;
        }
        state.thread == number
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
        self.0.notify(if exclusive { Call::Exclusive } else { Call::Shared });
    }

    fn job_started(&self, job: &Job) {
        let exclusive = self.0.occupancy.lock().appeared(job.run, Instant::now());
        self.0.notify(if exclusive { Call::Exclusive } else { Call::Shared });
    }

    fn job_left_node(&self, run: JobRunId) {
        let exclusive = self.0.occupancy.lock().left(run, Instant::now());
        self.0.notify(if exclusive { Call::Exclusive } else { Call::Shared });
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.0.occupancy.lock().forget(run);
    }
}
