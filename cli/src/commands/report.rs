//! `jobledger report`

#[cfg(feature = "pdf")]
use std::io::IsTerminal;
use std::time::Duration;

use job_files::json;
use job_report::Report;

use super::surroundings::{Environment, Surroundings, warn};
use crate::arguments::{self, Format};
#[cfg(feature = "pdf")]
use crate::formats::pdf;
use crate::formats::{html, jobstats, markdown, seff, text};
use crate::job_id::JobId;
use crate::source::prometheus::{OF_PAGES, OF_REPORTS};
use crate::source::recordings::Recordings;
use crate::source::{Parts, Wanted, WhichRun};
use crate::{Failure, Kind, output};

/// Bins of the curves of a report in words: more than a terminal has columns.
const BINS: usize = 120;
/// The same of one with plots: nearly as many as these have pixels.
const PAGE_BINS: usize = 600;

/// Reports of a server.
pub(super) async fn run(options: &arguments::Report, surroundings: &Surroundings) -> Result<(), Failure> {
    let wait = Duration::from_secs(options.wait.unwrap_or(0).into());
    let own = || this_job(&surroundings.environment);
    shown(options, surroundings, own, async |wanted| surroundings.report_after(wait, wanted).await).await
}

/// Reports of recordings.
pub(super) async fn of_recordings(
    options: &arguments::Report,
    surroundings: &Surroundings<Recordings>,
) -> Result<(), Failure> {
    let own = || surroundings.source.job();
    shown(options, surroundings, own, async |wanted| surroundings.report(wanted).await).await
}

async fn shown<S>(
    options: &arguments::Report,
    surroundings: &Surroundings<S>,
    own: impl FnOnce() -> Result<JobId, Failure>,
    ask: impl AsyncFn(&Wanted<'_>) -> Result<Report, Failure>,
) -> Result<(), Failure> {
    let jobs = if options.jobs.is_empty() { &[own()?] } else { options.jobs.as_slice() };
    let format = match (options.format, options.output.as_deref()) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::by_ending(path)?.unwrap_or(Format::Text),
        (None, None) => Format::Text,
    };
    if format.is_whole_file() && jobs.len() > 1 {
        return Err(Failure::usage(
            "a file of this format is of one job: ask for one, or for another format",
        ));
    }
    #[cfg(feature = "pdf")]
    if format == Format::Pdf && options.output.is_none() && std::io::stdout().is_terminal() {
        return Err(Failure::usage("a PDF is nothing for a terminal: -o FILE writes it to a file"));
    }
    let (mut written, mut failures, mut incomplete) = (Vec::new(), Vec::new(), false);
    for id in jobs {
        match ask(&of_format(id, options, format)).await {
            Ok(report) => {
                incomplete |= report.is_incomplete();
                // A blank line between pages; documents follow each other.
                if !written.is_empty()
                    && !matches!(format, Format::Json | Format::JobstatsJson | Format::JobstatsBlob)
                {
                    written.push(b'\n');
                }
                written.extend(render(&report, format, surroundings)?);
            }
            Err(failure) => failures.push(failure),
        }
    }
    if !written.is_empty() {
        output::write(options.output.as_deref(), &written)?;
    }
    match (failures.len(), jobs.len()) {
        (0, _) if incomplete => {
            Err(Failure::new(Kind::Incomplete, "a part of the job was not seen: the report says which"))
        }
        (0, _) => Ok(()),
        (1, 1) => Err(failures.remove(0)),
        (failed, all) => {
            failures.iter().for_each(|failure| warn(&failure.says));
            Err(Failure::new(Kind::Some, format!("{failed} of {all} jobs have no report")))
        }
    }
}

fn this_job(environment: &Environment) -> Result<JobId, Failure> {
    let id = environment.job_id.as_deref();
    let id = id.ok_or_else(|| Failure::usage("which job? A number, or run it inside a job"))?;
    id.parse().map_err(|error| Failure::usage(format!("$SLURM_JOB_ID: {error}")))
}

fn of_format<'a>(id: &'a JobId, options: &arguments::Report, format: Format) -> Wanted<'a> {
    let run = options.run.map_or(WhichRun::Last, WhichRun::Number);
    let (bins, curves) = if format.is_whole_file() { (PAGE_BINS, OF_PAGES) } else { (BINS, OF_REPORTS) };
    let parts = match format {
        Format::Json => Parts::Totals,
        _ if format.is_whole_file() => Parts::Plots,
        _ => Parts::None,
    };
    Wanted { run, bins, curves, parts, ..wanted(id) }
}

/// What a report in words is made of.
pub(super) fn wanted(id: &JobId) -> Wanted<'_> {
    Wanted { id, run: WhichRun::Last, bins: BINS, step: None, curves: OF_REPORTS, parts: Parts::None }
}

/// A report in words.
pub(super) fn text<S>(report: &Report, surroundings: &Surroundings<S>, colour: bool) -> String {
    let options = text::Options {
        width: surroundings.width,
        ascii: surroundings.ascii,
        colour,
        node_rows: node_rows(surroundings),
        zone: surroundings.zone.clone(),
        link: link(report, surroundings),
    };
    text::render(report, &surroundings.thresholds, &options)
}

fn node_rows<S>(surroundings: &Surroundings<S>) -> usize {
    surroundings.config.report.node_rows.unwrap_or(8)
}

fn render<S>(report: &Report, format: Format, surroundings: &Surroundings<S>) -> Result<Vec<u8>, Failure> {
    let node_rows = node_rows(surroundings);
    let zone = surroundings.zone.clone();
    let link = link(report, surroundings);
    let failure = |error: &dyn std::fmt::Display| Failure::other(error.to_string());
    Ok(match format {
        Format::Json => {
            let mut bytes = Vec::new();
            json::write(report, &mut bytes).map_err(|error| failure(&error))?;
            bytes
        }
        Format::Text => text(report, surroundings, surroundings.colour()).into_bytes(),
        Format::Markdown => {
            markdown::render(report, &markdown::Options { node_rows, zone, link }).into_bytes()
        }
        Format::Html => {
            let options = html::Options { zone, link };
            html::render(report, &surroundings.thresholds, &options).into_bytes()
        }
        #[cfg(feature = "pdf")]
        Format::Pdf => {
            let options = pdf::Options { zone, link };
            pdf::render(report, &surroundings.thresholds, &options).map_err(|error| failure(&error))?
        }
        Format::Seff => seff::render(report).into_bytes(),
        Format::Jobstats => jobstats::render(report, &jobstats::Options { node_rows, zone }).into_bytes(),
        Format::JobstatsJson => jobstats::json(report).map_err(|error| failure(&error))?,
        Format::JobstatsBlob => {
            let blob = jobstats::blob(report).map_err(|error| failure(&error))?;
            blob.remark.into_iter().for_each(warn);
            (blob.text + "\n").into_bytes()
        }
    })
}

/// The address of the dashboard, for the time of the job.
fn link<S>(report: &Report, surroundings: &Surroundings<S>) -> Option<String> {
    let (job, template) = (&report.job, surroundings.config.report.grafana.as_deref()?);
    let link = template
        .replace("{jobid}", &job.id.to_string())
        .replace("{cluster}", job.cluster.as_deref().unwrap_or("All"))
        .replace("{from}", &format!("{:.0}", (job.start() - 60.0).floor() * 1000.0))
        .replace("{to}", &format!("{:.0}", (job.until() + 120.0).ceil() * 1000.0));
    Some(link)
}
