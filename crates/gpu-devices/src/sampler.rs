//! The thread that reads a vendor's GPUs: periodically, and soon after jobs come and go.
//!
//! A driver's call may hang for ever. Then only this thread is stuck: no other thread waits for it, none is started in
//! its place, and it goes on when the call returns.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::SourceError;
use parking_lot::{Condvar, Mutex};
use worker_threads::Worker;

use super::{Backend, Sample, Vendor, Wanted};

/// A call that takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The same for the first reading: until then nothing is known about the GPUs.
const FIRST: Duration = Duration::from_secs(3);
/// Readings are at least this far apart, and take at most a fiftieth of the time: a reading delays the job's own calls to
/// the driver.
const CLOSEST: Duration = Duration::from_millis(500);
const COST: u32 = 50;
/// Readings are at most this many periods apart, whatever they cost: after a call that hung for long, readings go on soon.
const FURTHEST: u32 = 3;

/// The time between readings that take `took`.
fn apart(took: Duration, period: Duration) -> Duration {
    took.saturating_mul(COST).min(period.saturating_mul(FURTHEST))
}

/// The default of the standard library: a vendor's library may need it.
const STACK: usize = 2 << 20;

/// Takes a sample, on the sampler's thread.
pub type Deliver = Box<dyn Fn(Result<Sample, SourceError>) + Send>;
/// Makes the backend on that thread.
pub type Make = Box<dyn FnOnce() -> Box<dyn Backend> + Send>;

/// The state of a sampler. The words are the `state` label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SamplerState {
    /// Its first reading is under way.
    Starting,
    /// It reads.
    Running,
    /// The last reading failed.
    Failed(SourceError),
    /// A reading does not return.
    Hanging,
    /// The driver is released by order.
    Released,
}

impl SamplerState {
    /// Words of all of them.
    pub const WORDS: [&'static str; 5] = ["starting", "running", "failed", "hanging", "released"];

    /// The `state` label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Failed(_) => "failed",
            Self::Hanging => "hanging",
            Self::Released => "released",
        }
    }
}

#[derive(Debug)]
struct State {
    wanted: Wanted,
    due: Instant,
    busy: Option<Instant>,
    last: Option<Instant>,
    took: Duration,
    readings: u64,
    /// The next reading includes what is not wanted otherwise.
    everything: bool,
    outcome: Option<Result<(), SourceError>>,
    /// A release of the driver is requested, and done.
    release: bool,
    released: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// For those who wait for a reading or a release.
    done: Condvar,
    period: Duration,
}

/// One vendor's thread.
#[derive(Debug)]
pub struct Sampler {
    /// The vendor of these GPUs.
    pub vendor: Vendor,
    shared: Arc<Shared>,
    worker: Worker,
}

impl Sampler {
    /// Starts to read at once and then every `period`.
    pub fn start(vendor: Vendor, period: Duration, make: Make, deliver: Deliver) -> std::io::Result<Self> {
        let state = State {
            // No job's GPUs are known yet.
            wanted: Wanted { processes: true },
            due: Instant::now(),
            busy: None,
            last: None,
            took: Duration::ZERO,
            readings: 0,
            everything: false,
            outcome: None,
            release: false,
            released: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), done: Condvar::new(), period });
        let ours = shared.clone();
        let name = match vendor {
            Vendor::Nvidia => "gpu-nvidia",
            Vendor::Amd => "gpu-amd",
            Vendor::Intel => "gpu-intel",
        };
        let worker = Worker::new(name, STACK);
        worker.start(move || {
            let mut backend = make();
            move || ours.round(backend.as_mut(), &deliver)
        })?;
        Ok(Self { vendor, shared, worker })
    }

    /// Has it read soon: jobs came or went.
    pub fn soon(&self) {
        let mut state = self.shared.state.lock();
        let apart = CLOSEST.max(apart(state.took, self.shared.period));
        let earliest = state.last.map_or_else(Instant::now, |last| last + apart);
        if earliest < state.due {
            state.due = earliest;
            self.worker.notify();
        }
    }

    /// Sets what is read beyond the defaults.
    pub fn want(&self, wanted: Wanted) {
        self.shared.state.lock().wanted = wanted;
    }

    /// Requests the release of the driver. Returns whether it was released within `patience`.
    pub fn release(&self, patience: Duration) -> bool {
        let mut state = self.shared.state.lock();
        state.release = true;
        self.worker.notify();
        self.shared.done.wait_while_for(&mut state, |state| !state.released, patience);
        state.released
    }

    /// Has it read again.
    pub fn resume(&self) {
        let mut state = self.shared.state.lock();
        state.release = false;
        state.due = Instant::now();
        self.worker.notify();
    }

    /// Its state now.
    pub fn sampler_state(&self) -> SamplerState {
        let state = self.shared.state.lock();
        let patience = if state.outcome.is_none() { FIRST } else { PATIENCE };
        match &state.outcome {
            _ if state.busy.is_some_and(|since| since.elapsed() > patience) => SamplerState::Hanging,
            _ if state.released => SamplerState::Released,
            None => SamplerState::Starting,
            Some(Ok(())) => SamplerState::Running,
            Some(Err(error)) => SamplerState::Failed(error.clone()),
        }
    }

    /// Waits until the first reading is over, for at most `patience`.
    pub fn settle(&self, patience: Duration) {
        let mut state = self.shared.state.lock();
        self.shared.done.wait_while_for(&mut state, |s| s.outcome.is_none() && !s.released, patience);
    }

    /// Has everything read at once, unless the last reading failed, and waits for that, for at most `patience`.
    pub fn read_anew(&self, patience: Duration) {
        self.read_at_once(true, patience);
    }

    /// The same with what is wanted alone.
    pub fn read_now(&self, patience: Duration) {
        self.read_at_once(false, patience);
    }

    fn read_at_once(&self, everything: bool, patience: Duration) {
        let mut state = self.shared.state.lock();
        if !matches!(state.outcome, Some(Ok(()))) {
            return;
        }
        let before = state.readings;
        state.everything |= everything;
        state.due = Instant::now();
        self.worker.notify();
        self.shared.done.wait_while_for(&mut state, |s| s.readings == before && !s.released, patience);
    }

    /// How long the last reading took.
    pub fn took(&self) -> Duration {
        self.shared.state.lock().took
    }
}

impl Shared {
    /// Releases the driver if that was requested, else reads if that is due. Returns when the next reading is due; `None`
    /// while the driver is released.
    fn round(&self, backend: &mut dyn Backend, deliver: &Deliver) -> Option<Instant> {
        let mut state = self.state.lock();
        let began = Instant::now();
        if state.release {
            if !state.released {
                state.busy = Some(began);
                drop(state);
                backend.release();
                state = self.state.lock();
                (state.busy, state.released) = (None, true);
                self.done.notify_all();
            }
            // An order to resume may have come meanwhile.
            return (!state.release).then_some(began);
        }
        if began < state.due {
            return Some(state.due);
        }
        (state.released, state.busy) = (false, Some(began));
        let everything = std::mem::take(&mut state.everything);
        let wanted = Wanted { processes: state.wanted.processes || everything };
        drop(state);
        // A bug here must not look like a driver that hangs.
        let sample = catch_unwind(AssertUnwindSafe(|| backend.sample(wanted)));
        let sample = sample.unwrap_or(Err(SourceError::Panicked));
        let outcome = sample.as_ref().map(|_| ()).map_err(Clone::clone);
        deliver(sample);
        let mut state = self.state.lock();
        state.busy = None;
        state.took = began.elapsed();
        state.last = Some(began);
        state.due = began + self.period.max(apart(state.took, self.period));
        state.readings += 1;
        state.outcome = Some(outcome);
        self.done.notify_all();
        Some(state.due)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Reports each call, and waits for its result.
    struct Scripted {
        called: Sender<&'static str>,
        leave: Receiver<Result<(), SourceError>>,
    }

    impl Backend for Scripted {
        fn vendor(&self) -> Vendor {
            Vendor::Nvidia
        }

        fn is_present(&self) -> bool {
            true
        }

        fn sample(&mut self, _wanted: Wanted) -> Result<Sample, SourceError> {
            self.called.send("sample").unwrap();
            let now = Instant::now();
            self.leave.recv().unwrap_or(Ok(())).map(|()| Sample {
                vendor: Vendor::Nvidia,
                began: now,
                ended: now,
                units: Vec::new(),
                facts: Vec::new(),
                failed: Vec::new(),
            })
        }

        fn release(&mut self) {
            self.called.send("release").unwrap();
        }
    }

    const LONG: Duration = jobledger_testkit::wait::LONGEST;

    fn next(calls: &Receiver<&'static str>) -> &'static str {
        jobledger_testkit::wait::until("a call", || calls.try_recv().map_err(|e| e.to_string()))
    }

    fn begin(period: Duration) -> (Sampler, Receiver<&'static str>, Sender<Result<(), SourceError>>) {
        let (called, calls) = channel();
        let (leave, may_leave) = channel();
        let make = move || -> Box<dyn Backend> { Box::new(Scripted { called, leave: may_leave }) };
        let sampler = Sampler::start(Vendor::Nvidia, period, Box::new(make), Box::new(|_| {})).unwrap();
        (sampler, calls, leave)
    }

    #[test]
    fn it_reads_at_once_and_again_when_jobs_come_and_go_but_not_too_often() {
        let (sampler, calls, leave) = begin(Duration::from_secs(3600));
        assert_eq!(next(&calls), "sample");
        assert_eq!(sampler.sampler_state(), SamplerState::Starting);
        leave.send(Ok(())).unwrap();
        sampler.settle(LONG);
        assert_eq!(sampler.sampler_state(), SamplerState::Running);
        let notified = Instant::now();
        sampler.soon();
        sampler.soon();
        assert_eq!(next(&calls), "sample");
        assert!(notified.elapsed() > CLOSEST / 2, "not at once after the one before");
        leave.send(Err(SourceError::TimedOut)).unwrap();
        assert!(calls.recv_timeout(Duration::from_millis(300)).is_err(), "notified twice, read once");
        sampler.read_anew(LONG);
        assert!(calls.try_recv().is_err(), "what fails is not asked at once");
        assert_eq!(sampler.sampler_state(), SamplerState::Failed(SourceError::TimedOut));
    }

    #[test]
    fn slow_readings_are_rare_and_one_that_hung_is_soon_followed_by_another() {
        let period = Duration::from_secs(10);
        let after = |took| apart(Duration::from_millis(took), period);
        assert_eq!([after(100), after(400)], [5000, 20_000].map(Duration::from_millis));
        assert_eq!([after(9000), after(3_600_000)], [period * 3; 2], "gauges are still fresh then");
    }

    #[test]
    fn the_driver_is_released_and_opened_again() {
        let (sampler, calls, leave) = begin(Duration::from_secs(3600));
        assert_eq!(next(&calls), "sample");
        assert!(!sampler.release(Duration::from_millis(20)), "it hangs in a reading");
        leave.send(Ok(())).unwrap();
        assert!(sampler.release(LONG));
        assert_eq!(next(&calls), "release");
        assert_eq!(sampler.sampler_state(), SamplerState::Released);
        sampler.soon();
        assert!(calls.recv_timeout(Duration::from_millis(700)).is_err(), "not read while released");
        sampler.resume();
        assert_eq!(next(&calls), "sample");
    }

    #[test]
    fn nobody_waits_for_a_reading_that_hangs() {
        let (sampler, calls, _leave) = begin(Duration::from_millis(1));
        assert_eq!(next(&calls), "sample");
        let (slept, ()) = jobledger_testkit::wait::quiet_time(|| {
            sampler.soon();
            sampler.want(Wanted { processes: true });
            drop(sampler);
        });
        assert!(slept < Duration::from_secs(5), "{slept:?}");
        assert!(calls.recv_timeout(Duration::from_millis(50)).is_err(), "no second one beside it");
    }
}
