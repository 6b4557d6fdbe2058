//! How each collector fares, for `jobledger_exporter_collector_*`, the landing page and `--check`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clocks::unix_now;
use exposition::{Family, Profile, Section, SubjectId};

use crate::collector::{CollectError, SourceError};
use crate::state_log::StateLog;

static SUCCESS: Family = Family::gauge("jobledger_exporter_collector_success")
    .profile(Profile::Lean)
    .labels(&["collector"])
    .help("Whether the collector yielded all it should in its latest collection");
static AVAILABLE: Family = Family::gauge("jobledger_exporter_collector_available")
    .profile(Profile::Lean)
    .labels(&["collector"])
    .help("Whether this machine has what the collector reads and lets it be read");
static STATUS: Family = Family::info("jobledger_exporter_collector_status_info")
    .profile(Profile::Lean)
    .labels(&["collector", "reason", "detail"])
    .help("Why a collector yields nothing or less than it should");
static DURATION: Family = Family::gauge("jobledger_exporter_collector_duration_seconds")
    .labels(&["collector"])
    .help("Time the collector took in its latest collection");
static ERRORS: Family = Family::counter("jobledger_exporter_collector_errors_total")
    .labels(&["collector", "reason"])
    .help("Collections in which the collector yielded nothing or less than it should");
static BAD_VALUES: Family = Family::counter("jobledger_exporter_bad_values_total")
    .profile(Profile::Lean)
    .labels(&["collector"])
    .help("Values left out because they were no finite number, or none that hardware can have");
static RESTARTS: Family = Family::counter("jobledger_exporter_counter_restarts_total")
    .profile(Profile::Lean)
    .labels(&["collector"])
    .help(
        "Counters of the node that went back without a wrap; what they counted \
         since the reading before is neither charged nor in their total",
    );
static DROPPED: Family = Family::counter("jobledger_exporter_series_dropped_total")
    .profile(Profile::Lean)
    .labels(&["collector", "reason"])
    .help("Samples left out because there were more than --metric.max-series");
static STUCK: Family = Family::gauge("jobledger_exporter_stuck_collectors")
    .profile(Profile::Lean)
    .help("Collectors that hang in the kernel since an earlier collection");
static SCRAPES: Family = Family::counter("jobledger_exporter_scrapes_total")
    .profile(Profile::Lean)
    .help("Collections made; scrapers that ask within --scrape.min-interval share one");

static RELOADED: Family = Family::gauge("jobledger_exporter_web_config_reload_success").help(
    "Whether the latest reading of --web.config.file succeeded; if not, the one before remains in force",
);
static RELOAD_TIME: Family = Family::gauge("jobledger_exporter_web_config_reload_time_seconds")
    .help("When --web.config.file was read last, since the epoch");

static CERTIFICATE: Family = Family::gauge("jobledger_exporter_web_certificate_expiry_time_seconds")
    .profile(Profile::Lean)
    .help("When the certificate of the web server, or the first one of its chain, expires, since the epoch");

/// The web configuration in force.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WebConfigState {
    /// Whether the latest reading of its files succeeded.
    pub reloaded: bool,
    /// When that was, seconds since the epoch.
    pub at: f64,
    /// When its certificate expires, seconds since the epoch; none without TLS.
    pub certificate_expires: Option<f64>,
}

/// Pushes how the web configuration was read.
pub fn emit_reload(state: WebConfigState, out: &mut Section) {
    out.push(&RELOADED, SubjectId::NODE, &[], u64::from(state.reloaded));
    out.push(&RELOAD_TIME, SubjectId::NODE, &[], state.at);
    if let Some(expires) = state.certificate_expires {
        out.push(&CERTIFICATE, SubjectId::NODE, &[], expires);
    }
}

/// Rows of the catalogue that the engine itself fills.
pub fn families() -> Vec<&'static Family> {
    let own = [
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
        &CERTIFICATE,
    ];
    own.into_iter().chain(super::clients::families()).collect()
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
    collections: u64,
    /// By collector and reason, `None` while it works.
    log: StateLog<&'static str, Option<&'static str>>,
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
            collections: 0,
            log: StateLog::default(),
        }
    }
}

impl Health {
    /// Notes a run. A change of its reason is logged once, and at most once a minute.
    pub fn note(&mut self, name: &'static str, run: Run, now: Instant) {
        let reason = run.outcome.as_ref().err().map(|error| error.error.reason());
        let quiet = |error: &CollectError| matches!(error.error, SourceError::Unsupported { .. });
        if let Err(error) = &run.outcome {
            *self.errors.entry((name, error.error.reason())).or_default() += u64::from(!quiet(error));
        }
        if let Some(held_back) = self.log.line(name, None, reason, now) {
            let more = match held_back {
                0 => String::new(),
                changes => format!(" ({changes} changes since the last such line)"),
            };
            match &run.outcome {
                Ok(()) => tracing::info!(collector = name, "recovered{more}"),
                Err(error) if quiet(error) => tracing::info!(collector = name, "{error}{more}"),
                Err(error) => tracing::warn!(collector = name, "{error}{more}"),
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
    pub fn collected(&mut self) {
        self.collections += 1;
    }

    /// When nothing was counted yet, seconds since the epoch.
    pub fn since(&self) -> f64 {
        self.since
    }

    /// The latest run of a collector.
    pub fn last(&self, name: &str) -> Option<&Run> {
        self.last.get(name)
    }

    /// Pushes the state of these collectors.
    pub fn emit(&self, names: impl Iterator<Item = &'static str>, stuck: usize, out: &mut Section) {
        for name in names {
            let Some(run) = self.last.get(name) else { continue };
            let label = [("collector", name)];
            let unavailable = run.outcome.as_ref().is_err_and(|CollectError { error, .. }| {
                matches!(error, SourceError::Unsupported { .. } | SourceError::Denied { .. })
            });
            out.push(&SUCCESS, SubjectId::NODE, &label, u64::from(run.outcome.is_ok()));
            out.push(&AVAILABLE, SubjectId::NODE, &label, u64::from(!unavailable));
            out.push(&DURATION, SubjectId::NODE, &label, run.took.as_secs_f64());
            if let Err(error) = &run.outcome {
                let (text, reason) = (error.lasting().to_string(), error.error.reason());
                // The label before it says the reason.
                let detail =
                    text.strip_prefix(reason).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
                let detail = kernel_files::label_text(detail.as_bytes());
                let labels = [("collector", name), ("reason", reason), ("detail", detail.as_str())];
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
        out.push(&SCRAPES, since_start, &[], self.collections);
    }
}
