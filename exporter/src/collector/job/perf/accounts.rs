//! The counted jobs, and the open counters of each.

mod parts;
mod saved;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::{Controller, Version};
use cpu_topology::{CpuSet, online};
use kernel_files::{Buffer, NodeFiles, ReadError, Roots};
use perf_counters::counting::{Counted, Counting, Mode, NotCounted};
use perf_counters::probe::probe;
use perf_counters::sharing::CounterOwnership;
use perf_counters::tally::{RejectReason, Tally};
use perf_events::{Open, OpenError};
use rustix::process::{Resource, getrlimit};
use slurm_jobs::{Job, JobRunId, NodeSnapshot, binding};

pub(super) use self::parts::Part;
use self::parts::Parts;
use self::saved::Kept;
use super::divided::{Way, mounted};
use super::exclusive::has_its_cpus_alone;
use super::options::PerfOptions;
use crate::collector::job::cpu::cpu_time;
use crate::collector::{BuildContext, SourceError};

/// Jobs that may share a CPU before the later ones are not counted there.
const JOBS_PER_CPU: usize = 4;
/// Descriptors that are left for everything else.
const RESERVE: u64 = 4096;
/// A plan lasts for so long at least, for not all that disturbs it goes away by another one.
const PLAN_LASTS: Duration = Duration::from_secs(600);

/// A job that is not bound yet (`slurm::binding`) would be counted on every CPU of the node, so its binding is waited for: looked
/// for after each of these times, in milliseconds. Then it is counted there.
const LOOKS: [u64; 7] = [5, 10, 20, 40, 80, 160, 400];

/// The state of one run.
pub(super) struct CountedRun {
    job: Arc<Job>,
    /// Its counters, also closed ones, which keep their counts.
    pub(super) counted: Option<Counted>,
    parts: Parts,
    /// CPU time that it had used when that was read last, microseconds.
    pub(super) cpu_usec: Option<u64>,
    /// The CPUs that it may use, when it is bound to some.
    cpus: Option<CpuSet>,
    /// Whether it may yet be bound to some.
    unbound: bool,
    /// Since when it is known, and how often its binding was looked for.
    appeared: Instant,
    looks: usize,
    /// Why it has no counters.
    pub(super) not_counted: Option<NotCounted>,
    gone: bool,
}

impl CountedRun {
    /// When to look for its binding next.
    fn waits(&self) -> Option<Instant> {
        let wait = LOOKS.get(self.looks).filter(|_| self.unbound && !self.gone && self.counted.is_none())?;
        Some(self.appeared + Duration::from_millis(*wait))
    }

    fn looked_for(&self) -> bool {
        self.waits().is_some_and(|at| at <= Instant::now())
    }
}

/// All of them.
pub(super) struct PerfAccounts {
    roots: Arc<Roots>,
    files: NodeFiles,
    options: PerfOptions,
    ownership: CounterOwnership,
    /// Of SLURM's cgroups; before there is one, what is to be expected.
    version: Option<Version>,
    /// How cgroups are counted.
    pub(super) way: Way,
    /// What counts, as soon as it is known what this kernel can.
    pub(super) counting: Option<Counting>,
    /// When that was looked at again, and the CPUs where groups had no counters.
    planned_again: Option<Instant>,
    suspect: BTreeSet<u32>,
    pub(super) runs: BTreeMap<JobRunId, CountedRun>,
    /// What an exporter before this one counted of runs that this one has no counters of (yet).
    pub(super) kept: BTreeMap<JobRunId, Kept>,
    /// How often it did not believe an interval.
    pub(super) rejected_before: Vec<u64>,
    buffer: Buffer,
}

impl PerfAccounts {
    pub(super) fn new(context: &BuildContext) -> Self {
        Self {
            roots: context.roots.clone(),
            files: NodeFiles::new(&context.roots),
            options: context.options.get(),
            ownership: context.ownership.clone(),
            version: None,
            way: Way::default(),
            counting: None,
            planned_again: None,
            suspect: BTreeSet::new(),
            runs: BTreeMap::new(),
            kept: BTreeMap::new(),
            rejected_before: Vec::new(),
            buffer: Buffer::default(),
        }
    }

    /// Whether another owner has the counters now.
    pub(super) fn is_yielded(&self) -> bool {
        self.ownership.is_yielded()
    }

    /// SLURM's cgroups are of this version.
    fn is_of(&mut self, version: Version) {
        let expected = self.version.replace(version);
        if expected.is_some_and(|expected| expected != version)
            && self.options.may_divide()
            && self.runs.is_empty()
        {
            (self.way, self.counting) = (Way::default(), None);
        }
    }

    /// Sees what this kernel can count, once it lets that be seen.
    fn prepare(&mut self) -> Result<(), SourceError> {
        if self.counting.is_some() || self.ownership.is_yielded() {
            return Ok(());
        }
        self.version = self.version.or_else(|| mounted(&self.roots));
        let Some(plan) = &self.options.plan else {
            return Err(SourceError::Unsupported { needs: "a plan of what to count".to_owned() });
        };
        let unsupported = || SourceError::Unsupported { needs: "the list of CPUs in sysfs".to_owned() };
        let online = online(&mut self.files)?.ok_or_else(unsupported)?;
        let yielded = || self.ownership.is_yielded();
        let probed = probe(plan, &online, &self.suspect, &*self.options.open, &yielded);
        let plan = probed.map_err(|error| match error {
            OpenError::Denied => SourceError::Denied { what: "perf events of CPUs".to_owned() },
            other => SourceError::Driver { call: "perf_event_open", says: other.to_string() },
        })?;
        if yielded() {
            return Ok(());
        }
        let cpus = usize::try_from(online.len()).unwrap_or(usize::MAX);
        let wanted = plan.events().saturating_mul(cpus).saturating_mul(JOBS_PER_CPU);
        let process = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let process = process - RESERVE.min(process / 2);
        let limit = self.options.most_descriptors.unwrap_or(wanted);
        let limit = limit.min(usize::try_from(process).unwrap_or(usize::MAX));
        let (options, version) = (&self.options, self.version);
        self.way = Way::find(options, version, &plan, &online, &mut self.files, &self.ownership)?;
        // Divided counters take no descriptors of jobs.
        let (open, limit): (Arc<dyn Open>, usize) = match &self.way.divided {
            Some(divided) => (divided.clone(), usize::MAX),
            None => (self.options.open.clone(), limit),
        };
        self.counting = Some(Counting::new(open, Arc::new(plan), self.ownership.clone(), limit));
        Ok(())
    }

    pub(super) fn prepared(&mut self) -> bool {
        match self.prepare() {
            Ok(()) => self.counting.is_some(),
            Err(error) => {
                // The scrape reports it.
                tracing::debug!(%error, "no counters");
                false
            }
        }
    }

    /// Whether a job run is counted, or is to be.
    pub(super) fn knows(&self, run: JobRunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// A job is there, perhaps again.
    pub(super) fn appeared(&mut self, job: Arc<Job>) {
        let run = job.run;
        self.is_of(job.cgroup.version());
        if self.options.may_divide() {
            // Whether its binding is waited for depends on the way it is counted.
            self.prepared();
        }
        match self.runs.get_mut(&run) {
            Some(known) => (known.job, known.gone) = (job, false),
            None => {
                let fresh = CountedRun {
                    job,
                    counted: None,
                    parts: Parts::default(),
                    cpu_usec: None,
                    cpus: None,
                    unbound: false,
                    appeared: Instant::now(),
                    looks: 0,
                    not_counted: None,
                    gone: false,
                };
                self.runs.insert(run, fresh);
            }
        }
        // Counts of all processes on CPUs that this job uses from now on end here, and begin on those that it is known not to use.
        let shared: Vec<JobRunId> = self.by_their_cpus().collect();
        self.bind(run);
        for other in shared.into_iter().filter(|other| *other != run) {
            self.refresh(other);
        }
        self.refresh(run);
        self.follow_steps_of(run);
    }

    /// Runs of which the CPUs of others decide whether they are counted: by their CPUs, or not at all.
    fn by_their_cpus(&self) -> impl Iterator<Item = JobRunId> {
        let depends = |run: &CountedRun| {
            matches!(run.counted.as_ref().map(Counted::mode), Some(Mode::Cpus))
                || run.not_counted == Some(NotCounted::Shared)
        };
        self.runs.iter().filter(move |(_, run)| depends(run)).map(|(run, _)| *run)
    }

    /// Reads on which CPUs a job may run.
    fn bind(&mut self, run: JobRunId) {
        let Some(known) = self.runs.get_mut(&run) else { return };
        let file = match known.job.cgroup.version() {
            Version::V2 => "cpuset.cpus.effective",
            Version::V1 => "cpuset.effective_cpus",
        };
        let view = known.job.cgroup.view();
        // Where nothing is opened for a job, counting it on too many CPUs for a while costs little.
        known.unbound = self.way.divided.is_none()
            && binding::is_awaited(&known.job, None, &view, &mut self.buffer).unwrap_or(false);
        // What cannot be read now is as it was.
        if let Ok(Some(bytes)) = view.read(Controller::Cpuset, file, &mut self.buffer) {
            known.cpus = CpuSet::parse(bytes).ok().filter(|cpus| !cpus.is_empty());
        }
    }

    fn is_alone(&self, run: JobRunId) -> bool {
        let Some(known) = self.runs.get(&run) else { return false };
        let others = self.runs.iter().filter(|(other, there)| **other != run && !there.gone);
        has_its_cpus_alone(known.cpus.as_ref(), others.map(|(_, other)| other.cpus.as_ref()))
    }

    /// How a job can be counted.
    fn mode(&self, run: JobRunId) -> Result<Mode, NotCounted> {
        let known = self.runs.get(&run).ok_or(NotCounted::Shared)?;
        match self.way.directory(&known.job.cgroup) {
            Some(Ok(directory)) => Ok(Mode::Cgroup(directory)),
            Some(Err(ReadError::Denied)) => Err(NotCounted::Denied),
            Some(Err(_)) => Err(NotCounted::Failed(OpenError::Unsupported)),
            None if self.is_alone(run) => Ok(Mode::Cpus),
            None => Err(NotCounted::Shared),
        }
    }

    /// Opens counters on CPUs that the job has got, and closes those on CPUs that it does not have alone any more.
    fn refresh(&mut self, run: JobRunId) {
        if self.runs.get(&run).is_none_or(|known| known.gone || known.waits().is_some()) || !self.prepared() {
            return;
        }
        // Whether it is alone is looked at only where that matters: it is a look at all others.
        let fresh_mode = match self.runs.get(&run).and_then(|known| known.counted.as_ref()).map(Counted::mode)
        {
            Some(Mode::Cgroup(_) | Mode::Followed(_)) => None,
            // It may have got a directory by which it can be counted.
            Some(Mode::Cpus) => Some(self.mode(run)).filter(|mode| !matches!(mode, Ok(Mode::Cpus))),
            None => Some(self.mode(run)),
        };
        let (Some(known), Some(counting)) = (self.runs.get_mut(&run), &mut self.counting) else { return };
        match fresh_mode {
            Some(Ok(mode)) => {
                let before = self.kept.remove(&run);
                known.not_counted = None;
                let so_far = known.counted.take().map(|mut by_cpus| {
                    counting.close(&mut by_cpus);
                    counting.save(&by_cpus)
                });
                let tally = so_far.as_ref().or(before.as_ref().map(|kept| &kept.tally));
                known.counted = Some(counting.begin(mode, tally));
                if let Some(before) = before {
                    known.cpu_usec = known.cpu_usec.max(before.cpu_usec);
                    known.parts.take_over(before.parts);
                }
            }
            Some(Err(not_counted)) => {
                known.not_counted = Some(not_counted);
                if let Some(counted) = &mut known.counted {
                    counting.close(counted);
                }
                return;
            }
            None => known.not_counted = None,
        }
        let Some(counted) = &mut known.counted else { return };
        let everywhere = || online(&mut self.files).ok().flatten();
        if let Some(cpus) = known.cpus.clone().or_else(everywhere) {
            counting.open(counted, &cpus);
        }
    }

    /// Reads the counters of a job and its CPU time.
    fn read(&mut self, run: JobRunId) {
        let Some(known) = self.runs.get_mut(&run) else { return };
        if let (Some(counting), Some(counted)) = (&mut self.counting, &mut known.counted) {
            // First, so that they are never more than the job.
            known.parts.read(counting);
            counting.read(counted);
        }
        self.read_cpu_time(run);
    }

    /// Reads the counters of all jobs.
    pub(super) fn read_all(&mut self) {
        let runs: Vec<JobRunId> = self.runs.keys().copied().collect();
        runs.into_iter().for_each(|run| self.read(run));
    }

    pub(super) fn read_cpu_time(&mut self, run: JobRunId) {
        let Some(known) = self.runs.get_mut(&run) else { return };
        let used = cpu_time(&known.job.cgroup.view(), &mut self.buffer);
        known.cpu_usec = known.cpu_usec.max(used);
    }

    pub(super) fn left(&mut self, run: JobRunId) {
        let Some(known) = self.runs.get_mut(&run) else { return };
        known.gone = true;
        if let (Some(counting), Some(counted)) = (&mut self.counting, &mut known.counted) {
            known.parts.end(counting, |_| true);
            // An open counter keeps the cgroup's remains in memory.
            counting.close(counted);
        }
    }

    pub(super) fn forgotten(&mut self, run: JobRunId) {
        self.left(run);
        self.runs.remove(&run);
        self.kept.remove(&run);
    }

    /// When to look for the next missing binding, if there is any.
    pub(super) fn due(&self) -> Option<Instant> {
        self.runs.values().filter_map(CountedRun::waits).min()
    }

    /// Looks for the bindings that are waited for.
    pub(super) fn look_again(&mut self) {
        let waiting: Vec<JobRunId> =
            self.runs.iter().filter(|(_, known)| known.looked_for()).map(|(run, _)| *run).collect();
        for run in waiting {
            // Those that are over by now are this one.
            while let Some(known) = self.runs.get_mut(&run).filter(|known| known.looked_for()) {
                known.looks += 1;
            }
            self.bind(run);
            self.refresh(run);
        }
    }

    /// Closes everything.
    pub(super) fn release(&mut self) {
        let Some(counting) = &mut self.counting else { return };
        if let Some(divided) = &self.way.divided {
            divided.release();
        }
        counting.release(self.runs.values_mut().filter_map(|known| known.counted.as_mut()));
        self.runs.values_mut().for_each(|known| known.parts.release(counting));
    }

    /// Opens everything again.
    pub(super) fn resume(&mut self) {
        if let (Some(divided), Ok(Some(online))) = (&self.way.divided, online(&mut self.files))
            && let Err(error) = divided.prepare(online.iter(), || self.ownership.is_yielded())
        {
            // They are opened when jobs need them, and that says what is lacking.
            tracing::debug!(%error, "no counters of CPUs");
        }
        let runs: Vec<JobRunId> = self.runs.keys().copied().collect();
        runs.iter().for_each(|run| self.bind(*run));
        runs.iter().for_each(|run| self.refresh(*run));
        runs.iter().for_each(|run| self.follow_steps_of(*run));
    }

    /// Brings everything up to date for a scrape.
    pub(super) fn scrape(&mut self, snapshot: &NodeSnapshot) -> Result<(), SourceError> {
        let of_jobs = snapshot.jobs.iter().map(|job| job.cgroup.version());
        let mut versions = of_jobs.chain(snapshot.scopes.iter().map(|scope| scope.cgroup.version()));
        if let Some(version) = versions.next() {
            self.is_of(version);
        }
        self.prepare()?;
        // Does the thread's work where there is no thread.
        self.look_again();
        let running = || snapshot.jobs.iter().chain(&snapshot.pending).filter(|job| job.is_running());
        for job in running() {
            // More hierarchies of it may be known by now. A run without an event was dropped after the snapshot was made, or is a
            // directory without a process so far.
            if let Some(known) = self.runs.get_mut(&job.run) {
                known.job = job.clone();
            }
            self.bind(job.run);
        }
        for job in running() {
            self.refresh(job.run);
            self.take_in_steps(job);
            self.read(job.run);
        }
        self.plan_again();
        let lacks = running().filter_map(|job| self.not_counted(job.run));
        // That a job shares its CPUs on v1 is a fact, not a failure, and that somebody else keeps counters.
        let facts = [NotCounted::Shared, NotCounted::Starved];
        match lacks.filter(|not_counted| !facts.contains(not_counted)).max() {
            None => Ok(()),
            Some(NotCounted::Denied) => {
                Err(SourceError::Denied { what: "perf events of cgroups".to_owned() })
            }
            Some(NotCounted::Descriptors) => {
                let what = "counters of some jobs: no more descriptors".to_owned();
                Err(SourceError::Denied { what })
            }
            Some(NotCounted::Failed(error)) => {
                Err(SourceError::Driver { call: "perf_event_open", says: error.to_string() })
            }
            Some(NotCounted::Shared | NotCounted::Starved | NotCounted::Room) => Ok(()),
        }
    }

    /// Where somebody else keeps counters, makes a plan that does without them. What was counted until now is kept.
    fn plan_again(&mut self) {
        let starving = self.counting.as_ref().map(Counting::starving).filter(|starving| !starving.is_empty());
        let lasts = self.planned_again.is_some_and(|at| at.elapsed() < PLAN_LASTS);
        let Some(starving) = starving.filter(|_| !lasts) else { return };
        self.suspect = starving.iter().map(|(_, cpu)| *cpu).collect();
        self.planned_again = Some(Instant::now());
        tracing::warn!(cpus = ?self.suspect, "counters have had no turn for seconds: somebody else keeps some; planning without them");
        self.release();
        self.kept = self.counts_of_all();
        self.rejected_before = self.rejected().into_iter().map(|(_, times)| times).collect();
        self.counting = None;
        self.runs.values_mut().for_each(|known| known.counted = None);
        self.prepared();
        self.resume();
    }

    /// What was counted of a job: its counts, whether they are its cgroup's alone, and its CPU time, microseconds.
    pub(super) fn counts(&self, run: JobRunId) -> Option<(Cow<'_, Tally>, bool, Option<u64>)> {
        let known = self.runs.get(&run);
        if let Some((known, counted)) = known.and_then(|known| Some((known, known.counted.as_ref()?))) {
            let of_cgroup = matches!(counted.mode(), Mode::Cgroup(_));
            return Some((Cow::Borrowed(counted.tally()), of_cgroup, known.cpu_usec));
        }
        let kept = self.kept.get(&run)?;
        Some((Cow::Owned(self.counting.as_ref()?.restored(&kept.tally)), kept.of_cgroup, kept.cpu_usec))
    }

    /// Descriptors that are open, and that may be where that is limited.
    pub(super) fn descriptors(&self) -> (usize, Option<usize>) {
        let (used, limit) = self.counting.as_ref().map(Counting::descriptors).unwrap_or_default();
        match &self.way.divided {
            Some(divided) => (divided.descriptors(), None),
            None => (used, Some(limit)),
        }
    }

    /// How often an interval was not believed, by why.
    pub(super) fn rejected(&self) -> Vec<(RejectReason, u64)> {
        let mut rejected = RejectReason::ALL.map(|reason| (reason, 0));
        for (this, times) in self.rejected_before.iter().copied().enumerate() {
            rejected.get_mut(this).into_iter().for_each(|(_, sum)| *sum = times);
        }
        let now = self.counting.iter().flat_map(Counting::rejected);
        rejected.iter_mut().zip(now).for_each(|((_, sum), (_, times))| *sum = sum.saturating_add(times));
        rejected.to_vec()
    }

    /// What a job's counters lack.
    pub(super) fn not_counted(&self, run: JobRunId) -> Option<NotCounted> {
        let known = self.runs.get(&run)?;
        known.not_counted.or_else(|| known.counted.as_ref()?.not_counted())
    }
}
