//! Whatever labels and values go into a section come out in both text formats, with starts or without, and nothing else
//! does.

use std::collections::BTreeSet;
use std::sync::Arc;

use exposition::{Created, Family, Kind, Section, Value, encode_openmetrics_with, encode_protobuf, encode_text};
use jobledger_testkit::exposition::{Format, parse};
use jobledger_exporter_fuzz::typed;

static FAMILIES: [Family; 3] = [
    Family::counter("jobledger_job_spent_seconds_total").labels(&["own"]).help("Help"),
    Family::gauge("jobledger_job_now").labels(&["own"]).help("Help"),
    Family::info("jobledger_job_about_info").labels(&["own"]).help("Help"),
];

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, run);
}

fn run(samples: Vec<(u8, String, String, f64)>) {
    let mut section = Section::default();
    let mut wanted = BTreeSet::new();
    for (which, subject, own, value) in samples {
        let Some(family) = FAMILIES.get(usize::from(which) % 3) else { continue };
        let is_exported = value.is_finite() && (value >= 0.0 || family.kind != Kind::Counter);
        // A collector pushes no series twice.
        if wanted.contains(&(family.name, subject.clone(), own.clone())) {
            continue;
        }
        let id = section.subject_since([("jobid", subject.as_str())], Some(value));
        section.push(family, id, &[("own", &own)], Value::Float(value));
        if is_exported {
            wanted.insert((family.name, subject, own));
        }
    }
    let mut openmetrics = String::new();
    let (sections, mut text) = ([Arc::new(section)], String::new());
    encode_openmetrics_with(&sections, Created::Written, &mut openmetrics).expect("a String takes everything");
    encode_text(&sections, &mut text).expect("a String takes everything");
    encode_protobuf(&sections, &mut Vec::new());
    for (body, format) in [(openmetrics, Format::OpenMetrics), (text, Format::Text)] {
        let parsed = parse(body.as_bytes(), format).unwrap_or_else(|e| panic!("{format:?}: {e}\n{body}"));
        let samples = || parsed.samples().filter(|s| !s.name.ends_with("_created"));
        let found: BTreeSet<_> = samples()
            .map(|s| {
                let name = FAMILIES.iter().map(|f| f.name).find(|name| *name == s.name).expect("a known name");
                let label = |name| s.label(name).unwrap_or_default().to_owned();
                (name, label("jobid"), label("own"))
            })
            .collect();
        assert_eq!(found, wanted);
        assert_eq!(samples().count(), wanted.len());
    }
}
