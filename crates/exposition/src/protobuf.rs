//! Protobuf of the sections of one scrape: a `MetricFamily` after the other, each behind its length.
//!
//! The messages are those of `io/prometheus/client/metrics.proto` of prometheus/client_model (Apache-2.0). They are
//! written from the samples directly, since messages in memory would allocate for every label. Counters say since when
//! they count, where that is known: field 3 of `Counter`, `created_timestamp`, since 2025 `start_timestamp`.

use std::sync::Arc;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::section::SampleRef;
use super::{Kind, Section};

/// `MetricFamily`
mod family {
    pub(super) const NAME: u32 = 1;
    pub(super) const HELP: u32 = 2;
    pub(super) const TYPE: u32 = 3;
    pub(super) const METRIC: u32 = 4;
    pub(super) const UNIT: u32 = 5;
}

/// `Metric`
mod metric {
    pub(super) const LABEL: u32 = 1;
    pub(super) const GAUGE: u32 = 2;
    pub(super) const COUNTER: u32 = 3;
}

/// `LabelPair`
mod label {
    pub(super) const NAME: u32 = 1;
    pub(super) const VALUE: u32 = 2;
}

/// `Counter` and `Gauge`
mod number {
    pub(super) const VALUE: u32 = 1;
    pub(super) const CREATED_TIMESTAMP: u32 = 3;
}

/// `google.protobuf.Timestamp`
mod timestamp {
    pub(super) const SECONDS: u32 = 1;
    pub(super) const NANOS: u32 = 2;
}

/// `MetricType`
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;

/// Appends the whole exposition to `out`. Families have the names of their samples, as in text 0.0.4.
pub fn encode_protobuf(sections: &[Arc<Section>], out: &mut Vec<u8>) {
    let (mut subjects, mut body, mut own) = (Subjects::default(), Vec::new(), Vec::new());
    for section in sections {
        subjects.take(section);
        for (family, samples) in section.families() {
            body.clear();
            bytes(family::NAME, family.name.as_bytes(), &mut body);
            bytes(family::HELP, family.help_text().as_bytes(), &mut body);
            varint(family::TYPE, if family.kind == Kind::Counter { COUNTER } else { GAUGE }, &mut body);
            for sample in samples {
                write_metric(family.kind, &sample, &subjects, &mut own, &mut body);
            }
            if let Some(unit) = family.unit {
                bytes(family::UNIT, unit.as_str().as_bytes(), &mut body);
            }
            encode_varint(body.len() as u64, out);
            out.extend_from_slice(&body);
        }
    }
}

/// The subjects of a section as they are in each of their samples: the labels, and when the counters began.
#[derive(Default)]
struct Subjects {
    bytes: Vec<u8>,
    /// Where the labels of each subject end, and where its start ends.
    ends: Vec<(usize, usize)>,
}

impl Subjects {
    fn take(&mut self, section: &Section) {
        self.bytes.clear();
        self.ends.clear();
        for (labels, began) in section.subjects() {
            labels.for_each(|label| write_label(label, &mut self.bytes));
            let labels = self.bytes.len();
            if let Some(began) = began {
                write_began(began, &mut self.bytes);
            }
            self.ends.push((labels, self.bytes.len()));
        }
    }

    /// The labels of a sample's subject, and its start.
    fn of(&self, sample: &SampleRef<'_>) -> (&[u8], &[u8]) {
        let Some(at) = sample.subject() else { return (&[], &[]) };
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let Some((labels, end)) = self.ends.get(at) else { return (&[], &[]) };
        let part = |from: usize, to: usize| self.bytes.get(from..to).unwrap_or_default();
        (part(start, *labels), part(*labels, *end))
    }
}

fn write_metric(
    kind: Kind,
    sample: &SampleRef<'_>,
    subjects: &Subjects,
    own: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    /// The key and eight bytes of a `double`.
    const DOUBLE: usize = 9;
    own.clear();
    sample.own_labels().for_each(|label| write_label(label, own));
    let (labels, began) = subjects.of(sample);
    let (tag, began) =
        if kind == Kind::Counter { (metric::COUNTER, began) } else { (metric::GAUGE, &[][..]) };
    let value = if kind == Kind::Info { 1.0 } else { sample.value().to_f64() };
    let number = DOUBLE + began.len();
    let whole = labels.len() + own.len() + 1 + encoded_len_varint(number as u64) + number;
    length(family::METRIC, whole, out);
    out.extend_from_slice(labels);
    out.extend_from_slice(own);
    length(tag, number, out);
    encode_key(number::VALUE, WireType::SixtyFourBit, out);
    out.extend_from_slice(&value.to_le_bytes());
    out.extend_from_slice(began);
}

fn write_label((name, value): (&str, &str), out: &mut Vec<u8>) {
    let len = |text: &str| 1 + encoded_len_varint(text.len() as u64) + text.len();
    length(metric::LABEL, len(name) + len(value), out);
    bytes(label::NAME, name.as_bytes(), out);
    bytes(label::VALUE, value.as_bytes(), out);
}

/// The start of a counter, seconds since the epoch, as a field of `Counter`.
fn write_began(began: f64, out: &mut Vec<u8>) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a section keeps positive and finite starts alone, and a cast does not wrap"
    )]
    let (seconds, nanos) = (began.trunc() as u64, (began.fract() * 1e9) as u64);
    let len = 2 + encoded_len_varint(seconds) + encoded_len_varint(nanos);
    length(number::CREATED_TIMESTAMP, len, out);
    varint(timestamp::SECONDS, seconds, out);
    varint(timestamp::NANOS, nanos, out);
}

/// The head of a field with so many bytes.
fn length(tag: u32, len: usize, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn bytes(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    length(tag, content.len(), out);
    out.extend_from_slice(content);
}

fn varint(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value, out);
}
