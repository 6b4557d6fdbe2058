//! Metric families, the samples that collectors push, and the two text formats in which they are exposed.
//!
//! A [`Family`] is declared as a `static` row with its whole name. A collector pushes samples of it into a [`Section`],
//! which keeps them typed. At the end of a scrape [`Format::encode`] writes all sections in the format that the client
//! asked for: one pass over the samples per format.
//!
//! ```
//! use std::sync::Arc;
//! use exposition::{Family, Format, Section};
//!
//! static CPU: Family = Family::counter("jobledger_job_cpu_seconds_total").labels(&["mode"]).help("CPU time by mode");
//!
//! let mut section = Section::default();
//! let job = section.subject([("jobid", "7")]);
//! section.push(&CPU, job, &[("mode", "user")], 1.5);
//!
//! let mut text = String::new();
//! Format::Text.encode(&[Arc::new(section)], &mut text)?;
//! let lines = [
//!     "# HELP jobledger_job_cpu_seconds_total CPU time by mode",
//!     "# TYPE jobledger_job_cpu_seconds_total counter",
//!     "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"} 1.5",
//! ];
//! assert_eq!(text.lines().collect::<Vec<_>>(), lines);
//! # Ok::<(), std::fmt::Error>(())
//! ```
#![forbid(unsafe_code)]

mod family;
mod openmetrics;
mod section;
mod text;

use std::sync::Arc;

pub use family::{Family, Kind, Level, PerCgroup, Unit, same_but_prefix};
pub use openmetrics::encode_openmetrics;
pub use section::{SampleRef, Section, SubjectId, Value};
pub use text::encode_text;

/// The formats on offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4, for every client that does not prefer OpenMetrics.
    Text,
}

impl Format {
    /// The `Content-Type`. Prometheus 3 refuses a scrape whose type it cannot read, version included.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Appends the whole exposition to `out`. Families of different sections must be different, so that no family is
    /// interleaved with another.
    pub fn encode(self, sections: &[Arc<Section>], out: &mut String) -> std::fmt::Result {
        match self {
            Self::OpenMetrics => encode_openmetrics(sections, out),
            Self::Text => encode_text(sections, out),
        }
    }
}
