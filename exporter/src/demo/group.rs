//! A simulated cgroup: what its processes spent, and sums over what is below it, as the kernel keeps them.

use std::ops::AddAssign;
use std::sync::Arc;

use super::process::{Io, Process};
use super::random::{real, whole};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Counters, of which a parent has the sum over its children, those that are gone too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// CPU time in user mode, microseconds.
    pub(super) user: u64,
    /// CPU time in the kernel, microseconds.
    pub(super) system: u64,
    pub(super) page_faults: u64,
    pub(super) major_faults: u64,
    /// Times that the limit was hit, and what came of it.
    pub(super) limit_hits: u64,
    pub(super) ooms: u64,
    pub(super) oom_kills: u64,
    /// By device, in the order of `node::DISKS`.
    pub(super) io: [Io; 2],
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.page_faults += other.page_faults;
        self.major_faults += other.major_faults;
        self.limit_hits += other.limit_hits;
        self.ooms += other.ooms;
        self.oom_kills += other.oom_kills;
        for (mine, theirs) in self.io.iter_mut().zip(other.io) {
            *mine += theirs;
        }
    }
}

/// What memory is charged now, bytes; `file` has `shmem` in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) shmem: u64,
    pub(super) mapped: u64,
    pub(super) page_tables: u64,
    pub(super) threads: u64,
}

impl Memory {
    /// Memory of `threads` threads; page tables follow from what is mapped.
    pub(super) fn of(anon: u64, file: u64, shmem: u64, threads: u64) -> Self {
        let pages = |bytes: u64| bytes - bytes % PAGE;
        let (anon, shmem) = (pages(anon), pages(shmem));
        let file = pages(file).max(shmem);
        let mapped = (shmem + pages(file / 16)).min(file);
        Self { anon, file, shmem, mapped, page_tables: Self::tables(anon), threads }
    }

    fn tables(anon: u64) -> u64 {
        (anon / 512).next_multiple_of(PAGE) + 16 * PAGE
    }

    /// The most anonymous memory that fits into `room` with its page tables.
    pub(super) fn anon_within(room: u64) -> u64 {
        let anon = (room.saturating_sub(18 * PAGE) / 513) * 512;
        anon - anon % PAGE
    }

    pub(super) fn kernel_stack(&self) -> u64 {
        self.threads * 4 * PAGE
    }

    pub(super) fn slab_reclaimable(&self) -> u64 {
        self.threads * 6 * PAGE
    }

    pub(super) fn slab_unreclaimable(&self) -> u64 {
        self.threads * 10 * PAGE
    }

    pub(super) fn per_cpu(&self) -> u64 {
        self.threads * PAGE
    }

    /// `kernel` of memory.stat, which has the ones above in it.
    pub(super) fn kernel(&self) -> u64 {
        self.kernel_stack()
            + self.page_tables
            + self.per_cpu()
            + self.slab_reclaimable()
            + self.slab_unreclaimable()
    }

    /// `memory.current`.
    pub(super) fn current(&self) -> u64 {
        self.anon + self.file + self.kernel()
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.anon += other.anon;
        self.file += other.file;
        self.shmem += other.shmem;
        self.mapped += other.mapped;
        self.page_tables += other.page_tables;
        self.threads += other.threads;
    }
}

/// Time lost by waiting, and its running averages, as in a PSI file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Stall {
    /// Microseconds.
    pub(super) total: u64,
    /// At the latest tick.
    ticked: u64,
    /// Percent over 10, 60 and 300 seconds.
    pub(super) averages: [f64; 3],
}

impl Stall {
    /// What was added since the latest tick.
    pub(super) fn since_tick(&self) -> u64 {
        self.total - self.ticked
    }

    fn tick(&mut self, elapsed: u64) {
        let percent = (100.0 * real(self.since_tick()) / real(elapsed.max(1))).min(100.0);
        for (average, seconds) in self.averages.iter_mut().zip([10.0, 60.0, 300.0]) {
            let keep = (-real(elapsed) / 1e6 / seconds).exp();
            *average = *average * keep + percent * (1.0 - keep);
            // Below what a PSI file shows it would only make files change for nothing.
            if *average < 0.005 {
                *average = 0.0;
            }
        }
        self.ticked = self.total;
    }
}

/// The resources of PSI, in the order of [`Pressure`].
pub(super) const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];

/// Stalls by resource: some and full.
pub(super) type Pressure = [[Stall; 2]; 3];

/// Adds microseconds of stall by resource: some and full.
pub(super) fn add_stalls(pressure: &mut Pressure, stalls: [[u64; 2]; 3]) {
    for (stall, more) in pressure.iter_mut().flatten().zip(stalls.into_iter().flatten()) {
        stall.total += more;
    }
}

/// Ends a tick for every stall.
pub(super) fn tick_stalls(pressure: &mut Pressure, elapsed: u64) {
    pressure.iter_mut().flatten().for_each(|stall| stall.tick(elapsed));
}

/// `cpu.max` and what it did. Not summed over children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bandwidth {
    /// Microseconds in each 100 000.
    pub(super) quota: Option<u64>,
    pub(super) periods: u64,
    pub(super) throttled: u64,
    pub(super) throttled_usec: u64,
}

/// What a group may use.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    /// Its CPUs; `None` for those of its parent.
    pub(super) cpus: Option<Arc<[u32]>>,
    pub(super) memory: Option<u64>,
}

/// Sums over a group and all below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) counters: Counters,
    pub(super) memory: Memory,
    pub(super) peak: u64,
    pub(super) threads_peak: u64,
    pub(super) descendants: u64,
}

impl Totals {
    pub(super) fn populated(&self) -> bool {
        self.memory.threads > 0
    }
}

/// What of a group is in its files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) totals: Totals,
    pub(super) bandwidth: Bandwidth,
    pub(super) pressure: Pressure,
    pub(super) roster: u64,
}

/// A cgroup.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) name: String,
    /// Of its own processes, and of children that are gone.
    pub(super) own: Counters,
    /// Of its own processes, but for their threads.
    pub(super) memory: Memory,
    pub(super) limits: Limits,
    pub(super) bandwidth: Bandwidth,
    pub(super) pressure: Pressure,
    pub(super) processes: Vec<Process>,
    /// Changes with every change of `processes`.
    pub(super) roster: u64,
    pub(super) children: Vec<Self>,
    pub(super) totals: Totals,
    pub(super) published: Option<Published>,
}

impl Group {
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(super) fn with(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children);
        self
    }

    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(super) fn child_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// The group at a path below this one.
    pub(super) fn below_mut(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |group, name| group.child_mut(name))
    }

    pub(super) fn admit(&mut self, process: Process) {
        self.processes.push(process);
        self.roster += 1;
    }

    /// Takes all processes out of it and what is below it.
    pub(super) fn evict(&mut self, into: &mut Vec<Process>) {
        if !self.processes.is_empty() {
            into.append(&mut self.processes);
            self.roster += 1;
            // Its page cache stays until the group is removed.
            let file = self.memory.file - self.memory.shmem;
            self.memory = Memory { file, ..Memory::default() };
        }
        for child in &mut self.children {
            child.evict(into);
        }
    }

    /// Removes a child; its counters stay in the sum.
    pub(super) fn remove(&mut self, name: &str) -> Option<Self> {
        let at = self.children.iter().position(|child| child.name == name)?;
        let mut child = self.children.remove(at);
        child.settle();
        self.own += child.totals.counters;
        Some(child)
    }

    /// Charges CPU time to its processes.
    pub(super) fn charge(&mut self, user: u64, system: u64) {
        self.own.user += user;
        self.own.system += system;
        let share = u64::try_from(self.processes.len()).unwrap_or(1).max(1);
        for process in &mut self.processes {
            process.user += user / share;
            process.system += system / share;
        }
    }

    /// Sums up.
    pub(super) fn settle(&mut self) -> Totals {
        let mut counters = self.own;
        let mut memory = self.memory;
        memory.threads = self.processes.iter().map(|p| p.threads).sum();
        let mut descendants = 0;
        for child in &mut self.children {
            let totals = child.settle();
            counters += totals.counters;
            memory += totals.memory;
            descendants += 1 + totals.descendants;
        }
        self.totals = Totals {
            counters,
            memory,
            peak: self.totals.peak.max(memory.current()),
            threads_peak: self.totals.threads_peak.max(memory.threads),
            descendants,
        };
        self.totals
    }

    /// What its files are to show.
    pub(super) fn now(&self) -> Published {
        let Self { totals, bandwidth, pressure, roster, .. } = *self;
        Published { totals, bandwidth, pressure, roster }
    }

    /// Ends a tick for the running averages of PSI.
    pub(super) fn tick(&mut self, elapsed: u64) {
        tick_stalls(&mut self.pressure, elapsed);
        self.children.iter_mut().for_each(|child| child.tick(elapsed));
    }

    /// The stalls since the latest tick, at most over its children: those of the groups above jobs.
    pub(super) fn most_stalled(&self) -> [[u64; 2]; 3] {
        let mut most = [[0; 2]; 3];
        for child in &self.children {
            let stalls = child.pressure.iter().flatten();
            for (most, stall) in most.iter_mut().flatten().zip(stalls) {
                *most = stall.since_tick().max(*most);
            }
        }
        // While one job waits another runs: not all of them do.
        for [_, full] in &mut most {
            *full = 0;
        }
        most
    }
}

/// Stalls of a time as fractions of it.
pub(super) fn stalls(fractions: [[f64; 2]; 3], elapsed: u64) -> [[u64; 2]; 3] {
    fractions.map(|pair| pair.map(|fraction| whole(fraction * real(elapsed))))
}
