//! Documents that are made from the program itself, so that they cannot fall behind it.

use std::fmt::Write;

use exposition::{Family, Kind, Level};

use crate::cli::{Document, command};
use crate::collector::REGISTRY;

/// The text of a document.
pub fn document(document: Document) -> String {
    match document {
        Document::Flags => flags(),
        Document::Metrics => metrics(),
        Document::Man => man(),
        Document::Completion(shell) => completion(shell),
    }
}

fn man() -> String {
    let mut page = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = clap_mangen::Man::new(command()).render(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "jobledger-exporter", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

const GENERATED: &str = "<!-- Made by `make docs`; edit the program instead. -->\n";

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

fn flags() -> String {
    let mut page = format!(
        "{GENERATED}# Flags\n\nEvery flag has an environment variable of the same meaning; the command line wins. \
         Unknown and contradictory flags are errors.\n"
    );
    let command = command();
    let mut headings: Vec<&str> = Vec::new();
    for heading in command.get_arguments().filter_map(|arg| arg.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let _ = write!(
            page,
            "\n## {}\n\n| flag | default | environment | meaning |\n|---|---|---|---|\n",
            cell(heading)
        );
        let shown = |arg: &&clap::Arg| arg.get_help_heading() == Some(heading) && !arg.is_hide_set();
        for arg in command.get_arguments().filter(shown) {
            let text = |value: Option<&std::ffi::OsStr>| {
                value.map(|v| v.to_string_lossy().into_owned()).unwrap_or_default()
            };
            let default: Vec<String> = arg.get_default_values().iter().map(|v| text(Some(v))).collect();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                page,
                "| `--{}` | {} | `{}` | {} |",
                arg.get_long().unwrap_or_default(),
                if arg.get_action().takes_values() { cell(&default.join(", ")) } else { String::new() },
                text(arg.get_env()),
                cell(&help)
            );
        }
    }
    page
}

fn metrics() -> String {
    let mut page = format!(
        "{GENERATED}# Metrics\n\nNames are a public contract: a change is a line in CHANGELOG.md. Series of a job carry `jobid` (and \
         `slurm_node` on a host with several slurmd), those of steps also `step`, those of tasks also `task`. Counters and what is \
         marked *retained* are still published while an ended job is retained (`--jobs.retention`); gauges are not. What could not be \
         read is absent, never 0.\n\nThe column *profile* has the smallest `--metric.profile` that a metric is in: `lean`, `standard` or `full` \
         ([install.md](install.md#how-much-is-exported)). A collector that is off by default (–) has all of its metrics once it is on, and so \
         has every one that is switched on by name.\n"
    );
    for entry in REGISTRY {
        let default = if entry.default_on { "on" } else { "off" };
        let _ = write!(page, "\n## {}\n\n{} (default: {default}).", entry.name, entry.summary);
        if let Some(cost) = entry.cost {
            let _ = write!(page, " {cost}.");
        }
        page.push_str("\n\n");
        table(&mut page, &(entry.families)(), entry.default_on);
    }
    page.push_str("\n## The exporter's own account of its collectors\n\n");
    table(&mut page, &crate::scrape::health_families(), true);
    page
}

/// `by_profile`: whether the profile decides what is exported of them.
fn table(page: &mut String, families: &[&'static Family], by_profile: bool) {
    page.push_str("| family | type | profile | labels | since | meaning |\n|---|---|---|---|---|---|\n");
    // Steps and tasks have the job's families under their own prefix: one row covers all three.
    for family in families.iter().filter(|f| !matches!(f.level, Level::Step | Level::Task)) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let below = family.name.strip_prefix("jobledger_job_").is_some_and(|rest| {
            families.iter().any(|f| f.name.strip_prefix("jobledger_step_") == Some(rest))
        });
        let retained = if family.outlives_job && family.kind != Kind::Counter && family.level == Level::Job {
            ", retained"
        } else {
            ""
        };
        let levels = if below { "; also `step` and `task`" } else { "" };
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {kind}{retained} | {} | {} | {} | {}{levels} |",
            family.name,
            if by_profile { family.profile.as_str() } else { "–" },
            labels.join(", "),
            family.since,
            cell(&family.help_text())
        );
    }
}
