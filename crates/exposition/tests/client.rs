//! prometheus-client, Prometheus' own library, writes the same OpenMetrics of the same samples.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fmt::Error;
use std::sync::Arc;

use exposition::{Family, Kind, Section, SubjectId, Value, encode_openmetrics};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

static SPENT: Family = Family::counter("jobledger_job_spent_seconds_total").labels(&["own"]).help("Time");
static USED: Family = Family::gauge("jobledger_job_used_bytes").labels(&["own"]).help("Memory");
static RATIO: Family = Family::gauge("jobledger_node_busy_ratio").help("Part");
static INFO: Family = Family::info("jobledger_job_info").labels(&["own"]).help("Identity");

#[derive(Debug)]
struct Sections(Vec<Arc<Section>>);

struct Labels<'a>(Vec<(&'static str, &'a str)>);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        self.0.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

impl Collector for Sections {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (family, samples) in self.0.iter().flat_map(|section| section.families()) {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let unit = family.unit.map(|unit| Unit::Other(unit.as_str().to_owned()));
            let mut metric =
                encoder.encode_descriptor(family.stem(), &family.help_text(), unit.as_ref(), kind)?;
            for sample in samples {
                let labels = Labels(sample.labels().collect());
                let mut one = metric.encode_family(&labels)?;
                match (family.kind, sample.value()) {
                    (Kind::Info, _) => metric.encode_info(&labels)?,
                    (Kind::Counter, Value::Int(v)) => one.encode_counter::<NoLabelSet, _, u64>(&v, None)?,
                    (Kind::Counter, Value::Decimal(v)) => {
                        one.encode_counter::<NoLabelSet, _, u64>(&v.to_f64(), None)?;
                    }
                    (Kind::Counter, Value::Float(v)) => one.encode_counter::<NoLabelSet, _, u64>(&v, None)?,
                    (_, Value::Int(v)) => one.encode_gauge(&v)?,
                    (_, Value::Decimal(v)) => one.encode_gauge(&v.to_f64())?,
                    (_, Value::Float(v)) => one.encode_gauge(&v)?,
                }
            }
        }
        Ok(())
    }
}

#[test]
fn the_page_is_the_one_that_prometheus_library_writes() {
    let mut section = Section::default();
    for (jobid, own) in [("7", "user"), ("8", "a\"b\\c\nd\u{2028}")] {
        let job = section.subject_since([("jobid", jobid)], Some(1.7e9));
        section.push(&SPENT, job, &[("own", own)], Value::micro(1_500_000));
        section.push(&SPENT, job, &[("own", "system")], 2);
        section.push(&USED, job, &[("own", own)], u64::MAX);
        section.push(&INFO, job, &[("own", own)], 1);
    }
    let node = section.subject([("a", "b")]);
    section.push(&RATIO, node, &[], 0.25);
    section.push(&RATIO, SubjectId::NODE, &[("c", "")], 1.0);
    let sections = vec![Arc::new(section)];
    let (mut ours, mut theirs) = (String::new(), String::new());
    encode_openmetrics(&sections, &mut ours).unwrap();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sections(sections)));
    text::encode(&mut theirs, &registry).unwrap();
    assert_eq!(ours, theirs);
}
