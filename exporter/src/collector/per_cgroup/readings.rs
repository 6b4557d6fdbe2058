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

/// The last reading of every cgroup of every job run that runs or is retained.
#[derive(Debug)]
pub struct Readings<R> {
    /// Ordered: a hash table grows to four times its entries where some come and others go.
    jobs: BTreeMap<JobRunId, Last<R>>,
    /// Those of steps and tasks, where they are exported: by ordinal of step, and of task within it.
    below: BTreeMap<JobRunId, BTreeMap<(u32, Option<u32>), R>>,
    /// What [`CgroupSource::amount`](super::CgroupSource::amount) says of the jobs' own readings, and the sum of it.
    amount: fn(&R) -> u64,
    sum: u128,
}

/// Which cgroup of a run: the job's (`None`), a step's, or a task's, by ordinals.
pub type Part = Option<(u32, Option<u32>)>;

impl<R: Clone + Serialize + DeserializeOwned> Readings<R> {
    /// None yet.
    pub fn new(amount: fn(&R) -> u64) -> Self {
        Self { jobs: BTreeMap::new(), below: BTreeMap::new(), amount, sum: 0 }
    }

    /// All readings, to be saved.
    pub(super) fn save(&self) -> Vec<Packed<'_>> {
        let mut saved: Vec<Packed<'_>> = Vec::new();
        for (run, last) in &self.jobs {
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
            for (key, reading) in parts {
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
        self.jobs.get(&run)?.get()
    }

    /// The sum of [`CgroupSource::amount`](super::CgroupSource::amount) over the jobs. It is kept, not added up: thousands of
    /// job runs may be retained.
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
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
            Some(key) => self.below.get(&run)?.get(&key).map(Cow::Borrowed),
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

    /// Keeps a reading.
    pub fn insert(&mut self, run: JobRunId, part: Part, reading: R) {
        if let Some(key) = part {
            self.below.entry(run).or_default().insert(key, reading);
            return;
        }
        self.sum += u128::from((self.amount)(&reading));
        if let Some(Last::Read(last)) = self.jobs.get_mut(&run) {
            // The usual case, without an allocation.
            let before = std::mem::replace(&mut **last, reading);
            self.sum -= u128::from((self.amount)(&before));
        } else if let Some(before) = self.jobs.insert(run, Last::Read(Box::new(reading))) {
            self.sum -= self.amount_of(&before);
        }
    }

    /// The job has ended: its reading changes no more.
    pub(super) fn pack(&mut self, run: JobRunId) {
        if let Some(last) = self.jobs.get_mut(&run)
            && let Last::Read(reading) = last
        {
            *last = Last::Packed(durable_state::encode(&**reading).into_boxed_slice());
        }
    }

    /// The readings of an exporter before this one. Most are those of ended jobs, and remain packed.
    pub(super) fn restored(amount: fn(&R) -> u64, saved: Vec<Packed<'_>>) -> Result<Self, Unreadable> {
        let mut readings = Self::new(amount);
        for (run, part, bytes) in saved {
            readings.insert(run, part, durable_state::decode(&bytes)?);
            if part.is_none() {
                readings.jobs.insert(run, Last::Packed(bytes.into_owned().into_boxed_slice()));
            }
        }
        Ok(readings)
    }

    /// Drops the readings of a run. Returns the last one of the job's own cgroup.
    pub(super) fn remove(&mut self, run: JobRunId) -> Option<R> {
        self.below.remove(&run);
        let last = self.jobs.remove(&run)?.get()?.into_owned();
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
            assert!(matches!(readings.jobs.get(&RUN), Some(Last::Packed(_))));
            assert_eq!(readings.job(RUN).as_deref(), Some(&(10, vec![3])));
            assert_eq!(readings.get(RUN, Some((0, None))).as_deref(), Some(&(1, Vec::new())));
            assert_eq!(readings.sum(), 15);
        }
        // A reading that was under way when the job ended.
        readings.insert(RUN, None, (11, Vec::new()));
        assert_eq!(readings.sum(), 16);
        readings.pack(RUN);
        assert_eq!(readings.remove(RUN), Some((11, Vec::new())));
        assert_eq!((readings.sum(), readings.runs().len()), (5, 1));
        readings.pack(RUN);
        assert_eq!(readings.job(RUN), None, "nothing to pack");
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
