//! The course of a job run: its identity, its end, what SLURM leaves behind, and when it is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::Version;

use super::Table;
use super::show::labels;
use crate::job_run::{JobRun, RunState};
use crate::metadata::Ending;
use crate::{Disposition, Job, JobRunId, RemovedCgroup};

/// Most running jobs that are read when one ends; reading more would be expensive at each end.
const MOST_OTHERS: usize = 128;
/// Most rounds in which the end of runs reveals further ended runs; cgroups need two.
const MOST_ROUNDS: usize = 8;
/// Time between checks whether a job has a process at all.
const EMPTY_PAUSE: Duration = Duration::from_secs(60);

impl Table {
    /// Looks for what is not known yet of a run's identity.
    pub(super) fn find_out(&mut self, run: JobRunId, last_chance: bool) {
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        let found = self.identities.find(&tracked.job, last_chance, !tracked.fresh, &mut self.buffer);
        let job = Arc::make_mut(&mut tracked.job);
        job.id = job.id.or(found.id);
        job.uid = job.uid.or(found.uid);
        if let Some(mut metadata) = found.metadata {
            let same = metadata.run() == job.metadata.run();
            // Of an ended run the file may be that of the next one already.
            if same || job.is_running() || job.metadata.job_id.is_none() {
                metadata.ending = if same { job.metadata.ending } else { Ending::default() };
                job.sluid = job.sluid.or(metadata.sluid);
                job.metadata = Arc::new(metadata);
            }
        }
        if !tracked.fresh
            && let Some(started) = found.started
        {
            job.started = started;
            tracked.fresh = true;
        }
        if job.run == job.first_run {
            for (ordinal, start) in found.steps {
                job.steps
                    .iter_mut()
                    .filter(|step| step.ordinal == ordinal)
                    .for_each(|step| step.began_by(start.unix));
            }
        }
        if let Some(uid) = job.uid {
            // Now, so that a scrape has the name.
            self.users.name(uid);
        }
        job.labels = labels(job, &self.options.job_labels, &self.users, self.several);
        if !tracked.unknown() {
            self.attempts.clear(run);
        }
    }

    /// Attempts that are due.
    pub fn run_due(&mut self) {
        let now = Instant::now();
        for run in self.attempts.take_due(now) {
            self.find_out(run, false);
            if let Some(tracked) = self.runs.get_mut(&run).filter(|t| t.unknown()) {
                tracked.schedule(now, &mut self.attempts);
            }
        }
        for run in self.looks.take_due(now) {
            self.look_whether_over(run);
        }
        self.end_gone();
    }

    /// A job's directory was removed: its run ends when all events up to now are taken in.
    pub(super) fn removed(&mut self, scope: u64, dir: String) {
        let key = (scope, dir);
        // All events of its making were before. What is made from now on is another run.
        for dirs in &mut self.gone_dirs {
            dirs.remove(&key);
        }
        let Some(run) = self.by_dir.get(&key).copied() else { return };
        if self.runs.get(&run).is_some_and(|tracked| tracked.job.cgroup.is_gone()) {
            self.by_dir.remove(&key);
            self.gone.push(run);
        } else {
            self.look_whether_over(run);
        }
    }

    /// A directory is found to be gone before its removal is reported. Events of its making may still come: the next call of
    /// `process_events` reads the last of them.
    pub(super) fn is_gone(&mut self, key: (u64, String), run: JobRunId) {
        self.dir_is_gone(key);
        self.gone.push(run);
    }

    fn dir_is_gone(&mut self, key: (u64, String)) {
        self.by_dir.remove(&key);
        let [_, latest] = &mut self.gone_dirs;
        latest.insert(key);
    }

    /// v1: SLURM removes the hierarchies' directories one by one, and may leave some when several steps end at once.
    /// Without a process the job is over. Remaining directories are stale until they are removed, too.
    fn look_whether_over(&mut self, run: JobRunId) {
        let Some(tracked) = self.runs.get_mut(&run).filter(|tracked| !tracked.has_ended()) else {
            return;
        };
        if tracked.is_over(Instant::now(), &mut self.looks, &mut self.buffer) {
            tracked.looks = None;
            self.looks.clear(run);
            self.gone.push(run);
        }
    }

    /// Ends the runs that are gone. A run's last CPU time can be separated from others' only if all runs are known. So events are
    /// taken in after the sum over all was read, and the directories are listed again. If that finds further ended runs, it
    /// is repeated; a directory that is found so again and again is no cgroup, and waits for the next call.
    pub(super) fn end_gone(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if self.gone.is_empty() {
                return;
            }
            let gone = std::mem::take(&mut self.gone);
            for hook in &self.hooks {
                hook.before_end(&self.scopes, &mut self.buffer);
            }
            // One that came and went is in no list.
            self.take_in_events();
            for scope in self.scopes.clone() {
                self.adopt_counted(&scope);
            }
            // Includes directories left behind: one may be in use again before a walk finds it.
            let others = (self.by_dir.len() <= MOST_OTHERS).then(|| -> Vec<Arc<Job>> {
                self.by_dir.values().filter_map(|run| self.runs.get(run)).map(|t| t.job.clone()).collect()
            });
            let alone = gone.len() == 1 && self.gone.is_empty() && self.saw_all();
            let last = gone.last().copied();
            for run in gone {
                // When many end at once, the others are read once, after the last of them.
                self.end(run, alone, others.as_deref().filter(|_| last == Some(run)));
            }
            self.missed_events = false;
        }
    }

    /// Whether the kernel reported every job since runs ended last.
    fn saw_all(&self) -> bool {
        !self.missed_events && self.watches.refused().is_none() && self.watches.failures() == 0
    }

    /// Notifies the observers that the job directories are about to be listed for a scrape.
    pub(super) fn before_walk(&mut self) {
        for hook in &self.hooks {
            hook.before_walk(&self.scopes, &mut self.buffer);
        }
    }

    /// A run's directory is gone.
    pub(super) fn end(&mut self, run: JobRunId, alone: bool, others: Option<&[Arc<Job>]>) {
        self.find_out_at_the_end(run);
        self.read_ending(run);
        let Some(tracked) = self.runs.get(&run) else { return };
        let key = (tracked.scope, tracked.dir.clone());
        let left = !tracked.has_ended() && !tracked.job.cgroup.is_gone();
        if self.by_dir.get(&key) == Some(&run) && !left {
            self.dir_is_gone(key);
        }
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        // On v1 the other hierarchies' directories may still be there.
        if left || tracked.job.cgroup.version() == Version::V1 {
            tracked.unwatch(&mut self.watches);
        } else {
            tracked.forget_watches(&mut self.watches);
        }
        self.attempts.clear(run);
        self.looks.clear(run);
        tracked.looks = None;
        if let Some(end) = tracked.end().copied() {
            // Left behind, and now removed after all.
            tracked.state = RunState::Ended(end);
            self.retain(end.at, run);
            return;
        }
        let now = Instant::now();
        tracked.set_ended(now, left);
        let at = tracked.end().map_or(now, |end| end.at);
        let job = Arc::make_mut(&mut tracked.job);
        if left {
            tracked.empty_since = Some(now);
        } else {
            job.cgroup = Arc::new(job.cgroup.closed());
        }
        let unresolved = job.id.is_none();
        tracing::debug!(path = tracked.path, run = run.0, alone, unresolved, "a job ended");
        let job = tracked.job.clone();
        let gone = RemovedCgroup { job: &job, others, scopes: &self.scopes, alone };
        for hook in &self.hooks {
            hook.cgroup_removed(&gone, &mut self.buffer);
            hook.job_left_node(run);
        }
        if unresolved {
            self.stats.lost_total += 1;
            self.forget(run, Disposition::Unidentified);
        } else if !left {
            self.retain(at, run);
        }
    }

    /// Retains an ended job run. The oldest ones are dropped here and not in a scrape, since there may be none for days.
    pub(super) fn retain(&mut self, ended: Instant, run: JobRunId) {
        if let Some(tracked) = self.runs.get_mut(&run) {
            tracked.slim(self.options.levels);
        }
        self.retained.insert((ended, run));
        while self.retained.len() > self.options.most_retained {
            let Some((_, oldest)) = self.retained.pop_first() else { return };
            self.give_up(oldest);
        }
    }

    /// Forgets an ended job run. It counts as dropped if its readers do not have its end.
    fn give_up(&mut self, run: JobRunId) {
        let delivered =
            self.runs.get(&run).and_then(|tracked| tracked.end()).is_some_and(|end| self.is_delivered(end));
        self.forget(run, if delivered { Disposition::Exported } else { Disposition::Dropped });
    }

    pub(super) fn find_out_at_the_end(&mut self, run: JobRunId) {
        if self.runs.get(&run).is_some_and(|t| t.unknown() && !t.has_ended()) {
            self.find_out(run, true);
        }
    }

    /// Forgets a job run, and has every collector forget it.
    pub(super) fn forget(&mut self, run: JobRunId, disposition: Disposition) {
        if let Some(mut tracked) = self.runs.remove(&run) {
            let known = tracked.has_run() || disposition == Disposition::Superseded;
            let disposition = if known { disposition } else { Disposition::Foreign };
            self.stats.dropped_total += u64::from(disposition == Disposition::Dropped);
            tracked.unwatch(&mut self.watches);
            self.attempts.clear(run);
            self.looks.clear(run);
            if let Some(end) = tracked.end() {
                self.retained.remove(&(end.at, run));
            }
            let key = (tracked.scope, std::mem::take(&mut tracked.dir));
            if self.by_dir.get(&key) == Some(&run) {
                self.by_dir.remove(&key);
            }
            for hook in &self.hooks {
                hook.job_removed(run, disposition);
            }
        }
    }

    pub(super) fn look_for_stale(&mut self) {
        let now = Instant::now();
        let (mut revived, mut appeared, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for tracked in self.runs.values_mut().filter(|t| !matches!(t.state, RunState::Ended(_))) {
            let rested = tracked.asked_empty.is_none_or(|at| now.duration_since(at) >= EMPTY_PAUSE);
            if !rested && tracked.empty_since.is_none() {
                continue;
            }
            tracked.asked_empty = Some(now);
            match tracked.has_processes(&mut self.buffer) {
                Some(false) => {
                    let since = *tracked.empty_since.get_or_insert(now);
                    if !tracked.has_ended() && now.duration_since(since) >= self.options.stale_after {
                        tracked.set_ended(now, true);
                        left.push(tracked.run());
                    }
                }
                Some(true) if tracked.has_ended() => {
                    revived.push((tracked.scope, tracked.dir.clone(), tracked.run()))
                }
                Some(true) => {
                    if !tracked.has_run() {
                        appeared.push(tracked.job.clone());
                    }
                    tracked.state = RunState::Running;
                    tracked.empty_since = None;
                }
                None => tracked.empty_since = None,
            }
        }
        for hook in &self.hooks {
            appeared.iter().for_each(|job| hook.job_started(job));
            left.iter().for_each(|run| hook.job_left_node(*run));
        }
        // SLURM uses the directory it left behind again: that is another run. Its counters go on where they were, so
        // what the old one spent is in its readings.
        for (scope, dir, run) in revived {
            if let Some(tracked) = self.runs.get(&run) {
                let of = (tracked.job.inode, tracked.job.first_run);
                self.used_again.insert((scope, dir.clone()), of);
            }
            self.forget(run, Disposition::Superseded);
            if let Some(scope) = self.scope(scope) {
                self.adopt(&scope, dir, true);
            }
        }
    }

    /// Drops the ended job runs that were retained long enough.
    pub(super) fn purge(&mut self) {
        let now = Instant::now();
        let enough = |tracked: &JobRun| {
            tracked.end().is_some_and(|end| self.is_retained_enough(end, now)) || !tracked.has_run()
        };
        let over = |run: &JobRunId| self.runs.get(run).is_some_and(|tracked| enough(tracked));
        let over: Vec<JobRunId> = self.retained.iter().map(|(_, run)| *run).filter(over).collect();
        for run in over {
            self.give_up(run);
        }
    }
}
