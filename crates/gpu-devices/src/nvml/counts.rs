//! Counts of a unit since its epoch: readings of the driver's counters, and sums that are made here.

use std::sync::atomic::{AtomicU64, Ordering};

use readings::{Counter, Gain, Range};

use crate::Quantity;

/// Another beginning, of anything: no two are alike in the run of the process, whoever asks.
fn another_epoch() -> u64 {
    static EPOCHS: AtomicU64 = AtomicU64::new(1);
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
struct Count {
    quantity: &'static Quantity,
    total: u64,
    counter: Counter,
    /// Whether the driver has a counter of it.
    driver: bool,
    /// Whether the counter does not cover the time before this sample, and counts on from here.
    begun: bool,
    /// Whether the reading of this sample is in the total.
    read: bool,
}

/// The counts of a unit.
#[derive(Debug)]
pub(super) struct Counts {
    epoch: u64,
    /// The driver's energy counter as it stands in this sample, microjoules.
    energy: Option<u64>,
    counts: Vec<Count>,
}

impl Counts {
    /// Nothing was counted yet.
    pub(super) fn new() -> Self {
        Self { epoch: another_epoch(), energy: None, counts: Vec::new() }
    }

    /// Which beginning it is.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Restarts: the time since the last sample is not known.
    pub(super) fn restart(&mut self) {
        *self = Self::new();
    }

    /// Restarts at the readings of this sample.
    pub(super) fn restart_here(&mut self) {
        self.epoch = another_epoch();
        self.counts.iter_mut().for_each(|count| count.total = 0);
    }

    fn of(&mut self, quantity: &'static Quantity) -> Option<&mut Count> {
        let at = self.counts.iter().position(|count| count.quantity == quantity).unwrap_or_else(|| {
            let counter = Counter::default();
            self.counts.push(Count { quantity, total: 0, counter, driver: false, begun: false, read: false });
            self.counts.len() - 1
        });
        self.counts.get_mut(at)
    }

    /// Adds what happened since the last sample.
    pub(super) fn add(&mut self, quantity: &'static Quantity, amount: u64) {
        if let Some(count) = self.of(quantity) {
            count.total = count.total.saturating_add(amount);
            count.read = true;
        }
    }

    /// Takes a reading of the energy counter, millijoules. If it fell, the driver was reloaded or the GPU was reset:
    /// all counts restart.
    pub(super) fn energy(&mut self, reading: u64) {
        let Some(count) = self.of(Quantity::ENERGY) else { return };
        match count.counter.advance(reading, Range::Full) {
            Gain::Restarted => {
                self.restart();
                self.energy(reading);
            }
            gain => self.add(Quantity::ENERGY, gain.amount().saturating_mul(1000)),
        }
        self.energy = Some(reading.saturating_mul(1000));
    }

    /// Takes a reading of another counter, whose steps are `factor` of the quantity. If it fell without a wrap, it
    /// goes on from here.
    pub(super) fn advance(&mut self, quantity: &'static Quantity, reading: u64, range: Range, factor: u64) {
        let Some(count) = self.of(quantity) else { return };
        count.driver = true;
        match count.counter.advance(reading, range) {
            Gain::Restarted => count.begun = true,
            gain => self.add(quantity, gain.amount().saturating_mul(factor)),
        }
    }

    /// Takes a reading that does not cover the time since the last one: counting goes on from here.
    pub(super) fn begin(&mut self, quantity: &'static Quantity, reading: u64, range: Range) {
        if let Some(count) = self.of(quantity) {
            count.counter.lost();
            count.counter.advance(reading, range);
            (count.driver, count.begun) = (true, true);
        }
    }

    /// The driver's counter is of no use.
    pub(super) fn without_driver(&mut self, quantity: &'static Quantity) {
        if let Some(count) = self.of(quantity) {
            count.counter.lost();
            (count.driver, count.begun) = (false, false);
        }
    }

    /// Whether this was read in this sample.
    pub(super) fn has(&self, quantity: &'static Quantity) -> bool {
        self.counts.iter().any(|count| count.read && count.quantity == quantity)
    }

    /// Whether the driver's counter covers the time before this sample, or will when it answers again.
    pub(super) fn is_counted(&self, quantity: &'static Quantity) -> bool {
        let is_known = |count: &Count| count.read || (count.driver && !count.begun);
        self.counts.iter().any(|count| count.quantity == quantity && is_known(count))
    }

    /// Takes the counters that go on while nobody reads them, as they stand in this sample.
    pub(super) fn take_standing(&mut self) -> Vec<(&'static Quantity, u64)> {
        self.energy.take().map(|energy| (Quantity::ENERGY, energy)).into_iter().collect()
    }

    /// Takes the counts of this sample; the next one begins.
    pub(super) fn take(&mut self) -> Vec<(&'static Quantity, u64)> {
        let read = |count: &mut Count| {
            count.begun = false;
            std::mem::take(&mut count.read).then_some((count.quantity, count.total))
        };
        self.counts.iter_mut().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_reports_what_was_read_in_it() {
        let mut counts = Counts::new();
        counts.energy(5_000);
        counts.add(Quantity::BUSY, 7);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 0), (Quantity::BUSY, 7)], "history is unattributed");
        counts.energy(5_002);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 2000)]);
        assert_eq!(counts.take_standing(), [(Quantity::ENERGY, 5_002_000)], "history is in it");
        assert_eq!(counts.take_standing(), [], "it was not read since");
        counts.add(Quantity::BUSY, 1);
        assert_eq!(counts.take(), [(Quantity::BUSY, 8)]);
    }

    #[test]
    fn energy_that_falls_is_another_epoch_of_all() {
        let mut counts = Counts::new();
        counts.energy(5_000);
        counts.add(Quantity::BUSY, 7);
        counts.take();
        let before = counts.epoch();
        counts.energy(10);
        counts.add(Quantity::BUSY, 3);
        assert!(counts.epoch() > before);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 0), (Quantity::BUSY, 3)]);
        counts.energy(30);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 20_000)]);
        assert_ne!(Counts::new().epoch(), Counts::new().epoch());
    }

    #[test]
    fn a_wrap_is_none_and_another_counter_that_falls_costs_itself_alone() {
        let mut counts = Counts::new();
        let range = Range::Wraps { at: 1 << 32 };
        counts.advance(Quantity::NVLINK_RECEIVED, (1 << 32) - 2, range, 1024);
        counts.advance(Quantity::NVLINK_RECEIVED, 3, range, 1024);
        assert_eq!(counts.take(), [(Quantity::NVLINK_RECEIVED, 5 * 1024)]);
        let epoch = counts.epoch();
        counts.advance(Quantity::PCIE_RECEIVED, 100, Range::Full, 1);
        counts.take();
        counts.advance(Quantity::PCIE_RECEIVED, 5, Range::Full, 1);
        assert_eq!((counts.take(), counts.epoch()), (vec![], epoch));
        counts.advance(Quantity::PCIE_RECEIVED, 8, Range::Full, 1);
        assert_eq!(counts.take(), [(Quantity::PCIE_RECEIVED, 3)]);
    }

    #[test]
    fn what_a_counter_will_report_is_counted_and_what_it_cannot_is_not() {
        let mut counts = Counts::new();
        assert!(!counts.is_counted(Quantity::PCIE_RECEIVED));
        counts.advance(Quantity::PCIE_RECEIVED, 100, Range::Full, 1);
        counts.take();
        assert!(counts.is_counted(Quantity::PCIE_RECEIVED), "it did not answer now, but goes on");
        counts.begin(Quantity::PCIE_RECEIVED, 7, Range::Full);
        assert!(!counts.is_counted(Quantity::PCIE_RECEIVED));
        counts.add(Quantity::PCIE_RECEIVED, 50);
        assert_eq!(counts.take(), [(Quantity::PCIE_RECEIVED, 50)]);
        counts.advance(Quantity::PCIE_RECEIVED, 9, Range::Full, 1);
        assert_eq!(counts.take(), [(Quantity::PCIE_RECEIVED, 52)]);
        counts.without_driver(Quantity::PCIE_RECEIVED);
        assert!(!counts.is_counted(Quantity::PCIE_RECEIVED));
    }

    #[test]
    fn another_beginning_may_be_here() {
        let mut counts = Counts::new();
        counts.energy(1);
        counts.energy(4);
        let epoch = counts.epoch();
        counts.restart_here();
        assert!(counts.epoch() > epoch);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 0)]);
        counts.energy(5);
        assert_eq!(counts.take(), [(Quantity::ENERGY, 1000)]);
    }
}
