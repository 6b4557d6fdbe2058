//! `jobledger array`: how the elements of an array differ.

use std::collections::BTreeSet;
use std::fmt::Write;

use job_report::show::{percent, time};
use job_report::{Report, State};
use serde::Serialize;

use super::surroundings::Surroundings;
use crate::arguments::{self, ArrayFormat};
use crate::source::prometheus::Selection;
use crate::source::several_clusters;
use crate::text::{left, right, wrapped};
use crate::{Failure, Kind, output};

/// Bins of a histogram, columns beside a bar, and those of the longest one.
const BINS: usize = 10;
const BESIDE: usize = 34;
const BAR: usize = 40;
/// Of fewer elements a histogram says less than their least, middle and greatest value.
const FEW: usize = 20;
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
        ArrayFormat::Text => page(array, &reports, surroundings.width, surroundings.ascii)?.into_bytes(),
    };
    output::write(None, &bytes)
}

/// The page of an array.
pub(super) fn page(array: u64, reports: &[Report], width: usize, ascii: bool) -> Result<String, Failure> {
    Ok(text(&of_seen(array, reports)?, reports, width, ascii))
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

/// What is said of each element, its name, and how it is written.
type Value = (&'static str, fn(&Report) -> Option<f64>, fn(f64) -> String);

const TIME: Value = ("Time", |report| Some(report.numbers.elapsed_seconds), time);
const CPU: Value = ("CPU", |report| report.numbers.cpu_use, percent);
const MEMORY: Value = ("Memory, peak", |report| report.numbers.memory_use, percent);
const GPU: Value = ("GPU busy", |report| report.numbers.gpu_use, percent);

/// Of those elements of which it is known.
fn values(reports: &[Report], (_, value, _): Value) -> Vec<f64> {
    reports.iter().filter_map(value).collect()
}

fn summary(array: u64, reports: &[Report]) -> Array {
    let elapsed = values(reports, TIME);
    let longest = elapsed.iter().copied().fold(0.0, f64::max);
    let part = |value| histogram(&values(reports, value), 0.0, 1.0);
    let is_killed =
        |report: &&Report| report.advice.iter().any(|advice| advice.piece == job_report::Piece::OomKilled);
    Array {
        array,
        elements: reports.len(),
        running: reports.iter().filter(|report| report.job.state() == State::Running).count(),
        with_advice: reports.iter().filter(|report| !report.advice.is_empty()).count(),
        oom_killed: reports.iter().filter(is_killed).count(),
        elapsed_seconds: histogram(&elapsed, 0.0, longest),
        cpu_use: part(CPU),
        memory_use: part(MEMORY),
        gpu_use: part(GPU),
    }
}

fn text(array: &Array, reports: &[Report], width: usize, ascii: bool) -> String {
    let head = format!(
        "Array {}: {} element{} seen, {} running, {} killed for memory, {} with advice",
        array.array,
        array.elements,
        if array.elements == 1 { "" } else { "s" },
        array.running,
        array.oom_killed,
        array.with_advice
    );
    let mut page = String::new();
    lines(&mut page, "", 2, &head, width);
    if reports.len() < FEW {
        few(&mut page, reports);
    } else {
        let bar = width.saturating_sub(BESIDE).min(BAR);
        draw(&mut page, TIME, array.elapsed_seconds.as_ref(), bar, ascii);
        draw(&mut page, CPU, array.cpu_use.as_ref(), bar, ascii);
        draw(&mut page, MEMORY, array.memory_use.as_ref(), bar, ascii);
        draw(&mut page, GPU, array.gpu_use.as_ref(), bar, ascii);
    }
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
        let begin = format!("  {}_{}  ", array.array, report.job.identity.array_task_id);
        lines(&mut page, &begin, begin.len(), &what, width);
    }
    page
}

/// Lines of at most so many columns; after the first one they are indented.
fn lines(page: &mut String, begin: &str, indent: usize, text: &str, width: usize) {
    let mut begin = begin.to_owned();
    for line in wrapped(text, width.saturating_sub(indent)) {
        // A String takes all that is written.
        let _ = writeln!(page, "{begin}{line}");
        begin = " ".repeat(indent);
    }
}

/// A line for each value: the least, the middle and the greatest.
fn few(page: &mut String, reports: &[Report]) {
    let _ =
        writeln!(page, "\n  {}{}{}{}", left("", 14), right("min", 12), right("median", 12), right("max", 12));
    for value in [TIME, CPU, MEMORY, GPU] {
        let (name, _, show) = value;
        let mut values = values(reports, value);
        values.sort_by(f64::total_cmp);
        let middle = [values.get(values.len().saturating_sub(1) / 2), values.get(values.len() / 2)];
        let (Some(min), [Some(low), Some(high)], Some(max)) = (values.first(), middle, values.last()) else {
            continue;
        };
        let cells = [*min, (low + high) / 2.0, *max].map(|value| right(&show(value), 12));
        let _ = writeln!(page, "  {}{}", left(name, 14), cells.concat());
    }
}

fn draw(page: &mut String, (name, _, show): Value, histogram: Option<&Histogram>, bar: usize, ascii: bool) {
    let Some(Histogram { from, to, counts }) = histogram else { return };
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let _ = writeln!(page, "\n{name}");
    let width = (to - from) / f64::from(u32::try_from(BINS).unwrap_or(1));
    let mut begin = *from;
    for count in counts {
        let bar = if ascii { "#" } else { "█" }.repeat((count * bar).div_ceil(most));
        let label = format!("{} to {}", show(begin), show(begin + width));
        let line = format!("  {}{} {bar}", left(&label, 24), right(&count.to_string(), 6));
        let _ = writeln!(page, "{}", line.trim_end());
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

    fn reports(count: usize) -> Vec<Report> {
        let report = |task: usize| {
            let mut job = crate::testing::job();
            job.identity.array_task_id = task.to_string();
            crate::testing::report(job)
        };
        (1..=count).map(report).collect()
    }

    #[test]
    fn a_page_of_many_elements_has_a_histogram_for_what_is_known() {
        let reports = reports(20);
        let page = text(&summary(7, &reports), &reports, 80, true);
        let head = "Array 7: 20 elements seen, 0 running, 0 killed for memory, 20 with advice\n\nTime\n";
        assert!(page.starts_with(head), "{page}");
        assert!(
            page.contains("\n  40 % to 50 %                20 ########################################\n"),
            "{page}"
        );
        assert!(page.contains("\n  50 % to 60 %                 0\n"), "no blanks at its end: {page}");
        assert!(page.contains("\n  7_1  GPUs were never used: 1 of 4 GPUs"), "{page}");
    }

    #[test]
    fn a_page_of_few_elements_has_their_least_middle_and_greatest_value() {
        let mut reports = reports(4);
        for (report, cpu) in reports.iter_mut().zip([Some(0.9), Some(0.1), None, Some(0.3)]) {
            report.numbers.cpu_use = cpu;
        }
        let page = text(&summary(7, &reports), &reports, 60, true);
        assert!(
            page.starts_with("Array 7: 4 elements seen, 0 running, 0 killed for memory,\n  4 with advice\n"),
            "{page}"
        );
        assert!(page.contains("                         min      median         max\n"), "{page}");
        assert!(page.contains("\n  CPU                   10 %        30 %        90 %\n"), "{page}");
        assert!(page.lines().all(|line| line.len() <= 60), "{page}");
        reports.truncate(2);
        assert!(
            text(&summary(7, &reports), &reports, 80, true)
                .contains("\n  CPU                   10 %        50 %        90 %\n")
        );
        reports.truncate(1);
        reports[0].numbers.gpu_use = None;
        let page = text(&summary(7, &reports), &reports, 80, true);
        assert!(page.starts_with("Array 7: 1 element seen") && !page.contains("GPU busy"), "{page}");
    }
}
