//! The open counters of one job: which CPUs, which groups, and what they gave so far.

mod following;
mod mode;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use cpu_topology::CpuSet;
use perf_events::{Counters, On, Open, OpenError, Reading};
use worker_threads::{spread, threads_for};

pub use self::mode::{Mode, NotCounted};

use super::tally::{Interval, Layout, RejectReason, SavedTally, Tally, interval};
use super::{Group, Plan};
use crate::imbalance::Work;
use crate::sharing::CounterOwnership;

/// Descriptors that a thread closes in some 6 ms. Beyond them another one helps, and more than a few would be in each other's way.
const CLOSED_BY_ONE: usize = 512;

/// A group that had no counters for so long while its job ran on a CPU has none because somebody else keeps them, nanoseconds: turns
/// take milliseconds (`perf_event_mux_interval_ms`).
const STARVING: u64 = 3_000_000_000;

/// What counts, for all jobs.
pub struct Counting {
    open: Arc<dyn Open>,
    plan: Arc<Plan>,
    layout: Layout,
    ownership: CounterOwnership,
    limit: usize,
    used: usize,
    /// How often an interval was not believed.
    rejected: [u64; RejectReason::ALL.len()],
    starving: BTreeSet<(usize, u32)>,
    reading: Reading,
    scaled: Vec<u64>,
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counting")
            .field("used", &self.used)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// A group that is open on a CPU.
struct Set {
    cpu: u32,
    group: usize,
    counters: Box<dyn Counters>,
    last: Reading,
    /// How long its CPU had been counted when it was opened, nanoseconds: another group may have been there before.
    opened_at: u64,
    /// Enabled time without a turn since the last interval, nanoseconds.
    waited: u64,
}

/// The counters of one job.
pub struct Counted {
    mode: Mode,
    sets: Vec<Set>,
    cpus: BTreeSet<u32>,
    /// Groups that are not open for it, and why.
    without: BTreeMap<usize, NotCounted>,
    /// Up to when each CPU's time is accounted for, counted or rejected, nanoseconds since the first of its groups
    /// was opened.
    accounted: BTreeMap<u32, u64>,
    tally: Tally,
    denied: bool,
    /// When it was read last.
    looked: Option<Instant>,
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counted")
            .field("mode", &self.mode)
            .field("cpus", &self.cpus)
            .field("sets", &self.sets.len())
            .field("without", &self.without)
            .finish_non_exhaustive()
    }
}

impl Counted {
    /// The counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The counted processes.
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// What is not counted, if anything.
    pub fn not_counted(&self) -> Option<NotCounted> {
        let denied = self.denied.then_some(NotCounted::Denied);
        let starved = || self.sets.iter().any(|set| set.waited >= STARVING).then_some(NotCounted::Starved);
        denied.or_else(|| self.without.values().max().copied()).or_else(starved)
    }

    /// The CPUs on which it is counted.
    pub fn cpus(&self) -> &BTreeSet<u32> {
        &self.cpus
    }
}

impl Counting {
    /// Nothing is open; at most `limit` descriptors ever are.
    pub fn new(open: Arc<dyn Open>, plan: Arc<Plan>, ownership: CounterOwnership, limit: usize) -> Self {
        let layout = Layout::new(&plan);
        Self {
            open,
            plan,
            layout,
            ownership,
            limit,
            used: 0,
            rejected: [0; RejectReason::ALL.len()],
            starving: BTreeSet::new(),
            reading: Reading::default(),
            scaled: Vec::new(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Where its counts go.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Descriptors that are open, and that may be.
    pub fn descriptors(&self) -> (usize, usize) {
        (self.used, self.limit)
    }

    /// How often an interval was not believed, by why.
    pub fn rejected(&self) -> impl Iterator<Item = (RejectReason, u64)> {
        RejectReason::ALL.into_iter().zip(self.rejected)
    }

    /// Groups by number that somebody else keeps from counting, and on which CPU: a plan that is made now may suit better.
    pub fn starving(&self) -> &BTreeSet<(usize, u32)> {
        &self.starving
    }

    /// What is to be saved of a job's counts.
    pub fn save(&self, counted: &Counted) -> SavedTally {
        counted.tally.save(&self.layout, &self.plan)
    }

    /// A job's counts as another process saved them.
    pub fn restored(&self, saved: &SavedTally) -> Tally {
        Tally::restored(saved, &self.layout, &self.plan)
    }

    /// A job of which nothing is counted yet by this process, and `before` by another one.
    pub fn begin(&self, mode: Mode, before: Option<&SavedTally>) -> Counted {
        Counted {
            mode,
            sets: Vec::new(),
            cpus: BTreeSet::new(),
            without: BTreeMap::new(),
            accounted: BTreeMap::new(),
            tally: before.map_or_else(|| Tally::new(&self.layout), |saved| self.restored(saved)),
            denied: false,
            looked: None,
        }
    }

    /// Opens what is not open yet on these CPUs, and closes other CPUs' groups after a last reading. Stops at once
    /// when the counters are to be released. Leaves out a group, and less important ones, while there are no
    /// descriptors for it.
    pub fn open(&mut self, counted: &mut Counted, cpus: &CpuSet) {
        let plan = self.plan.clone();
        if counted.cpus.iter().any(|cpu| !cpus.contains(*cpu)) {
            self.read(counted);
            self.close_where(counted, |set| !cpus.contains(set.cpu));
            counted.cpus.retain(|cpu| cpus.contains(*cpu));
        }
        let fresh: BTreeSet<u32> = cpus.iter().filter(|cpu| !counted.cpus.contains(cpu)).collect();
        counted.denied = false;
        let left_out = counted.without.values().any(|not_counted| *not_counted == NotCounted::Descriptors);
        if fresh.is_empty() && !left_out {
            return;
        }
        let back = self.share_out(counted, &fresh);
        if fresh.is_empty() && back.is_empty() {
            return;
        }
        for cpu in counted.cpus.union(&fresh).copied().collect::<Vec<_>>() {
            for (number, group) in plan.groups.iter().enumerate() {
                let open = !fresh.contains(&cpu) && !back.contains(&number);
                if !has(group, cpu) || open || counted.without.contains_key(&number) {
                    continue;
                }
                if self.ownership.is_yielded() {
                    self.undo(counted, cpu, &back);
                    return;
                }
                let mut outcome = self.open_one(counted, cpu, number, group);
                // The kernel has its own limit: less important groups make room.
                while outcome == Err(OpenError::Descriptors) && self.give_up_behind(counted, number) {
                    outcome = self.open_one(counted, cpu, number, group);
                }
                match outcome {
                    Ok(()) => {}
                    Err(OpenError::Offline) => break,
                    Err(OpenError::Denied) => {
                        counted.denied = true;
                        self.undo(counted, cpu, &back);
                        return;
                    }
                    Err(OpenError::Descriptors) => self.give_up(counted, number, NotCounted::Descriptors),
                    Err(error) => self.give_up(counted, number, NotCounted::Failed(error)),
                }
            }
            if counted.sets.iter().any(|set| set.cpu == cpu) {
                counted.looked.get_or_insert_with(Instant::now);
                counted.tally.imbalance.add(cpu, Work::default());
                counted.cpus.insert(cpu);
            }
        }
    }

    /// Opening stopped midway on this CPU: closes what was opened there, so that a retry cannot open it twice and no group
    /// covers only part of the CPUs.
    fn undo(&mut self, counted: &mut Counted, cpu: u32, back: &BTreeSet<usize>) {
        for group in back {
            self.give_up(counted, *group, NotCounted::Descriptors);
        }
        if !counted.cpus.contains(&cpu) {
            self.close_where(counted, |set| set.cpu == cpu);
        }
    }

    fn open_one(
        &mut self,
        counted: &mut Counted,
        cpu: u32,
        number: usize,
        group: &Group,
    ) -> Result<(), OpenError> {
        let attrs = group.attrs();
        let counters = match &counted.mode {
            Mode::Cgroup(directory) => self.open.open(On::Cgroup(directory), cpu, &attrs),
            Mode::Followed(following) => following.open(cpu, &attrs),
            Mode::Cpus => self.open.open(On::Host, cpu, &attrs),
        }?;
        self.used += group.events.len();
        let last = Reading { counts: vec![0; group.events.len()], ..Reading::default() };
        let opened_at = counted.accounted.get(&cpu).copied().unwrap_or(0);
        counted.sets.push(Set { cpu, group: number, counters, last, opened_at, waited: 0 });
        counted.tally.opened(number);
        Ok(())
    }

    /// Decides which groups there are descriptors for, before anything is opened: the most important ones, up to the
    /// first without. The groups behind it are dropped. Returns groups that were dropped and come back.
    fn share_out(&mut self, counted: &mut Counted, fresh: &BTreeSet<u32>) -> BTreeSet<usize> {
        let plan = self.plan.clone();
        let own: usize = counted.sets.iter().map(|set| events(&plan, set.group)).sum();
        let mut left = self.limit.saturating_sub(self.used.saturating_sub(own));
        let (mut back, mut enough) = (BTreeSet::new(), true);
        for (number, group) in plan.groups.iter().enumerate() {
            let not_counted = counted.without.get(&number).copied();
            if not_counted.is_some_and(|not_counted| not_counted != NotCounted::Descriptors) {
                continue;
            }
            let cpus = counted.cpus.union(fresh).filter(|cpu| has(group, **cpu)).count();
            // Of cores that the job has none of nothing is left out.
            if cpus == 0 && not_counted.is_none() {
                continue;
            }
            let rest = left.checked_sub(group.events.len() * cpus).filter(|_| enough);
            enough = rest.is_some();
            match (rest, not_counted) {
                (Some(_), Some(_)) => drop(back.insert(number)),
                (None, None) => self.give_up(counted, number, NotCounted::Descriptors),
                _ => {}
            }
            left = rest.unwrap_or(0);
        }
        if !back.is_empty() {
            // Those that come back begin now, and what they missed ends.
            self.read(counted);
        }
        counted.without.retain(|number, _| !back.contains(number));
        back
    }

    /// Drops the least important group behind this one that is not dropped yet. Returns whether there is one.
    fn give_up_behind(&mut self, counted: &mut Counted, group: usize) -> bool {
        let behind = group + 1..self.plan.groups.len();
        let Some(last) = behind.rev().find(|number| !counted.without.contains_key(number)) else {
            return false;
        };
        self.give_up(counted, last, NotCounted::Descriptors);
        true
    }

    /// A group of a job is not counted any more, on any CPU: part of the CPUs would pass for all of them.
    fn give_up(&mut self, counted: &mut Counted, group: usize, why: NotCounted) {
        // Up to here its time is its own, and from here on it is missed.
        self.read(counted);
        counted.without.insert(group, why);
        counted.tally.left_out(group);
        self.close_where(counted, |set| set.group == group);
    }

    /// Reads what is open, and adds it up. A CPU that went offline is forgotten, to be opened when it is back.
    pub fn read(&mut self, counted: &mut Counted) {
        self.read_at(counted, Instant::now(), false);
    }

    /// The same at a time of which the job may be over.
    fn read_at(&mut self, counted: &mut Counted, now: Instant, at_the_end: bool) {
        let plan = self.plan.clone();
        let mut gone = BTreeSet::new();
        // Of each CPU the most important group that had its turn, how far it came, and whether it is believed.
        let mut came: BTreeMap<u32, (usize, u64, bool)> = BTreeMap::new();
        for set in &mut counted.sets {
            let Some(group) = plan.groups.get(set.group) else { continue };
            if set.counters.read(&mut self.reading).is_err() {
                gone.insert(set.cpu);
                continue;
            }
            let interval = interval(group, &plan.limits, &set.last, &self.reading, &mut self.scaled);
            if interval != Interval::Waiting {
                let believed = matches!(interval, Interval::Counted { .. });
                let this = (set.group, set.opened_at.saturating_add(self.reading.enabled), believed);
                let first = came.entry(set.cpu).or_insert(this);
                *first = (*first).min(this);
            }
            match interval {
                Interval::Waiting => {
                    set.waited = self.reading.enabled.saturating_sub(set.last.enabled);
                    if set.waited >= STARVING {
                        self.starving.insert((set.group, set.cpu));
                    }
                    continue;
                }
                Interval::Counted { enabled, running } => {
                    let times = (enabled, running);
                    counted.tally.add(&self.layout, set.group, times, &self.scaled);
                    counted.tally.imbalance.add(set.cpu, self.layout.work(set.group, &self.scaled));
                }
                Interval::Rejected(reject_reason) => {
                    let known = self
                        .rejected
                        .iter_mut()
                        .zip(RejectReason::ALL)
                        .find(|(_, known)| *known == reject_reason);
                    if let Some((times, _)) = known {
                        *times += 1;
                    }
                }
            }
            set.waited = 0;
            self.starving.remove(&(set.group, set.cpu));
            std::mem::swap(&mut set.last, &mut self.reading);
        }
        for (cpu, (_, to, believed)) in came {
            self.account(counted, cpu, to, believed);
        }
        let last = counted.looked.replace(now).unwrap_or(now);
        counted.tally.imbalance.pass(now.saturating_duration_since(last), at_the_end);
        for cpu in gone {
            self.close_where(counted, |set| set.cpu == cpu);
            counted.cpus.remove(&cpu);
        }
    }

    /// A CPU was counted up to here. Groups that are left out were to count there, too.
    fn account(&mut self, counted: &mut Counted, cpu: u32, to: u64, believed: bool) {
        let accounted = counted.accounted.entry(cpu).or_default();
        let more = to.saturating_sub(*accounted);
        *accounted = (*accounted).max(to);
        counted.tally.imbalance.add(cpu, Work { busy: more, ..Work::default() });
        if !believed {
            return;
        }
        counted.tally.covers(more);
        for number in counted.without.keys() {
            if self.plan.groups.get(*number).is_some_and(|group| has(group, cpu)) {
                counted.tally.add(&self.layout, *number, (more, 0), &[]);
            }
        }
    }

    /// Releases all of these: disables them first, which is quick, then reads them a last time and closes them. The counts are kept.
    pub fn release<'c>(&mut self, counted: impl Iterator<Item = &'c mut Counted>) {
        let mut counted: Vec<&mut Counted> = counted.collect();
        let running: Vec<&mut Set> = counted.iter_mut().flat_map(|counted| &mut counted.sets).collect();
        let descriptors: usize = running.iter().map(|set| events(&self.plan, set.group)).sum();
        let threads = threads_for(1 + descriptors / CLOSED_BY_ONE);
        spread("perf", running, threads, |set| set.counters.stop());
        let mut open = Vec::new();
        for counted in counted {
            self.read_at(counted, Instant::now(), true);
            open.extend(self.take_where(counted, |_| true));
            counted.cpus.clear();
            counted.looked = None;
        }
        spread("perf", open, threads, drop);
    }

    /// The same for one. Who wants the counters while a large job ends waits for this.
    pub fn close(&mut self, counted: &mut Counted) {
        self.release(std::iter::once(counted));
    }

    fn close_where(&mut self, counted: &mut Counted, which: impl Fn(&Set) -> bool) {
        drop(self.take_where(counted, which));
    }

    /// What is to be closed, and accounted for as if it were.
    fn take_where(&mut self, counted: &mut Counted, which: impl Fn(&Set) -> bool) -> Vec<Set> {
        let taken: Vec<Set> = counted.sets.extract_if(.., |set| which(set)).collect();
        for set in &taken {
            self.used = self.used.saturating_sub(events(&self.plan, set.group));
            // Time spent waiting for a hardware counter still counts as enabled time.
            counted.tally.add(&self.layout, set.group, (set.waited, 0), &[]);
        }
        let open: BTreeSet<u32> = counted.sets.iter().map(|set| set.cpu).collect();
        counted.accounted.retain(|cpu, _| open.contains(cpu));
        taken
    }
}

fn has(group: &Group, cpu: u32) -> bool {
    group.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
}

fn events(plan: &Plan, group: usize) -> usize {
    plan.groups.get(group).map_or(0, |group| group.events.len())
}

#[cfg(test)]
mod tests;
