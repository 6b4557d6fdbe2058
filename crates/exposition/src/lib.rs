//! Metric families, the samples that collectors push, and the three formats in which they are exposed.
//!
//! A [`Family`] is declared as a `static` row with its whole name. A collector pushes samples of it into a [`Section`],
//! which keeps them typed. At the end of a scrape [`encode_openmetrics`], [`encode_text`] or [`encode_protobuf`] writes
//! all sections in the format that the client asked for: one pass over the samples per format.
//!
//! Each family names the smallest [`Profile`] that it is in, [`Profile::Standard`] unless its row says otherwise. A section
//! keeps the families of one profile ([`Section::select`]).
//!
//! A subject, whose labels many samples share, also says since when its counters count. Protobuf always has that,
//! OpenMetrics on request (as `_created`), text 0.0.4 has no place for it.
//!
//! ```
//! use std::sync::Arc;
//! use exposition::{Family, Section, encode_text};
//!
//! static CPU: Family = Family::counter("jobledger_job_cpu_seconds_total").labels(&["mode"]).help("CPU time by mode");
//!
//! let mut section = Section::default();
//! let job = section.subject([("jobid", "7")]);
//! section.push(&CPU, job, &[("mode", "user")], 1.5);
//!
//! let mut text = String::new();
//! encode_text(&[Arc::new(section)], &mut text)?;
//! let lines = [
//!     "# HELP jobledger_job_cpu_seconds_total CPU time by mode",
//!     "# TYPE jobledger_job_cpu_seconds_total counter",
//!     "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"} 1.5",
//! ];
//! assert_eq!(text.lines().collect::<Vec<_>>(), lines);
//! # Ok::<(), std::fmt::Error>(())
//! ```
#![forbid(unsafe_code)]

mod decimal;
mod family;
mod lines;
mod openmetrics;
mod profile;
mod protobuf;
mod section;
mod text;

pub use decimal::Decimal;
pub use family::{Family, Kind, Level, PerCgroup, Unit, same_but_prefix};
pub use openmetrics::{Created, encode_openmetrics, encode_openmetrics_with};
pub use profile::Profile;
pub use protobuf::encode_protobuf;
pub use section::{Cut, SampleRef, Section, SubjectId, Value};
pub use text::encode_text;
