//! Meters that answer late, read on a thread of their own.
//!
//! A baseboard controller answers in up to seconds. A scrape gets what was read last, with the time at which that was.
//! The thread reads in its period while somebody wants to know, and sleeps otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::SourceError;
use parking_lot::{Condvar, Mutex};
use readings::LONGEST_GAP;
use worker_threads::Worker;

use super::{AfterReading, Meter, Sample, Zone};

/// A source that could not be found is looked for again after so many periods.
const AGAIN_PERIODS: u32 = 6;
/// An answer that is older than so many periods is no present value.
const STALE_PERIODS: u32 = 4;
/// A reading after a pause waits so long for an answer: files of a controller that is well are quick.
const PATIENCE: Duration = Duration::from_millis(200);
/// TLS needs more than the other threads.
const STACK: usize = 512 << 10;

/// Finds a meter; asks it, so that this may take long. `Unsupported` is final, and no failure.
pub(super) type Find = Box<dyn FnMut() -> Result<Box<dyn Meter>, SourceError> + Send>;

/// What was read of a zone last.
type Latest = Option<(Instant, Result<Sample, SourceError>)>;

/// What both sides know.
#[derive(Default)]
struct Board {
    zones: Vec<Zone>,
    latest: Vec<Latest>,
    skipped: Vec<usize>,
    refused: Vec<SourceError>,
    wanted: Option<Instant>,
    rounds: u64,
    after: Option<AfterReading>,
}

#[derive(Default)]
struct Shared {
    board: Mutex<Board>,
    round: Condvar,
}

/// Slow meters, with the zones that are known by now.
pub(super) struct Background {
    zones: Vec<Zone>,
    measured: Vec<Option<Instant>>,
    shared: Arc<Shared>,
    worker: Worker,
    period: Duration,
    /// What the thread begins with.
    begin: Option<Thread>,
}

impl Background {
    /// `None` without anything to read. The thread starts with the first reading, when the process has no privileges any more.
    pub(super) fn new(meters: Vec<Box<dyn Meter>>, finders: Vec<Find>, period: Duration) -> Option<Self> {
        if meters.is_empty() && finders.is_empty() {
            return None;
        }
        let shared = Arc::<Shared>::default();
        let mut thread =
            Thread { meters: Vec::new(), finders, shared: shared.clone(), period, read: None, find: None };
        meters.into_iter().for_each(|meter| thread.add(meter));
        let mut new = Self {
            zones: Vec::new(),
            measured: Vec::new(),
            shared,
            worker: Worker::new("node-meter", STACK),
            period,
            begin: Some(thread),
        };
        new.has_other_zones();
        Some(new)
    }

    /// Starts the thread, or has it look whether a reading is due.
    fn wake(&mut self) {
        let Some(mut thread) = self.begin.take() else { return self.worker.notify() };
        if let Err(error) = self.worker.start(move || move || thread.round()) {
            let error = SourceError::Driver { call: "a thread for slow meters", says: error.to_string() };
            self.shared.board.lock().refused.push(error);
        }
    }
}

impl Meter for Background {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn has_other_zones(&mut self) -> bool {
        let board = self.shared.board.lock();
        let others = board.zones.len() != self.zones.len();
        if others {
            self.zones.clone_from(&board.zones);
        }
        others
    }

    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        let mut board = self.shared.board.lock();
        let before = board.wanted.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) > LONGEST_GAP / 2) {
            let rounds = board.rounds;
            drop(board);
            self.wake();
            board = self.shared.board.lock();
            self.shared.round.wait_while_for(&mut board, |board| board.rounds == rounds, PATIENCE);
        }
        self.measured.clear();
        self.measured.resize(self.zones.len(), None);
        for (zone, latest) in board.latest.iter().enumerate().take(self.zones.len()) {
            let Some((at, reading)) = latest else { continue };
            let fresh = now.saturating_duration_since(*at) <= self.period * STALE_PERIODS;
            if let Some(measured) = self.measured.get_mut(zone) {
                *measured = Some(*at);
            }
            each(zone, if fresh { reading.clone() } else { Err(SourceError::TimedOut) });
        }
    }

    fn measured_at(&self, zone: usize) -> Option<Instant> {
        self.measured.get(zone).copied().flatten()
    }

    fn notify(&mut self, after: AfterReading) {
        self.shared.board.lock().after = Some(after);
    }

    fn refused(&self) -> Vec<SourceError> {
        self.shared.board.lock().refused.clone()
    }

    fn skip(&mut self, zone: usize) {
        let mut board = self.shared.board.lock();
        if let Some(latest) = board.latest.get_mut(zone) {
            *latest = None;
        }
        board.skipped.push(zone);
    }

    fn at_least_every(&self) -> Option<Duration> {
        None
    }
}

/// What the thread has.
struct Thread {
    /// Each with the number of its first zone.
    meters: Vec<(usize, Box<dyn Meter>)>,
    finders: Vec<Find>,
    shared: Arc<Shared>,
    period: Duration,
    read: Option<Instant>,
    find: Option<Instant>,
}

impl Thread {
    fn add(&mut self, meter: Box<dyn Meter>) {
        let mut board = self.shared.board.lock();
        let first = board.zones.len();
        board.zones.extend_from_slice(meter.zones());
        let zones = board.zones.len();
        board.latest.resize(zones, None);
        drop(board);
        self.meters.push((first, meter));
    }

    /// Reads what is due, and says when the next reading is.
    fn round(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = |last: Option<Instant>, period| last.is_none_or(|last: Instant| last + period <= now);
        if !self.finders.is_empty() && due(self.find, self.period * AGAIN_PERIODS) {
            self.find = Some(now);
            self.look();
        }
        let read = due(self.read, self.period);
        if read {
            self.read = Some(now);
            self.read_all();
        }
        let (wanted, after) = {
            let mut board = self.shared.board.lock();
            board.rounds += 1;
            (board.wanted, board.after.clone())
        };
        self.shared.round.notify_all();
        if let Some(after) = after.filter(|_| read) {
            after();
        }
        let wanted = wanted.is_some_and(|wanted| wanted.elapsed() <= LONGEST_GAP);
        let find =
            self.find.filter(|_| !self.finders.is_empty()).map(|find| find + self.period * AGAIN_PERIODS);
        let read = self.read.filter(|_| !self.meters.is_empty()).map(|read| read + self.period);
        [find, read].into_iter().flatten().min().filter(|_| wanted)
    }

    fn look(&mut self) {
        let mut refused = Vec::new();
        for mut find in std::mem::take(&mut self.finders) {
            match find() {
                Ok(meter) => self.add(meter),
                Err(SourceError::Unsupported { .. }) => {}
                Err(error) => {
                    self.finders.push(find);
                    refused.push(error);
                }
            }
        }
        self.shared.board.lock().refused = refused;
    }

    fn read_all(&mut self) {
        let skipped = std::mem::take(&mut self.shared.board.lock().skipped);
        for (first, meter) in &mut self.meters {
            let zones = meter.zones().len();
            skipped.iter().filter_map(|zone| zone.checked_sub(*first)).filter(|zone| *zone < zones).for_each(
                |zone| {
                    meter.skip(zone);
                },
            );
            let began = Instant::now();
            let mut readings = Vec::new();
            meter.read(began, &mut |zone, reading| readings.push((zone, reading)));
            let mut board = self.shared.board.lock();
            for (zone, reading) in readings {
                if let Some(latest) = board.latest.get_mut(*first + zone) {
                    *latest = Some((began, reading));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use jobledger_testkit::eventually;
    use kernel_files::parse::ParseError;
    use readings::Range;

    use super::super::{Domain, Source};
    use super::*;

    const PERIOD: Duration = Duration::from_millis(20);

    /// A controller that counts how often it was asked, and takes its time.
    struct Controller {
        zones: Vec<Zone>,
        asked: Arc<AtomicU64>,
        takes: Duration,
        skipped: bool,
    }

    fn controller(takes: Duration) -> (Box<Controller>, Arc<AtomicU64>) {
        let zone = Zone {
            domain: Domain::Node,
            socket: None,
            source: Source::Hwmon,
            name: "power_meter".to_owned(),
            estimated: true,
        };
        let asked = Arc::new(AtomicU64::new(0));
        (Box::new(Controller { zones: vec![zone], asked: asked.clone(), takes, skipped: false }), asked)
    }

    impl Meter for Controller {
        fn zones(&self) -> &[Zone] {
            &self.zones
        }

        fn read(&mut self, _now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
            std::thread::sleep(self.takes);
            let energy_uj = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if !self.skipped {
                each(0, Ok(Sample { energy_uj, range: Range::Full, epoch: 0, power_uw: None }));
            }
        }

        fn skip(&mut self, _zone: usize) {
            self.skipped = true;
        }

        fn at_least_every(&self) -> Option<Duration> {
            None
        }
    }

    fn read(meter: &mut Background) -> Vec<(usize, Result<u64, SourceError>)> {
        let mut readings = Vec::new();
        meter.read(Instant::now(), &mut |zone, reading| {
            readings.push((zone, reading.map(|sample| sample.energy_uj)));
        });
        readings
    }

    #[test]
    fn a_quick_controller_is_in_the_first_reading_and_is_asked_in_its_period() {
        let (meter, asked) = controller(Duration::ZERO);
        let mut background = Background::new(vec![meter], Vec::new(), PERIOD).unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let called = calls.clone();
        background.notify(Arc::new(move || {
            called.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(background.zones().len(), 1);
        assert_eq!(asked.load(Ordering::Relaxed), 0, "no thread before somebody reads");
        let began = Instant::now();
        assert_eq!(read(&mut background), [(0, Ok(1))]);
        let measured = background.measured_at(0).unwrap();
        assert!(measured >= began && measured <= Instant::now());
        eventually("it is asked again", || read(&mut background) != [(0, Ok(1))]);
        assert!(background.measured_at(0).unwrap() > measured);
        eventually("it calls after each reading", || calls.load(Ordering::Relaxed) >= 2);
        let most = began.elapsed().as_millis() / PERIOD.as_millis() + 1;
        assert!(u128::from(asked.load(Ordering::Relaxed)) <= most, "not more often than in its period");
    }

    #[test]
    fn a_controller_that_takes_its_time_delays_nobody() {
        let (meter, asked) = controller(Duration::from_millis(700));
        let mut background = Background::new(vec![meter], Vec::new(), PERIOD).unwrap();
        assert_eq!(read(&mut background), [], "nothing is known yet");
        assert_eq!(asked.load(Ordering::Relaxed), 0, "it was not waited for");
        // Each answer is older than four periods before the next one is here.
        eventually("it answers", || !read(&mut background).is_empty());
        eventually("its answer is old", || read(&mut background) == [(0, Err(SourceError::TimedOut))]);
    }

    #[test]
    fn a_source_that_is_found_later_has_its_zones_then_and_one_that_is_none_is_not_asked_again() {
        let tries = Arc::new(AtomicU64::new(0));
        let (of_find, of_none) = (tries.clone(), Arc::new(AtomicU64::new(0)));
        let nones = of_none.clone();
        let find: Find = Box::new(move || match of_find.fetch_add(1, Ordering::Relaxed) {
            0 => Err(SourceError::Malformed { file: "/dev/ipmi0", error: ParseError::new(1, "busy") }),
            _ => Ok(controller(Duration::ZERO).0),
        });
        let none: Find = Box::new(move || {
            of_none.fetch_add(1, Ordering::Relaxed);
            Err(SourceError::Unsupported { needs: "DCMI".to_owned() })
        });
        let mut background = Background::new(Vec::new(), vec![find, none], PERIOD).unwrap();
        assert_eq!(read(&mut background), []);
        assert_eq!(background.refused().iter().map(SourceError::reason).collect::<Vec<_>>(), ["malformed"]);
        eventually("it is found", || {
            read(&mut background);
            background.has_other_zones()
        });
        assert_eq!(background.zones().len(), 1);
        assert!(!background.has_other_zones(), "they are known now");
        eventually("it is read", || matches!(read(&mut background)[..], [(0, Ok(_))]));
        eventually("the other one is given up", || background.refused().is_empty());
        assert_eq!((tries.load(Ordering::Relaxed), nones.load(Ordering::Relaxed)), (2, 1));
    }

    #[test]
    fn a_zone_that_is_skipped_is_not_read() {
        let (meter, asked) = controller(Duration::ZERO);
        let mut background = Background::new(vec![meter], Vec::new(), PERIOD).unwrap();
        background.skip(0);
        for _ in 0..3 {
            let before = asked.load(Ordering::Relaxed);
            eventually("a round", || {
                assert_eq!(read(&mut background), []);
                asked.load(Ordering::Relaxed) > before
            });
        }
    }

    #[test]
    fn a_source_that_is_none_is_no_failure() {
        let none: Find = Box::new(|| Err(SourceError::Unsupported { needs: "DCMI".to_owned() }));
        let mut background = Background::new(Vec::new(), vec![none], PERIOD).unwrap();
        assert_eq!(read(&mut background), []);
        assert_eq!(background.refused(), []);
    }

    #[test]
    fn who_asks_after_a_long_time_gets_a_new_value() {
        let (meter, asked) = controller(Duration::ZERO);
        let mut background = Background::new(vec![meter], Vec::new(), PERIOD).unwrap();
        read(&mut background);
        background.shared.board.lock().wanted =
            Instant::now().checked_sub(LONGEST_GAP + Duration::from_secs(1));
        eventually("the thread sleeps", || {
            let before = asked.load(Ordering::Relaxed);
            std::thread::sleep(PERIOD * 8);
            asked.load(Ordering::Relaxed) == before
        });
        let began = Instant::now();
        assert!(matches!(read(&mut background)[..], [(0, Ok(_))]));
        assert!(background.measured_at(0).unwrap() >= began);
    }

    #[test]
    fn nobody_is_asked_while_nobody_wants_to_know() {
        let (meter, _) = controller(Duration::ZERO);
        let background = Background::new(vec![meter], Vec::new(), PERIOD).unwrap();
        let (shared, mut thread) = (background.shared.clone(), background.begin.unwrap());
        let mut wanted = |ago: Duration| {
            shared.board.lock().wanted = Instant::now().checked_sub(ago);
            thread.round()
        };
        assert!(wanted(Duration::from_secs(60)).is_some());
        assert_eq!(wanted(LONGEST_GAP + Duration::from_secs(1)), None, "it sleeps");
    }
}
