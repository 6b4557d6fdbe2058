//! Cgroups that are followed: the program at switches makes their entries, on the CPUs where they run.
//!
//! A job may have as many tasks as CPUs. An entry of each task on each CPU would be their product, and most of them empty.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use perf_events::{Attr, Counters, Following, OpenError};

use super::{Inner, refused};
use crate::cgroup::Cgroup;
use crate::cpu::FollowedTables;
use crate::program::{followed, levels};

/// A cgroup that is followed. Its entries last as long.
pub(super) struct Followed {
    inner: Arc<Inner>,
    cgroup: Cgroup,
    /// The CPUs of its entries, and how many had been made when these were looked for.
    cpus: Mutex<(u64, Vec<u32>)>,
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed").field("cgroup", &self.cgroup).finish_non_exhaustive()
    }
}

impl Inner {
    /// Has the program make the entries of a cgroup.
    pub(super) fn follow(self: &Arc<Self>, cgroup: Cgroup) -> Result<Followed, OpenError> {
        let tables = self.tables.followed.as_ref().ok_or(OpenError::Unsupported)?;
        self.registered.lock().look_at(&self.tables, levels::FOLLOWED, cgroup)?;
        tables.cgroups.put_of([cgroup.id], &[]).map_err(refused)?;
        Ok(Followed { inner: self.clone(), cgroup, cpus: Mutex::default() })
    }
}

impl Followed {
    fn each_cpu(&self) -> impl Iterator<Item = u32> {
        0..u32::try_from(self.inner.cpus.len()).unwrap_or(u32::MAX)
    }

    /// A word that the program keeps of it; 0 where nothing is followed.
    fn word(&self, word: usize) -> u64 {
        let mut words = Vec::new();
        let read = |tables: &FollowedTables| tables.cgroups.get_of([self.cgroup.id], &mut words) == Ok(true);
        let is_read = self.inner.tables.followed.as_ref().is_some_and(read);
        words.get(word).copied().filter(|_| is_read).unwrap_or(0)
    }

    fn has(&self, cpu: u32) -> bool {
        let mut words = Vec::new();
        self.inner.tables.entries_of(true).get_of(self.key(cpu), &mut words) == Ok(true)
    }

    fn key(&self, cpu: u32) -> [u64; 2] {
        [self.cgroup.id, u64::from(cpu)]
    }
}

impl Following for Followed {
    fn cpus(&self) -> Vec<u32> {
        let made = self.word(followed::MADE);
        let mut cpus = self.cpus.lock();
        if cpus.0 != made {
            *cpus = (made, self.each_cpu().filter(|cpu| self.has(*cpu)).collect());
        }
        cpus.1.clone()
    }

    fn open(&self, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let number = self.inner.group(cpu, group).ok_or(OpenError::Absent)?;
        // Its entry went with the CPU.
        if !self.has(cpu) {
            return Err(OpenError::Offline);
        }
        self.inner.open((self.cgroup, true), cpu, number)
    }

    fn is_whole(&self) -> bool {
        self.word(followed::REFUSED) == 0
    }
}

/// Whatever is counted of it was read. Nothing runs in it any more, or no CPU is counted.
impl Drop for Followed {
    fn drop(&mut self) {
        let Some(tables) = &self.inner.tables.followed else { return };
        tables.cgroups.remove([self.cgroup.id]);
        self.each_cpu().for_each(|cpu| tables.entries.remove(self.key(cpu)));
    }
}
