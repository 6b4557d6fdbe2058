use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exposition::{Family, encode_openmetrics};
use slurm_jobs::Job;

use super::*;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::testing::{Machine, ended, job, snapshot_of, value};

static WORDS: NodeCounter = NodeCounter::new(
    "jobledger_node_test_received_bytes_total",
    "jobledger_job_test_received_bytes_total",
    "jobledger_node_test_unattributed_received_bytes_total",
)
.labels(&["device"])
.help("Bytes received");
static WAITS: NodeCounter = NodeCounter::new(
    "jobledger_node_test_wait_seconds_total",
    "jobledger_job_test_wait_seconds_total",
    "jobledger_node_test_unattributed_wait_seconds_total",
)
.labels(&["device"])
.per_unit(1000)
.help("Time waited");
static RATE: Family = Family::gauge("jobledger_node_test_rate").help("A gauge");

/// A device whose counter the test sets, and how often it was read.
#[derive(Default)]
struct Device {
    bytes: AtomicU64,
    identity: AtomicU64,
    absent: std::sync::atomic::AtomicBool,
    made_anew: std::sync::atomic::AtomicBool,
    readings: AtomicU64,
    /// Held while a reading takes its time.
    slow: Mutex<()>,
}

struct Source(Arc<Device>, Range);

impl NodeSource for Source {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        self.0.readings.fetch_add(1, Ordering::SeqCst);
        drop(self.0.slow.lock());
        if let Some(section) = out.section_of_scrape() {
            section.push(&RATE, SubjectId::NODE, &[], 5);
        }
        if !self.0.absent.load(Ordering::SeqCst) {
            let identity = self.0.identity.load(Ordering::SeqCst);
            if self.0.made_anew.load(Ordering::SeqCst) {
                out.device_from_zero(identity);
            } else {
                out.device(identity);
            }
            let bytes = self.0.bytes.load(Ordering::SeqCst);
            out.counter(&WORDS, &[("device", "a")], bytes, self.1);
            out.counter(&WAITS, &[("device", "a")], bytes, Range::Full);
        }
        Ok(())
    }
}

struct Bench {
    device: Arc<Device>,
    built: Built,
    occupancy: OccupancyObserver,
    machine: Machine,
}

impl Bench {
    fn new(range: Range) -> Self {
        let bench = Self::unread(range);
        bench.look();
        bench
    }

    /// The node was not looked at yet.
    fn unread(range: Range) -> Self {
        let machine = Machine::new();
        let users = slurm_jobs::Users::start(Box::new(|_| None)).unwrap();
        let context = BuildContext::new(Arc::new(machine.roots()), Arc::new(users));
        // History from before this exporter is unattributed.
        let device = Arc::new(Device { bytes: AtomicU64::new(1_000_000), ..Device::default() });
        let built = build(&context, Source(device.clone(), range));
        context.interval_reader.add(built.source.as_ref().unwrap());
        let occupancy = OccupancyObserver(context.interval_reader.clone());
        Self { device, built, occupancy, machine }
    }

    fn look(&self) {
        self.occupancy.initial_scan_done();
        self.read_after(0);
    }

    fn job(&self, id: u32) -> Job {
        self.machine.write(&format!("cgroup/job_{id}/cgroup.procs"), "");
        job(id, self.machine.v2(&format!("job_{id}")), &[])
    }

    /// Waits until the thread of the ledger has read the device once more than `before`.
    fn read_after(&self, before: u64) {
        let read = || self.device.readings.load(Ordering::SeqCst) != before;
        jobledger_testkit::eventually("the counters are read when a job comes or goes", read);
    }

    fn appears(&self, job: &Job) {
        let before = self.device.readings.load(Ordering::SeqCst);
        self.occupancy.job_started(job);
        self.read_after(before);
    }

    fn leaves(&self, job: &Job) {
        let before = self.device.readings.load(Ordering::SeqCst);
        self.occupancy.job_left_node(job.run);
        self.read_after(before);
    }

    fn count(&self, bytes: u64) {
        self.device.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    fn collect(&mut self, jobs: &[Job]) -> (Result<(), SourceError>, String) {
        let mut section = Section::default();
        let outcome =
            self.built.collector.collect(&snapshot_of(self.machine.roots(), jobs.to_vec()), &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }
}

/// Beyond what counts as simultaneous.
fn time_passes() {
    std::thread::sleep(Duration::from_millis(60));
}

const NODE: &str = "jobledger_node_test_received_bytes_total{device=\"a\"}";
const UNATTRIBUTED: &str = "jobledger_node_test_unattributed_received_bytes_total{device=\"a\"}";
const JOB_1: &str = "jobledger_job_test_received_bytes_total{jobid=\"1\",device=\"a\"}";
const JOB_2: &str = "jobledger_job_test_received_bytes_total{jobid=\"2\",device=\"a\"}";

#[test]
fn bytes_are_a_jobs_while_it_is_alone_and_no_other_jobs_though_no_scrape_falls_in_between() {
    jobledger_testkit::in_time(|| {
        let mut bench = Bench::new(Range::Full);
        let (one, two) = (bench.job(1), bench.job(2));
        drop(bench.collect(&[]));
        bench.count(5);
        bench.appears(&one);
        time_passes();
        bench.count(70);
        bench.appears(&two);
        time_passes();
        bench.count(900);
        bench.leaves(&one);
        time_passes();
        bench.count(8000);
        bench.leaves(&two);
        bench.count(20_000);
        time_passes();
        let (outcome, text) = bench.collect(&[ended(&one), ended(&two)]);
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, NODE), Some(28_975.0), "{text}");
        assert_eq!(value(&text, JOB_1), Some(70.0), "{text}");
        assert_eq!(value(&text, JOB_2), Some(8000.0), "{text}");
        assert_eq!(value(&text, UNATTRIBUTED), Some(20_905.0), "{text}");
        assert_eq!(
            value(&text, "jobledger_job_test_wait_seconds_total{jobid=\"2\",device=\"a\"}"),
            Some(8.0),
            "{text}"
        );
    });
}

#[test]
fn a_job_that_comes_during_a_slow_reading_has_what_is_counted_after_it() {
    jobledger_testkit::in_time(|| {
        let mut bench = Bench::new(Range::Full);
        let one = bench.job(1);
        let device = bench.device.clone();
        let readings = || device.readings.load(Ordering::SeqCst);
        let before = readings();
        let slow = device.slow.lock();
        std::thread::scope(|scope| {
            let (collector, roots) = (&mut bench.built.collector, bench.machine.roots());
            scope.spawn(move || collector.collect(&snapshot_of(roots, Vec::new()), &mut Section::default()));
            jobledger_testkit::eventually("the reading begins", || readings() > before);
            bench.occupancy.job_started(&one);
            time_passes();
            drop(slow);
        });
        jobledger_testkit::eventually("it is read again", || readings() > before + 1);
        bench.count(70);
        time_passes();
        bench.leaves(&one);
        let (_, text) = bench.collect(&[ended(&one)]);
        assert_eq!(value(&text, JOB_1), Some(70.0), "{text}");
    });
}

#[test]
fn a_job_that_never_had_the_node_for_itself_has_no_series() {
    let mut bench = Bench::unread(Range::Full);
    let (one, two) = (bench.job(1), bench.job(2));
    bench.occupancy.job_started(&one);
    bench.occupancy.job_started(&two);
    bench.occupancy.initial_scan_done();
    time_passes();
    drop(bench.collect(&[one.clone(), two.clone()]));
    bench.count(10);
    time_passes();
    let (_, text) = bench.collect(&[one, two]);
    assert!(!text.contains("jobledger_job_test"), "{text}");
    assert_eq!(value(&text, UNATTRIBUTED), Some(10.0), "{text}");
}

#[test]
fn a_run_that_was_never_exported_leaves_its_bytes_to_no_job() {
    let mut bench = Bench::new(Range::Full);
    let one = bench.job(1);
    bench.appears(&one);
    time_passes();
    bench.count(10);
    bench.leaves(&one);
    bench.built.observer.as_ref().unwrap().job_removed(one.run, Disposition::Unidentified);
    let (_, text) = bench.collect(&[]);
    assert_eq!((value(&text, NODE), value(&text, UNATTRIBUTED)), (Some(10.0), Some(10.0)), "{text}");
}

#[test]
fn a_device_that_goes_is_absent_and_one_that_comes_back_counts_from_its_own_beginning() {
    let mut bench = Bench::new(Range::Full);
    drop(bench.collect(&[]));
    bench.count(10);
    bench.device.absent.store(true, Ordering::SeqCst);
    assert_eq!(value(&bench.collect(&[]).1, NODE), None);
    bench.device.absent.store(false, Ordering::SeqCst);
    assert_eq!(value(&bench.collect(&[]).1, NODE), Some(10.0), "the same device");
    bench.device.identity.store(1, Ordering::SeqCst);
    bench.count(500);
    assert_eq!(value(&bench.collect(&[]).1, NODE), Some(10.0), "another by that name");
    bench.count(3);
    assert_eq!(value(&bench.collect(&[]).1, NODE), Some(13.0));
}

#[test]
fn what_a_device_made_since_the_last_reading_counted_is_of_this_interval() {
    jobledger_testkit::in_time(|| {
        let mut bench = Bench::unread(Range::Full);
        bench.device.made_anew.store(true, Ordering::SeqCst);
        bench.look();
        drop(bench.collect(&[]));
        assert_eq!(
            value(&bench.collect(&[]).1, NODE),
            Some(0.0),
            "before the first reading nothing is known"
        );
        let one = bench.job(1);
        bench.device.absent.store(true, Ordering::SeqCst);
        bench.appears(&one);
        time_passes();
        bench.device.absent.store(false, Ordering::SeqCst);
        bench.device.identity.store(1, Ordering::SeqCst);
        bench.device.bytes.store(70, Ordering::SeqCst);
        let text = bench.collect(std::slice::from_ref(&one)).1;
        assert_eq!((value(&text, NODE), value(&text, JOB_1)), (Some(70.0), Some(70.0)), "{text}");
        bench.count(5);
        time_passes();
        bench.leaves(&one);
        let text = bench.collect(&[ended(&one)]).1;
        assert_eq!((value(&text, NODE), value(&text, JOB_1)), (Some(75.0), Some(75.0)), "{text}");
    });
}

#[test]
fn a_counter_that_goes_back_is_counted_as_such_and_charges_nothing() {
    let mut bench = Bench::new(Range::Full);
    bench.count(100);
    drop(bench.collect(&[]));
    bench.device.bytes.store(40, Ordering::SeqCst);
    let mut section = Section::default();
    bench.built.collector.collect(&snapshot_of(bench.machine.roots(), Vec::new()), &mut section).unwrap();
    assert_eq!(section.restarts(), 2);
    bench.count(1);
    assert_eq!(value(&bench.collect(&[]).1, NODE), Some(101.0));
}

#[test]
fn a_saturated_counter_is_absent_with_the_reason() {
    let mut bench = Bench::new(Range::Saturates { at: 0xffff_ffff });
    bench.device.bytes.store(0xffff_ffff, Ordering::SeqCst);
    drop(bench.collect(&[]));
    let (outcome, text) = bench.collect(&[]);
    assert_eq!(value(&text, NODE), None, "{text}");
    assert!(outcome.unwrap_err().to_string().contains("more than 32 bits"));
}

#[test]
fn jobs_that_come_and_go_among_others_cause_no_reading() {
    let bench = Bench::new(Range::Full);
    bench.appears(&bench.job(1));
    bench.appears(&bench.job(2));
    let before = bench.device.readings.load(Ordering::SeqCst);
    for id in 3..50 {
        bench.occupancy.job_started(&bench.job(id));
    }
    time_passes();
    assert_eq!(bench.device.readings.load(Ordering::SeqCst), before);
}

#[test]
fn gauges_are_exported_on_request() {
    let mut bench = Bench::new(Range::Full);
    assert!(bench.collect(&[]).1.contains("jobledger_node_test_rate 5\n"));
}

/// A source that hangs.
struct Stuck(Arc<(Mutex<bool>, parking_lot::Condvar)>);

impl NodeSource for Stuck {
    fn read(&mut self, _out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        let (free, wakeup) = &*self.0;
        wakeup.wait_while(&mut free.lock(), |free| !*free);
        Ok(())
    }
}

#[test]
fn a_source_that_hangs_costs_one_thread_and_no_other_source() {
    let bench = Bench::new(Range::Full);
    let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
    let context = BuildContext {
        interval_reader: bench.occupancy.0.clone(),
        ..BuildContext::new(Arc::new(bench.machine.roots()), users)
    };
    let stuck = Arc::new((Mutex::new(false), parking_lot::Condvar::new()));
    let mut hanging = build(&context, Stuck(stuck.clone()));
    context.interval_reader.add(hanging.source.as_ref().unwrap());
    let one = bench.job(1);
    bench.appears(&one);
    // The thread hangs in the second source. The scrape's reading of it gives up, and another thread takes over.
    let outcome =
        hanging.collector.collect(&snapshot_of(bench.machine.roots(), Vec::new()), &mut Section::default());
    assert_eq!(outcome, Err(SourceError::TimedOut));
    std::thread::sleep(Duration::from_millis(2100));
    bench.leaves(&one);
    bench.appears(&bench.job(2));
    *stuck.0.lock() = true;
    stuck.1.notify_all();
    jobledger_testkit::eventually("it recovers", || {
        hanging
            .collector
            .collect(&snapshot_of(bench.machine.roots(), Vec::new()), &mut Section::default())
            .is_ok()
    });
}

#[test]
fn a_reading_that_hangs_is_waited_for_longer_and_longer() {
    let bench = Bench::new(Range::Full);
    let shared = Shared {
        inner: Checkout::new(Inner { source: Stuck(Arc::default()), accounts: NodeAccounts::default() }),
        forgotten: Mutex::default(),
        interval_reader: bench.occupancy.0.clone(),
        put_off: Mutex::default(),
    };
    let pauses = |calls: &[Call]| -> Vec<u128> {
        let pause = |call: &Call| {
            shared.read_now(*call);
            shared.put_off.lock().as_ref().unwrap().pause.as_millis()
        };
        calls.iter().map(pause).collect()
    };
    shared.inner.with(Duration::ZERO, |_| {
        assert_eq!(pauses(&[Call::Due; 8]), [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        // What comes or goes now is to be read as soon as before.
        let began = Instant::now();
        assert_eq!(pauses(&[Call::Exclusive, Call::Due]), [100, 200]);
        assert!(shared.due().unwrap() >= began + Duration::from_millis(200));
    });
}
