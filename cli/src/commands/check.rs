//! `jobledger check`: what works here, and what would change it.

use std::fmt::Write;

use super::surroundings::Surroundings;
use crate::source::prometheus::Scope;
use crate::text::harmless;
use crate::{Failure, output};

/// A line: whether it works, what, and what would change it.
fn line(page: &mut String, works: bool, what: &str, advice: &str) {
    let advice = if works || advice.is_empty() { String::new() } else { format!(" ({advice})") };
    // A String takes all that is written.
    let _ = writeln!(page, "{} {what}{advice}", if works { "yes" } else { "no " });
}

pub(super) async fn run(surroundings: &Surroundings) -> Result<(), Failure> {
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
        &format!("{count} nodes with the exporter"),
        "does this Prometheus scrape them?",
    );
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
    line(&mut page, true, &format!("{gpus} GPUs or parts of divided ones"), "");
    output::write(None, page.as_bytes())
}
