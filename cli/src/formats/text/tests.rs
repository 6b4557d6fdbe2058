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
