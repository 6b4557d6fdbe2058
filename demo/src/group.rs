//! A simulated cgroup: what its processes used, and the sums over its descendants, as the kernel keeps them.

use std::sync::Arc;

use super::counters::{Bandwidth, Counters, Memory, Places, Pressure, tick_stalls};
use super::process::Process;

/// The limits of a group.
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
    pub(super) places: Places,
    pub(super) peak: u64,
    pub(super) threads_peak: u64,
    pub(super) descendants: u64,
}

impl Totals {
    pub(super) fn populated(&self) -> bool {
        self.memory.threads > 0
    }
}

/// The state of a group that its files show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) totals: Totals,
    pub(super) bandwidth: Bandwidth,
    pub(super) pressure: Pressure,
    pub(super) members_version: u64,
}

/// A cgroup.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) name: String,
    /// Counters of its own processes and of removed children.
    pub(super) own: Counters,
    /// Memory of its own processes, without `threads`.
    pub(super) memory: Memory,
    pub(super) limits: Limits,
    /// Number of its CPUs on each socket; 0 and 0: all CPUs.
    pub(super) runs_on: [u64; 2],
    pub(super) bandwidth: Bandwidth,
    pub(super) pressure: Pressure,
    pub(super) processes: Vec<Process>,
    /// Changes with every change of `processes`.
    pub(super) members_version: u64,
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
    pub(super) fn below(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |group, name| group.child(name))
    }

    /// Like [`Self::below`], mutable.
    pub(super) fn below_mut(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |group, name| group.child_mut(name))
    }

    pub(super) fn add_process(&mut self, process: Process) {
        self.processes.push(process);
        self.members_version += 1;
    }

    /// Moves all its processes, and those of its descendants, to `into`.
    pub(super) fn take_processes(&mut self, into: &mut Vec<Process>) {
        if !self.processes.is_empty() {
            into.append(&mut self.processes);
            self.members_version += 1;
            // The page cache remains until the group is removed.
            let file = self.memory.file - self.memory.shmem;
            self.memory = Memory { file, ..Memory::default() };
        }
        for child in &mut self.children {
            child.take_processes(into);
        }
    }

    /// Removes a child; its counters remain in the sum.
    pub(super) fn remove(&mut self, name: &str) -> Option<Self> {
        let at = self.children.iter().position(|child| child.name == name)?;
        let mut child = self.children.remove(at);
        child.update_totals();
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

    /// Updates the totals of it and its descendants.
    pub(super) fn update_totals(&mut self) -> Totals {
        let mut counters = self.own;
        let mut memory = self.memory;
        memory.threads = self.processes.iter().map(|p| p.threads).sum();
        let mut places = self.memory.places(self.runs_on);
        let mut descendants = 0;
        for child in &mut self.children {
            let totals = child.update_totals();
            counters += totals.counters;
            memory += totals.memory;
            for (mine, theirs) in places.iter_mut().flatten().zip(totals.places.into_iter().flatten()) {
                *mine += theirs;
            }
            descendants += 1 + totals.descendants;
        }
        self.totals = Totals {
            counters,
            memory,
            places,
            peak: self.totals.peak.max(memory.current()),
            threads_peak: self.totals.threads_peak.max(memory.threads),
            descendants,
        };
        self.totals
    }

    /// The state that its files should show.
    pub(super) fn now(&self) -> Published {
        let Self { totals, bandwidth, pressure, members_version, .. } = *self;
        Published { totals, bandwidth, pressure, members_version }
    }

    /// Updates PSI's averages.
    pub(super) fn tick(&mut self, elapsed: u64) {
        tick_stalls(&mut self.pressure, elapsed);
        self.children.iter_mut().for_each(|child| child.tick(elapsed));
    }

    /// The longest stalls of its children since the latest tick, for the groups above jobs.
    pub(super) fn most_stalled(&self) -> [[u64; 2]; 3] {
        let mut most = [[0; 2]; 3];
        for child in &self.children {
            let stalls = child.pressure.iter().flatten();
            for (most, stall) in most.iter_mut().flatten().zip(stalls) {
                *most = stall.since_tick().max(*most);
            }
        }
        // Another job runs meanwhile, so `full` is 0.
        for [_, full] in &mut most {
            *full = 0;
        }
        most
    }
}
