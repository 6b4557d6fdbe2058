//! Whatever goes in comes out, in both text formats, through a parser that shares nothing with the encoders.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use exposition::{
    Created, Decimal, Family, Kind, Section, SubjectId, Value, encode_openmetrics, encode_openmetrics_with,
    encode_text,
};
use jobledger_testkit::exposition::{Exposition, Format, Kind as Parsed, parse};
use proptest::prelude::*;

static FAMILIES: [Family; 6] = [
    Family::counter("jobledger_job_spent_seconds_total").labels(&["own"]).help("Help"),
    Family::counter("jobledger_job_events_total").labels(&["own"]).help("Help"),
    Family::gauge("jobledger_job_used_bytes").labels(&["own"]).help("Help"),
    Family::gauge("jobledger_job_share_ratio").labels(&["own"]).help("Help"),
    Family::gauge("jobledger_job_now").labels(&["own"]).help("Help"),
    Family::info("jobledger_job_about_info").labels(&["own"]).help("Help"),
];

/// Text with everything that means something to a format.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\"\\\\{}#, \n\r\t=a1]{0,16}",
        Just("a\"} 1\nfake_metric 42\n#".to_owned()),
        Just("# EOF\n".to_owned()),
        Just("\\n".to_owned()),
        Just("\u{202e}\u{2028}\u{0}\u{7f}".to_owned()),
        "x{0,300}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Int),
        (0..1_000_000_u64).prop_map(Value::Int),
        (any::<u64>(), 0..20_u32).prop_map(|(amount, places)| Decimal::new(amount, places).into()),
        (0..1_000_000_000_u64).prop_map(Value::micro),
        any::<f64>().prop_map(Value::Float),
        (0.0..1e9).prop_map(Value::Float),
        Just(Value::Float(0.1 + 0.2)),
        Just(Value::Float(5e-324)),
        Just(Value::Float(f64::MAX)),
    ]
}

#[derive(Debug, Clone)]
struct Pushed {
    family: usize,
    subject: String,
    own: String,
    value: Value,
    began: Option<f64>,
}

fn pushed() -> impl Strategy<Value = Vec<Pushed>> {
    let began = proptest::option::of(prop_oneof![0.001..4e9, any::<f64>()]);
    let one = (0..FAMILIES.len(), hostile(), hostile(), value(), began);
    let one =
        one.prop_map(|(family, subject, own, value, began)| Pushed { family, subject, own, value, began });
    proptest::collection::vec(one, 0..40).prop_map(|mut all| {
        // A collector that pushes one series twice is its own bug.
        let mut seen = BTreeSet::new();
        all.retain(|p| seen.insert((p.family, p.subject.clone(), p.own.clone())));
        all
    })
}

fn is_exported(family: &Family, value: Value) -> bool {
    match value {
        Value::Int(_) | Value::Decimal(_) => true,
        Value::Float(v) => v.is_finite() && (family.kind != Kind::Counter || v >= 0.0),
    }
}

/// Every sample that is to be exported, and no other, is in the exposition, with its exact value.
fn holds(exposition: &Exposition, all: &[Pushed]) -> Result<(), TestCaseError> {
    let mut wanted = 0;
    for p in all.iter().filter(|p| is_exported(&FAMILIES[p.family], p.value)) {
        wanted += 1;
        let labels = [("jobid".to_owned(), p.subject.clone()), ("own".to_owned(), p.own.clone())];
        let name = FAMILIES[p.family].name;
        let found: Vec<_> = exposition.named(name).filter(|s| s.labels == labels).collect();
        prop_assert_eq!(found.len(), 1, "{} {:?}", name, labels);
        let (sample, is_info) = (found[0], FAMILIES[p.family].kind == Kind::Info);
        match p.value {
            _ if is_info => prop_assert_eq!(&sample.text, "1"),
            Value::Int(v) => prop_assert_eq!(&sample.text, &v.to_string()),
            Value::Decimal(v) => prop_assert_eq!(&sample.text, &v.to_string()),
            Value::Float(v) => prop_assert_eq!(sample.value.to_bits(), v.to_bits(), "{} {}", v, sample.text),
        }
    }
    prop_assert_eq!(exposition.samples().count(), wanted, "no series more than samples");
    Ok(())
}

/// Two sections, as two collectors give them, with disjoint families.
fn sections(all: &[Pushed]) -> (Vec<Arc<Section>>, u64) {
    let mut sections = [Section::default(), Section::default()];
    for p in all {
        let section = &mut sections[p.family % 2];
        let subject = section.subject_since([("jobid", p.subject.as_str())], p.began);
        section.push(&FAMILIES[p.family], subject, &[("own", &p.own)], p.value);
    }
    let bad = sections.iter().map(Section::bad_values).sum();
    (sections.into_iter().map(Arc::new).collect(), bad)
}

/// Name, labels, and the value as it is written.
type Written<'a> = (&'a str, &'a [(String, String)], &'a str);

fn samples(exposition: &Exposition) -> Vec<Written<'_>> {
    exposition.samples().map(|s| (&*s.name, &*s.labels, &*s.text)).collect()
}

proptest! {
    #[test]
    fn samples_in_are_series_out_with_their_exact_values(all in pushed()) {
        let (sections, bad) = sections(&all);
        let mut openmetrics = String::new();
        encode_openmetrics(&sections, &mut openmetrics).unwrap();
        // The parser refuses duplicates, families in two pieces, and whatever an injected line would be.
        let parsed = parse(openmetrics.as_bytes(), Format::OpenMetrics);
        let parsed = parsed.map_err(|e| TestCaseError::fail(format!("{e}\n{openmetrics}")))?;
        holds(&parsed, &all)?;
        let mut text = String::new();
        encode_text(&sections, &mut text).unwrap();
        let parsed_text = parse(text.as_bytes(), Format::Text);
        let parsed_text = parsed_text.map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        holds(&parsed_text, &all)?;
        prop_assert_eq!(samples(&parsed), samples(&parsed_text), "the same samples, digit by digit");
        for family in &parsed_text.families {
            let declared = FAMILIES.iter().find(|f| f.name == family.name).unwrap();
            prop_assert_eq!(family.help.as_deref(), Some(&*declared.help_text()));
            let counter = declared.kind == Kind::Counter;
            prop_assert_eq!(family.kind, if counter { Parsed::Counter } else { Parsed::Gauge });
        }
        let refused = all.iter().filter(|p| !is_exported(&FAMILIES[p.family], p.value)).count();
        prop_assert_eq!(bad, refused as u64, "what is left out is counted");
    }

    #[test]
    fn each_counter_has_its_start_where_it_is_known_and_nothing_else_changes(all in pushed()) {
        let (sections, _) = sections(&all);
        let (mut without, mut with) = (String::new(), String::new());
        encode_openmetrics(&sections, &mut without).unwrap();
        encode_openmetrics_with(&sections, Created::Written, &mut with).unwrap();
        let parsed = parse(with.as_bytes(), Format::OpenMetrics);
        let parsed = parsed.map_err(|e| TestCaseError::fail(format!("{e}\n{with}")))?;
        let mut wanted = BTreeSet::new();
        for p in all.iter().filter(|p| is_exported(&FAMILIES[p.family], p.value)) {
            let family = &FAMILIES[p.family];
            let known = p.began.filter(|began| began.is_finite() && *began > 0.0);
            if let Some(began) = known.filter(|_| family.kind == Kind::Counter) {
                wanted.insert((format!("{}_created", family.base_name()), &*p.subject, &*p.own, began.to_bits()));
            }
        }
        let label = |s, name| jobledger_testkit::exposition::Sample::label(s, name).unwrap_or_default();
        let found: BTreeSet<_> = parsed
            .samples()
            .filter(|s| s.name.ends_with("_created"))
            .map(|s| (s.name.clone(), label(s, "jobid"), label(s, "own"), s.value.to_bits()))
            .collect();
        prop_assert_eq!(found, wanted);
        let others: Vec<_> = with.split_inclusive('\n').filter(|line| !line.contains("_created{")).collect();
        // A label may have that word in it, too, as long as it is in both.
        let before: Vec<_> = without.split_inclusive('\n').filter(|line| !line.contains("_created{")).collect();
        prop_assert_eq!(others, before);
    }

    #[test]
    fn the_limit_keeps_the_first_subjects_whole(
        sizes in proptest::collection::vec(1..5_usize, 1..40), room in 0..150_usize, fixed in 0..5_usize,
    ) {
        static NODE: Family = Family::gauge("jobledger_node_now").labels(&["own"]).help("Help");
        let mut section = Section::default();
        for n in 0..fixed {
            section.push(&NODE, SubjectId::NODE, &[("own", &n.to_string())], 1_u64);
        }
        for (id, size) in sizes.iter().enumerate() {
            let subject = section.subject([("jobid", id.to_string().as_str())]);
            for n in 0..*size {
                section.push(&FAMILIES[4], subject, &[("own", &n.to_string())], 1_u64);
            }
        }
        let before = section.len();
        let cut = section.truncate_jobs(room);
        prop_assert_eq!(before - cut.samples, section.len());
        let first: Vec<_> = cut.first.iter().filter_map(|subject| section.label_of(*subject, "jobid")).collect();
        let first = first.iter().map(|id| id.parse().unwrap()).collect::<Vec<usize>>();
        prop_assert!(section.len() <= room.max(fixed));
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        let parsed = parse(text.as_bytes(), Format::OpenMetrics).unwrap();
        prop_assert_eq!(parsed.named(NODE.name).count(), fixed, "the node is not what there is too much of");
        let kept: BTreeSet<usize> =
            parsed.named(FAMILIES[4].name).map(|s| s.label("jobid").unwrap().parse().unwrap()).collect();
        prop_assert_eq!(&kept, &(0..kept.len()).collect(), "the first ones");
        prop_assert_eq!(first, if cut.samples > 0 { vec![kept.len()] } else { Vec::new() }, "what is cut is known");
        let whole: usize = sizes.iter().take(kept.len()).sum();
        prop_assert_eq!(parsed.named(FAMILIES[4].name).count(), whole, "and all of each");
    }
}
