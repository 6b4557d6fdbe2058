//! What a request is answered with, and when. Without threads, clocks and samples, as [`Schedule`], so that tests can run it
//! on a clock of their own: `J` are the jobs, `P` is the part of one collector, `S` a snapshot and `W` a request that waits.

use std::time::Instant;

use super::schedule::{Limits, Need, Number, Schedule, Work};

/// What the collection under way has so far.
#[derive(Debug, Clone)]
pub(super) struct Gathered<J, P> {
    /// The jobs, once they are known.
    pub(super) jobs: Option<J>,
    /// By the places of the collectors.
    pub(super) parts: Vec<(usize, P)>,
}

impl<J, P> Default for Gathered<J, P> {
    fn default() -> Self {
        Self { jobs: None, parts: Vec::new() }
    }
}

/// What there is for a request that can wait no longer.
#[derive(Debug)]
pub(super) enum AtDeadline<J, P, S> {
    /// A snapshot that was made while it waited, if not a fresh one.
    Snapshot(S),
    /// What is complete of the collection under way.
    Parts(J, Vec<(usize, P)>),
    /// Not even the jobs.
    Nothing,
}

/// Requests that are answered when a collection is over: with its snapshot, or with nothing if it has no jobs.
#[derive(Debug)]
pub(super) struct Answered<S, W> {
    pub(super) snapshot: Option<S>,
    pub(super) requests: Vec<W>,
}

/// Requests and collections.
#[derive(Debug)]
pub(super) struct Desk<J, P, S, W> {
    schedule: Schedule,
    gathered: Gathered<J, P>,
    /// Kept while a request may still be answered with it, and when it was made.
    latest: Option<(S, Instant)>,
    waiting: Vec<(Number, W)>,
}

impl<J: Clone, P: Clone, S: Clone, W> Desk<J, P, S, W> {
    pub(super) fn new(collectors: usize, limits: Limits) -> Self {
        let schedule = Schedule::new(collectors, limits);
        Self { schedule, gathered: Gathered::default(), latest: None, waiting: Vec::new() }
    }

    /// A request came. It gets the latest snapshot, or waits as `wait` says. Call [`Desk::close`] before.
    pub(super) fn request<R>(&mut self, now: Instant, wait: impl FnOnce() -> (W, R)) -> Result<S, R> {
        let was_idle = self.schedule.is_idle();
        let number = match (self.schedule.request(now), &self.latest) {
            (Need::Latest, Some((latest, _))) => return Ok(latest.clone()),
            // A request that finds nothing waits for its deadline.
            (Need::Latest, None) => Number::MAX,
            (Need::Collection(number), _) => number,
        };
        if was_idle {
            // No request can be answered with it any more, and the collectors need its buffers.
            self.latest = None;
        }
        let (waiting, answer) = wait();
        self.waiting.push((number, waiting));
        Err(answer)
    }

    /// Forgets requests that wait no longer.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&W) -> bool) {
        self.waiting.retain(|(_, waiting)| !is_gone(waiting));
    }

    /// Ends the collection under way if it is time, and begins the next one if a request waits for it. `finish` makes a
    /// snapshot of the jobs and parts; its last argument is how many collectors still run.
    pub(super) fn close(
        &mut self,
        now: Instant,
        finish: impl FnOnce(J, Vec<(usize, P)>, usize) -> S,
    ) -> Option<Answered<S, W>> {
        let closed = self.schedule.close(now)?;
        let Gathered { jobs, parts } = std::mem::take(&mut self.gathered);
        let jobs = jobs.filter(|_| closed.has_jobs);
        let snapshot = jobs.map(|jobs| finish(jobs, sorted(parts), self.schedule.stuck()));
        if let Some(snapshot) = &snapshot {
            self.latest = Some((snapshot.clone(), now));
        }
        let all = std::mem::take(&mut self.waiting).into_iter();
        let (answered, waiting): (Vec<_>, Vec<_>) = all.partition(|(number, _)| *number <= closed.number);
        self.waiting = waiting;
        Some(Answered { snapshot, requests: answered.into_iter().map(|(_, request)| request).collect() })
    }

    /// What there is for a request that came then and can wait no longer. Nobody else is influenced by that.
    pub(super) fn at_the_deadline(&self, arrived: Instant) -> AtDeadline<J, P, S> {
        if let Some((latest, _)) = self.latest.as_ref().filter(|(_, made)| *made >= arrived) {
            return AtDeadline::Snapshot(latest.clone());
        }
        match &self.gathered.jobs {
            Some(jobs) => AtDeadline::Parts(jobs.clone(), sorted(self.gathered.parts.clone())),
            None => AtDeadline::Nothing,
        }
    }

    /// What this thread does next, and the jobs for it. Call [`Desk::close`] before.
    pub(super) fn next(&mut self, thread: u64, now: Instant) -> Option<(Work, Option<J>)> {
        Some((self.schedule.next(thread, now)?, self.gathered.jobs.clone()))
    }

    /// The jobs came, or did not. Call [`Desk::close`] before.
    pub(super) fn got_jobs(&mut self, thread: u64, work: Work, jobs: Option<J>) {
        if self.schedule.done(thread, work, jobs.is_some()) {
            self.gathered.jobs = jobs;
        }
    }

    /// Whether the collection is complete as soon as this is done.
    pub(super) fn is_last(&self, work: Work) -> bool {
        self.schedule.is_last(work)
    }

    /// What the collection under way has so far.
    pub(super) fn parts(&self) -> Vec<(usize, P)> {
        self.gathered.parts.clone()
    }

    /// A collector is done. Gives its part back if it is late. Call [`Desk::close`] before.
    pub(super) fn done(&mut self, thread: u64, work: Work, part: P) -> Result<(), P> {
        match work {
            Work::Collect(_, at) if self.schedule.done(thread, work, true) => {
                self.gathered.parts.push((at, part));
                Ok(())
            }
            _ => Err(part),
        }
    }

    /// Forgets the latest snapshot if it answers no further request. Returns when to call it again.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        if self.schedule.expire(now) {
            self.latest = None;
        }
        self.schedule.stale_at()
    }

    /// Whether a thread must be started, in the place of one that is stuck if there is any.
    pub(super) fn needs_thread(&self, now: Instant) -> bool {
        self.schedule.needs_thread(now)
    }

    /// Another thread is in charge.
    pub(super) fn in_charge(&mut self, thread: u64) {
        self.schedule.in_charge(thread);
    }

    /// When to call [`Desk::close`] and [`Desk::needs_thread`] again if nothing happens before.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.schedule.due(now)
    }

    /// Whether no collection runs.
    pub(super) fn is_idle(&self) -> bool {
        self.schedule.is_idle()
    }

    /// Collectors that still run for a collection that is over.
    pub(super) fn stuck(&self) -> usize {
        self.schedule.stuck()
    }

    /// How many requests wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

fn sorted<P>(mut parts: Vec<(usize, P)>) -> Vec<(usize, P)> {
    parts.sort_by_key(|(at, _)| *at);
    parts
}

#[cfg(test)]
mod tests;
