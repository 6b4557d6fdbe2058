//! Opening and reading the entries of cgroups.

mod following;

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};

use bpf::BpfError;
use kernel_files::ReadError;
use parking_lot::Mutex;
use perf_events::{Attr, Counters, Following, Kernel, On, Open, OpenError, Reading};
use rustix::io::Errno;
use worker_threads::{spread, threads_for};

use crate::cgroup::{Cgroup, identify};
use crate::cpu::{Cpu, NotCounted, Room, Tables};
use crate::hierarchy::Hierarchy;
use crate::layout::{Layout, SharedGroup};
use crate::program::levels;
use crate::unavailable::Unavailable;

/// Entries per CPU: jobs that share it. Each has some 300 bytes.
const ENTRIES_PER_CPU: u32 = 8;
const LEAST_ENTRIES: u32 = 1024;
/// The same of what is followed: steps and tasks that have run there.
const FOLLOWED_PER_CPU: u32 = 64;
const LEAST_FOLLOWED: u32 = 4096;

/// Events that are open once per CPU.
pub struct Divided(Arc<Inner>);

struct Inner {
    tables: Tables,
    groups: Vec<SharedGroup>,
    cpus: Vec<Mutex<Cpu>>,
    registered: Mutex<Register>,
    /// The cgroup that was opened last: its groups and CPUs come one after the other.
    latest: Mutex<Option<(Inode, Option<Cgroup>)>>,
}

/// Device and inode.
type Inode = (u64, u64);

/// The entries that are in the kernel's tables, and the levels that the programs look at.
#[derive(Default)]
struct Register {
    entries: HashMap<(u64, u32), Weak<Entry>>,
    levels: [u64; levels::WORDS],
}

impl Register {
    /// Has the programs look at the level of a cgroup.
    fn look_at(&mut self, tables: &Tables, word: usize, cgroup: Cgroup) -> Result<(), OpenError> {
        let mut levels = self.levels;
        levels.get_mut(word).into_iter().for_each(|levels| *levels |= 1 << cgroup.level);
        if levels != self.levels {
            tables.look_at(levels).map_err(refused)?;
            self.levels = levels;
        }
        Ok(())
    }
}

fn refused(error: BpfError) -> OpenError {
    match error.errno {
        Errno::TOOBIG | Errno::NOMEM => OpenError::Descriptors,
        errno => OpenError::Io(errno.raw_os_error()),
    }
}

impl std::fmt::Debug for Divided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Divided").field("groups", &self.0.groups).finish_non_exhaustive()
    }
}

impl Divided {
    /// Makes the tables and loads the programs, for CPUs numbered below `cpus`; `follows` if cgroups are to be followed. Nothing is
    /// counted yet.
    pub fn new(
        hierarchy: Hierarchy,
        groups: Vec<SharedGroup>,
        cpus: u32,
        follows: bool,
    ) -> Result<Self, Unavailable> {
        let registered = cpus.saturating_mul(ENTRIES_PER_CPU).max(LEAST_ENTRIES);
        let followed = if follows { cpus.saturating_mul(FOLLOWED_PER_CPU).max(LEAST_FOLLOWED) } else { 0 };
        Self::with_room(hierarchy, groups, cpus, Room { registered, followed })
    }

    fn with_room(
        hierarchy: Hierarchy,
        groups: Vec<SharedGroup>,
        cpus: u32,
        room: Room,
    ) -> Result<Self, Unavailable> {
        let layout = Layout::new(&groups).ok_or(Unavailable::TooLarge)?;
        let tables = Tables::new(hierarchy, layout, cpus, room)?;
        let cpus = (0..cpus).map(|number| Mutex::new(Cpu::new(number))).collect();
        Ok(Self(Arc::new(Inner {
            tables,
            groups,
            cpus,
            registered: Mutex::default(),
            latest: Mutex::default(),
        })))
    }

    /// Opens the events of these CPUs where they are not open, until `stop` says so. CPUs that are offline are passed over.
    pub fn prepare(
        &self,
        cpus: impl Iterator<Item = u32>,
        stop: impl Fn() -> bool,
    ) -> Result<(), Unavailable> {
        for number in cpus {
            if stop() {
                return Ok(());
            }
            match self.0.open_cpu(number) {
                Ok(_) | Err(OpenError::Offline) => {}
                Err(error) => return Err(Unavailable::Events(error)),
            }
        }
        Ok(())
    }

    /// Takes all counters off the CPUs, and then closes them. What was counted can still be read once.
    pub fn release(&self) {
        let inner = &*self.0;
        inner.on_all(|cpu| cpu.stop(&inner.tables));
        inner.on_all(|cpu| cpu.close(&inner.tables));
    }

    /// Whether a cgroup is one of those that can be divided: one of the hierarchy, whose depth is to be seen.
    pub fn has(&self, directory: &File) -> bool {
        self.0.cgroup(directory).is_some()
    }

    /// Descriptors of events that are open.
    pub fn descriptors(&self) -> usize {
        self.0.cpus.iter().map(|cpu| cpu.lock().descriptors()).sum()
    }

    /// What no registered cgroup did on a CPU since its events were opened, by group; `None` while they are not.
    pub fn rest(&self, cpu: u32) -> Option<Vec<Reading>> {
        let mut cpu = self.0.cpu(cpu)?.lock();
        let words = cpu.read(&self.0.tables, 0).ok()?;
        let group = |group| {
            let mut reading = Reading::default();
            self.0.tables.layout.reading(group, words, &[], &mut reading);
            reading
        };
        Some((0..self.0.groups.len()).map(group).collect())
    }
}

impl Inner {
    fn cpu(&self, number: u32) -> Option<&Mutex<Cpu>> {
        self.cpus.get(usize::try_from(number).ok()?)
    }

    fn cgroup(&self, directory: &File) -> Option<Cgroup> {
        let stat = rustix::fs::fstat(directory).ok()?;
        let inode = (stat.st_dev, stat.st_ino);
        let mut latest = self.latest.lock();
        match *latest {
            Some((known, cgroup)) if known == inode => cgroup,
            _ => {
                let cgroup = identify(self.tables.unified, directory);
                *latest = Some((inode, cgroup));
                cgroup
            }
        }
    }

    /// Opens a CPU if it is not, and says how often it was.
    fn open_cpu(&self, number: u32) -> Result<u64, OpenError> {
        let mut cpu = self.cpu(number).ok_or(OpenError::Offline)?.lock();
        cpu.open(&self.tables, &self.groups)?;
        Ok(cpu.times)
    }

    /// The number of a group with these events, if the CPU has it.
    fn group(&self, cpu: u32, events: &[Attr]) -> Option<usize> {
        self.groups.iter().position(|known| known.events == events && known.is_on(cpu))
    }

    /// Opens a group of a cgroup on a CPU.
    fn open(
        self: &Arc<Self>,
        cgroup: (Cgroup, bool),
        cpu: u32,
        number: usize,
    ) -> Result<Box<dyn Counters>, OpenError> {
        let opened = self.open_cpu(cpu)?;
        if let Some(error) = self.cpu(cpu).and_then(|cpu| cpu.lock().refusal(number)) {
            return Err(error);
        }
        let entry = self.entry(cgroup, cpu, opened)?;
        let mut before = Vec::new();
        {
            let mut snapshot = entry.snapshot.lock();
            let bit = 1_u64 << number;
            // It counts from 0, whatever the entry has of this group already.
            if snapshot.known & bit != 0 {
                entry.refresh(&mut snapshot).map_err(|_| OpenError::Offline)?;
                before.clone_from(&snapshot.words);
                snapshot.fresh &= !bit;
            }
            snapshot.known |= bit;
        }
        Ok(Box::new(Handle { entry, group: number, before }))
    }

    /// On several threads: the kernel asks the CPU of each event, one after the other of a thread.
    fn on_all(&self, each: impl Fn(&mut Cpu) + Sync) {
        let cpus: Vec<&Mutex<Cpu>> = self.cpus.iter().collect();
        let threads = threads_for(cpus.len());
        spread("perf", cpus, threads, |cpu| each(&mut cpu.lock()));
    }

    /// The entry of a cgroup on a CPU, made if there is none. Of a followed one the program has made it.
    fn entry(
        self: &Arc<Self>,
        (cgroup, followed): (Cgroup, bool),
        cpu: u32,
        opened: u64,
    ) -> Result<Arc<Entry>, OpenError> {
        let key = (cgroup.id, cpu);
        // Dropped only when the register is not locked any more.
        let stale;
        let mut registered = self.registered.lock();
        stale = registered.entries.get(&key).and_then(Weak::upgrade);
        if let Some(known) = stale.as_ref().filter(|known| known.opened == opened) {
            return Ok(known.clone());
        }
        if let Some(stale) = &stale {
            stale.finish(&mut stale.snapshot.lock());
        }
        if !followed {
            registered.look_at(&self.tables, levels::REGISTERED, cgroup)?;
        }
        // What is there of a followed one is of this opening of the CPU, unless there is an entry of another one.
        if !followed || stale.is_some() {
            let entries = self.tables.entries_of(followed);
            entries.put_of([cgroup.id, u64::from(cpu)], &[]).map_err(refused)?;
        }
        let snapshot = Mutex::new(Snapshot { words: Vec::new(), fresh: 0, known: 0, last: false });
        let entry = Arc::new(Entry { inner: self.clone(), key, followed, opened, snapshot });
        registered.entries.insert(key, Arc::downgrade(&entry));
        Ok(entry)
    }
}

/// What an entry said when it was last read.
struct Snapshot {
    words: Vec<u64>,
    /// Bits of the groups that have not read this.
    fresh: u64,
    /// Bits of the groups that were ever opened.
    known: u64,
    /// The CPU is not counted any more.
    last: bool,
}

/// An entry of the kernel's table: what a cgroup did on a CPU, until it is dropped.
struct Entry {
    inner: Arc<Inner>,
    key: (u64, u32),
    /// Whether its cgroup is followed.
    followed: bool,
    /// Which opening of the CPU it is of.
    opened: u64,
    snapshot: Mutex<Snapshot>,
}

impl Entry {
    fn key(&self) -> [u64; 2] {
        [self.key.0, u64::from(self.key.1)]
    }

    /// Reads the entry, what runs now being in it.
    fn refresh(&self, snapshot: &mut Snapshot) -> Result<(), ReadError> {
        if snapshot.last {
            return Err(ReadError::Gone);
        }
        let tables = &self.inner.tables;
        let mut cpu = self.inner.cpu(self.key.1).ok_or(ReadError::Gone)?.lock();
        let now = if cpu.times == self.opened { cpu.read(tables, self.key.0) } else { Err(NotCounted) };
        match now {
            Ok(words) => {
                snapshot.words.clear();
                snapshot.words.extend_from_slice(words);
            }
            Err(NotCounted) => self.finish(snapshot),
        }
        snapshot.fresh = u64::MAX;
        Ok(())
    }

    /// Takes what was counted until its CPU was closed. Nothing adds to it now.
    fn finish(&self, snapshot: &mut Snapshot) {
        if !snapshot.last {
            snapshot.last = true;
            snapshot.fresh = u64::MAX;
            // What cannot be read now remains as it was.
            let mut words = Vec::new();
            if self.inner.tables.entries_of(self.followed).get_of(self.key(), &mut words) == Ok(true) {
                snapshot.words = words;
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut registered = self.inner.registered.lock();
        let this: *const Self = self;
        // Another one may have taken its place.
        if registered.entries.get(&self.key).is_some_and(|entry| std::ptr::eq(entry.as_ptr(), this)) {
            registered.entries.remove(&self.key);
            self.inner.tables.entries_of(self.followed).remove(self.key());
            // Its memory is used again for the next entry: no program may be writing to it.
            if let Some(cpu) = self.inner.cpu(self.key.1) {
                cpu.lock().wait(&self.inner.tables);
            }
        }
    }
}

/// A group of a cgroup on a CPU.
struct Handle {
    entry: Arc<Entry>,
    group: usize,
    /// What the entry said when this was opened.
    before: Vec<u64>,
}

impl Counters for Handle {
    /// The groups of a cgroup on a CPU share a reading: the first that wants a newer one takes in what runs now.
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        let mut snapshot = self.entry.snapshot.lock();
        let bit = 1_u64 << self.group;
        if snapshot.fresh & bit == 0 {
            self.entry.refresh(&mut snapshot)?;
        }
        snapshot.fresh &= !bit;
        self.entry.inner.tables.layout.reading(self.group, &snapshot.words, &self.before, into);
        Ok(())
    }
}

impl Open for Divided {
    /// A cgroup of the hierarchy is divided; everything else is counted by events of its own.
    fn open(&self, on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let cgroup = match on {
            On::Cgroup(directory) => self.0.cgroup(directory),
            On::Host | On::Everybody => None,
        };
        match (cgroup, self.0.group(cpu, group)) {
            (Some(cgroup), Some(number)) => self.0.open((cgroup, false), cpu, number),
            _ => Kernel.open(on, cpu, group),
        }
    }

    fn follows(&self) -> bool {
        self.0.tables.followed.is_some()
    }

    fn follow(&self, cgroup: &File) -> Result<Box<dyn Following>, OpenError> {
        let cgroup = self.0.cgroup(cgroup).ok_or(OpenError::Absent)?;
        Ok(Box::new(self.0.follow(cgroup)?))
    }
}

#[cfg(test)]
mod tests;
