//! `jobledger mail`: SLURM's MailProg.

use std::time::Duration;

use super::surroundings::{Environment, Surroundings, warn};
use super::{array, block_on, report, with};
use crate::arguments::{self, Common};
use crate::mail::event::{About, Event, What};
use crate::mail::{Letter, Mailer};
use crate::source::prometheus::Selection;
use crate::spool::{Spool, Task};
use crate::text::harmless_line;
use crate::{Failure, Kind, config, output};

/// SLURM's mail is sent whatever happens: without a report it says why there is none.
pub(super) fn run(
    options: &arguments::Mail,
    common: &Common,
    environment: &Environment,
) -> Result<(), Failure> {
    let event = Event::of(&options.subject, environment.mail_type.as_deref(), environment.job_id.as_deref());
    // A mail that waited in the spool is sent all the same.
    if event.about.is_none() && options.without_report.is_none() {
        return Err(Failure::usage(
            "neither the subject nor $SLURM_JOB_ID names a job: SLURM's subjects are like 'Slurm Job_id=123 Name=x Ended'",
        ));
    }
    if !options.spool {
        return send(options, &event, options.without_report.as_deref(), common, environment);
    }
    let task = Task::Mail {
        subject: options.subject.clone(),
        recipient: options.recipient.clone(),
        mail_type: environment.mail_type.clone(),
        job_id: environment.job_id.clone(),
    };
    put(task, common, environment).or_else(|failure| {
        warn(&failure.says);
        send(options, &event, Some(&failure.says), common, environment)
    })
}

/// Leaves a task to `jobledger spool`.
pub(super) fn put(task: Task, common: &Common, environment: &Environment) -> Result<(), Failure> {
    let config = config::load(common.config.as_deref(), environment.user_config.as_deref())?;
    Spool::new(&config.spool).put(task).map_err(|error| Failure::other(error.to_string()))
}

fn send(
    options: &arguments::Mail,
    event: &Event,
    without_report: Option<&str>,
    common: &Common,
    environment: &Environment,
) -> Result<(), Failure> {
    // Mails are UTF-8, whatever slurmctld's locale is.
    let environment = &Environment { ascii: false, ..environment.clone() };
    let surroundings = match without_report {
        None => Surroundings::new(common, environment, "30d"),
        Some(why) => Err(Failure::other(why)),
    };
    let mailer = match &surroundings {
        Ok(surroundings) => Mailer::new(&surroundings.config.mail)?,
        // Without a server there may be a configuration of mails.
        Err(_) => {
            let files = config::load(common.config.as_deref(), environment.user_config.as_deref());
            Mailer::new(&files.unwrap_or_default().mail)?
        }
    };
    let (to, wrong) = mailer.addresses(&options.recipient)?;
    wrong.iter().for_each(|why| warn(why));
    let page = match surroundings {
        _ if event.what == What::Other => None,
        Ok(surroundings) => Some(with(&surroundings, |here| Box::pin(page(event, options.wait, here)))),
        Err(failure) => Some(Err(failure)),
    };
    let page = page.map(|page| {
        page.unwrap_or_else(|failure| {
            if without_report.is_none() {
                warn(&failure.says);
            }
            format!("There is no report: {}\n", failure.says)
        })
    });
    // The job's name in it is the user's.
    let subject = harmless_line(&options.subject);
    let text = page.map_or_else(|| format!("{subject}\n"), |page| format!("{subject}\n\n{page}"));
    let letter = Letter { subject, text };
    let message = mailer.message(&letter, &to)?;
    if options.dry_run {
        return output::write(None, letter.shown(&to).as_bytes());
    }
    let refused = block_on(async { Ok(mailer.send(&message).await?) })?;
    refused.iter().for_each(|why| warn(why));
    Ok(())
}

async fn page(event: &Event, wait: u32, surroundings: &Surroundings) -> Result<String, Failure> {
    let has_end = event.what == What::Ended && !event.never_ran;
    let wait = Duration::from_secs(if has_end { wait.into() } else { 0 });
    match &event.about {
        Some(About::Job(id)) => match surroundings.report_after(wait, &report::wanted(id)).await {
            Ok(report) => Ok(report::text(&report, surroundings, false)),
            Err(failure) if event.never_ran && failure.kind == Kind::NotFound => {
                let says = format!("job {id} was cancelled before it ran, or in its first second");
                Err(Failure::new(Kind::NeverRan, says))
            }
            Err(failure) => Err(failure),
        },
        Some(About::Array(number)) => {
            let selection = Selection { array: Some(*number), ..Selection::default() };
            let reports = surroundings.reports_after(wait, &selection).await?;
            array::page(*number, &reports, surroundings.width, surroundings.ascii)
        }
        None => Err(Failure::usage("neither the subject nor $SLURM_JOB_ID names a job")),
    }
}
