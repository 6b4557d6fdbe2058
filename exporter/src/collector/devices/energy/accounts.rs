//! All zones with their accounts: reading the meters, and charging the time since the last reading.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::{Basis, EnergyAccounts, IdlePower, Interval};
use cgroups::Cgroup;
use durable_state::{SavedInstant, instant};
use energy_meters::{self, Discovery, Domain, Sample, Zone, ZoneRole, roles};
use kernel_files::{Buffer, NodeFiles, Roots};
use readings::Gain;
use serde::{Deserialize, Serialize};
use slurm_jobs::{JobRunId, NodeSnapshot};

use super::EnergyOptions;
use super::idle_power::IdlePowerSetting;
use super::machine::{Look, Machine, SavedMachine};
use super::usages::{Facts, JobUsages, SavedUsage, Wanted};
use crate::collector::durable::{Before, Unreadable};
use crate::collector::{BuildContext, SourceError, Tally};

/// A zone and its accounts.
pub(super) struct Account {
    pub(super) zone: Zone,
    pub(super) role: ZoneRole,
    pub(super) energy: EnergyAccounts,
    last: Option<(Sample, Instant)>,
    /// Whether the latest reading succeeded.
    pub(super) read: bool,
    pub(super) power_uw: Option<u64>,
}

impl Account {
    pub(super) fn new(zone: Zone, role: ZoneRole, energy: EnergyAccounts) -> Self {
        Self { zone, role, energy, last: None, read: false, power_uw: None }
    }

    /// What the counter gained since the last reading.
    fn take(&mut self, sample: Sample, now: Instant) -> Gain {
        let last = self.last.replace((sample, now));
        let Some((earlier, at)) = last.filter(|(earlier, _)| earlier.epoch == sample.epoch) else {
            return Gain::First;
        };
        let gain = sample.gain_since(&earlier, now.saturating_duration_since(at));
        gain.map_or(Gain::Restarted, Gain::Grown)
    }
}

/// A zone's accounts as they are saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedAccount {
    zone: Zone,
    energy: EnergyAccounts,
    last: Option<(Sample, SavedInstant)>,
}

/// What is saved.
#[derive(Debug, Serialize, Deserialize)]
struct SavedEnergy {
    accounts: Vec<SavedAccount>,
    usages: BTreeMap<JobRunId, SavedUsage>,
    machine: SavedMachine,
    #[serde(with = "instant::option")]
    last: Option<Instant>,
}

/// What happened to jobs since the last reading, in order.
pub(super) enum Event {
    Appeared(JobRunId, Arc<Cgroup>, Facts, Instant),
    Read(JobRunId, Arc<Cgroup>, Facts),
    Left(JobRunId, Instant),
    Forgotten(JobRunId),
}

/// Events that wait to be read at most: more come only while a meter hangs.
pub(super) const MOST_EVENTS: usize = 16384;

#[derive(Default)]
pub(super) struct Events {
    pub(super) waiting: Vec<Event>,
    /// There were too many events: the next scrape has the present jobs.
    pub(super) lost: bool,
}

impl Events {
    pub(super) fn add(&mut self, event: Event) {
        if self.waiting.len() >= MOST_EVENTS {
            *self = Self { waiting: Vec::new(), lost: true };
        }
        self.waiting.push(event);
    }
}

/// All of it.
pub(super) struct Accounts {
    roots: Arc<Roots>,
    machine: Machine,
    usages: JobUsages,
    discovery: Discovery,
    discovered: Instant,
    pub(super) accounts: Vec<Account>,
    /// Those of an exporter before this one, until their zones are found.
    saved: Vec<SavedAccount>,
    idle: Vec<IdlePowerSetting>,
    accelerated: bool,
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
        let discovery = options.meters.take().unwrap_or_else(|| energy_meters::discover(&context.roots));
        Self {
            roots: context.roots.clone(),
            machine: Machine::new(NodeFiles::new(&context.roots)),
            usages: JobUsages::default(),
            discovery,
            discovered: Instant::now(),
            accounts: Vec::new(),
            saved: Vec::new(),
            idle: options.idle_power,
            accelerated: accelerated(&context.roots),
            last: None,
            last_result: None,
            events_lost: false,
            forgotten: Vec::new(),
            restarts: 0,
            buffer: Buffer::default(),
        }
    }

    /// Whether there is any meter.
    pub(super) fn are_metered(&self) -> bool {
        !self.discovery.meters.is_empty()
    }

    /// How far apart readings may be at most.
    pub(super) fn at_least_every(&self) -> Option<Duration> {
        let quick = self.discovery.meters.iter().filter(|meter| !meter.slow());
        quick.filter_map(|meter| meter.at_least_every()).min()
    }

    /// How the last reading for a scrape went, if it was so recent.
    pub(super) fn result_within(&self, pause: Duration) -> Option<Result<(), SourceError>> {
        self.last_result.as_ref().filter(|(at, _)| at.elapsed() < pause).map(|(_, outcome)| outcome.clone())
    }

    /// The accounts follow the zones that there are now; those of zones that went are kept for the jobs' sake.
    fn open_accounts(&mut self) {
        let zones = self.discovery.zones();
        let all = roles(&zones);
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
        for (zone, role) in zones.iter().zip(all) {
            // Without anything finer the node's own total is what can be split, if it is the CPUs' for the most part.
            let role = match role {
                ZoneRole::NodeTotal if whole_node && !self.accelerated => ZoneRole::Attributed,
                other => other,
            };
            if let Some(account) = self.accounts.iter_mut().find(|account| account.zone == *zone) {
                account.role = role;
                continue;
            }
            let parts = zones
                .iter()
                .filter(|z| (z.domain, z.socket, z.source) == (zone.domain, zone.socket, zone.source));
            let parts = u64::try_from(parts.count()).unwrap_or(1).max(1);
            let basis = if zone.domain == Domain::Memory { Basis::Memory } else { Basis::Cpus };
            let set = self.idle.iter().rev().find(|idle| {
                idle.domain == zone.domain && (idle.socket.is_none() || idle.socket == zone.socket)
            });
            let idle = set.map_or(IdlePower::Learned(None), |idle| IdlePower::Set(idle.microwatts / parts));
            let saved =
                self.saved.iter().position(|saved| saved.zone == *zone && saved.energy.basis() == basis);
            let saved = saved.map(|at| self.saved.swap_remove(at));
            let last = saved.as_ref().and_then(|saved| saved.last).map(|(sample, at)| (sample, at.0));
            let energy = match saved {
                Some(saved) => saved.energy.with_idle(idle),
                None => EnergyAccounts::new(basis, idle),
            };
            self.accounts.push(Account { last, ..Account::new(zone.clone(), role, energy) });
        }
    }

    /// What is to be saved. The epochs of a sample are those of who reads: a counter that counts by itself goes on.
    pub(super) fn save(&self) -> Vec<u8> {
        let save = |account: &Account| SavedAccount {
            zone: account.zone.clone(),
            energy: account.energy.clone(),
            last: account
                .last
                .filter(|_| account.zone.counts_by_itself())
                .map(|(sample, at)| (Sample { epoch: 0, ..sample }, SavedInstant(at))),
        };
        durable_state::encode(&SavedEnergy {
            accounts: self.accounts.iter().map(save).chain(self.saved.iter().cloned()).collect(),
            usages: self.usages.save(),
            machine: self.machine.save(),
            last: self.last,
        })
    }

    /// Takes over what an exporter before this one charged. Zones are found at the first reading.
    pub(super) fn restore(&mut self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: SavedEnergy = durable_state::decode(section)?;
        self.saved = saved.accounts;
        self.saved.iter_mut().for_each(|account| account.energy.keep(|run| before.knows(run)));
        let mut usages = saved.usages;
        usages.retain(|run, _| before.knows(*run));
        self.usages = JobUsages::restore(usages, before.seen);
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
            self.saved.iter_mut().for_each(|account| account.energy.forget(run));
        }
    }

    /// The job runs that are charged and that a scrape does not know.
    fn not_retained(&self, snapshot: &NodeSnapshot) -> HashSet<JobRunId> {
        let known: HashSet<JobRunId> =
            snapshot.jobs.iter().chain(&snapshot.pending).map(|job| job.run).collect();
        let charged = self.accounts.iter().flat_map(|account| account.energy.account().runs());
        charged.filter(|run| !known.contains(run)).collect()
    }

    fn is_time_to_discover(&self, now: Instant) -> bool {
        const PAUSE: Duration = Duration::from_secs(300);
        now.saturating_duration_since(self.discovered) >= PAUSE
    }

    /// Looks for meters again when CPUs came or went, and now and then where there is none.
    fn rediscover(&mut self, now: Instant, changed: bool) {
        let due = self.is_time_to_discover(now);
        if (changed && self.last.is_some()) || (self.discovery.meters.is_empty() && due) {
            self.discovery = energy_meters::discover(&self.roots);
            self.discovered = now;
            self.accounts.iter_mut().for_each(|account| account.last = None);
            self.open_accounts();
        } else if self.accounts.is_empty() {
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
        let memory = self.measures_memory();
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        self.usages.read(Wanted { memory, page }, self.machine.topology(), &mut self.buffer);
        let from = self.last.replace(now).unwrap_or(now);
        let result = self.charge((from, now), &look, snapshot.is_some());
        self.usages.attributed();
        result
    }

    fn measures_memory(&self) -> bool {
        self.accounts.iter().any(|account| account.energy.basis() == Basis::Memory)
    }

    fn nothing(&self) -> SourceError {
        self.discovery.refused.first().cloned().unwrap_or_else(|| SourceError::Unsupported {
            needs: "RAPL (powercap or the power PMU), a power meter under hwmon, HSMP or Cray's pm_counters"
                .to_owned(),
        })
    }

    fn charge(&mut self, time: (Instant, Instant), look: &Look, slow_too: bool) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        let mut readings: HashMap<Zone, Result<Sample, SourceError>> = HashMap::new();
        for meter in self.discovery.meters.iter_mut().filter(|meter| slow_too || !meter.slow()) {
            let zones = meter.zones().to_vec();
            meter.read(time.1, &mut |index, reading| {
                if let Some(zone) = zones.get(index) {
                    readings.insert(zone.clone(), reading);
                }
            });
        }
        let memory = self.measures_memory();
        let mut intervals: BTreeMap<Option<u32>, Interval> = BTreeMap::new();
        for account in &mut self.accounts {
            let part = account.zone.socket;
            let interval = intervals.entry(part).or_insert_with(|| {
                let memory = if memory { self.machine.memory_used(part) } else { None };
                interval(&self.usages, &self.machine, (part, memory), time, look)
            });
            let attributed = account.role == ZoneRole::Attributed;
            let empty = Interval::default();
            let interval = if attributed { &*interval } else { &empty };
            let reading = readings.remove(&account.zone);
            if reading.is_none() && slow_too {
                account.read = false;
            }
            let sample = reading.and_then(|reading| {
                account.read = reading.is_ok();
                tally.note(reading)
            });
            let gain = sample.map(|sample| account.take(sample, time.1));
            account.power_uw = sample.and_then(|sample| sample.power_uw);
            account.energy.observe(interval, gain);
            self.restarts += u64::from(gain == Some(Gain::Restarted));
        }
        for refused in &self.discovery.refused {
            tally.note::<()>(Err(refused.clone()));
        }
        tally.result()
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
    let busy_ns = look
        .busy
        .as_ref()
        .map(|busy| there.cpus.iter().filter_map(|cpu| busy.get(&cpu)).map(Duration::as_nanos).sum());
    Interval {
        length,
        cpu_ns: u128::from(there.cpus.len()) * nanos,
        busy_ns,
        byte_ns: u128::from(memory.unwrap_or(0)) * nanos,
        uses: usages.uses((from, to), (part, topology), look.busy.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use energy_meters::{Range, Source};

    use super::*;

    #[test]
    fn a_gain_is_what_lies_between_two_readings_of_one_counter() {
        let zone = Zone {
            domain: Domain::Package,
            socket: Some(0),
            source: Source::Powercap,
            name: "package-0".to_owned(),
            estimated: false,
        };
        let energy = EnergyAccounts::new(Basis::Cpus, IdlePower::Set(0));
        let mut account = Account::new(zone, ZoneRole::Attributed, energy);
        let (wraps, begin) = (Range::Wraps { at: 1000 }, Instant::now());
        let readings = [
            (900, wraps, 0, Gain::First),
            (950, wraps, 0, Gain::Grown(50)),
            (20, wraps, 0, Gain::Grown(70)),
            // The range differs, so it is another counter: its gain is not known, though the value is higher.
            (60, Range::Full, 0, Gain::Restarted),
            (65, Range::Full, 0, Gain::Grown(5)),
            (15, Range::Full, 0, Gain::Restarted),
            (99, Range::Full, 1, Gain::First),
        ];
        for (seconds, (energy_uj, range, epoch, wanted)) in (0..).zip(readings) {
            let sample = Sample { energy_uj, range, epoch, power_uw: None };
            let gain = account.take(sample, begin + Duration::from_secs(seconds));
            assert_eq!(gain, wanted, "{energy_uj}");
        }
    }
}
