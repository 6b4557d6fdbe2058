//! Collection: single flight, one collecting thread, a deadline that holds even when a collector hangs.
//!
//! The web side requests; the collecting thread gets a snapshot from the thread that follows the jobs and runs the
//! collectors one by one. What is finished at the deadline is served, the rest is reported as late. A collector that
//! hangs keeps its thread: half-way to the deadline another thread runs the collectors behind it, and serves the next
//! scrapes, which lack that collector. So at most one thread is stuck in a source, and its collector is back when the
//! kernel answers.
//!
//! Samples are kept in typed form. Each request gets them in its format, which is encoded once for all requests that
//! share the collection.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use exporter_toolkit::{BoxFuture, Bytes, CollectorStatus, Format, Selection};
use exposition::{Created, Level, Section};
use parking_lot::Mutex;
use slurm_jobs::{Follower, NodeSnapshot};
use tokio::sync::watch;
use worker_threads::Worker;

use super::ScrapeError;
use super::encode::{Bodies, encode};
use super::health::{Health, Run};
use crate::collector::interval_reader::IntervalSource;
use crate::collector::{Built, CollectError, Collector, Entry, SourceError};

/// A collector in its place; empty while it runs.
struct Slot {
    entry: &'static Entry,
    /// Whether its samples are by job: an ended job counts as exported only when these were served with it.
    per_job: bool,
    collector: Mutex<Option<Box<dyn Collector>>>,
    /// The interval reader reads it for as long as it is held here.
    _source: Option<Arc<dyn IntervalSource>>,
    /// Recycled sample buffer. Its size fits: consecutive scrapes have about the same number of samples.
    spare: Mutex<Section>,
}

/// One collection under way.
struct InFlightScrape {
    selection: Selection,
    deadline: Instant,
    sections: Mutex<Vec<(usize, Arc<Section>)>>,
    snapshot: Mutex<Option<Arc<NodeSnapshot>>>,
    /// The places of the collectors that were begun: each runs once, on the thread that comes first.
    begun: Mutex<Vec<usize>>,
    /// Threads that run it.
    active: AtomicUsize,
    finished: watch::Sender<bool>,
}

/// The collections that the collecting thread has to run.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<InFlightScrape>>,
    /// What the thread in charge runs, with the number of its round.
    running: Option<(u64, Arc<InFlightScrape>)>,
    rounds: u64,
}

impl Queue {
    fn undone(&self) -> impl Iterator<Item = &Arc<InFlightScrape>> {
        self.running.iter().map(|(_, in_flight)| in_flight).chain(&self.waiting)
    }

    /// Whether a deadline has passed: a collector hangs.
    fn hangs(&self) -> bool {
        let now = Instant::now();
        self.undone().any(|in_flight| in_flight.deadline <= now)
    }
}

type Answer = Option<Result<Arc<Collected>, ScrapeError>>;

/// The samples of one collection. Dropped, it returns the buffers to the collectors.
struct Collected {
    /// Those of the collectors, then the collectors' health.
    sections: Vec<Arc<Section>>,
    /// The collectors' places.
    slots: Vec<usize>,
    bodies: Bodies,
    shared: Weak<Shared>,
}

impl Drop for Collected {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let of_collectors = self.slots.iter().filter_map(|index| Some(&shared.slots.get(*index)?.spare));
        for (spare, section) in of_collectors.chain([&shared.spare]).zip(self.sections.drain(..)) {
            if let Ok(mut section) = Arc::try_unwrap(section) {
                section.clear();
                *spare.lock() = section;
            }
        }
    }
}

struct Shared {
    slots: Vec<Slot>,
    follower: Follower,
    health: Mutex<Health>,
    /// As a slot's, for the collectors' health.
    spare: Mutex<Section>,
    queue: Mutex<Queue>,
    worker: Worker,
    /// Collections under way that others may join, with their deadlines.
    in_flight: Mutex<HashMap<Selection, (Instant, watch::Receiver<Answer>)>>,
    max_series: usize,
    disabled: Vec<&'static Entry>,
    reloads: Mutex<Option<Reloads>>,
    text_capacity: Mutex<usize>,
    /// Whether OpenMetrics has the lines `_created`.
    created: Mutex<Created>,
}

/// Passes on whether the latest reading of the web configuration succeeded, and when it was, seconds since the epoch.
pub type Reloads = Box<dyn Fn() -> (bool, f64) + Send + Sync>;

/// Collects when asked. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

impl Engine {
    /// An engine with these collectors, in the order of the exposition.
    pub fn new(
        collectors: Vec<(&'static Entry, Built)>,
        disabled: Vec<&'static Entry>,
        follower: Follower,
        max_series: usize,
    ) -> Self {
        let slot = |(entry, built): (&'static Entry, Built)| Slot {
            entry,
            per_job: built.observer.is_some(),
            collector: Mutex::new(Some(built.collector)),
            _source: built.source,
            spare: Mutex::default(),
        };
        Self(Arc::new(Shared {
            slots: collectors.into_iter().map(slot).collect(),
            follower,
            health: Mutex::default(),
            spare: Mutex::default(),
            queue: Mutex::default(),
            worker: Worker::new("collect", 1 << 20),
            in_flight: Mutex::default(),
            max_series,
            disabled,
            reloads: Mutex::new(None),
            text_capacity: Mutex::new(0),
            created: Mutex::default(),
        }))
    }

    /// Has every exposition report how the web configuration was read.
    pub fn report_reloads(&self, reloads: Reloads) {
        *self.0.reloads.lock() = Some(reloads);
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
}

impl Shared {
    /// Submits a collection to the collecting thread, or to another one when that one hangs.
    fn launch(self: &Arc<Self>, in_flight: &Arc<InFlightScrape>) {
        let mut queue = self.queue.lock();
        if (!self.worker.is_started() || queue.hangs()) && !self.start_worker(&mut queue) {
            in_flight.finished.send_replace(true);
            return;
        }
        queue.waiting.push_back(in_flight.clone());
        self.worker.notify();
    }

    /// Replaces the collecting thread, which a collector delays: another one runs the collectors behind it, and the
    /// collections to come.
    fn replace_stuck_worker(self: &Arc<Self>, in_flight: &Arc<InFlightScrape>) {
        // Without a snapshot the thread that follows the jobs is late, and another thread would only wait, too.
        if in_flight.snapshot.lock().is_none() {
            return;
        }
        let mut queue = self.queue.lock();
        if queue.undone().any(|undone| Arc::ptr_eq(undone, in_flight)) {
            self.start_worker(&mut queue);
        }
    }

    /// Starts a collecting thread in the place of any other. What that one runs is waiting again.
    fn start_worker(self: &Arc<Self>, queue: &mut Queue) -> bool {
        let this = Arc::downgrade(self);
        if let Err(error) = self.worker.start(move || move || this.upgrade()?.round()) {
            tracing::error!(%error, "no thread to collect on");
            return false;
        }
        if let Some((_, in_flight)) = queue.running.take() {
            queue.waiting.push_front(in_flight);
        }
        true
    }

    /// Runs the first collection that waits. Returns when to run the next: at once, or when it is submitted.
    fn round(&self) -> Option<Instant> {
        let (round, in_flight) = {
            let mut queue = self.queue.lock();
            let in_flight = queue.waiting.pop_front()?;
            queue.rounds += 1;
            queue.running = Some((queue.rounds, in_flight.clone()));
            (queue.rounds, in_flight)
        };
        in_flight.active.fetch_add(1, Ordering::AcqRel);
        self.collect(&in_flight);
        if in_flight.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            in_flight.finished.send_replace(true);
        }
        let mut queue = self.queue.lock();
        queue.running.take_if(|(number, _)| *number == round);
        (!queue.waiting.is_empty()).then(Instant::now)
    }

    /// The snapshot of this collection. Nothing is locked while it is waited for.
    fn snapshot(&self, in_flight: &InFlightScrape) -> Option<Arc<NodeSnapshot>> {
        let known = in_flight.snapshot.lock().clone();
        if known.is_some() {
            return known;
        }
        let left = in_flight.deadline.saturating_duration_since(Instant::now());
        let snapshot = self.follower.snapshot(left)?;
        *in_flight.snapshot.lock() = Some(snapshot.clone());
        Some(snapshot)
    }

    /// Runs the collectors that are selected, not begun and not stuck.
    fn collect(&self, in_flight: &InFlightScrape) {
        let Some(snapshot) = self.snapshot(in_flight) else { return };
        for (index, slot) in self.slots.iter().enumerate() {
            if !in_flight.selection.wants(slot.entry.name) {
                continue;
            }
            if Instant::now() >= in_flight.deadline {
                // Too late for this scrape, and the next one may want the rest.
                return;
            }
            let mut begun = in_flight.begun.lock();
            if begun.contains(&index) {
                continue;
            }
            // A collector that hangs is not in its slot: its thread has it.
            let Some(mut collector) = slot.collector.lock().take() else { continue };
            begun.push(index);
            drop(begun);
            let mut section = std::mem::take(&mut *slot.spare.lock());
            let started = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| collector.collect(&snapshot, &mut section)))
                .unwrap_or_else(|_| {
                    // Half of the samples may be worse than none.
                    section.clear();
                    Err(SourceError::Panicked)
                });
            let took = started.elapsed();
            *slot.collector.lock() = Some(collector);
            let mut health = self.health.lock();
            health.bad_values(slot.entry.name, section.bad_values());
            health.restarts(slot.entry.name, section.restarts());
            health.note(slot.entry.name, Run { outcome: outcome.map_err(CollectError::from), took });
            drop(health);
            in_flight.sections.lock().push((index, Arc::new(section)));
        }
    }

    /// What is collected so far, in the format of the request that began it.
    fn finish(
        self: &Arc<Self>,
        in_flight: &InFlightScrape,
        format: Format,
    ) -> Result<Arc<Collected>, ScrapeError> {
        let mut sections = std::mem::take(&mut *in_flight.sections.lock());
        let snapshot = in_flight.snapshot.lock().clone().ok_or(ScrapeError::TimedOut)?;
        sections.sort_by_key(|(index, _)| *index);
        let mut health = self.health.lock();
        health.scraped();
        let mut names = Vec::new();
        let mut stuck = 0;
        let mut is_whole = in_flight.selection == Selection::default();
        for (index, slot) in self.slots.iter().enumerate() {
            let name = slot.entry.name;
            if !in_flight.selection.wants(name) {
                continue;
            }
            names.push(name);
            if !sections.iter().any(|(done, _)| *done == index) {
                let hangs = slot.collector.lock().is_none();
                stuck += usize::from(hangs);
                is_whole &= !slot.per_job;
                health.note(name, Run { outcome: Err(SourceError::TimedOut.into()), took: Duration::ZERO });
            }
        }
        self.limit(&mut sections, &mut health);
        let mut own = std::mem::take(&mut *self.spare.lock());
        health.emit(&names, stuck, &mut own);
        if let Some(reloads) = self.reloads.lock().as_ref() {
            super::health::emit_reload(reloads(), &mut own);
        }
        drop(health);
        let (slots, mut sections): (Vec<usize>, Vec<Arc<Section>>) = sections.into_iter().unzip();
        sections.push(Arc::new(own));
        let collected =
            Collected { sections, slots, bodies: Bodies::default(), shared: Arc::downgrade(self) };
        self.encoded(&collected, format)?;
        let ended: Vec<_> =
            snapshot.jobs.iter().filter(|job| is_whole && !job.is_running()).cloned().collect();
        if !ended.is_empty() {
            self.follower.exported(ended);
        }
        Ok(Arc::new(collected))
    }

    /// The collection in a format. Requests of one format share it.
    fn encoded(&self, collected: &Collected, format: Format) -> Result<Bytes, ScrapeError> {
        let known = collected.bodies.of(format);
        if let Some(bytes) = known.get() {
            return Ok(bytes.clone());
        }
        let created = *self.created.lock();
        let mut capacity = self.text_capacity.lock();
        let bytes = encode(&collected.sections, format, created, *capacity)?;
        *capacity = bytes.len();
        Ok(known.get_or_init(|| bytes).clone())
    }

    /// Keeps the number of samples within the limit: the finest levels go first, then the last jobs.
    fn limit(&self, sections: &mut [(usize, Arc<Section>)], health: &mut Health) {
        let total = |sections: &[(usize, Arc<Section>)]| sections.iter().map(|(_, s)| s.len()).sum::<usize>();
        if self.max_series == 0 || total(sections) <= self.max_series {
            return;
        }
        for (level, reason) in [(Level::Task, "tasks"), (Level::Step, "steps")] {
            for (index, section) in sections.iter_mut() {
                if let (Some(section), Some(slot)) = (Arc::get_mut(section), self.slots.get(*index)) {
                    health.dropped(slot.entry.name, reason, section.drop_level(level));
                }
            }
            if total(sections) <= self.max_series {
                return;
            }
        }
        let (now, most) = (total(sections), self.max_series);
        for (index, section) in sections.iter_mut() {
            if let (Some(section), Some(slot)) = (Arc::get_mut(section), self.slots.get(*index)) {
                let room = section.len() * most / now.max(1);
                health.dropped(slot.entry.name, "jobs", section.truncate_jobs(room));
            }
        }
    }

    async fn fly(
        self: Arc<Self>,
        selection: Selection,
        format: Format,
        deadline: Instant,
    ) -> Result<Arc<Collected>, ScrapeError> {
        let (finished, mut done) = watch::channel(false);
        let in_flight = Arc::new(InFlightScrape {
            selection,
            deadline,
            sections: Mutex::default(),
            snapshot: Mutex::new(None),
            begun: Mutex::default(),
            active: AtomicUsize::new(0),
            finished,
        });
        let now = Instant::now();
        let halfway = now + deadline.saturating_duration_since(now) / 2;
        self.launch(&in_flight);
        if tokio::time::timeout_at(halfway.into(), done.wait_for(|finished| *finished)).await.is_err() {
            self.replace_stuck_worker(&in_flight);
            // Late or finished: the complete sections are served either way.
            let _ = tokio::time::timeout_at(deadline.into(), done.wait_for(|finished| *finished)).await;
        }
        self.finish(&in_flight, format)
    }
}

impl Engine {
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

    /// Collects, or joins a collection of the same selection under way. Answers in `format`, by `deadline`, with what is
    /// complete by then; late collectors are absent and reported.
    pub fn scrape(
        &self,
        selection: Selection,
        format: Format,
        deadline: Instant,
    ) -> BoxFuture<Result<Bytes, ScrapeError>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let (ends, mut answer) = {
                let mut in_flight = shared.in_flight.lock();
                in_flight.retain(|_, (_, answer)| answer.borrow().is_none() && answer.has_changed().is_ok());
                match in_flight.get(&selection) {
                    Some(in_flight) => in_flight.clone(),
                    None => {
                        let (send, answer) = watch::channel(None);
                        in_flight.insert(selection.clone(), (deadline, answer.clone()));
                        let (shared, selection) = (shared.clone(), selection.clone());
                        // A task of its own: the first client may disconnect while others wait.
                        tokio::spawn(async move {
                            let result = shared.fly(selection, format, deadline).await;
                            send.send_replace(Some(result));
                        });
                        (deadline, answer)
                    }
                }
            };
            let answered = answer.wait_for(Option::is_some);
            // A collection answers at its own deadline: giving up at that moment would lose what is complete.
            let answer = if ends <= deadline {
                answered.await
            } else {
                match tokio::time::timeout_at(deadline.into(), answered).await {
                    Ok(answer) => answer,
                    Err(_) => return Err(ScrapeError::TimedOut),
                }
            };
            let collected = match answer {
                Ok(answer) => answer.clone().unwrap_or(Err(ScrapeError::Stopping))?,
                Err(_) => return Err(ScrapeError::Stopping),
            };
            shared.encoded(&collected, format)
        })
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

#[cfg(test)]
mod tests;
