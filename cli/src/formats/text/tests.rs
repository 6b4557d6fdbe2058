use jiff::tz::TimeZone;
use job_report::{Curve, Curves, Report, metric};

use super::*;
use crate::testing;

/// The line of CPUs used, of a job that used so many CPUs in each quarter.
fn cpus_used(values: [f64; 4]) -> String {
    let mut job = testing::job();
    let node = job.nodes.first().unwrap();
    let mut curves = Curves::new(node.start, node.seen_until, (node.seen_until - node.start) / 4.0);
    curves.curves.push(Curve {
        metric: &metric::CPU_SECONDS,
        node: Some(0),
        gpu: None,
        part: None,
        values: values.to_vec(),
    });
    job.curves = Some(curves);
    let options =
        Options { width: 80, ascii: false, colour: false, node_rows: 8, zone: TimeZone::UTC, link: None };
    let text = render(&testing::report(job), &testing::THRESHOLDS, &options);
    let line = text.lines().find(|line| line.contains("CPUs used")).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_curve_has_the_height_of_what_is_shown() {
    assert_eq!(cpus_used([0.0, 2.0, 4.0, 2.0]), "CPUs used ▁▅█▅ 0 2 4");
    assert_eq!(cpus_used([0.0, 0.001, 0.002, 0.001]), "CPUs used ▁▁▁▁ 0 0 0", "no peaks of nothing");
    assert_eq!(cpus_used([0.0, f64::NAN, 0.002, 0.001]), "CPUs used ▁ ▁▁ 0 0 0", "a gap remains");
}

/// Also where each name is as long as it can be, and many nodes are left out.
#[test]
fn no_line_is_longer_than_the_page_is_wide() {
    let long = testing::named(&"n".repeat(64));
    let mut jobs = vec![
        testing::job(),
        testing::counted(),
        testing::named(&"計 算".repeat(20)),
        long,
        testing::large(64, 4),
    ];
    for job in &mut jobs {
        let node = job.nodes.first().unwrap();
        let mut curves = Curves::new(node.start, node.seen_until, (node.seen_until - node.start) / 100.0);
        let values = vec![1e6; 100];
        curves.curves.push(Curve {
            metric: &metric::CPU_SECONDS,
            node: Some(0),
            gpu: None,
            part: None,
            values,
        });
        job.curves = Some(curves);
    }
    for (job, width) in jobs.iter().flat_map(|job| (60..=130).map(move |width| (job, width))) {
        let options =
            Options { width, ascii: false, colour: false, node_rows: 8, zone: TimeZone::UTC, link: None };
        let report = Report::new(job.clone(), &testing::THRESHOLDS, vec!["A note of many words ".repeat(20)]);
        let text = render(&report, &testing::THRESHOLDS, &options);
        for line in text.lines() {
            assert!(crate::text::width(line) <= width, "{width}: {line}");
        }
    }
}

fn text(job: job_report::Job, zone: &str) -> String {
    let zone = TimeZone::get(zone).unwrap();
    let options = Options { width: 80, ascii: false, colour: false, node_rows: 8, zone, link: None };
    render(&testing::report(job), &testing::THRESHOLDS, &options)
}

/// A job that ran so long, from a moment on.
fn at(start: f64, seconds: f64) -> job_report::Job {
    let mut job = testing::job();
    for node in &mut job.nodes {
        (node.start, node.end, node.seen_until) = (start, Some(start + seconds), start + seconds);
    }
    job
}

#[test]
fn times_have_their_zone_where_clocks_change() {
    // 02:30 on the day on which summer time ends.
    let before = 1_792_888_200.0;
    let line = |job| text(job, "Europe/Berlin").lines().nth(2).unwrap().to_owned();
    assert!(line(at(before, 2400.0)).starts_with("  Sun 25 Oct 2026 02:30 CEST → 02:10 CET  00:40:00"));
    assert!(line(at(before - 3600.0, 2400.0)).starts_with("  Sun 25 Oct 2026 01:30 → 02:10 "));
    // Too long for a column.
    let day = text(at(before - 10_800.0, 90_000.0), "Europe/Berlin");
    let lines: Vec<&str> = day.lines().skip(2).take(2).collect();
    assert_eq!(lines[0], "  Sat 24 Oct 2026 23:30 CEST → 25 Oct 23:30 CET");
    assert!(lines[1].trim_start().starts_with("1-01:00:00 of "), "{}", lines[1]);
}

#[test]
fn memory_without_a_limit_has_its_peak() {
    let mut job = testing::job();
    for node in &mut job.nodes {
        let mut values = job_report::Values::default();
        values.set(&metric::MEMORY_PEAK_BYTES, 3.0 * 1024f64.powi(3));
        (node.values, node.memory_held_bytes) = (values, Some(1024f64.powi(3)));
    }
    let page = text(job, "UTC");
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |row: &str| rows.contains(&row.split_whitespace().collect());
    assert!(has("Memory, peak 3 GiB on node1, no limit known"), "{page}");
    assert!(has("held 1 GiB, without page cache"), "{page}");
}
