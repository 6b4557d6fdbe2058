//! A report as a document with plots: what HTML and PDF show, in their order.

mod curves;
mod heat_maps;
mod numbers;
mod tables;

use jiff::tz::TimeZone;
use job_report::show::{bytes, digits, percent, time};
use job_report::{Advice, Report, Severity, Thresholds, metric};
use svg_plots::{Bar, Bars, Canvas, Tone, Unit, text_width};

use super::table::{Head, Row};
use super::{moment, rows, words};
use crate::job_id::shown;

/// How it is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of times.
    pub zone: TimeZone,
    /// A link to the dashboard.
    pub link: Option<String>,
}

/// A document.
#[derive(Debug)]
pub(super) struct Document {
    /// `Job 123`
    pub(super) title: String,
    /// The name that its user gave the job.
    pub(super) name: String,
    /// Whose it is and when it began, in a line.
    pub(super) summary: String,
    /// Who and what it is.
    pub(super) facts: Vec<(&'static str, String)>,
    /// What a reader should know first.
    pub(super) verdict: (Option<Severity>, String),
    /// What it has, none of them empty.
    pub(super) sections: Vec<Section>,
    /// A link to the dashboard.
    pub(super) link: Option<String>,
}

/// A section with its heading.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    pub(super) blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Debug)]
pub(super) enum Block {
    /// Sentences, each by itself.
    Lines(Vec<String>),
    Advice(Vec<Advice>),
    Drawing(Drawing),
    Table(Table),
}

/// A drawing.
#[derive(Debug)]
pub(super) struct Drawing {
    /// What it shows, in words, for a PDF: in HTML the drawing says it.
    #[cfg_attr(not(feature = "pdf"), allow(dead_code, reason = "only a PDF has it apart"))]
    pub(super) description: String,
    pub(super) svg: String,
}

/// A table. The first column names the row.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) caption: &'static str,
    pub(super) heads: Vec<Head>,
    pub(super) rows: Vec<Row>,
    /// The row of all together.
    pub(super) total: Option<Row>,
}

/// Of drawings, in pixels. 720 are the width of a page of A4, with small text.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 165.0;
/// Room for the names of nodes beside heat maps, which plots have too: their times are below each other.
const MOST_LEFT: f64 = 150.0;

/// What drawings have in common.
struct Place<'a> {
    report: &'a Report,
    zone: &'a TimeZone,
    canvas: Canvas<'a>,
}

impl Document {
    pub(super) fn new(report: &Report, thresholds: &Thresholds, options: &Options) -> Self {
        let (job, zone) = (&report.job, &options.zone);
        let names = job.nodes.iter().map(|node| text_width(&node.name, 10.0) + 32.0);
        let left = names.fold(70.0, f64::max).min(MOST_LEFT);
        let place = Place {
            report,
            zone,
            canvas: Canvas { width: WIDTH, height: HEIGHT, left, ..Canvas::default() },
        };
        let mut missing = Vec::new();
        let mut sections = Vec::new();
        let mut section = |title, blocks: Vec<Block>| {
            if !blocks.is_empty() {
                sections.push(Section { title, blocks });
            }
        };
        let mut used: Vec<Block> = bars(&place, thresholds).into_iter().collect();
        let sums = rows::sums(report);
        used.extend((!sums.is_empty()).then_some(Block::Lines(sums)));
        section("Used of what it had", used);
        if !report.advice.is_empty() {
            section("Advice", vec![Block::Advice(report.advice.clone())]);
        }
        section("Over time", curves::blocks(&place, &mut missing));
        section("Nodes and GPUs over time", heat_maps::blocks(&place));
        section("Nodes and GPUs", tables::nodes_and_gpus(job));
        let mut steps = curves::steps(&place);
        steps.extend(tables::steps(job));
        section("Steps", steps);
        section("Energy", tables::energy(report, &mut missing));
        section("Hardware counters", tables::counters(job, &mut missing));
        section("Data quality", vec![Block::Lines(quality(report, &missing))]);
        section("Numbers and what they are", numbers::blocks(report, zone));
        Self {
            title: format!("Job {}", shown(job.id, &job.identity)),
            name: job.identity.name.clone(),
            summary: summary(report, zone),
            facts: facts(report, zone),
            verdict: verdict(report),
            sections,
            link: options.link.as_ref().map(|link| link.chars().filter(|c| !c.is_control()).collect()),
        }
    }
}

fn verdict(report: &Report) -> (Option<Severity>, String) {
    match report.advice.first() {
        Some(advice) => (Some(advice.severity), format!("{}: {}.", advice.what, advice.measured)),
        None => (None, "Nothing to change, of what is known.".to_owned()),
    }
}

/// Texts that are known, with something between them.
fn joined(texts: &[&str], between: &str) -> String {
    texts.iter().copied().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(between)
}

fn user(report: &Report) -> String {
    let who = &report.job.identity;
    let user = joined(&[&who.user, &who.account], " / ");
    if user.is_empty() && !who.uid.is_empty() { format!("uid {}", who.uid) } else { user }
}

fn summary(report: &Report, zone: &TimeZone) -> String {
    let cluster = report.job.cluster.as_deref().unwrap_or_default();
    joined(&[&user(report), cluster, &moment(report.job.began(), zone, "%a %d %b %Y")], " · ")
}

fn facts(report: &Report, zone: &TimeZone) -> Vec<(&'static str, String)> {
    let (job, numbers) = (&report.job, &report.numbers);
    let who = &job.identity;
    let run = if job.runs > 1 { format!(", run {} of {}", job.run, job.runs) } else { String::new() };
    let limit = job.time_limit.map(|limit| format!(" of {}", time(limit))).unwrap_or_default();
    let ended = if job.state() == job_report::State::Ended { "End" } else { "Last seen" };
    let waited = job.queued_seconds.map(time).unwrap_or_default();
    let memory = job.total(&metric::MEMORY_LIMIT_BYTES).map(bytes).unwrap_or_default();
    let clock = "%a %d %b %Y %H:%M:%S";
    let facts = [
        ("User / account", user(report)),
        ("Partition / QOS", joined(&[&who.partition, &who.qos], " / ")),
        ("Cluster", job.cluster.clone().unwrap_or_default()),
        ("State", words::state(job) + &run),
        ("Start", moment(job.began(), zone, &format!("{clock} %Z"))),
        (ended, moment(job.ended_at(), zone, clock)),
        ("Elapsed", time(numbers.elapsed_seconds) + &limit),
        ("Waited before", waited),
        ("Nodes", words::count_of(job.nodes.len(), "node")),
        ("CPUs", numbers.cpus.map(digits).unwrap_or_default()),
        ("Memory", memory),
        ("GPUs", words::gpus(job, numbers)),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// What it used of what it had. The ground of a bar shows what is low and what is fair.
fn bars(place: &Place<'_>, thresholds: &Thresholds) -> Option<Block> {
    let used = rows::used(place.report);
    if used.is_empty() {
        return None;
    }
    let targets = |bounds: Option<(&str, &str)>| {
        let (low, fair) = bounds?;
        let (low, fair) = (thresholds.get(low)?, thresholds.get(fair)?);
        Some(vec![(0.0, Tone::Bad), (low, Tone::Fair), (fair, Tone::Good)])
    };
    let targets: Vec<_> = used.iter().map(|row| targets(row.bounds).unwrap_or_default()).collect();
    // XML takes spaces at the begin away.
    let labels: Vec<String> = used.iter().map(|row| row.name.replace(' ', "\u{a0}")).collect();
    let rows = used.iter().zip(&labels).zip(&targets);
    let rows = rows
        .map(|((row, label), targets)| Bar { label, value: row.part, note: &row.of, targets })
        .collect::<Vec<_>>();
    let description =
        used.iter().map(|row| format!("{} {} ({})", row.name.trim(), percent(row.part), row.of));
    let description = description.collect::<Vec<_>>().join("; ");
    let svg =
        Bars { title: "", description: &description, unit: Unit::Percent, at_least: Some((0.0, 1.0)), rows }
            .svg(&place.canvas);
    Some(Block::Drawing(Drawing { description, svg }))
}

fn quality(report: &Report, missing: &[&str]) -> Vec<String> {
    let mut lines = vec![format!("Data: {}.", words::data(report))];
    lines.extend(report.quality.notes.iter().cloned());
    if !missing.is_empty() {
        lines.push(format!("Not measured, or nothing of it seen: {}.", missing.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests;
