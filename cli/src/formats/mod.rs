//! How a report is shown.

mod document;
pub mod html;
pub mod jobstats;
pub mod markdown;
#[cfg(feature = "pdf")]
pub mod pdf;
pub mod seff;
pub(crate) mod table;
pub mod text;

mod nodes;
mod rows;
mod words;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A moment in a time zone: `Mon 23 Nov 08:11`.
pub(crate) fn moment(seconds: f64, zone: &TimeZone, format: &str) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "what no Timestamp can be is none")]
    let at = Timestamp::from_second(seconds.round() as i64).ok();
    at.map(|at| at.to_zoned(zone.clone()).strftime(format).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
