//! The samples of one collection, and how a request gets its part of them.

use std::sync::{Arc, Weak};

use exporter_toolkit::{Bytes, Format, Selection};
use exposition::{Created, Level, Section};
use parking_lot::Mutex;
use slurm_jobs::{Job, NodeSnapshot};

use super::ScrapeError;
use super::encode::encode;

/// Where the buffers of samples return to.
pub(super) trait Buffers: Send + Sync {
    /// Takes the buffer of the collector in this place, or that of the health of all.
    fn give_back(&self, at: Option<usize>, section: Section);
    /// Name of the collector in this place.
    fn name(&self, at: usize) -> Option<&'static str>;
}

/// The samples of one collection, which nothing changes any more. Dropped, it returns the buffers.
pub(super) struct Snapshot {
    /// Of each collector that was done, by its place.
    pub(super) sections: Vec<(usize, Arc<Section>)>,
    /// The collectors' health.
    pub(super) health: Arc<Section>,
    /// Ended jobs whose samples are all in it.
    pub(super) ended: Arc<[Arc<Job>]>,
    /// Whether every collector of jobs was done.
    pub(super) is_whole: bool,
    /// The whole of it in the formats that were asked for, encoded once.
    pub(super) encoded: Mutex<Vec<(Format, Bytes)>>,
    pub(super) buffers: Weak<dyn Buffers>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let Some(buffers) = self.buffers.upgrade() else { return };
        let of_collectors = self.sections.drain(..).map(|(at, section)| (Some(at), section));
        for (at, section) in of_collectors.chain([(None, std::mem::take(&mut self.health))]) {
            if let Ok(mut section) = Arc::try_unwrap(section) {
                section.clear();
                buffers.give_back(at, section);
            }
        }
    }
}

impl Snapshot {
    /// The part that was selected, in this format. `capacity` is what the last encoding of a whole took.
    pub(super) fn encode(
        &self,
        selection: &Selection,
        format: Format,
        created: Created,
        capacity: &Mutex<usize>,
    ) -> Result<Bytes, ScrapeError> {
        if *selection != Selection::default() {
            return encode(&self.selected(selection), format, created, 0);
        }
        // Held while it is encoded: the next request of this format waits for it.
        let mut known = self.encoded.lock();
        if let Some((_, bytes)) = known.iter().find(|(known, _)| *known == format) {
            return Ok(bytes.clone());
        }
        let mut capacity = capacity.lock();
        let sections = self.sections.iter().map(|(_, section)| section).chain([&self.health]);
        let sections: Vec<Arc<Section>> = sections.cloned().collect();
        let bytes = encode(&sections, format, created, *capacity)?;
        *capacity = bytes.len();
        known.push((format, bytes.clone()));
        Ok(bytes)
    }

    /// The samples of the selected collectors and of their health.
    fn selected(&self, selection: &Selection) -> Vec<Arc<Section>> {
        let buffers = self.buffers.upgrade();
        let name = |at: usize| buffers.as_ref().and_then(|buffers| buffers.name(at));
        let wanted = |(at, _): &&(usize, Arc<Section>)| name(*at).is_some_and(|name| selection.wants(name));
        let mut sections: Vec<_> =
            self.sections.iter().filter(wanted).map(|(_, section)| section.clone()).collect();
        let of = |label: Option<&str>| label.is_none_or(|name| selection.wants(name));
        sections.push(Arc::new(self.health.only(|sample| of(sample.label("collector")))));
        sections
    }
}

/// Keeps the number of samples within the limit, 0 for none: the finest levels go first, then the last jobs. Calls `dropped`
/// with the place of the collector, what was left out, and how many samples. Returns how many of the jobs, which are in
/// the order of their samples, have all of theirs.
pub(super) fn limit(
    most: usize,
    sections: &mut [(usize, Arc<Section>)],
    jobs: &[Arc<Job>],
    mut dropped: impl FnMut(usize, &'static str, usize),
) -> usize {
    let total = |sections: &[(usize, Arc<Section>)]| sections.iter().map(|(_, s)| s.len()).sum::<usize>();
    if most == 0 || total(sections) <= most {
        return jobs.len();
    }
    for (level, reason) in [(Level::Task, "tasks"), (Level::Step, "steps")] {
        for (at, section) in sections.iter_mut() {
            // A copy only if a request is just being answered with this section.
            dropped(*at, reason, Arc::make_mut(section).drop_level(level));
        }
        if total(sections) <= most {
            return jobs.len();
        }
    }
    let (now, mut whole) = (total(sections), jobs.len());
    for (at, section) in sections.iter_mut() {
        let room = section.len() * most / now.max(1);
        let cut = Arc::make_mut(section).truncate_jobs(room);
        dropped(*at, "jobs", cut.samples);
        let is_cut = |job: &&Arc<Job>| {
            cut.first.iter().any(|subject| {
                job.labels.iter().all(|(key, value)| section.label_of(*subject, key) == Some(value.as_str()))
            })
        };
        let first = jobs.iter().position(|job| is_cut(&job)).unwrap_or(0);
        if cut.samples > 0 {
            whole = whole.min(first);
        }
    }
    whole
}

/// The ended ones of the first `whole` jobs.
pub(super) fn ended(snapshot: &NodeSnapshot, whole: usize) -> Arc<[Arc<Job>]> {
    snapshot.jobs.iter().take(whole).filter(|job| !job.is_running()).cloned().collect()
}

#[cfg(test)]
mod tests {
    use exposition::{Family, SubjectId};

    use super::*;
    use crate::collector::testing::{Machine, ended as ended_job, job, snapshot_of};

    static FIRST: Family = Family::gauge("jobledger_job_first").labels(&["own"]).help("First");
    static SECOND: Family = Family::gauge("jobledger_job_second").labels(&["own"]).help("Second");
    static NODE: Family = Family::gauge("jobledger_node_now").help("Now");

    /// Samples of jobs with the ids 1, 2, ... in one family.
    fn section(family: &'static Family, jobs: usize) -> Arc<Section> {
        let mut section = Section::default();
        for id in 1..=jobs {
            let subject = section.subject([("jobid", id.to_string().as_str())]);
            for own in ["a", "b"] {
                section.push(family, subject, &[("own", own)], 1);
            }
        }
        Arc::new(section)
    }

    /// The end of a job of which the reader lacks samples must be in a later page.
    #[test]
    fn a_job_that_lost_samples_to_the_limit_is_not_among_the_whole_ones() {
        let machine = Machine::new();
        machine.write("cgroup/job/cgroup.procs", "");
        let jobs = (1..=10).map(|id| ended_job(&job(id, machine.v2("job"), &[]))).collect();
        let snapshot = snapshot_of(machine.roots(), jobs);
        let sections = || vec![(0, section(&FIRST, 10)), (1, section(&SECOND, 10))];
        for (most, wanted) in [(0, 10), (40, 10), (39, 9), (20, 5), (4, 1), (1, 0)] {
            let (mut sections, mut left_out) = (sections(), 0);
            let held = sections.clone();
            let whole = limit(most, &mut sections, &snapshot.jobs, |_, _, samples| left_out += samples);
            assert_eq!((whole, ended(&snapshot, whole).len()), (wanted, wanted), "at most {most}");
            let kept: usize = sections.iter().map(|(_, section)| section.len()).sum();
            assert!(most == 0 || kept <= most);
            let before: usize = held.iter().map(|(_, section)| section.len()).sum();
            assert_eq!((kept + left_out, before), (40, 40), "a copy is cut");
        }
    }

    #[test]
    fn what_is_of_the_node_is_no_job_that_lost_samples() {
        let mut section = Section::default();
        (0..5).for_each(|_| section.push(&NODE, SubjectId::NODE, &[], 1));
        let mut sections = vec![(0, Arc::new(section))];
        assert_eq!(limit(2, &mut sections, &[], |_, _, samples| assert_eq!(samples, 0)), 0);
    }
}
