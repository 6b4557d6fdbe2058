//! `jobledger idle-gpus`: mails about running jobs whose GPUs do nothing, and the end of such jobs where a site wants that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use job_report::Report;

use super::digest::{self, Outgoing};
use super::surroundings::{Surroundings, now, warn};
use crate::arguments;
use crate::digest::history::{Action, Entry, History};
use crate::digest::idle_gpus::{self, POLICY, Step};
use crate::digest::policies::{IdleGpus, Policies};
use crate::digest::which::Which;
use crate::formats::table::{self, Head};
use crate::job_id::shown;
use crate::source::prometheus::JobGpus;
use crate::{Failure, Kind, output, slurm_command};

/// Seconds since the time that is looked at.
const MOST_AGE: f64 = 60.0;
/// Nodes start a job within seconds of each other.
const SAME_START: f64 = 60.0;

/// A job whose GPUs did nothing.
struct Idle<'a> {
    report: &'a Report,
    minutes: u32,
    step: Option<Step>,
    mails: usize,
}

type ByJob = BTreeMap<(String, u64), JobGpus>;

pub(super) async fn run(options: &arguments::Digest, here: &Surroundings) -> Result<(), Failure> {
    let policies = digest::read(&options.policies, here)?;
    let Some(policy) = &policies.idle_gpus else {
        return Err(Failure::usage(format!("{}: there is no [idle_gpus]", options.policies.display())));
    };
    if options.send && now() - here.source.until > MOST_AGE {
        return Err(Failure::usage("--send is about what jobs do now: leave out --until"));
    }
    let mut history = digest::history(&policies, options.send)?;
    let (now, before) = readings(policy, here).await?;
    let least = before.first().map(|(minutes, before)| (*minutes, before));
    let may_be = |job: &(String, u64)| {
        let of = |(minutes, before): (u32, &ByJob)| {
            Some(idle_gpus::may_be_idle(minutes, now.get(job)?, before.get(job)?))
        };
        least.and_then(of).unwrap_or(false)
    };
    let reports = here.all_reports(may_be).await?;
    digest::check_answers(options.send, here)?;
    let idle: Vec<Idle<'_>> = reports
        .iter()
        .filter(|report| options.only.as_ref().is_none_or(|only| *only == report.job.identity.user))
        .filter_map(|report| judge(report, (&policies, policy), (&now, &before), &history, here))
        .collect();
    if !options.send && !options.dry_run {
        return output::write(None, page(&idle).as_bytes());
    }
    let warned = mails(&idle, &policies, policy, here);
    digest::check_number(warned.len(), &policies)?;
    let sent = digest::hand_over(&warned, options.send, &mut history, here);
    let mut failed = 0;
    for job in idle.iter().filter(|job| job.step == Some(Step::Cancel)) {
        if !options.send {
            output::write(None, format!("would cancel: {}\n", describe(job)).as_bytes())?;
            continue;
        }
        if let Err(failure) = end(job, &policies, policy, &mut history, here).await {
            failed += 1;
            warn(&failure.says);
        }
    }
    sent?;
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::new(Kind::NotSent, format!("{failed} jobs were not cancelled")))
    }
}

/// Counters now, and at each of the policy's times before, the shortest first.
async fn readings(policy: &IdleGpus, here: &Surroundings) -> Result<(ByJob, Vec<(u32, ByJob)>), Failure> {
    let times: BTreeSet<u32> = policy.warn_minutes.iter().copied().chain(policy.cancel_minutes).collect();
    let until = here.source.until;
    let now = here.source.gpu_times(until).await?;
    let mut before = Vec::new();
    for minutes in times {
        before.push((minutes, here.source.gpu_times(until - f64::from(minutes) * 60.0).await?));
    }
    Ok((now, before))
}

fn judge<'a>(
    report: &'a Report,
    (policies, policy): (&Policies, &IdleGpus),
    (now, before): (&ByJob, &[(u32, ByJob)]),
    history: &History,
    here: &Surroundings,
) -> Option<Idle<'a>> {
    let thresholds = &here.thresholds;
    let any = |which: &[Which]| which.iter().any(|which| which.has(report, thresholds));
    if !policy.jobs.has(report, thresholds) || any(&policies.except) || any(&policy.except) {
        return None;
    }
    let job = &report.job;
    let key = (job.cluster.clone().unwrap_or_default(), job.id);
    let began = |minutes: u32| here.source.until - f64::from(minutes) * 60.0;
    let since_start =
        before.iter().filter(|(minutes, _)| began(*minutes) >= job.start()).map(|(_, before)| before);
    if !idle_gpus::has_all(report, since_start.chain([now]).filter_map(|gpus| gpus.get(&key))) {
        return None;
    }
    let were_idle = |(minutes, before): &&(u32, ByJob)| {
        let readings = now.get(&key).zip(before.get(&key));
        let judged = readings.and_then(|(now, before)| {
            idle_gpus::were_idle(report, *minutes, (here.source.until, now, before), policy, thresholds)
        });
        judged == Some(true)
    };
    // The longest time at which it is still so.
    let minutes = before.iter().take_while(were_idle).map(|(minutes, _)| *minutes).last()?;
    let done = history.of_run(job.cluster.as_deref(), job.id, job.start());
    let mails = done.clone().filter(|entry| entry.action == Action::Mail).count();
    let step =
        idle_gpus::step(minutes, done, may_cancel(report, policies, policy, here), policy, Timestamp::now());
    Some(Idle { report, minutes, step, mails })
}

/// No exception is of the job, or might be: one of which a number or a name is not known spares it.
fn may_cancel(report: &Report, policies: &Policies, policy: &IdleGpus, here: &Surroundings) -> bool {
    let mut exceptions = policies.except.iter().chain(&policy.except).chain(&policy.never_cancel);
    !exceptions.any(|which| which.may_have(report, &here.thresholds))
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
        let next = match job.step {
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
            Some(format!(">= {}", job.minutes)),
            Some(job.mails.to_string()),
            Some(next.to_owned()),
        ]
    };
    table::text(&heads, &idle.iter().map(row).collect::<Vec<_>>())
}

fn mails(idle: &[Idle<'_>], policies: &Policies, policy: &IdleGpus, here: &Surroundings) -> Vec<Outgoing> {
    let mail = |job: &Idle<'_>| {
        let will_cancel = policy.cancel_minutes.filter(|_| may_cancel(job.report, policies, policy, here));
        Outgoing {
            to: digest::address(policies, &job.report.job.identity.user),
            letter: idle_gpus::letter(job.report, job.minutes, &digest::period(here), will_cancel),
            entries: vec![entry(job, Action::Mail, None)],
        }
    };
    idle.iter().filter(|job| job.step == Some(Step::Warn)).map(mail).collect()
}

fn entry(job: &Idle<'_>, action: Action, why: Option<String>) -> Entry {
    let Report { job: this, .. } = job.report;
    Entry {
        time: Timestamp::now(),
        action,
        cluster: this.cluster.clone(),
        user: this.identity.user.clone(),
        policy: POLICY.to_owned(),
        jobs: vec![this.id],
        start: Some(this.start()),
        why,
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
        job.minutes,
        nodes.join(", "),
        job.mails
    )
}

/// Cancels a job. What is done and why is on the disk before.
async fn end(
    job: &Idle<'_>,
    policies: &Policies,
    policy: &IdleGpus,
    history: &mut History,
    here: &Surroundings,
) -> Result<(), Failure> {
    let name = confirmed(job, &policy.squeue).await?;
    history.add(entry(job, Action::Cancel, Some(describe(job))))?;
    if let Err(failure) = ask(&policy.scancel, &["--", &name]).await {
        history.add(entry(job, Action::CancelFailed, Some(failure.says.clone())))?;
        return Err(failure);
    }
    let mail = Outgoing {
        to: digest::address(policies, &job.report.job.identity.user),
        letter: idle_gpus::farewell(job.report, job.minutes, &digest::period(here)),
        entries: Vec::new(),
    };
    digest::hand_over(&[mail], true, history, here)
}

/// The name of the job as scancel takes it, if the controller says that this run of it still runs, on as many nodes as were seen, and is this user's.
/// The number of an array's last element is also that of the whole array. Without `--noconvert` squeue prints 1024 nodes as `1K`.
async fn confirmed(job: &Idle<'_>, squeue: &Path) -> Result<String, Failure> {
    let this = &job.report.job;
    let id = format!("--jobs={}", this.id);
    let answer =
        ask(squeue, &["--noheader", "--noconvert", "--array", "--format=%A|%i|%u|%T|%S|%D", &id]).await?;
    let rows: Vec<Vec<&str>> = answer.lines().map(|line| line.trim().split('|').collect()).collect();
    let is_this = |row: &&Vec<&str>| match row.as_slice() {
        [number, _, user, "RUNNING", start, nodes] => {
            let start = start.parse().unwrap_or(f64::NAN);
            number.parse() == Ok(this.id)
                && *user == this.identity.user
                && (start - this.start()).abs() <= SAME_START
                && nodes.parse() == Ok(this.nodes.len())
        }
        _ => false,
    };
    match rows.iter().filter(is_this).collect::<Vec<_>>().as_slice() {
        [row] => Ok(row.get(1).copied().unwrap_or_default().to_owned()),
        _ => Err(Failure::other(format!(
            "job {}: squeue does not show that this run of it still runs on {}, so it is not cancelled",
            this.id,
            if this.nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", this.nodes.len()) }
        ))),
    }
}

/// What a command of SLURM answers.
async fn ask(program: &Path, arguments: &[&str]) -> Result<String, Failure> {
    let answer = slurm_command::ask(program.as_os_str(), arguments, slurm_command::PATIENCE).await;
    answer.map_err(|error| Failure::other(error.to_string()))
}
