//! The open counters of one job: which CPUs, which groups, and what they gave so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::num::NonZero;
use std::sync::Arc;

use cpu_topology::CpuSet;
use perf_events::{Counters, On, Open, OpenError, Reading};

use super::tally::{Interval, Layout, RejectReason, SavedTally, Tally, interval};
use super::{Group, Plan};
use crate::sharing::CounterOwnership;

/// Descriptors that a thread closes in some 6 ms. Beyond them another one helps, and more than a few would be in each other's way.
const CLOSED_BY_ONE: usize = 512;
const MOST_CLOSERS: usize = 16;

/// The processes that the counters of a job count.
#[derive(Debug)]
pub enum Mode {
    /// That of its cgroup: exact.
    Cgroup(File),
    /// All processes on its CPUs, which are no other job's.
    Cpus,
}

impl Mode {
    /// The `mode` label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cgroup(_) => "cgroup",
            Self::Cpus => "cpus",
        }
    }
}

/// Why a job is not counted, or not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotCounted {
    /// The kernel refuses.
    Denied,
    /// More descriptors than may be used.
    Descriptors,
    /// Its cgroup cannot be counted, and it shares its CPUs.
    Shared,
    /// The kernel failed otherwise.
    Failed(OpenError),
}

impl NotCounted {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Descriptors => "descriptors",
            Self::Shared => "shared_cpus",
            Self::Failed(_) => "failed",
        }
    }
}

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
        denied.or_else(|| self.without.values().max().copied())
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
        let on = match &counted.mode {
            Mode::Cgroup(directory) => On::Cgroup(directory),
            Mode::Cpus => On::Everybody,
        };
        let counters = self.open.open(on, cpu, &group.attrs())?;
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
                    continue;
                }
                Interval::Counted { enabled, running } => {
                    let times = (enabled, running);
                    counted.tally.add(&self.layout, set.group, times, &self.scaled);
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
            std::mem::swap(&mut set.last, &mut self.reading);
        }
        for (cpu, (_, to, believed)) in came {
            self.account(counted, cpu, to, believed);
        }
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

    /// Releases all of these: disables them first, which is quick, then reads them a last time and closes them.
    pub fn release<'c>(&mut self, counted: impl Iterator<Item = &'c mut Counted>) {
        let mut counted: Vec<&mut Counted> = counted.collect();
        for set in counted.iter_mut().flat_map(|counted| &mut counted.sets) {
            set.counters.stop();
        }
        let closers = MOST_CLOSERS.min(1 + self.used / CLOSED_BY_ONE);
        let mut open = Vec::new();
        for counted in counted {
            self.read(counted);
            open.extend(self.take_where(counted, |_| true));
            counted.cpus.clear();
        }
        close(open, closers.min(std::thread::available_parallelism().map_or(1, NonZero::get)));
    }

    /// Reads a last time and closes. The counts are kept.
    pub fn close(&mut self, counted: &mut Counted) {
        self.read(counted);
        self.close_where(counted, |_| true);
        counted.cpus.clear();
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

/// Closes all of these on so many threads: the kernel asks the CPU of each event, one after the other of a thread.
fn close(mut open: Vec<Set>, threads: usize) {
    let each = open.len().div_ceil(threads.max(1));
    std::thread::scope(|scope| {
        while each > 0 && open.len() > each {
            let part = open.split_off(open.len() - each);
            let thread = std::thread::Builder::new().name("perf".to_owned()).stack_size(64 << 10);
            // Without a thread they are closed here, where they are dropped.
            let _ = thread.spawn_scoped(scope, || drop(part));
        }
        drop(open);
    });
}

fn has(group: &Group, cpu: u32) -> bool {
    group.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
}

fn events(plan: &Plan, group: usize) -> usize {
    plan.groups.get(group).map_or(0, |group| group.events.len())
}

#[cfg(test)]
mod tests;
