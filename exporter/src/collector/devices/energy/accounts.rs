//! All zones with their accounts: reading the meters, and charging the time since the last reading.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::{
    Basis, Charged, EnergyAccounts, EnergyCharge, IdlePower, Interval, OverheadAccounts, PartsReading,
};
use energy_meters::{self, AfterReading, Discovery, Domain, Sample, Zone, ZoneRole, roles};
use kernel_files::{Buffer, NodeFiles, Roots};
use readings::Gain;
use slurm_jobs::{JobRunId, NodeSnapshot};

use super::EnergyOptions;
use super::account::Account;
use super::events::{Event, Events};
use super::idle_power::IdlePowerSetting;
use super::machine::{Look, Machine};
use super::saved::{SavedAccount, SavedEnergy};
use super::usages::{Facts, JobUsages, Wanted};
use crate::collector::durable::{Before, Unreadable};
use crate::collector::gpu_energy::GpuEnergy;
use crate::collector::memory_moved::{BySocket, MemoryMoved, of_part};
use crate::collector::{BuildContext, SourceError, Tally};

/// All of it.
pub(super) struct Accounts {
    roots: Arc<Roots>,
    machine: Machine,
    usages: JobUsages,
    discovery: Discovery,
    discovered: Instant,
    pub(super) accounts: Vec<Account>,
    /// What the node's own meter counts beyond the parts, where there is such a meter and something to compare it with.
    pub(super) overhead: Option<OverheadAccounts>,
    gpu_energy: Arc<GpuEnergy>,
    memory_moved: Arc<MemoryMoved>,
    idle: Vec<IdlePowerSetting>,
    reading: energy_meters::Options,
    after_reading: Option<AfterReading>,
    accelerated: bool,
    /// The GPU collector has the energy of whole sockets.
    apus: bool,
    last: Option<Instant>,
    /// When a scrape had it read last, and how that went.
    pub(super) last_result: Option<(Instant, Result<(), SourceError>)>,
    /// Events were lost: job runs may be charged that are not retained any more.
    events_lost: bool,
    /// Job runs that are not retained any more, to be forgotten after the next reading: counts since the last one may be
    /// charged to them.
    forgotten: Vec<JobRunId>,
    pub(super) restarts: u64,
    buffer: Buffer,
}

/// Whether something else on the node draws a large part of its power: then the node's total is not the CPUs' to split.
fn accelerated(roots: &Roots) -> bool {
    ["nvidiactl", "nvidia0", "kfd", "dri/renderD128"].iter().any(|node| roots.dev(node).exists())
}

impl Accounts {
    pub(super) fn new(context: &BuildContext) -> Self {
        let options: EnergyOptions = context.options.get();
        let discovery = options
            .meters
            .take()
            .unwrap_or_else(|| energy_meters::discover(&context.roots, &options.reading));
        Self {
            roots: context.roots.clone(),
            machine: Machine::new(NodeFiles::new(&context.roots)),
            usages: JobUsages::default(),
            discovery,
            discovered: Instant::now(),
            accounts: Vec::new(),
            overhead: None,
            gpu_energy: context.gpu_energy.clone(),
            memory_moved: context.memory_moved.clone(),
            idle: options.idle_power,
            reading: options.reading,
            after_reading: None,
            accelerated: accelerated(&context.roots),
            apus: false,
            last: None,
            last_result: None,
            events_lost: false,
            forgotten: Vec::new(),
            restarts: 0,
            buffer: Buffer::default(),
        }
    }

    /// Whether a job's part of packages is in the energy of its GPUs.
    pub(super) fn is_charged_with_gpu(&self, run: JobRunId) -> bool {
        self.apus && self.gpu_energy.has_sockets_of(run)
    }

    /// Has the parts of the node read whenever its own meter was.
    pub(super) fn align(&mut self, after: AfterReading) {
        self.discovery.meters.iter_mut().for_each(|meter| meter.notify(after.clone()));
        self.after_reading = Some(after);
    }

    /// Whether there is any meter.
    pub(super) fn are_metered(&self) -> bool {
        !self.discovery.meters.is_empty()
    }

    /// How far apart readings may be at most.
    pub(super) fn at_least_every(&self) -> Option<Duration> {
        self.discovery.meters.iter().filter_map(|meter| meter.at_least_every()).min()
    }

    /// How the last reading for a scrape went, if it was so recent.
    pub(super) fn result_within(&self, pause: Duration) -> Option<Result<(), SourceError>> {
        self.last_result.as_ref().filter(|(at, _)| at.elapsed() < pause).map(|(_, outcome)| outcome.clone())
    }

    /// The accounts follow the zones that there are now.
    fn open_accounts(&mut self) {
        let zones = self.discovery.zones();
        let all = roles(&zones, self.apus);
        let whole_node = !all.contains(&ZoneRole::Attributed);
        // Most readings interrupt a CPU: a zone that another source covers as well is not read.
        let mut rest = all.iter();
        for meter in &mut self.discovery.meters {
            for (index, role) in (0..meter.zones().len()).zip(rest.by_ref()) {
                if *role == ZoneRole::Duplicate {
                    meter.skip(index);
                }
            }
        }
        let gone = self.accounts.iter_mut().filter(|account| !zones.contains(&account.zone));
        gone.for_each(|account| account.becomes(None));
        for (zone, role) in zones.iter().zip(all) {
            // Without anything finer the node's own total is what can be split, if it is the CPUs' for the most part.
            let role = match role {
                ZoneRole::NodeTotal if whole_node && !self.accelerated && !self.apus => ZoneRole::Attributed,
                other => other,
            };
            let parts = zones
                .iter()
                .filter(|z| (z.domain, z.socket, z.source) == (zone.domain, zone.socket, zone.source));
            let parts = u64::try_from(parts.count()).unwrap_or(1).max(1);
            let basis = if zone.domain == Domain::Memory { Basis::Memory } else { Basis::Cpus };
            let idle = match self.idle_power(zone.domain, zone.socket) {
                IdlePower::Set(microwatts) => IdlePower::Set(microwatts / parts),
                learned @ IdlePower::Learned(_) => learned,
            };
            let known = self.accounts.iter_mut().find(|account| account.zone == *zone);
            if let Some(account) = known {
                account.energy.set_idle(idle);
                account.becomes(Some(role));
            } else {
                let mut account = Account::new(zone.clone(), EnergyAccounts::new(basis, idle));
                account.becomes(Some(role));
                self.accounts.push(account);
            }
        }
        let idle = self.idle_power(Domain::Overhead, None);
        match &mut self.overhead {
            Some(overhead) => overhead.set_idle(idle),
            None => self.overhead = self.wall().map(|_| OverheadAccounts::new(idle)),
        }
        if self.overhead.is_some() {
            self.gpu_energy.want();
        }
    }

    /// The meter of the whole node, where it is not what is split.
    pub(super) fn wall(&self) -> Option<&Account> {
        self.accounts.iter().find(|account| account.role == Some(ZoneRole::NodeTotal))
    }

    /// The one that there was, where it is gone or is what is split now.
    pub(super) fn lost_wall(&self) -> Option<&Account> {
        self.accounts.iter().find(|account| account.zone.domain == Domain::Node && account.beside > 0)
    }

    /// The idle power that the site has set for a domain, or one to be learned.
    fn idle_power(&self, domain: Domain, socket: Option<u32>) -> IdlePower {
        let fits = |idle: &&IdlePowerSetting| {
            idle.domain == domain && (idle.socket.is_none() || idle.socket == socket)
        };
        let set = self.idle.iter().rev().find(fits);
        set.map_or(IdlePower::Learned(None), |idle| IdlePower::Set(idle.microwatts))
    }

    /// What is to be saved.
    pub(super) fn save(&self) -> Vec<u8> {
        durable_state::encode(&SavedEnergy {
            accounts: self.accounts.iter().map(SavedAccount::of).collect(),
            overhead: self.overhead.clone(),
            usages: self.usages.save(),
            machine: self.machine.save(),
            last: self.last,
        })
    }

    /// Takes over what an exporter before this one charged. Zones are found at the first reading.
    pub(super) fn restore(&mut self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved = SavedEnergy::read(section, before)?;
        self.accounts = saved.accounts.into_iter().map(SavedAccount::restored).collect();
        self.overhead = saved.overhead;
        self.usages = JobUsages::restore(saved.usages, before.seen);
        self.machine.restore(saved.machine);
        self.last = saved.last;
        Ok(())
    }

    /// Takes in what happened since the last call.
    pub(super) fn take_in(&mut self, events: Events) {
        if events.lost {
            self.usages = JobUsages::default();
            self.events_lost = true;
        }
        for event in events.waiting {
            match event {
                Event::Appeared(run, cgroup, facts, at) => self.usages.appeared(run, cgroup, facts, at),
                Event::Read(run, cgroup, facts) => {
                    self.usages.reopened(run, &cgroup);
                    self.usages.facts(run, facts);
                }
                Event::Left(run, at) => self.usages.left(run, at),
                Event::Forgotten(run) => self.forgotten.push(run),
            }
        }
    }

    fn forget(&mut self, runs: impl IntoIterator<Item = JobRunId>) {
        for run in runs {
            self.usages.forget(run);
            self.accounts.iter_mut().for_each(|account| account.energy.forget(run));
            self.overhead.iter_mut().for_each(|overhead| overhead.forget(run));
        }
    }

    /// The job runs that are charged and that a scrape does not know.
    fn not_retained(&self, snapshot: &NodeSnapshot) -> HashSet<JobRunId> {
        let known: HashSet<JobRunId> =
            snapshot.jobs.iter().chain(&snapshot.pending).map(|job| job.run).collect();
        let zones = self.accounts.iter().map(|account| account.energy.account());
        let overhead = self.overhead.iter().map(OverheadAccounts::account);
        let charged = zones.chain(overhead).flat_map(attribution::Account::runs);
        charged.filter(|run| !known.contains(run)).collect()
    }

    fn is_time_to_discover(&self, now: Instant) -> bool {
        const PAUSE: Duration = Duration::from_secs(300);
        now.saturating_duration_since(self.discovered) >= PAUSE
    }

    /// Looks for meters again when CPUs came or went, and now and then where there is none.
    fn rediscover(&mut self, now: Instant, changed: bool) {
        let due = self.is_time_to_discover(now);
        let apus = self.gpu_energy.counts_sockets();
        let before = std::mem::replace(&mut self.apus, apus);
        if (changed && self.last.is_some()) || (self.discovery.meters.is_empty() && due) {
            let before = std::mem::take(&mut self.discovery);
            self.discovery = energy_meters::discover_again(&self.roots, &self.reading, before);
            if let Some(after) = self.after_reading.clone() {
                self.align(after);
            }
            self.discovered = now;
            let measured = self.accounts.iter_mut().filter(|account| account.is_measured());
            measured.for_each(|account| account.last = None);
            self.open_accounts();
            return;
        }
        let mut open = !self.accounts.iter().any(Account::is_measured) || apus != before;
        for meter in &mut self.discovery.meters {
            open |= meter.has_other_zones();
        }
        if open {
            self.open_accounts();
        }
    }

    /// Takes in jobs that no event reported, because there were too many or no meter at that time. Unexported ones
    /// are skipped: they may be directories left behind.
    fn take_over(&mut self, snapshot: &NodeSnapshot, now: Instant) {
        for job in snapshot.jobs.iter().chain(&snapshot.pending).filter(|job| job.is_running()) {
            self.usages.reopened(job.run, &job.cgroup);
        }
        for job in snapshot.jobs.iter().filter(|job| job.is_running()) {
            if !self.usages.has(job.run) {
                let facts = Facts::read(&job.cgroup.view(), &mut self.buffer);
                self.usages.appeared(job.run, job.cgroup.clone(), facts, now);
            }
        }
    }

    /// Reads the meters and the jobs, and charges the time since the last reading.
    pub(super) fn read(
        &mut self,
        events: Events,
        snapshot: Option<&NodeSnapshot>,
    ) -> Result<(), SourceError> {
        self.take_in(events);
        let outcome = self.read_meters(snapshot);
        // Only after the reading: energy since the last one may be charged to them.
        let forgotten = std::mem::take(&mut self.forgotten);
        self.forget(forgotten);
        if let Some(snapshot) = snapshot.filter(|_| std::mem::take(&mut self.events_lost)) {
            self.forget(self.not_retained(snapshot));
        }
        outcome
    }

    fn read_meters(&mut self, snapshot: Option<&NodeSnapshot>) -> Result<(), SourceError> {
        let now = Instant::now();
        // A node without a meter is looked at for one now and then, and for nothing else.
        if self.discovery.meters.is_empty() && self.last.is_some() && !self.is_time_to_discover(now) {
            // Jobs are not followed either: their directories would be held open.
            self.usages = JobUsages::default();
            return Err(self.nothing());
        }
        if let Some(snapshot) = snapshot {
            self.take_over(snapshot, now);
        }
        let look = self.machine.look(now)?;
        if look.changed {
            self.usages.topology_changed();
        }
        self.rediscover(now, look.changed);
        if self.discovery.meters.is_empty() {
            self.last = Some(now);
            self.usages = JobUsages::default();
            return Err(self.nothing());
        }
        let memory = self.measures(Basis::Memory);
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        self.usages.read(Wanted { memory, page }, self.machine.topology(), &mut self.buffer);
        let from = self.last.replace(now).unwrap_or(now);
        let result = self.charge((from, now), &look);
        self.usages.attributed();
        result
    }

    fn measures(&self, basis: Basis) -> bool {
        let mut measured = self.accounts.iter().filter(|account| account.is_measured());
        measured.any(|account| account.energy.basis() == basis)
    }

    fn nothing(&self) -> SourceError {
        self.refused().into_iter().next().unwrap_or_else(|| SourceError::Unsupported {
            needs: "RAPL (powercap or the power PMU), a power meter under hwmon, HSMP, Cray's pm_counters or a BMC"
                .to_owned(),
        })
    }

    /// Why meters that exist cannot be read.
    fn refused(&self) -> Vec<SourceError> {
        let later = self.discovery.meters.iter().flat_map(|meter| meter.refused());
        self.discovery.refused.iter().cloned().chain(later).collect()
    }

    fn charge(&mut self, time: (Instant, Instant), look: &Look) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        let memory = self.measures(Basis::Memory);
        let mut moved = if memory { self.memory_moved.take() } else { BySocket::default() };
        let mut spent = if self.measures(Basis::Cpus) {
            self.memory_moved.take_core_energy()
        } else {
            BySocket::default()
        };
        // One that is forgotten here, and read late there, would be forgotten a second time by nobody.
        let measured = moved.values_mut().chain(spent.values_mut()).flatten();
        measured.for_each(|measured| measured.keep(|run| self.usages.has(run)));
        let mut readings: HashMap<Zone, (Instant, Result<Sample, SourceError>)> = HashMap::new();
        for meter in &mut self.discovery.meters {
            let zones = meter.zones().to_vec();
            let mut read = Vec::new();
            meter.read(time.1, &mut |index, reading| read.push((index, reading)));
            for (index, reading) in read {
                if let Some(zone) = zones.get(index) {
                    readings.insert(zone.clone(), (meter.measured_at(index).unwrap_or(time.1), reading));
                }
            }
        }
        let mut intervals: BTreeMap<Option<u32>, Interval> = BTreeMap::new();
        let mut parts = Parts::default();
        let mut charged_zones = Vec::new();
        for account in self.accounts.iter_mut().filter(|account| account.is_measured()) {
            let part = account.zone.socket;
            let interval = intervals.entry(part).or_insert_with(|| {
                let memory = if memory { self.machine.memory_used(part) } else { None };
                let interval = interval(&self.usages, &self.machine, (part, memory), time, look);
                let (traffic, core_energy) = (of_part(&moved, part), of_part(&spent, part));
                Interval { traffic, core_energy, ..interval }
            });
            let reading = readings.remove(&account.zone);
            account.read = reading.as_ref().is_some_and(|(_, reading)| reading.is_ok());
            let sample = reading.and_then(|(at, reading)| Some((at, tally.note(reading)?)));
            account.power_uw = sample.and_then(|(_, sample)| sample.power_uw);
            let gain = sample.and_then(|(at, sample)| Some((account.take(sample, at)?, at)));
            self.restarts += u64::from(gain.is_some_and(|((gain, _), _)| gain == Gain::Restarted));
            match (account.role, gain) {
                (Some(ZoneRole::Attributed), gain) => {
                    let gain = gain.map(|((gain, _), _)| gain);
                    let charged = account.energy.observe(interval, gain);
                    if charged.is_some() {
                        charged_zones.push(account.zone.clone());
                    }
                    // Where that of the whole node is split, it is no part of what a meter of the whole node counts.
                    if account.zone.domain != Domain::Node {
                        parts.add(gain, charged);
                    }
                }
                (role, Some(((gain, from), to))) => {
                    account.energy.leave(gain);
                    let Gain::Grown(energy) = gain else { continue };
                    account.beside = account.beside.saturating_add(energy);
                    if role == Some(ZoneRole::NodeTotal) {
                        let charged = Charged { energy, ..Charged::default() };
                        self.overhead.iter_mut().for_each(|overhead| {
                            overhead.wall(EnergyCharge { from, to, charged: charged.clone() });
                        });
                    }
                }
                (_, None) => {}
            }
        }
        for account in self.accounts.iter_mut().filter(|account| !account.is_measured()) {
            account.overtaken |= charged_zones.iter().any(|zone| account.overlaps(zone));
        }
        let whole = intervals.remove(&None);
        self.charge_overhead(time, whole, parts, look);
        for refused in self.refused() {
            tally.note::<()>(Err(refused));
        }
        tally.result()
    }

    fn charge_overhead(
        &mut self,
        time: (Instant, Instant),
        whole: Option<Interval>,
        parts: Parts,
        look: &Look,
    ) {
        let Some(overhead) = &mut self.overhead else { return };
        match self.gpu_energy.take() {
            Some(gpus) => {
                overhead.set_gpus(gpus.measured, gpus.unmeasured);
                gpus.charges.into_iter().for_each(|(uuid, charge)| overhead.gpu(&uuid, charge));
            }
            None => overhead.set_gpus([], self.accelerated),
        }
        let whole = whole.unwrap_or_else(|| interval(&self.usages, &self.machine, (None, None), time, look));
        let reading = PartsReading {
            from: time.0,
            to: time.1,
            interval: &whole,
            charged: parts.charged,
            complete: !parts.missing,
            known: !parts.unknown,
        };
        overhead.observe(reading, time.1);
    }
}

/// What the attributed zones were charged with in a reading.
#[derive(Default)]
struct Parts {
    charged: Charged,
    /// A zone was not read.
    missing: bool,
    /// What a zone gained is not known.
    unknown: bool,
}

impl Parts {
    fn add(&mut self, gain: Option<Gain>, charged: Option<Charged>) {
        self.missing |= gain.is_none();
        self.unknown |= gain.is_some() && charged.is_none();
        self.charged.add(&charged.unwrap_or_default());
    }
}

/// What happened on a part of the node, of whose memory so much is used.
fn interval(
    usages: &JobUsages,
    machine: &Machine,
    (part, memory): (Option<u32>, Option<u64>),
    (from, to): (Instant, Instant),
    look: &Look,
) -> Interval {
    let topology = machine.topology();
    let length = to.saturating_duration_since(from);
    let Some(there) = topology.part(part) else { return Interval { length, ..Interval::default() } };
    let nanos = length.as_nanos();
    Interval {
        length,
        cpu_ns: u128::from(there.cpus.len()) * nanos,
        busy: look.busy.as_ref().map(|busy| busy.of(&there.cpus)),
        byte_ns: u128::from(memory.unwrap_or(0)) * nanos,
        traffic: None,
        core_energy: None,
        uses: usages.uses((from, to), (part, topology), look.busy.as_ref()),
    }
}
