//! The last readings of cgroups. Those of an ended job are packed: thousands of them may be retained.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use slurm_jobs::{Job, JobRunId, NodeSnapshot};

use crate::collector::durable::Unreadable;

/// The last reading of a job's own cgroup.
#[derive(Debug)]
enum Last<R> {
    Read(Box<R>),
    /// As it is saved, about a fifth of its size.
    Packed(Box<[u8]>),
}

/// A reading as it is saved. The same type for all sources, so that there is no code for the tables of each.
pub(super) type Packed<'a> = (JobRunId, Part, Cow<'a, [u8]>);

impl<R: Clone + DeserializeOwned> Last<R> {
    fn get(&self) -> Option<Cow<'_, R>> {
        match self {
            Self::Read(reading) => Some(Cow::Borrowed(&**reading)),
            Self::Packed(bytes) => durable_state::decode(bytes).ok().map(Cow::Owned),
        }
    }
}

/// When a reading began. Two threads read, and the one that began first may be done last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Began(u64);

/// A scrape that is being made.
#[derive(Debug, Default)]
struct Scrape {
    /// Runs that were dropped meanwhile.
    removed: BTreeSet<JobRunId>,
    /// Whether a running job could not be read.
    incomplete: bool,
}

type Below<R> = BTreeMap<(u32, Option<u32>), (Began, R)>;

/// The last reading of every cgroup of every job run that runs or is retained.
#[derive(Debug)]
pub struct Readings<R> {
    /// Ordered: a hash table grows to four times its entries where some come and others go.
    jobs: BTreeMap<JobRunId, (Began, Last<R>)>,
    /// Those of steps and tasks, where they are exported: by ordinal of step, and of task within it.
    below: BTreeMap<JobRunId, Below<R>>,
    latest: Began,
    scrape: Option<Scrape>,
    /// What [`CgroupSource::amount`](super::CgroupSource::amount) says of the jobs' own readings, and the sum of it.
    amount: fn(&R) -> u64,
    sum: u128,
}

/// Which cgroup of a run: the job's (`None`), a step's, or a task's, by ordinals.
pub type Part = Option<(u32, Option<u32>)>;

impl<R: Clone + Serialize + DeserializeOwned> Readings<R> {
    /// None yet.
    pub fn new(amount: fn(&R) -> u64) -> Self {
        Self { jobs: BTreeMap::new(), below: BTreeMap::new(), latest: Began(0), scrape: None, amount, sum: 0 }
    }

    /// To be called before a cgroup is read.
    pub(super) fn begin(&mut self) -> Began {
        self.latest.0 += 1;
        self.latest
    }

    /// A scrape begins to read the jobs of its snapshot.
    pub(super) fn begin_scrape(&mut self) {
        self.scrape = Some(Scrape::default());
    }

    /// A running job could not be read.
    pub(super) fn miss(&mut self) {
        if let Some(scrape) = &mut self.scrape {
            scrape.incomplete = true;
        }
    }

    /// Whether the scrape that is being made could not read every running job.
    pub fn is_incomplete(&self) -> bool {
        self.scrape.as_ref().is_some_and(|scrape| scrape.incomplete)
    }

    /// It has read them.
    pub(super) fn end_scrape(&mut self) {
        self.scrape = None;
    }

    /// All readings, to be saved.
    pub(super) fn save(&self) -> Vec<Packed<'_>> {
        let mut saved: Vec<Packed<'_>> = Vec::new();
        for (run, (_, last)) in &self.jobs {
            saved.push((
                *run,
                None,
                match last {
                    Last::Read(reading) => Cow::Owned(durable_state::encode(&**reading)),
                    // Not copied: there may be thousands of them.
                    Last::Packed(bytes) => Cow::Borrowed(bytes),
                },
            ));
        }
        for (run, parts) in &self.below {
            for (key, (_, reading)) in parts {
                saved.push((*run, Some(*key), Cow::Owned(durable_state::encode(reading))));
            }
        }
        saved
    }

    /// The runs that have readings.
    pub(super) fn runs(&self) -> BTreeSet<JobRunId> {
        self.jobs.keys().chain(self.below.keys()).copied().collect()
    }

    /// The last reading of a job's own cgroup.
    pub fn job(&self, run: JobRunId) -> Option<Cow<'_, R>> {
        self.jobs.get(&run)?.1.get()
    }

    /// The sum of [`CgroupSource::amount`](super::CgroupSource::amount) over the jobs. It is kept, not added up: thousands of
    /// job runs may be retained.
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    /// Whether a job's reading is such a one. Decodes those of ended jobs.
    pub fn any(&self, is: impl Fn(&R) -> bool) -> bool {
        self.jobs.values().filter_map(|(_, last)| last.get()).any(|reading| is(&reading))
    }

    /// Whether running jobs were read and no reading has a certain value: then this machine lacks it.
    pub fn none_has(&self, snapshot: &NodeSnapshot, has: impl Fn(&R) -> bool) -> bool {
        let mut running =
            snapshot.jobs.iter().filter(|job| job.is_running()).filter_map(|job| self.job(job.run));
        let first = running.next();
        first.is_some_and(|first| !has(&first) && !running.any(|reading| has(&reading)))
    }

    pub(super) fn get(&self, run: JobRunId, part: Part) -> Option<Cow<'_, R>> {
        match part {
            None => self.job(run),
            Some(key) => self.below.get(&run)?.get(&key).map(|(_, reading)| Cow::Borrowed(reading)),
        }
    }

    /// Drops the parts of steps that the job has dropped. Checked only when there are many.
    pub(super) fn keep_parts(&mut self, job: &Job) {
        let Some(parts) = self.below.get_mut(&job.run) else { return };
        let present: usize = job.steps.iter().map(|step| 1 + step.tasks.len()).sum();
        if parts.len() > 2 * present {
            let steps: HashSet<u32> = job.steps.iter().map(|step| step.ordinal).collect();
            parts.retain(|(step, _), _| steps.contains(step));
        }
    }

    fn amount_of(&self, last: &Last<R>) -> u128 {
        last.get().map_or(0, |reading| u128::from((self.amount)(&reading)))
    }

    /// Keeps a reading that was taken while this was locked.
    pub fn insert(&mut self, run: JobRunId, part: Part, reading: R) {
        let began = self.begin();
        self.insert_begun(began, run, part, reading);
    }

    /// Keeps a reading, unless there is one that began later, or the run ended or was dropped since.
    pub(super) fn insert_begun(&mut self, began: Began, run: JobRunId, part: Part, reading: R) {
        if self.scrape.as_ref().is_some_and(|scrape| scrape.removed.contains(&run)) {
            return;
        }
        if let Some(key) = part {
            let parts = self.below.entry(run).or_default();
            if parts.get(&key).is_none_or(|(before, _)| *before < began) {
                parts.insert(key, (began, reading));
            }
            return;
        }
        let mut before = 0;
        if let Some((last_began, last)) = self.jobs.get(&run) {
            if began < *last_began {
                return;
            }
            before = self.amount_of(last);
        }
        self.sum = self.sum + u128::from((self.amount)(&reading)) - before;
        match self.jobs.get_mut(&run) {
            // The usual case, without an allocation.
            Some((last_began, Last::Read(last))) => {
                *last_began = began;
                **last = reading;
            }
            _ => drop(self.jobs.insert(run, (began, Last::Read(Box::new(reading))))),
        }
    }

    /// The job has ended: its reading changes no more, also by one that is under way.
    pub(super) fn pack(&mut self, run: JobRunId) {
        let now = self.begin();
        if let Some((began, last)) = self.jobs.get_mut(&run) {
            *began = now;
            if let Last::Read(reading) = last {
                *last = Last::Packed(durable_state::encode(&**reading).into_boxed_slice());
            }
        }
    }

    /// The readings of an exporter before this one. Most are those of ended jobs, and remain packed.
    pub(super) fn restored(amount: fn(&R) -> u64, saved: Vec<Packed<'_>>) -> Result<Self, Unreadable> {
        let mut readings = Self::new(amount);
        for (run, part, bytes) in saved {
            readings.insert(run, part, durable_state::decode(&bytes)?);
            if part.is_none() {
                let packed = Last::Packed(bytes.into_owned().into_boxed_slice());
                readings.jobs.insert(run, (readings.latest, packed));
            }
        }
        Ok(readings)
    }

    /// Drops the readings of a run. Returns the last one of the job's own cgroup.
    pub(super) fn remove(&mut self, run: JobRunId) -> Option<R> {
        if let Some(scrape) = &mut self.scrape {
            scrape.removed.insert(run);
        }
        self.below.remove(&run);
        let last = self.jobs.remove(&run)?.1.get()?.into_owned();
        self.sum -= u128::from((self.amount)(&last));
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: JobRunId = JobRunId(1);

    #[test]
    fn a_packed_reading_is_what_it_was_and_counts_once() {
        let mut readings = Readings::new(|reading: &(u64, Vec<u64>)| reading.0);
        readings.insert(JobRunId(2), None, (5, Vec::new()));
        readings.insert(RUN, None, (7, vec![1, 2]));
        readings.insert(RUN, Some((0, None)), (1, Vec::new()));
        readings.insert(RUN, None, (10, vec![3]));
        for _ in 0..2 {
            readings.pack(RUN);
            assert!(matches!(readings.jobs.get(&RUN), Some((_, Last::Packed(_)))));
            assert_eq!(readings.job(RUN).as_deref(), Some(&(10, vec![3])));
            assert_eq!(readings.get(RUN, Some((0, None))).as_deref(), Some(&(1, Vec::new())));
            assert_eq!(readings.sum(), 15);
        }
        // Restored, the job may still run.
        readings.insert(RUN, None, (11, Vec::new()));
        assert_eq!(readings.sum(), 16);
        readings.pack(RUN);
        assert_eq!(readings.remove(RUN), Some((11, Vec::new())));
        assert_eq!((readings.sum(), readings.runs().len()), (5, 1));
        readings.pack(RUN);
        assert_eq!(readings.job(RUN), None, "nothing to pack");
    }

    #[test]
    fn a_reading_that_began_earlier_replaces_none_that_began_later() {
        let mut readings = Readings::new(|reading: &u64| *reading);
        let part = Some((0, None));
        let slow = readings.begin();
        readings.insert(RUN, None, 10);
        readings.insert(RUN, part, 4);
        readings.insert_begun(slow, RUN, None, 7);
        readings.insert_begun(slow, RUN, part, 3);
        assert_eq!((readings.job(RUN).as_deref(), readings.sum()), (Some(&10), 10));
        assert_eq!(readings.get(RUN, part).as_deref(), Some(&4));
        // The job ends, and what it used last is found.
        let under_way = readings.begin();
        readings.insert(RUN, None, 15);
        readings.pack(RUN);
        readings.insert_begun(under_way, RUN, None, 12);
        assert_eq!((readings.job(RUN).as_deref(), readings.sum()), (Some(&15), 15));
    }

    #[test]
    fn a_run_that_is_dropped_while_it_is_read_stays_dropped() {
        let mut readings = Readings::new(|reading: &u64| *reading);
        readings.begin_scrape();
        readings.insert(RUN, None, 10);
        let under_way = readings.begin();
        assert_eq!(readings.remove(RUN), Some(10));
        readings.insert_begun(under_way, RUN, None, 12);
        readings.insert_begun(under_way, RUN, Some((0, None)), 12);
        assert_eq!((readings.sum(), readings.runs().len()), (0, 0));
        readings.end_scrape();
    }

    #[test]
    fn packed_readings_survive_a_restart() {
        let mut before = Readings::new(|reading: &u64| *reading);
        before.insert(RUN, None, 7);
        before.pack(RUN);
        before.insert(JobRunId(2), None, 9);
        let saved = durable_state::encode(&before.save());
        let restored = |saved| Readings::restored(|reading: &u64| *reading, saved);
        let after = restored(durable_state::decode(&saved).unwrap()).unwrap();
        assert_eq!((after.sum(), after.job(RUN).as_deref()), (16, Some(&7)));
        assert!(restored(vec![(RUN, None, Cow::Borrowed(&[][..]))]).is_err());
    }
}
