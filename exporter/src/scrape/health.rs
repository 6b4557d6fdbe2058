//! How each collector fares, for `jobledger_exporter_collector_*`, the landing page and `--check`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::collector::CollectError;
use crate::metric::{Family, Section, SubjectId, Unit, node_family};

node_family!(
    SUCCESS,
    Exporter,
    "jobledger_exporter_collector_success",
    Gauge,
    None,
    ["collector"],
    "Whether the collector yielded all it should in this scrape",
    "0.1.0"
);
node_family!(
    AVAILABLE,
    Exporter,
    "jobledger_exporter_collector_available",
    Gauge,
    None,
    ["collector"],
    "Whether this machine has what the collector reads and lets it be read",
    "0.1.0"
);
node_family!(
    STATUS,
    Exporter,
    "jobledger_exporter_collector_status_info",
    Info,
    None,
    ["collector", "reason", "detail"],
    "Why a collector yields nothing or less than it should",
    "0.1.0"
);
node_family!(
    DURATION,
    Exporter,
    "jobledger_exporter_collector_duration_seconds",
    Gauge,
    Some(Unit::Seconds),
    ["collector"],
    "Time the collector took in this scrape",
    "0.1.0"
);
node_family!(
    ERRORS,
    Exporter,
    "jobledger_exporter_collector_errors_total",
    Counter,
    None,
    ["collector", "reason"],
    "Scrapes in which the collector yielded nothing or less than it should",
    "0.1.0"
);
node_family!(
    BAD_VALUES,
    Exporter,
    "jobledger_exporter_bad_values_total",
    Counter,
    None,
    ["collector"],
    "Values left out because they were no finite number",
    "0.1.0"
);
node_family!(
    RESTARTS,
    Exporter,
    "jobledger_exporter_counter_restarts_total",
    Counter,
    None,
    ["collector"],
    "Counters of the node that went back without a wrap; what they counted since the reading before is booked to nobody and not in their total",
    "0.1.0"
);
node_family!(
    DROPPED,
    Exporter,
    "jobledger_exporter_series_dropped_total",
    Counter,
    None,
    ["collector", "reason"],
    "Samples left out because there were more than --metric.max-series",
    "0.1.0"
);
node_family!(
    STUCK,
    Exporter,
    "jobledger_exporter_stuck_collectors",
    Gauge,
    None,
    [],
    "Collectors that hang in the kernel since an earlier scrape",
    "0.1.0"
);
node_family!(
    SCRAPES,
    Exporter,
    "jobledger_exporter_scrapes_total",
    Counter,
    None,
    [],
    "Collections made; scrapers that ask at the same time share one",
    "0.1.0"
);

node_family!(
    RELOADED,
    Exporter,
    "jobledger_exporter_web_config_reload_success",
    Gauge,
    None,
    [],
    "Whether the latest reading of --web.config.file succeeded; if not, the one before stays in force",
    "0.1.0"
);
node_family!(
    RELOAD_TIME,
    Exporter,
    "jobledger_exporter_web_config_reload_time_seconds",
    Gauge,
    Some(Unit::Seconds),
    [],
    "When --web.config.file was read last, since the epoch",
    "0.1.0"
);

/// Pushes how the web configuration was read.
pub fn tell_reload((succeeded, at): (bool, f64), out: &mut Section) {
    out.push(&RELOADED, SubjectId::NODE, &[], u64::from(succeeded));
    out.push(&RELOAD_TIME, SubjectId::NODE, &[], at);
}

/// Rows of the catalogue that the engine itself fills.
pub fn families() -> Vec<&'static Family> {
    vec![
        &SUCCESS,
        &AVAILABLE,
        &STATUS,
        &DURATION,
        &ERRORS,
        &BAD_VALUES,
        &RESTARTS,
        &DROPPED,
        &STUCK,
        &SCRAPES,
        &RELOADED,
        &RELOAD_TIME,
    ]
}

/// One run of one collector.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its outcome.
    pub outcome: Result<(), CollectError>,
    /// How long it took.
    pub took: Duration,
}

/// The books on all collectors.
#[derive(Debug, Default)]
pub struct Health {
    last: BTreeMap<&'static str, Run>,
    errors: BTreeMap<(&'static str, &'static str), u64>,
    bad_values: BTreeMap<&'static str, u64>,
    restarts: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
    scrapes: u64,
}

impl Health {
    /// Notes a run. A reason that is new for this collector is logged once, not at every scrape.
    pub fn note(&mut self, name: &'static str, run: Run) {
        let before = self.last.get(name).and_then(|run| run.outcome.as_ref().err()).map(CollectError::reason);
        match &run.outcome {
            Ok(()) if before.is_some() => tracing::info!(collector = name, "recovered"),
            Ok(()) => {}
            Err(error) => {
                let quiet = matches!(error, CollectError::Unsupported { .. });
                *self.errors.entry((name, error.reason())).or_default() += u64::from(!quiet);
                match (before == Some(error.reason()), quiet) {
                    (true, _) => {}
                    (false, true) => tracing::info!(collector = name, "{error}"),
                    (false, false) => tracing::warn!(collector = name, "{error}"),
                }
            }
        }
        self.last.insert(name, run);
    }

    /// Notes values that were no number.
    pub fn bad_values(&mut self, name: &'static str, count: u64) {
        *self.bad_values.entry(name).or_default() += count;
    }

    /// Notes counters that went back.
    pub fn restarts(&mut self, name: &'static str, count: u64) {
        *self.restarts.entry(name).or_default() += count;
    }

    /// Notes samples that were left out.
    pub fn dropped(&mut self, name: &'static str, reason: &'static str, count: usize) {
        *self.dropped.entry((name, reason)).or_default() += u64::try_from(count).unwrap_or(u64::MAX);
    }

    /// Notes a collection.
    pub fn scraped(&mut self) {
        self.scrapes += 1;
    }

    /// The latest run of a collector.
    pub fn last(&self, name: &str) -> Option<&Run> {
        self.last.get(name)
    }

    /// Pushes the state of these collectors.
    pub fn tell(&self, names: &[&'static str], stuck: usize, out: &mut Section) {
        for name in names {
            let Some(run) = self.last.get(name) else { continue };
            let label = [("collector", *name)];
            let unavailable =
                matches!(run.outcome, Err(CollectError::Unsupported { .. } | CollectError::Denied { .. }));
            out.push(&SUCCESS, SubjectId::NODE, &label, u64::from(run.outcome.is_ok()));
            out.push(&AVAILABLE, SubjectId::NODE, &label, u64::from(!unavailable));
            out.push(&DURATION, SubjectId::NODE, &label, run.took.as_secs_f64());
            if let Err(error) = &run.outcome {
                let detail = kernel_files::label_text(error.lasting().to_string().as_bytes());
                let labels = [("collector", *name), ("reason", error.reason()), ("detail", detail.as_str())];
                out.push(&STATUS, SubjectId::NODE, &labels, 1);
            }
        }
        let counters = |family, counts: &BTreeMap<(&'static str, &'static str), u64>, out: &mut Section| {
            for ((name, reason), count) in counts.iter().filter(|(_, count)| **count > 0) {
                out.push(family, SubjectId::NODE, &[("collector", name), ("reason", reason)], *count);
            }
        };
        counters(&ERRORS, &self.errors, out);
        counters(&DROPPED, &self.dropped, out);
        for (family, counts) in [(&BAD_VALUES, &self.bad_values), (&RESTARTS, &self.restarts)] {
            for (name, count) in counts.iter().filter(|(_, count)| **count > 0) {
                out.push(family, SubjectId::NODE, &[("collector", name)], *count);
            }
        }
        out.push(&STUCK, SubjectId::NODE, &[], u64::try_from(stuck).unwrap_or(u64::MAX));
        out.push(&SCRAPES, SubjectId::NODE, &[], self.scrapes);
    }
}
