//! The energy of a node that is in none of its measured parts: what a meter of the whole node counts beyond packages, memory and
//! GPUs. It is the board, fans, network cards, losses of the supplies, and every part without a meter.
//!
//! Meters are read at different times. So energy is kept as charges of a time, and a time is settled once all meters have
//! passed its end; a charge that goes beyond it is divided as if its power were even. Σ parts + overhead − deficit is what the
//! node's meter counted in the settled time, to the microjoule.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use durable_state::instant;
use readings::LONGEST_GAP;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::{Account, IdleEstimate, IdlePower, Interval, Method, split};

/// A settled time is at least this long: counters of node controllers step by a joule and by 100 ms.
const SHORTEST: Duration = Duration::from_secs(1);
/// It ends where all meters were read so shortly before: then what lies between two readings need not be even.
const NEAR: Duration = Duration::from_secs(2);
/// Where they are not, it ends after this time.
const LONGEST: Duration = Duration::from_secs(60);
/// Twice the standard error of the overhead of the idle node may be this part of the overhead: a BMC's power, seen now and then,
/// is not better, and to go by joules alone is far worse.
const LARGEST_ERROR: f64 = 0.2;

/// Energy, and what jobs were charged with of it; microjoules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// All of it.
    pub energy: u64,
    /// By job run. What is in no job's share is unattributed.
    pub jobs: BTreeMap<JobRunId, u64>,
}

impl Charged {
    /// Adds another amount.
    pub fn add(&mut self, other: &Self) {
        self.energy = self.energy.saturating_add(other.energy);
        for (run, more) in &other.jobs {
            let sum = self.jobs.entry(*run).or_default();
            *sum = sum.saturating_add(*more);
        }
    }

    /// Takes a part of it away: `time` of `whole`, rounded down.
    fn take(&mut self, time: Duration, whole: Duration) -> Self {
        let part = |amount: &mut u64| {
            let taken = u128::from(*amount) * time.as_nanos() / whole.as_nanos().max(1);
            let taken = u64::try_from(taken).unwrap_or(*amount).min(*amount);
            *amount -= taken;
            taken
        };
        let energy = part(&mut self.energy);
        Self { energy, jobs: self.jobs.iter_mut().map(|(run, amount)| (*run, part(amount))).collect() }
    }
}

/// The energy of a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnergyCharge {
    /// From a reading
    #[serde(with = "instant")]
    pub from: Instant,
    /// to the next one.
    #[serde(with = "instant")]
    pub to: Instant,
    /// How much it was.
    pub charged: Charged,
}

/// The charges of one meter that are not settled yet, in order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Charges(VecDeque<EnergyCharge>);

impl Charges {
    fn known_until(&self) -> Option<Instant> {
        self.0.back().map(|charge| charge.to)
    }

    fn add(&mut self, charge: EnergyCharge) {
        if charge.from < charge.to {
            self.0.push_back(charge);
        }
    }

    /// Takes what lies between two moments, and how much of that time is known. What is earlier is dropped.
    fn take(&mut self, from: Instant, to: Instant) -> (Charged, Duration) {
        let (mut sum, mut known) = (Charged::default(), Duration::ZERO);
        while self.0.front().is_some_and(|first| first.from < to)
            && let Some(mut first) = self.0.pop_front()
        {
            let whole = first.to.saturating_duration_since(first.from);
            let early = from.saturating_duration_since(first.from).min(whole);
            first.charged.take(early, whole);
            let (begin, left) = (first.from + early, whole.saturating_sub(early));
            let wanted = to.saturating_duration_since(begin).min(left);
            sum.add(&first.charged.take(wanted, left));
            known += wanted;
            if wanted < left {
                self.0.push_front(EnergyCharge { from: begin + wanted, ..first });
                break;
            }
        }
        (sum, known)
    }

    fn forget(&mut self, run: JobRunId) {
        for charge in &mut self.0 {
            charge.charged.jobs.remove(&run);
        }
    }
}

/// A time in which the node was looked at, with what its own parts were charged with.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Span {
    #[serde(with = "instant")]
    from: Instant,
    #[serde(with = "instant")]
    to: Instant,
    /// CPUs held and busy, over the whole node.
    interval: Interval,
    parts: Charged,
    /// Whether the energy of every part is known.
    known: bool,
}

impl Span {
    fn length(&self) -> Duration {
        self.to.saturating_duration_since(self.from)
    }
}

/// What is read of a node's parts at one moment.
#[derive(Debug, Clone)]
pub struct PartsReading<'a> {
    /// Since the reading before,
    pub from: Instant,
    /// until now.
    pub to: Instant,
    /// CPUs held and busy, over the whole node.
    pub interval: &'a Interval,
    /// What packages and memory were charged with.
    pub charged: Charged,
    /// Whether every one of them was read now. If not, their next charge is for this time, too.
    pub complete: bool,
    /// Whether all that was charged is known; not so when a counter began or restarted.
    pub known: bool,
}

/// The account of a node's overhead.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OverheadAccounts {
    account: Account<Method>,
    idle: IdleEstimate,
    wall: Charges,
    gpus: BTreeMap<Arc<str>, Charges>,
    /// A GPU is there whose energy is not measured.
    unmeasured: bool,
    open: Option<Span>,
    waiting: VecDeque<Span>,
    deficit: u64,
}

impl OverheadAccounts {
    /// Accounts without any charge.
    pub fn new(idle: IdlePower) -> Self {
        Self {
            account: Account::default(),
            idle: IdleEstimate::new(idle, LARGEST_ERROR),
            wall: Charges::default(),
            gpus: BTreeMap::new(),
            unmeasured: false,
            open: None,
            waiting: VecDeque::new(),
            deficit: 0,
        }
    }

    /// The node's meter counted this.
    pub fn wall(&mut self, charge: EnergyCharge) {
        self.wall.add(charge);
    }

    /// These GPUs are there. Energy of one that is not measured is in the overhead, which then is no job's.
    pub fn set_gpus(&mut self, measured: impl IntoIterator<Item = Arc<str>>, unmeasured: bool) {
        let mut before = std::mem::take(&mut self.gpus);
        let keep = |uuid: Arc<str>| {
            let charges = before.remove(&uuid).unwrap_or_default();
            (uuid, charges)
        };
        self.gpus = measured.into_iter().map(keep).collect();
        self.unmeasured = unmeasured;
    }

    /// A GPU was charged with this.
    pub fn gpu(&mut self, uuid: &str, charge: EnergyCharge) {
        if let Some(charges) = self.gpus.get_mut(uuid) {
            charges.add(charge);
        }
    }

    /// The parts of the node were read.
    pub fn observe(&mut self, reading: PartsReading<'_>, now: Instant) {
        let PartsReading { from, to, interval, charged, complete, known } = reading;
        if from == to {
            return;
        }
        let open = self.open.get_or_insert_with(|| Span {
            from,
            to: from,
            interval: Interval::default(),
            parts: Charged::default(),
            known: true,
        });
        open.to = to;
        open.interval.add(interval);
        open.parts.add(&charged);
        open.known &= known;
        let late = open.length() > LONGEST_GAP;
        let read = |charges: &Charges, ago: Duration| {
            let until = charges.known_until();
            until.is_some_and(|until| until > open.from && to.saturating_duration_since(until) <= ago)
        };
        let near = read(&self.wall, NEAR) && self.gpus.values().all(|gpu| read(gpu, NEAR));
        let worth = (near && open.length() >= SHORTEST)
            || (open.length() >= LONGEST && read(&self.wall, LONGEST_GAP));
        // What is not known of this time is known of the next.
        if (complete && (worth || !known)) || late {
            self.waiting.extend(self.open.take().map(|open| Span { known: open.known && complete, ..open }));
        }
        self.settle(now);
    }

    /// Settles what all meters have passed, and what one of them has left open for too long.
    fn settle(&mut self, now: Instant) {
        while let Some(span) = self.waiting.pop_front() {
            let passed = |charges: &Charges| charges.known_until().is_some_and(|until| until >= span.to);
            let waits = !passed(&self.wall) || !self.gpus.values().all(passed);
            if waits && now.saturating_duration_since(span.to) <= LONGEST_GAP {
                self.waiting.push_front(span);
                return;
            }
            self.charge(span);
        }
    }

    fn charge(&mut self, mut span: Span) {
        let length = span.length();
        let (wall, seen) = self.wall.take(span.from, span.to);
        let mut known = span.known && !self.unmeasured && seen == length;
        for charges in self.gpus.values_mut() {
            let (charged, seen) = charges.take(span.from, span.to);
            known &= seen == length;
            span.parts.add(&charged);
        }
        // Of a time in which the node's meter was not read nothing is known but its parts.
        let parts = span.parts.clone().take(seen, length).energy;
        let Some(overhead) = wall.energy.checked_sub(parts) else {
            self.deficit = self.deficit.saturating_add(parts - wall.energy);
            return;
        };
        let paid = overhead.min(self.deficit);
        self.deficit -= paid;
        if !known {
            self.account.leave_unattributed(overhead - paid);
            return;
        }
        // GPUs at work leave the CPUs of their jobs idle.
        let at_rest = self.gpus.is_empty() || span.interval.uses.is_empty();
        let busy = span.interval.busy.filter(|_| at_rest).map(|busy| (busy.cpus_ns, span.interval.cpu_ns));
        self.idle.learn(length, busy, u128::from(parts) * 1000, overhead);
        self.split(overhead - paid, &span);
    }

    fn split(&mut self, overhead: u64, span: &Span) {
        let joules = || span.parts.jobs.iter().map(|(run, energy)| (*run, u128::from(*energy))).collect();
        let whole = u128::from(span.parts.energy);
        let Some((power, fitted)) = self.idle.best() else {
            self.account.charge(Method::BookedJoules, split(overhead, joules(), whole));
            return;
        };
        let method = if fitted { Method::FittedHeldAndJoules } else { Method::HeldAndJoules };
        let idle = u128::from(power) * span.length().as_nanos() / 1_000_000_000;
        let idle = u64::try_from(idle).unwrap_or(u64::MAX).min(overhead);
        self.account.charge(method, split(idle, span.interval.held(), span.interval.cpu_ns));
        self.account.charge(method, split(overhead - idle, joules(), whole));
    }

    /// Takes an idle power that the site has set, or keeps the one that was learned.
    pub fn set_idle(&mut self, idle: IdlePower) {
        self.idle.set(idle);
    }

    /// Drops the job runs that are not known any more.
    pub fn keep(&mut self, known: impl Fn(JobRunId) -> bool) {
        let spans = self.waiting.iter_mut().chain(&mut self.open);
        spans.for_each(|span| {
            span.interval.keep(&known);
            span.parts.jobs.retain(|run, _| known(*run));
        });
        for charge in self.gpus.values_mut().flat_map(|charges| &mut charges.0) {
            charge.charged.jobs.retain(|run, _| known(*run));
        }
        self.account.keep(known);
    }

    /// A scrape shows what a job run is charged with.
    pub fn export(&mut self, run: JobRunId) {
        self.account.export(run);
    }

    /// A job run is not retained any more. Its part of what is not settled is unattributed.
    pub fn forget(&mut self, run: JobRunId) {
        for span in self.waiting.iter_mut().chain(&mut self.open) {
            span.interval.keep(|other| other != run);
            span.parts.jobs.remove(&run);
        }
        self.gpus.values_mut().for_each(|charges| charges.forget(run));
        self.account.forget(run);
    }

    /// Sum of the jobs, and the unattributed rest, microjoules.
    pub fn account(&self) -> &Account<Method> {
        &self.account
    }

    /// The overhead of the idle node.
    pub fn idle(&self) -> &IdleEstimate {
        &self.idle
    }

    /// By how much the parts exceed what the node's meter counted, microjoules. Later overhead is reduced by it.
    pub fn deficit(&self) -> u64 {
        self.deficit
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod truth;
