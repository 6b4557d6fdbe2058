//! The jobs on the node over time. While one has the node for itself, the node's counts are that job's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use durable_state::SavedInstant;
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

/// Segments that are remembered. Changes among several jobs make none.
const MOST_SEGMENTS: usize = 64;

/// A change this close to a reading counts as simultaneous with it: it takes that long at most until the source is read
/// after a job came or went. SLURM's own work lies in it, not the job's: slurmstepd forks the first task some tens of
/// milliseconds after it made the job's cgroup, and removes the cgroup as long after the last task ended.
pub const SIMULTANEOUS: Duration = Duration::from_millis(50);

/// The jobs in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occupants {
    /// No job.
    Empty,
    /// This one and no other, from the beginning to the end.
    One(JobRunId),
    /// Several, or one for a part of the time, or not known any more.
    Mixed,
}

/// An occupancy as it was when it was saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedOccupancy {
    runs: BTreeSet<JobRunId>,
    segments: Vec<(SavedInstant, Occupants)>,
    alone: BTreeMap<JobRunId, Duration>,
}

/// The jobs that were there when another exporter looked last, until this one has looked.
#[derive(Debug)]
struct Before {
    runs: BTreeSet<JobRunId>,
    seen: Instant,
}

/// The jobs that are there, and the changes of late.
#[derive(Debug)]
pub struct Occupancy {
    looked: bool,
    before: Option<Before>,
    runs: BTreeSet<JobRunId>,
    segments: VecDeque<(Instant, Occupants)>,
    /// Time that runs had the node for themselves, up to the last change.
    alone: BTreeMap<JobRunId, Duration>,
}

impl Occupancy {
    /// The jobs are not known before [`Occupancy::looked`].
    pub fn new(now: Instant) -> Self {
        let segments = VecDeque::from([(now, Occupants::Mixed)]);
        Self { looked: false, before: None, runs: BTreeSet::new(), segments, alone: BTreeMap::new() }
    }

    /// What is to be saved; `None` before the jobs are known.
    pub fn save(&self) -> Option<SavedOccupancy> {
        self.looked.then(|| SavedOccupancy {
            runs: self.runs.clone(),
            segments: self
                .segments
                .iter()
                .map(|(since, occupants)| (SavedInstant(*since), *occupants))
                .collect(),
            alone: self.alone.clone(),
        })
    }

    /// Takes over what an exporter before this one saw until a moment, before [`Occupancy::looked`]. Only the times of job runs
    /// that are known are kept.
    pub fn restore(&mut self, saved: SavedOccupancy, seen: Instant, known: impl Fn(JobRunId) -> bool) {
        if self.looked || saved.segments.is_empty() {
            return;
        }
        self.segments = saved.segments.into_iter().map(|(since, occupants)| (since.0, occupants)).collect();
        self.alone = saved.alone.into_iter().filter(|(run, _)| known(*run)).collect();
        self.before = Some(Before { runs: saved.runs, seen });
    }

    /// Whether the jobs of the start are known.
    pub fn has_looked(&self) -> bool {
        self.looked
    }

    /// All jobs of the start are known now; they were found one after the other. Returns whether one job has the node
    /// for itself, or none is there.
    ///
    /// The jobs of before that are all there still, with no other, were there meanwhile.
    pub fn looked(&mut self, now: Instant) -> bool {
        self.looked = true;
        match self.before.take() {
            Some(before) if before.runs != self.runs => {
                self.begin_segment(before.seen, Occupants::Mixed);
                self.changed(now);
                true
            }
            Some(_) => {
                self.changed(now);
                true
            }
            None => self.changed(now),
        }
    }

    /// A job is there. Returns whether this changes which job is alone.
    pub fn appeared(&mut self, run: JobRunId, now: Instant) -> bool {
        self.runs.insert(run);
        self.looked && self.changed(now)
    }

    /// A job is gone. Returns whether this changes which job is alone.
    pub fn left(&mut self, run: JobRunId, now: Instant) -> bool {
        self.runs.remove(&run);
        self.looked && self.changed(now)
    }

    /// A run is not exported any more.
    pub fn forget(&mut self, run: JobRunId) {
        self.alone.remove(&run);
    }

    fn changed(&mut self, now: Instant) -> bool {
        let mut runs = self.runs.iter();
        let occupants = match (runs.next(), runs.next()) {
            (None, _) => Occupants::Empty,
            (Some(run), None) => Occupants::One(*run),
            (Some(_), Some(_)) => Occupants::Mixed,
        };
        self.begin_segment(now, occupants)
    }

    fn begin_segment(&mut self, now: Instant, occupants: Occupants) -> bool {
        let Some((since, before)) = self.segments.back().copied() else { return false };
        if before == occupants {
            return false;
        }
        if let Occupants::One(run) = before {
            *self.alone.entry(run).or_default() += now.saturating_duration_since(since);
        }
        self.segments.push_back((now, occupants));
        if self.segments.len() > MOST_SEGMENTS {
            self.segments.pop_front();
        }
        true
    }

    /// How long a run had the node for itself.
    pub fn alone(&self, run: JobRunId, now: Instant) -> Duration {
        let so_far = self.alone.get(&run).copied().unwrap_or_default();
        match self.segments.back() {
            Some((since, Occupants::One(one))) if *one == run => {
                so_far + now.saturating_duration_since(*since)
            }
            _ => so_far,
        }
    }

    /// The jobs between two readings.
    pub fn between(&self, from: Instant, to: Instant) -> Occupants {
        if self.segments.front().is_none_or(|(since, _)| from + SIMULTANEOUS < *since) {
            return Occupants::Mixed;
        }
        let ends = self.segments.iter().skip(1).map(|(since, _)| *since).chain([to]);
        let mut parts = self.segments.iter().zip(ends).filter_map(|((since, occupants), end)| {
            let overlap = end.min(to).saturating_duration_since((*since).max(from));
            let (first, last) = (*since <= from, end >= to);
            // Only what lies at an end of the interval can be simultaneous with a reading.
            let counts = overlap > SIMULTANEOUS || !(first || last || overlap.is_zero());
            counts.then_some(*occupants)
        });
        // An interval too short to have any part that counts is that of whoever is there.
        let Some(first) = parts.next() else { return self.briefly(from, to) };
        if parts.all(|part| part == first) { first } else { Occupants::Mixed }
    }

    fn briefly(&self, from: Instant, to: Instant) -> Occupants {
        let before =
            |at: Instant| self.segments.iter().rev().find(|(since, _)| *since <= at).map(|(_, o)| *o);
        match (before(from), before(to)) {
            (Some(one), Some(other)) if one == other => one,
            _ => Occupants::Mixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: JobRunId = JobRunId(1);
    const B: JobRunId = JobRunId(2);

    struct Clock(Instant);

    impl Clock {
        fn at(&self, millis: u64) -> Instant {
            self.0 + Duration::from_millis(millis)
        }
    }

    fn begin() -> (Clock, Occupancy) {
        let clock = Clock(Instant::now());
        let mut occupancy = Occupancy::new(clock.0);
        occupancy.looked(clock.0);
        (clock, occupancy)
    }

    #[test]
    fn an_interval_is_a_jobs_only_if_it_was_alone_from_beginning_to_end() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        assert!(there.appeared(A, at(1000)));
        assert_eq!(there.between(at(1000), at(5000)), Occupants::One(A));
        assert_eq!(there.between(at(0), at(5000)), Occupants::Mixed, "it came in between");
        assert!(there.appeared(B, at(5000)));
        assert_eq!(there.between(at(1000), at(5000)), Occupants::One(A));
        assert_eq!(there.between(at(1000), at(6000)), Occupants::Mixed);
        assert_eq!(there.between(at(5000), at(6000)), Occupants::Mixed);
        assert!(there.left(A, at(7000)));
        assert_eq!(there.between(at(7000), at(8000)), Occupants::One(B));
        assert!(there.left(B, at(8000)));
        assert_eq!(there.between(at(8000), at(9000)), Occupants::Empty);
        assert_eq!(there.between(at(500), at(9000)), Occupants::Mixed);
    }

    #[test]
    fn a_reading_soon_after_a_change_is_simultaneous_with_it() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        there.appeared(A, at(1000));
        there.appeared(B, at(5000));
        assert_eq!(there.between(at(1003), at(5004)), Occupants::One(A));
        assert_eq!(there.between(at(990), at(4000)), Occupants::One(A));
        assert_eq!(there.between(at(1000), at(5051)), Occupants::Mixed, "51 ms are too much");
        there.left(B, at(6000));
        assert_eq!(there.between(at(5004), at(6003)), Occupants::Mixed, "not A's: B was there");
        assert_eq!(there.between(at(6003), at(6004)), Occupants::One(A));
    }

    #[test]
    fn a_short_job_between_two_readings_mixes_the_interval() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        there.appeared(A, at(100));
        there.appeared(B, at(5000));
        there.left(B, at(5010));
        assert_eq!(there.between(at(100), at(9000)), Occupants::Mixed);
    }

    #[test]
    fn one_job_after_the_other_is_never_one() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        there.appeared(A, at(100));
        there.left(A, at(5000));
        there.appeared(B, at(5000));
        assert_eq!(there.between(at(100), at(9000)), Occupants::Mixed);
        assert_eq!(there.between(at(4990), at(5010)), Occupants::Mixed);
    }

    #[test]
    fn what_is_too_long_ago_is_unknown() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        assert_eq!(there.between(clock.0 - Duration::from_secs(9), at(10)), Occupants::Mixed);
        for turn in 0..MOST_SEGMENTS as u64 {
            there.appeared(A, at(turn * 1000));
            there.left(A, at(turn * 1000 + 500));
        }
        assert_eq!(there.between(at(0), at(400)), Occupants::Mixed);
        assert!(there.segments.len() <= MOST_SEGMENTS);
    }

    #[test]
    fn changes_among_several_jobs_are_none() {
        let (clock, mut there) = begin();
        there.appeared(A, clock.at(0));
        there.appeared(B, clock.at(1));
        for run in 3..500 {
            assert!(!there.appeared(JobRunId(run), clock.at(run)));
        }
        assert_eq!(there.between(clock.at(1), clock.at(1000)), Occupants::Mixed);
    }

    #[test]
    fn jobs_that_are_found_one_after_the_other_at_the_start_were_there_together() {
        let clock = Clock(Instant::now());
        let at = |millis| clock.at(millis);
        let mut there = Occupancy::new(at(0));
        assert!(!there.appeared(A, at(100)));
        assert!(!there.appeared(B, at(200)));
        assert!(!there.looked(at(300)));
        assert_eq!(
            (there.alone(A, at(400)), there.between(at(0), at(400))),
            (Duration::ZERO, Occupants::Mixed)
        );
        let mut one = Occupancy::new(at(0));
        one.appeared(A, at(100));
        assert_eq!(one.between(at(100), at(200)), Occupants::Mixed);
        assert!(one.looked(at(300)));
        assert_eq!(one.between(at(300), at(400)), Occupants::One(A));
    }

    #[test]
    fn the_time_alone_is_exported_and_kept_until_the_run_is_dropped() {
        let (clock, mut there) = begin();
        let at = |millis| clock.at(millis);
        there.appeared(A, at(1000));
        assert_eq!(there.alone(A, at(1500)), Duration::from_millis(500));
        there.appeared(B, at(3000));
        there.left(B, at(4000));
        there.left(A, at(4500));
        assert_eq!(there.alone(A, at(9000)), Duration::from_millis(2500));
        assert_eq!(there.alone(B, at(9000)), Duration::ZERO);
        there.forget(A);
        assert_eq!(there.alone(A, at(9000)), Duration::ZERO);
    }

    /// An occupancy after a restart of ten seconds, whose exporter finds these runs.
    fn restarted(there: &Occupancy, (seen, now): (Instant, Instant), runs: &[JobRunId]) -> (Occupancy, bool) {
        let mut after = Occupancy::new(now);
        let saved = durable_state::encode(&there.save().unwrap());
        after.restore(durable_state::decode(&saved).unwrap(), seen, |_| true);
        runs.iter().for_each(|run| assert!(!after.appeared(*run, now)));
        let exclusive = after.looked(now);
        (after, exclusive)
    }

    #[test]
    fn a_job_that_is_alone_before_and_after_a_restart_was_alone_meanwhile() {
        let now = Instant::now();
        let at = |seconds: u64| now - Duration::from_secs(100 - seconds);
        let mut there = Occupancy::new(at(0));
        there.looked(at(0));
        there.appeared(A, at(10));
        let (after, called) = restarted(&there, (at(20), at(30)), &[A]);
        assert!(called);
        assert_eq!(after.between(at(10), at(40)), Occupants::One(A));
        assert_eq!(after.alone(A, at(40)), Duration::from_secs(30));
    }

    #[test]
    fn a_job_that_came_or_went_during_a_restart_mixes_that_time() {
        let now = Instant::now();
        let at = |seconds: u64| now - Duration::from_secs(100 - seconds);
        let mut there = Occupancy::new(at(0));
        there.looked(at(0));
        there.appeared(A, at(10));
        for (found, occupants) in
            [(&[][..], Occupants::Empty), (&[B], Occupants::One(B)), (&[A, B], Occupants::Mixed)]
        {
            let (after, _) = restarted(&there, (at(20), at(30)), found);
            assert_eq!(after.between(at(10), at(20)), Occupants::One(A));
            assert_eq!(after.between(at(10), at(40)), Occupants::Mixed);
            assert_eq!(after.between(at(20), at(30)), Occupants::Mixed);
            assert_eq!(after.between(at(30), at(40)), occupants);
            assert_eq!(after.alone(A, at(40)), Duration::from_secs(10), "until it was seen last");
        }
    }
}
