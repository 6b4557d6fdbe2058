//! Energy of the node and of its parts, split over jobs.
//!
//! The meters are `crate::energy`'s, the splitting is `crate::ledger`'s; here is when they are read, what the jobs held
//! and used meanwhile, and what is told. It is read at every scrape, when jobs come and go, and as often as the meters
//! need when nobody asks (RAPL's counters wrap), but for a scrape not more often than once a second.

mod cpu_mask;
mod machine;
mod stays;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use machine::{parse_cpu_idle, parse_node_memory};
pub use stays::{parse_numa_stat, parse_numa_stat_v1, parse_usage_percpu};

use super::attendance::{Attendance, Attended, Call};
use super::node_files::NodeFiles;
use super::slot::Slot;
use super::{BuildContext, Built, CollectError, Collector, Entry, Fate, Levels, LifeHook, Scene, Tally};
use crate::cgroup::Cgroup;
use crate::energy::{self, Discovery, Domain, Sample, Source, Standing, Zone, standings};
use crate::kernel_file::Buffer;
use crate::ledger::{Basis, EnergyBook, Gain, Idle, Interval, Method, Range};
use crate::metric::{Section, SubjectId, Unit, node_family};
use crate::roots::Roots;
use crate::slurm::{Job, LifeId};
use machine::{Look, Machine};
use stays::{Facts, Stays, Wanted};

node_family!(
    JOB_ENERGY,
    Job,
    "jobledger_job_energy_joules_total",
    Counter,
    Some(Unit::Joules),
    ["domain", "socket", "method"],
    "Energy booked to the job; the domains are disjoint and may be added up, the method says how it was split",
    "0.1.0"
);
node_family!(
    NODE_ENERGY,
    Node,
    "jobledger_node_energy_joules_total",
    Counter,
    Some(Unit::Joules),
    ["domain", "socket", "source"],
    "Energy as measured since this exporter started; domains overlap and sources repeat each other, jobledger_node_energy_zone_info tells which",
    "0.1.0"
);
node_family!(
    UNATTRIBUTED,
    Node,
    "jobledger_node_energy_unattributed_joules_total",
    Counter,
    Some(Unit::Joules),
    ["domain", "socket"],
    "Energy that no job can be charged with: of CPUs and memory that no job holds, and of the system's own work",
    "0.1.0"
);
node_family!(
    ZONE,
    Node,
    "jobledger_node_energy_zone_info",
    Info,
    None,
    ["domain", "socket", "source", "standing", "estimated"],
    "What measures energy: booked to jobs, contained in or wider than what is booked, a duplicate, or the total of the node; estimated ones are added up from power",
    "0.1.0"
);
node_family!(
    POWER,
    Node,
    "jobledger_node_power_watts",
    Gauge,
    Some(Unit::Watts),
    ["domain", "socket", "source"],
    "Momentary or short-time mean power as a power meter tells it",
    "0.1.0"
);
node_family!(
    IDLE,
    Node,
    "jobledger_node_energy_idle_watts",
    Gauge,
    Some(Unit::Watts),
    ["domain", "socket", "origin"],
    "Idle power that is shared by the CPUs held: set by --collector.energy.idle-watts, or the least seen while idle",
    "0.1.0"
);

/// Row of the registry.
pub(super) const ENTRY: Entry = Entry {
    name: "energy",
    summary: "Energy of sockets, memory and node by every meter that there is, split over jobs",
    default_on: true,
    cost: Some("Two or three short reads per job, only where there is a meter"),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&JOB_ENERGY, &NODE_ENERGY, &UNATTRIBUTED, &ZONE, &POWER, &IDLE],
    build,
};

/// Scrapes that follow each other more closely are told the same energy. Whoever reads RAPL often and exactly learns what
/// other processes compute (PLATYPUS, CVE-2020-8694); the kernel keeps users from it, and so must what is published.
pub const PAUSE: Duration = Duration::from_secs(1);

/// An idle power that the site has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdlePower {
    /// Of which domain.
    pub domain: Domain,
    /// Of which socket; `None` for each.
    pub socket: Option<u32>,
    /// Microwatts.
    pub microwatts: u64,
}

/// Parses `package=45`, `package/1=45.5`: watts of a domain, or of one socket of it.
pub fn parse_idle_power(text: &str) -> Result<IdlePower, String> {
    const FORM: &str = "not DOMAIN=WATTS or DOMAIN/SOCKET=WATTS";
    let (place, watts) = text.split_once('=').ok_or(FORM)?;
    let (domain, socket) = match place.split_once('/') {
        Some((domain, socket)) => {
            (domain, Some(socket.parse().map_err(|_| "not a socket's number".to_owned())?))
        }
        None => (place, None),
    };
    let domain = match domain {
        "package" => Domain::Package,
        "node" => Domain::Node,
        _ => return Err("only package and node have an idle power".to_owned()),
    };
    let watts: f64 = watts.parse().map_err(|_| "not a number of watts".to_owned())?;
    if !(0.0..=100_000.0).contains(&watts) {
        return Err("not from 0 to 100000 watts".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 10^11")]
    let microwatts = (watts * 1e6).round() as u64;
    Ok(IdlePower { domain, socket, microwatts })
}

/// A zone and its book.
struct Account {
    zone: Zone,
    standing: Standing,
    book: EnergyBook,
    last: Option<(Sample, Instant)>,
    /// Whether the latest reading succeeded.
    read: bool,
    power_uw: Option<u64>,
}

impl Account {
    /// A counter's value as the book wants it. One that fell by more than can be a wrap began anew.
    fn take(&mut self, sample: Sample, now: Instant) -> (u64, Range) {
        let last = self.last.replace((sample, now));
        let range = match sample.range {
            energy::Range::Full => Range::Full,
            energy::Range::Wraps { at } => Range::Wraps { at },
        };
        let Some((earlier, at)) = last else { return (sample.energy_uj, range) };
        if earlier.epoch != sample.epoch {
            self.book.lost();
        }
        let wrapped = sample.gain_since(&earlier, now.saturating_duration_since(at)).is_some();
        (sample.energy_uj, if wrapped { range } else { Range::Full })
    }
}

/// What happened to jobs since the last reading, in order.
enum Event {
    Appeared(LifeId, Arc<Cgroup>, Facts, Instant),
    Read(LifeId, Arc<Cgroup>, Facts),
    Left(LifeId, Instant),
    Forgotten(LifeId, Fate),
}

/// Events that wait to be read at most: more come only while a meter hangs.
const MOST_EVENTS: usize = 16384;

#[derive(Default)]
struct Events {
    waiting: Vec<Event>,
    /// There were too many: who is there is to be taken from the next scrape.
    lost: bool,
}

struct Inner {
    roots: Arc<Roots>,
    machine: Machine,
    stays: Stays,
    discovery: Discovery,
    discovered: Instant,
    accounts: Vec<Account>,
    idle: Vec<IdlePower>,
    accelerated: bool,
    last: Option<Instant>,
    /// When a scrape had it read last, and how that went.
    told: Option<(Instant, Result<(), CollectError>)>,
    restarts: u64,
    buffer: Buffer,
}

/// When it is to be read without a scrape.
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
}

struct Shared {
    inner: Slot<Inner>,
    events: Mutex<Events>,
    plan: Mutex<Plan>,
    pause: Duration,
    attendance: Arc<Attendance>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether something else on the node draws a large part of its power: then the node's total is not the CPUs' to split.
fn accelerated(roots: &Roots) -> bool {
    ["nvidiactl", "nvidia0", "kfd", "dri/renderD128"].iter().any(|node| roots.dev(node).exists())
}

fn build(context: &BuildContext) -> Built {
    let shared = parts(context);
    let attended: Arc<dyn Attended> = shared.clone();
    context.attendance.attend(&attended);
    Built { collector: Box::new(Energy { shared: shared.clone() }), life: Some(shared) }
}

fn parts(context: &BuildContext) -> Arc<Shared> {
    let discovery = context.meters.take().unwrap_or_else(|| energy::discover(&context.roots));
    let inner = Inner {
        roots: context.roots.clone(),
        machine: Machine::new(NodeFiles::new(&context.roots)),
        stays: Stays::default(),
        discovery,
        discovered: Instant::now(),
        accounts: Vec::new(),
        idle: context.idle_power.clone(),
        accelerated: accelerated(&context.roots),
        last: None,
        told: None,
        restarts: 0,
        buffer: Buffer::default(),
    };
    Arc::new(Shared {
        inner: Slot::new(inner),
        events: Mutex::default(),
        plan: Mutex::default(),
        pause: context.energy_pause,
        attendance: context.attendance.clone(),
    })
}

impl Inner {
    /// The accounts follow the zones that there are now; those of zones that went are kept for the jobs' sake.
    fn open_accounts(&mut self) {
        let zones = self.discovery.zones();
        let whole_node =
            !zones.iter().zip(standings(&zones)).any(|(_, standing)| standing == Standing::Booked);
        // Most readings interrupt a CPU: what another source tells as well is not read.
        let mut at = 0;
        let all = standings(&zones);
        for meter in &mut self.discovery.meters {
            for index in 0..meter.zones().len() {
                if all.get(at) == Some(&Standing::Duplicate) {
                    meter.skip(index);
                }
                at += 1;
            }
        }
        for (zone, standing) in zones.iter().zip(all) {
            // Without anything finer the node's own total is what can be split, if it is the CPUs' for the most part.
            let standing = match standing {
                Standing::NodeTotal if whole_node && !self.accelerated => Standing::Booked,
                other => other,
            };
            if let Some(account) = self.accounts.iter_mut().find(|account| account.zone == *zone) {
                account.standing = standing;
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
            let idle = set.map_or(Idle::Learned(None), |idle| Idle::Set(idle.microwatts / parts));
            let book = EnergyBook::new(basis, idle);
            let account =
                Account { zone: zone.clone(), standing, book, last: None, read: false, power_uw: None };
            self.accounts.push(account);
        }
    }

    fn take_in(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Appeared(life, cgroup, facts, at) => self.stays.appeared(life, cgroup, facts, at),
                Event::Read(life, cgroup, facts) => {
                    self.stays.reopened(life, &cgroup);
                    self.stays.facts(life, facts);
                }
                Event::Left(life, at) => self.stays.left(life, at),
                Event::Forgotten(life, fate) => {
                    self.accounts.iter_mut().for_each(|account| account.book.forget(life, fate));
                }
            }
        }
    }

    /// Looks for meters again when CPUs came or went, and now and then where there is none.
    fn rediscover(&mut self, now: Instant, changed: bool) {
        const PAUSE: Duration = Duration::from_secs(300);
        let due = now.saturating_duration_since(self.discovered) >= PAUSE;
        if (changed && self.last.is_some()) || (self.discovery.meters.is_empty() && due) {
            self.discovery = energy::discover(&self.roots);
            self.discovered = now;
            self.accounts.iter_mut().for_each(|account| account.book.lost());
            self.open_accounts();
        } else if self.accounts.is_empty() {
            self.open_accounts();
        }
    }

    /// Takes in the jobs that no event told of, because there were too many or no meter at that time.
    fn take_over(&mut self, scene: &Scene, now: Instant) {
        let running = || scene.jobs.iter().chain(&scene.pending).filter(|job| job.is_running());
        for job in running() {
            if self.stays.has(job.life) {
                self.stays.reopened(job.life, &job.cgroup);
            } else {
                let facts = Facts::read(&job.cgroup.view(), &mut self.buffer);
                self.stays.appeared(job.life, job.cgroup.clone(), facts, now);
            }
        }
    }

    /// Reads the meters and the jobs, and books the time since the last reading.
    fn read(&mut self, events: Events, scene: Option<&Scene>) -> Result<(), CollectError> {
        if events.lost {
            self.stays = Stays::default();
        }
        self.take_in(events.waiting);
        let now = Instant::now();
        if let Some(scene) = scene {
            self.take_over(scene, now);
        }
        let look = self.machine.look(now)?;
        if look.changed {
            self.stays.topology_changed();
        }
        self.rediscover(now, look.changed);
        if self.discovery.meters.is_empty() {
            self.last = Some(now);
            self.stays.booked();
            return Err(self.nothing());
        }
        let memory = self.accounts.iter().any(|account| account.zone.domain == Domain::Memory);
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        self.stays.read(Wanted { memory, page }, self.machine.topology(), &mut self.buffer);
        let from = self.last.replace(now).unwrap_or(now);
        let result = self.book((from, now), &look, scene.is_some());
        self.stays.booked();
        result
    }

    fn nothing(&self) -> CollectError {
        self.discovery.refused.first().cloned().unwrap_or_else(|| CollectError::Unsupported {
            needs: "RAPL (powercap or the power PMU), a power meter under hwmon, HSMP or Cray's pm_counters"
                .to_owned(),
        })
    }

    fn book(&mut self, time: (Instant, Instant), look: &Look, slow_too: bool) -> Result<(), CollectError> {
        let mut tally = Tally::default();
        let mut readings: HashMap<Zone, Result<Sample, CollectError>> = HashMap::new();
        for meter in self.discovery.meters.iter_mut().filter(|meter| slow_too || !meter.slow()) {
            let zones = meter.zones().to_vec();
            meter.read(time.1, &mut |index, reading| {
                if let Some(zone) = zones.get(index) {
                    readings.insert(zone.clone(), reading);
                }
            });
        }
        let mut intervals: BTreeMap<Option<u32>, Interval> = BTreeMap::new();
        for account in &mut self.accounts {
            let interval = intervals
                .entry(account.zone.socket)
                .or_insert_with(|| interval(&self.stays, &self.machine, account.zone.socket, time, look));
            let booked = account.standing == Standing::Booked;
            let empty = Interval::default();
            let interval = if booked { &*interval } else { &empty };
            let reading = readings.remove(&account.zone);
            if reading.is_none() && slow_too {
                account.read = false;
            }
            let sample = reading.and_then(|reading| {
                account.read = reading.is_ok();
                tally.note(reading)
            });
            let reading = sample.map(|sample| account.take(sample, time.1));
            account.power_uw = sample.and_then(|sample| sample.power_uw);
            let gain = account.book.observe(interval, reading);
            self.restarts += u64::from(gain == Some(Gain::Restarted));
        }
        for refused in &self.discovery.refused {
            tally.note::<()>(Err(refused.clone()));
        }
        tally.result()
    }
}

/// What happened on a part of the node.
fn interval(
    stays: &Stays,
    machine: &Machine,
    part: Option<u32>,
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
        byte_ns: u128::from(there.memory.unwrap_or(0)) * nanos,
        uses: stays.uses((from, to), (part, topology), look.busy.as_ref()),
    }
}

impl Shared {
    fn read(&self, inner: &mut Inner, scene: Option<&Scene>) -> Result<(), CollectError> {
        let began = Instant::now();
        let events = std::mem::take(&mut *lock(&self.events));
        let outcome = inner.read(events, scene);
        let every = inner
            .discovery
            .meters
            .iter()
            .filter(|meter| !meter.slow())
            .filter_map(|m| m.at_least_every())
            .min();
        let metered = !inner.discovery.meters.is_empty();
        *lock(&self.plan) = Plan { last: Some(began), took: began.elapsed(), metered, every, soon: None };
        outcome
    }

    /// Notes what happened to a job. Where nothing is measured nothing is noted.
    fn note(&self, event: impl FnOnce() -> Event) {
        let plan = lock(&self.plan);
        if plan.last.is_some() && !plan.metered {
            return;
        }
        drop(plan);
        let event = event();
        let mut events = lock(&self.events);
        if events.waiting.len() >= MOST_EVENTS {
            *events = Events { waiting: Vec::new(), lost: true };
        }
        events.waiting.push(event);
    }

    /// After a job came or went. Readings cost at most a hundredth of a CPU, however many jobs come and go: what each held
    /// and used is exact all the same, only the power in between is a mean.
    fn soon(&self) -> bool {
        const CLOSEST: Duration = Duration::from_millis(100);
        let mut plan = lock(&self.plan);
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

impl Attended for Shared {
    fn attend(&self, call: Call) {
        if call == Call::Due || self.soon() {
            // A failure is found again, and told, by the next scrape.
            let _ = self.inner.with(Duration::ZERO, |inner| self.read(inner, None));
        }
    }

    fn due(&self) -> Option<Instant> {
        let plan = lock(&self.plan);
        let regular = plan.last.zip(plan.every).map(|(last, every)| last + every);
        [plan.soon, regular].into_iter().flatten().min()
    }
}

impl LifeHook for Shared {
    fn appeared(&self, job: &Job) {
        self.note(|| {
            let facts = Facts::read(&job.cgroup.view(), &mut Buffer::default());
            Event::Appeared(job.life, job.cgroup.clone(), facts, Instant::now())
        });
    }

    fn left(&self, life: LifeId) {
        self.note(|| Event::Left(life, Instant::now()));
    }

    fn checkpoint(&self, job: &Job, _step: Option<u32>, _levels: Levels, buffer: &mut Buffer) {
        self.note(|| {
            let facts = Facts::read(&job.cgroup.view(), buffer);
            Event::Read(job.life, job.cgroup.clone(), facts)
        });
    }

    fn forget(&self, life: LifeId, fate: Fate) {
        self.note(|| Event::Forgotten(life, fate));
    }
}

struct Energy {
    shared: Arc<Shared>,
}

impl Collector for Energy {
    fn collect(&mut self, scene: &Scene, out: &mut Section) -> Result<(), CollectError> {
        const PATIENCE: Duration = Duration::from_millis(500);
        let work = |inner: &mut Inner| {
            let recent = inner.told.as_ref().filter(|(at, _)| at.elapsed() < self.shared.pause);
            let outcome = match recent {
                Some((_, outcome)) => outcome.clone(),
                None => {
                    let outcome = self.shared.read(inner, Some(scene));
                    inner.told = Some((Instant::now(), outcome.clone()));
                    outcome
                }
            };
            inner.tell(scene, out);
            outcome
        };
        let outcome = self.shared.inner.with(PATIENCE, work).unwrap_or(Err(CollectError::TimedOut));
        self.shared.attendance.look();
        outcome
    }
}

fn standing_label(standing: Standing) -> &'static str {
    match standing {
        Standing::Booked => "booked",
        Standing::Contained => "contained",
        Standing::Duplicate => "duplicate",
        Standing::NodeTotal => "node_total",
        Standing::Wider => "wider",
    }
}

fn joules(microjoules: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 microjoules are 104 days of a kilowatt")]
    let microjoules = microjoules as f64;
    microjoules / 1e6
}

/// A socket's number as a label; empty for what is not of one socket.
fn socket_label(socket: Option<u32>) -> String {
    socket.map(|socket| socket.to_string()).unwrap_or_default()
}

/// Where energy was measured: zones of the same place (dies of a socket) are added up.
type Place = (Domain, Option<u32>, Source);

impl Inner {
    fn tell(&mut self, scene: &Scene, out: &mut Section) {
        out.note_restarts(std::mem::take(&mut self.restarts));
        let mut places: BTreeMap<Place, Vec<&Account>> = BTreeMap::new();
        for account in &self.accounts {
            let zone = &account.zone;
            places.entry((zone.domain, zone.socket, zone.source)).or_default().push(account);
        }
        for ((domain, socket, source), accounts) in &places {
            tell_zone((*domain, *socket, *source), accounts, out);
        }
        // What was not read now is absent now: its last value would pass for a part that draws nothing.
        places.retain(|_, accounts| accounts.iter().all(|account| account.read));
        for ((domain, socket, source), accounts) in &places {
            let socket = socket_label(*socket);
            let place = [("domain", domain.as_str()), ("socket", socket.as_str())];
            let sum =
                |of: fn(&EnergyBook) -> u64| joules(accounts.iter().map(|account| of(&account.book)).sum());
            let with_source = [place[0], place[1], ("source", source.as_str())];
            out.push(&NODE_ENERGY, SubjectId::NODE, &with_source, sum(|book| book.account().total()));
            let power: Option<u64> = accounts.iter().map(|account| account.power_uw).sum();
            if let Some(power) = power {
                out.push(&POWER, SubjectId::NODE, &with_source, joules(power));
            }
            if accounts.iter().any(|account| account.standing == Standing::Booked) {
                out.push(&UNATTRIBUTED, SubjectId::NODE, &place, sum(|book| book.account().residual()));
                tell_idle(accounts, place, out);
            }
        }
        let told: Vec<&Account> = places.into_values().flatten().collect();
        for job in &scene.jobs {
            // What ended is told of zones that cannot be read now, too: nothing of it can change.
            let gone = self.accounts.iter().filter(|account| !job.is_running() && !account.read);
            tell_job(job, told.iter().copied().chain(gone), out);
        }
    }
}

fn tell_zone((domain, socket, source): Place, accounts: &[&Account], out: &mut Section) {
    let Some(first) = accounts.first() else { return };
    let socket = socket_label(socket);
    let labels = [
        ("domain", domain.as_str()),
        ("socket", socket.as_str()),
        ("source", source.as_str()),
        ("standing", standing_label(first.standing)),
        ("estimated", if first.zone.estimated { "true" } else { "false" }),
    ];
    out.push(&ZONE, SubjectId::NODE, &labels, 1);
}

fn tell_idle(accounts: &[&Account], place: [(&'static str, &str); 2], out: &mut Section) {
    let all: Option<u64> = accounts.iter().map(|account| account.book.idle().microwatts()).sum();
    let set = accounts.iter().any(|account| matches!(account.book.idle(), Idle::Set(_)));
    let cpus = accounts.iter().all(|account| account.zone.domain != Domain::Memory);
    if let Some(microwatts) = all.filter(|_| cpus) {
        let labels = [place[0], place[1], ("origin", if set { "set" } else { "learned" })];
        out.push(&IDLE, SubjectId::NODE, &labels, joules(microwatts));
    }
}

fn tell_job<'a>(job: &Job, accounts: impl Iterator<Item = &'a Account>, out: &mut Section) {
    let mut booked: BTreeMap<(Domain, Option<u32>, Method), u64> = BTreeMap::new();
    for account in accounts {
        for (method, energy) in account.book.account().of(job.life) {
            let sum = booked.entry((account.zone.domain, account.zone.socket, method)).or_insert(0);
            *sum = sum.saturating_add(energy);
        }
    }
    if booked.is_empty() {
        return;
    }
    let subject = out.subject(job.labels());
    for ((domain, socket, method), energy) in booked {
        let socket = socket_label(socket);
        let labels = [("domain", domain.as_str()), ("socket", socket.as_str()), ("method", method.as_str())];
        out.push(&JOB_ENERGY, subject, &labels, joules(energy));
    }
}

#[cfg(test)]
mod tests;
