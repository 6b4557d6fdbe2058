//! What the readings of groups add up to. Pure.
//!
//! A group that takes turns with others counts only part of the time. Its count for all of it is estimated interval
//! by interval (count * enabled / running), so that one phase of a job does not distort another.

use super::{Event, Group, Plan, PlausibilityLimits, Quantity};
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
    /// It had no counters yet: the interval goes on.
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

/// With fewer cycles a ratio to them means nothing: counters do not start in the same cycle.
const ENOUGH_CYCLES: u64 = 100_000;

/// Looks at what lies between two readings of a group, and puts the counts of it, scaled, into `scaled`.
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
    if running > enabled {
        return Interval::Rejected(RejectReason::Running);
    }
    if running == 0 && enabled > 0 {
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
    if let Some(cycles) = cycles.filter(|cycles| *cycles >= ENOUGH_CYCLES) {
        if exceeds(instructions, cycles, limits.instructions_per_cycle) {
            return Interval::Rejected(RejectReason::Instructions);
        }
        if limits.flops_per_cycle.is_some_and(|most| exceeds(flops, cycles, most)) {
            return Interval::Rejected(RejectReason::Flops);
        }
    }
    Interval::Counted { enabled, running }
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
    /// By group and event.
    places: Vec<Vec<Option<usize>>>,
}

impl Layout {
    /// Of a plan.
    pub fn new(plan: &Plan) -> Self {
        let mut layout = Self { quantities: Vec::new(), places: Vec::new() };
        for (number, group) in plan.groups.iter().enumerate() {
            let earlier = plan.groups.get(..number).unwrap_or_default();
            let same_cpus = || earlier.iter().filter(|earlier| overlap(earlier, group));
            let places = group
                .events
                .iter()
                .map(|event| {
                    let same = |known: &Event| (known.quantity, known.attr) == (event.quantity, event.attr);
                    let known = |group: &Group| group.events.iter().any(same);
                    if same_cpus().any(known) {
                        return None;
                    }
                    let place = layout.quantities.iter().position(|known| *known == event.quantity);
                    Some(place.unwrap_or_else(|| {
                        layout.quantities.push(event.quantity);
                        layout.quantities.len() - 1
                    }))
                })
                .collect();
            layout.places.push(places);
        }
        layout
    }
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
}

/// The counts of one run for another process, which may have another plan: by quantity, and by the names of groups. Groups of
/// one name (kinds of cores) differ by their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTally {
    counts: Vec<(Quantity, u64)>,
    groups: Vec<(String, usize, Times)>,
    covered: u64,
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
        tally
    }

    /// Nothing yet.
    pub fn new(layout: &Layout) -> Self {
        Self {
            counts: vec![0; layout.quantities.len()],
            groups: vec![Times::default(); layout.places.len()],
            covered: 0,
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
