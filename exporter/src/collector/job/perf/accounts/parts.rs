//! Steps and tasks of the counted jobs, where counters are divided in BPF. They take no counters of their own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use cgroups::View;
use kernel_files::ReadError;
use perf_counters::counting::{Counted, Counting, NotCounted};
use perf_counters::tally::{SavedTally, Tally};
use perf_events::OpenError;
use slurm_jobs::{Job, JobRunId, Step};

use super::super::divided::Way;
use super::PerfAccounts;

/// A step of a run, or a task of it, by ordinals.
pub(in super::super) type Part = (u32, Option<u32>);

/// The steps and tasks of a run.
#[derive(Default)]
pub(super) struct Parts {
    live: BTreeMap<Part, Counted>,
    /// Those that are over, and what was counted of others before the counters were released.
    over: BTreeMap<Part, SavedTally>,
    /// Those that are there and not counted as a whole: they are not counted later either.
    refused: BTreeMap<Part, NotCounted>,
}

impl Parts {
    /// Takes over what an exporter before this one counted.
    pub(super) fn take_over(&mut self, before: BTreeMap<Part, SavedTally>) {
        for (part, tally) in before {
            self.over.entry(part).or_insert(tally);
        }
    }

    /// Follows one that is there, unless that was done already.
    fn follow(&mut self, part: Part, view: Option<View<'_>>, counting: &Counting) {
        if self.live.contains_key(&part) || self.refused.contains_key(&part) {
            return;
        }
        // One that is gone already needs nothing.
        let Some(Ok(directory)) = view.map(|view| directory(&view)) else { return };
        match counting.follow(&directory, self.over.get(&part)) {
            Ok(counted) => {
                self.over.remove(&part);
                self.live.insert(part, counted);
            }
            Err(OpenError::Descriptors) => drop(self.refused.insert(part, NotCounted::Room)),
            Err(error) => drop(self.refused.insert(part, NotCounted::Failed(error))),
        }
    }

    /// Reads those that are there.
    pub(super) fn read(&mut self, counting: &mut Counting) {
        for counted in self.live.values_mut() {
            counting.open_where_it_ran(counted);
            counting.read(counted);
        }
    }

    /// These are over: reads them a last time.
    pub(super) fn end(&mut self, counting: &mut Counting, which: impl Fn(Part) -> bool) {
        for (_, counted) in self.live.iter_mut().filter(|(part, _)| which(**part)) {
            counting.open_where_it_ran(counted);
        }
        self.close(counting, &which);
        self.refused.retain(|part, _| !which(*part));
    }

    /// The counters were stopped. What was done since the last reading on a CPU that was new is not counted.
    pub(super) fn release(&mut self, counting: &mut Counting) {
        self.close(counting, |_| true);
    }

    fn close(&mut self, counting: &mut Counting, which: impl Fn(Part) -> bool) {
        for (part, mut counted) in self.live.extract_if(.., |part, _| which(*part)) {
            counting.close(&mut counted);
            if counted.is_whole() {
                self.over.insert(part, counting.save(&counted));
            } else {
                self.refused.insert(part, NotCounted::Room);
            }
        }
    }

    /// Drops those of steps that the job has dropped. Looks only when they are many.
    fn keep(&mut self, job: &Job) {
        let present: usize = job.steps.iter().map(|step| 1 + step.tasks.len()).sum();
        if self.over.len() > 2 * present {
            let steps: BTreeSet<u32> = job.steps.iter().map(|step| step.ordinal).collect();
            self.over.retain(|(step, _), _| steps.contains(step));
        }
    }

    /// What is to be saved.
    pub(super) fn save(&self, counting: &Counting) -> BTreeMap<Part, SavedTally> {
        let whole = self.live.iter().filter(|(_, counted)| counted.is_whole());
        let live = whole.map(|(part, counted)| (*part, counting.save(counted)));
        self.over.iter().map(|(part, tally)| (*part, tally.clone())).chain(live).collect()
    }

    fn not_counted(&self, part: Part) -> Option<NotCounted> {
        let lacks = |counted: &Counted| (!counted.is_whole()).then_some(NotCounted::Room);
        self.refused.get(&part).copied().or_else(|| lacks(self.live.get(&part)?))
    }
}

fn directory(view: &View<'_>) -> Result<File, ReadError> {
    view.open(Way::divides(view.version()))?.readable().map(File::from)
}

impl PerfAccounts {
    /// Follows steps of a run that are there, and their tasks.
    pub(in super::super) fn follow_steps(&mut self, run: JobRunId, steps: &[Step]) {
        let levels = self.options.levels;
        let yielded = self.is_yielded();
        let (Some(known), Some(counting)) = (self.runs.get_mut(&run), &self.counting) else { return };
        if yielded || !levels.steps || !counting.follows() || known.counted.is_none() || known.gone {
            return;
        }
        for step in steps.iter().filter(|step| step.ended.is_none()) {
            known.parts.follow((step.ordinal, None), step.view(&known.job), counting);
            for task in step.tasks.iter().filter(|_| levels.tasks) {
                let part = (step.ordinal, Some(task.ordinal));
                known.parts.follow(part, step.task_view(&known.job, task), counting);
            }
        }
    }

    /// The same for all steps that are known of it.
    pub(super) fn follow_steps_of(&mut self, run: JobRunId) {
        if let Some(job) = self.runs.get(&run).map(|known| known.job.clone()) {
            self.follow_steps(run, &job.steps);
        }
    }

    /// A step is over.
    pub(in super::super) fn step_ended(&mut self, run: JobRunId, step: u32) {
        if let (Some(known), Some(counting)) = (self.runs.get_mut(&run), &mut self.counting) {
            known.parts.end(counting, |(of, _)| of == step);
        }
    }

    /// Brings the steps of a job up to date, whatever events were missed. Newer ones than the scrape knows may be followed already.
    pub(super) fn take_in_steps(&mut self, job: &Job) {
        self.follow_steps(job.run, &job.steps);
        if let (Some(known), Some(counting)) = (self.runs.get_mut(&job.run), &mut self.counting) {
            let over = job.steps.iter().filter(|step| step.ended.is_some()).map(|step| step.ordinal);
            let over: BTreeSet<u32> = over.collect();
            known.parts.end(counting, |(step, _)| over.contains(&step));
            known.parts.keep(job);
        }
    }

    /// What was counted of a step or a task, if that is all of it, and else why not.
    pub(in super::super) fn part(
        &self,
        run: JobRunId,
        part: Part,
    ) -> Option<Result<Cow<'_, Tally>, NotCounted>> {
        let counting = self.counting.as_ref()?;
        let parts = self.runs.get(&run).map(|known| &known.parts);
        if let Some(not_counted) = parts.and_then(|parts| parts.not_counted(part)) {
            return Some(Err(not_counted));
        }
        if let Some(live) = parts.and_then(|parts| parts.live.get(&part)) {
            return Some(Ok(Cow::Borrowed(live.tally())));
        }
        let over = parts.and_then(|parts| parts.over.get(&part));
        let over = over.or_else(|| self.kept.get(&run)?.parts.get(&part))?;
        Some(Ok(Cow::Owned(counting.restored(over))))
    }
}
