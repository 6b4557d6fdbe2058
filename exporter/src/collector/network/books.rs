//! Whose the packets are: Σ jobs + unattributed == total, exactly, after every round.
//!
//! The kernel's table only grows between rounds, so each round books what every entry gained to one account: a life's,
//! or nobody's. What belongs to a cgroup of which nothing is known yet is held back for a round, since a job's packets
//! may be there before the job was found; if the next list of jobs does not have it either, it is nobody's for good.
//! Pure: what the kernel counted and who lives is told to it.

use std::collections::{HashMap, HashSet};

use slurm_jobs::{Fate, LifeId};

/// What is counted of a cgroup, in the order of the kernel's table: bytes and packets received, sent, and over the
/// loopback device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts(pub(super) [u64; 6]);

impl Counts {
    fn add(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// What was counted since an earlier reading of the same entry; everything, if it was made anew since.
    fn since(self, earlier: Self) -> Self {
        let mut gained = self;
        for (now, before) in gained.0.iter_mut().zip(earlier.0) {
            match now.checked_sub(before) {
                Some(more) => *now = more,
                None => return self,
            }
        }
        gained
    }

    fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Packets of all kinds.
    pub(super) fn packets(self) -> u64 {
        let [_, received, _, sent, _, looped] = self.0;
        received.saturating_add(sent).saturating_add(looped)
    }
}

/// Ids of the cgroups that an entry is of: the one directly below SLURM's scope, and the one below that where steps
/// are told apart. 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// Directly below the scope: a job's cgroup, or SLURM's `system`.
    pub(super) group: u64,
    /// Directly below that.
    pub(super) step: u64,
}

#[derive(Debug, Default)]
struct Account {
    group: u64,
    /// Whether it was published as a job's, so that the published total has it.
    told: bool,
    counts: Counts,
    /// By id of the step's cgroup.
    steps: HashMap<u64, Counts>,
    /// Ids of the steps' cgroups, by ordinal.
    step_groups: HashMap<u32, u64>,
}

/// A cgroup that is no known life's.
#[derive(Debug, Default)]
struct Stranger {
    /// Held back.
    held: Counts,
    /// Whether a list of jobs was made without it after it had been seen.
    settled: bool,
}

/// The accounts.
#[derive(Debug, Default)]
pub(super) struct Books {
    accounts: HashMap<LifeId, Account>,
    /// The life that a cgroup belongs to now.
    owners: HashMap<u64, LifeId>,
    strangers: HashMap<u64, Stranger>,
    /// The kernel's table at the latest round.
    last: HashMap<Key, Counts>,
    last_overflow: Counts,
    /// Of told lives that are followed no more.
    closed: Counts,
    nobody: Counts,
}

impl Books {
    /// A life whose cgroup is known. What its cgroup sent before is its own, too, if it was held back.
    pub(super) fn open(&mut self, life: LifeId, group: u64) {
        if group == 0 || self.accounts.contains_key(&life) {
            return;
        }
        let held = self.strangers.remove(&group).map(|stranger| stranger.held).unwrap_or_default();
        self.owners.insert(group, life);
        self.accounts.insert(life, Account { group, counts: held, ..Account::default() });
    }

    /// The life is published as a job's from now on.
    pub(super) fn tell(&mut self, life: LifeId) {
        if let Some(account) = self.accounts.get_mut(&life) {
            account.told = true;
        }
    }

    /// Whether the cgroup of a step is known.
    pub(super) fn knows_step(&self, life: LifeId, ordinal: u32) -> bool {
        self.accounts.get(&life).is_some_and(|account| account.step_groups.contains_key(&ordinal))
    }

    /// The cgroup of a step.
    pub(super) fn step(&mut self, life: LifeId, ordinal: u32, group: u64) {
        if let Some(account) = self.accounts.get_mut(&life) {
            account.step_groups.insert(ordinal, group);
        }
    }

    /// Forgets the steps that the job has given up, when they are many.
    pub(super) fn keep_steps(&mut self, life: LifeId, there: impl Fn(u32) -> bool, number: usize) {
        let Some(account) = self.accounts.get_mut(&life) else { return };
        if account.steps.len().max(account.step_groups.len()) > 2 * number.max(8) {
            account.step_groups.retain(|ordinal, _| there(*ordinal));
            let kept: Vec<u64> = account.step_groups.values().copied().collect();
            account.steps.retain(|group, _| kept.contains(group));
        }
    }

    /// A round: the whole table of the kernel, and what did not fit into it. Gives the entries that may be removed from
    /// the table, idle and settled; `crowded` asks for those of running jobs as well.
    pub(super) fn round(&mut self, table: HashMap<Key, Counts>, overflow: Counts, crowded: bool) -> Vec<Key> {
        let mut idle = Vec::new();
        for stranger in self.strangers.values_mut().filter(|stranger| !stranger.settled) {
            stranger.settled = true;
            self.nobody.add(std::mem::take(&mut stranger.held));
        }
        for (key, counts) in &table {
            let gained = counts.since(self.last.get(key).copied().unwrap_or_default());
            let account = self.owners.get(&key.group).and_then(|life| self.accounts.get_mut(life));
            let removable = match account {
                Some(account) => {
                    account.counts.add(gained);
                    if key.step != 0 {
                        account.steps.entry(key.step).or_default().add(gained);
                    }
                    crowded
                }
                None => {
                    let stranger = self.strangers.entry(key.group).or_default();
                    if stranger.settled {
                        self.nobody.add(gained);
                    } else {
                        stranger.held.add(gained);
                    }
                    stranger.settled
                }
            };
            if removable && gained.is_zero() {
                idle.push(*key);
            }
        }
        self.nobody.add(overflow.since(self.last_overflow));
        self.last_overflow = overflow;
        self.last = table;
        let last = &self.last;
        if self.strangers.len() > 2 * last.len().max(8) {
            let groups: HashSet<u64> = last.keys().map(|key| key.group).collect();
            self.strangers.retain(|group, stranger| !stranger.settled || groups.contains(group));
        }
        idle
    }

    /// An entry was removed from the kernel's table with this last value.
    pub(super) fn removed(&mut self, key: Key, counts: Counts) {
        let gained = counts.since(self.last.remove(&key).unwrap_or_default());
        match self.owners.get(&key.group).and_then(|life| self.accounts.get_mut(life)) {
            Some(account) => {
                account.counts.add(gained);
                if key.step != 0 {
                    account.steps.entry(key.step).or_default().add(gained);
                }
            }
            None => self.nobody.add(gained),
        }
    }

    /// A life is not followed any more.
    pub(super) fn forget(&mut self, life: LifeId, fate: Fate) {
        let Some(account) = self.accounts.remove(&life) else { return };
        if self.owners.get(&account.group) == Some(&life) {
            self.owners.remove(&account.group);
            // Late packets of its sockets are nobody's at once: there is no other life to come for them.
            let settled = fate != Fate::Continued;
            self.strangers.insert(account.group, Stranger { settled, ..Stranger::default() });
        }
        // What was told stays in the total.
        match fate {
            Fate::Told => self.closed.add(account.counts),
            _ if account.told => self.closed.add(account.counts),
            Fate::Lost | Fate::Leftover | Fate::Continued => self.nobody.add(account.counts),
        }
    }

    /// What a life's cgroup sent and received.
    pub(super) fn of(&self, life: LifeId) -> Option<Counts> {
        self.accounts.get(&life).map(|account| account.counts)
    }

    /// What a step of it sent and received; zeros if its cgroup is known and has sent nothing.
    pub(super) fn of_step(&self, life: LifeId, ordinal: u32) -> Option<Counts> {
        let account = self.accounts.get(&life)?;
        let group = account.step_groups.get(&ordinal)?;
        Some(account.steps.get(group).copied().unwrap_or_default())
    }

    /// What is nobody's.
    pub(super) fn unattributed(&self) -> Counts {
        self.nobody
    }

    /// What did not fit into the kernel's table; it is in the unattributed.
    pub(super) fn overflow(&self) -> Counts {
        self.last_overflow
    }

    /// Everything that was told: jobs, those that are told no more, and what is nobody's.
    pub(super) fn total(&self) -> Counts {
        let mut total = self.closed;
        total.add(self.nobody);
        self.accounts.values().filter(|account| account.told).for_each(|account| total.add(account.counts));
        total
    }

    /// What is kept out of the total: lives that are not told yet, cgroups of which nothing is known yet.
    #[cfg(test)]
    fn pending(&self) -> Counts {
        let mut pending = Counts::default();
        let untold = self.accounts.values().filter(|account| !account.told).map(|account| account.counts);
        untold.chain(self.strangers.values().map(|s| s.held)).for_each(|counts| pending.add(counts));
        pending
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(bytes: u64) -> Counts {
        Counts([bytes, bytes / 100 + 1, 0, 0, 0, 0])
    }

    fn key(group: u64) -> Key {
        Key { group, step: 0 }
    }

    fn table(entries: &[(u64, u64)]) -> HashMap<Key, Counts> {
        entries.iter().map(|(group, bytes)| (key(*group), counts(*bytes))).collect()
    }

    const NONE: Counts = Counts([0; 6]);
    const ONE: LifeId = LifeId(1);

    #[test]
    fn a_jobs_packets_are_its_own_and_stay_so_after_its_end() {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.tell(ONE);
        books.round(table(&[(7, 1000)]), NONE, false);
        books.round(table(&[(7, 1500)]), NONE, false);
        assert_eq!((books.of(ONE), books.total()), (Some(counts(1500)), counts(1500)));
        books.forget(ONE, Fate::Told);
        assert_eq!((books.of(ONE), books.total(), books.unattributed()), (None, counts(1500), NONE));
        // A socket that outlived it.
        let idle = books.round(table(&[(7, 1700)]), NONE, false);
        assert!(idle.is_empty());
        assert_eq!(books.unattributed(), Counts([200, 2, 0, 0, 0, 0]));
        assert_eq!(books.round(table(&[(7, 1700)]), NONE, false), [key(7)], "nobody needs it any more");
        books.removed(key(7), counts(1700));
        assert_eq!(books.total(), counts(1700));
    }

    #[test]
    fn packets_that_come_before_their_job_is_found_wait_for_it() {
        let mut books = Books::default();
        books.round(table(&[(7, 1000), (8, 500)]), NONE, false);
        assert_eq!((books.total(), books.unattributed()), (NONE, NONE), "held back");
        books.open(ONE, 7);
        books.tell(ONE);
        books.round(table(&[(7, 1100), (8, 500)]), NONE, false);
        assert_eq!((books.of(ONE), books.unattributed()), (Some(counts(1100)), counts(500)));
    }

    #[test]
    fn a_cgroup_that_turns_out_to_be_a_job_late_keeps_what_is_not_booked_yet() {
        let mut books = Books::default();
        for bytes in [100, 200, 300] {
            books.round(table(&[(7, bytes)]), NONE, false);
        }
        books.open(ONE, 7);
        books.tell(ONE);
        books.round(table(&[(7, 400)]), NONE, false);
        assert_eq!(books.of(ONE).unwrap().0[0], 100);
        assert_eq!(books.unattributed().0[0], 300, "what was told of nobody is not taken back");
        assert_eq!(books.total(), counts(400));
    }

    #[test]
    fn an_unresolved_life_is_in_neither_sum_until_it_is_lost() {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.round(table(&[(7, 100)]), NONE, false);
        assert_eq!((books.total(), books.pending()), (NONE, counts(100)));
        books.forget(ONE, Fate::Lost);
        assert_eq!((books.total(), books.unattributed(), books.pending()), (counts(100), counts(100), NONE));
    }

    #[test]
    fn a_requeued_job_begins_anew_in_its_new_cgroup() {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.tell(ONE);
        books.round(table(&[(7, 100)]), NONE, false);
        books.open(LifeId(2), 9);
        books.round(table(&[(7, 100), (9, 50)]), NONE, false);
        assert_eq!((books.of(ONE), books.of(LifeId(2))), (Some(counts(100)), Some(counts(50))));
        assert_eq!(books.total(), counts(100), "the second life waits");
        books.tell(LifeId(2));
        assert_eq!(books.total().0[0], 150);
    }

    #[test]
    fn what_does_not_fit_is_nobodys_and_an_entry_made_anew_counts_from_zero() {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.tell(ONE);
        books.round(table(&[(7, 1000)]), counts(300), true);
        assert_eq!(books.round(table(&[(7, 1000)]), counts(300), true), [key(7)], "crowded: idle ones go");
        books.removed(key(7), counts(1000));
        books.round(table(&[(7, 20)]), counts(400), false);
        assert_eq!(books.of(ONE).unwrap().0[0], 1020);
        assert_eq!((books.unattributed(), books.overflow()), (counts(400), counts(400)));
        assert_eq!(books.overflow().packets(), 5);
    }

    #[test]
    fn steps_are_told_apart_and_given_up_with_the_job() {
        let mut books = Books::default();
        books.open(ONE, 7);
        books.step(ONE, 0, 70);
        books.step(ONE, 1, 71);
        let entries = [(70, 5), (71, 6), (0, 1)];
        let table = entries.iter().map(|(step, n)| (Key { group: 7, step: *step }, counts(*n))).collect();
        books.round(table, NONE, false);
        assert_eq!(books.of(ONE).unwrap().0[0], 12);
        assert_eq!((books.of_step(ONE, 0), books.of_step(ONE, 1)), (Some(counts(5)), Some(counts(6))));
        assert_eq!(books.of_step(ONE, 2), None, "not known is absent");
        for ordinal in 2..40 {
            books.step(ONE, ordinal, 100 + u64::from(ordinal));
        }
        books.keep_steps(ONE, |ordinal| ordinal == 1, 1);
        assert_eq!((books.of_step(ONE, 0), books.of_step(ONE, 1)), (None, Some(counts(6))));
        assert_eq!(books.of(ONE).unwrap().0[0], 12);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Send { group: u64, step: u64, bytes: u64 },
        Overflow(u64),
        Open { life: u64, group: u64 },
        Tell(u64),
        Forget(u64, Fate),
        Round { crowded: bool, remove: bool, late: u64 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let fate =
            prop_oneof![Just(Fate::Told), Just(Fate::Lost), Just(Fate::Continued), Just(Fate::Leftover)];
        prop_oneof![
            6 => (1..6_u64, 0..3_u64, 1..10_000_u64).prop_map(|(group, step, bytes)| Op::Send { group, step, bytes }),
            1 => (1..1000_u64).prop_map(Op::Overflow),
            2 => (1..8_u64, 1..6_u64).prop_map(|(life, group)| Op::Open { life, group }),
            2 => (1..8_u64).prop_map(Op::Tell),
            2 => (1..8_u64, fate).prop_map(|(life, fate)| Op::Forget(life, fate)),
            4 => (any::<bool>(), any::<bool>(), 0..50_u64)
                .prop_map(|(crowded, remove, late)| Op::Round { crowded, remove, late }),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: nothing is lost, nothing is counted twice, and neither sum ever falls.
        #[test]
        fn the_sum_over_jobs_and_nobody_is_the_total_and_with_what_waits_all_there_was(
            history in proptest::collection::vec(op(), 1..200)
        ) {
            let mut books = Books::default();
            let mut kernel: HashMap<Key, Counts> = HashMap::new();
            let (mut sent, mut overflow) = (0, Counts::default());
            let (mut total, mut nobody) = (0, 0);
            // Published values of jobs that are told: what Prometheus would see.
            let mut closed: u64 = 0;
            let mut told: HashMap<u64, u64> = HashMap::new();
            let mut ended = HashSet::new();
            for op in history {
                match op {
                    Op::Send { group, step, bytes } => {
                        sent += bytes;
                        kernel.entry(Key { group, step }).or_default().add(Counts([bytes, 1, 0, 0, 0, 0]));
                    }
                    Op::Overflow(bytes) => {
                        sent += bytes;
                        overflow.add(Counts([bytes, 1, 0, 0, 0, 0]));
                    }
                    // A life comes once, and to a cgroup that is no other's.
                    Op::Open { life, group } if !ended.contains(&life) => {
                        if !books.owners.contains_key(&group) {
                            books.open(LifeId(life), group);
                        }
                    }
                    Op::Tell(life) => books.tell(LifeId(life)),
                    Op::Forget(life, fate) => {
                        if let Some(account) = books.accounts.get(&LifeId(life)) {
                            if account.told || fate == Fate::Told {
                                closed += account.counts.0[0];
                            }
                            told.remove(&life);
                            ended.insert(life);
                        }
                        books.forget(LifeId(life), fate);
                    }
                    Op::Open { .. } => {}
                    Op::Round { crowded, remove, late } => {
                        let idle = books.round(kernel.clone(), overflow, crowded);
                        prop_assert_eq!(books.total().0[0] + books.pending().0[0], sent);
                        if remove {
                            for key in idle {
                                let mut last = kernel.remove(&key).unwrap();
                                // A packet between the reading and the removal.
                                sent += late;
                                last.add(Counts([late, 0, 0, 0, 0, 0]));
                                books.removed(key, last);
                            }
                        }
                        for (life, account) in books.accounts.iter().filter(|(_, account)| account.told) {
                            let before = told.insert(life.0, account.counts.0[0]).unwrap_or(0);
                            prop_assert!(account.counts.0[0] >= before, "a job's counter fell");
                        }
                        let jobs: u64 = told.values().sum::<u64>() + closed;
                        prop_assert_eq!(jobs + books.unattributed().0[0], books.total().0[0]);
                        prop_assert_eq!(books.total().0[0] + books.pending().0[0], sent);
                        prop_assert!(books.total().0[0] >= total && books.unattributed().0[0] >= nobody);
                        (total, nobody) = (books.total().0[0], books.unattributed().0[0]);
                    }
                }
            }
        }
    }
}
