//! Sources that are read once per cgroup: of jobs always, of steps and tasks on request. Keeps the last reading of
//! each, which is exported while an ended job is retained.

mod readings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cgroups::View;
use exposition::{Family, Level, PerCgroup, Section, SubjectId, Value};
use kernel_files::Buffer;
use parking_lot::{Mutex, MutexGuard};
use readings::{Began, Packed};
pub use readings::{Part, Readings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slurm_jobs::{
    Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup, SlurmCgroup, Step, Task,
};

use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::{Built, Collector, SourceError, Tally};

/// A cgroup of a job: its own, or one of a step or a task of it.
#[derive(Debug)]
pub struct Group<'a> {
    /// The job.
    pub job: &'a Job,
    /// The step that it is, or is in.
    pub step: Option<&'a Step>,
    /// The cgroup.
    pub view: View<'a>,
    /// The cgroup that carries the limits: a step's are on its `user` directory.
    pub limits: View<'a>,
}

impl<'a> Group<'a> {
    /// A job's own.
    pub fn of_job(job: &'a Job) -> Self {
        Self { job, step: None, view: job.cgroup.view(), limits: job.cgroup.view() }
    }
}

/// A source that is read once per cgroup.
pub trait CgroupSource: Send + Sync + 'static {
    /// What one cgroup yields; every field optional, since every kernel and every site lacks something.
    type Reading: Clone + Send + Serialize + DeserializeOwned + 'static;

    /// Whether anything of a reading outlives its cgroup. If not, no step and no task is read when something of a job ends.
    const OUTLIVES: bool = true;

    /// Whether a job is read between scrapes nevertheless: as soon as it may be bound, and when a step or task of it
    /// ends.
    fn wants(&self, _job: &Job) -> bool {
        false
    }

    /// Reads one cgroup.
    fn read(&self, group: &Group<'_>, buffer: &mut Buffer) -> Result<Self::Reading, SourceError>;

    /// The part of a job's reading that [`Readings::sum`] adds up, where a source needs that.
    fn amount(_reading: &Self::Reading) -> u64 {
        0
    }

    /// Adds to a job's fresh reading what only its parts have; `last` is the reading before it.
    fn complete(
        &self,
        _job: &Job,
        _last: Option<&Self::Reading>,
        _fresh: &mut Self::Reading,
        _buffer: &mut Buffer,
    ) -> Result<(), SourceError> {
        Ok(())
    }

    /// Pushes the samples of a reading. Those of an ended cgroup that do not outlive it are left out by `out`.
    fn emit(&self, reading: &Self::Reading, out: &mut Emit<'_>);

    /// A scrape shows this reading of a job's own cgroup.
    fn shown(&self, _reading: &Self::Reading) {}

    /// Called before the job directories are listed for a scrape.
    fn before_walk(&self, _scopes: &[Arc<SlurmCgroup>], _buffer: &mut Buffer) {}

    /// Called before job runs end (`JobObserver::before_end`).
    fn before_end(&self, _scopes: &[Arc<SlurmCgroup>], _buffer: &mut Buffer) {}

    /// Called before the jobs of a scrape are read.
    fn begin(&self, _snapshot: &NodeSnapshot, _buffer: &mut Buffer) -> Result<(), SourceError> {
        Ok(())
    }

    /// Called after the jobs of a scrape were read and pushed.
    fn finish(
        &self,
        _snapshot: &NodeSnapshot,
        _readings: &mut Readings<Self::Reading>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), SourceError> {
        Ok(())
    }

    /// Called when a job's directory is gone.
    fn vanished(
        &self,
        _gone: &RemovedCgroup<'_>,
        _readings: &mut Readings<Self::Reading>,
        _buffer: &mut Buffer,
    ) {
    }

    /// What the source keeps beside the readings, to be saved.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes over what an exporter before this one kept.
    fn restore(&self, _saved: &[u8], _before: &Before) -> Result<(), Unreadable> {
        Ok(())
    }

    /// Called when a job run is not retained any more, with its last reading.
    fn forget(&self, _run: JobRunId, _last: Option<&Self::Reading>, _disposition: Disposition) {}
}

/// Where a source pushes the samples of one cgroup.
pub struct Emit<'a> {
    job: &'a Job,
    section: &'a mut Section,
    subject: SubjectId,
    level: Level,
    running: bool,
}

impl<'a> Emit<'a> {
    /// Pushes a sample where there is one.
    pub fn push(
        &mut self,
        family: &'static PerCgroup,
        labels: &[(&'static str, &str)],
        value: Option<impl Into<Value>>,
    ) {
        self.push_one(family.at(self.level), labels, value);
    }

    /// The same of a family that has one level alone.
    pub fn push_one(
        &mut self,
        family: &'static Family,
        labels: &[(&'static str, &str)],
        value: Option<impl Into<Value>>,
    ) {
        if let Some(value) = value
            && (self.running || family.outlives_job)
        {
            self.section.push(family, self.subject, labels, value);
        }
    }

    /// The job, if this is the job itself and not a part of it.
    pub fn job(&self) -> Option<&'a Job> {
        (self.level == Level::Job).then_some(self.job)
    }
}

struct Shared<S: CgroupSource> {
    source: S,
    readings: Mutex<Readings<S::Reading>>,
    /// Files that live cgroups of this machine lack, per level, plus one; 0 before the first.
    usually_missing: [AtomicU32; 3],
}

/// A reading, and when it began.
type Fresh<R> = (Began, R);

/// Makes a collector of a source.
pub fn build<S: CgroupSource>(source: S) -> Built {
    let shared = Arc::new(Shared {
        source,
        readings: Mutex::new(Readings::new(S::amount)),
        usually_missing: Default::default(),
    });
    let collector = PerCgroupCollector { shared: shared.clone(), buffer: Buffer::default() };
    Built::with_accounts(collector, shared)
}

/// What is saved of a source: its readings, and what it keeps beside them.
#[derive(Serialize, Deserialize)]
struct Saved<'a> {
    readings: Vec<Packed<'a>>,
    source: Vec<u8>,
}

impl<S: CgroupSource> Durable for Shared<S> {
    fn save(&self) -> Option<Vec<u8>> {
        let readings = self.readings();
        Some(durable_state::encode(&Saved { readings: readings.save(), source: self.source.save() }))
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: Saved<'_> = durable_state::decode(section)?;
        let restored = Readings::restored(S::amount, saved.readings)?;
        self.source.restore(&saved.source, before)?;
        let mut readings = self.readings();
        *readings = restored;
        for run in readings.runs().into_iter().filter(|run| !before.knows(*run)) {
            self.source.forget(run, readings.remove(run).as_ref(), Disposition::Dropped);
        }
        Ok(())
    }
}

impl<S: CgroupSource> Shared<S> {
    fn readings(&self) -> MutexGuard<'_, Readings<S::Reading>> {
        // A panic while it was held was caught and counted; the map itself is never left half-written.
        self.readings.lock()
    }

    /// Reads a cgroup; `None` when it went away, also when that happened between two of its files.
    fn read(
        &self,
        group: &Group<'_>,
        level: Level,
        buffer: &mut Buffer,
    ) -> Result<Option<Fresh<S::Reading>>, SourceError> {
        let began = self.readings().begin();
        let reading = self.source.read(group, buffer).map(|reading| Some((began, reading)));
        let missing = group.view.missing() + group.limits.missing() + 1;
        let slot = match level {
            Level::Task => 2,
            Level::Step => 1,
            _ => 0,
        };
        let Some(usual) = self.usually_missing.get(slot) else { return reading };
        if missing != 1 && usual.load(Ordering::Relaxed) != missing {
            if group.view.is_gone() {
                return Ok(None);
            }
            usual.store(missing, Ordering::Relaxed);
        }
        reading
    }

    fn read_job(&self, job: &Job, buffer: &mut Buffer) -> Result<Option<Fresh<S::Reading>>, SourceError> {
        let mut reading = self.read(&Group::of_job(job), Level::Job, buffer)?;
        if let Some((_, fresh)) = &mut reading {
            self.source.complete(job, self.readings().job(job.run).as_deref(), fresh, buffer)?;
        }
        Ok(reading)
    }

    /// Reads a job between scrapes. The next scrape finds a failure again, and reports it.
    fn take(&self, job: &Job, buffer: &mut Buffer) {
        if let Ok(Some((began, reading))) = self.read_job(job, buffer) {
            self.readings().insert_begun(began, job.run, None, reading);
        }
    }

    fn read_step(
        &self,
        job: &Job,
        step: &Step,
        buffer: &mut Buffer,
    ) -> Result<Option<Fresh<S::Reading>>, SourceError> {
        let (Some(view), Some(limits)) = (step.view(job), step.user_view(job)) else { return Ok(None) };
        self.read(&Group { job, step: Some(step), view, limits }, Level::Step, buffer)
    }

    fn read_task(
        &self,
        job: &Job,
        (step, task): (&Step, &Task),
        buffer: &mut Buffer,
    ) -> Result<Option<Fresh<S::Reading>>, SourceError> {
        let Some(view) = step.task_view(job, task) else { return Ok(None) };
        self.read(&Group { job, step: Some(step), limits: view.clone(), view }, Level::Task, buffer)
    }
}

struct PerCgroupCollector<S: CgroupSource> {
    shared: Arc<Shared<S>>,
    buffer: Buffer,
}

impl<S: CgroupSource> PerCgroupCollector<S> {
    /// Takes a fresh reading where there is one, else the last; pushes it.
    fn emit_subject(
        &self,
        fresh: Result<Option<Fresh<S::Reading>>, SourceError>,
        (job, part): (&Job, Part),
        (level, running): (Level, bool),
        (out, subject): (&mut Section, SubjectId),
        tally: &mut Tally,
    ) {
        // A failed reading emits no sample. The last reading in its place would look like a job that idles.
        let fresh = tally.note(fresh);
        let mut readings = self.shared.readings();
        if level == Level::Job && running && !matches!(fresh, Some(Some(_))) {
            readings.miss();
        }
        let Some(fresh) = fresh else { return };
        let running = running && fresh.is_some();
        let mut emit = Emit { job, section: out, subject, level, running };
        if let Some((began, reading)) = fresh {
            readings.insert_begun(began, job.run, part, reading);
        }
        let Some(reading) = readings.get(job.run, part) else { return };
        self.shared.source.emit(&reading, &mut emit);
        if part.is_none() {
            self.shared.source.shown(&reading);
        }
    }

    fn steps(&mut self, job: &Job, snapshot: &NodeSnapshot, out: &mut Section, tally: &mut Tally) {
        for step in job.exported_steps() {
            let running = job.is_running() && step.ended.is_none();
            let name = step.id.to_string();
            let own = [("step", name.as_str())];
            let subject = out.subject_since(job.labels().chain(own), step.began);
            let fresh = if running { self.shared.read_step(job, step, &mut self.buffer) } else { Ok(None) };
            let key = (job, Some((step.ordinal, None)));
            self.emit_subject(fresh, key, (Level::Step, running), (out, subject), tally);
            if !snapshot.levels.tasks {
                continue;
            }
            for task in &step.tasks {
                let task_name = task.id.to_string();
                let own = [("step", name.as_str()), ("task", task_name.as_str())];
                let subject = out.subject_since(job.labels().chain(own), task.began);
                let task_of = (step, task);
                let fresh =
                    if running { self.shared.read_task(job, task_of, &mut self.buffer) } else { Ok(None) };
                let key = (job, Some((step.ordinal, Some(task.ordinal))));
                self.emit_subject(fresh, key, (Level::Task, running), (out, subject), tally);
            }
        }
    }
}

impl<S: CgroupSource> Collector for PerCgroupCollector<S> {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let shared = self.shared.clone();
        shared.source.begin(snapshot, &mut self.buffer)?;
        shared.readings().begin_scrape();
        let mut tally = Tally::default();
        for job in &snapshot.jobs {
            let subject = out.subject_since(job.labels(), job.counters_began());
            let running = job.is_running();
            let fresh = if running { shared.read_job(job, &mut self.buffer) } else { Ok(None) };
            self.emit_subject(fresh, (job, None), (Level::Job, running), (out, subject), &mut tally);
            if snapshot.levels.steps {
                self.steps(job, snapshot, out, &mut tally);
                shared.readings().keep_parts(job);
            }
        }
        for job in snapshot.pending.iter().filter(|job| job.is_running()) {
            let fresh = tally.note(shared.read_job(job, &mut self.buffer)).flatten();
            let mut readings = shared.readings();
            match fresh {
                Some((began, reading)) => readings.insert_begun(began, job.run, None, reading),
                None => readings.miss(),
            }
        }
        let mut readings = shared.readings();
        let finished = shared.source.finish(snapshot, &mut readings, &mut self.buffer, out);
        readings.end_scrape();
        tally.result().and(finished)
    }
}

impl<S: CgroupSource> JobObserver for Shared<S> {
    fn before_walk(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        self.source.before_walk(scopes, buffer);
    }

    fn before_end(&self, scopes: &[Arc<SlurmCgroup>], buffer: &mut Buffer) {
        self.source.before_end(scopes, buffer);
    }

    fn cpus_assigned(&self, job: &Job, buffer: &mut Buffer) {
        if self.source.wants(job) {
            self.take(job, buffer);
        }
    }

    fn checkpoint(&self, job: &Job, step: Option<u32>, levels: Levels, buffer: &mut Buffer) {
        if S::OUTLIVES || self.source.wants(job) {
            self.take(job, buffer);
        }
        if !S::OUTLIVES {
            return;
        }
        let step = job.steps.iter().find(|s| levels.steps && Some(s.ordinal) == step);
        let Some(step) = step else { return };
        if let Ok(Some((began, reading))) = self.read_step(job, step, buffer) {
            self.readings().insert_begun(began, job.run, Some((step.ordinal, None)), reading);
        }
        for task in step.tasks.iter().filter(|_| levels.tasks) {
            if let Ok(Some((began, reading))) = self.read_task(job, (step, task), buffer) {
                let part = Some((step.ordinal, Some(task.ordinal)));
                self.readings().insert_begun(began, job.run, part, reading);
            }
        }
    }

    fn cgroup_removed(&self, gone: &RemovedCgroup<'_>, buffer: &mut Buffer) {
        let mut readings = self.readings();
        self.source.vanished(gone, &mut readings, buffer);
        readings.pack(gone.job.run);
    }

    fn job_removed(&self, run: JobRunId, disposition: Disposition) {
        // Held until the source has counted it: a scrape would find the time of no job.
        let mut readings = self.readings();
        let last = readings.remove(run);
        self.source.forget(run, last.as_ref(), disposition);
    }
}

#[cfg(test)]
mod tests;
