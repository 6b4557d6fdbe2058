//! What becomes of a job run: whose it is, its end, what SLURM left behind, and when it is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Table;
use super::show::labels;
use crate::life::Tracked;
use crate::{Disposition, Job, LifeId, Vanished, unix_now};

/// Running jobs that are looked at when one ends; with more of them that would be dear at each end.
const MOST_OTHERS: usize = 128;
/// Rounds in which ended lives show more that ended; cgroups need two.
const MOST_ROUNDS: usize = 8;
/// How often a job is asked whether it has a process at all.
const EMPTY_PAUSE: Duration = Duration::from_secs(60);

impl Table {
    /// Finds out what is not known yet of a life's identity.
    pub(super) fn find_out(&mut self, life: LifeId, last_chance: bool) {
        let Some(tracked) = self.lives.get_mut(&life) else { return };
        let found = self.identities.find(&tracked.job, last_chance, &mut self.buffer);
        let job = Arc::make_mut(&mut tracked.job);
        job.id = job.id.or(found.id);
        job.uid = job.uid.or(found.uid);
        if let Some(metadata) = found.metadata {
            job.sluid = job.sluid.or(metadata.sluid);
            job.metadata = Arc::new(metadata);
        }
        if !tracked.fresh
            && let Some(started) = found.started
        {
            job.started = started;
            tracked.fresh = true;
        }
        if let Some(uid) = job.uid {
            // Asks now, so that the name is there when a scrape wants it.
            self.users.name(uid);
        }
        job.labels = labels(job, &self.options.job_labels, &self.users, self.several);
        if !tracked.unknown() {
            self.attempts.clear(life);
        }
    }

    /// Attempts that are due.
    pub fn attend(&mut self) {
        let now = Instant::now();
        for life in self.attempts.take_due(now) {
            self.find_out(life, false);
            if let Some(tracked) = self.lives.get_mut(&life).filter(|t| t.unknown()) {
                tracked.schedule(now, &mut self.attempts);
            }
        }
        for life in self.looks.take_due(now) {
            self.look_whether_over(life);
        }
        self.end_gone();
    }

    /// A job's directory was removed: its life is ended when all that happened until now is taken in.
    pub(super) fn removed(&mut self, scope: u64, dir: String) {
        let key = (scope, dir);
        let Some(life) = self.by_dir.get(&key).copied() else { return };
        if self.lives.get(&life).is_some_and(|tracked| tracked.job.cgroup.is_gone()) {
            self.by_dir.remove(&key);
            self.gone.push(life);
        } else {
            self.look_whether_over(life);
        }
    }

    /// v1: SLURM removes the hierarchies' directories one by one, and when several steps end at once it may leave some.
    /// Without a process the job is over; what is left is stale unless it goes, too.
    fn look_whether_over(&mut self, life: LifeId) {
        let Some(tracked) = self.lives.get_mut(&life).filter(|tracked| tracked.ended.is_none()) else {
            return;
        };
        if tracked.is_over(Instant::now(), &mut self.looks, &mut self.buffer) {
            tracked.looks = None;
            self.looks.clear(life);
            self.gone.push(life);
        }
    }

    /// Ends the lives that are gone. What they spent last is told from what others spend only if all others are
    /// known: they are listed once more, after the sum over all was read. That may find more that are gone; what is found so again
    /// and again is no cgroup, and waits for the next call.
    pub(super) fn end_gone(&mut self) {
        for _ in 0..MOST_ROUNDS {
            if self.gone.is_empty() {
                return;
            }
            let gone = std::mem::take(&mut self.gone);
            self.before_walk();
            for scope in self.scopes.clone() {
                self.adopt_unknown(&scope, true);
            }
            // What was left behind may be in use again before a walk finds it, and is in there too.
            let others = (self.by_dir.len() <= MOST_OTHERS).then(|| -> Vec<Arc<Job>> {
                self.by_dir.values().filter_map(|life| self.lives.get(life)).map(|t| t.job.clone()).collect()
            });
            let (alone, last) = (gone.len() == 1, gone.last().copied());
            for life in gone {
                // When many end at once, the others are asked once, after the last of them.
                self.end(life, alone, others.as_deref().filter(|_| last == Some(life)));
            }
        }
    }

    /// Tells the sources that the job directories are about to be listed.
    pub(super) fn before_walk(&mut self) {
        for hook in &self.hooks {
            hook.before_walk(&self.scopes, &mut self.buffer);
        }
    }

    /// A life's directory is gone.
    fn end(&mut self, life: LifeId, alone: bool, others: Option<&[Arc<Job>]>) {
        self.find_out_at_the_end(life);
        let Some(tracked) = self.lives.get_mut(&life) else { return };
        let key = (tracked.scope, tracked.dir.clone());
        let left = tracked.ended.is_none() && !tracked.job.cgroup.is_gone();
        if self.by_dir.get(&key) == Some(&life) && !left {
            self.by_dir.remove(&key);
        }
        tracked.unwatch(&mut self.watches);
        self.attempts.clear(life);
        self.looks.clear(life);
        tracked.looks = None;
        if let Some(at) = tracked.ended {
            // Left behind, and now removed after all.
            tracked.stale = false;
            let job = Arc::make_mut(&mut tracked.job);
            job.cgroup = Arc::new(job.cgroup.closed());
            self.retain(at, life);
            return;
        }
        let now = Instant::now();
        tracked.ended = Some(now);
        let job = Arc::make_mut(&mut tracked.job);
        job.ended = Some(unix_now());
        if left {
            tracked.stale = true;
            tracked.empty_since = Some(now);
        } else {
            job.cgroup = Arc::new(job.cgroup.closed());
        }
        let unresolved = job.id.is_none();
        tracing::debug!(path = tracked.path, life = life.0, alone, unresolved, "a job ended");
        let job = tracked.job.clone();
        let gone = Vanished { job: &job, others, scopes: &self.scopes, alone };
        for hook in &self.hooks {
            hook.vanished(&gone, &mut self.buffer);
            hook.left(life);
        }
        if unresolved {
            self.stats.lost_total += 1;
            self.forget(life, Disposition::Unidentified);
        } else if !left {
            self.retain(now, life);
        }
    }

    /// Retains an ended job run. The oldest ones are dropped here and not in a scrape, since there may be none for days.
    fn retain(&mut self, ended: Instant, life: LifeId) {
        self.retained.insert((ended, life));
        while self.retained.len() > self.options.most_retained {
            let Some((_, oldest)) = self.retained.pop_first() else { return };
            let exported = self.lives.get(&oldest).is_some_and(|tracked| tracked.end_exported);
            self.forget(oldest, if exported { Disposition::Exported } else { Disposition::Dropped });
        }
    }

    pub(super) fn find_out_at_the_end(&mut self, life: LifeId) {
        if self.lives.get(&life).is_some_and(|t| t.unknown() && t.ended.is_none()) {
            self.find_out(life, true);
        }
    }

    /// Forgets a job run, and has every collector forget it.
    pub(super) fn forget(&mut self, life: LifeId, disposition: Disposition) {
        if let Some(mut tracked) = self.lives.remove(&life) {
            let known = tracked.lived || disposition == Disposition::Superseded;
            let disposition = if known { disposition } else { Disposition::Foreign };
            self.stats.dropped_total += u64::from(disposition == Disposition::Dropped);
            tracked.unwatch(&mut self.watches);
            self.attempts.clear(life);
            self.looks.clear(life);
            if let Some(ended) = tracked.ended {
                self.retained.remove(&(ended, life));
            }
            let key = (tracked.scope, std::mem::take(&mut tracked.dir));
            if self.by_dir.get(&key) == Some(&life) {
                self.by_dir.remove(&key);
            }
            for hook in &self.hooks {
                hook.forget(life, disposition);
            }
        }
    }

    pub(super) fn look_for_stale(&mut self) {
        let now = Instant::now();
        let (mut revived, mut appeared, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for tracked in self.lives.values_mut().filter(|t| t.ended.is_none() || t.stale) {
            let rested = tracked.asked_empty.is_none_or(|at| now.duration_since(at) >= EMPTY_PAUSE);
            if !rested && tracked.empty_since.is_none() {
                continue;
            }
            tracked.asked_empty = Some(now);
            match tracked.has_processes(&mut self.buffer) {
                Some(false) => {
                    let since = *tracked.empty_since.get_or_insert(now);
                    if !tracked.stale && now.duration_since(since) >= self.options.stale_after {
                        tracked.stale = true;
                        tracked.ended = Some(now);
                        Arc::make_mut(&mut tracked.job).ended = Some(unix_now());
                        left.push(tracked.life());
                    }
                }
                Some(true) if tracked.stale => {
                    revived.push((tracked.scope, tracked.dir.clone(), tracked.life()))
                }
                Some(true) => {
                    if !tracked.lived {
                        appeared.push(tracked.job.clone());
                    }
                    tracked.lived = true;
                    tracked.empty_since = None;
                }
                None => tracked.empty_since = None,
            }
        }
        for hook in &self.hooks {
            appeared.iter().for_each(|job| hook.appeared(job));
            left.iter().for_each(|life| hook.left(*life));
        }
        // SLURM uses the directory it left behind again: that is another life. Its counters go on where they were, so
        // what the old one spent is in its readings.
        for (scope, dir, life) in revived {
            if let Some(tracked) = self.lives.get(&life) {
                let of = (tracked.job.inode, tracked.job.first_life);
                self.used_again.insert((scope, dir.clone()), of);
            }
            self.forget(life, Disposition::Superseded);
            if let Some(scope) = self.scope(scope) {
                self.adopt(&scope, dir, true);
            }
        }
    }

    /// Drops the ended job runs that were exported long enough.
    pub(super) fn purge(&mut self) {
        let retention = self.options.retention;
        let enough = |tracked: &Tracked| tracked.retained_enough(retention) || !tracked.lived;
        let over = |life: &LifeId| self.lives.get(life).is_some_and(enough);
        let over: Vec<LifeId> = self.retained.iter().map(|(_, life)| *life).filter(over).collect();
        for life in over {
            self.forget(life, Disposition::Exported);
        }
    }
}
