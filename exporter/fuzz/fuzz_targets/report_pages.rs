//! Reports as HTML and PDF, of any names, numbers and curves: no element that a name made, and always a document.

use std::sync::LazyLock;

use job_report::{Curve, Curves, Job, Thresholds, metric};
use jobledger::formats::{html, pdf};
use jobledger::testing;
use jobledger_exporter_fuzz::typed;

static THRESHOLDS: LazyLock<Thresholds> = LazyLock::new(|| Thresholds::shipped().expect("they are there"));

/// The numbers as totals, and each as a bin of each curve.
fn job(name: &str, numbers: &[f64]) -> Job {
    let mut job = testing::named(name);
    let mut curves = Curves::new(job.start(), job.start() + 60.0 * numbers.len().min(20) as f64, 60.0);
    for (at, node) in job.nodes.iter_mut().enumerate() {
        for (metric, value) in metric::ALL.iter().zip(numbers.iter().cycle()) {
            node.values.set(metric, *value);
            let gpu = (metric.level == metric::Level::Gpu).then_some(0);
            let values = numbers.iter().copied().cycle().take(curves.bins()).map(|number| number + value).collect();
            curves.curves.push(Curve { metric, node: Some(at), gpu, part: None, values });
        }
    }
    job.curves = Some(curves);
    job
}

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, |(numbers, name): (Vec<f64>, String)| {
        let options = html::Options { zone: jiff::tz::TimeZone::UTC, link: Some(name.clone()) };
        let report = testing::report(job(&name, &numbers));
        let page = html::render(&report, &THRESHOLDS, &options);
        assert!(!page.contains("<script") && !page.chars().any(|c| c.is_control() && c != '\n' && c != '\u{7f}'));
        if !name.trim().is_empty() {
            let plain = html::render(&testing::report(job("n", &numbers)), &THRESHOLDS, &options);
            // Labels in drawings may have no room.
            let elements = |page: &str| page.split("<svg").map(|part| part.rsplit("</svg>").next().unwrap_or("").matches('<').count()).sum::<usize>();
            assert_eq!(elements(&page), elements(&plain), "{name:?}");
        }
        let paper = pdf::render(&report, &THRESHOLDS, &options).expect("it is drawn");
        assert!(paper.starts_with(b"%PDF-"));
    });
}
