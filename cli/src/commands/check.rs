//! `jobledger check`: what works here, and what would change it.

use std::fmt::Write;
use std::path::Path;

use super::surroundings::Surroundings;
use crate::source::prometheus::Scope;
use crate::text::harmless;
use crate::{Failure, config, output};

/// How many targets are named.
const MOST_NAMES: usize = 3;

/// A line: whether it works, what, and what would change it.
fn line(page: &mut String, works: bool, what: &str, advice: &str) {
    let advice = if works || advice.is_empty() { String::new() } else { format!(" ({advice})") };
    // A String takes all that is written.
    let _ = writeln!(page, "{} {what}{advice}", if works { "yes" } else { "no " });
}

fn count_of(number: f64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1.0 { "" } else { "s" })
}

/// What a user may have: files, and SLURM's accounting.
async fn here(page: &mut String, config: Option<&Path>, surroundings: &Surroundings) {
    let files = match config {
        Some(chosen) => vec![chosen],
        None => [Some(Path::new(config::SITE)), surroundings.environment.user_config.as_deref()]
            .into_iter()
            .flatten()
            .collect(),
    };
    for file in files {
        line(
            page,
            file.exists(),
            &format!("configuration {}", file.display()),
            "it is not there, and need not be",
        );
    }
    match &surroundings.source.sacct {
        None => line(page, false, "sacct is asked", "--no-sacct, or slurm.sacct = \"never\""),
        Some(sacct) => match sacct.answers().await {
            Ok(()) => line(page, true, "sacct answers", ""),
            Err(why) => line(page, false, "sacct answers, for state, time limit and waiting time", &why),
        },
    }
}

/// Targets that are down, of the jobs of the server's configuration that have exporters.
async fn down(page: &mut String, surroundings: &Surroundings) -> Result<(), Failure> {
    let (client, until) = (&surroundings.source.client, surroundings.source.until);
    let expr = "up == 0 and on (job) max by (job) (last_over_time(jobledger_exporter_build_info[1d]))";
    let down = client.query(expr, until).await?;
    let names: Vec<String> = down
        .iter()
        .take(MOST_NAMES)
        .filter_map(|sample| sample.labels.get("instance"))
        .map(harmless)
        .collect();
    let more = if down.len() > MOST_NAMES { ", ..." } else { "" };
    let advice = format!("down: {}{more}; the server's page of targets says why", names.join(", "));
    let what = match down.len() {
        0 => "all targets are up".to_owned(),
        number => format!("all targets are up, but for {number}"),
    };
    line(page, down.is_empty(), &what, &advice);
    Ok(())
}

pub(super) async fn run(config: Option<&Path>, surroundings: &Surroundings) -> Result<(), Failure> {
    let (client, until, Scope { cluster_label, .. }) =
        (&surroundings.source.client, surroundings.source.until, &surroundings.source.scope);
    let mut page = String::new();
    // Without this nothing works, and the error says why.
    let nodes = client.query("count(count by (instance) (jobledger_exporter_build_info))", until).await?;
    let build = client.build_info().await.unwrap_or_default();
    let server = build.application.unwrap_or_else(|| "a server with the API of Prometheus".to_owned());
    let version = build.version.map(|version| format!(" {}", harmless(&version))).unwrap_or_default();
    line(&mut page, true, &format!("the server answers: {}{version}", harmless(&server)), "");
    let count = nodes.first().map_or(0.0, |sample| sample.value);
    line(
        &mut page,
        count > 0.0,
        &format!("{} with the exporter", count_of(count, "node")),
        "does this Prometheus scrape them?",
    );
    down(&mut page, surroundings).await?;
    let clusters =
        client.query(&format!("count by ({cluster_label}) (jobledger_exporter_build_info)"), until).await?;
    let names: Vec<String> =
        clusters.iter().filter_map(|sample| sample.labels.get(cluster_label)).map(harmless).collect();
    if names.len() > 1 {
        let chosen = surroundings.source.scope.cluster.is_some();
        line(
            &mut page,
            chosen,
            &format!("one of the clusters {} is chosen", names.join(", ")),
            "--cluster, or server.cluster in the configuration",
        );
    }
    if let Ok(flags) = client.flags().await
        && let Some(time) = flags.get("storage.tsdb.retention.time")
    {
        line(
            &mut page,
            true,
            &format!("the server keeps {}", if time == "0s" { "15d" } else { time.as_str() }),
            "",
        );
    }
    let interval = client.query("max(max_over_time(count_over_time(up[5m])[1h:5m]) and on (instance) jobledger_exporter_build_info)", until).await?;
    if let Some(scrapes) = interval.first().map(|sample| sample.value).filter(|scrapes| *scrapes > 0.0) {
        let seconds = 300.0 / scrapes;
        line(
            &mut page,
            seconds <= 31.0,
            &format!("a scrape every {seconds:.0} s"),
            "rates of short jobs need 30 s or less",
        );
    }
    match client.recording_rules().await {
        Ok(rules) => {
            let ended = rules.iter().any(|rule| rule == "ended:jobledger_job_owner:info");
            line(&mut page, ended, "rows of ended jobs, for waste", "load rules/recording");
            let carbon = rules.iter().any(|rule| rule == "jobledger:carbon_factor:grams_per_kwh");
            line(&mut page, carbon, "grams of CO2 of a kilowatt hour", "set them in rules/site.yaml");
        }
        Err(error) => line(&mut page, false, "the server says which rules it has", &error.to_string()),
    }
    let gpus = client.query("count(jobledger_gpu_info)", until).await?;
    let gpus = gpus.first().map_or(0.0, |sample| sample.value);
    line(&mut page, true, &format!("{} or parts of divided ones", count_of(gpus, "GPU")), "");
    here(&mut page, config, surroundings).await;
    output::write(None, page.as_bytes())
}
