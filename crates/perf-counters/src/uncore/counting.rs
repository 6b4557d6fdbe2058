//! The events of one place, read and added up.

use kernel_files::ReadError;
use perf_events::{Count, Open, Single, Spec};

/// What reading a place gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// The first one since its events were opened: history is not counted.
    First,
    /// Since the last complete reading.
    Grown {
        /// Bytes.
        bytes: u64,
        /// The part of the time in which the event that had a counter least had one; below 1 events took turns, and the
        /// bytes are what they would have counted all the time.
        running: f64,
    },
    /// One of its events had no counter all the time: nothing is known yet.
    Idle,
    /// A count fell: nothing is known of this time.
    Restarted,
}

/// One event of a place.
pub(super) struct Event {
    spec: Spec,
    bytes: u64,
    opened: Option<Single>,
    /// How long it had been wanted when it was read last.
    enabled: Option<u64>,
    /// Its count at the last complete reading of its place.
    last: Option<Count>,
}

impl Event {
    pub(super) fn new(spec: Spec, bytes: u64) -> Self {
        Self { spec, bytes, opened: None, enabled: None, last: None }
    }

    fn open(&mut self, open: &dyn Open, may_open: &dyn Fn() -> bool) -> Result<&mut Single, ReadError> {
        self.close();
        if !may_open() {
            return Err(ReadError::Gone);
        }
        Ok(self.opened.insert(Single::open(open, self.spec)?))
    }

    fn close(&mut self) {
        (self.opened, self.enabled, self.last) = (None, None, None);
    }

    /// Reads it. An event that stopped was taken off its CPU for good, as when its whole socket was offline: it is
    /// opened again, and counts from 0.
    fn read(&mut self, open: &dyn Open, may_open: &dyn Fn() -> bool) -> Result<Count, ReadError> {
        let count = match &mut self.opened {
            Some(opened) => opened.read(),
            None => Err(ReadError::Gone),
        };
        let runs = |count: &Count| self.enabled.is_none_or(|before| count.enabled > before);
        let count = match count {
            Ok(count) if runs(&count) => count,
            Ok(_) | Err(ReadError::Gone) => self.open(open, may_open)?.read()?,
            Err(error) => return Err(error),
        };
        self.enabled = Some(count.enabled);
        Ok(count)
    }
}

/// The events that make up one place.
#[derive(Default)]
pub(super) struct Events(pub(super) Vec<Event>);

impl Events {
    /// Opens all; how many could be, and why the first of the others could not.
    pub(super) fn open(
        &mut self,
        open: &dyn Open,
        may_open: &dyn Fn() -> bool,
    ) -> (usize, Option<ReadError>) {
        let (mut opened, mut refused) = (0, None);
        for event in &mut self.0 {
            match event.open(open, may_open).map(drop) {
                Ok(()) => opened += 1,
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        (opened, refused)
    }

    pub(super) fn close(&mut self) {
        self.0.iter_mut().for_each(Event::close);
    }

    /// Reads all of them. One that fails leaves the others where they were, so that the next complete reading has all of
    /// the time: a part is never taken for the whole.
    pub(super) fn read(
        &mut self,
        open: &dyn Open,
        may_open: &dyn Fn() -> bool,
    ) -> Result<Reading, ReadError> {
        let (mut counts, mut failed) = (Vec::with_capacity(self.0.len()), None);
        for event in &mut self.0 {
            match event.read(open, may_open) {
                Ok(count) => counts.push(count),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let gains = self
            .0
            .iter()
            .zip(&counts)
            .map(|(event, now)| event.last.map(|last| gain(last, *now, event.bytes)));
        let reading = match gains.collect::<Option<Vec<Gain>>>() {
            None => Reading::First,
            Some(gains) => add_up(&gains),
        };
        if reading != Reading::Idle {
            for (event, now) in self.0.iter_mut().zip(counts) {
                event.last = Some(now);
            }
        }
        Ok(reading)
    }
}

enum Gain {
    Bytes(u64, f64),
    Idle,
    Restarted,
}

/// What an event counted between two readings, for all of the time in between.
fn gain(last: Count, now: Count, bytes: u64) -> Gain {
    let grown = now.value.checked_sub(last.value);
    let enabled = now.enabled.checked_sub(last.enabled);
    let running = now.running.checked_sub(last.running);
    let (Some(grown), Some(enabled), Some(running)) = (grown, enabled, running) else {
        return Gain::Restarted;
    };
    if running == 0 {
        return Gain::Idle;
    }
    let whole = u128::from(grown).saturating_mul(u128::from(bytes));
    let whole = whole.saturating_mul(u128::from(enabled)) / u128::from(running);
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = (running as f64 / enabled.max(1) as f64).min(1.0);
    Gain::Bytes(u64::try_from(whole).unwrap_or(u64::MAX), ratio)
}

fn add_up(gains: &[Gain]) -> Reading {
    let (mut sum, mut least) = (0_u64, 1.0_f64);
    let mut idle = false;
    for gain in gains {
        match gain {
            Gain::Bytes(bytes, ratio) => {
                sum = sum.saturating_add(*bytes);
                least = least.min(*ratio);
            }
            Gain::Idle => idle = true,
            Gain::Restarted => return Reading::Restarted,
        }
    }
    if idle { Reading::Idle } else { Reading::Grown { bytes: sum, running: least } }
}

#[cfg(test)]
mod tests {
    use perf_events::Attr;

    use super::super::testing::Hardware;
    use super::*;

    const ALWAYS: &dyn Fn() -> bool = &|| true;

    fn place(events: u64, bytes: u64) -> (Hardware, Events) {
        let hardware = Hardware::default();
        *hardware.still.lock().unwrap() = true;
        let event = |config| Event::new(Spec { attr: Attr::new(9, config), cpu: 0 }, bytes);
        let mut events = Events((0..events).map(event).collect());
        events.open(&hardware, ALWAYS);
        hardware.runs(1);
        assert_eq!(events.read(&hardware, ALWAYS), Ok(Reading::First));
        (hardware, events)
    }

    fn grown(bytes: u64, running: f64) -> Result<Reading, ReadError> {
        Ok(Reading::Grown { bytes, running })
    }

    #[test]
    fn counts_of_all_events_are_added_up() {
        let (hardware, mut events) = place(2, 64);
        hardware.runs(1000).counts(9, 0, 0, 10).counts(9, 1, 0, 5);
        assert_eq!(events.read(&hardware, ALWAYS), grown(960, 1.0));
        hardware.runs(1000);
        assert_eq!(events.read(&hardware, ALWAYS), grown(0, 1.0));
    }

    #[test]
    fn events_that_took_turns_are_scaled_by_their_time() {
        let (hardware, mut events) = place(1, 64);
        hardware.turns(1000, 250).counts(9, 0, 0, 100);
        assert_eq!(events.read(&hardware, ALWAYS), grown(25_600, 0.25));
        // Each interval by its own ratio.
        hardware.turns(1000, 1000).counts(9, 0, 0, 100);
        assert_eq!(events.read(&hardware, ALWAYS), grown(6400, 1.0));
    }

    #[test]
    fn one_without_a_counter_shows_nothing_until_it_had_one() {
        let (hardware, mut events) = place(2, 64);
        hardware.turns(1000, 0);
        assert_eq!(events.read(&hardware, ALWAYS), Ok(Reading::Idle));
        hardware.turns(1000, 500).counts(9, 0, 0, 30);
        assert_eq!(
            events.read(&hardware, ALWAYS),
            grown(30 * 64 * 4, 0.25),
            "all of the time since it was known"
        );
    }

    #[test]
    fn a_failure_costs_no_byte_and_no_part_is_taken_for_the_whole() {
        let (hardware, mut events) = place(2, 64);
        hardware.runs(1000).counts(9, 0, 0, 10).counts(9, 1, 0, 10);
        hardware.fails(9, 1, 0, Some(ReadError::Io(5)));
        assert_eq!(events.read(&hardware, ALWAYS), Err(ReadError::Io(5)));
        hardware.runs(1000).counts(9, 0, 0, 1).fails(9, 1, 0, None);
        assert_eq!(events.read(&hardware, ALWAYS), grown(21 * 64, 1.0));
    }

    #[test]
    fn one_that_stopped_is_opened_anew_and_its_place_begins_anew() {
        let (hardware, mut events) = place(2, 64);
        hardware.runs(1000).counts(9, 0, 0, 10).stops(9, 1, 0);
        assert_eq!(events.read(&hardware, ALWAYS), Ok(Reading::First));
        hardware.runs(1000).counts(9, 0, 0, 1).counts(9, 1, 0, 1);
        assert_eq!(events.read(&hardware, ALWAYS), grown(128, 1.0));
        // No time passed for it.
        assert_eq!(events.read(&hardware, ALWAYS), Ok(Reading::First));
        assert_eq!(hardware.are_open(), 2);
        hardware.runs(1).stops(9, 0, 0);
        assert_eq!(
            events.read(&hardware, &|| false),
            Err(ReadError::Gone),
            "nothing is opened while it may not be"
        );
        assert_eq!(hardware.are_open(), 1);
    }

    #[test]
    fn a_count_that_fell_shows_nothing_of_its_time() {
        let (hardware, mut events) = place(1, 64);
        hardware.runs(1000).counts(9, 0, 0, 10);
        events.read(&hardware, ALWAYS).unwrap();
        hardware.runs(1000).goes_back(9, 0, 0, 3);
        assert_eq!(events.read(&hardware, ALWAYS), Ok(Reading::Restarted));
        hardware.runs(1000).counts(9, 0, 0, 2);
        assert_eq!(events.read(&hardware, ALWAYS), grown(128, 1.0));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let last = Count::default();
        let now = Count { value: u64::MAX, enabled: u64::MAX, running: 1 };
        assert!(matches!(gain(last, now, 64), Gain::Bytes(u64::MAX, _)));
    }
}
