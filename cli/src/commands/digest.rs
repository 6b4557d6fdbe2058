//! `jobledger digest`: mails to users about what their jobs wasted, and tables for staff.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use job_report::Report;

use super::surroundings::{Surroundings, warn};
use crate::arguments;
use crate::digest::findings::{self, Finding, User};
use crate::digest::history::{Action, Entry, History};
use crate::digest::letters::{Period, Templates};
use crate::digest::policies::Policies;
use crate::digest::summary::{self, Due, Looked};
use crate::digest::{calendar, coordinators};
use crate::mail::{Letter, Mailer, Unsent};
use crate::source::prometheus::Selection;
use crate::{Failure, Kind, output, slurm_command};

/// An example of policies, as the package has it.
const EXAMPLE: &str = "/usr/share/doc/jobledger/digest.toml.example";

/// Of each recipient: addresses with commas between them, or why there is none.
pub(super) type Addresses = Vec<Result<String, Failure>>;

/// A mail, and what is written down once it was sent.
pub(super) struct Outgoing {
    pub(super) to: Addresses,
    pub(super) letter: Letter,
    pub(super) entries: Vec<Entry>,
}

pub(super) async fn run(options: &arguments::Digest, here: &Surroundings) -> Result<(), Failure> {
    let policies = read(&options.policies, here)?;
    if policies.policy.is_empty() {
        return Err(Failure::usage(format!("{}: there is no policy", options.policies.display())));
    }
    let templates = templates(&policies)?;
    let is_workday = is_workday(&policies, here)?;
    let mut history = history(&policies, options.send)?;
    if options.send && !is_workday {
        return output::write(None, b"Today no mails are sent: it is no workday.\n");
    }
    let (now, period) = (Timestamp::now(), period(here));
    let reports = reports(&policies, here).await?;
    check_answers(options.send, here)?;
    let (found, left_out) = findings::find(&policies, &reports, &here.thresholds);
    let found: Vec<(Finding<'_>, Due)> = found
        .into_iter()
        .map(|finding| {
            let due = Due::of(&finding, &history, &policies.mails, now);
            (finding, due)
        })
        .collect();
    let looked = Looked { jobs: reports.len(), left_out };
    if !options.send && !options.dry_run {
        let page = summary::page(&found, None, &period, looked);
        let page = page.unwrap_or_else(|| "No policy found anything.\n".to_owned());
        return output::write(None, page.as_bytes());
    }
    let mut mails = Vec::new();
    let mut users: BTreeMap<&User, Vec<&Finding<'_>>> = BTreeMap::new();
    for (finding, due) in &found {
        let is_meant = options.only.as_ref().is_none_or(|only| *only == finding.user.name);
        if is_meant && matches!(due, Due::Now(_)) {
            users.entry(&finding.user).or_default().push(finding);
        }
    }
    for (user, findings) in &users {
        let letter = templates
            .letter(user, findings, &period, policies.mails.jobs, &here.thresholds)
            .map_err(Failure::usage)?;
        let entries = findings.iter().map(|finding| entry(finding, now)).collect();
        mails.push(Outgoing { to: vec![address(&policies, &user.name)], letter, entries });
    }
    check_number(mails.len(), &policies)?;
    if options.only.is_none() {
        let coordinators = coordinators(&policies).await?;
        mails.extend(summaries(&policies.summary.staff, &coordinators, &found, &period, looked));
    }
    hand_over(&mails, options.send, &mut history, &Mailer::new(&here.config.mail)?).await
}

/// Reads the file.
pub(super) fn read(path: &Path, here: &Surroundings) -> Result<Policies, Failure> {
    let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            wrong(format!("there is no such file; `cp {EXAMPLE} {}` gives an example", path.display()))
        }
        _ => wrong(error.to_string()),
    })?;
    Policies::parse(&text, &here.thresholds).map_err(wrong)
}

fn templates(policies: &Policies) -> Result<Templates, Failure> {
    let wrong = |path: &Path, error: std::io::Error| Failure::usage(format!("{}: {error}", path.display()));
    let mails = &policies.mails;
    let text = mails
        .template
        .as_deref()
        .map(|path| std::fs::read_to_string(path).map_err(|error| wrong(path, error)));
    Templates::new(mails.subject.as_deref(), text.transpose()?.as_deref()).map_err(Failure::usage)
}

fn is_workday(policies: &Policies, here: &Surroundings) -> Result<bool, Failure> {
    let mails = &policies.mails;
    let days = match &mails.holidays {
        None => Vec::new(),
        Some(path) => {
            let wrong = |why: String| Failure::usage(format!("{}: {why}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            calendar::holidays(&text).map_err(wrong)?
        }
    };
    Ok(calendar::is_workday(Timestamp::now().to_zoned(here.zone.clone()).date(), mails, &days))
}

/// Of this process alone if something is to be done.
pub(super) fn history(policies: &Policies, send: bool) -> Result<History, Failure> {
    if send { History::open(&policies.history) } else { History::read(&policies.history) }
}

pub(super) fn period(here: &Surroundings) -> Period {
    let until = here.source.until;
    Period { from: until - here.source.window, until, zone: here.zone.clone() }
}

/// Of all jobs that a policy may look at. Rows of ended jobs say cheaply which are too short, where they are recorded.
async fn reports(policies: &Policies, here: &Surroundings) -> Result<Vec<Report>, Failure> {
    let least = policies.least_seconds();
    let rows = match here.source.ended(&Selection::default()).await {
        Ok(rows) if least > 0.0 => rows,
        _ => Vec::new(),
    };
    let is_short =
        |start: Option<f64>, end: Option<f64>| start.zip(end).is_some_and(|(start, end)| end - start < least);
    let short: BTreeSet<(String, u64)> = rows
        .into_iter()
        .filter(|job| is_short(job.start, job.end))
        .map(|job| (job.cluster, job.id))
        .collect();
    here.all_reports(|job| !short.contains(job)).await
}

fn entry(finding: &Finding<'_>, now: Timestamp) -> Entry {
    Entry {
        time: now,
        action: Action::Mail,
        cluster: finding.user.cluster.clone(),
        user: finding.user.name.clone(),
        policy: finding.policy.name.clone(),
        jobs: finding.jobs.iter().map(|job| job.report.job.id).collect(),
        start: None,
        why: None,
        letter: None,
    }
}

/// Where a user's mail goes. A number is what the exporter has of a user without a name, and a comma would make two addresses of one name.
pub(super) fn address(policies: &Policies, user: &str) -> Result<String, Failure> {
    match policies.addresses.get(user) {
        Some(address) => Ok(address.clone()),
        None if user.bytes().all(|byte| byte.is_ascii_digit()) || user.contains(',') => {
            Err(Failure::other(format!("user {user} has no address: [addresses] can have one")))
        }
        None => Ok(user.to_owned()),
    }
}

/// What a part of a server does not answer is not in the reports: what is sent would be about the rest.
pub(super) fn check_answers(send: bool, here: &Surroundings) -> Result<(), Failure> {
    if !send || here.source.client.log().iter().all(|asked| asked.warnings.is_empty()) {
        return Ok(());
    }
    let says =
        "the server warns of its answers, of which a part may be missing: nothing is sent or cancelled";
    Err(Failure::other(says))
}

/// More mails than a site expects are a mistake in a policy, or one of the data.
pub(super) fn check_number(mails: usize, policies: &Policies) -> Result<(), Failure> {
    let most = policies.mails.most;
    if mails <= most {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{mails} users would get a mail, more than mails.most = {most}: nothing is sent"
    )))
}

/// Addresses of the coordinators of each account: those of the file, and for other accounts SLURM's.
async fn coordinators(policies: &Policies) -> Result<BTreeMap<String, Addresses>, Failure> {
    let summary = &policies.summary;
    let mut found = BTreeMap::new();
    if summary.coordinators_of_slurm {
        let program = summary.sacctmgr.as_os_str();
        let answer = slurm_command::ask(program, &coordinators::QUESTION, slurm_command::PATIENCE).await;
        for (account, users) in
            coordinators::parse(&answer.map_err(|error| Failure::other(error.to_string()))?)
        {
            found.insert(account, users.iter().map(|user| address(policies, user)).collect());
        }
    }
    let of_file = summary.coordinators.iter();
    let of_file =
        of_file.map(|(account, addresses)| (account.clone(), addresses.iter().cloned().map(Ok).collect()));
    found.extend(of_file);
    Ok(found)
}

fn summaries(
    staff: &[String],
    coordinators: &BTreeMap<String, Addresses>,
    found: &[(Finding<'_>, Due)],
    period: &Period,
    looked: Looked,
) -> Vec<Outgoing> {
    let staff = (None, staff.iter().cloned().map(Ok).collect());
    let coordinators = coordinators.iter().map(|(account, to)| (Some(account.as_str()), to.clone()));
    let page = |(account, to): (Option<&str>, Addresses)| {
        let text = summary::page(found, account, period, looked)?;
        let whose = account.map(|account| format!(" of account {account}")).unwrap_or_default();
        let letter = Letter { subject: format!("What jobs{whose} had and did not use"), text };
        (!to.is_empty()).then_some(Outgoing { to, letter, entries: Vec::new() })
    };
    std::iter::once(staff).chain(coordinators).filter_map(page).collect()
}

/// Sends mails, or shows them. Each is written down once it was handed over. Where one took too long, the others are not tried.
pub(super) async fn hand_over(
    mails: &[Outgoing],
    send: bool,
    history: &mut History,
    mailer: &Mailer,
) -> Result<(), Failure> {
    if mails.is_empty() && !send {
        return output::write(None, b"There is no mail to send.\n");
    }
    let mut sent = 0;
    for mail in mails {
        match hand_over_one(mail, send, mailer).await {
            Ok(()) if send => {
                sent += 1;
                // What was sent and cannot be written down ends the run: the next one would send it again.
                for entry in &mail.entries {
                    history.add(Entry { time: Timestamp::now(), ..entry.clone() })?;
                }
            }
            Ok(()) => sent += 1,
            Err(unsent) => {
                warn(&unsent.failure.says);
                if unsent.late {
                    break;
                }
            }
        }
    }
    if sent == mails.len() {
        return Ok(());
    }
    let failed = mails.len() - sent;
    Err(Failure::new(Kind::NotSent, format!("{failed} of {} mails were not sent", mails.len())))
}

async fn hand_over_one(mail: &Outgoing, send: bool, mailer: &Mailer) -> Result<(), Unsent> {
    let at_once = |failure| Unsent { failure, late: false };
    let (mut to, mut wrong) = (Vec::new(), Vec::new());
    for list in &mail.to {
        match list.clone().and_then(|list| mailer.addresses(&list)) {
            Ok((addresses, others)) => {
                to.extend(addresses);
                wrong.extend(others.into_iter().map(Failure::usage));
            }
            Err(failure) => wrong.push(failure),
        }
    }
    if to.is_empty() {
        let failure = wrong.into_iter().next();
        return Err(at_once(failure.unwrap_or_else(|| Failure::usage("a mail to nobody"))));
    }
    // The others get theirs.
    wrong.iter().for_each(|failure| warn(&failure.says));
    if send {
        let message = mailer.message(&mail.letter, &to).map_err(at_once)?;
        mailer.send(&message).await?.iter().for_each(|why| warn(why));
        return Ok(());
    }
    let to: Vec<String> = to.iter().map(ToString::to_string).collect();
    let Letter { subject, text } = &mail.letter;
    let shown = format!("To: {}\nSubject: {subject}\n\n{text}\n", to.join(", "));
    output::write(None, shown.as_bytes()).map_err(at_once)
}
