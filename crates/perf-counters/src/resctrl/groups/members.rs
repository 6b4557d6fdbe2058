//! Putting jobs' threads into groups, and counters to those.

use std::collections::BTreeMap;

use kernel_files::ReadError;
use kernel_files::processes::parse_pids;
use readings::{Counter, Range};
use rustix::io::Errno;
use slurm_jobs::JobRunId;

use super::super::assignment::BY_ASSIGNMENT;
use super::super::parse::parse_task_groups;
use super::super::tasks::threads;
use super::{Group, Job, Monitor, PREFIX, Refusal, below};

/// How often a job's threads are looked at in one go until no new one is found.
const MOST_LOOKS: u32 = 8;

impl Monitor {
    /// Puts a job's threads into groups of ours until no new one is found; whether all of them are. What they fork from then
    /// on is born there.
    pub(super) fn put(&mut self, job: &Job) -> Result<bool, Refusal> {
        for _ in 0..MOST_LOOKS {
            let there = threads(&job.cgroup).map_err(|_| Refusal::Failed)?;
            let mut missing = there;
            let mut gone = Vec::new();
            for (path, _) in self.groups.iter().filter(|(_, group)| group.run == job.run) {
                let tasks = self.tree.read(&format!("{path}/tasks"));
                if tasks == Err(ReadError::Gone) {
                    gone.push(path.clone());
                }
                let tasks = tasks.unwrap_or_default();
                // A list that is torn ends where it is torn: then a thread is put in once more, which changes nothing.
                let _ = parse_pids(&tasks, |thread| {
                    missing.remove(&thread);
                });
            }
            for path in gone {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                self.vanished.extend(self.groups.remove(&path).map(|group| (name, group)));
            }
            if missing.is_empty() {
                return Ok(true);
            }
            for thread in missing {
                self.put_one(job, thread)?;
            }
        }
        Ok(false)
    }

    fn put_one(&mut self, job: &Job, thread: u32) -> Result<(), Refusal> {
        let Some(control) = self.control_of(thread)? else { return Ok(()) };
        let id = job.id.map_or_else(|| "unknown".to_owned(), |id| id.0.to_string());
        let name = below(&control, &format!("mon_groups/{PREFIX}{id}_{}", job.run.0));
        let known = self.groups.iter().find(|(_, group)| group.run == job.run && group.control == control);
        let path = match known {
            Some((path, _)) => path.clone(),
            None => self.make(name, job.run, control)?,
        };
        match self.tree.add_task(&path, thread) {
            // Gone, or moved to another control group meanwhile: the next look finds it there.
            Ok(()) | Err(Errno::SRCH | Errno::INVAL) => Ok(()),
            Err(errno) => {
                if matches!(errno, Errno::NOENT | Errno::NODEV) {
                    // Another program removed the group.
                    self.groups.remove(&path);
                }
                Err(self.refuse(errno))
            }
        }
    }

    fn make(&mut self, path: String, run: JobRunId, control: String) -> Result<String, Refusal> {
        let lock = self.tree.lock();
        let _lock = lock.map_err(|errno| self.refuse(errno))?.ok_or(Refusal::Locked)?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let vanished = self.vanished.remove(name);
        let mut group =
            Group { run, control, counters: BTreeMap::new(), fresh: false, uncounted: self.by_assignment() };
        match self.tree.make(&path) {
            Ok(()) => {
                group.fresh = true;
                self.begin(&path, &mut group);
            }
            // Another program moved it there, with what it counted (Documentation/filesystems/resctrl.rst, "Moving MON group
            // directories").
            Err(Errno::EXIST) => {
                group.counters = vanished.map(|vanished| vanished.counters).unwrap_or_default();
            }
            Err(errno) => return Err(self.refuse(errno)),
        }
        self.groups.insert(path.clone(), group);
        Ok(path)
    }

    /// Reads what is in a group before any task is: telemetry does not begin at 0.
    fn begin(&mut self, path: &str, group: &mut Group) {
        for (quantity, place) in self.all_places() {
            if !quantity.begins_at_zero()
                && let Ok(value) = self.value(path, quantity, place)
            {
                let mut counter = Counter::default();
                counter.advance(value, Range::Full);
                group.counters.insert((quantity, place), counter);
            }
        }
    }

    pub(super) fn by_assignment(&self) -> bool {
        self.about.as_ref().is_some_and(|about| about.mode == BY_ASSIGNMENT)
    }

    /// Assigns counters to our groups that have none, where some are free. No counter is taken from another group.
    pub(super) fn assign_counters(&mut self) {
        if !self.by_assignment() {
            return;
        }
        let mut failed = Vec::new();
        for (path, group) in self.groups.iter_mut().filter(|(_, group)| group.uncounted) {
            match self.tree.assign(path) {
                Ok(()) => group.uncounted = false,
                // The group is gone: the next look finds that.
                Err(Errno::NOENT | Errno::NODEV) => {}
                Err(errno) => failed.push(errno),
            }
        }
        for errno in failed {
            let refusal = if errno == Errno::NOSPC { Refusal::NoCounter } else { self.refuse(errno) };
            self.note(refusal);
        }
    }

    /// The control group of a thread; `None` when it is gone.
    fn control_of(&mut self, thread: u32) -> Result<Option<String>, Refusal> {
        let bytes = match self.files.read(&format!("proc/{thread}/cpu_resctrl_groups")) {
            Ok(bytes) => bytes,
            Err(ReadError::Gone) => {
                let gone = self.files.stat_of(&format!("proc/{thread}")).is_err();
                // The file is there since Linux 5.6.
                return if gone { Ok(None) } else { self.search(thread) };
            }
            Err(_) => return Err(Refusal::Failed),
        };
        match parse_task_groups(bytes) {
            // It ended while it was read.
            _ if bytes.is_empty() => Ok(None),
            Ok(Some(groups)) if groups.monitor.is_empty() || groups.monitor.starts_with(PREFIX) => {
                Ok(Some(groups.control.to_owned()))
            }
            Ok(Some(_)) => Err(Refusal::Foreign),
            Ok(None) | Err(_) => Err(Refusal::Failed),
        }
    }

    /// The same from the groups' own lists; the root's, which is long, is not needed for that.
    fn search(&self, thread: u32) -> Result<Option<String>, Refusal> {
        let holds = |group: &str| {
            let tasks = self.tree.read(&below(group, "tasks")).unwrap_or_default();
            let mut found = false;
            let _ = parse_pids(&tasks, |task| found |= task == thread);
            found
        };
        let controls = self.controls().map_err(|_| Refusal::Failed)?;
        for control in &controls {
            let groups = below(control, "mon_groups");
            for name in self.tree.directories(&groups).unwrap_or_default() {
                if !name.starts_with(PREFIX) && holds(&format!("{groups}/{name}")) {
                    return Err(Refusal::Foreign);
                }
            }
        }
        let control = controls.into_iter().skip(1).find(|control| holds(control));
        Ok(Some(control.unwrap_or_default()))
    }
}
