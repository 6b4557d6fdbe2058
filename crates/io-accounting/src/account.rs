//! What a job's processes have read and written, across their ends. Only the arithmetic, no reading.
//!
//! How the kernel counts (fs/proc/base.c `do_io_accounting`, kernel/exit.c `wait_task_zombie`): a process's
//! `/proc/PID/io` has in it its threads, those that ended too, and every child that it waited for, with what that
//! child had in it. So a child's numbers move to its parent when it is reaped, by a wait and not otherwise: a child
//! of a parent that ignores SIGCHLD, and an orphan that init reaps, take theirs along. slurmstepd waits for the
//! tasks, so the sum over the processes that are there, slurmstepd's among them, holds nearly all that the job did.
//!
//! The sum is always a proven lower bound, so it never counts twice, and the highest so far, so it never falls:
//! - a value counts only if its process was still there (and not being reaped) after all values were read: then no
//!   other value includes it;
//! - of a process that is gone, the last value is carried on where no process of the job can have reaped it: its
//!   parent was init, or a process outside the job;
//! - where its parent still waits for children: the part of it that the parent's growth since cannot have come
//!   from;
//! - else (it lost its parent and ended between two readings): as far as the sum of all would otherwise fall.
//!
//! Not seen is what an unreaped process did after the last look at it. The state is one entry per live process.

use std::collections::{HashMap, HashSet};

use kernel_files::parse::PidStat;
use serde::{Deserialize, Serialize};

/// How many counters `/proc/PID/io` has.
pub const COUNTERS: usize = 7;

/// The counters of `/proc/PID/io`, in its order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters(pub [u64; COUNTERS]);

impl Counters {
    fn zip(mut self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = f(*mine, other);
        }
        self
    }

    fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The difference where it is positive.
    fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    fn max(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }

    fn min(self, other: Self) -> Self {
        self.zip(other, u64::min)
    }
}

/// Where processes are looked at; `None` is a process that is not there.
pub trait Procs {
    /// Why a look failed.
    type Error;
    /// `/proc/PID/stat`.
    fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, Self::Error>;
    /// `/proc/PID/io`.
    fn io(&mut self, pid: u32) -> Result<Option<Counters>, Self::Error>;
}

/// A process that a cgroup of the job lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub pid: u32,
    /// It is a slurmstepd: its parent is no process of the job.
    pub stepd: bool,
}

/// A process as it was at the latest look.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Process {
    start: u64,
    ppid: u32,
    io: Counters,
    /// It is a slurmstepd.
    stepd: bool,
    /// Its parent was outside the job at the last two looks.
    adopted: bool,
    /// It waits for no child any more: its children have another parent.
    zombie: bool,
}

/// A process that is gone. What its parent got of it is not known yet.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Gone {
    parent: u32,
    parent_start: u64,
    /// The parent's value when it had not reaped it yet.
    base: Counters,
    io: Counters,
}

/// One job's account.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Account {
    processes: HashMap<u32, Process>,
    undecided: Vec<Gone>,
    /// Of processes that are gone and in no live process's value.
    carried: Counters,
    exported: Option<Counters>,
}

/// `X` and `x`: its numbers are on their way to its parent.
fn is_there(stat: &PidStat, start: u64) -> bool {
    stat.start_ticks == start && !matches!(stat.state, b'X' | b'x')
}

impl Account {
    /// All that the job's processes are known to have done; `None` before the first look that found one.
    pub fn exported(&self) -> Option<Counters> {
        self.exported
    }

    /// How many processes it holds.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Looks at the job's processes: those listed (sorted by pid), and those known from before that are zombies now
    /// or were moved away. After an error nothing has changed.
    pub fn look<P: Procs>(&mut self, listed: &[Listed], procs: &mut P) -> Result<(), P::Error> {
        let is_listed = |pid: u32| listed.binary_search_by_key(&pid, |l| l.pid).is_ok();
        let mut before = Vec::new();
        let mut watched: HashMap<u32, (u64, bool)> = HashMap::with_capacity(listed.len());
        for (pid, process) in self.processes.iter().filter(|(pid, _)| !is_listed(**pid)) {
            match procs.stat(*pid)? {
                Some(stat) if is_there(&stat, process.start) => {
                    watched.insert(*pid, (process.start, process.stepd));
                }
                _ => before.push(*pid),
            }
        }
        for Listed { pid, stepd } in listed {
            let known = self.processes.get(pid).map(|p| (p.start, p.stepd || *stepd));
            let start = match known {
                Some(known) => Some(known),
                None => procs.stat(*pid)?.map(|stat| (stat.start_ticks, *stepd)),
            };
            watched.extend(start.map(|start| (*pid, start)));
        }
        let mut values = Vec::with_capacity(watched.len());
        for pid in watched.keys() {
            values.push((*pid, procs.io(*pid)?));
        }
        let mut now = HashMap::with_capacity(watched.len());
        let mut during = HashSet::new();
        for (pid, io) in values {
            let stat = procs.stat(pid)?;
            let Some((start, stepd)) = watched.get(&pid).copied() else { continue };
            match (io, stat) {
                (Some(io), Some(stat)) if is_there(&stat, start) => {
                    let same = self.processes.get(&pid).is_some_and(|old| old.ppid == stat.ppid);
                    let adopted = same && !watched.contains_key(&stat.ppid);
                    let zombie = stat.state == b'Z';
                    now.insert(pid, Process { start, ppid: stat.ppid, io, stepd, adopted, zombie });
                }
                _ => {
                    during.insert(pid);
                }
            }
        }
        self.settle(&before, &during, now);
        Ok(())
    }

    /// Returns a process that is gone, if its share of the parent's growth has to be found out. `None` where its I/O
    /// is carried on at once, or where its parent is gone too.
    fn finish(&mut self, pid: u32) -> Option<Gone> {
        const INIT: u32 = 1;
        let process = *self.processes.get(&pid)?;
        let foreign = process.stepd || process.adopted;
        match self.processes.get(&process.ppid) {
            Some(parent) if !foreign => Some(Gone {
                parent: process.ppid,
                parent_start: parent.start,
                base: parent.io,
                io: process.io,
            }),
            _ if foreign || process.ppid == INIT => {
                self.carried = self.carried.plus(process.io);
                None
            }
            _ => None,
        }
    }

    /// `before`: gone before the first value was read. `during`: gone since. `now`: there after the last was.
    fn settle(&mut self, before: &[u32], during: &HashSet<u32>, now: HashMap<u32, Process>) {
        let mut gone = std::mem::take(&mut self.undecided);
        gone.extend(before.iter().filter_map(|pid| self.finish(*pid)).collect::<Vec<_>>());
        let mut by_parent: HashMap<u32, (Counters, Counters)> = HashMap::new();
        let mut undecided = Vec::new();
        for gone in gone {
            match now.get(&gone.parent) {
                Some(parent) if parent.start == gone.parent_start && !parent.zombie => {
                    let entry = by_parent.entry(gone.parent).or_insert((Counters::default(), gone.base));
                    *entry = (entry.0.plus(gone.io), entry.1.min(gone.base));
                }
                None if during.contains(&gone.parent) => undecided.push(gone),
                _ => {}
            }
        }
        for (parent, (children, base)) in by_parent {
            if let Some(parent) = now.get(&parent) {
                self.carried = self.carried.plus(children.minus(parent.io.minus(base)));
            }
        }
        // Their parents' values may have been read before or after they were reaped: the next reading decides.
        undecided.extend(during.iter().filter_map(|pid| self.finish(*pid)).collect::<Vec<_>>());
        self.undecided = undecided;
        self.processes = now;
        let there = self.processes.values().fold(Counters::default(), |sum, p| sum.plus(p.io));
        let exported = self.exported.unwrap_or_default();
        if during.is_empty() {
            self.carried = self.carried.max(exported.minus(there));
        }
        if self.exported.is_some() || !self.processes.is_empty() {
            self.exported = Some(exported.max(self.carried.plus(there)));
        }
    }

    /// The job is over: its processes are of no interest any more.
    pub fn close(&mut self) {
        self.processes = HashMap::new();
        self.undecided = Vec::new();
    }
}

#[cfg(test)]
mod tests;
