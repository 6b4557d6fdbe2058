//! Where the numbers of each group are in an entry, and in the state of a CPU.

use cpu_topology::CpuSet;
use perf_events::{Attr, Reading};

/// A group of events that every CPU has, or those of one kind of core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedGroup {
    /// The leader first.
    pub events: Vec<Attr>,
    /// The CPUs that have them; `None` for all.
    pub cpus: Option<CpuSet>,
}

impl SharedGroup {
    pub(crate) fn is_on(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// Words in the state of a CPU, before what its counters said.
pub(crate) mod state {
    /// Whether the program counts: not before all events are open.
    pub(crate) const READY: usize = 0;
    /// How often an event could not be read.
    pub(crate) const UNREAD: usize = 1;
    /// The task to which the CPU switched last, by its pid.
    pub(crate) const TASK: usize = 2;
    /// Intervals in which another task than that came to run: the program saw no switch to it.
    pub(crate) const UNSEEN: usize = 3;
    /// How many these are.
    pub(crate) const WORDS: usize = 4;
}

/// The two times of a group, which come before its counts.
pub(crate) const TIMES: usize = 2;

/// Where a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its enabled time; its running time and its counts follow.
    pub(crate) word: usize,
    /// Its leader's number among all events.
    pub(crate) event: usize,
    /// How many events it has.
    pub(crate) events: usize,
}

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    /// 64-bit numbers of an entry.
    pub(crate) words: usize,
    /// Events of a CPU.
    pub(crate) events: usize,
}

/// More would not be reached by the offset of a load: a 16-bit number of bytes, over four areas.
const MOST_WORDS: usize = 1000;

impl Layout {
    /// Of these groups; `None` when they are too many.
    pub(crate) fn new(groups: &[SharedGroup]) -> Option<Self> {
        let mut layout = Self { places: Vec::new(), words: 0, events: 0 };
        for group in groups {
            let events = group.events.len();
            layout.places.push(Place { word: layout.words, event: layout.events, events });
            layout.words += TIMES + events;
            layout.events += events;
        }
        (layout.words > 0 && layout.words <= MOST_WORDS).then_some(layout)
    }

    /// What the counters of the CPU said at the last interval.
    pub(crate) fn last(&self) -> usize {
        state::WORDS
    }

    /// What they say now, and then what that is more.
    pub(crate) fn more(&self) -> usize {
        state::WORDS + self.words
    }

    /// What no registered cgroup did.
    pub(crate) fn rest(&self) -> usize {
        state::WORDS + 2 * self.words
    }

    /// The entry that was asked for.
    pub(crate) fn answer(&self) -> usize {
        state::WORDS + 3 * self.words
    }

    /// The length of a CPU's state: whole cache lines, which no other CPU writes.
    pub(crate) fn state(&self) -> usize {
        (state::WORDS + 4 * self.words).next_multiple_of(8)
    }

    /// Puts what a group counted since `before` into a reading.
    pub(crate) fn reading(&self, group: usize, words: &[u64], before: &[u64], into: &mut Reading) {
        let place = self.places.get(group).copied().unwrap_or(Place { word: 0, event: 0, events: 0 });
        let more = |word: usize| {
            let before = before.get(word).copied().unwrap_or(0);
            words.get(word).copied().unwrap_or(0).saturating_sub(before)
        };
        (into.enabled, into.running) = (more(place.word), more(place.word + 1));
        into.counts.clear();
        into.counts.extend((0..place.events).map(|event| more(place.word + TIMES + event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(events: usize) -> SharedGroup {
        SharedGroup { events: vec![Attr::default(); events], cpus: None }
    }

    #[test]
    fn each_group_has_its_words_and_no_area_overlaps_another() {
        let layout = Layout::new(&[group(2), group(1)]).unwrap();
        assert_eq!((layout.words, layout.events), (7, 3));
        let place = |word, event, events| Place { word, event, events };
        assert_eq!(layout.places, [place(0, 0, 2), place(4, 2, 1)]);
        assert_eq!((layout.last(), layout.more(), layout.rest(), layout.answer()), (4, 11, 18, 25));
        assert_eq!(layout.state(), 32);
        assert_eq!(Layout::new(&[]), None);
        assert_eq!(Layout::new(&vec![group(30); 32]), None, "too many");
    }

    #[test]
    fn a_reading_is_what_was_counted_since_it_was_opened() {
        let layout = Layout::new(&[group(2), group(1)]).unwrap();
        let (words, before) = ([10, 9, 100, 200, 20, 18, 300], [1, 1, 1, 1, 2, 2, 2]);
        let mut reading = Reading::default();
        layout.reading(0, &words, &[], &mut reading);
        assert_eq!(reading, Reading { enabled: 10, running: 9, counts: vec![100, 200] });
        layout.reading(1, &words, &before, &mut reading);
        assert_eq!(reading, Reading { enabled: 18, running: 16, counts: vec![298] });
    }
}
