//! What runs, what waits and what is fresh: the rules of collections, without threads, clocks or samples.
//!
//! One collection at a time. It begins when a request finds no snapshot that is fresh enough, gets the jobs, runs each
//! collector that is not stuck once, and closes when all of them are done or its time is over. A collector that runs
//! longer keeps its thread, is late in this collection, and is left out of the next ones until it comes back.
//! Nothing here depends on a client but the moment of its request.
//!
//! The caller reports what happens with the present time, and does what is answered. Times must not go back.

use std::time::{Duration, Instant};

/// Number of a collection; the first is 1.
pub(super) type Number = u64;

/// Times that hold for every collection. No client can change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How old a collection may be when a request comes that is answered with it, counted from its beginning.
    pub min_interval: Duration,
    /// How long a collection lasts at most.
    pub longest: Duration,
    /// How long a collector runs before another thread goes on with the others.
    pub patience: Duration,
}

/// What a thread is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Get the jobs, until this time.
    Jobs(Number, Instant),
    /// Run the collector in this place.
    Collect(Number, usize),
}

/// What a request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The latest snapshot.
    Latest,
    /// The collection with this number, or a later one.
    Collection(Number),
}

/// A collection that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed {
    /// Its number.
    pub(super) number: Number,
    /// Whether it has the jobs; without them there is no snapshot.
    pub(super) has_jobs: bool,
}

/// The collection under way.
#[derive(Debug)]
struct Collection {
    number: Number,
    began: Instant,
    /// `None` before they were asked for, then whether they came.
    jobs: Option<bool>,
    begun: Vec<bool>,
    done: Vec<bool>,
    failed: bool,
}

/// The rules and their state.
#[derive(Debug)]
pub(super) struct Schedule {
    limits: Limits,
    /// For each collector the collection that it runs for; `None` while it waits in its place.
    places: Vec<Option<Number>>,
    collection: Option<Collection>,
    /// Number and beginning of the collection of the latest snapshot.
    latest: Option<(Number, Instant)>,
    numbers: Number,
    /// Whether a request waits for the collection after this one.
    wanted: bool,
    /// The thread in charge; 0 for none.
    thread: u64,
    /// What it runs, and since when.
    at_work: Option<(Number, Instant)>,
}

impl Schedule {
    pub(super) fn new(collectors: usize, limits: Limits) -> Self {
        Self {
            limits,
            places: vec![None; collectors],
            collection: None,
            latest: None,
            numbers: 0,
            wanted: false,
            thread: 0,
            at_work: None,
        }
    }

    fn is_fresh(&self, began: Instant, now: Instant) -> bool {
        now.saturating_duration_since(began) <= self.limits.min_interval
    }

    fn begin(&mut self, now: Instant) -> Number {
        self.numbers += 1;
        self.wanted = false;
        let none = || vec![false; self.places.len()];
        self.collection = Some(Collection {
            number: self.numbers,
            began: now,
            jobs: None,
            begun: none(),
            done: none(),
            failed: false,
        });
        self.numbers
    }

    /// A request came. May begin a collection. Call [`Schedule::close`] before.
    pub(super) fn request(&mut self, now: Instant) -> Need {
        if self.latest.is_some_and(|(_, began)| self.is_fresh(began, now)) {
            return Need::Latest;
        }
        Need::Collection(match &self.collection {
            Some(running) if self.is_fresh(running.began, now) => running.number,
            Some(running) => {
                self.wanted = true;
                running.number + 1
            }
            None => self.begin(now),
        })
    }

    /// Closes the collection if it is complete or its time is over, and begins the next one if a request waits for it.
    pub(super) fn close(&mut self, now: Instant) -> Option<Closed> {
        let running = self.collection.as_ref()?;
        let of_before =
            |at: usize| self.places.get(at).copied().flatten().is_some_and(|n| n != running.number);
        let complete = running.jobs == Some(true)
            && running.done.iter().enumerate().all(|(at, done)| *done || of_before(at));
        if !(complete || running.failed || now >= running.began + self.limits.longest) {
            return None;
        }
        let closed = Closed { number: running.number, has_jobs: running.jobs == Some(true) };
        if closed.has_jobs {
            self.latest = Some((closed.number, running.began));
        }
        self.collection = None;
        if self.wanted {
            self.begin(now);
        }
        Some(closed)
    }

    /// What this thread does next; nothing if it is not in charge. Call [`Schedule::close`] before.
    pub(super) fn next(&mut self, thread: u64, now: Instant) -> Option<Work> {
        let running = self.collection.as_mut().filter(|_| thread == self.thread)?;
        let work = match running.jobs {
            None => {
                running.jobs = Some(false);
                Work::Jobs(running.number, running.began + self.limits.longest)
            }
            Some(false) => return None,
            Some(true) => {
                let waits = |at: &usize| running.begun.get(*at) == Some(&false);
                let mut free = (0..self.places.len()).filter(|at| self.places.get(*at) == Some(&None));
                let at = free.find(waits)?;
                *running.begun.get_mut(at)? = true;
                *self.places.get_mut(at)? = Some(running.number);
                Work::Collect(running.number, at)
            }
        };
        self.at_work = Some((running.number, now));
        Some(work)
    }

    /// A thread has done this; `found` is false if the jobs did not come. Whether it is in time for its collection.
    /// Call [`Schedule::close`] before.
    pub(super) fn done(&mut self, thread: u64, work: Work, found: bool) -> bool {
        if thread == self.thread {
            self.at_work = None;
        }
        let (Work::Jobs(number, _) | Work::Collect(number, _)) = work;
        if let Work::Collect(_, at) = work
            && let Some(place) = self.places.get_mut(at)
        {
            *place = None;
        }
        let Some(running) = self.collection.as_mut().filter(|running| running.number == number) else {
            return false;
        };
        match work {
            Work::Jobs(..) => (running.jobs, running.failed) = (Some(found), !found),
            Work::Collect(_, at) => running.done.iter_mut().skip(at).take(1).for_each(|done| *done = true),
        }
        true
    }

    /// Whether another thread must take over: the one in charge is with a collector that is late or takes long, and
    /// others wait behind it.
    pub(super) fn needs_thread(&self, now: Instant) -> bool {
        let Some(running) = &self.collection else { return false };
        let Some((number, since)) = self.at_work.filter(|_| self.thread != 0) else {
            return self.thread == 0;
        };
        if number != running.number {
            return true;
        }
        let mut behind = running.begun.iter().zip(&self.places);
        running.jobs == Some(true)
            && now.saturating_duration_since(since) >= self.limits.patience
            && behind.any(|(begun, place)| !begun && place.is_none())
    }

    /// Another thread is in charge.
    pub(super) fn in_charge(&mut self, thread: u64) {
        (self.thread, self.at_work) = (thread, None);
    }

    /// When to call [`Schedule::close`] and [`Schedule::needs_thread`] again if nothing happens before.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let end = self.collection.as_ref()?.began + self.limits.longest;
        let since = self.at_work.map_or(now, |(_, since)| since);
        let patience = since + self.limits.patience;
        // Once it is over, nothing waits behind the collector, or a thread could not be started.
        Some(end.min(if patience > now { patience } else { now + self.limits.patience }))
    }

    /// When the latest snapshot answers no further request; `None` if there is none, or while a collection runs.
    pub(super) fn stale_at(&self) -> Option<Instant> {
        let just_after = self.limits.min_interval + Duration::from_nanos(1);
        self.latest.filter(|_| self.collection.is_none()).map(|(_, began)| began + just_after)
    }

    /// Forgets the latest snapshot if it answers no further request. Whether that is so.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let over = self.stale_at().is_some_and(|at| at <= now);
        self.latest.take_if(|_| over).is_some()
    }

    /// Whether no collection runs.
    pub(super) fn is_idle(&self) -> bool {
        self.collection.is_none()
    }

    /// Collectors that still run for a collection that is over.
    pub(super) fn stuck(&self) -> usize {
        let running = self.collection.as_ref().map(|running| running.number);
        self.places.iter().flatten().filter(|number| Some(**number) != running).count()
    }
}
