//! The accounts of the GPUs, and the readings they are made of.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::{GpuLedger, GpuReading, GpuRoles, Part, SavedGpuLedger, Shares};
use cgroups::Cgroup;
use exposition::Family;
use gpu_binding::devices_list::read_devices_list;
use gpu_binding::{BindOptions, Binder, Bound, DeviceAccess, JobBinding, Owner, Owners, ProcessesOnUnits};
use gpu_devices::{DeviceNode, Fact, Memory, Process, Quantity, Sample, Unit, UnitSample, Vendor, Wanted};
use kernel_files::Buffer;
use serde::{Deserialize, Serialize};
use slurm_jobs::{Job, JobRunId, NodeSnapshot, SlurmCgroup};

use super::{Event, Events, GpuOptions};
use crate::collector::durable::{Before, Unreadable};
use crate::collector::gpu_energy::GpuEnergy;
use crate::collector::{BuildContext, SourceError};

/// A unit as it was last read, with the owners of its processes.
pub(super) struct UnitNow {
    pub(super) sample: UnitSample,
    pub(super) owners: BTreeMap<u32, Owner>,
}

impl UnitNow {
    /// One that is no more, as far as it is shown of the jobs that had it.
    fn gone(unit: Arc<Unit>, memory: Option<Memory>) -> Self {
        let sample = UnitSample { down: Some("gone"), memory, ..UnitSample::new(unit, 0) };
        Self { sample, owners: BTreeMap::new() }
    }

    pub(super) fn unit(&self) -> &Arc<Unit> {
        &self.sample.unit
    }

    /// Processes of a job on it.
    pub(super) fn of(&self, run: JobRunId) -> Option<impl Iterator<Item = &Process> + Clone> {
        let processes = self.sample.processes.as_ref()?;
        let of_job = move |process: &&Process| self.owners.get(&process.pid) == Some(&Owner::Job(run));
        Some(processes.iter().filter(of_job))
    }
}

/// A vendor's GPUs as they were read last.
#[derive(Default)]
pub(super) struct VendorNow {
    pub(super) read: Option<Instant>,
    pub(super) units: Vec<UnitNow>,
    /// Units that are no more, as they were read last, while jobs that had them are retained.
    pub(super) gone: Vec<UnitNow>,
    pub(super) facts: Vec<Fact>,
    pub(super) failed: Vec<SourceError>,
}

/// The state of the GPUs and their jobs.
pub(super) struct Accounts {
    pub(super) options: GpuOptions,
    /// All units that may be exported, in order.
    pub(super) families: Vec<&'static Family>,
    pub(super) ledger: GpuLedger<&'static Quantity>,
    pub(super) vendors: BTreeMap<Vendor, VendorNow>,
    binder: Binder,
    /// Why the kernel is not asked for its verdicts, where it could be.
    denied: Option<SourceError>,
    owners: Owners,
    /// The jobs that are there.
    pub(super) jobs: BTreeMap<JobRunId, Arc<Job>>,
    /// Whether jobs may have come without an event since the last scrape.
    events_lost: bool,
    /// Whether a run among those may be pending still.
    newcomer_pending: bool,
    /// Job runs that were forgotten since a scrape, while events were lost or a run pending.
    dropped: BTreeSet<JobRunId>,
    /// Whether jobs came since the owners of processes were looked for: some may be theirs.
    newcomers: bool,
    /// Jobs that left since it was looked for their units the last time.
    leaving: Vec<JobRunId>,
    /// Jobs that left, as long as they are retained.
    gone: BTreeSet<JobRunId>,
    pub(super) bound: BTreeMap<JobRunId, Bound>,
    /// Jobs and units that others had at the same time.
    pub(super) shared: BTreeSet<(JobRunId, Arc<str>)>,
    /// The most memory that a job was seen to have of a unit, bytes.
    pub(super) peaks: BTreeMap<(JobRunId, Arc<str>), u64>,
    /// What the driver had counted of a process.
    busy: HashMap<(Arc<str>, u32), u64>,
    /// Why it could not be looked for the units of some job.
    pub(super) problems: Vec<SourceError>,
}

/// What is saved.
#[derive(Serialize, Deserialize)]
struct SavedAccounts {
    ledger: SavedGpuLedger,
    gone: BTreeSet<JobRunId>,
    bound: BTreeMap<JobRunId, Bound>,
    shared: BTreeSet<(JobRunId, Arc<str>)>,
    peaks: BTreeMap<(JobRunId, Arc<str>), u64>,
    /// What jobs have or had: some of it may be no more when it is read again.
    units: Vec<(Arc<Unit>, Option<Memory>)>,
}

/// A quantity's name in what is saved.
fn name(quantity: &Quantity) -> String {
    let labels = quantity.labels.iter().flat_map(|(key, value)| [",", key, "=", value]);
    std::iter::once(quantity.counter.gpu.name).chain(labels).collect()
}

impl Accounts {
    pub(super) fn save(&self) -> Vec<u8> {
        let of_jobs = self.units_of_jobs().filter(|now| self.ledger.is_of_a_job(&now.unit().uuid));
        durable_state::encode(&SavedAccounts {
            ledger: self.ledger.save(name),
            gone: self.gone.clone(),
            bound: self.bound.clone(),
            shared: self.shared.clone(),
            peaks: self.peaks.clone(),
            units: of_jobs.map(|now| (now.unit().clone(), now.sample.memory)).collect(),
        })
    }

    pub(super) fn restore(&mut self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: SavedAccounts = durable_state::decode(section)?;
        let quantity = |wanted: &str| Quantity::ALL.into_iter().find(|quantity| name(quantity) == wanted);
        self.ledger.restore(saved.ledger, before.seen, quantity, |run| before.knows(run));
        self.gone = saved.gone.into_iter().filter(|run| before.knows(*run)).collect();
        self.bound = saved.bound.into_iter().filter(|(run, _)| before.knows(*run)).collect();
        self.shared = saved.shared.into_iter().filter(|(run, _)| before.knows(*run)).collect();
        self.peaks = saved.peaks.into_iter().filter(|((run, _), _)| before.knows(*run)).collect();
        for (unit, memory) in saved.units.into_iter().filter(|(unit, _)| self.ledger.is_of_a_job(&unit.uuid))
        {
            self.vendors.entry(unit.vendor).or_default().gone.push(UnitNow::gone(unit, memory));
        }
        Ok(())
    }

    pub(super) fn new(context: &BuildContext) -> Self {
        let options: GpuOptions = context.options.get();
        let bind = BindOptions {
            gpustat_dir: options.gpustat_dir.clone(),
            job_mapping_dir: options.job_mapping_dir.clone(),
            environment_hints: options.environment_hints,
            gres_order: options.gres_order.clone(),
        };
        let (access_source, denied) = match options.access_source.take() {
            Some(Ok(access_source)) => (Some(access_source), None),
            Some(Err(why)) => (None, matches!(why, SourceError::Denied { .. }).then_some(why)),
            None => (None, None),
        };
        Self {
            binder: Binder::new(context.roots.clone(), bind, access_source)
                .with_devices_list(by_devices_list),
            denied,
            owners: Owners::new(context.roots.clone()),
            options,
            families: super::rows::families(),
            ledger: GpuLedger::new(GpuRoles { busy: Quantity::BUSY, energy: Quantity::ENERGY }),
            vendors: BTreeMap::new(),
            jobs: BTreeMap::new(),
            events_lost: false,
            newcomer_pending: false,
            dropped: BTreeSet::new(),
            newcomers: false,
            leaving: Vec::new(),
            gone: BTreeSet::new(),
            bound: BTreeMap::new(),
            shared: BTreeSet::new(),
            peaks: BTreeMap::new(),
            busy: HashMap::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn receive(&mut self, events: Events) {
        self.events_lost |= events.lost;
        for event in events.waiting {
            match event {
                Event::Appeared(job, at) => {
                    self.ledger.appeared(job.run, at);
                    self.gone.remove(&job.run);
                    self.newcomers |= self.jobs.insert(job.run, Arc::from(job)).is_none();
                }
                Event::Left(run, at) => {
                    self.ledger.left(run, at);
                    self.leaving.push(run);
                }
                Event::Forgotten(run) => {
                    self.forget(run);
                    if self.events_lost || self.newcomer_pending {
                        self.dropped.insert(run);
                    }
                }
            }
        }
    }

    fn forget(&mut self, run: JobRunId) {
        self.ledger.settle(Instant::now());
        self.ledger.forget(run);
        self.jobs.remove(&run);
        self.bound.remove(&run);
        self.leaving.retain(|leaving| *leaving != run);
        self.gone.remove(&run);
        self.peaks.retain(|(of, _), _| *of != run);
        self.shared.retain(|(of, _)| *of != run);
    }

    /// Takes what a scrape knows of the jobs: metadata and owners are found out after a job came. A run without an event was
    /// dropped after the snapshot was made, or is a directory without a process so far.
    pub(super) fn see(&mut self, snapshot: &NodeSnapshot) {
        if std::mem::take(&mut self.events_lost) {
            self.forget_those_that_are_over(snapshot);
            self.newcomer_pending = true;
        }
        if self.newcomer_pending {
            self.take_newcomers(snapshot);
        }
        for job in snapshot.jobs.iter().chain(&snapshot.pending).filter(|job| job.is_running()) {
            if let Some(known) = self.jobs.get_mut(&job.run) {
                *known = job.clone();
            }
        }
    }

    /// Those of an exporter before this one, of which no event was received.
    fn forget_those_that_are_over(&mut self, snapshot: &NodeSnapshot) {
        let there: BTreeSet<JobRunId> =
            snapshot.jobs.iter().chain(&snapshot.pending).map(|job| job.run).collect();
        let restored = self.bound.keys().chain(&self.gone).filter(|run| !self.jobs.contains_key(run));
        let over: Vec<JobRunId> = restored.filter(|run| !there.contains(run)).copied().collect();
        over.into_iter().for_each(|run| self.forget(run));
    }

    /// Jobs that came while events were lost. A pending run may be a directory without a process: it waits until a scrape exports it.
    fn take_newcomers(&mut self, snapshot: &NodeSnapshot) {
        let dropped = std::mem::take(&mut self.dropped);
        for job in snapshot.jobs.iter().filter(|job| job.is_running()) {
            let known = self.jobs.contains_key(&job.run) || self.gone.contains(&job.run);
            if !known && !dropped.contains(&job.run) {
                self.ledger.appeared(job.run, Instant::now());
                self.jobs.insert(job.run, job.clone());
                self.newcomers = true;
            }
        }
        let waits = |job: &Arc<Job>| job.is_running() && !self.jobs.contains_key(&job.run);
        self.newcomer_pending = snapshot.pending.iter().any(waits);
    }

    pub(super) fn units(&self) -> impl Iterator<Item = &UnitNow> {
        self.vendors.values().flat_map(|vendor| &vendor.units)
    }

    /// Those that are there, and those that jobs had.
    pub(super) fn units_of_jobs(&self) -> impl Iterator<Item = &UnitNow> {
        self.vendors.values().flat_map(|vendor| vendor.units.iter().chain(&vendor.gone))
    }

    /// Looks for the units of the present jobs, and charges what is due. Returns whether to look again soon.
    pub(super) fn bind(&mut self, scopes: &[Arc<SlurmCgroup>]) -> bool {
        let now = Instant::now();
        let units: Vec<Arc<Unit>> = self.units().map(|now| now.unit().clone()).collect();
        if units.is_empty() {
            self.see_off();
            return false;
        }
        let jobs: Vec<Arc<Job>> = self.jobs.values().cloned().collect();
        if std::mem::take(&mut self.newcomers) {
            self.find_owners();
        }
        let owners =
            self.units().flat_map(|now| now.owners.iter().map(|(pid, owner)| (*pid, *owner))).collect();
        let processes = ProcessesOnUnits::new(self.units().map(|now| &now.sample), &owners);
        let binding = self.binder.bind(&jobs, scopes, &units, &processes);
        self.problems = binding.problems;
        // Without any other error, this one is returned.
        if binding.jobs.values().any(|job_binding| *job_binding == JobBinding::Unknown) {
            self.problems.extend(self.denied.clone());
        }
        for (run, job_binding) in binding.jobs {
            if let JobBinding::Known(bound) = job_binding
                && self.bound.get(&run) != Some(&bound)
            {
                self.ledger.bind(run, &bound.units, now);
                self.bound.insert(run, bound);
            }
        }
        for (run, bound) in self.bound.iter().filter(|(run, _)| self.jobs.contains_key(run)) {
            let shared = bound.units.iter().filter(|unit| self.ledger.holders(unit) > 1);
            self.shared.extend(shared.map(|unit| (*run, unit.clone())));
        }
        self.see_off();
        self.ledger.settle(now);
        self.ledger.unsettled(now).next().is_some()
    }

    /// What was charged goes to the account of the whole node. Parts have their energy from the whole, and graphics of a processor
    /// (on PCI bus 0) is in its package.
    pub(super) fn hand_over_energy(&mut self, energy: &GpuEnergy) {
        let charges = self.ledger.take_energy();
        if energy.counts_sockets() {
            let bound = self.bound.iter().filter(|(_, bound)| !bound.units.is_empty());
            energy.set_jobs(bound.map(|(run, _)| *run));
        }
        if !energy.is_wanted() {
            return;
        }
        let counts =
            |now: &UnitNow| now.sample.counts.iter().any(|(quantity, _)| *quantity == Quantity::ENERGY);
        let apart = |unit: &Unit| {
            unit.part.is_none() && !unit.pci.as_ref().is_some_and(|address| address.starts_with("0000:00:"))
        };
        let gpus: Vec<&UnitNow> = self.units().filter(|now| apart(now.unit())).collect();
        if gpus.is_empty() {
            return;
        }
        let measured = self.ledger.units().filter(|uuid| {
            let now = gpus.iter().find(|now| now.unit().uuid == **uuid);
            now.is_some_and(|now| counts(now) || now.sample.down.is_some())
        });
        let unmeasured = gpus.iter().any(|now| !counts(now) && now.sample.down.is_none());
        energy.put(measured.cloned().collect(), unmeasured, charges);
    }

    /// Jobs that went are not asked any more.
    fn see_off(&mut self) {
        for run in std::mem::take(&mut self.leaving) {
            self.ledger.give_up(run);
            if self.jobs.remove(&run).is_some() {
                self.gone.insert(run);
            }
        }
    }

    /// What is read beyond the defaults.
    pub(super) fn wanted(&self) -> Wanted {
        let shared = self.units().any(|now| self.ledger.holders(&now.unit().uuid) > 1);
        let unknown = self.jobs.keys().any(|run| !self.bound.contains_key(run));
        // Before the first reading nothing is known of anybody.
        let unread = self.units().next().is_none();
        Wanted { processes: self.options.processes || shared || unknown || unread }
    }

    /// Takes what a vendor's thread read.
    pub(super) fn take(&mut self, vendor: Vendor, sample: Result<Sample, SourceError>) {
        let Ok(mut sample) = sample else {
            // Known units remain known; their state does not.
            let known = self.vendors.entry(vendor).or_default();
            known.read = None;
            return;
        };
        let (at, mut failed) = (sample.began, sample.failed);
        let mut uuids = HashSet::new();
        sample.units.retain(|unit| {
            let first = uuids.insert(unit.unit.uuid.clone());
            if !first {
                failed.push(twins(&unit.unit));
            }
            first
        });
        let before = self.vendors.remove(&vendor).unwrap_or_default();
        let with_owners = |mut sample: UnitSample| {
            sample.processes.iter_mut().for_each(one_each);
            UnitNow { sample, owners: BTreeMap::new() }
        };
        let mut units: Vec<UnitNow> = sample.units.into_iter().map(with_owners).collect();
        let hidden = self.own(units.iter_mut()).err();
        failed.extend(hidden);
        for now in &units {
            let earlier = before.units.iter().find(|earlier| earlier.unit().uuid == now.unit().uuid);
            let goes_on = earlier.is_some_and(|earlier| {
                earlier.sample.epoch == now.sample.epoch && earlier.sample.processes.is_some()
            });
            let shares = self.shares(now).filter(|_| goes_on);
            let parts = parts(now, &units, &before.units);
            let (epoch, counts, standing) = (now.sample.epoch, &now.sample.counts, &now.sample.standing);
            let seen = before.read.is_some() && earlier.is_some_and(|earlier| earlier.sample.down.is_none());
            let shares = shares.as_ref();
            let reading = GpuReading { at, seen, epoch, counts, standing, shares, parts: &parts };
            if now.sample.down.is_none() {
                self.ledger.observe(&now.unit().uuid, &reading);
            }
            self.note_peaks(now);
        }
        let here: HashSet<(Arc<str>, u32)> = units
            .iter()
            .flat_map(|now| now.sample.processes.iter().flatten().map(|p| (now.unit().uuid.clone(), p.pid)))
            .collect();
        self.busy.retain(|process, _| here.contains(process));
        let earlier = before.units.into_iter().chain(before.gone);
        let gone = earlier.filter_map(|earlier| {
            let uuid = &earlier.unit().uuid;
            let kept = !uuids.contains(uuid) && self.ledger.is_of_a_job(uuid);
            kept.then(|| UnitNow::gone(earlier.sample.unit, earlier.sample.memory))
        });
        let gone = gone.collect();
        self.vendors.insert(vendor, VendorNow { read: Some(at), units, gone, facts: sample.facts, failed });
        self.ledger.settle(Instant::now());
    }

    fn find_owners(&mut self) {
        let mut vendors = std::mem::take(&mut self.vendors);
        // Why they cannot be found is reported with the reading itself.
        let _ = self.own(vendors.values_mut().flat_map(|vendor| &mut vendor.units));
        self.vendors = vendors;
    }

    /// Finds the owners of the processes on these units.
    fn own<'a>(&mut self, units: impl Iterator<Item = &'a mut UnitNow>) -> Result<(), SourceError> {
        let units: Vec<&mut UnitNow> = units.collect();
        let jobs: Vec<Arc<Job>> = self.jobs.values().cloned().collect();
        let pids =
            units.iter().flat_map(|now| now.sample.processes.iter().flatten()).map(|process| process.pid);
        let owners = self.owners.find(&jobs, pids)?;
        for now in units {
            let pids = now.sample.processes.iter().flatten().map(|process| process.pid);
            now.owners = pids.filter_map(|pid| Some((pid, *owners.get(&pid)?))).collect();
        }
        Ok(())
    }

    fn note_peaks(&mut self, now: &UnitNow) {
        let has = |bound: &Bound| bound.units.contains(&now.unit().uuid);
        let there = self.bound.iter().filter(|(run, _)| self.jobs.contains_key(run));
        let holders = there.filter(|(_, bound)| has(bound)).map(|(run, _)| *run);
        let used: Vec<_> = holders.filter_map(|run| Some((run, self.memory_of(run, now)?))).collect();
        for (run, used) in used {
            let peak = self.peaks.entry((run, now.unit().uuid.clone())).or_insert(0);
            *peak = used.max(*peak);
        }
    }

    /// What a job has of a unit's memory: all that is taken if it has the unit for itself, else what its processes have.
    pub(super) fn memory_of(&self, run: JobRunId, now: &UnitNow) -> Option<u64> {
        if self.ledger.holders(&now.unit().uuid) <= 1 {
            return now.sample.memory.map(|memory| memory.used);
        }
        // One unknown value leaves the sum unknown.
        now.of(run)?.map(|process| process.memory).sum()
    }

    /// What processes did on a unit since they were read before; `None` when that was not read.
    fn shares(&mut self, now: &UnitNow) -> Option<Shares> {
        let processes = now.sample.processes.as_ref()?;
        let mut shares = Shares::default();
        let mut counted = processes.is_empty();
        for process in processes {
            let Some(busy) = process.busy_ns else { continue };
            counted = true;
            let before = self.busy.insert((now.unit().uuid.clone(), process.pid), busy);
            let gain = busy.saturating_sub(before.unwrap_or(0));
            match now.owners.get(&process.pid) {
                Some(Owner::Job(run)) => *shares.jobs.entry(*run).or_insert(0) += gain,
                Some(Owner::Mps | Owner::NoJob) | None => shares.others += gain,
            }
        }
        counted.then_some(shares)
    }
}

fn by_devices_list(
    cgroup: &Cgroup,
    nodes: &[DeviceNode],
    buffer: &mut Buffer,
) -> Result<DeviceAccess, SourceError> {
    Ok(read_devices_list(&cgroup.view(), nodes, buffer)?.unwrap_or(DeviceAccess::NoProgram))
}

/// No series comes twice, and no account is of two GPUs.
fn twins(unit: &Unit) -> SourceError {
    let says = format!("several GPUs have the id {}: only the first is exported", unit.uuid);
    SourceError::Driver { call: "the ids of GPUs", says }
}

/// A process that both computes and draws is listed twice.
fn one_each(processes: &mut Vec<Process>) {
    processes.sort_by_key(|process| (process.pid, std::cmp::Reverse(process.memory)));
    processes.dedup_by_key(|process| process.pid);
}

/// The parts of a divided GPU, with what they did since the reading before.
fn parts(gpu: &UnitNow, now: &[UnitNow], before: &[UnitNow]) -> Vec<Part> {
    let of_gpu = now.iter().filter_map(|unit| {
        let part = unit.unit().part.as_ref().filter(|part| part.parent == gpu.unit().uuid)?;
        let active = |unit: &UnitNow| {
            unit.sample
                .counts
                .iter()
                .find(|(quantity, _)| *quantity == Quantity::SM_ACTIVE)
                .map(|(_, active)| *active)
        };
        let earlier =
            before.iter().find(|b| b.unit().uuid == unit.unit().uuid && b.sample.epoch == unit.sample.epoch);
        let active_ns =
            earlier.and_then(active).zip(active(unit)).and_then(|(then, now)| now.checked_sub(then));
        Some(Part { uuid: unit.unit().uuid.clone(), slices: part.slices?, active_ns })
    });
    of_gpu.collect()
}

/// Whether a reading is recent enough to be the present state.
pub(super) fn is_fresh(read: Option<Instant>, period: Duration) -> bool {
    read.is_some_and(|read| read.elapsed() <= period.saturating_mul(3) + gpu_devices::PATIENCE)
}
