//! GPUs: the jobs that have them, what they do for each job, and their state.
//!
//! `gpu_devices` has the backends. Each runs on a thread of its own, which reads every `--collector.gpu.period` and
//! when jobs come and go; a scrape reads no GPU. The jobs' GPUs are looked up when jobs start, while nothing is
//! known, and at every scrape. `attribution` splits the counts.

mod accounts;
mod metrics;
mod options;
pub(in crate::collector) mod rows;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use accounts::Accounts;
use exposition::Section;
use gpu_devices::{Backend, Sample, Sampler, Vendor};
use kernel_files::{Buffer, Roots};
pub use options::{GpuOptions, MakeBackend, backends};
use parking_lot::Mutex;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, SlurmCgroup};

use crate::collector::checkout::Checkout;
use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::gpu_energy::GpuEnergy;
use crate::collector::interval_reader::{Call, IntervalReader, IntervalSource};
use crate::collector::{BuildContext, Built, Collector, Entry, SourceError};
use crate::control::GpuOrder;

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "gpu",
    summary: "GPUs of NVIDIA, AMD and Intel: which job has which, activity, memory and energy by job, and the hardware's health",
    default_on: true,
    cost: Some("A thread per vendor whose driver is there, which reads every --collector.gpu.period"),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: rows::families,
    build,
};

/// Most readings that wait to be taken in.
const MOST_WAITING: usize = 64;

type Delivery = (Vendor, Result<Sample, SourceError>);

#[derive(Debug, Default)]
struct Plan {
    /// When to look again for the units of jobs without known ones.
    again: Option<Instant>,
    /// How often that was looked for since a job came.
    tries: u32,
}

struct Shared {
    accounts: Checkout<Accounts>,
    events: Mutex<Events>,
    deliveries: Mutex<Vec<Delivery>>,
    samplers: Mutex<BTreeMap<Vendor, Arc<Sampler>>>,
    scopes: Mutex<Vec<Arc<SlurmCgroup>>>,
    plan: Mutex<Plan>,
    interval_reader: Arc<IntervalReader>,
    energy: Arc<GpuEnergy>,
    options: GpuOptions,
    roots: Arc<Roots>,
    own: Weak<Self>,
}

/// What happened to jobs since the accounts took that in last, in order.
#[derive(Debug, Default)]
struct Events {
    waiting: Vec<Event>,
    /// Whether there may have been more: without a driver nobody takes them in.
    lost: bool,
}

impl Events {
    fn lose(&mut self) {
        *self = Self { waiting: Vec::new(), lost: true };
    }
}

#[derive(Debug)]
enum Event {
    Appeared(Box<Job>, Instant),
    Left(JobRunId, Instant),
    Forgotten(JobRunId),
}

/// Releases the GPU drivers, and opens them again.
#[derive(Clone)]
pub struct GpuControl(Arc<Shared>);

impl std::fmt::Debug for GpuControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GpuControl")
    }
}

impl GpuControl {
    /// Has every driver released. Returns whether all are within `patience`. A hanging one is released when its call
    /// returns.
    pub fn release(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        self.0
            .samplers(|sampler| sampler.release(until.saturating_duration_since(Instant::now())))
            .all(|done| done)
    }

    /// Carries out an order.
    pub fn obey(&self, order: GpuOrder, patience: Duration) -> Result<String, String> {
        match order {
            GpuOrder::Release if self.release(patience) => Ok("the GPU drivers are released".to_owned()),
            GpuOrder::Release => Err("a driver hangs; it is released when its call returns".to_owned()),
            GpuOrder::Resume => {
                self.resume();
                Ok("GPUs are read again".to_owned())
            }
        }
    }

    /// Has them read again.
    pub fn resume(&self) {
        self.0.samplers(Sampler::resume).for_each(drop);
    }

    /// Waits for three samples: the first discovers the GPUs, the second lets processes be attributed to jobs, the
    /// third ends the first interval that can be attributed.
    pub fn settle(&self, patience: Duration) {
        self.0.find_vendors();
        let until = Instant::now() + patience;
        self.0
            .samplers(|sampler| {
                sampler.settle(until.saturating_duration_since(Instant::now()));
                for _ in 0..2 {
                    sampler.read_anew(until.saturating_duration_since(Instant::now()));
                }
            })
            .for_each(drop);
    }
}

/// Where the collector leaves its [`GpuControl`] when it is built.
pub type ControlCell = Arc<OnceLock<GpuControl>>;

fn build(context: &BuildContext) -> Built {
    let options: GpuOptions = context.options.get();
    let shared = Arc::new_cyclic(|weak| Shared {
        accounts: Checkout::new(Accounts::new(context)),
        events: Mutex::default(),
        deliveries: Mutex::default(),
        samplers: Mutex::default(),
        scopes: Mutex::default(),
        plan: Mutex::default(),
        interval_reader: context.interval_reader.clone(),
        energy: context.gpu_energy.clone(),
        options: options.clone(),
        roots: context.roots.clone(),
        own: weak.clone(),
    });
    for (_, make) in &options.backends {
        shared.look_for_sockets(make(&context.roots).as_ref());
    }
    let _ = options.control.set(GpuControl(shared.clone()));
    let collector = Gpu { shared: shared.clone() };
    Built { source: Some(shared.clone()), ..Built::with_accounts(collector, shared) }
}

impl Shared {
    /// Asks every vendor's thread; none of it is waited for with the lock held.
    fn samplers<T>(&self, f: impl Fn(&Sampler) -> T) -> impl Iterator<Item = T> {
        let all: Vec<Arc<Sampler>> = self.samplers.lock().values().cloned().collect();
        all.into_iter().map(move |sampler| f(&sampler))
    }

    /// If these GPUs count whole sockets, the collector of energy leaves those to them.
    fn look_for_sockets(&self, backend: &dyn Backend) {
        if backend.counts_sockets() {
            self.energy.count_sockets();
        }
    }

    /// Starts a thread for each vendor whose driver is loaded by now.
    fn find_vendors(&self) {
        let mut samplers = self.samplers.lock();
        for (vendor, make) in &self.options.backends {
            if samplers.contains_key(vendor) {
                continue;
            }
            let backend = make(&self.roots);
            if !backend.is_present() {
                continue;
            }
            self.look_for_sockets(backend.as_ref());
            let (vendor, make, roots, weak) = (*vendor, make.clone(), self.roots.clone(), self.own.clone());
            let deliver = move |sample| {
                if let Some(shared) = weak.upgrade() {
                    shared.deliver(vendor, sample);
                }
            };
            let make = Box::new(move || make(&roots));
            match Sampler::start(vendor, self.options.period, make, Box::new(deliver)) {
                Ok(sampler) => {
                    samplers.insert(vendor, Arc::new(sampler));
                }
                Err(error) => tracing::error!(%error, "no thread to read GPUs on"),
            }
        }
    }

    /// On a vendor's thread.
    fn deliver(&self, vendor: Vendor, sample: Result<Sample, SourceError>) {
        let mut deliveries = self.deliveries.lock();
        if deliveries.len() >= MOST_WAITING {
            // All counts only grow: without this one an interval is longer.
            drop(deliveries.remove(0));
        }
        deliveries.push((vendor, sample));
        drop(deliveries);
        self.accounts.with(Duration::ZERO, |accounts| self.bind(accounts));
        if self.energy.is_wanted() {
            self.interval_reader.gpus_were_read();
        }
    }

    fn catch_up(&self, accounts: &mut Accounts) {
        let (events, deliveries) =
            (std::mem::take(&mut *self.events.lock()), std::mem::take(&mut *self.deliveries.lock()));
        accounts.receive(events);
        for (vendor, sample) in deliveries {
            accounts.take(vendor, sample);
        }
    }

    /// Looks for the units of jobs, and charges what is due.
    fn bind(&self, accounts: &mut Accounts) {
        self.catch_up(accounts);
        let scopes = self.scopes.lock().clone();
        let waits = accounts.bind(&scopes);
        accounts.hand_over_energy(&self.energy);
        let wanted = accounts.wanted();
        self.samplers(|sampler| sampler.want(wanted)).for_each(drop);
        let mut plan = self.plan.lock();
        plan.again = waits.then(|| Instant::now() + pause(plan.tries));
        plan.tries = plan.tries.saturating_add(1);
    }

    fn note(&self, event: Event) {
        self.events.lock().waiting.push(event);
        self.look_now();
    }

    fn look_now(&self) {
        *self.plan.lock() = Plan { again: Some(Instant::now()), tries: 0 };
    }
}

/// How long to wait for a job's device constraint after so many attempts: SLURM sets it some milliseconds after it
/// made the job's cgroup, or much later on a node that is busy starting jobs.
fn pause(tries: u32) -> Duration {
    Duration::from_millis(5_u64.saturating_mul(1 << tries.min(8)))
}

impl IntervalSource for Shared {
    fn read_now(&self, call: Call) {
        if !matches!(call, Call::Due | Call::Gpus) {
            self.samplers(Sampler::soon).for_each(drop);
        }
        self.find_vendors();
        // Without any GPU nothing is looked for.
        if self.samplers.lock().is_empty() {
            self.events.lock().lose();
            self.plan.lock().again = None;
            return;
        }
        let bound = self.accounts.with(Duration::ZERO, |accounts| self.bind(accounts));
        if bound.is_none() {
            self.plan.lock().again = Some(Instant::now() + Duration::from_millis(100));
        }
    }

    fn due(&self) -> Option<Instant> {
        self.plan.lock().again
    }
}

impl JobObserver for Shared {
    fn job_started(&self, job: &Job) {
        self.note(Event::Appeared(Box::new(job.clone()), Instant::now()));
    }

    fn job_left_node(&self, run: JobRunId) {
        self.note(Event::Left(run, Instant::now()));
    }

    fn before_walk(&self, scopes: &[Arc<SlurmCgroup>], _buffer: &mut Buffer) {
        scopes.clone_into(&mut self.scopes.lock());
    }

    fn checkpoint(&self, _job: &Job, _step: Option<u32>, _levels: Levels, _buffer: &mut Buffer) {
        // The last moment at which a short job's constraint can be looked at.
        if self.plan.lock().again.is_some() {
            self.look_now();
            self.interval_reader.look();
        }
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.events.lock().waiting.push(Event::Forgotten(run));
    }
}

impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        self.accounts.with(Duration::ZERO, |accounts| {
            // Without any GPU nobody would take in what happens to these jobs.
            if !self.samplers.lock().is_empty() {
                self.catch_up(accounts);
            }
            accounts.save()
        })
    }

    fn read_last(&self) {
        const PATIENCE: Duration = Duration::from_millis(300);
        self.samplers(|sampler| sampler.read_anew(PATIENCE)).for_each(drop);
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        self.accounts
            .with(Duration::ZERO, |accounts| accounts.restore(section, before))
            .unwrap_or(Err(Unreadable))
    }
}

struct Gpu {
    shared: Arc<Shared>,
}

impl Collector for Gpu {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        self.shared.find_vendors();
        let sampler_states: BTreeMap<Vendor, _> = self
            .shared
            .samplers(|sampler| (sampler.vendor, (sampler.sampler_state(), sampler.took())))
            .collect();
        if sampler_states.is_empty() {
            self.shared.events.lock().lose();
            return Err(SourceError::Unsupported {
                needs: "a GPU with its driver (nvidia, amdgpu, i915 or xe)".to_owned(),
            });
        }
        snapshot.scopes.clone_into(&mut self.shared.scopes.lock());
        let work = |accounts: &mut Accounts| {
            self.shared.catch_up(accounts);
            accounts.see(snapshot);
            self.shared.bind(accounts);
            accounts.emit(snapshot, &sampler_states, out)
        };
        let outcome = self.shared.accounts.with(PATIENCE, work).unwrap_or(Err(SourceError::TimedOut));
        self.shared.interval_reader.look();
        outcome
    }
}

#[cfg(test)]
mod tests;
