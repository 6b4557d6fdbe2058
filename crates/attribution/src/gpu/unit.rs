//! The accounts of one unit.

mod saved;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use readings::{Counter, Gain, Range};
pub(super) use saved::SavedUnit;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::super::{Account, Charged, EnergyCharge, IdlePower, Split, split};
use super::allocations::Allocations;
use super::{GpuReading, Roles};

/// Most intervals that wait. More come only if the units of arriving jobs are never found.
const MOST_WAITING: usize = 4096;
/// How long a unit is away before jobs that are not retained any more are not kept for it. It may have fallen off the bus, and a
/// part of a divided GPU may be no more.
pub(super) const LONGEST_ABSENCE: Duration = Duration::from_secs(600);
/// A job that came or went this close to an end of the interval had the unit for all of it, if no other had it: what ran
/// on it besides were its own first and last moments. Readings are made within this time when jobs come and go.
const GRACE: Duration = Duration::from_secs(1);

/// How a share came about. The words are the `method` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GpuMethod {
    /// The job had the unit for itself.
    Alone,
    /// By what the driver counted of the job's processes.
    Processes,
    /// The idle power by the time for which jobs had it, the power beyond it by the driver's counts of their
    /// processes.
    TimeAndProcesses,
    /// Equally among the jobs that had it, by time.
    Time,
    /// Of a divided GPU: the idle power by slices, the power beyond it by the activity of the parts.
    SlicesAndActivity,
    /// Of a divided GPU: by slices.
    Slices,
}

impl GpuMethod {
    /// The `method` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Processes => "processes",
            Self::TimeAndProcesses => "time_and_processes",
            Self::Time => "time",
            Self::SlicesAndActivity => "slices_and_activity",
            Self::Slices => "slices",
        }
    }
}

/// What processes did on a unit in an interval, nanoseconds in which their kernels ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Those of jobs.
    pub jobs: BTreeMap<JobRunId, u64>,
    /// Those of no job.
    pub others: u64,
}

impl Shares {
    fn sum(&self) -> u64 {
        self.jobs.values().fold(self.others, |sum, share| sum.saturating_add(*share))
    }
}

/// A part of a divided GPU in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub uuid: Arc<str>,
    /// Its slices, and those of the whole GPU.
    pub slices: (u32, u32),
    /// Nanoseconds for which its multiprocessors had work since the observation before; `None` if that is not measured.
    pub active_ns: Option<u64>,
}

/// How a job stands with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Time in which it had the unit and nothing of it ran, as far as that was seen.
    pub idle: Duration,
    /// Part of the last interval in which something of it ran, in thousandths, and when that ended.
    #[serde(with = "last")]
    pub last: Option<(u32, Instant)>,
}

/// A part of an interval and when that ended.
mod last {
    use std::time::Instant;

    use durable_state::SavedInstant;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        last: &Option<(u32, Instant)>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        last.map(|(part, at)| (part, SavedInstant(at))).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<(u32, Instant)>, D::Error> {
        Ok(Option::<(u32, SavedInstant)>::deserialize(deserializer)?.map(|(part, at)| (part, at.0)))
    }
}

/// The epoch of accounts that were restored: no reader begins with it.
const RESTORED: u64 = u64::MAX;

/// A gain that waits until its jobs are known.
#[derive(Debug, Clone)]
pub(super) struct Interval<Q> {
    from: Instant,
    to: Instant,
    seen: bool,
    gains: Vec<(Q, u64)>,
    shares: Option<Shares>,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct CounterAccount<Q> {
    quantity: Q,
    raw: Counter,
    at: Instant,
    /// The counter that goes on while nobody reads it, as it stood in the last reading that had it.
    standing: Option<u64>,
    account: Account<GpuMethod>,
}

#[derive(Debug)]
pub(super) struct UnitAccounts<Q> {
    roles: Roles<Q>,
    epoch: u64,
    last: Option<Instant>,
    counters: Vec<CounterAccount<Q>>,
    waiting: VecDeque<Interval<Q>>,
    usage: BTreeMap<JobRunId, GpuUsage>,
    idle_power: IdlePower,
    /// Where `watched` and `vacant` end.
    counted_until: Option<Instant>,
    watched: Duration,
    vacant: Duration,
}

impl<Q: Copy + Eq> UnitAccounts<Q> {
    pub(super) fn new(roles: Roles<Q>) -> Self {
        Self {
            roles,
            epoch: 0,
            last: None,
            counters: Vec::new(),
            waiting: VecDeque::new(),
            usage: BTreeMap::new(),
            idle_power: IdlePower::Learned(None),
            counted_until: None,
            watched: Duration::ZERO,
            vacant: Duration::ZERO,
        }
    }

    /// Takes a reading; answers how many counters went back.
    pub(super) fn observe(&mut self, now: &GpuReading<'_, Q>) -> u64 {
        let Some(last) = self.last.replace(now.at) else {
            self.epoch = now.epoch;
            self.begin(now);
            self.stand_at(now);
            return 0;
        };
        let stood = self.stand_at(now);
        let epoch = std::mem::replace(&mut self.epoch, now.epoch);
        if epoch != now.epoch {
            self.counters.iter_mut().for_each(|line| line.raw.lost());
            self.begin(now);
            self.wait(Interval {
                from: last,
                to: now.at,
                seen: now.seen,
                gains: if epoch == RESTORED { stood } else { Vec::new() },
                shares: None,
                parts: Vec::new(),
            });
            return 0;
        }
        let (mut gains, mut late, mut restarts) = (Vec::new(), Vec::new(), 0);
        for (quantity, raw) in now.counts {
            let line = self.line(*quantity, now.at);
            let since = std::mem::replace(&mut line.at, now.at);
            match line.raw.advance(*raw, Range::Full) {
                Gain::Grown(gain) if since == last => gains.push((*quantity, gain)),
                Gain::Grown(gain) => late.push((since, (*quantity, gain))),
                Gain::Restarted => restarts += 1,
                Gain::First | Gain::Saturated => {}
            }
        }
        let shares = now.shares.cloned();
        self.wait(Interval {
            from: last,
            to: now.at,
            seen: now.seen,
            gains,
            shares,
            parts: now.parts.to_vec(),
        });
        // A gain after a gap covers more time than the shares.
        for (from, gain) in late {
            self.wait(Interval {
                from,
                to: now.at,
                seen: now.seen,
                gains: vec![gain],
                shares: None,
                parts: Vec::new(),
            });
        }
        restarts
    }

    /// Notes the counters as they stand. Returns what they gained since they were noted last; one that went back restarted, and
    /// its gain is not known.
    fn stand_at(&mut self, now: &GpuReading<'_, Q>) -> Vec<(Q, u64)> {
        let mut gains = Vec::new();
        for (quantity, standing) in now.standing {
            let before = self.line(*quantity, now.at).standing.replace(*standing);
            gains.extend(before.and_then(|before| Some((*quantity, standing.checked_sub(before)?))));
        }
        gains
    }

    fn begin(&mut self, now: &GpuReading<'_, Q>) {
        for (quantity, raw) in now.counts {
            let line = self.line(*quantity, now.at);
            line.at = now.at;
            line.raw.advance(*raw, Range::Full);
        }
    }

    fn line(&mut self, quantity: Q, at: Instant) -> &mut CounterAccount<Q> {
        let index = self.counters.iter().position(|line| line.quantity == quantity).unwrap_or_else(|| {
            self.counters.push(CounterAccount {
                quantity,
                raw: Counter::default(),
                at,
                standing: None,
                account: Account::default(),
            });
            self.counters.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed right above")]
        &mut self.counters[index]
    }

    fn wait(&mut self, interval: Interval<Q>) {
        if self.waiting.len() >= MOST_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            for (quantity, gain) in oldest.gains {
                self.account(quantity, |account| account.leave_unattributed(gain));
            }
        }
        self.waiting.push_back(interval);
    }

    fn account(&mut self, quantity: Q, charge: impl FnOnce(&mut Account<GpuMethod>)) {
        if let Some(line) = self.counters.iter_mut().find(|line| line.quantity == quantity) {
            charge(&mut line.account);
        }
    }

    pub(super) fn next_until(&mut self, until: Instant) -> Option<Interval<Q>> {
        self.waiting.front().filter(|interval| interval.to <= until)?;
        self.waiting.pop_front()
    }

    /// Since when it is not charged what it counts. A unit that was not read for long may never be read again.
    pub(super) fn pending_since(&self, now: Instant) -> Option<Instant> {
        let last = self.last.filter(|last| now.saturating_duration_since(*last) <= LONGEST_ABSENCE);
        self.waiting.iter().map(|interval| interval.from).min().or(last)
    }

    /// Charges an interval; returns the energy of it, where it was counted.
    pub(super) fn charge(
        &mut self,
        uuid: &str,
        interval: &Interval<Q>,
        allocations: &Allocations,
    ) -> Option<EnergyCharge> {
        let (from, to) = (interval.from, interval.to);
        let length = to.saturating_duration_since(from);
        let holders = allocations.between(uuid, from, to);
        let gain = |wanted: Q| {
            interval.gains.iter().find(|(quantity, _)| *quantity == wanted).map(|(_, gain)| *gain)
        };
        // A late gain's interval covers time of others before it.
        let uncounted = self.counted_until.map_or(from, |until| until.max(from)).min(to);
        self.watched += to.saturating_duration_since(uncounted);
        self.vacant += allocations.vacancy(uuid, uncounted, to);
        self.counted_until = Some(to);
        let busy = gain(self.roles.busy).or_else(|| busiest(&interval.parts));
        if let (Some(busy), Some(energy)) = (busy, gain(self.roles.energy)) {
            self.idle_power.learn(length, (busy.into(), length.as_nanos()), energy);
        }
        let alone = match holders.as_slice() {
            [(run, held)] if length.saturating_sub(*held) <= GRACE => Some(*run),
            _ => None,
        };
        let mut energy = None;
        for (quantity, amount) in &interval.gains {
            let splits = match alone {
                Some(run) => vec![(GpuMethod::Alone, Split { shares: vec![(run, *amount)], rest: 0 })],
                None if *quantity == self.roles.busy => split_busy(*amount, interval, &holders),
                None if *quantity == self.roles.energy && !interval.parts.is_empty() => {
                    self.split_over_parts(*amount, interval, length, allocations)
                }
                None if *quantity == self.roles.energy => {
                    self.split_energy(*amount, interval, &holders, length)
                }
                None => unattributed(*amount),
            };
            if *quantity == self.roles.energy {
                let mut charged = Charged { energy: *amount, ..Charged::default() };
                for (run, share) in splits.iter().flat_map(|(_, split)| &split.shares) {
                    *charged.jobs.entry(*run).or_default() += share;
                }
                energy = Some(EnergyCharge { from, to, charged });
            }
            self.account(*quantity, |account| {
                splits.into_iter().for_each(|(method, split)| account.charge(method, split));
            });
        }
        if let Some(busy) = gain(self.roles.busy).filter(|_| interval.seen) {
            // What the processes that are there do not explain may be of any that went meanwhile, or of a client of a server.
            let explained =
                |shares: &Shares| shares.jobs.values().fold(0, |sum: u64, share| sum.saturating_add(*share));
            for (run, held) in &holders {
                let (own, unknown) = match (alone, &interval.shares) {
                    (Some(_), _) => (busy, 0),
                    (None, Some(shares)) => {
                        (shares.jobs.get(run).copied().unwrap_or(0), busy.saturating_sub(explained(shares)))
                    }
                    (None, None) => continue,
                };
                self.stand(*run, *held, Duration::from_nanos(own), Duration::from_nanos(unknown), to);
            }
        }
        energy
    }

    fn stand(&mut self, run: JobRunId, held: Duration, busy: Duration, unknown: Duration, at: Instant) {
        let usage = self.usage.entry(run).or_insert(GpuUsage { idle: Duration::ZERO, last: None });
        usage.idle += held.saturating_sub(busy).saturating_sub(unknown);
        let thousandths = busy.as_nanos().min(held.as_nanos()) * 1000 / held.as_nanos().max(1);
        usage.last = u32::try_from(thousandths).ok().map(|part| (part, at));
    }

    fn split_energy(
        &self,
        amount: u64,
        interval: &Interval<Q>,
        holders: &[(JobRunId, Duration)],
        length: Duration,
    ) -> Splits {
        let idle = self.idle_energy(length).map(|idle| idle.min(amount));
        let by_time = |amount: u64| {
            let several = u128::try_from(holders.len()).unwrap_or(1);
            let weights = holders.iter().map(|(run, held)| (*run, held.as_nanos())).collect();
            split(amount, weights, length.as_nanos().saturating_mul(several))
        };
        let shares = interval.shares.as_ref().filter(|shares| shares.sum() > 0);
        match (idle, shares) {
            _ if holders.is_empty() => unattributed(amount),
            (Some(idle), Some(shares)) => {
                let active = split(amount - idle, by_process(shares, holders), u128::from(shares.sum()));
                vec![(GpuMethod::TimeAndProcesses, by_time(idle)), (GpuMethod::TimeAndProcesses, active)]
            }
            _ => vec![(GpuMethod::Time, by_time(amount))],
        }
    }

    /// A divided GPU measures its energy as a whole. The part of slices that no job has is unattributed.
    fn split_over_parts(
        &self,
        amount: u64,
        interval: &Interval<Q>,
        length: Duration,
        allocations: &Allocations,
    ) -> Splits {
        let held: Vec<(JobRunId, &Part, u128)> = interval
            .parts
            .iter()
            .flat_map(|part| {
                let holders = allocations.between(&part.uuid, interval.from, interval.to);
                let several = u128::try_from(holders.len().max(1)).unwrap_or(1);
                holders.into_iter().map(move |(run, held)| (run, part, held.as_nanos() / several))
            })
            .collect();
        let all = interval.parts.iter().map(|part| part.slices.1).max().unwrap_or(0);
        let by_slices = |amount: u64| {
            let weights =
                held.iter().map(|(run, part, held)| (*run, held * u128::from(part.slices.0))).collect();
            split(amount, weights, length.as_nanos() * u128::from(all))
        };
        let active = |part: &Part| Some(u128::from(part.active_ns?) * u128::from(part.slices.0));
        let whole: Option<u128> = interval.parts.iter().map(active).sum();
        let idle = self.idle_energy(length).map(|idle| idle.min(amount));
        match (idle, whole) {
            (Some(idle), Some(whole)) if whole > 0 => {
                // What a part did is its job's if one had it all the time, in proportion to the time otherwise.
                let weight =
                    |part: &Part, held: u128| active(part).unwrap_or(0) * held / length.as_nanos().max(1);
                let weights = held.iter().map(|(run, part, held)| (*run, weight(part, *held))).collect();
                vec![
                    (GpuMethod::SlicesAndActivity, by_slices(idle)),
                    (GpuMethod::SlicesAndActivity, split(amount - idle, weights, whole)),
                ]
            }
            _ => vec![(GpuMethod::Slices, by_slices(amount))],
        }
    }

    fn idle_energy(&self, length: Duration) -> Option<u64> {
        let energy = u128::from(self.idle_power.microwatts()?) * length.as_nanos() / 1_000_000_000;
        u64::try_from(energy).ok()
    }

    pub(super) fn forget(&mut self, run: JobRunId) {
        self.usage.remove(&run);
        self.counters.iter_mut().for_each(|line| line.account.forget(run));
    }

    pub(super) fn export(&mut self, run: JobRunId) {
        self.counters.iter_mut().for_each(|line| line.account.export(run));
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = (Q, &Account<GpuMethod>)> {
        self.counters.iter().map(|line| (line.quantity, &line.account))
    }

    pub(super) fn watched(&self) -> (Duration, Duration) {
        (self.watched, self.vacant)
    }

    pub(super) fn usage(&self, run: JobRunId) -> Option<GpuUsage> {
        self.usage.get(&run).copied()
    }
}

/// Busy time of the busiest part of a divided GPU, since that of the whole is not counted. `None` when a part is not
/// measured.
fn busiest(parts: &[Part]) -> Option<u64> {
    let all: Option<Vec<u64>> = parts.iter().map(|part| part.active_ns).collect();
    all?.into_iter().max()
}

/// The parts of an amount, each with the way in which it was split.
type Splits = Vec<(GpuMethod, Split<JobRunId>)>;

fn unattributed(amount: u64) -> Splits {
    vec![(GpuMethod::Time, Split { shares: Vec::new(), rest: amount })]
}

/// Kernels of several processes can run at once: then each has its part of the time that the GPU was busy.
fn split_busy<Q>(amount: u64, interval: &Interval<Q>, holders: &[(JobRunId, Duration)]) -> Splits {
    let Some(shares) = interval.shares.as_ref().filter(|_| !holders.is_empty()) else {
        return unattributed(amount);
    };
    let whole = u128::from(shares.sum().max(amount));
    vec![(GpuMethod::Processes, split(amount, by_process(shares, holders), whole))]
}

fn by_process(shares: &Shares, holders: &[(JobRunId, Duration)]) -> Vec<(JobRunId, u128)> {
    let share =
        |(run, _): &(JobRunId, Duration)| shares.jobs.get(run).map(|share| (*run, u128::from(*share)));
    holders.iter().filter_map(share).collect()
}
