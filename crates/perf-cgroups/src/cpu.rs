//! One CPU: its events, and what the programs keep of it.

use std::os::fd::OwnedFd;

use bpf::program::Kind;
use bpf::{BpfError, PerfEvents, Program, Table};
use perf_events::{On, OpenError, disable, open_group};

use crate::hierarchy::Hierarchy;
#[cfg(test)]
use crate::layout::state;
use crate::layout::{Layout, SharedGroup};
use crate::program::{FollowedMaps, Maps, Order, When, answer, followed, levels, place, write};
use crate::unavailable::Unavailable;

/// What is in the kernel for all CPUs.
pub(crate) struct Tables {
    /// Whether cgroups are those of v2.
    pub(crate) unified: bool,
    pub(crate) layout: Layout,
    /// CPUs are numbered below this.
    cpus: u32,
    events: PerfEvents,
    states: Table<0>,
    entries: Table<2>,
    levels: Table<0>,
    pub(crate) followed: Option<FollowedTables>,
    /// What runs the program at switches, on every CPU.
    _at_switches: OwnedFd,
    reader: Program,
}

/// Of cgroups that are followed.
pub(crate) struct FollowedTables {
    pub(crate) cgroups: Table<1>,
    pub(crate) entries: Table<2>,
}

/// How many entries there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Pairs of a registered cgroup and a CPU.
    pub(crate) registered: u32,
    /// Pairs of a followed cgroup and a CPU; 0 where none is followed.
    pub(crate) followed: u32,
}

impl Tables {
    /// Makes the tables, with this room, and loads the programs.
    pub(crate) fn new(
        hierarchy: Hierarchy,
        layout: Layout,
        cpus: u32,
        room: Room,
    ) -> Result<Self, Unavailable> {
        let places = place(layout.events, 0, cpus).ok_or(Unavailable::TooLarge)?;
        let events = PerfEvents::new("jobledger_event", places)?;
        let states = Table::new("jobledger_cpu", cpus, layout.state())?;
        let entries = Table::new("jobledger_group", room.registered, layout.words)?;
        let levels = Table::new("jobledger_level", 1, levels::WORDS)?;
        let followed = match room.followed {
            0 => None,
            room => Some(FollowedTables {
                cgroups: Table::new("jobledger_below", room, followed::WORDS)?,
                entries: Table::new("jobledger_part", room, layout.words)?,
            }),
        };
        let maps = Maps {
            events: events.descriptor(),
            states: states.descriptor(),
            entries: entries.descriptor(),
            levels: levels.descriptor(),
            followed: followed.as_ref().map(|tables| FollowedMaps {
                cgroups: tables.cgroups.descriptor(),
                entries: tables.entries.descriptor(),
            }),
        };
        let load = |when, kind, name| -> Result<Program, Unavailable> {
            let code = write(when, &hierarchy, &layout, maps, cpus).map_err(|_| Unavailable::TooLarge)?;
            Ok(Program::load(kind, name, &code)?)
        };
        let at_switches = load(When::Switch, Kind::Tracepoint(hierarchy.switch), "jobledger_swtch")?;
        let reader = load(When::Started, Kind::RawTracepoint, "jobledger_read")?;
        Ok(Self {
            unified: hierarchy.is_unified(),
            layout,
            cpus,
            events,
            states,
            entries,
            levels,
            followed,
            _at_switches: at_switches.at_tracepoint()?,
            reader,
        })
    }

    /// Has the programs look for cgroups of these levels: bit n is level n, of the registered and of the followed ones.
    pub(crate) fn look_at(&self, levels: [u64; levels::WORDS]) -> Result<(), BpfError> {
        self.levels.put_at(0, &levels)
    }

    /// The table of entries of followed cgroups, or of the others.
    pub(crate) fn entries_of(&self, followed: bool) -> &Table<2> {
        self.followed.as_ref().filter(|_| followed).map_or(&self.entries, |tables| &tables.entries)
    }
}

/// Its events are not there (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotCounted;

/// What is open on a CPU.
struct Events {
    /// By group, the leader first; nothing for one that this CPU does not have.
    groups: Vec<Result<Vec<OwnedFd>, OpenError>>,
    /// Enabled time of the first group when it was last looked at, nanoseconds.
    enabled: u64,
}

/// A CPU, open or not.
pub(crate) struct Cpu {
    number: u32,
    events: Option<Events>,
    /// How often it was opened.
    pub(crate) times: u64,
    /// The CPU's state as it was last read.
    state: Vec<u64>,
}

impl Cpu {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, events: None, times: 0, state: Vec::new() }
    }

    /// Descriptors that are open.
    pub(crate) fn descriptors(&self) -> usize {
        let of = |events: &Events| events.groups.iter().flatten().map(Vec::len).sum();
        self.events.as_ref().map_or(0, of)
    }

    /// Why a group is not counted here.
    pub(crate) fn refusal(&self, group: usize) -> Option<OpenError> {
        self.events.as_ref()?.groups.get(group)?.as_ref().err().copied()
    }

    /// Opens every group, and begins to count.
    pub(crate) fn open(&mut self, tables: &Tables, groups: &[SharedGroup]) -> Result<(), OpenError> {
        if self.events.is_some() {
            return Ok(());
        }
        if self.number >= tables.cpus {
            return Err(OpenError::Offline);
        }
        let refused = |error: BpfError| OpenError::Io(error.errno.raw_os_error());
        let mut opened = Vec::with_capacity(groups.len());
        for group in groups {
            let here = group.is_on(self.number);
            let events = if here { open_group(On::Host, self.number, &group.events) } else { Ok(Vec::new()) };
            match events {
                // The whole CPU has none of them then, or none of anybody's.
                Err(error @ (OpenError::Denied | OpenError::Descriptors | OpenError::Offline)) => {
                    return Err(error);
                }
                events => opened.push(events),
            }
        }
        self.state.clear();
        tables.states.put_at(self.number, &[]).map_err(refused)?;
        for (place, events) in tables.layout.places.iter().zip(&opened) {
            for (number, event) in events.iter().flatten().enumerate() {
                self.place(tables, place.event + number, event).map_err(refused)?;
            }
        }
        self.events = Some(Events { groups: opened, enabled: 0 });
        self.times += 1;
        let begun = self.start(tables, Order::Begin, 0).is_some();
        if begun {
            return Ok(());
        }
        self.close(tables);
        Err(OpenError::Offline)
    }

    fn place(&self, tables: &Tables, number: usize, event: &OwnedFd) -> Result<(), BpfError> {
        let place = place(number, self.number, tables.cpus).unwrap_or(u32::MAX);
        tables.events.set(place, event)
    }

    /// Takes in what runs now, and gives the entry of a cgroup, or with 0 the rest. The CPU is closed when it went offline: the kernel
    /// has taken its events from it then, also if it is back.
    pub(crate) fn read(&mut self, tables: &Tables, cgroup: u64) -> Result<&[u64], NotCounted> {
        if self.events.is_none() {
            return Err(NotCounted);
        }
        let enabled = self.start(tables, Order::Read, cgroup);
        let before = self.events.as_ref().map_or(0, |events| events.enabled);
        // The time of an event that is on its CPU never stands still.
        if enabled.is_none_or(|enabled| enabled <= before) {
            self.close(tables);
            return Err(NotCounted);
        }
        if let (Some(events), Some(enabled)) = (&mut self.events, enabled) {
            events.enabled = enabled;
        }
        Ok(self.answer(tables))
    }

    fn answer(&self, tables: &Tables) -> &[u64] {
        let begin = tables.layout.answer();
        self.state.get(begin..begin + tables.layout.words).unwrap_or_default()
    }

    /// Runs the program, and reads the state. Gives the enabled time of the first group that is open here; `None` when it did not
    /// run, or could not read an event.
    fn start(&mut self, tables: &Tables, order: Order, cgroup: u64) -> Option<u64> {
        let said = tables.reader.run_on(self.number, &mut [order as u64, cgroup]).ok()?;
        if !tables.states.get_at(self.number, &mut self.state).ok()? {
            return None;
        }
        let known =
            [answer::DONE, answer::NO_ENTRY].into_iter().any(|fine| i64::from(fine) == i64::from(said));
        let open =
            |events: &&Result<Vec<OwnedFd>, OpenError>| events.as_ref().is_ok_and(|all| !all.is_empty());
        let first = self.events.as_ref()?.groups.iter().position(|events| open(&events))?;
        let place = tables.layout.places.get(first).filter(|_| known)?;
        self.state.get(tables.layout.last() + place.word).copied()
    }

    /// Waits until no program runs on this CPU that ran before.
    pub(crate) fn wait(&self, tables: &Tables) {
        if self.events.is_some() {
            // The answer is not asked for.
            let _ = tables.reader.run_on(self.number, &mut [Order::Read as u64, 0]);
        }
    }

    /// Takes the counters off the CPU: the last interval ends here. What is open remains to be closed.
    pub(crate) fn stop(&mut self, tables: &Tables) {
        let Some(events) = &self.events else { return };
        for leader in events.groups.iter().flatten().filter_map(|events| events.first()) {
            // One that cannot be stopped ends when it is closed.
            let _ = disable(leader);
        }
        self.start(tables, Order::End, 0);
    }

    /// Closes all of it.
    pub(crate) fn close(&mut self, tables: &Tables) {
        if self.events.take().is_some() {
            for number in 0..tables.layout.events {
                if let Some(place) = place(number, self.number, tables.cpus) {
                    tables.events.clear(place);
                }
            }
        }
    }
}

#[cfg(test)]
impl Cpu {
    /// What the kernel itself says that each group counted.
    pub(crate) fn counted(&self) -> Vec<perf_events::Reading> {
        let groups = &self.events.as_ref().unwrap().groups;
        let read = |events: &Vec<OwnedFd>| {
            let mut bytes = [0; 8 * 40];
            let length = rustix::io::read(&events[0], &mut bytes).unwrap();
            let mut reading = perf_events::Reading::default();
            assert!(perf_events::parse_group(&bytes[..length], events.len(), &mut reading));
            reading
        };
        groups.iter().map(|events| read(events.as_ref().unwrap())).collect()
    }

    /// Its state, as it is in the kernel's table.
    pub(crate) fn kept(&self, tables: &Tables) -> Vec<u64> {
        let mut state = Vec::new();
        tables.states.get_at(self.number, &mut state).unwrap();
        state
    }

    /// Has it take another task than the current one for the one that runs.
    pub(crate) fn mistake(&self, tables: &Tables) {
        let mut state = self.kept(tables);
        state[state::TASK] = u64::from(u32::MAX);
        tables.states.put_at(self.number, &state).unwrap();
    }

    /// What belongs to no cgroup.
    pub(crate) fn rest(&self, tables: &Tables) -> Vec<u64> {
        let state = self.kept(tables);
        let begin = tables.layout.rest();
        state[begin..begin + tables.layout.words].to_vec()
    }
}
