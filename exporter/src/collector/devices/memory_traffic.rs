//! Memory traffic: the bytes that the node's memory controllers moved, and their jobs.
//!
//! `perf_counters::uncore` has the controllers: perf events of PMUs that count for all processes. So a job is charged
//! with the traffic while it had the node for itself, or provably a socket of it. With
//! `--collector.memory-traffic.resctrl` jobs are charged with what `perf_counters::resctrl` measured for each of them
//! instead, which is another quantity (traffic beyond the L3).
//!
//! Needs CAP_PERFMON for as long as it runs (before Linux 5.8 CAP_SYS_ADMIN): counters are closed when a user's profiler
//! wants them, and opened again. A reading interrupts a CPU of each socket once per event: 32 of them with two sockets of
//! eight channels, some 0.2 ms.

mod accounts;
mod metrics;
mod moved;
mod options;
mod saved;
mod socket_occupancy;
mod telemetry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use accounts::TrafficAccounts;
use exposition::Section;
pub use options::{End, TrafficOptions};
use parking_lot::Mutex;
use perf_counters::resctrl::{Monitor, Mounted, Tree};
use perf_counters::sharing::{CounterOwnership, CounterUser};
use perf_events::{Kernel, Open};
use rustix::thread::CapabilitySet;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, NodeSnapshot};
use socket_occupancy::SocketOccupancy;
use telemetry::Telemetry;

use crate::collector::checkout::Checkout;
use crate::collector::devices::energy::EnergyOptions;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::interval_reader::{Call, IntervalReader, IntervalSource};
use crate::collector::memory_moved::{BySocket, MovedSource};
use crate::collector::{BuildContext, Built, Collector, Entry, SourceError};

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "memory_traffic",
    summary: "Bytes that the memory controllers moved, by socket, split over jobs that had the node or a socket for themselves",
    default_on: false,
    cost: Some(
        "Keeps CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8); takes two hardware counters of each memory channel (four with Optane and on Granite Rapids and its like)",
    ),
    capabilities: CapabilitySet::PERFMON,
    families: metrics::families,
    build,
};

/// Without a job coming or going, readings are this far apart at least.
const CLOSEST: Duration = Duration::from_millis(100);
/// When a job that came is looked at again: SLURM writes its cpuset and starts its steps within moments.
const AGAIN: [Duration; 3] = [Duration::from_millis(150), Duration::from_millis(600), Duration::from_secs(2)];
/// Looks that are remembered at most.
const MOST_AGAIN: usize = 64;

/// When the next reading is due without a scrape.
#[derive(Debug, Default)]
struct Plan {
    last: Option<Instant>,
    took: Duration,
    again: BTreeSet<Instant>,
    /// How a reading for the collector of energy went, which runs before this one.
    for_energy: Option<(Instant, Result<(), SourceError>)>,
}

struct Shared {
    accounts: Checkout<TrafficAccounts>,
    socket_occupancy: Mutex<SocketOccupancy>,
    /// Job runs that are not retained any more: noted here, since a reading may hang.
    forgotten: Mutex<Vec<JobRunId>>,
    plan: Mutex<Plan>,
    interval_reader: Arc<IntervalReader>,
    ownership: CounterOwnership,
    /// Jobs are monitored by resctrl.
    monitors: bool,
    /// The collector of energy asked what was moved, and got no answer (yet).
    unanswered: AtomicBool,
    /// The same of what cores spent.
    cores_unanswered: AtomicBool,
}

fn build(context: &BuildContext) -> Built {
    let options = context.options.get::<TrafficOptions>();
    let mounted = || Mounted::at(context.roots.sys("fs/resctrl"));
    let tree = options.resctrl.then(|| -> Box<dyn Tree> {
        match options.helper.take() {
            Some(helped) => Box::new(helped),
            None => Box::new(mounted()),
        }
    });
    let checked = options.checked.map(|may| (Monitor::new(&context.roots, Box::new(mounted())), may));
    built(parts(context, Box::new(|| Box::new(Kernel)), tree), checked)
}

/// What opens events.
type Opener = Box<dyn Fn() -> Box<dyn Open> + Send>;

fn parts(context: &BuildContext, opener: Opener, tree: Option<Box<dyn Tree>>) -> Arc<Shared> {
    let monitor = tree.map(|tree| Monitor::new(&context.roots, tree));
    let telemetry = Telemetry::new(context.options.get::<EnergyOptions>().pause);
    let shared = Arc::new(Shared {
        monitors: monitor.is_some(),
        accounts: Checkout::new(TrafficAccounts::new(&context.roots, opener, monitor, telemetry)),
        socket_occupancy: Mutex::default(),
        forgotten: Mutex::default(),
        plan: Mutex::default(),
        interval_reader: context.interval_reader.clone(),
        ownership: context.ownership.clone(),
        unanswered: AtomicBool::default(),
        cores_unanswered: AtomicBool::default(),
    });
    let moved_source: Arc<dyn MovedSource> = shared.clone();
    context.memory_moved.set(&moved_source);
    let counter_user: Arc<dyn CounterUser> = shared.clone();
    context.ownership.take_part(&counter_user);
    let ended = Arc::downgrade(&shared);
    context.options.get::<TrafficOptions>().end.set(Box::new(move || {
        if let Some(shared) = ended.upgrade() {
            shared.end();
        }
    }));
    shared
}

fn built(shared: Arc<Shared>, checked: Option<(Monitor, bool)>) -> Built {
    let collector = MemoryTraffic { shared: shared.clone(), checked };
    Built { source: Some(shared.clone()), ..Built::with_accounts(collector, shared) }
}

impl Shared {
    /// Reads and charges. `scrape`: with everything that is only exported.
    fn read(&self, accounts: &mut TrafficAccounts, scrape: bool) -> Result<(), SourceError> {
        let began = Instant::now();
        let outcome = accounts.read(scrape, &self.socket_occupancy, &self.interval_reader, &self.ownership);
        // Only after the reading: traffic since the last one may be charged to them.
        self.forgotten.lock().drain(..).for_each(|run| accounts.forget(run));
        let mut plan = self.plan.lock();
        (plan.last, plan.took) = (Some(began), began.elapsed());
        plan.again.retain(|at| *at > began);
        outcome
    }

    /// Whether a reading now is far enough from the last one; else there is one later. Readings cost at most a hundredth of a
    /// CPU.
    fn soon(&self) -> bool {
        let mut plan = self.plan.lock();
        let Some(last) = plan.last else { return true };
        let next = last + CLOSEST.max(plan.took.saturating_mul(100));
        let now = next <= Instant::now();
        if !now && plan.again.len() < MOST_AGAIN {
            plan.again.insert(next);
        }
        now
    }

    /// Another thread is reading, or hangs in it.
    fn put_off(&self) {
        let now = Instant::now();
        let mut plan = self.plan.lock();
        plan.again = plan.again.split_off(&now);
        plan.again.insert(now + CLOSEST);
    }

    /// No group of this exporter remains.
    fn end(&self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        self.accounts.with(PATIENCE, TrafficAccounts::end);
    }
}

impl IntervalSource for Shared {
    fn read_now(&self, call: Call) {
        if call == Call::Exclusive || (!matches!(call, Call::Gpus | Call::Meter) && self.soon()) {
            // The next scrape finds a failure again, and reports it.
            if self.accounts.with(Duration::ZERO, |accounts| self.read(accounts, false)).is_none() {
                self.put_off();
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let plan = self.plan.lock();
        let at = plan.again.first()?;
        let closest = CLOSEST.max(plan.took.saturating_mul(100));
        Some(plan.last.map_or(*at, |last| (*at).max(last + closest)))
    }
}

impl MovedSource for Shared {
    fn moved(&self) -> BySocket {
        // A reading takes milliseconds.
        const PATIENCE: Duration = Duration::from_millis(50);
        let unanswered = self.unanswered.swap(true, Ordering::Relaxed);
        let moved = self.accounts.with(PATIENCE, |accounts| {
            let outcome = self.read(accounts, true);
            self.plan.lock().for_energy = Some((Instant::now(), outcome));
            self.unanswered.store(false, Ordering::Relaxed);
            accounts.moved.take()
        });
        // After a question without an answer this is what was moved in a longer time.
        moved.filter(|_| !unanswered).unwrap_or_default()
    }

    fn core_energy(&self) -> BySocket {
        const PATIENCE: Duration = Duration::from_millis(50);
        if !self.monitors {
            return BySocket::default();
        }
        let unanswered = self.cores_unanswered.swap(true, Ordering::Relaxed);
        let spent = self.accounts.with(PATIENCE, |accounts| {
            let spent = accounts.core_energy(&self.socket_occupancy);
            self.cores_unanswered.store(false, Ordering::Relaxed);
            spent
        });
        spent.filter(|_| !unanswered).unwrap_or_default()
    }
}

impl CounterUser for Shared {
    fn release(&self) -> bool {
        // A reading takes milliseconds. One that hangs closes its counters when it returns.
        const PATIENCE: Duration = Duration::from_secs(1);
        let release = |accounts: &mut TrafficAccounts| {
            accounts.release(&self.socket_occupancy, &self.interval_reader, &self.ownership)
        };
        self.accounts.with(PATIENCE, release).is_some()
    }

    fn resume(&self) {
        if self.accounts.with(Duration::ZERO, |accounts| self.read(accounts, false)).is_none() {
            self.put_off();
        }
    }
}

impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        self.accounts.with(Duration::ZERO, |accounts| accounts.save())
    }

    fn read_last(&self) {
        const PATIENCE: Duration = Duration::from_millis(300);
        let _ = self.accounts.with(PATIENCE, |accounts| self.read(accounts, true));
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        self.accounts
            .with(Duration::ZERO, |accounts| accounts.restore(section, before))
            .unwrap_or(Err(Unreadable))
    }
}

impl JobObserver for Shared {
    fn initial_scan_done(&self) {
        self.socket_occupancy.lock().looked(Instant::now());
    }

    fn job_started(&self, job: &Job) {
        let now = Instant::now();
        self.socket_occupancy.lock().appeared(job.run, job.id, job.cgroup.clone(), now);
        let mut plan = self.plan.lock();
        if plan.again.len() < MOST_AGAIN {
            plan.again.extend(AGAIN.map(|pause| now + pause));
        }
        drop(plan);
        self.interval_reader.look();
    }

    fn job_left_node(&self, run: JobRunId) {
        self.socket_occupancy.lock().left(run, Instant::now());
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.socket_occupancy.lock().forget(run);
        self.forgotten.lock().push(run);
    }
}

struct MemoryTraffic {
    shared: Arc<Shared>,
    /// With `--check`: what would monitor jobs, and whether groups could be made.
    checked: Option<(Monitor, bool)>,
}

impl MemoryTraffic {
    /// What would keep jobs from being monitored.
    fn check(&self) -> Result<(), SourceError> {
        let Some((monitor, may)) = &self.checked else { return Ok(()) };
        monitor.check()?;
        if *may { Ok(()) } else { Err(SourceError::Denied { what: "resctrl's groups".to_owned() }) }
    }
}

impl Collector for MemoryTraffic {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.shared.socket_occupancy.lock().reopened(snapshot);
        let work = |accounts: &mut TrafficAccounts| {
            let recent = self.shared.plan.lock().for_energy.take();
            let outcome = match recent.filter(|(at, _)| at.elapsed() < CLOSEST) {
                Some((_, outcome)) => outcome,
                None => self.shared.read(accounts, true),
            };
            accounts.emit(snapshot, out);
            outcome
        };
        let outcome = self.shared.accounts.with(PATIENCE, work).unwrap_or(Err(SourceError::TimedOut));
        self.shared.interval_reader.look();
        self.check().and(outcome)
    }
}

#[cfg(test)]
mod tests;
