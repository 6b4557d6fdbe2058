//! Collection: one at a time, apart from the requests, with a time limit that holds even when a collector hangs.
//!
//! [`Desk`] has the rules; this file has the threads and the samples. The collecting thread gets a
//! snapshot of the jobs from the thread that follows them, and runs the collectors one by one. A collector that hangs
//! keeps its thread: another one runs the collectors behind it, and serves the next collections, which lack that
//! collector. So at most one thread is stuck in a source, and its collector is back when the kernel answers.
//!
//! Samples are kept in typed form. Each request gets its part of them in its format; the whole is encoded once for all
//! requests that share the collection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use exporter_toolkit::{BoxFuture, Bytes, CollectorStatus, Format, Monitor, Selection};
use exposition::{Created, Section};
use parking_lot::Mutex;
use slurm_jobs::{Follower, Job, NodeSnapshot, Reader};
use tokio::sync::{Notify, oneshot};
use worker_threads::Worker;

use super::ScrapeError;
use super::desk::{AtDeadline, Desk};
use super::health::{Health, Run, WebConfigState};
use super::schedule::{Limits, Work};
use super::snapshot::{Buffers, Snapshot, ended, limit};
use crate::collector::interval_reader::IntervalSource;
use crate::collector::{Built, CollectError, Collector, Entry, Selected, SourceError, Summary};

/// A collector in its place; empty while it runs.
struct Slot {
    entry: &'static Entry,
    /// Whether its samples are by job: an answer without them does not deliver the end of a job.
    per_job: bool,
    collector: Mutex<Option<Box<dyn Collector>>>,
    /// The interval reader reads it for as long as it is held here.
    _source: Option<Arc<dyn IntervalSource>>,
    /// Makes its samples of those of the others.
    summary: Option<Arc<dyn Summary>>,
    /// Recycled sample buffer. Its size fits: consecutive scrapes have about the same number of samples.
    spare: Mutex<Section>,
}

type Answer = Result<Arc<Snapshot>, ScrapeError>;

struct State {
    desk: Desk<Arc<NodeSnapshot>, Arc<Section>, Arc<Snapshot>, oneshot::Sender<Answer>>,
    /// Number of the latest thread.
    threads: u64,
    /// Whether a task watches over the collection under way.
    is_watched: bool,
}

struct Shared {
    slots: Vec<Slot>,
    follower: Follower,
    health: Mutex<Health>,
    /// As a slot's, for the collectors' health.
    spare: Mutex<Section>,
    state: Mutex<State>,
    /// Notified when a collection is over.
    over: Notify,
    worker: Worker,
    max_series: usize,
    /// Which families are exported; all unless it is set.
    selected: OnceLock<Selected>,
    disabled: Vec<&'static Entry>,
    reloads: Mutex<Option<Reloads>>,
    web: Mutex<Option<Monitor>>,
    collected: OnceLock<AfterCollection>,
    /// Whether OpenMetrics has the lines `_created`.
    created: Mutex<Created>,
    capacity: Mutex<usize>,
    this: Weak<Shared>,
}

/// Passes on the state of the web configuration.
pub type Reloads = Box<dyn Fn() -> WebConfigState + Send + Sync>;

/// An answer to a request.
#[derive(Debug, Clone)]
pub struct Page {
    /// The exposition.
    pub body: Bytes,
    /// Whether it has all collectors that the exporter runs, and every collector of jobs was done.
    pub is_whole: bool,
    /// Ended jobs of which it has all samples; none if it is not whole.
    pub ended: Arc<[Arc<Job>]>,
}

/// Called on the collecting thread when a collection is finished, before it is served.
pub(crate) type AfterCollection = Box<dyn Fn() + Send + Sync>;

/// Collects when asked. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

impl Buffers for Shared {
    fn give_back(&self, at: Option<usize>, section: Section) {
        let spare = match at {
            Some(at) => self.slots.get(at).map(|slot| &slot.spare),
            None => Some(&self.spare),
        };
        if let Some(spare) = spare {
            *spare.lock() = section;
        }
    }

    fn name(&self, at: usize) -> Option<&'static str> {
        self.slots.get(at).map(|slot| slot.entry.name)
    }
}

impl Engine {
    /// An engine with these collectors, in the order of the exposition.
    pub fn new(
        collectors: Vec<(&'static Entry, Built)>,
        disabled: Vec<&'static Entry>,
        follower: Follower,
        max_series: usize,
        limits: Limits,
    ) -> Self {
        let slot = |(entry, built): (&'static Entry, Built)| Slot {
            entry,
            per_job: built.observer.is_some(),
            collector: Mutex::new(Some(built.collector)),
            _source: built.source,
            summary: built.summary,
            spare: Mutex::default(),
        };
        let slots: Vec<Slot> = collectors.into_iter().map(slot).collect();
        let state = State { desk: Desk::new(slots.len(), limits), threads: 0, is_watched: false };
        Self(Arc::new_cyclic(|this| Shared {
            slots,
            follower,
            health: Mutex::default(),
            spare: Mutex::default(),
            state: Mutex::new(state),
            over: Notify::new(),
            worker: Worker::new("collect", 1 << 20),
            max_series,
            selected: OnceLock::new(),
            disabled,
            reloads: Mutex::new(None),
            web: Mutex::new(None),
            collected: OnceLock::new(),
            created: Mutex::default(),
            capacity: Mutex::new(0),
            this: this.clone(),
        }))
    }

    /// Has every exposition report how the web configuration was read.
    pub fn report_reloads(&self, reloads: Reloads) {
        *self.0.reloads.lock() = Some(reloads);
    }

    /// Has every exposition report the clients of this web server.
    pub fn report_clients(&self, web: Monitor) {
        *self.0.web.lock() = Some(web);
    }

    /// Has this called after each collection, on the collecting thread and before any request is answered with it. The
    /// first one counts.
    pub fn after_collection(&self, call: AfterCollection) {
        let _ = self.0.collected.set(call);
    }

    /// Has sections keep these families alone. The first call counts, before the first scrape.
    pub fn select(&self, selected: Selected) {
        let _ = self.0.selected.set(selected);
    }

    /// What saves the table of jobs.
    pub fn table_saver(&self) -> slurm_jobs::TableSaver {
        self.0.follower.saver()
    }

    /// Has every exposition in OpenMetrics say since when its counters count, or not.
    pub fn write_created(&self, created: Created) {
        *self.0.created.lock() = created;
    }

    /// Ends the thread that follows the jobs.
    pub fn stop(&self) {
        self.0.follower.stop();
    }

    /// The latest outcome of every enabled collector.
    pub fn outcomes(&self) -> Vec<(&'static Entry, Option<Result<(), CollectError>>)> {
        let health = self.0.health.lock();
        let outcome = |slot: &Slot| (slot.entry, health.last(slot.entry.name).map(|run| run.outcome.clone()));
        self.0.slots.iter().map(outcome).collect()
    }

    /// Every collector of this binary, switched on or off, in the order of the registry.
    pub fn collectors(&self) -> Vec<CollectorStatus> {
        let health = self.0.health.lock();
        let status = |entry: &Entry, enabled: bool| CollectorStatus {
            name: entry.name,
            summary: entry.summary,
            enabled,
            state: health.last(entry.name).map(|run| run.outcome.clone().map_err(|error| error.to_string())),
        };
        let enabled = self.0.slots.iter().map(|slot| status(slot.entry, true));
        enabled.chain(self.0.disabled.iter().map(|entry| status(entry, false))).collect()
    }

    /// Answers with a snapshot that is fresh enough, in `format`. At the deadline it answers with what is complete by
    /// then; collectors that are not are absent.
    pub fn scrape(
        &self,
        selection: Selection,
        format: Format,
        deadline: Instant,
    ) -> BoxFuture<Result<Page, ScrapeError>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let snapshot = shared.snapshot(deadline).await?;
            let body = snapshot.encode(&selection, format, *shared.created.lock(), &shared.capacity)?;
            let is_whole = snapshot.is_whole && selection == Selection::default();
            let ended = if is_whole { snapshot.ended.clone() } else { Arc::default() };
            Ok(Page { body, is_whole, ended })
        })
    }

    /// A reader has a whole page with these ended jobs.
    pub fn delivered(&self, reader: Reader, ended: &[Arc<Job>]) {
        self.0.follower.delivered(reader, ended);
    }

    /// `Err` with a reason while the exporter cannot answer a scrape yet.
    pub fn ready(&self) -> Result<(), String> {
        if self.0.follower.has_looked() {
            Ok(())
        } else {
            Err("the node's jobs are being looked for".to_owned())
        }
    }

    /// How many jobs are running on the node.
    pub fn running_jobs(&self) -> usize {
        self.0.follower.running()
    }
}

/// For requests.
impl Shared {
    async fn snapshot(&self, deadline: Instant) -> Answer {
        let arrived = Instant::now();
        let mut answer = match self.request(arrived) {
            Ok(snapshot) => return Ok(snapshot),
            Err(answer) => answer,
        };
        match tokio::time::timeout_at(deadline.into(), &mut answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ScrapeError::Stopping),
            Err(_) => self.at_the_deadline(arrived),
        }
    }

    /// The latest snapshot if it is fresh enough, or what to wait for.
    fn request(&self, now: Instant) -> Result<Arc<Snapshot>, oneshot::Receiver<Answer>> {
        let mut state = self.state.lock();
        self.close(&mut state, now);
        state.desk.forget(oneshot::Sender::is_closed);
        let answer = state.desk.request(now, oneshot::channel);
        if !state.desk.is_idle() && !state.is_watched {
            state.is_watched = true;
            let this = self.this.clone();
            // A task of its own: all clients may leave.
            tokio::spawn(async move {
                while let Some(this) = this.upgrade() {
                    let over = this.over.notified();
                    let Some(due) = this.look(Instant::now()) else { return };
                    let _ = tokio::time::timeout_at(due.into(), over).await;
                }
            });
        }
        answer
    }

    /// Does what is due for a collection. Returns when to look again, if one runs.
    fn look(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        self.close(&mut state, now);
        self.wake_thread(&mut state, now);
        let due = state.desk.due(now);
        state.is_watched = due.is_some();
        due
    }

    /// What there is for a request that can wait no longer.
    fn at_the_deadline(&self, arrived: Instant) -> Answer {
        let state = self.state.lock();
        let (jobs, mut sections) = match state.desk.at_the_deadline(arrived) {
            AtDeadline::Snapshot(snapshot) => return Ok(snapshot),
            AtDeadline::Parts(jobs, sections) => (jobs, sections),
            AtDeadline::Nothing => return Err(ScrapeError::TimedOut),
        };
        limit(self.max_series, &mut sections, &jobs.jobs, |_, _, _| {});
        let health = self.health_rows(&self.health.lock(), state.desk.stuck(), Section::default());
        Ok(Arc::new(self.made(sections, health, Arc::default(), false)))
    }
}

/// For collections.
impl Shared {
    fn made(
        &self,
        sections: Vec<(usize, Arc<Section>)>,
        health: Section,
        ended: Arc<[Arc<Job>]>,
        is_whole: bool,
    ) -> Snapshot {
        let (health, buffers) = (Arc::new(health), self.this.clone());
        Snapshot { sections, health, ended, is_whole, encoded: Mutex::default(), buffers }
    }

    /// Has a section keep what is exported of a collector, or of the health of all.
    fn select(&self, collector: Option<&Entry>, section: &mut Section) {
        if let Some(selected) = self.selected.get() {
            section.select(collector.map_or(selected.of_health(), |entry| selected.of(entry.name)));
        }
    }

    /// Health of all collectors, and how the web configuration was read.
    fn health_rows(&self, health: &Health, stuck: usize, mut rows: Section) -> Section {
        self.select(None, &mut rows);
        health.emit(self.slots.iter().map(|slot| slot.entry.name), stuck, &mut rows);
        if let Some(reloads) = self.reloads.lock().as_ref() {
            super::health::emit_reload(reloads(), &mut rows);
        }
        if let Some(web) = self.web.lock().as_ref() {
            super::clients::emit(&web.stats(), health.since(), &mut rows);
        }
        rows
    }

    /// Has the collecting thread work, or another one if that one is stuck.
    fn wake_thread(&self, state: &mut State, now: Instant) {
        if state.desk.is_idle() {
            return;
        }
        if state.desk.needs_thread(now) || !self.worker.is_started() {
            let (this, thread) = (self.this.clone(), state.threads + 1);
            match self.worker.start(move || move || this.upgrade()?.round(thread)) {
                Ok(()) => {
                    state.threads = thread;
                    state.desk.in_charge(thread);
                }
                Err(error) => tracing::error!(%error, "no thread to collect on"),
            }
        }
        self.worker.notify();
    }

    /// Runs collectors while there are any to run. Returns when to forget the snapshot.
    fn round(&self, thread: u64) -> Option<Instant> {
        loop {
            let now = Instant::now();
            let mut state = self.state.lock();
            self.close(&mut state, now);
            match state.desk.next(thread, now) {
                Some((work @ Work::Jobs(_, until), _)) => {
                    drop(state);
                    let jobs = self.follower.snapshot(until.saturating_duration_since(now));
                    let mut state = self.state.lock();
                    self.close(&mut state, Instant::now());
                    state.desk.got_jobs(thread, work, jobs);
                }
                Some((work @ Work::Collect(_, at), Some(jobs))) => {
                    drop(state);
                    self.run(thread, work, at, &jobs);
                }
                // No collector runs before the jobs are known.
                Some((Work::Collect(..), None)) | None => return state.desk.expire(now),
            }
        }
    }

    /// Runs a collector.
    fn run(&self, thread: u64, work: Work, at: usize, jobs: &NodeSnapshot) {
        let Some(slot) = self.slots.get(at) else { return };
        // It is there: the schedule has each run once at a time.
        let Some(mut collector) = slot.collector.lock().take() else { return };
        let mut section = std::mem::take(&mut *slot.spare.lock());
        self.select(Some(slot.entry), &mut section);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| collector.collect(jobs, &mut section)))
            .unwrap_or_else(|_| {
                // Half of the samples may be worse than none.
                section.clear();
                Err(SourceError::Panicked)
            });
        let took = started.elapsed();
        *slot.collector.lock() = Some(collector);
        let section = Arc::new(section);
        let parts = {
            let state = self.state.lock();
            state.desk.is_last(work).then(|| state.desk.parts())
        };
        if let Some(mut parts) = parts {
            parts.push((at, section.clone()));
            // Before the accounts are saved: what a page shows must not fall after a crash.
            self.slots.iter().filter_map(|slot| slot.summary.as_ref()).for_each(|s| s.take_in(jobs, &parts));
            if let Some(call) = self.collected.get() {
                call();
            }
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        self.close(&mut state, now);
        let mut health = self.health.lock();
        health.bad_values(slot.entry.name, section.bad_values());
        health.restarts(slot.entry.name, section.restarts());
        match state.desk.done(thread, work, section) {
            Ok(()) => {
                health.note(slot.entry.name, Run { outcome: outcome.map_err(CollectError::from), took }, now);
            }
            // Its collection is over without it. The present one may have it, if the thread in charge has.
            Err(late) => {
                self.worker.notify();
                if let Ok(mut section) = Arc::try_unwrap(late) {
                    section.clear();
                    *slot.spare.lock() = section;
                }
            }
        }
        drop(health);
        self.close(&mut state, now);
    }

    /// Ends the collection under way if it is time, and has the next one begin if a request waits for it.
    fn close(&self, state: &mut State, now: Instant) {
        let finish =
            |jobs: Arc<NodeSnapshot>, sections, stuck| Arc::new(self.finish(&jobs, sections, stuck, now));
        let Some(answered) = state.desk.close(now, finish) else { return };
        self.over.notify_waiters();
        let answer = answered.snapshot.ok_or(ScrapeError::TimedOut);
        for request in answered.requests {
            // Its client may have left.
            let _ = request.send(answer.clone());
        }
        self.wake_thread(state, now);
    }

    /// Has the summaries made, of all samples of the profile: the limit left none out yet. A late collector's growth is in the next collection.
    fn summarize(&self, jobs: &NodeSnapshot, sections: &mut Vec<(usize, Arc<Section>)>) {
        for (place, slot) in self.slots.iter().enumerate() {
            let Some(summary) = &slot.summary else { continue };
            let own = sections.iter().position(|(at, _)| *at == place).map(|index| sections.remove(index).1);
            let mut own = own.unwrap_or_default();
            let into = Arc::make_mut(&mut own);
            self.select(Some(slot.entry), into);
            summary.summarize(jobs, sections, into);
            let before = sections.iter().take_while(|(at, _)| *at < place).count();
            sections.insert(before, (place, own));
        }
    }

    /// Makes a snapshot of a collection that is over. Collectors that were not done are late.
    fn finish(
        &self,
        jobs: &NodeSnapshot,
        mut sections: Vec<(usize, Arc<Section>)>,
        stuck: usize,
        now: Instant,
    ) -> Snapshot {
        self.summarize(jobs, &mut sections);
        let mut health = self.health.lock();
        health.collected();
        let mut is_whole = true;
        for (at, slot) in self.slots.iter().enumerate() {
            if !sections.iter().any(|(done, _)| *done == at) {
                is_whole &= !slot.per_job;
                let late = Run { outcome: Err(SourceError::TimedOut.into()), took: Duration::ZERO };
                health.note(slot.entry.name, late, now);
            }
        }
        let whole = limit(self.max_series, &mut sections, &jobs.jobs, |at, reason, samples| {
            if let Some(slot) = self.slots.get(at) {
                health.dropped(slot.entry.name, reason, samples);
            }
        });
        let rows = self.health_rows(&health, stuck, std::mem::take(&mut *self.spare.lock()));
        let ended = if is_whole { ended(jobs, whole) } else { Arc::default() };
        self.made(sections, rows, ended, is_whole)
    }
}

#[cfg(test)]
mod tests;
