//! What is written as protobuf is what prost reads with messages that are derived, not written by hand.
//!
//! The messages are after `io/prometheus/client/metrics.proto` of prometheus/client_model (Apache-2.0), as far as the
//! exporter uses them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and times are in range"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use exposition::{Decimal, Family, Kind, Section, SubjectId, Value, encode_protobuf};
use proptest::prelude::*;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, optional, tag = "5")]
    unit: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Summary = 2,
    Untyped = 3,
    Histogram = 4,
    GaugeHistogram = 5,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(int64, optional, tag = "6")]
    timestamp_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Counter {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    created_timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

static SPENT: Family = Family::counter("jobledger_job_spent_seconds_total").labels(&["own"]).help("Time");
static LOAD: Family = Family::gauge("jobledger_node_load1").help("Say \"hi\" \\ \n");
static INFO: Family = Family::info("jobledger_job_info").labels(&["own"]).help("Identity");

/// Reads one message after the other, and nothing may be left.
fn decode(mut bytes: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    families
}

fn encode(sections: &[Arc<Section>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_protobuf(sections, &mut bytes);
    bytes
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair { name: Some(name.to_owned()), value: Some(value.to_owned()) }
}

#[test]
fn a_counter_has_its_start_and_a_gauge_has_none() {
    let mut section = Section::default();
    let job = section.subject_since([("jobid", "7")], Some(1_700_000_000.25));
    section.push(&SPENT, job, &[("own", "b")], Value::micro(1_500_000));
    section.push(&LOAD, SubjectId::NODE, &[], 0);
    section.push(&INFO, job, &[("own", "a\"\n")], 1);
    let other = section.subject([("jobid", "8")]);
    section.push(&SPENT, other, &[], 2);
    let began = Timestamp { seconds: 1_700_000_000, nanos: 250_000_000 };
    let counter = |value, created_timestamp| Some(Counter { value: Some(value), created_timestamp });
    let gauge = |value| Some(Gauge { value: Some(value) });
    let none = Metric::default();
    let family = |name: &str, help: &str, kind: MetricType, unit: Option<&str>, metric| MetricFamily {
        name: Some(name.to_owned()),
        help: Some(help.to_owned()),
        r#type: Some(kind as i32),
        metric,
        unit: unit.map(str::to_owned),
    };
    let spent = vec![
        Metric {
            label: vec![pair("jobid", "7"), pair("own", "b")],
            counter: counter(1.5, Some(began)),
            ..none.clone()
        },
        Metric { label: vec![pair("jobid", "8")], counter: counter(2.0, None), ..none.clone() },
    ];
    let info =
        Metric { label: vec![pair("jobid", "7"), pair("own", "a\"\n")], gauge: gauge(1.0), ..none.clone() };
    assert_eq!(
        decode(&encode(&[Arc::new(section)])),
        [
            family(SPENT.name, "Time", MetricType::Counter, Some("seconds"), spent),
            family(
                LOAD.name,
                "Say \"hi\" \\ \n",
                MetricType::Gauge,
                None,
                vec![Metric { gauge: gauge(0.0), ..none }]
            ),
            family(INFO.name, "Identity", MetricType::Gauge, None, vec![info]),
        ]
    );
}

#[test]
fn what_has_no_sample_is_no_family() {
    let mut section = Section::default();
    section.expect([&LOAD, &INFO]);
    assert_eq!(encode(&[Arc::new(section)]), []);
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
    let value = prop_oneof![
        any::<u64>().prop_map(Value::Int),
        (0.0..1e300).prop_map(Value::Float),
        (any::<u64>(), 0..20_u32).prop_map(|(amount, places)| Decimal::new(amount, places).into()),
    ];
    let began = proptest::option::of(0.001..4e9);
    let one = (0..3_usize, any::<String>(), "x{0,300}", value, began);
    let one =
        one.prop_map(|(family, subject, own, value, began)| Pushed { family, subject, own, value, began });
    proptest::collection::vec(one, 0..40)
}

proptest! {
    #[test]
    fn samples_in_are_messages_out(all in pushed()) {
        static FAMILIES: [&Family; 3] = [&SPENT, &LOAD, &INFO];
        let mut sections = [Section::default(), Section::default()];
        let mut wanted: BTreeMap<&str, Vec<Metric>> = BTreeMap::new();
        for p in &all {
            let (section, family) = (&mut sections[p.family % 2], FAMILIES[p.family]);
            let subject = section.subject_since([("jobid", p.subject.as_str())], p.began);
            section.push(family, subject, &[("own", &p.own)], p.value);
            let mut metric = Metric { label: vec![pair("jobid", &p.subject), pair("own", &p.own)], ..Metric::default() };
            match family.kind {
                Kind::Counter => {
                    let created_timestamp = p.began.map(|began| Timestamp {
                        seconds: began.trunc() as i64,
                        nanos: (began.fract() * 1e9) as i32,
                    });
                    metric.counter = Some(Counter { value: Some(p.value.to_f64()), created_timestamp });
                }
                Kind::Gauge => metric.gauge = Some(Gauge { value: Some(p.value.to_f64()) }),
                Kind::Info => metric.gauge = Some(Gauge { value: Some(1.0) }),
            }
            wanted.entry(family.name).or_default().push(metric);
        }
        let found = decode(&encode(&sections.map(Arc::new)));
        prop_assert_eq!(found.len(), wanted.len(), "each family once");
        let found: BTreeMap<String, Vec<Metric>> =
            found.into_iter().map(|family| (family.name.unwrap(), family.metric)).collect();
        let wanted: BTreeMap<String, Vec<Metric>> =
            wanted.into_iter().map(|(name, metrics)| (name.to_owned(), metrics)).collect();
        prop_assert_eq!(found, wanted);
    }
}
