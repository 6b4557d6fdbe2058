//! `jobledger array`: how the elements of an array differ.

use std::collections::BTreeSet;
use std::fmt::Write;

use job_report::show::{digits, percent, time};
use job_report::{Report, State};
use serde::Serialize;

use super::surroundings::Surroundings;
use crate::arguments::{self, ArrayFormat};
use crate::source::prometheus::Selection;
use crate::source::several_clusters;
use crate::text::{left, right};
use crate::{Failure, Kind, output};

/// Bins of a histogram, and columns of its longest bar.
const BINS: usize = 10;
const BAR: usize = 40;
/// How many elements are named.
const WORST: usize = 5;

/// How many elements have what value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Histogram {
    /// The value at the begin of the first bin, and at the end of the last.
    from: f64,
    to: f64,
    /// How many there are in each bin; a value at its end is of the next one, but of the last bin it is its own.
    counts: [usize; BINS],
}

/// `None` without values.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "0 to 9, and few bins"
)]
pub(super) fn histogram(values: &[f64], from: f64, to: f64) -> Option<Histogram> {
    let mut counts = [0; BINS];
    for value in values {
        let part = ((value - from) / (to - from)).clamp(0.0, 1.0);
        let part = if part.is_finite() { part } else { 0.0 };
        if let Some(count) = counts.get_mut(((part * BINS as f64) as usize).min(BINS - 1)) {
            *count += 1;
        }
    }
    (!values.is_empty()).then_some(Histogram { from, to, counts })
}

#[derive(Serialize)]
struct Array {
    array: u64,
    elements: usize,
    running: usize,
    with_advice: usize,
    oom_killed: usize,
    elapsed_seconds: Option<Histogram>,
    cpu_use: Option<Histogram>,
    memory_use: Option<Histogram>,
    gpu_use: Option<Histogram>,
}

pub(super) async fn run(options: &arguments::Array, surroundings: &Surroundings) -> Result<(), Failure> {
    let array = options.array;
    let reports = surroundings.reports(&Selection { array: Some(array), ..Selection::default() }).await?;
    let bytes = match options.format {
        ArrayFormat::Json => output::json(&of_seen(array, &reports)?)?,
        ArrayFormat::Text => page(array, &reports, surroundings.ascii)?.into_bytes(),
    };
    output::write(None, &bytes)
}

/// The page of an array.
pub(super) fn page(array: u64, reports: &[Report], ascii: bool) -> Result<String, Failure> {
    Ok(text(&of_seen(array, reports)?, reports, ascii))
}

fn of_seen(array: u64, reports: &[Report]) -> Result<Array, Failure> {
    if reports.is_empty() {
        return Err(Failure::new(
            Kind::NotFound,
            format!("array {array}: no element was seen in that time: --since looks further back"),
        ));
    }
    let clusters: BTreeSet<&str> =
        reports.iter().filter_map(|report| report.job.cluster.as_deref()).collect();
    if clusters.len() > 1 {
        return Err(several_clusters(&format!("array {array}"), clusters));
    }
    Ok(summary(array, reports))
}

fn summary(array: u64, reports: &[Report]) -> Array {
    let of = |value: fn(&Report) -> Option<f64>| reports.iter().filter_map(value).collect::<Vec<f64>>();
    let elapsed = of(|report| Some(report.numbers.elapsed_seconds));
    let longest = elapsed.iter().copied().fold(0.0, f64::max);
    let part = |value: fn(&Report) -> Option<f64>| histogram(&of(value), 0.0, 1.0);
    let is_killed =
        |report: &&Report| report.advice.iter().any(|advice| advice.piece == job_report::Piece::OomKilled);
    Array {
        array,
        elements: reports.len(),
        running: reports.iter().filter(|report| report.job.state() == State::Running).count(),
        with_advice: reports.iter().filter(|report| !report.advice.is_empty()).count(),
        oom_killed: reports.iter().filter(is_killed).count(),
        elapsed_seconds: histogram(&elapsed, 0.0, longest),
        cpu_use: part(|report| report.numbers.cpu_use),
        memory_use: part(|report| report.numbers.memory_use),
        gpu_use: part(|report| report.numbers.gpu_use),
    }
}

fn text(array: &Array, reports: &[Report], ascii: bool) -> String {
    let mut page = format!(
        "Array {}: {} elements seen, {} running, {} killed for memory, {} with advice\n",
        array.array, array.elements, array.running, array.oom_killed, array.with_advice
    );
    draw(&mut page, "Time", array.elapsed_seconds.as_ref(), &time, ascii);
    draw(&mut page, "CPU", array.cpu_use.as_ref(), &percent, ascii);
    draw(&mut page, "Memory, peak", array.memory_use.as_ref(), &percent, ascii);
    draw(&mut page, "GPU busy", array.gpu_use.as_ref(), &percent, ascii);
    let mut worst: Vec<&Report> = reports.iter().filter(|report| !report.advice.is_empty()).collect();
    worst.sort_by_key(|report| report.advice.first().map(|advice| advice.severity));
    if !worst.is_empty() {
        page.push_str("\nElements with advice, the worst first\n");
    }
    for report in worst.into_iter().take(WORST) {
        let what = report
            .advice
            .first()
            .map(|advice| format!("{}: {}", advice.what, advice.measured))
            .unwrap_or_default();
        // A String takes all that is written.
        let _ = writeln!(page, "  {}_{}  {what}", array.array, report.job.identity.array_task_id);
    }
    page
}

fn draw(
    page: &mut String,
    name: &str,
    histogram: Option<&Histogram>,
    show: &dyn Fn(f64) -> String,
    ascii: bool,
) {
    let Some(Histogram { from, to, counts }) = histogram else { return };
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let _ = writeln!(page, "\n{name}");
    let width = (to - from) / f64::from(u32::try_from(BINS).unwrap_or(1));
    let mut begin = *from;
    for count in counts {
        let filled = (count * BAR).div_ceil(most);
        let bar = if ascii { "#" } else { "█" }.repeat(filled);
        let label = format!("{} to {}", show(begin), show(begin + width));
        let _ = writeln!(
            page,
            "  {}{} {}",
            left(&label, 24),
            right(&digits(f64::from(u32::try_from(*count).unwrap_or(u32::MAX))), 6),
            bar
        );
        begin += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_their_bins() {
        let found = histogram(&[0.0, 0.05, 0.1, 0.95, 1.0, 1.2], 0.0, 1.0).unwrap();
        assert_eq!(found.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(histogram(&[], 0.0, 1.0), None);
        assert_eq!(histogram(&[0.0, 0.0], 0.0, 0.0).unwrap().counts[0], 2);
    }

    #[test]
    fn a_page_has_a_histogram_for_what_is_known() {
        let report = |task: &str| {
            let mut job = crate::testing::job();
            job.identity.array_task_id = task.to_owned();
            crate::testing::report(job)
        };
        let reports = [report("1"), report("2")];
        let page = text(&summary(7, &reports), &reports, true);
        assert!(
            page.starts_with("Array 7: 2 elements seen, 0 running, 0 killed for memory, 2 with advice\n"),
            "{page}"
        );
        assert!(
            page.contains("  0 % to 10 %                  2 ########################################\n"),
            "{page}"
        );
        assert!(page.contains("\n  7_1  GPUs were never used: 1 of 4 GPUs"), "{page}");
    }
}
