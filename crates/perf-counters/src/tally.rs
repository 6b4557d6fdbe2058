//! What the readings of groups add up to. Pure.
//!
//! A group that takes turns with others counts only part of the time. Its count for all of it is estimated interval
//! by interval (count * enabled / running), so that one phase of a job does not distort another.

use super::{Event, Group, Plan, PlausibilityLimits, Quantity, top_down};
use crate::imbalance::{Imbalance, Work};
use perf_events::Reading;
use serde::{Deserialize, Serialize};

/// Why an interval is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// It counted for longer than it was to.
    Running,
    /// A count went back.
    Backwards,
    /// More instructions per cycle than a core can do.
    Instructions,
    /// More floating-point operations per cycle than a core can do.
    Flops,
}

impl RejectReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Backwards, Self::Instructions, Self::Flops];

    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running_above_enabled",
            Self::Backwards => "count_went_back",
            Self::Instructions => "instructions_per_cycle",
            Self::Flops => "flops_per_cycle",
        }
    }
}

/// What an interval of one group on one CPU gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// It had counters for less than a hundredth of the time: the interval goes on.
    Waiting,
    /// It was counted.
    Counted {
        /// Enabled time, nanoseconds.
        enabled: u64,
        /// For how long it was, nanoseconds.
        running: u64,
    },
    /// It is not believed.
    Rejected(RejectReason),
}

/// An interval is counted when its group had counters for one part in so many.
const LEAST_SHARE: u64 = 100;
/// With fewer cycles a ratio to them means nothing: counters do not start in the same cycle.
const ENOUGH_CYCLES: u64 = 100_000;

/// Looks at what lies between two readings of a group, and puts the counts of it, scaled, into `scaled`: of its events, and behind
/// them of the categories of slots that they give.
pub fn interval(
    group: &Group,
    limits: &PlausibilityLimits,
    last: &Reading,
    now: &Reading,
    scaled: &mut Vec<u64>,
) -> Interval {
    scaled.clear();
    let times = (now.enabled.checked_sub(last.enabled), now.running.checked_sub(last.running));
    let (Some(enabled), Some(running)) = times else { return Interval::Rejected(RejectReason::Backwards) };
    // The kernel's own events take no turns: what they lack of the time is that of switching them.
    let running = if group.hardware { running } else { enabled };
    if running > enabled {
        return Interval::Rejected(RejectReason::Running);
    }
    // A moment is no sample of a long time.
    if enabled > 0 && running < enabled.div_ceil(LEAST_SHARE) {
        return Interval::Waiting;
    }
    let mut cycles = None;
    let (mut instructions, mut flops) = (0, 0_u64);
    for (index, event) in group.events.iter().enumerate() {
        let before = last.counts.get(index).copied().unwrap_or(0);
        let Some(count) = now.counts.get(index).and_then(|now| now.checked_sub(before)) else {
            return Interval::Rejected(RejectReason::Backwards);
        };
        match event.quantity {
            Quantity::Cycles => cycles = Some(count),
            Quantity::Instructions => instructions = count,
            Quantity::Flops { each, .. } => {
                flops = flops.saturating_add(count.saturating_mul(u64::from(each)))
            }
            _ => {}
        }
        scaled.push(scale(count, enabled, running));
    }
    take_off(group, scaled);
    if let Some(cycles) = cycles.filter(|cycles| *cycles >= ENOUGH_CYCLES) {
        if exceeds(instructions, cycles, limits.instructions_per_cycle) {
            return Interval::Rejected(RejectReason::Instructions);
        }
        if limits.flops_per_cycle.is_some_and(|most| exceeds(flops, cycles, most)) {
            return Interval::Rejected(RejectReason::Flops);
        }
    }
    scaled.extend(top_down::categories(&group.events, scaled).into_iter().map(|(_, slots)| slots));
    Interval::Counted { enabled, running }
}

/// Takes the counts of events with `minus` off those of their quantity, and leaves nothing of them. What is taken off happens within
/// the same moments; at the ends of an interval it may be a little more, and then nothing is left.
fn take_off(group: &Group, scaled: &mut [u64]) {
    for (at, event) in group.events.iter().enumerate().filter(|(_, event)| event.minus) {
        let mut less = scaled.get_mut(at).map(std::mem::take).unwrap_or(0);
        for (from, count) in group.events.iter().zip(scaled.iter_mut()) {
            if from.quantity == event.quantity && !from.minus {
                let part = less.min(*count);
                *count -= part;
                less -= part;
            }
        }
    }
}

/// `count * enabled / running`, to the nearest.
fn scale(count: u64, enabled: u64, running: u64) -> u64 {
    if enabled == running {
        return count;
    }
    let (count, enabled, running) = (u128::from(count), u128::from(enabled), u128::from(running.max(1)));
    u64::try_from((count * enabled + running / 2) / running).unwrap_or(u64::MAX)
}

fn exceeds(count: u64, cycles: u64, most: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a bound, and counts of an interval are far below 2^53")]
    let (count, cycles) = (count as f64, cycles as f64);
    count > most * cycles
}

/// Where the counts of a plan's events go: each quantity has one place. Events of one quantity are added up, and one that is in
/// several groups is taken from the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    quantities: Vec<Quantity>,
    /// By group and event, and behind these by the categories of slots that they give.
    places: Vec<Vec<Option<usize>>>,
}

impl Layout {
    /// Of a plan.
    pub fn new(plan: &Plan) -> Self {
        let mut layout = Self { quantities: Vec::new(), places: Vec::new() };
        for (number, group) in plan.groups.iter().enumerate() {
            let earlier = plan.groups.get(..number).unwrap_or_default();
            let same_cpus = || earlier.iter().filter(|earlier| overlap(earlier, group));
            let mut places = Vec::new();
            for event in &group.events {
                let same = |known: &Event| (known.quantity, known.attr) == (event.quantity, event.attr);
                let known = |group: &Group| group.events.iter().any(same);
                let published = !event.minus
                    && !top_down::is_reading(event)
                    && !same_cpus().any(known)
                    && !lacks_a_part(plan, group, event);
                places.push(published.then(|| layout.place(event.quantity)));
            }
            for category in top_down::categories_of(&group.events) {
                places.push(Some(layout.place(Quantity::PipelineSlots(category))));
            }
            layout.places.push(places);
        }
        layout
    }

    /// What a CPU did in an interval of a group.
    pub(crate) fn work(&self, group: usize, scaled: &[u64]) -> Work {
        let mut work = Work::default();
        for (place, count) in self.places.get(group).into_iter().flatten().zip(scaled) {
            match place.and_then(|place| self.quantities.get(place)) {
                Some(Quantity::Instructions) => work.instructions = work.instructions.saturating_add(*count),
                Some(flops @ Quantity::Flops { .. }) => {
                    work.flops = work.flops.saturating_add(count.saturating_mul(flops.each()));
                }
                _ => {}
            }
        }
        work
    }

    /// The place of a quantity.
    fn place(&mut self, quantity: Quantity) -> usize {
        let known = self.quantities.iter().position(|known| *known == quantity);
        known.unwrap_or_else(|| {
            self.quantities.push(quantity);
            self.quantities.len() - 1
        })
    }
}

/// Whether something that is to be taken off an event's counts is counted in other moments than these.
pub(crate) fn lacks_a_part(plan: &Plan, group: &Group, event: &Event) -> bool {
    let elsewhere = plan.groups.iter().filter(|other| overlap(other, group)).flat_map(|other| &other.events);
    let part = |other: &Event| other.minus && other.quantity == event.quantity;
    elsewhere.filter(|other| part(other)).any(|other| !group.events.contains(other))
}

fn overlap(one: &Group, other: &Group) -> bool {
    match (&one.cpus, &other.cpus) {
        (Some(one), Some(other)) => one.iter().any(|cpu| other.contains(cpu)),
        _ => true,
    }
}

/// How long a group was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Enabled time, nanoseconds over all CPUs.
    pub enabled: u64,
    /// It was, nanoseconds over all CPUs.
    pub running: u64,
    /// Whether it was ever opened.
    pub opened: bool,
    /// Whether it is not counted although the job's CPUs have it.
    pub left_out: bool,
}

/// The counts of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// In the order of the layout.
    counts: Vec<u64>,
    /// By group.
    groups: Vec<Times>,
    /// CPU time in which it was counted, nanoseconds.
    covered: u64,
    /// How unevenly its CPUs worked.
    pub imbalance: Imbalance,
}

/// The counts of one run for another process, which may have another plan: by quantity, and by the names of groups. Groups of
/// one name (kinds of cores) differ by their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTally {
    counts: Vec<(Quantity, u64)>,
    groups: Vec<(String, usize, Times)>,
    covered: u64,
    imbalance: Imbalance,
}

/// The groups of a plan by name, and which of that name each is.
fn named(plan: &Plan) -> impl Iterator<Item = (&str, usize)> {
    plan.groups.iter().enumerate().map(|(number, group)| {
        let earlier = plan.groups.iter().take(number);
        (&*group.name, earlier.filter(|earlier| earlier.name == group.name).count())
    })
}

impl Tally {
    /// What is to be saved.
    pub fn save(&self, layout: &Layout, plan: &Plan) -> SavedTally {
        let groups = named(plan).zip(&self.groups).filter(|(_, times)| **times != Times::default());
        SavedTally {
            counts: layout.quantities.iter().copied().zip(self.counts.iter().copied()).collect(),
            groups: groups.map(|((name, which), times)| (name.to_owned(), which, *times)).collect(),
            covered: self.covered,
            imbalance: self.imbalance.clone(),
        }
    }

    /// Goes on from what was saved. What this plan does not count is dropped.
    pub fn restored(saved: &SavedTally, layout: &Layout, plan: &Plan) -> Self {
        let mut tally = Self::new(layout);
        for (quantity, count) in layout.quantities.iter().zip(&mut tally.counts) {
            let before = saved.counts.iter().find(|(known, _)| known == quantity);
            *count = before.map_or(0, |(_, count)| *count);
        }
        for (named, times) in named(plan).zip(&mut tally.groups) {
            let before = saved.groups.iter().find(|(name, which, _)| (&**name, *which) == named);
            *times = before.map_or_else(Times::default, |(_, _, times)| *times);
        }
        tally.covered = saved.covered;
        tally.imbalance = saved.imbalance.clone();
        tally
    }

    /// Nothing yet.
    pub fn new(layout: &Layout) -> Self {
        Self {
            counts: vec![0; layout.quantities.len()],
            groups: vec![Times::default(); layout.places.len()],
            covered: 0,
            imbalance: Imbalance::default(),
        }
    }

    /// A group is counted from now on.
    pub fn opened(&mut self, group: usize) {
        if let Some(times) = self.groups.get_mut(group) {
            (times.opened, times.left_out) = (true, false);
        }
    }

    /// A group is not counted from now on. Sums over this group and others are not exported, since a part would pass
    /// for the whole.
    pub fn left_out(&mut self, group: usize) {
        if let Some(times) = self.groups.get_mut(group) {
            times.left_out = true;
        }
    }

    /// Adds an interval of a group's enabled time; with counts, also these.
    pub fn add(&mut self, layout: &Layout, group: usize, times: (u64, u64), scaled: &[u64]) {
        let (enabled, running) = times;
        if let Some(known) = self.groups.get_mut(group) {
            known.enabled = known.enabled.saturating_add(enabled);
            known.running = known.running.saturating_add(running);
        }
        for (place, count) in layout.places.get(group).into_iter().flatten().zip(scaled) {
            if let Some(known) = place.and_then(|place| self.counts.get_mut(place)) {
                *known = known.saturating_add(*count);
            }
        }
    }

    /// A CPU was counted for this long, nanoseconds, by any group.
    pub fn covers(&mut self, more: u64) {
        self.covered = self.covered.saturating_add(more);
    }

    /// CPU time in which it was counted, nanoseconds.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// How long each group was counted, in the order of the plan.
    pub fn groups(&self) -> impl Iterator<Item = Times> + '_ {
        self.groups.iter().copied()
    }

    /// The counts, multiplied by the quantity of one count. Absent if not counted completely: a group that was left
    /// out, or never had its turn while the job ran.
    pub fn quantities<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (Quantity, u64)> + 'a {
        let counted = |place: usize| {
            let parts = || {
                let groups = layout.places.iter().zip(&self.groups);
                groups.filter(move |(places, _)| places.contains(&Some(place))).map(|(_, times)| times)
            };
            // Groups that are neither opened nor left out are those of cores that the job has none of.
            let whole = |times: &Times| !times.left_out && (times.running > 0 || times.enabled == 0);
            parts().any(|times| times.opened) && parts().all(whole)
        };
        layout
            .quantities
            .iter()
            .zip(&self.counts)
            .enumerate()
            .filter(move |(place, _)| counted(*place))
            .map(|(_, (quantity, count))| (*quantity, count.saturating_mul(quantity.each())))
    }
}

#[cfg(test)]
mod tests;
