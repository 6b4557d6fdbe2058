//! Everything that is measured, with its account: reading it, and charging the traffic since the last reading.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use std::time::{Duration, Instant};

use attribution::{Account, Measured, Occupants};
use cpu_topology::{Topology, online};
use kernel_files::{Buffer, NodeFiles, Roots};
use parking_lot::Mutex;
use perf_counters::resctrl::{Job, Monitor, Quantity, Round};
use perf_counters::sharing::CounterOwnership;
use perf_counters::uncore::{Controllers, Kind, Place, Reading};
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::Opener;
use super::moved::{Moved, measured_in};
use super::socket_occupancy::SocketOccupancy;
use super::telemetry::Telemetry;
use crate::collector::interval_reader::IntervalReader;
use crate::collector::memory_moved::BySocket;
use crate::collector::{SourceError, Tally};

/// A reading in which an event had a counter for less of the time says too little: what it would have counted is too uncertain.
const LEAST_RUNNING: f64 = 0.25;

/// How a job's bytes came to be its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    /// The job was alone.
    Exclusive,
    /// Measured by resctrl.
    Resctrl,
}

impl Method {
    /// The `method` label.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Resctrl => "resctrl",
        }
    }
}

/// The labels of one count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Where {
    pub(super) socket: Option<u32>,
    pub(super) kind: &'static str,
    pub(super) direction: &'static str,
}

impl Where {
    /// What resctrl measures.
    pub(super) fn l3(socket: Option<u32>) -> Self {
        Self { socket, kind: "l3_external", direction: "both" }
    }
}

impl From<Place> for Where {
    fn from(place: Place) -> Self {
        Self { socket: place.socket, kind: place.kind.as_str(), direction: place.direction.as_str() }
    }
}

/// One account.
#[derive(Debug, Default)]
pub(super) struct TrafficAccount {
    pub(super) account: Account<Method>,
    /// When it was read completely last.
    at: Option<Instant>,
    /// Whether the latest reading was complete.
    pub(super) read: bool,
    /// The part of the time in which it was counted.
    pub(super) running: Option<f64>,
}

impl TrafficAccount {
    /// Goes on from an account of before. Its next reading is a first one.
    pub(super) fn restored(account: Account<Method>) -> Self {
        Self { account, ..Self::default() }
    }
}

/// All of it.
pub(super) struct TrafficAccounts {
    files: NodeFiles,
    opener: Opener,
    layout: Topology,
    /// The socket of each L3 cache; read only where resctrl measures them.
    pub(super) l3: BTreeMap<u32, u32>,
    pub(super) controllers: Option<Result<Controllers, SourceError>>,
    /// When they were looked for last.
    sought: Option<Instant>,
    pub(super) monitor: Option<Monitor>,
    pub(super) accounts: BTreeMap<Where, TrafficAccount>,
    /// What resctrl said last.
    pub(super) round: Round,
    /// What the CPU measures of its cores.
    pub(super) telemetry: Telemetry,
    pub(super) restarts: u64,
    /// For the energy of memory.
    pub(super) moved: Moved,
    /// When the controllers were read last.
    entered: Option<Instant>,
    /// Whether every job was monitored by resctrl when that was read last.
    monitored: bool,
    buffer: Buffer,
}

impl TrafficAccounts {
    /// Nothing is looked for yet.
    pub(super) fn new(
        roots: &Arc<Roots>,
        opener: Opener,
        monitor: Option<Monitor>,
        telemetry: Telemetry,
    ) -> Self {
        Self {
            files: NodeFiles::new(roots),
            opener,
            layout: Topology::default(),
            l3: BTreeMap::new(),
            controllers: None,
            sought: None,
            monitor,
            accounts: BTreeMap::new(),
            round: Round::default(),
            telemetry,
            restarts: 0,
            moved: Moved::default(),
            entered: None,
            monitored: false,
            buffer: Buffer::default(),
        }
    }

    pub(super) fn forget(&mut self, run: JobRunId) {
        self.accounts.values_mut().for_each(|traffic| traffic.account.forget(run));
        self.telemetry.forget(run);
        if let Some(monitor) = &mut self.monitor {
            monitor.forget(run);
        }
    }

    /// Closes all counters; what comes after is a first reading.
    pub(super) fn close(&mut self) {
        if let Some(Ok(controllers)) = &mut self.controllers {
            controllers.close();
        }
        for (_, traffic) in self.accounts.iter_mut().filter(|(at, _)| **at != Where::l3(at.socket)) {
            (traffic.at, traffic.read, traffic.running) = (None, false, None);
        }
    }

    /// Leaves nothing behind in the kernel.
    pub(super) fn end(&mut self) {
        self.close();
        if let Some(monitor) = &mut self.monitor {
            monitor.remove_all();
        }
    }

    /// Reads and charges. `scrape`: including what has no account.
    pub(super) fn read(
        &mut self,
        scrape: bool,
        socket_occupancy: &Mutex<SocketOccupancy>,
        interval_reader: &IntervalReader,
        ownership: &CounterOwnership,
    ) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        if self.controllers.is_none() {
            // The sockets come first: groups of resctrl may have counted before the first reading.
            self.look_for(socket_occupancy);
        }
        SocketOccupancy::refresh(socket_occupancy, &self.layout, &mut self.buffer);
        self.follow(scrape, socket_occupancy, &mut tally);
        let mut outcomes = self.count(socket_occupancy, interval_reader, ownership);
        if self.look_for(socket_occupancy) {
            // Counted once more from the first reading on, which is now.
            outcomes = self.count(socket_occupancy, interval_reader, ownership);
        }
        // They were claimed while they were being opened.
        if ownership.is_yielded() {
            self.close();
        } else {
            let failed =
                self.controllers.as_ref().and_then(|controllers| controllers.as_ref().err()).cloned();
            outcomes.into_iter().chain(failed.map(Err)).for_each(|outcome| {
                tally.note(outcome);
            });
        }
        tally.result()
    }

    /// What resctrl measured of jobs.
    fn follow(&mut self, scrape: bool, socket_occupancy: &Mutex<SocketOccupancy>, tally: &mut Tally) {
        // A job that is not found yet would pass for one that is gone, and lose its group.
        let Some(jobs) = socket_occupancy.lock().all_jobs() else { return };
        let Some(mut monitor) = self.monitor.take() else { return };
        let mut last = monitor.follow(&jobs, Instant::now());
        self.telemetry.finish(&last);
        let last = last.remove(&Quantity::Bytes).unwrap_or_default();
        self.charge(&last);
        for (run, domain, bytes) in &last.jobs {
            self.moved.more(self.l3.get(domain).copied(), *run, *bytes);
        }
        if scrape {
            let round = monitor.read();
            self.charge(&round);
            let monitored = all_monitored(&monitor, &jobs);
            let before = std::mem::replace(&mut self.monitored, monitored);
            let socket = |domain| self.l3.get(&domain).copied();
            let monitored = before && monitored && last.restarts == 0;
            self.moved.round(measured_in(&round, &self.round, socket, monitored));
            self.round = round;
            if self.telemetry.is_due() {
                let monitored = all_monitored(&monitor, &jobs);
                self.telemetry.read(&mut monitor, monitored);
            }
            let unread = |socket| self.domains_of(socket).any(|domain| !self.round.whole.contains(&domain));
            let read: BTreeSet<Option<u32>> =
                self.round.places.iter().map(|domain| self.l3.get(domain).copied()).collect();
            let read: BTreeSet<_> = read.into_iter().filter(|socket| !unread(*socket)).collect();
            for (at, traffic) in self.accounts.iter_mut().filter(|(at, _)| **at == Where::l3(at.socket)) {
                traffic.read = read.contains(&at.socket);
            }
        }
        tally.note(monitor.problem().cloned().map_or(Ok(()), Err));
        self.monitor = Some(monitor);
    }

    /// What cores spent since the last call.
    pub(super) fn core_energy(&mut self, socket_occupancy: &Mutex<SocketOccupancy>) -> BySocket {
        let Some(monitor) = &mut self.monitor else { return BySocket::default() };
        let Some(jobs) = socket_occupancy.lock().all_jobs() else { return BySocket::default() };
        if !monitor.about().is_some_and(|about| about.features.core_energy) {
            return BySocket::default();
        }
        let monitored = all_monitored(monitor, &jobs);
        self.telemetry.read(monitor, monitored);
        self.telemetry.spent.take()
    }

    /// The L3 domains of a socket.
    pub(super) fn domains_of(&self, socket: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        self.round.places.iter().copied().filter(move |domain| self.l3.get(domain).copied() == socket)
    }

    fn charge(&mut self, round: &Round) {
        let jobs = round.jobs.iter().map(|(run, domain, bytes)| (Some(*run), *domain, *bytes));
        let unattributed = round.unattributed.iter().map(|(domain, bytes)| (None, *domain, *bytes));
        for (run, domain, bytes) in jobs.chain(unattributed) {
            let account =
                &mut self.accounts.entry(Where::l3(self.l3.get(&domain).copied())).or_default().account;
            match run {
                Some(run) => account.charge_to(run, Method::Resctrl, bytes),
                None => account.leave_unattributed(bytes),
            }
        }
        self.restarts += round.restarts;
    }

    /// Reads a last time and closes, before anything else: attribution follows when the hardware is free, and jobs
    /// are followed at the next reading.
    pub(super) fn release(
        &mut self,
        socket_occupancy: &Mutex<SocketOccupancy>,
        interval_reader: &IntervalReader,
        ownership: &CounterOwnership,
    ) {
        let readings = self.readings(ownership);
        if let Some(Ok(controllers)) = &mut self.controllers {
            controllers.close();
        }
        SocketOccupancy::refresh(socket_occupancy, &self.layout, &mut self.buffer);
        self.enter(readings, Instant::now(), socket_occupancy, interval_reader);
        self.close();
    }

    /// What the controllers moved since the last reading.
    fn count(
        &mut self,
        socket_occupancy: &Mutex<SocketOccupancy>,
        interval_reader: &IntervalReader,
        ownership: &CounterOwnership,
    ) -> Vec<Result<(), SourceError>> {
        let now = Instant::now();
        let readings = self.readings(ownership);
        self.enter(readings, now, socket_occupancy, interval_reader)
    }

    fn readings(&mut self, ownership: &CounterOwnership) -> Vec<(Place, Result<Reading, SourceError>)> {
        let mut readings = Vec::new();
        if let Some(Ok(controllers)) = &mut self.controllers {
            controllers
                .read(&|| !ownership.is_yielded(), &mut |place, reading| readings.push((place, reading)));
        }
        readings
    }

    /// Charges what was read up to now.
    fn enter(
        &mut self,
        readings: Vec<(Place, Result<Reading, SourceError>)>,
        now: Instant,
        socket_occupancy: &Mutex<SocketOccupancy>,
        interval_reader: &IntervalReader,
    ) -> Vec<Result<(), SourceError>> {
        let mut outcomes = Vec::new();
        // With resctrl jobs are charged with what that says, and with nothing twice.
        let split = self.monitor.is_none();
        let before = self.entered.replace(now);
        let mut moved = BySocket::new();
        let (accounts, restarts) = (&mut self.accounts, &mut self.restarts);
        for (place, reading) in readings {
            let traffic = accounts.entry(place.into()).or_default();
            (traffic.read, traffic.running) = (false, None);
            // The meter of memory counts no other kind.
            let mut sum = (place.kind == Kind::Dram)
                .then(|| moved.entry(place.socket).or_insert(Some(Measured::of_nobody(0))));
            let so_far = sum.as_mut().and_then(|sum| sum.take());
            match reading {
                Err(error) => {
                    outcomes.push(Err(error));
                    continue;
                }
                Ok(Reading::Idle) => {
                    outcomes.push(Err(no_counter()));
                    continue;
                }
                Ok(Reading::First) => {}
                Ok(Reading::Restarted) => *restarts += 1,
                Ok(Reading::Grown { bytes, running }) => {
                    let from = traffic.at.unwrap_or(now);
                    let whose = whose(place, (from, now), socket_occupancy, interval_reader);
                    match whose {
                        Occupants::One(run) if split => {
                            traffic.account.charge_to(run, Method::Exclusive, bytes);
                        }
                        _ => traffic.account.leave_unattributed(bytes),
                    }
                    traffic.running = Some(running);
                    // After a reading that failed these are the bytes of a longer time.
                    let known = traffic.at == before && running >= LEAST_RUNNING;
                    if let Some(sum) = sum.filter(|_| known) {
                        *sum = so_far.map(|so_far| so_far.plus(&shared_out(bytes, whose)));
                    }
                }
            }
            (traffic.at, traffic.read) = (Some(now), true);
            outcomes.push(Ok(()));
        }
        if split {
            self.moved.round(moved);
        }
        outcomes
    }

    /// Looks for controllers at the first time, when CPUs came or went, and now and then where there are none. Whether there
    /// may be others.
    fn look_for(&mut self, socket_occupancy: &Mutex<SocketOccupancy>) -> bool {
        const PAUSE: Duration = Duration::from_secs(300);
        let online = online(&mut self.files).ok().flatten().unwrap_or_default();
        let changed = online != self.layout.whole.cpus || self.controllers.is_none();
        let failed = matches!(self.controllers, Some(Err(_)));
        let due = failed && self.sought.is_none_or(|sought| sought.elapsed() >= PAUSE);
        if !changed && !due {
            return false;
        }
        let now = Instant::now();
        if changed {
            self.layout = Topology::read(&mut self.files, online);
            if self.monitor.is_some() {
                self.l3 = self.layout.read_l3_caches(&mut self.files);
            }
            socket_occupancy.lock().lay_out(&self.layout, now);
        }
        self.close();
        self.controllers = Some(Controllers::find(&mut self.files, &self.layout, (self.opener)()));
        self.sought = Some(now);
        true
    }
}

fn all_monitored(monitor: &Monitor, jobs: &[Job]) -> bool {
    jobs.iter().all(|job| monitor.is_monitored(job.run))
}

fn no_counter() -> SourceError {
    const NEEDS: &str = "free hardware counters of the memory controllers, which other programs' events hold";
    SourceError::Unsupported { needs: NEEDS.to_owned() }
}

/// The jobs that the traffic can belong to: one that had the node, or this socket of it, for itself from the beginning to
/// the end.
fn whose(
    place: Place,
    (from, to): (Instant, Instant),
    socket_occupancy: &Mutex<SocketOccupancy>,
    interval_reader: &IntervalReader,
) -> Occupants {
    match (interval_reader.between(from, to), place.socket) {
        (Occupants::Mixed, Some(socket)) => socket_occupancy.lock().between(socket, from, to),
        (node, _) => node,
    }
}

/// Bytes that were moved while these jobs were there.
fn shared_out(bytes: u64, whose: Occupants) -> Measured {
    let jobs = match whose {
        Occupants::Empty => Some(BTreeMap::new()),
        Occupants::One(run) => Some([(run, bytes)].into()),
        Occupants::Mixed => None,
    };
    Measured { amount: bytes, jobs }
}
