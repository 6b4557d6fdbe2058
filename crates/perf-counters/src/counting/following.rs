//! Cgroups below a counted one: the steps and tasks of a job. They take no counters of their own.

use std::fs::File;

use cpu_topology::CpuSet;
use perf_events::OpenError;

use super::{Counted, Counting, Mode};
use crate::tally::SavedTally;

impl Counted {
    /// Whether nothing of it is missing because there was no room for a CPU on which it ran.
    pub fn is_whole(&self) -> bool {
        match &self.mode {
            Mode::Followed(following) => following.is_whole(),
            Mode::Cgroup(_) | Mode::Cpus => true,
        }
    }
}

impl Counting {
    /// Whether cgroups below a counted one can be followed: that takes no counters of their own.
    pub fn follows(&self) -> bool {
        self.open.follows()
    }

    /// A cgroup below a counted one, followed from now on; `before` was counted of it by another process.
    pub fn follow(&self, cgroup: &File, before: Option<&SavedTally>) -> Result<Counted, OpenError> {
        Ok(self.begin(Mode::Followed(self.open.follow(cgroup)?), before))
    }

    /// Opens what is not open yet on the CPUs on which a followed cgroup ran.
    pub fn open_where_it_ran(&mut self, counted: &mut Counted) {
        if let Mode::Followed(following) = &counted.mode {
            let cpus: CpuSet = following.cpus().into_iter().collect();
            self.open(counted, &cpus);
        }
    }
}
