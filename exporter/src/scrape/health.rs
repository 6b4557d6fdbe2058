//! How each collector fares, for `jobledger_exporter_collector_*`, the landing page and `--check`.

use std::collections::BTreeMap;
use std::time::Duration;

use exposition::{Family, Section, SubjectId};
use slurm_jobs::unix_now;

use crate::collector::{CollectError, SourceError};

static SUCCESS: Family = Family::gauge("jobledger_exporter_collector_success")
    .labels(&["collector"])
    .help("Whether the collector yielded all it should in this scrape");
static AVAILABLE: Family = Family::gauge("jobledger_exporter_collector_available")
    .labels(&["collector"])
    .help("Whether this machine has what the collector reads and lets it be read");
static STATUS: Family = Family::info("jobledger_exporter_collector_status_info")
    .labels(&["collector", "reason", "detail"])
    .help("Why a collector yields nothing or less than it should");
static DURATION: Family = Family::gauge("jobledger_exporter_collector_duration_seconds")
    .labels(&["collector"])
    .help("Time the collector took in this scrape");
static ERRORS: Family = Family::counter("jobledger_exporter_collector_errors_total")
    .labels(&["collector", "reason"])
    .help("Scrapes in which the collector yielded nothing or less than it should");
static BAD_VALUES: Family = Family::counter("jobledger_exporter_bad_values_total")
    .labels(&["collector"])
    .help("Values left out because they were no finite number");
static RESTARTS: Family =
    Family::counter("jobledger_exporter_counter_restarts_total").labels(&["collector"]).help(
        "Counters of the node that went back without a wrap; what they counted \
         since the reading before is neither charged nor in their total",
    );
static DROPPED: Family = Family::counter("jobledger_exporter_series_dropped_total")
    .labels(&["collector", "reason"])
    .help("Samples left out because there were more than --metric.max-series");
static STUCK: Family = Family::gauge("jobledger_exporter_stuck_collectors")
    .help("Collectors that hang in the kernel since an earlier scrape");
static SCRAPES: Family = Family::counter("jobledger_exporter_scrapes_total")
    .help("Collections made; scrapers that ask at the same time share one");

static RELOADED: Family = Family::gauge("jobledger_exporter_web_config_reload_success").help(
    "Whether the latest reading of --web.config.file succeeded; if not, the one before remains in force",
);
static RELOAD_TIME: Family = Family::gauge("jobledger_exporter_web_config_reload_time_seconds")
    .help("When --web.config.file was read last, since the epoch");

/// Pushes how the web configuration was read.
pub fn emit_reload((succeeded, at): (bool, f64), out: &mut Section) {
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

/// The states of all collectors.
#[derive(Debug)]
pub struct Health {
    /// When it counted nothing yet, seconds since the epoch.
    since: f64,
    last: BTreeMap<&'static str, Run>,
    errors: BTreeMap<(&'static str, &'static str), u64>,
    bad_values: BTreeMap<&'static str, u64>,
    restarts: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
    scrapes: u64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            since: unix_now(),
            last: BTreeMap::new(),
            errors: BTreeMap::new(),
            bad_values: BTreeMap::new(),
            restarts: BTreeMap::new(),
            dropped: BTreeMap::new(),
            scrapes: 0,
        }
    }
}

impl Health {
    /// Notes a run. A reason that is new for this collector is logged once, not at every scrape.
    pub fn note(&mut self, name: &'static str, run: Run) {
        let before = self
            .last
            .get(name)
            .and_then(|run| run.outcome.as_ref().err())
            .map(|failed| failed.error.reason());
        match &run.outcome {
            Ok(()) if before.is_some() => tracing::info!(collector = name, "recovered"),
            Ok(()) => {}
            Err(error) => {
                let quiet = matches!(error.error, SourceError::Unsupported { .. });
                *self.errors.entry((name, error.error.reason())).or_default() += u64::from(!quiet);
                match (before == Some(error.error.reason()), quiet) {
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
    pub fn emit(&self, names: &[&'static str], stuck: usize, out: &mut Section) {
        for name in names {
            let Some(run) = self.last.get(name) else { continue };
            let label = [("collector", *name)];
            let unavailable = run.outcome.as_ref().is_err_and(|CollectError { error, .. }| {
                matches!(error, SourceError::Unsupported { .. } | SourceError::Denied { .. })
            });
            out.push(&SUCCESS, SubjectId::NODE, &label, u64::from(run.outcome.is_ok()));
            out.push(&AVAILABLE, SubjectId::NODE, &label, u64::from(!unavailable));
            out.push(&DURATION, SubjectId::NODE, &label, run.took.as_secs_f64());
            if let Err(error) = &run.outcome {
                let detail = kernel_files::label_text(error.lasting().to_string().as_bytes());
                let labels =
                    [("collector", *name), ("reason", error.error.reason()), ("detail", detail.as_str())];
                out.push(&STATUS, SubjectId::NODE, &labels, 1);
            }
        }
        let since_start = out.node_since(Some(self.since));
        let counters = |family, counts: &BTreeMap<(&'static str, &'static str), u64>, out: &mut Section| {
            for ((name, reason), count) in counts.iter().filter(|(_, count)| **count > 0) {
                out.push(family, since_start, &[("collector", name), ("reason", reason)], *count);
            }
        };
        counters(&ERRORS, &self.errors, out);
        counters(&DROPPED, &self.dropped, out);
        for (family, counts) in [(&BAD_VALUES, &self.bad_values), (&RESTARTS, &self.restarts)] {
            for (name, count) in counts.iter().filter(|(_, count)| **count > 0) {
                out.push(family, since_start, &[("collector", name)], *count);
            }
        }
        out.push(&STUCK, SubjectId::NODE, &[], u64::try_from(stuck).unwrap_or(u64::MAX));
        out.push(&SCRAPES, since_start, &[], self.scrapes);
    }
}
