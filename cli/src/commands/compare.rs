//! `jobledger compare`: jobs side by side, and how well they scale.

use job_report::show::{bytes, digits, percent, si, time};
use job_report::{Numbers, Report};
use serde::Serialize;

use super::surroundings::Surroundings;
use crate::arguments::{self, ListFormat};
use crate::formats::table::{self, Head, Row};
use crate::source::prometheus::Selection;
use crate::{Failure, Kind, output};

/// How a job scales, beside the first one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Scaling {
    /// The first job's time of this one's.
    pub(super) speed_up: Option<f64>,
    /// Of the speed-up that the cores would give if the work were divided without loss; of jobs with GPUs, that the GPUs would give.
    pub(super) efficiency: Option<f64>,
}

/// Beside the first job. Jobs that still run have no time yet.
pub(super) fn scaling(first: &Report, this: &Report) -> Scaling {
    let ended = |report: &Report| report.job.state() == job_report::State::Ended;
    let elapsed = |report: &Report| report.numbers.elapsed_seconds;
    let speed_up =
        (ended(first) && ended(this) && elapsed(this) > 0.0).then(|| elapsed(first) / elapsed(this));
    let gpus = |numbers: &Numbers| numbers.gpus.filter(|gpus| *gpus > 0.0);
    let more = match (gpus(&first.numbers), gpus(&this.numbers)) {
        (Some(first), Some(this)) => Some(this / first),
        (None, None) => first
            .numbers
            .cores
            .zip(this.numbers.cores)
            .filter(|(first, _)| *first > 0.0)
            .map(|(first, this)| this / first),
        // What a GPU is worth in cores is not known.
        _ => None,
    };
    Scaling { speed_up, efficiency: speed_up.zip(more).map(|(speed_up, more)| speed_up / more) }
}

#[derive(Serialize)]
struct Compared<'a> {
    job: u64,
    identity: &'a job_report::Identity,
    nodes: usize,
    numbers: &'a Numbers,
    #[serde(flatten)]
    scaling: Scaling,
}

pub(super) async fn run(options: &arguments::Compare, surroundings: &Surroundings) -> Result<(), Failure> {
    let selection = Selection { ids: options.jobs.clone(), ..Selection::default() };
    let mut found = surroundings.reports(&selection).await?;
    let mut reports: Vec<Report> = Vec::new();
    // In the order of the command line; an array stands for its elements.
    for id in &options.jobs {
        let (these, others): (Vec<Report>, Vec<Report>) =
            found.into_iter().partition(|report| id.is_of(report.job.id, &report.job.identity));
        if these.is_empty() {
            return Err(Failure::new(
                Kind::NotFound,
                format!("job {id}: no node showed it in that time: --since looks further back"),
            ));
        }
        reports.extend(these);
        found = others;
    }
    let Some(first) = reports.first() else { return Err(Failure::usage("which jobs?")) };
    let bytes = match options.format {
        ListFormat::Json => {
            let rows = reports.iter().map(|report| Compared {
                job: report.job.id,
                identity: &report.job.identity,
                nodes: report.job.nodes.len(),
                numbers: &report.numbers,
                scaling: scaling(first, report),
            });
            output::json(&rows.collect::<Vec<_>>())?
        }
        ListFormat::Text => table::text(&HEADS, &rows(first, &reports, table::Numbers::Shown)).into_bytes(),
        ListFormat::Parsable => {
            table::parsable(&HEADS, &rows(first, &reports, table::Numbers::Raw)).into_bytes()
        }
    };
    output::write(None, &bytes)
}

const fn number(name: &'static str) -> Head {
    Head { name, number: true }
}

const HEADS: [Head; 13] = [
    Head { name: "job", number: false },
    Head { name: "name", number: false },
    number("nodes"),
    number("cores"),
    number("gpus"),
    number("elapsed"),
    number("speed-up"),
    number("efficiency"),
    number("cpu"),
    number("peak"),
    number("gpu"),
    number("waited"),
    number("energy"),
];

fn rows(first: &Report, reports: &[Report], cells: table::Numbers) -> Vec<Row> {
    let cell = |value: Option<f64>, show: fn(f64) -> String| value.map(|value| cells.cell(value, show));
    let row = |report: &Report| {
        let (job, numbers, scaling) = (&report.job, &report.numbers, scaling(first, report));
        vec![
            Some(job.id.to_string()),
            Some(job.identity.name.clone()).filter(|name| !name.is_empty()),
            Some(job.nodes.len().to_string()),
            cell(numbers.cores, digits),
            cell(numbers.gpus, digits),
            cell(Some(numbers.elapsed_seconds), time),
            cell(scaling.speed_up, digits),
            cell(scaling.efficiency, percent),
            cell(numbers.cpu_use, percent),
            cell(numbers.memory_peak_bytes, bytes),
            cell(numbers.gpu_use, percent),
            cell(numbers.waited_io, percent),
            cell(numbers.energy_joules, |joules| si(joules / 3600.0, "Wh")),
        ]
    };
    reports.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use job_report::{Job, Node, Thresholds, metric};

    use super::*;

    fn report(seconds: f64, cores: f64, ended: bool) -> Report {
        let mut node =
            Node { end: ended.then_some(seconds), seen_until: seconds, running: !ended, ..Node::default() };
        (node.hardware.cpus, node.hardware.cores) = (Some(64.0), Some(64.0));
        node.values.set(&metric::CPUS, cores);
        let job = Job { nodes: vec![node], ..crate::testing::job() };
        Report::new(job, &Thresholds::shipped().unwrap(), Vec::new())
    }

    #[test]
    fn scaling_is_beside_the_first_job() {
        let first = report(100.0, 4.0, true);
        let found = scaling(&first, &report(40.0, 16.0, true));
        assert_eq!(found, Scaling { speed_up: Some(2.5), efficiency: Some(0.625) });
        assert_eq!(scaling(&first, &first), Scaling { speed_up: Some(1.0), efficiency: Some(1.0) });
        assert_eq!(scaling(&first, &report(40.0, 16.0, false)).speed_up, None);
    }
}
