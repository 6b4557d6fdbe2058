//! Reading the groups: what each job's counted, and the rest of the control groups.

use std::collections::{BTreeMap, BTreeSet};

use readings::{Counter, Gain, Range, Remainder};
use slurm_jobs::JobRunId;

use super::super::assignment::parse_assignments;
use super::super::parse::{Unread, parse_value};
use super::super::quantity::Quantity;
use super::{Group, Monitor, below};

/// What a round of readings of one quantity gave. A place is an L3 domain or a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// Growth by job and place.
    pub jobs: Vec<(JobRunId, u32, u64)>,
    /// Growth by place that is of no job of ours.
    pub unattributed: Vec<(u32, u64)>,
    /// The places that there are.
    pub places: BTreeSet<u32>,
    /// Those that were read in every group.
    pub whole: BTreeSet<u32>,
    /// Those in which a group was read for the first time, so that its growth is in no number.
    pub began: BTreeSet<u32>,
    /// Jobs and places that were read in every group of the job.
    pub read: BTreeSet<(JobRunId, u32)>,
    /// L3 occupancy by job and domain, bytes.
    pub occupancy: BTreeMap<(JobRunId, u32), u64>,
    /// Counters that went back.
    pub restarts: u64,
}

/// By quantity.
pub type Rounds = BTreeMap<Quantity, Round>;

/// The sums of the groups below a control group, by place; `None` where one is not known.
type Parts = BTreeMap<u32, Option<u64>>;

fn add(parts: &mut Parts, place: u32, value: Option<u64>) {
    let sum = parts.entry(place).or_insert(Some(0));
    *sum = sum.zip(value).map(|(sum, value)| sum.saturating_add(value));
}

impl Monitor {
    fn places(&self, quantity: Quantity) -> BTreeSet<u32> {
        let names = self.tree.directories("mon_data").unwrap_or_default();
        names.iter().filter_map(|name| quantity.place(name)).collect()
    }

    /// Every quantity in every place.
    pub(super) fn all_places(&self) -> Vec<(Quantity, u32)> {
        let features = self.about.as_ref().map(|about| about.features).unwrap_or_default();
        let quantities = [Quantity::Bytes].into_iter().chain(Quantity::TELEMETRY);
        let there = quantities.filter(|quantity| quantity.is_in(features));
        there
            .flat_map(|quantity| self.places(quantity).into_iter().map(move |place| (quantity, place)))
            .collect()
    }

    pub(super) fn value(&self, group: &str, quantity: Quantity, place: u32) -> Result<u64, Unread> {
        let bytes = self.tree.read(&below(group, &quantity.file(place)));
        quantity.parse(&bytes.map_err(|_| Unread::Failed)?)
    }

    fn occupancy(&self, group: &str, domain: u32) -> Option<u64> {
        let path = below(group, &format!("mon_data/mon_L3_{domain:02}/llc_occupancy"));
        parse_value(&self.tree.read(&path).ok()?).ok()
    }

    /// Paths of the monitoring groups below a control group that are not ours.
    fn others_below(&self, control: &str) -> BTreeSet<String> {
        let groups = below(control, "mon_groups");
        let names = self.tree.directories(&groups).unwrap_or_default();
        let paths = names.into_iter().map(|name| format!("{groups}/{name}"));
        paths.filter(|path| !self.groups.contains_key(path)).collect()
    }

    /// Notes which group lies there. One that was made again has another history.
    fn identify(&mut self, path: &str) {
        let now = self.tree.identity(path);
        let before = match now {
            Some(now) => self.identities.insert(path.to_owned(), now),
            None => self.identities.remove(path),
        };
        if before != now {
            self.remainders.retain(|(control, ..), _| control != path);
            self.others.retain(|(other, ..), _| other != path);
        }
    }

    fn note_unread(&mut self, quantity: Quantity, why: Unread) {
        *self.unread.entry((quantity, why)).or_default() += 1;
    }

    /// Reads bytes and occupancy.
    pub fn read(&mut self) -> Round {
        let mut round = self.sweep(Quantity::Bytes);
        if self.about.as_ref().is_some_and(|about| about.features.occupancy) {
            for (path, group) in &self.groups {
                for domain in &round.places {
                    if let Some(bytes) = self.occupancy(path, *domain) {
                        *round.occupancy.entry((group.run, *domain)).or_default() += bytes;
                    }
                }
            }
        }
        round
    }

    /// Reads what Intel's telemetry has.
    pub fn read_telemetry(&mut self) -> Rounds {
        Quantity::TELEMETRY.into_iter().map(|quantity| (quantity, self.sweep(quantity))).collect()
    }

    /// Reads one quantity. The counts of a control group include those of the monitoring groups below it; the rest is
    /// unattributed.
    fn sweep(&mut self, quantity: Quantity) -> Round {
        let mut round = Round::default();
        let features = self.about.as_ref().map(|about| about.features).unwrap_or_default();
        if !quantity.is_in(features) {
            return round;
        }
        let controls = self.controls().unwrap_or_default();
        round.places = self.places(quantity);
        round.whole = if controls.is_empty() { BTreeSet::new() } else { round.places.clone() };
        self.remainders.retain(|(control, ..), _| controls.contains(control));
        let (mut unread, mut seen) = (BTreeSet::new(), BTreeSet::from_iter(controls.iter().cloned()));
        for control in &controls {
            self.identify(control);
            let others = self.others_below(control);
            let counted = self.counted(control, quantity, &others, &round.places);
            let before = self.whole(control, quantity, &counted, &round.places);
            let mut parts = self.read_ours(control, quantity, &mut round, &mut unread);
            if !quantity.begins_at_zero() {
                self.read_others(&others, quantity, &mut round, &mut parts);
            }
            let after = self.whole(control, quantity, &counted, &round.places);
            // A group that came or went meanwhile is in one of them, with all that its RMID ever counted.
            let steady = quantity.begins_at_zero() || self.others_below(control) == others;
            for place in round.places.clone() {
                let known = |whole: &BTreeMap<u32, Result<u64, Unread>>| whole.get(&place)?.ok();
                let part = parts.get(&place).copied().unwrap_or(Some(0));
                let all = known(&before).zip(part).zip(known(&after)).filter(|_| steady);
                let remainder = self.remainders.entry((control.clone(), quantity, place)).or_default();
                match grown(remainder, all) {
                    Some(amount) => round.unattributed.push((place, amount)),
                    None => drop(round.whole.remove(&place)),
                }
            }
            for why in before.values().filter_map(|value| value.err()) {
                self.note_unread(quantity, why);
            }
            seen.extend(others);
        }
        self.others.retain(|(path, ..), _| seen.contains(path));
        self.identities.retain(|path, _| seen.contains(path));
        round.read.retain(|of| !unread.contains(of));
        round
    }

    /// The places in which a control group counts all of its own. In `mbm_event` mode the kernel adds up those of its groups that
    /// have a counter: without that of one it is no whole.
    fn counted(
        &self,
        control: &str,
        quantity: Quantity,
        others: &BTreeSet<String>,
        places: &BTreeSet<u32>,
    ) -> BTreeSet<u32> {
        let mut counted = places.clone();
        if quantity == Quantity::Bytes && self.by_assignment() {
            for group in std::iter::once(control).chain(others.iter().map(String::as_str)) {
                let list = self.tree.read(&below(group, "mbm_L3_assignments")).unwrap_or_default();
                let counters = parse_assignments(&list).unwrap_or_default();
                counted.retain(|place| counters.get(place).copied().unwrap_or(false));
            }
        }
        counted
    }

    /// What a control group counts, or why that is not known.
    fn whole(
        &self,
        control: &str,
        quantity: Quantity,
        counted: &BTreeSet<u32>,
        places: &BTreeSet<u32>,
    ) -> BTreeMap<u32, Result<u64, Unread>> {
        let value = |place: &u32| {
            if counted.contains(place) {
                self.value(control, quantity, *place)
            } else {
                Err(Unread::Unassigned)
            }
        };
        places.iter().map(|place| (*place, value(place))).collect()
    }

    fn read_ours(
        &mut self,
        control: &str,
        quantity: Quantity,
        round: &mut Round,
        unread: &mut BTreeSet<(JobRunId, u32)>,
    ) -> Parts {
        let mut parts = Parts::new();
        let ours = self.groups.iter().filter(|(_, group)| group.control == control);
        for path in ours.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            for place in round.places.clone() {
                let value = self.value(&path, quantity, place);
                let Some(group) = self.groups.get_mut(&path) else { continue };
                let part = take(group, (quantity, place), value, round);
                add(&mut parts, place, part);
                let of = (group.run, place);
                match value {
                    Ok(_) => drop(round.read.insert(of)),
                    Err(why) => {
                        group.uncounted |= why == Unread::Unassigned;
                        unread.insert(of);
                        self.note_unread(quantity, why);
                    }
                }
            }
            if let Some(group) = self.groups.get_mut(&path).filter(|_| quantity == Quantity::Bytes) {
                group.fresh &=
                    round.places.iter().any(|place| !group.counters.contains_key(&(quantity, *place)));
            }
        }
        parts
    }

    /// Other programs' groups, whose counts are no job's.
    fn read_others(
        &mut self,
        others: &BTreeSet<String>,
        quantity: Quantity,
        round: &mut Round,
        parts: &mut Parts,
    ) {
        for path in others {
            self.identify(path);
            for place in round.places.clone() {
                let value = self.value(path, quantity, place);
                let of = (path.clone(), quantity, place);
                let part = match (value, self.others.get_mut(&of)) {
                    (Err(Unread::Unavailable), None) => Some(0),
                    (Err(_), None) => None,
                    (Err(_), Some(counter)) => {
                        counter.lost();
                        None
                    }
                    (Ok(value), _) => {
                        let gain = self.others.entry(of).or_default().advance(value, Range::Full);
                        round.restarts += u64::from(gain == Gain::Restarted);
                        if gain == Gain::First {
                            round.began.insert(place);
                        }
                        round.unattributed.push((place, gain.amount()));
                        Some(value)
                    }
                };
                add(parts, place, part);
            }
        }
    }
}

fn grown(remainder: &mut Remainder, all: Option<((u64, u64), u64)>) -> Option<u64> {
    let Some(((before, parts), after)) = all else {
        remainder.lost();
        return None;
    };
    remainder.observe(readings::Round { before, parts, after })
}

/// Takes a value of a group, and gives what it is of the sum of its control group. After a value that is not known, counting
/// restarts: the counts meanwhile are in no number.
pub(super) fn take(
    group: &mut Group,
    of: (Quantity, u32),
    value: Result<u64, Unread>,
    round: &mut Round,
) -> Option<u64> {
    let (quantity, place) = of;
    // The hardware has not counted anything with this RMID yet, and the kernel leaves it out of the sum
    // (fs/resctrl/monitor.c, `mon_event_count`).
    if !quantity.begins_at_zero() && value == Err(Unread::Unavailable) && !group.counters.contains_key(&of) {
        return Some(0);
    }
    let from_zero = quantity.begins_at_zero() && group.fresh;
    // AMD's hardware begins to follow a group when its tasks run, and at 0.
    if from_zero
        && matches!(value, Err(Unread::Unavailable | Unread::Unassigned))
        && !group.counters.contains_key(&of)
    {
        return None;
    }
    let begin = || if from_zero { Counter::from_zero() } else { Counter::default() };
    let counter = group.counters.entry(of).or_insert_with(begin);
    let Ok(value) = value else {
        counter.lost();
        return None;
    };
    match counter.advance(value, Range::Full) {
        Gain::Restarted => round.restarts += 1,
        gain => {
            if gain == Gain::First {
                round.began.insert(place);
            }
            round.jobs.push((group.run, place, gain.amount()));
        }
    }
    Some(value)
}
