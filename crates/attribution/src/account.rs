//! The account of one measured quantity: whose it is, and what is nobody's. Σ lives + residual == total, always.

use std::collections::{BTreeMap, BTreeSet};

use slurm_jobs::{Fate, LifeId};

use super::Split;

/// One quantity (the energy of a socket, the bytes of a port) in its smallest unit, since this exporter started.
/// `M` says how a share came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account<M> {
    total: u64,
    residual: u64,
    /// By life, and by method in the order in which they were used.
    lives: BTreeMap<LifeId, Vec<(M, u64)>>,
    /// Of lives that were told and are not any more.
    closed: u64,
}

impl<M> Default for Account<M> {
    fn default() -> Self {
        Self { total: 0, residual: 0, lives: BTreeMap::new(), closed: 0 }
    }
}

impl<M: Copy + Eq> Account<M> {
    /// Books what a split made of an interval.
    pub fn book(&mut self, method: M, split: Split<LifeId>) {
        self.residual = self.residual.saturating_add(split.rest);
        self.total = self.total.saturating_add(split.rest);
        for (life, share) in split.shares {
            let methods = self.lives.entry(life).or_default();
            match methods.iter_mut().find(|(known, _)| *known == method) {
                Some((_, booked)) => *booked = booked.saturating_add(share),
                None => methods.push((method, share)),
            }
            self.total = self.total.saturating_add(share);
        }
    }

    /// Books an amount to one life.
    pub fn book_to(&mut self, life: LifeId, method: M, amount: u64) {
        self.book(method, Split { shares: vec![(life, amount)], rest: 0 });
    }

    /// Books an amount that nobody can be charged with.
    pub fn book_to_nobody(&mut self, amount: u64) {
        self.residual = self.residual.saturating_add(amount);
        self.total = self.total.saturating_add(amount);
    }

    /// A life is not told any more. What was booked to one whose id was never found out is nobody's.
    pub fn forget(&mut self, life: LifeId, fate: Fate) {
        let Some(methods) = self.lives.remove(&life) else { return };
        let amount = methods.iter().fold(0, |sum: u64, (_, booked)| sum.saturating_add(*booked));
        let home = match fate {
            Fate::Told | Fate::Continued => &mut self.closed,
            Fate::Lost | Fate::Leftover => &mut self.residual,
        };
        *home = home.saturating_add(amount);
    }

    /// What was measured.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What was measured, without what is booked to lives that nobody was told of yet: an id may still be looked for.
    pub fn total_told(&self, told: &BTreeSet<LifeId>) -> u64 {
        let untold =
            self.lives.iter().filter(|(life, _)| !told.contains(life)).flat_map(|(_, methods)| methods);
        untold.fold(self.total, |total, (_, booked)| total.saturating_sub(*booked))
    }

    /// What no job can be charged with.
    pub fn residual(&self) -> u64 {
        self.residual
    }

    /// The lives that are charged with anything.
    pub fn lives(&self) -> impl Iterator<Item = LifeId> {
        self.lives.keys().copied()
    }

    /// What a life is charged with, by method; empty when no interval was split with it.
    pub fn of(&self, life: LifeId) -> impl Iterator<Item = (M, u64)> {
        self.lives.get(&life).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::split;
    use super::*;

    fn balance(account: &Account<u8>) -> bool {
        account.total
            == account.residual
                + account.closed
                + account.lives.values().flatten().map(|(_, booked)| booked).sum::<u64>()
    }

    #[test]
    fn what_is_booked_is_somebodys_or_nobodys() {
        let mut account = Account::default();
        account.book(1, split(100, vec![(LifeId(1), 1), (LifeId(2), 2)], 4));
        account.book(2, split(50, vec![(LifeId(1), 1)], 1));
        account.book_to_nobody(7);
        assert_eq!((account.total(), account.residual()), (157, 32));
        assert_eq!(account.of(LifeId(1)).collect::<Vec<_>>(), [(1, 25), (2, 50)]);
        assert_eq!(account.of(LifeId(3)).count(), 0, "absent, not 0");
        assert_eq!(
            account.total_told(&BTreeSet::from([LifeId(1)])),
            107,
            "50 are of one that is not told yet"
        );
        assert_eq!(account.total_told(&BTreeSet::from([LifeId(1), LifeId(2)])), 157);
        assert!(balance(&account));
    }

    #[test]
    fn a_life_that_was_never_told_leaves_its_part_to_nobody() {
        for (fate, residual) in
            [(Fate::Told, 0), (Fate::Continued, 0), (Fate::Lost, 90), (Fate::Leftover, 90)]
        {
            let mut account = Account::default();
            account.book(1, split(90, vec![(LifeId(1), 1)], 1));
            account.forget(LifeId(1), fate);
            assert_eq!((account.total(), account.residual()), (90, residual), "{fate:?}");
            assert_eq!(account.of(LifeId(1)).count(), 0);
            assert!(balance(&account));
        }
    }
}
