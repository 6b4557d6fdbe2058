//! Sentences that several formats have.

use jiff::tz::TimeZone;
use job_report::show::{digits, percent, time};
use job_report::{Job, Numbers, Origin, Report, Severity, State};

use super::moment;

/// How the job is doing: `running`, `COMPLETED, exit 0 (by the node)`.
pub(super) fn state(job: &Job) -> String {
    let Some(ended) = &job.ended else {
        return match job.state() {
            State::Running => "running".to_owned(),
            State::Ended => "ended".to_owned(),
            State::NotSeen => "not exported any more".to_owned(),
        };
    };
    let mut words = ended.state.clone();
    if let Some(code) = ended.exit_code {
        words += &format!(", exit {code}");
    }
    if let Some(signal) = ended.signal.filter(|signal| *signal > 0) {
        words += &format!(", signal {signal}");
    }
    if ended.origin == Origin::Derived {
        words += " (derived)";
    }
    words
}

/// SLURM's own word for it, in capitals. No state of SLURM is `UNKNOWN`: a reader takes it for none of those that it knows.
pub(super) fn slurm_state(job: &Job) -> &str {
    match (&job.ended, job.state()) {
        (Some(ended), _) => &ended.state,
        (None, State::Running) => "RUNNING",
        (None, State::Ended | State::NotSeen) => "UNKNOWN",
    }
}

/// `2 nodes`, `1 GPU`.
pub(super) fn count_of(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// `48 CPUs`, `1 core`.
pub(super) fn count(number: f64, thing: &str) -> String {
    format!("{} {thing}{}", digits(number), if (number - 1.0).abs() < 1e-9 { "" } else { "s" })
}

/// `4 × A100-SXM4-40GB`, models in the order of their number.
pub(super) fn gpus(job: &Job, numbers: &Numbers) -> String {
    let mut models: Vec<(String, usize)> = Vec::new();
    for (_, gpu) in job.gpus() {
        let model =
            if gpu.profile.is_empty() { gpu.model.clone() } else { format!("{} {}", gpu.model, gpu.profile) };
        let model = if model.is_empty() { "GPU".to_owned() } else { model };
        match models.iter_mut().find(|(name, _)| *name == model) {
            Some((_, number)) => *number += 1,
            None => models.push((model, 1)),
        }
    }
    match (models.is_empty(), numbers.gpus) {
        (true, Some(_)) => "no GPU".to_owned(),
        (true, None) => "GPUs unknown".to_owned(),
        _ => {
            models.iter().map(|(model, number)| format!("{number} × {model}")).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Without advice: `Nothing to change`, and of what that cannot be said.
pub(super) fn nothing_to_change(report: &Report) -> String {
    let numbers = &report.numbers;
    let known = [
        ("GPUs", numbers.gpus.is_some()),
        ("CPU use", numbers.cpu_use.is_some()),
        ("memory limit", numbers.memory_limit_bytes.is_some()),
        ("time limit", report.job.time_limit.is_some()),
    ];
    let unknown: Vec<&str> = known.iter().filter(|(_, known)| !known).map(|(name, _)| *name).collect();
    match unknown.as_slice() {
        [] => "Nothing to change".to_owned(),
        [one] => format!("Nothing to change ({one} unknown)"),
        [most @ .., last] => format!("Nothing to change ({} and {last} unknown)", most.join(", ")),
    }
}

/// Whether clocks changed between a job's start and its end: from then on each time needs its zone.
pub(super) fn zone_changes(job: &Job, zone: &TimeZone) -> bool {
    moment(job.start(), zone, "%z") != moment(job.until(), zone, "%z")
}

/// Which nodes were seen: `2 of 3 nodes`.
fn nodes(report: &Report) -> String {
    let seen = report.quality.nodes_seen;
    match report.quality.nodes_allocated {
        Some(all) => format!("{seen} of {all} nodes"),
        None => count_of(seen, "node"),
    }
}

fn ends(report: &Report) -> String {
    match report.quality.ends_not_seen {
        0 => String::new(),
        1 if report.quality.nodes_seen == 1 => ", its end not seen".to_owned(),
        count => format!(", the end on {count} not seen"),
    }
}

/// How much of the job was seen: `2 of 3 nodes, the end on 1 not seen`.
pub(super) fn seen(report: &Report) -> String {
    nodes(report) + &ends(report)
}

/// How far the data reaches: `2 of 3 nodes, 94 % of the time scraped, totals exact`.
pub(super) fn data(report: &Report) -> String {
    let covered = report.quality.coverage;
    let covered = covered.map(|part| format!(", {} of the time scraped", percent(part))).unwrap_or_default();
    let step = report
        .job
        .curves
        .as_ref()
        .map(|curves| format!(", curves of {}", time(curves.step)))
        .unwrap_or_default();
    format!("{}{covered}{}, totals exact{step}", nodes(report), ends(report))
}

/// What a reader thinks of a piece of advice first.
pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "Problem:",
        Severity::Warning => "Waste:",
        Severity::Hint => "Hint:",
    }
}
