//! Which job had which unit when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use durable_state::instant;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// How long a job's units are waited for. SLURM constrains devices before it starts the first task; a job without
/// known units after this time has no constraint.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Allocation {
    #[serde(with = "instant")]
    since: Instant,
    #[serde(with = "instant::option")]
    until: Option<Instant>,
}

impl Allocation {
    fn overlap(&self, from: Instant, to: Instant) -> Duration {
        let end = self.until.map_or(to, |until| until.min(to));
        end.saturating_duration_since(self.since.max(from))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct JobUnits {
    #[serde(with = "instant")]
    came: Instant,
    #[serde(with = "instant::option")]
    went: Option<Instant>,
    /// Whether its units are known, or nothing more will be found out.
    settled: bool,
    allocations: Vec<(Arc<str>, Allocation)>,
    /// It was there before a restart of the exporter, and was not found again yet.
    #[serde(skip)]
    awaited: bool,
}

impl JobUnits {
    fn is_waited_for(&self, now: Instant) -> bool {
        !self.settled && now.saturating_duration_since(self.came) < PATIENCE
    }
}

/// The jobs of the node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Allocations {
    jobs: BTreeMap<JobRunId, JobUnits>,
    /// Job runs that are not retained any more, while intervals that they were there in wait.
    forgotten: BTreeMap<JobRunId, JobUnits>,
    /// Until when job runs that are in neither had a unit: who had it before then is not all known.
    known_since: BTreeMap<Arc<str>, Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Moment(#[serde(with = "instant")] Instant);

impl Allocations {
    pub(super) fn appeared(&mut self, run: JobRunId, at: Instant) {
        let new =
            || JobUnits { came: at, went: None, settled: false, allocations: Vec::new(), awaited: false };
        let job = self.jobs.entry(run).or_insert_with(new);
        if std::mem::take(&mut job.awaited) {
            let seen = job.went.take();
            let open = job.allocations.iter_mut().filter(|(_, allocation)| allocation.until == seen);
            open.for_each(|(_, allocation)| allocation.until = None);
            return;
        }
        // A directory that was left behind has processes again: its units are looked up again.
        if job.went.take().is_some() {
            (job.came, job.settled) = (at, false);
        }
    }

    /// Takes these as they were at a moment, of the job runs that are known. One that is not found again left then.
    pub(super) fn restored(mut self, seen: Instant, known: impl Fn(JobRunId) -> bool) -> Self {
        let gone: Vec<_> = self.jobs.extract_if(.., |run, _| !known(*run)).collect();
        let forgotten = std::mem::take(&mut self.forgotten);
        gone.into_iter().chain(forgotten).for_each(|(_, job)| self.unknown_from_now(&job, seen));
        for job in self.jobs.values_mut().filter(|job| job.went.is_none()) {
            job.awaited = true;
            job.went = Some(seen);
            let open = job.allocations.iter_mut().filter(|(_, allocation)| allocation.until.is_none());
            open.for_each(|(_, allocation)| allocation.until = Some(seen));
        }
        self
    }

    pub(super) fn left(&mut self, run: JobRunId, at: Instant) {
        let Some(job) = self.jobs.get_mut(&run) else { return };
        if job.went.is_none() {
            job.went = Some(at);
            job.allocations.iter_mut().for_each(|(_, allocation)| {
                allocation.until.get_or_insert(at);
            });
        }
    }

    pub(super) fn bind(&mut self, run: JobRunId, units: &[Arc<str>], at: Instant) {
        let Some(job) = self.jobs.get_mut(&run) else { return };
        let since = if job.settled { at } else { job.came };
        job.settled = true;
        for (unit, allocation) in &mut job.allocations {
            if allocation.until.is_none() && !units.contains(unit) {
                allocation.until = Some(at);
            }
        }
        for unit in units {
            let known = job
                .allocations
                .iter()
                .any(|(known, t)| known == unit && (t.until.is_none() || job.went.is_some()));
            if !known {
                job.allocations.push((unit.clone(), Allocation { since, until: job.went }));
            }
        }
    }

    pub(super) fn give_up(&mut self, run: JobRunId) {
        if let Some(job) = self.jobs.get_mut(&run) {
            job.settled = true;
        }
    }

    pub(super) fn forget(&mut self, run: JobRunId) {
        if let Some(job) = self.jobs.remove(&run).filter(|job| !job.allocations.is_empty()) {
            self.forgotten.insert(run, job);
        }
    }

    /// Job runs that are not retained any more, and may have been charged with something since.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = JobRunId> {
        self.forgotten.keys().copied()
    }

    fn all(&self) -> impl Iterator<Item = (JobRunId, &JobUnits)> {
        self.jobs.iter().chain(&self.forgotten).map(|(run, job)| (*run, job))
    }

    pub(super) fn unsettled(&self, now: Instant) -> impl Iterator<Item = JobRunId> {
        self.jobs.iter().filter(move |(_, job)| job.is_waited_for(now)).map(|(run, _)| *run)
    }

    /// Up to when the units of all jobs are known.
    pub(super) fn settled_until(&self, now: Instant) -> Instant {
        let waiting = self.jobs.values().filter(|job| job.is_waited_for(now));
        waiting.map(|job| job.came).min().unwrap_or(now)
    }

    /// Drops what no interval that waits since `from` can ask for any more.
    pub(super) fn tidy(&mut self, from: Option<Instant>) {
        let over = |job: &JobUnits| from.is_none_or(|from| job.went.is_none_or(|went| went < from));
        let over: Vec<_> = self.forgotten.extract_if(.., |_, job| over(job)).collect();
        over.iter().for_each(|(_, job)| self.unknown_from_now(job, job.came));
    }

    /// What a job run had until it was dropped, or until `otherwise`, is not known any more.
    fn unknown_from_now(&mut self, job: &JobUnits, otherwise: Instant) {
        for (unit, allocation) in &job.allocations {
            let until = Moment(allocation.until.unwrap_or(otherwise));
            self.known_since.entry(unit.clone()).and_modify(|at| *at = until.max(*at)).or_insert(until);
        }
    }

    /// Whether a job run that is retained has or had a unit.
    pub(super) fn had(&self, unit: &str) -> bool {
        self.jobs.values().flat_map(|job| &job.allocations).any(|(held, _)| &**held == unit)
    }

    /// Since when it is known which jobs had a unit, if that is later than this.
    fn known_since(&self, unit: &str, from: Instant) -> Instant {
        self.known_since.get(unit).map_or(from, |since| from.max(since.0))
    }

    /// The jobs that had a unit in an interval, and for how long; none if they are not all known.
    pub(super) fn between(&self, unit: &str, from: Instant, to: Instant) -> Vec<(JobRunId, Duration)> {
        if self.known_since(unit, from) > from {
            return Vec::new();
        }
        let held = self.all().map(|(run, job)| {
            let of_unit = job.allocations.iter().filter(|(held, _)| &**held == unit);
            (run, of_unit.map(|(_, allocation)| allocation.overlap(from, to)).sum::<Duration>())
        });
        held.filter(|(_, held)| !held.is_zero()).collect()
    }

    /// How much of an interval no job had a unit, as far as that is known.
    pub(super) fn vacancy(&self, unit: &str, from: Instant, to: Instant) -> Duration {
        let from = self.known_since(unit, from);
        let all = self.all().flat_map(|(_, job)| &job.allocations);
        let of_unit = all.filter(|(held, _)| &**held == unit);
        let clipped = of_unit.map(|(_, t)| (t.since.max(from), t.until.map_or(to, |until| until.min(to))));
        let mut taken: Vec<(Instant, Instant)> = clipped.filter(|(since, until)| since < until).collect();
        taken.sort_unstable();
        let (mut vacant, mut at) = (Duration::ZERO, from);
        for (since, until) in taken {
            vacant += since.saturating_duration_since(at);
            at = at.max(until);
        }
        vacant + to.saturating_duration_since(at)
    }

    pub(super) fn allocated(&self, run: JobRunId, now: Instant) -> Vec<(Arc<str>, Duration)> {
        let mut sums: Vec<(Arc<str>, Duration)> = Vec::new();
        for (unit, allocation) in self.jobs.get(&run).into_iter().flat_map(|job| &job.allocations) {
            let held = allocation.until.unwrap_or(now).saturating_duration_since(allocation.since);
            match sums.iter_mut().find(|(known, _)| known == unit) {
                Some((_, sum)) => *sum += held,
                None => sums.push((unit.clone(), held)),
            }
        }
        sums
    }

    pub(super) fn holders(&self, unit: &str) -> usize {
        let has =
            |job: &&JobUnits| job.allocations.iter().any(|(held, t)| &**held == unit && t.until.is_none());
        self.jobs.values().filter(has).count()
    }
}
