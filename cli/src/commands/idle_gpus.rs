//! `jobledger idle-gpus`: mails about running jobs whose GPUs do nothing, and the end of such jobs where a site wants that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use job_report::{Job, Report};

use super::digest::{self, Outgoing};
use super::surroundings::{Surroundings, now, warn};
use crate::arguments;
use crate::digest::history::{Action, Entry, History};
use crate::digest::idle_gpus::{self, Looked, POLICY, Step};
use crate::digest::policies::{IdleGpus, Policies};
use crate::digest::squeue::{self, confirmed};
use crate::digest::which::Which;
use crate::formats::table::{self, Head};
use crate::job_id::shown;
use crate::mail::Mailer;
use crate::source::prometheus::JobGpus;
use crate::{Failure, Kind, output, slurm_command};

/// Seconds since the time that is looked at, when something is done about it.
const MOST_AGE: f64 = 60.0;

/// A job whose GPUs did nothing.
struct Idle<'a> {
    report: &'a Report,
    looked: Looked,
}

type ByJob = BTreeMap<(String, u64), JobGpus>;

/// What jobs are judged by.
struct Judge<'a> {
    policies: &'a Policies,
    policy: &'a IdleGpus,
    here: &'a Surroundings,
}

/// First all is looked at, then jobs are cancelled, each after a second look, and then mails are sent: they may take long.
pub(super) async fn run(options: &arguments::Digest, here: &Surroundings) -> Result<(), Failure> {
    let policies = digest::read(&options.policies, here)?;
    let Some(policy) = &policies.idle_gpus else {
        return Err(Failure::usage(format!("{}: there is no [idle_gpus]", options.policies.display())));
    };
    let is_now = now() - here.source.until <= MOST_AGE;
    if options.send && !is_now {
        return Err(Failure::usage("--send is about what jobs do now: leave out --until"));
    }
    let judge = Judge { policies: &policies, policy, here };
    let mut history = digest::history(&policies, options.send)?;
    let (now, before) = judge.readings().await?;
    let reports = here.all_reports(|job| judge.may_be_idle(job, &now, &before)).await?;
    let mut idle = Vec::new();
    for report in &reports {
        let user = &report.job.identity.user;
        if options.only.as_ref().is_none_or(|only| only == user) && judge.is_meant(report) {
            idle.push(Idle { report, looked: judge.look(report, here.source.until, &history).await? });
        }
    }
    digest::check_answers(options.send, here)?;
    let mut kept = 0;
    for Idle { report, looked } in &mut idle {
        if let Some(step) = looked.step.filter(|_| is_now)
            && let Err(why) = judge.confirm(&report.job).await
        {
            kept += usize::from(options.send && step == Step::Cancel);
            (looked.step, looked.refused) = (None, Some((step, why)));
        }
        if let Some((step, why)) = &looked.refused {
            warn(&not_done(&report.job, *step, why));
        }
    }
    idle.retain(|job| job.looked.minutes > 0);
    if !options.send && !options.dry_run {
        return output::write(None, page(&idle).as_bytes());
    }
    // A mistake in it is to be known before anything is done.
    let mailer = Mailer::new(&here.config.mail)?;
    let warnings = judge.warnings(&idle);
    digest::check_number(warnings.len(), &policies)?;
    for job in idle.iter().filter(|job| job.looked.step == Some(Step::Cancel)) {
        if !options.send {
            output::write(None, format!("would cancel: {}\n", describe(job)).as_bytes())?;
        } else if let Err(failure) = judge.end(job, &mut history).await? {
            kept += 1;
            warn(&failure.says);
        }
    }
    let mut mails = judge.farewells(&history, options.only.as_deref(), &now);
    mails.extend(warnings);
    let sent = digest::hand_over(&mails, options.send, &mut history, &mailer).await;
    let kept = match kept {
        0 => None,
        1 => Some("1 job was not cancelled".to_owned()),
        several => Some(format!("{several} jobs were not cancelled")),
    };
    match (kept, sent) {
        (None, sent) => sent,
        (Some(kept), Ok(())) => Err(Failure::new(Kind::NotSent, kept)),
        (Some(kept), Err(unsent)) => Err(Failure::new(unsent.kind, format!("{kept}, {}", unsent.says))),
    }
}

impl Judge<'_> {
    /// Counters now, and at each of the policy's times before, the shortest first.
    async fn readings(&self) -> Result<(ByJob, Vec<(u32, ByJob)>), Failure> {
        let times: BTreeSet<u32> = self.minutes().collect();
        let source = &self.here.source;
        let now = source.gpu_times(source.until).await?;
        let mut before = Vec::new();
        for minutes in times {
            before.push((minutes, source.gpu_times(source.until - f64::from(minutes) * 60.0).await?));
        }
        Ok((now, before))
    }

    fn minutes(&self) -> impl Iterator<Item = u32> {
        self.policy.warn_minutes.iter().copied().chain(self.policy.cancel_minutes)
    }

    /// By its counters alone: in one of the times, and not surely used in the shortest.
    fn may_be_idle(&self, job: &(String, u64), now: &ByJob, before: &[(u32, ByJob)]) -> bool {
        let Some(now) = now.get(job) else { return false };
        let mut times = before.iter().filter_map(|(minutes, before)| Some((*minutes, before.get(job)?)));
        let busy_ratio = self.here.thresholds.get("gpu_idle_busy_ratio").unwrap_or_default();
        let were_used = before.first().and_then(|(minutes, before)| {
            Some(idle_gpus::were_used(*minutes, now, before.get(job)?, self.policy, busy_ratio))
        });
        were_used != Some(true) && times.any(|(minutes, before)| idle_gpus::may_be_idle(minutes, now, before))
    }

    /// It is one of those that are looked at, and still runs.
    fn is_meant(&self, report: &Report) -> bool {
        let has = |which: &Which| which.has(report, &self.here.thresholds);
        let mut exceptions = self.policies.except.iter().chain(&self.policy.except);
        report.job.nodes.iter().any(|node| node.running) && has(&self.policy.jobs) && !exceptions.any(has)
    }

    async fn look(&self, report: &Report, until: f64, history: &History) -> Result<Looked, Failure> {
        let job = &report.job;
        let done = history.of_run(job.cluster.as_deref(), job.id, job.start());
        let mails = done.clone().filter(|entry| entry.action == Action::Mail);
        let first_mail = mails.map(|entry| entry.time.as_duration().as_secs_f64()).reduce(f64::min);
        let longest = self.minutes().max().map_or(0.0, |minutes| until - f64::from(minutes) * 60.0);
        let from = first_mail.unwrap_or(longest).min(longest).max(job.start());
        let key = (job.cluster.as_deref().unwrap_or_default(), job.id);
        let curves = self.here.source.gpu_curves(key, from, until).await?;
        let judged_by = (self.policy, &self.here.thresholds);
        Ok(idle_gpus::look(report, &curves, done, self.may_cancel(report), judged_by, Timestamp::now()))
    }

    /// No exception is of the job, or might be: one of which a number or a name is not known spares it.
    fn may_cancel(&self, report: &Report) -> bool {
        let exceptions = self.policies.except.iter().chain(&self.policy.except);
        !exceptions
            .chain(&self.policy.never_cancel)
            .any(|which| which.may_have(report, &self.here.thresholds))
    }

    /// The name of the job as scancel takes it, if SLURM says that it is the one that was seen.
    ///
    /// # Errors
    /// What squeue says instead.
    async fn confirm(&self, job: &Job) -> Result<String, String> {
        let asked = now();
        let question = squeue::QUESTION.into_iter().map(str::to_owned).chain([format!("--jobs={}", job.id)]);
        let answer = self.ask(&self.policy.squeue, job, question.collect()).await?;
        confirmed(&answer, job, (asked, now()))
    }

    /// What squeue and scancel answer of the cluster of a job, or why they do not.
    async fn ask(&self, program: &Path, job: &Job, mut arguments: Vec<String>) -> Result<String, String> {
        let clusters = self.here.config.slurm.clusters.iter().flatten();
        let mut named = clusters.filter(|(label, _)| Some(*label) == job.cluster.as_ref());
        match named.next() {
            Some((_, name)) => arguments.insert(0, format!("--clusters={name}")),
            None if job.cluster.is_some() && self.here.config.slurm.clusters.is_some() => {
                return Err("slurm.clusters of the configuration does not name its cluster".to_owned());
            }
            None => {}
        }
        let answer = slurm_command::ask(program.as_os_str(), &arguments, slurm_command::PATIENCE).await;
        answer.map_err(|error| error.to_string())
    }

    fn warnings(&self, idle: &[Idle<'_>]) -> Vec<Outgoing> {
        let mail = |job: &Idle<'_>| {
            let will_cancel = self.policy.cancel_minutes.filter(|_| self.may_cancel(job.report));
            let period = digest::period(self.here);
            Outgoing {
                to: vec![digest::address(self.policies, &job.report.job.identity.user)],
                letter: idle_gpus::letter(job.report, job.looked.minutes, &period, will_cancel),
                entries: vec![entry(job, Action::Mail)],
            }
        };
        idle.iter().filter(|job| job.looked.step == Some(Step::Warn)).map(mail).collect()
    }

    /// Mails about jobs that were cancelled, now or by an earlier run, and that nobody took yet.
    fn farewells(&self, history: &History, only: Option<&str>, now: &ByJob) -> Vec<Outgoing> {
        let is_gone = |entry: &Entry| {
            let cluster = entry.cluster.clone().unwrap_or_default();
            entry.jobs.iter().all(|id| !now.contains_key(&(cluster.clone(), *id)))
        };
        let due =
            history.unknown_ends(is_gone).filter(|(entry, _)| only.is_none_or(|only| only == entry.user));
        let mail = |(entry, letter): (&Entry, &_)| Outgoing {
            to: vec![digest::address(self.policies, &entry.user)],
            letter: Clone::clone(letter),
            entries: vec![Entry { action: Action::Farewell, why: None, letter: None, ..entry.clone() }],
        };
        due.map(mail).collect()
    }

    /// Cancels a job, or says why it is not. What is done and why is on the disk before.
    ///
    /// # Errors
    /// It cannot be written down.
    async fn end(&self, job: &Idle<'_>, history: &mut History) -> Result<Result<(), Failure>, Failure> {
        let this = &job.report.job;
        let name = match self.certain(job.report, history).await {
            Ok(name) => name,
            Err(why) => return Ok(Err(Failure::other(not_done(this, Step::Cancel, &why)))),
        };
        let letter = idle_gpus::farewell(job.report, job.looked.minutes, &digest::period(self.here));
        let entry = |action| entry(job, action);
        history.add(Entry { why: Some(describe(job)), letter: Some(letter), ..entry(Action::Cancel) })?;
        match self.ask(&self.policy.scancel, this, vec!["--".to_owned(), name]).await {
            Ok(_) => history.add(entry(Action::Cancelled)).map(Ok),
            Err(why) => {
                history.add(Entry { why: Some(why.clone()), ..entry(Action::CancelFailed) })?;
                Ok(Err(Failure::other(format!("job {}: {why}", this.id))))
            }
        }
    }

    /// The name of a job for scancel, if all that is known says now what it said when all jobs were looked at.
    ///
    /// # Errors
    /// What it says instead.
    async fn certain(&self, report: &Report, history: &History) -> Result<String, String> {
        let began = now();
        let looked = self.look(report, began, history).await.map_err(|failure| failure.says)?;
        digest::check_answers(true, self.here).map_err(|failure| failure.says)?;
        match looked {
            Looked { step: Some(Step::Cancel), .. } => {}
            Looked { refused: Some((_, why)), .. } => return Err(why),
            _ => return Err("its GPUs worked again".to_owned()),
        }
        let name = self.confirm(&report.job).await?;
        match now() - began > MOST_AGE {
            true => Err("the server and squeue took too long".to_owned()),
            false => Ok(name),
        }
    }
}

/// A line about what is not done about a job.
fn not_done(job: &Job, step: Step, why: &str) -> String {
    let so = match step {
        Step::Warn => "nobody gets a mail",
        Step::Cancel => "it is not cancelled",
    };
    format!("job {}: {why}, so {so}", job.id)
}

fn page(idle: &[Idle<'_>]) -> String {
    if idle.is_empty() {
        return "No job that runs has idle GPUs.\n".to_owned();
    }
    let heads = [
        ("job", false),
        ("user", false),
        ("nodes", true),
        ("gpus", true),
        ("idle min", true),
        ("mails", true),
        ("next", false),
    ];
    let heads = heads.map(|(name, number)| Head { name, number });
    let row = |job: &Idle<'_>| {
        let next = match job.looked.step {
            Some(Step::Warn) => "mail",
            Some(Step::Cancel) => "cancel",
            None => "-",
        };
        let who = &job.report.job.identity;
        let gpus = job.report.job.gpus().count();
        vec![
            Some(shown(job.report.job.id, who)),
            Some(who.user.clone()),
            Some(job.report.job.nodes.len().to_string()),
            Some(gpus.to_string()),
            Some(format!(">= {}", job.looked.minutes)),
            Some(job.looked.mails.to_string()),
            Some(next.to_owned()),
        ]
    };
    table::text(&heads, &idle.iter().map(row).collect::<Vec<_>>())
}

fn entry(job: &Idle<'_>, action: Action) -> Entry {
    let Report { job: this, .. } = job.report;
    Entry {
        time: Timestamp::now(),
        action,
        cluster: this.cluster.clone(),
        user: this.identity.user.clone(),
        policy: POLICY.to_owned(),
        jobs: vec![this.id],
        start: Some(this.start()),
        why: None,
        letter: None,
    }
}

fn describe(job: &Idle<'_>) -> String {
    let this = &job.report.job;
    let gpus: Vec<&str> = this.gpus().map(|(_, gpu)| gpu.uuid.as_str()).collect();
    let nodes: Vec<&str> = this.nodes.iter().map(|node| node.name.as_str()).collect();
    format!(
        "job {} of {}: {} did nothing for {} minutes on {}, after {} mails",
        shown(this.id, &this.identity),
        this.identity.user,
        gpus.join(", "),
        job.looked.minutes,
        nodes.join(", "),
        job.looked.mails
    )
}
