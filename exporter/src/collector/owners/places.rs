//! Which job of a snapshot a section's subject is. The memory is kept from one collection to the next.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use exposition::Section;
use slurm_jobs::Job;

/// What distinguishes the jobs of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Name<'a> {
    id: Option<&'a str>,
    node: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn of(labels: impl Iterator<Item = (&'static str, &'a str)>) -> Self {
        labels.fold(Self::default(), |name, (key, value)| match key {
            "jobid" => Self { id: Some(value), ..name },
            "slurm_node" => Self { node: Some(value), ..name },
            _ => name,
        })
    }
}

/// The places of jobs in a snapshot.
#[derive(Debug, Default)]
pub(super) struct Places {
    hasher: RandomState,
    /// By the hash of a name: names borrow from the snapshot.
    jobs: HashMap<u64, usize>,
    /// Of each subject of a section, the place of its job.
    subjects: Vec<Option<usize>>,
}

impl Places {
    /// Takes the jobs of a snapshot.
    pub(super) fn note(&mut self, jobs: &[Arc<Job>]) {
        self.jobs.clear();
        for (place, job) in jobs.iter().enumerate() {
            self.jobs.insert(self.hasher.hash_one(Name::of(job.labels())), place);
        }
    }

    /// Takes the subjects of a section.
    pub(super) fn enter(&mut self, section: &Section, jobs: &[Arc<Job>]) {
        self.subjects.clear();
        for (labels, _) in section.subjects() {
            let name = Name::of(labels);
            let is = |job: &Arc<Job>| Name::of(job.labels()) == name;
            let place = self.jobs.get(&self.hasher.hash_one(name)).copied();
            let place = match place.and_then(|place| jobs.get(place)) {
                Some(job) if is(job) => place,
                // Two names have one hash.
                Some(_) => jobs.iter().position(is),
                None => None,
            };
            self.subjects.push(place);
        }
    }

    /// The job's place of a subject of the section.
    pub(super) fn of(&self, subject: usize) -> Option<usize> {
        self.subjects.get(subject).copied().flatten()
    }
}
