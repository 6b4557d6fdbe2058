//! Sentences that several formats have.

use job_report::show::{digits, percent, short_time};
use job_report::{Job, Numbers, Origin, Reason, Report, Severity, State, Unchecked};

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
        (true, None) => "no GPU known".to_owned(),
        _ => {
            models.iter().map(|(model, number)| format!("{number} × {model}")).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Which nodes were seen: `2 of 3 nodes`. More than SLURM gave it are no part of these.
fn nodes(report: &Report) -> String {
    let seen = report.quality.nodes_seen;
    match report.quality.nodes_allocated.filter(|all| u64::try_from(seen).is_ok_and(|seen| seen <= *all)) {
        Some(all) => format!("{seen} of {all} nodes"),
        None => count_of(seen, "node"),
    }
}

/// Why totals may not be exact, in one line: `its end was not seen; 2 of 3 nodes were seen`.
pub(super) fn reasons(report: &Report) -> Option<String> {
    let all: Vec<String> = report.quality.reasons.iter().map(Reason::says).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Whether totals are exact, why they may not be, or what was not looked at.
fn exactness(report: &Report) -> String {
    if let Some(reasons) = reasons(report) {
        return format!("totals may not be exact: {reasons}");
    }
    let unknown: Vec<&str> = report.quality.unchecked.iter().map(|what| unchecked(*what)).collect();
    match unknown.as_slice() {
        [] => "totals exact".to_owned(),
        some => format!("totals complete as far as known; not known: {}", some.join(", ")),
    }
}

fn unchecked(what: Unchecked) -> &'static str {
    match what {
        Unchecked::Nodes => "how many nodes it had",
        Unchecked::Scrapes => "how often it was scraped",
        Unchecked::Resets => "whether counters began anew",
    }
}

/// How far the data reaches: `2 of 3 nodes; 94 % of the time scraped; totals exact; curves in 15 s steps`.
pub(super) fn data(report: &Report) -> String {
    let covered = report.quality.coverage.map(|part| format!("{} of the time scraped", percent(part)));
    let step =
        report.job.curves.as_ref().map(|curves| format!("curves in {} steps", short_time(curves.step)));
    let parts = [Some(nodes(report)), covered, Some(exactness(report)), step];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// What a reader thinks of a piece of advice first.
pub(super) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "Problem:",
        Severity::Warning => "Waste:",
        Severity::Hint => "Hint:",
    }
}
