//! `jobledger spool`: mails and AdminComments of slurmctld's host, for many jobs at once.
//!
//! This process waits for the ends of all jobs. A report is made by a process of its own, which has a limit of time: what is wrong with one job
//! keeps no other waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::surroundings::{Surroundings, now, warn};
use crate::arguments::Common;
use crate::mail::event::{About, Event, What};
use crate::source::prometheus::{APART, Ends, Prometheus, Seen};
use crate::spool::{Entry, Spool, Task};
use crate::text::harmless_line;
use crate::{Failure, Kind};

/// Between two looks at the directory.
const LOOKS: Duration = Duration::from_secs(1);
/// Between two questions to the server.
const PAUSE: Duration = Duration::from_secs(5);
/// A mail waits so long for the end of its job, and a comment: what the scripts wait for by themselves is the same.
const FOR_MAILS: Duration = Duration::from_secs(120);
const FOR_COMMENTS: Duration = Duration::from_secs(180);
/// Reports that are made at once.
const AT_ONCE: usize = 4;
/// For a report and its mail.
const PATIENCE: Duration = Duration::from_secs(120);
/// A mail that waited so long is sent without a report.
const LATE: Duration = Duration::from_secs(900);
/// What failed is tried again for so long.
const LAST_TRY: Duration = Duration::from_secs(3600);

/// An entry of the spool.
#[derive(Debug)]
struct Waiting {
    entry: Entry,
    whom: Whom,
    arrived: Instant,
    /// How old it was then.
    age: Duration,
    stage: Stage,
    tries: u32,
    /// A process of it did not come to its end.
    is_broken: bool,
}

/// Whose end it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Nobody,
    Job(u64),
    Array(u64),
}

/// What it waits for. What is later than `until` may be of a later run of the job.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The end of its job.
    End,
    /// Its turn, from some moment on.
    Turn { until: f64, from: Instant },
    /// The process that does it.
    Process { until: f64 },
}

/// What has come to an end.
enum News {
    Asked { at: f64, ends: Result<Ends, Failure> },
    Did { name: String, how: Outcome },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There is no such job, or nobody may see it.
    Nothing,
    Failed,
    /// It took too long, or was killed.
    Broken,
}

struct Worker<'a> {
    spool: Spool,
    common: &'a Common,
    here: &'a Surroundings,
    waiting: BTreeMap<String, Waiting>,
    /// What is done, and whose file could not be removed.
    left: BTreeSet<String>,
    work: JoinSet<News>,
    processes: usize,
    /// When the server answered last, unless it is being asked.
    answered: Option<Instant>,
    server_fails: bool,
    directory_fails: bool,
}

/// Works until SIGTERM. What has begun then comes to its end.
pub(super) async fn run(common: &Common, here: &Surroundings) -> Result<(), Failure> {
    let failure = |error: std::io::Error| Failure::other(error.to_string());
    let spool = Spool::new(&here.config.spool);
    // A second one waits until the first has ended.
    let _claim = loop {
        if let Some(claim) = spool.claim().map_err(failure)? {
            break claim;
        }
        tokio::time::sleep(LOOKS).await;
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
    let mut worker = Worker {
        spool,
        common,
        here,
        waiting: BTreeMap::new(),
        left: BTreeSet::new(),
        work: JoinSet::new(),
        processes: 0,
        answered: Some(Instant::now()),
        server_fails: false,
        directory_fails: false,
    };
    let mut looks = tokio::time::interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_over = false;
    loop {
        tokio::select! {
            _ = looks.tick(), if !is_over => worker.look(),
            Some(news) = worker.work.join_next() => match news {
                Ok(News::Asked { at, ends }) => worker.take(at, ends),
                Ok(News::Did { name, how }) => worker.did(name, how),
                Err(error) => return Err(Failure::other(error.to_string())),
            },
            _ = terminate.recv() => is_over = true,
        }
        match is_over {
            true if worker.processes == 0 => return Ok(()),
            true => {}
            false => worker.begin(),
        }
    }
}

impl Worker<'_> {
    /// Takes what is new in the directory, and has the server asked.
    fn look(&mut self) {
        let names = self.spool.names();
        let fails = names.is_err();
        let names = names.unwrap_or_else(|error| {
            if !self.directory_fails {
                warn(&error.to_string());
            }
            BTreeSet::new()
        });
        self.directory_fails = fails;
        if fails {
            return;
        }
        // Somebody may have removed one.
        self.waiting.retain(|name, one| names.contains(name) || matches!(one.stage, Stage::Process { .. }));
        for name in names {
            if self.left.contains(&name) {
                self.remove(name);
            } else if !self.waiting.contains_key(&name) {
                match self.spool.read(&name) {
                    Ok(entry) => drop(self.waiting.insert(name, Waiting::new(entry, now()))),
                    Err(error) => {
                        warn(&format!("{name}: {error}: it is removed"));
                        self.remove(name);
                    }
                }
            }
        }
        if self.answered.is_some_and(|answered| answered.elapsed() >= PAUSE) {
            self.ask();
        }
    }

    /// Has the server asked for the ends of all jobs that wait for theirs.
    fn ask(&mut self) {
        let (mut jobs, mut arrays) = (BTreeSet::new(), BTreeSet::new());
        for one in self.waiting.values().filter(|one| one.stage == Stage::End) {
            match one.whom {
                Whom::Job(job) => drop(jobs.insert(job)),
                Whom::Array(array) => drop(arrays.insert(array)),
                Whom::Nobody => {}
            }
        }
        if jobs.is_empty() && arrays.is_empty() {
            return;
        }
        self.answered = None;
        let at = now();
        let server = Prometheus { until: at, ..self.here.source.clone() };
        self.work.spawn(async move { News::Asked { at, ends: server.ends(&jobs, &arrays).await } });
    }

    /// Takes what was answered.
    fn take(&mut self, at: f64, ends: Result<Ends, Failure>) {
        self.answered = Some(Instant::now());
        self.here.show_log();
        let fails = ends.is_err();
        let ends = ends.unwrap_or_else(|failure| {
            if !self.server_fails {
                warn(&failure.says);
            }
            Ends::default()
        });
        self.server_fails = fails;
        let mut late = Vec::new();
        for (name, one) in self.waiting.iter_mut().filter(|(_, one)| one.stage == Stage::End) {
            if one.see(at, &ends) == Seen::Later && one.is_comment() {
                late.push(name.clone());
            }
        }
        for name in late {
            // SLURM's accounting would give it to the later run.
            self.give_up(name, "a later run of the job has begun");
        }
    }

    /// Begins what has its turn, the earliest first.
    fn begin(&mut self) {
        let free = AT_ONCE.saturating_sub(self.processes);
        let due = self.waiting.iter_mut().filter_map(|(name, one)| match one.stage {
            Stage::Turn { until, from } if from <= Instant::now() => Some((name, one, until)),
            _ => None,
        });
        for (name, one, until) in due.take(free) {
            one.stage = Stage::Process { until };
            one.tries += 1;
            self.processes += 1;
            let (name, command) = (name.clone(), one.command(until, self.common.again()));
            self.work.spawn(async move { News::Did { name, how: process(command).await } });
        }
    }

    fn did(&mut self, name: String, how: Outcome) {
        self.processes = self.processes.saturating_sub(1);
        match (self.waiting.get_mut(&name), how) {
            (_, Outcome::Done | Outcome::Nothing) | (None, _) => self.remove(name),
            (Some(one), _) if one.age() < LAST_TRY => one.fail(how),
            (Some(_), _) => self.give_up(name, "it failed"),
        }
    }

    fn give_up(&mut self, name: String, why: &str) {
        if let Some(one) = self.waiting.get(&name) {
            warn(&format!("{} is given up: {why}", one.says()));
        }
        self.remove(name);
    }

    /// Without its file it is done. If that remains, it is not done again before this process ends.
    fn remove(&mut self, name: String) {
        self.waiting.remove(&name);
        match self.spool.remove(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                if self.left.insert(name.clone()) {
                    warn(&format!("{name}: {error}"));
                }
            }
            _ => drop(self.left.remove(&name)),
        }
    }
}

impl Waiting {
    fn new(entry: Entry, now: f64) -> Self {
        let whom = match &entry.task {
            Task::Mail { subject, mail_type, job_id, .. } => {
                let event = Event::of(subject, mail_type.as_deref(), job_id.as_deref());
                match (event.what, event.about, event.number) {
                    (What::Ended, Some(About::Array(array)), _) => Whom::Array(array),
                    (What::Ended, _, Some(job)) => Whom::Job(job),
                    _ => Whom::Nobody,
                }
            }
            Task::AdminComment { number, .. } => Whom::Job(*number),
        };
        let age = Duration::try_from_secs_f64(now - entry.time).unwrap_or_default();
        let mut this =
            Self { entry, whom, arrived: Instant::now(), age, stage: Stage::End, tries: 0, is_broken: false };
        if age >= this.patience() && !this.is_comment() {
            // Nothing worked on it for a while. No later run has begun so early.
            this.stage = Stage::Turn { until: this.entry.time + APART, from: this.arrived };
        } else if whom == Whom::Nobody {
            this.stage = Stage::Turn { until: now, from: this.arrived };
        }
        this
    }

    fn is_comment(&self) -> bool {
        matches!(self.entry.task, Task::AdminComment { .. })
    }

    fn patience(&self) -> Duration {
        if self.is_comment() { FOR_COMMENTS } else { FOR_MAILS }
    }

    fn age(&self) -> Duration {
        self.age + self.arrived.elapsed()
    }

    /// What the server knew at a time. Its turn comes with the end of its job, and without it after a while.
    fn see(&mut self, at: f64, ends: &Ends) -> Seen {
        let seen = match self.whom {
            Whom::Job(job) => ends.of_job(job, self.entry.time),
            Whom::Array(array) => ends.of_array(array, self.entry.time),
            Whom::Nobody => Seen::Less,
        };
        let until = match seen {
            Seen::Less if self.age() < self.patience() => return seen,
            Seen::Later => self.entry.time + APART,
            Seen::Less | Seen::Ended => at,
        };
        self.stage = Stage::Turn { until, from: Instant::now() };
        seen
    }

    /// It is tried again, later and later.
    fn fail(&mut self, how: Outcome) {
        self.is_broken |= how == Outcome::Broken;
        if let Stage::Process { until } = self.stage {
            let pause = Duration::from_secs(60) * (1 << self.tries.clamp(1, 5) >> 1);
            self.stage = Stage::Turn { until, from: Instant::now() + pause };
        }
    }

    /// What does it, as a process with these options of all commands.
    fn command(&self, until: f64, mut arguments: Vec<OsString>) -> Command {
        let until = Timestamp::from_duration(SignedDuration::from_secs_f64(until)).unwrap_or_default();
        let (name, more, variables) = match &self.entry.task {
            Task::Mail { subject, recipient, mail_type, job_id } => {
                let event = Event::of(subject, mail_type.as_deref(), job_id.as_deref());
                let why = if event.about.is_none() {
                    Some("the mail names no job")
                } else if self.is_broken {
                    Some("it could not be made")
                } else {
                    (self.age() > LATE).then_some("the mail would have been late")
                };
                let mut more: Vec<String> =
                    why.map(|why| format!("--without-report={why}")).into_iter().collect();
                more.extend([format!("--subject={subject}"), "--".to_owned(), recipient.clone()]);
                ("mail", more, [("SLURM_JOB_MAIL_TYPE", mail_type), ("SLURM_JOB_ID", job_id)])
            }
            Task::AdminComment { job, cluster, .. } => (
                "admin-comment",
                vec![job.clone()],
                [("SLURM_CLUSTER_NAME", cluster), ("SLURM_JOB_ID", &None)],
            ),
        };
        arguments.extend([name.into(), "--wait=0".into(), format!("--until={until}").into()]);
        arguments.extend(more.into_iter().map(OsString::from));
        // Also after the file was replaced by another version.
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments);
        for (variable, value) in variables {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command
    }

    /// For a log.
    fn says(&self) -> String {
        match &self.entry.task {
            Task::Mail { subject, .. } => format!("the mail {:?}", harmless_line(subject)),
            Task::AdminComment { job, .. } => format!("the AdminComment of job {job}"),
        }
    }
}

/// Has a process do it, which says itself what failed.
async fn process(mut command: Command) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).kill_on_drop(true);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            warn(&error.to_string());
            return Outcome::Failed;
        }
    };
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let Ok(ended) = tokio::time::timeout(PATIENCE, child.wait()).await else {
        warn(&format!("it took longer than {} s", PATIENCE.as_secs()));
        // It is there until it is waited for.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait().await;
        return Outcome::Broken;
    };
    match ended.map(|status| status.code()) {
        Ok(Some(0)) => Outcome::Done,
        Ok(Some(status)) if [Kind::NotFound as i32, Kind::NotAllowed as i32].contains(&status) => {
            Outcome::Nothing
        }
        Ok(None) => Outcome::Broken,
        Ok(Some(_)) | Err(_) => Outcome::Failed,
    }
}
