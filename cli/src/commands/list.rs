//! `jobledger list`

use job_report::show::{bytes, digits, percent, si, time};
use job_report::{Job, Report, State};

use super::surroundings::Surroundings;
use crate::arguments::{self, JobState, ListFormat};
use crate::formats::moment;
use crate::formats::table::{self, Head, Numbers};
use crate::job_id::shown;
use crate::source::prometheus::Selection;
use crate::{Failure, Kind, output};

/// A column, and its cell.
struct Column {
    head: Head,
    cell: fn(&Report, &Surroundings, Numbers) -> Option<String>,
}

const fn text(name: &'static str, cell: fn(&Report, &Surroundings, Numbers) -> Option<String>) -> Column {
    Column { head: Head { name, number: false }, cell }
}

const fn number(name: &'static str, cell: fn(&Report, &Surroundings, Numbers) -> Option<String>) -> Column {
    Column { head: Head { name, number: true }, cell }
}

const COLUMNS: &[Column] = &[
    text("job", |report, _, _| Some(shown(report.job.id, &report.job.identity))),
    text("user", |report, _, _| some(&report.job.identity.user)),
    text("account", |report, _, _| some(&report.job.identity.account)),
    text("partition", |report, _, _| some(&report.job.identity.partition)),
    text("name", |report, _, _| some(&report.job.identity.name)),
    text("state", |report, _, _| Some(state(&report.job))),
    // As sacct writes it.
    text("start", |report, here, numbers| {
        let format = if numbers == Numbers::Raw { "%FT%T" } else { "%F %H:%M" };
        Some(moment(report.job.start(), &here.zone, format))
    }),
    number("elapsed", |report, _, numbers| Some(numbers.cell(report.numbers.elapsed_seconds, time))),
    number("nodes", |report, _, _| Some(report.job.nodes.len().to_string())),
    number("cpus", |report, _, numbers| Some(numbers.cell(report.numbers.cpus?, digits))),
    number("cpu", |report, _, numbers| Some(numbers.cell(report.numbers.cpu_use?, percent))),
    number("memory", |report, _, numbers| Some(numbers.cell(report.numbers.memory_use?, percent))),
    number("peak", |report, _, numbers| Some(numbers.cell(report.numbers.memory_peak_bytes?, bytes))),
    number("gpus", |report, _, numbers| Some(numbers.cell(report.numbers.gpus?, digits))),
    number("gpu", |report, _, numbers| Some(numbers.cell(report.numbers.gpu_use?, percent))),
    number("time", |report, _, numbers| Some(numbers.cell(report.numbers.time_use?, percent))),
    number("energy", |report, _, numbers| Some(numbers.cell(report.numbers.energy_joules?, watt_hours))),
    text("advice", |report, _, _| report.advice.first().map(|advice| advice.piece.name().to_owned())),
];

fn watt_hours(joules: f64) -> String {
    si(joules / 3600.0, "Wh")
}

const DEFAULT: [&str; 9] = ["job", "user", "name", "state", "elapsed", "cpu", "memory", "gpu", "advice"];

fn some(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn state(job: &Job) -> String {
    match (&job.ended, job.state()) {
        (Some(ended), _) => ended.state.clone(),
        (None, State::Running) => "running".to_owned(),
        (None, State::Ended) => "ended".to_owned(),
        (None, State::NotSeen) => "not seen".to_owned(),
    }
}

pub(super) async fn run(options: &arguments::List, surroundings: &Surroundings) -> Result<(), Failure> {
    let columns = chosen(&options.columns)?;
    // Of jobs that are named it does not matter whose they are.
    let named = !options.jobs.is_empty() || options.array.is_some();
    let user = if named {
        options.user.clone()
    } else {
        let user = surroundings.privacy.owner(options.user.clone())?;
        let user = user.or_else(|| surroundings.environment.user.clone());
        Some(user.ok_or_else(|| Failure::usage("whose jobs? --user with a name, or all"))?)
    };
    let selection = Selection {
        user: user.filter(|user| user != "all"),
        account: options.account.clone(),
        partition: options.partition.clone(),
        array: options.array,
        ids: options.jobs.clone(),
    };
    let wanted = |report: &Report| match options.state {
        None => true,
        Some(JobState::Running) => report.job.state() == State::Running,
        Some(JobState::Ended) => report.job.state() != State::Running,
    };
    let mut reports = surroundings.reports(&selection).await?;
    reports.retain(wanted);
    if reports.is_empty() {
        let whose = selection.user.map(|user| format!(" of {user}")).unwrap_or_default();
        return Err(Failure::new(
            Kind::NotFound,
            format!("no job{whose} was seen in that time: --since looks further back, --user=all at others"),
        ));
    }
    let heads: Vec<Head> = columns.iter().map(|column| column.head).collect();
    let rows = |numbers| {
        let cells =
            |report| columns.iter().map(|column| (column.cell)(report, surroundings, numbers)).collect();
        reports.iter().map(cells).collect::<Vec<table::Row>>()
    };
    let bytes = match options.format {
        ListFormat::Text => table::text(&heads, &rows(Numbers::Shown)).into_bytes(),
        ListFormat::Parsable => table::parsable(&heads, &rows(Numbers::Raw)).into_bytes(),
        ListFormat::Json => output::json(&reports.iter().map(Row::of).collect::<Vec<_>>())?,
    };
    output::write(None, &bytes)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Column>, Failure> {
    let find = |name: &str| COLUMNS.iter().find(|column| column.head.name == name);
    let unknown = |name: &str| {
        let all: Vec<&str> = COLUMNS.iter().map(|column| column.head.name).collect();
        Failure::usage(format!("--columns={name}: the columns are {}", all.join(", ")))
    };
    if names.is_empty() {
        return Ok(DEFAULT.iter().filter_map(|name| find(name)).collect());
    }
    names.iter().map(|name| find(name).ok_or_else(|| unknown(name))).collect()
}

#[derive(serde::Serialize)]
struct Row<'a> {
    job: u64,
    identity: &'a job_report::Identity,
    state: String,
    start: f64,
    nodes: usize,
    numbers: &'a job_report::Numbers,
    advice: Vec<&'static str>,
}

impl<'a> Row<'a> {
    fn of(report: &'a Report) -> Self {
        let Report { job, numbers, advice, .. } = report;
        let advice = advice.iter().map(|advice| advice.piece.name()).collect();
        Self {
            job: job.id,
            identity: &job.identity,
            state: state(job),
            start: job.start(),
            nodes: job.nodes.len(),
            numbers,
            advice,
        }
    }
}
