//! Energy of the node and of its parts, split over jobs.
//!
//! `energy_meters` has the meters, `attribution` the splitting. This module decides when they are read, reads what
//! the jobs held and used meanwhile, and emits the samples. A reading is made at every scrape, but not more often
//! than once a second; when jobs come and go; and as often as the meters need without scrapes (RAPL's counters wrap).

mod account;
mod accounts;
mod events;
mod idle_power;
mod machine;
pub(in crate::collector) mod metrics;
mod saved;
mod usages;

use std::sync::Arc;
use std::time::{Duration, Instant};

use accounts::Accounts;
use energy_meters::Discovery;
use events::{Event, Events};
use exposition::Section;
pub use idle_power::{IdlePowerSetting, parse_idle_power};
use kernel_files::Buffer;
pub use machine::parse_cpu_idle;
use parking_lot::Mutex;
use privileges::TakenOnce;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot};
use usages::Facts;
pub use usages::{parse_numa_stat, parse_numa_stat_v1, parse_usage_percpu};

use crate::collector::checkout::Checkout;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::interval_reader::{Call, IntervalReader, IntervalSource};
use crate::collector::{BuildContext, Built, Collector, Entry, SourceError};

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "energy",
    summary: "Energy of sockets, memory and node by every meter that there is, split over jobs",
    default_on: true,
    cost: Some("Two or three short reads per job, only where there is a meter"),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: metrics::families,
    build,
};

/// Scrapes that follow each other more closely get the same energy. RAPL read often and exactly reveals what other
/// processes compute (PLATYPUS, CVE-2020-8694). The kernel keeps users from reading it, and the exporter must not
/// publish it.
pub const PAUSE: Duration = Duration::from_secs(1);

/// When the next reading is due without a scrape.
#[derive(Debug, Default)]
struct Plan {
    last: Option<Instant>,
    took: Duration,
    /// Whether there is any meter.
    metered: bool,
    /// How far apart readings may be at most.
    every: Option<Duration>,
    /// A job came or went right after a reading.
    soon: Option<Instant>,
    /// Another thread was reading, or hangs in it: not before then.
    put_off: Option<Instant>,
}

struct Shared {
    accounts: Checkout<Accounts>,
    events: Mutex<Events>,
    plan: Mutex<Plan>,
    pause: Duration,
    interval_reader: Arc<IntervalReader>,
}

fn build(context: &BuildContext) -> Built {
    let shared = parts(context);
    let collector = Energy { shared: shared.clone() };
    Built { source: Some(shared.clone()), ..Built::with_accounts(collector, shared) }
}

/// The meters, opened before privileges are dropped, for the collector that takes them.
pub type Meters = TakenOnce<Discovery>;

/// Settings of the collector `energy`.
#[derive(Debug, Clone)]
pub struct EnergyOptions {
    /// The meters, where they were opened beforehand.
    pub meters: Meters,
    /// Idle power that the site has set.
    pub idle_power: Vec<IdlePowerSetting>,
    /// Energy is not read more often than this, whoever asks.
    pub pause: Duration,
    /// How meters are looked for and read.
    pub reading: energy_meters::Options,
}

impl Default for EnergyOptions {
    fn default() -> Self {
        let reading = energy_meters::Options::default();
        Self { meters: Meters::default(), idle_power: Vec::new(), pause: PAUSE, reading }
    }
}

fn parts(context: &BuildContext) -> Arc<Shared> {
    let mut accounts = Accounts::new(context);
    let interval_reader = Arc::downgrade(&context.interval_reader);
    accounts.align(Arc::new(move || {
        interval_reader.upgrade().iter().for_each(IntervalReader::meter_was_read);
    }));
    Arc::new(Shared {
        accounts: Checkout::new(accounts),
        events: Mutex::default(),
        plan: Mutex::default(),
        pause: context.options.get::<EnergyOptions>().pause,
        interval_reader: context.interval_reader.clone(),
    })
}

impl Shared {
    fn read(&self, accounts: &mut Accounts, snapshot: Option<&NodeSnapshot>) -> Result<(), SourceError> {
        let began = Instant::now();
        let events = std::mem::take(&mut *self.events.lock());
        let outcome = accounts.read(events, snapshot);
        let (metered, every) = (accounts.are_metered(), accounts.at_least_every());
        *self.plan.lock() =
            Plan { last: Some(began), took: began.elapsed(), metered, every, ..Plan::default() };
        outcome
    }

    /// Notes what happened to a job. Where nothing is measured nothing is noted.
    fn note(&self, event: impl FnOnce() -> Event) {
        let plan = self.plan.lock();
        if plan.last.is_some() && !plan.metered {
            return;
        }
        drop(plan);
        let event = event();
        self.events.lock().add(event);
    }

    /// After a job came or went. Readings take at most a hundredth of a CPU, however many jobs come and go. The time
    /// that each job held and used is exact nevertheless; only the power in between is a mean.
    fn soon(&self) -> bool {
        const CLOSEST: Duration = Duration::from_millis(100);
        let mut plan = self.plan.lock();
        let Some(last) = plan.last else { return true };
        if !plan.metered {
            return false;
        }
        let next = last + CLOSEST.max(plan.took.saturating_mul(100));
        let now = next <= Instant::now();
        if !now {
            plan.soon = Some(next);
        }
        now
    }
}

impl IntervalSource for Shared {
    fn read_now(&self, call: Call) {
        const TAKEN: Duration = Duration::from_secs(1);
        if call == Call::Due || self.soon() {
            // The next scrape finds a failure again, and reports it.
            let read = self.accounts.with(Duration::ZERO, |accounts| self.read(accounts, None));
            if read.is_none() {
                self.plan.lock().put_off = Some(Instant::now() + TAKEN);
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let plan = self.plan.lock();
        let regular = plan.last.zip(plan.every).map(|(last, every)| last + every);
        let due = [plan.soon, regular].into_iter().flatten().min()?;
        Some(plan.put_off.map_or(due, |put_off| due.max(put_off)))
    }
}

impl JobObserver for Shared {
    fn job_started(&self, job: &Job) {
        self.note(|| {
            let facts = Facts::read(&job.cgroup.view(), &mut Buffer::default());
            Event::Appeared(job.run, job.cgroup.clone(), facts, Instant::now())
        });
    }

    fn job_left_node(&self, run: JobRunId) {
        self.note(|| Event::Left(run, Instant::now()));
    }

    fn checkpoint(&self, job: &Job, _step: Option<u32>, _levels: Levels, buffer: &mut Buffer) {
        self.note(|| {
            let facts = Facts::read(&job.cgroup.view(), buffer);
            Event::Read(job.run, job.cgroup.clone(), facts)
        });
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.note(|| Event::Forgotten(run));
    }
}

impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        self.accounts.with(Duration::ZERO, |accounts| {
            accounts.take_in(std::mem::take(&mut *self.events.lock()));
            accounts.save()
        })
    }

    fn read_last(&self) {
        const PATIENCE: Duration = Duration::from_millis(300);
        let _ = self.accounts.with(PATIENCE, |accounts| self.read(accounts, None));
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        self.accounts
            .with(Duration::ZERO, |accounts| accounts.restore(section, before))
            .unwrap_or(Err(Unreadable))
    }
}

struct Energy {
    shared: Arc<Shared>,
}

impl Collector for Energy {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        let work = |accounts: &mut Accounts| {
            let outcome = match accounts.result_within(self.shared.pause) {
                Some(outcome) => outcome,
                None => {
                    let outcome = self.shared.read(accounts, Some(snapshot));
                    accounts.last_result = Some((Instant::now(), outcome.clone()));
                    outcome
                }
            };
            accounts.emit(snapshot, out);
            outcome
        };
        let outcome = self.shared.accounts.with(PATIENCE, work).unwrap_or(Err(SourceError::TimedOut));
        self.shared.interval_reader.look();
        outcome
    }
}

#[cfg(test)]
mod tests;
