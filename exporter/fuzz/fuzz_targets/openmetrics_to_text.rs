//! Every exposition of the kinds that exporters make stays valid, and the same, as text 0.0.4.

use jobledger_exporter::scrape::openmetrics_to_text;
use jobledger_testkit::exposition::{Format, Kind, parse};
use jobledger_exporter_fuzz::typed;

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, run);
}

fn run(openmetrics: &str) {
    let text = openmetrics_to_text(openmetrics);
    let Ok(given) = parse(openmetrics.as_bytes(), Format::OpenMetrics) else { return };
    let simple = |kind| matches!(kind, Kind::Counter | Kind::Gauge | Kind::Info | Kind::Unknown);
    if !given.families.iter().all(|family| simple(family.kind)) {
        return;
    }
    // 0.0.4 has millisecond timestamps, and families that differ only in `_total` or `_info` can meet there.
    let own = |name: &str| name.ends_with("_created") || name.ends_with("_total") || name.ends_with("_info");
    let clash = given.families.iter().any(|f| own(&f.name)) || given.samples().any(|s| s.timestamp.is_some());
    if clash {
        return;
    }
    let told = parse(text.as_bytes(), Format::Text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let created = |name: &str| name.ends_with("_created");
    let wanted: Vec<_> = given.samples().filter(|s| !created(&s.name)).collect();
    let found: Vec<_> = told.samples().collect();
    assert_eq!(found.len(), wanted.len(), "{text}");
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!((&found.name, &found.labels, &found.text), (&wanted.name, &wanted.labels, &wanted.text));
    }
}
