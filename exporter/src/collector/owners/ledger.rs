//! Totals by owner, and how far each job run's values are in them. Pure.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// The labels of what exceeds the limit.
const OTHER: &str = "other";
/// Ends a label. No label has it: `label_text` replaces control characters.
pub(super) const SEPARATOR: char = '\u{1f}';
/// Most runs that are remembered as removed without ever having been seen in a collection.
const MOST_REMOVED: usize = 10_000;

/// One value of a job run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Seen {
    row: usize,
    key: Box<str>,
    domain: Box<str>,
    /// The most that a collection showed: it is in the totals.
    last: u128,
    /// What this collection shows.
    #[serde(skip)]
    now: Option<u128>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    first: JobRunId,
    seen: Vec<Seen>,
    /// What it used and had in CPU time, and the most by which the latter was more.
    used: u128,
    held: u128,
    unused: u128,
    ended: bool,
}

impl Run {
    fn new(first: JobRunId) -> Box<Self> {
        Box::new(Self { first, seen: Vec::new(), used: 0, held: 0, unused: 0, ended: false })
    }
}

/// A total of an owner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Total {
    pub(super) row: usize,
    pub(super) domain: String,
    pub(super) amount: u128,
    /// When it was 0, seconds since the epoch.
    pub(super) began: Option<f64>,
}

/// Whose jobs they are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) labels: Vec<String>,
    totals: Vec<Total>,
}

impl Owner {
    pub(super) fn totals(&self) -> impl Iterator<Item = &Total> {
        self.totals.iter()
    }

    fn add(&mut self, row: usize, domain: &str, amount: u128, began: Option<f64>) {
        match self.totals.iter_mut().find(|total| total.row == row && total.domain == domain) {
            Some(total) => total.amount = total.amount.saturating_add(amount),
            None => self.totals.push(Total { row, domain: domain.to_owned(), amount, began }),
        }
    }
}

/// A counter of the node that is no job's, as it was shown last.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rest {
    key: String,
    last: u128,
}

/// What is saved. The names of the labels belong to it: a site may ask for others after a restart.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    names: Vec<String>,
    owners: Vec<Owner>,
    runs: HashMap<JobRunId, Box<Run>>,
    rests: Vec<Rest>,
    rest: u128,
}

/// The totals.
#[derive(Debug)]
pub(super) struct Ledger {
    labels: usize,
    limit: usize,
    owners: Vec<Owner>,
    index: HashMap<String, usize>,
    /// The key of what exceeds the limit.
    other: String,
    runs: HashMap<JobRunId, Box<Run>>,
    /// Counters of which [`Ledger::grown`] says the growth, and what was added up of it.
    rests: Vec<Rest>,
    rest: u128,
    /// Runs that are dropped when this collection is over: it may have them still.
    removed: HashSet<JobRunId>,
    collections: u64,
}

fn joined(labels: &[String]) -> String {
    labels.iter().flat_map(|label| label.chars().chain([SEPARATOR])).collect()
}

impl Ledger {
    pub(super) fn new(labels: usize, limit: usize) -> Self {
        Self {
            labels,
            limit,
            owners: Vec::new(),
            index: HashMap::new(),
            other: joined(&vec![OTHER.to_owned(); labels]),
            runs: HashMap::new(),
            rests: Vec::new(),
            rest: 0,
            removed: HashSet::new(),
            collections: 0,
        }
    }

    /// The place of an owner, a new one if there is room, else that of `other`. `key` is its labels, each with a
    /// [`SEPARATOR`] after it.
    pub(super) fn owner(&mut self, key: &str, labels: impl FnOnce() -> Vec<String>) -> usize {
        let is_full = self.owners.len() >= self.limit;
        let other = || is_full.then(|| self.index.get(&self.other)).flatten();
        if let Some(place) = self.index.get(key).or_else(other) {
            return *place;
        }
        let labels = if is_full { vec![OTHER.to_owned(); self.labels] } else { labels() };
        let place = *self.index.entry(joined(&labels)).or_insert(self.owners.len());
        if place == self.owners.len() {
            self.owners.push(Owner { labels, totals: Vec::new() });
        }
        place
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.iter()
    }

    /// A sample of a run. Samples of one row and key are added up.
    pub(super) fn saw(&mut self, run: JobRunId, row: usize, key: &str, domain: &str, amount: u128) {
        let seen = &mut self.runs.entry(run).or_insert_with(|| Run::new(run)).seen;
        match seen.iter_mut().find(|seen| seen.row == row && *seen.key == *key) {
            Some(seen) => seen.now = Some(seen.now.unwrap_or(0).saturating_add(amount)),
            None => {
                // Most runs have three, and thousands of ended ones are kept.
                seen.reserve_exact(1);
                seen.push(Seen { row, key: key.into(), domain: domain.into(), last: 0, now: Some(amount) });
            }
        }
    }

    /// Adds what the values of a run grew by in this collection to its owner, and says it by row; 0 for those that did
    /// not grow. A value that fell counts again when it is above what it was.
    pub(super) fn charge(
        &mut self,
        run: JobRunId,
        owner: usize,
        began: Option<f64>,
        mut grew: impl FnMut(usize, u128),
    ) {
        let (Some(run), Some(owner)) = (self.runs.get_mut(&run), self.owners.get_mut(owner)) else { return };
        for seen in &mut run.seen {
            let Some(now) = seen.now.take() else { continue };
            let amount = now.saturating_sub(seen.last);
            seen.last = seen.last.max(now);
            owner.add(seen.row, &seen.domain, amount, began);
            grew(seen.row, amount);
        }
    }

    /// What a counter of the node grew by since it was shown last. One that fell began anew.
    pub(super) fn grown(&mut self, key: &str, now: u128) -> u128 {
        let Some(rest) = self.rests.iter_mut().find(|rest| rest.key == key) else {
            self.rests.push(Rest { key: key.to_owned(), last: now });
            return now;
        };
        let last = std::mem::replace(&mut rest.last, now);
        now.checked_sub(last).unwrap_or(now)
    }

    /// Adds to what is no owner's.
    pub(super) fn add_rest(&mut self, amount: u128) {
        self.rest = self.rest.saturating_add(amount);
    }

    /// What is no owner's.
    pub(super) fn rest(&self) -> u128 {
        self.rest
    }

    pub(super) fn add(&mut self, owner: usize, row: usize, domain: &str, amount: u128, began: Option<f64>) {
        if let Some(owner) = self.owners.get_mut(owner) {
            owner.add(row, domain, amount, began);
        }
    }

    /// A run used and had so much more CPU time. Returns by how much more the latter exceeds the former than ever before:
    /// the two are not read at one moment, and what was counted is not taken back. Nothing where one of them is not
    /// known in this collection.
    pub(super) fn unused(
        &mut self,
        run: JobRunId,
        first: JobRunId,
        used: Option<u128>,
        held: Option<u128>,
    ) -> Option<u128> {
        let run = self.runs.entry(run).or_insert_with(|| Run::new(first));
        run.used = run.used.saturating_add(used.unwrap_or(0));
        run.held = run.held.saturating_add(held.unwrap_or(0));
        used.and(held)?;
        let most = run.unused.max(run.held.saturating_sub(run.used));
        Some(most - std::mem::replace(&mut run.unused, most))
    }

    /// 1 when a run is seen ended for the first time.
    pub(super) fn ended(&mut self, run: JobRunId, first: JobRunId, ended: bool) -> u128 {
        let run = self.runs.entry(run).or_insert_with(|| Run::new(first));
        let is_new = ended && !run.ended;
        run.ended |= ended;
        u128::from(is_new)
    }

    /// A run goes on with the directory, and so with the counters of its cgroup, of another one.
    pub(super) fn follows(&mut self, run: JobRunId, first: JobRunId) {
        if run != first {
            self.runs.entry(run).or_insert_with(|| Run::new(first));
        }
    }

    /// A run is not retained any more. One that is superseded is the first in its directory, or goes on from that.
    pub(super) fn removed(&mut self, run: JobRunId, superseded: bool) {
        let first = self.runs.get(&run).map(|run| run.first);
        let is_first = first.is_none_or(|first| first == run);
        if superseded && is_first {
            return;
        }
        if first.is_some() || self.removed.len() < MOST_REMOVED {
            self.removed.insert(run);
        }
        if !superseded {
            self.removed.extend(first);
        }
    }

    /// The collection is in the totals.
    pub(super) fn end_collection(&mut self) {
        for run in self.removed.drain() {
            self.runs.remove(&run);
        }
        self.collections = self.collections.wrapping_add(1);
    }

    /// How many there were.
    pub(super) fn collections(&self) -> u64 {
        self.collections
    }

    /// How many runs are known.
    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn save(&self, names: &[&str]) -> Vec<u8> {
        /// [`Saved`] without a copy.
        #[derive(Serialize)]
        struct Borrowed<'a> {
            names: &'a [&'a str],
            owners: &'a [Owner],
            runs: &'a HashMap<JobRunId, Box<Run>>,
            rests: &'a [Rest],
            rest: u128,
        }
        let Self { owners, runs, rests, rest, .. } = self;
        durable_state::encode(&Borrowed { names, owners, runs, rests, rest: *rest })
    }

    /// Goes on with what was saved. Labels that are new are empty on what was counted before; owners that differ only in
    /// labels that are not asked for any more are added up.
    pub(super) fn restore(&mut self, saved: Saved, names: &[&str], knows: impl Fn(JobRunId) -> bool) {
        (self.owners, self.index) = (Vec::new(), HashMap::new());
        for owner in saved.owners {
            let value = |name: &&str| {
                let place = saved.names.iter().position(|known| known == name)?;
                owner.labels.get(place).cloned()
            };
            let labels: Vec<String> = names.iter().map(|name| value(name).unwrap_or_default()).collect();
            // All that has a series keeps it, if the limit is lower now too.
            let place = match self.index.get(&joined(&labels)) {
                Some(place) => *place,
                None => {
                    self.index.insert(joined(&labels), self.owners.len());
                    self.owners.push(Owner { labels, totals: Vec::new() });
                    self.owners.len() - 1
                }
            };
            for total in &owner.totals {
                self.add(place, total.row, &total.domain, total.amount, total.began);
            }
        }
        let firsts: HashSet<JobRunId> =
            saved.runs.iter().filter(|(run, _)| knows(**run)).map(|(_, run)| run.first).collect();
        (self.rests, self.rest) = (saved.rests, saved.rest);
        self.runs = saved.runs;
        self.runs.retain(|run, _| knows(*run) || firsts.contains(run));
    }
}
