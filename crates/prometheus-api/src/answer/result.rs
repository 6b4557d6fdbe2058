//! The result of a query: a vector, a matrix or a scalar.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Collect, Data, List, Sample, Series, SoFar};
use crate::labels::{LabelSet, Labels};

/// A result, whatever its type. Native histograms are passed over: no metric of Jobledger is one.
#[derive(Debug, Default, PartialEq)]
pub struct QueryResult {
    /// Of a vector or a scalar.
    pub samples: Vec<Sample>,
    /// Of a matrix.
    pub series: Vec<Series>,
    /// The time of a scalar, which comes before its value.
    scalar: Option<f64>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum DataKey {
    Result,
    #[serde(other)]
    Other,
}

impl Data for QueryResult {
    fn read<'de, D: Deserializer<'de>>(from: D, so_far: &mut SoFar) -> Result<Self, D::Error> {
        from.deserialize_map(Typed(so_far))
    }
}

/// `{"resultType": "matrix", "result": [...]}`. The elements say by themselves of which type they are.
struct Typed<'a>(&'a mut SoFar);

impl<'de> Visitor<'de> for Typed<'_> {
    type Value = QueryResult;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the result of a query")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<QueryResult, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key()? {
            match key {
                DataKey::Result => {
                    let mut result = QueryResult::default();
                    map.next_value_seed(List { into: &mut result, so_far: &mut *self.0 })?;
                    found = Some(result);
                }
                DataKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        found.ok_or_else(|| A::Error::missing_field("result"))
    }
}

impl Collect for QueryResult {
    fn next<'de, A: SeqAccess<'de>>(&mut self, from: &mut A, so_far: &mut SoFar) -> Result<bool, A::Error> {
        Ok(from.next_element_seed(Element { into: self, so_far })?.is_some())
    }
}

/// A sample or a series; or one of the two parts of a scalar.
struct Element<'a> {
    into: &'a mut QueryResult,
    so_far: &'a mut SoFar,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum ElementKey {
    Metric,
    Value,
    Values,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sample, a series or a scalar")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.so_far.one_more_series()?;
        let (mut labels, mut sample, mut points) = (Labels::default(), None, Points::default());
        while let Some(key) = map.next_key()? {
            match key {
                ElementKey::Metric => labels = map.next_value_seed(LabelSet(&mut self.so_far.strings))?,
                ElementKey::Value => sample = Some(map.next_value::<Point>()?),
                ElementKey::Values => {
                    points.0.clear();
                    map.next_value_seed(List { into: &mut points, so_far: &mut *self.so_far })?;
                }
                ElementKey::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if let Some(Point(time, value)) = sample {
            self.so_far.points += 1;
            self.into.samples.push(Sample { labels, value, time });
        } else if !points.0.is_empty() {
            points.0.shrink_to_fit();
            self.into.series.push(Series { labels, points: points.0 });
        }
        Ok(())
    }

    fn visit_f64<E: Error>(self, time: f64) -> Result<(), E> {
        self.into.scalar = Some(to_milliseconds(time));
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "a time of more than 2^53 s is no time")]
    fn visit_u64<E: Error>(self, time: u64) -> Result<(), E> {
        self.visit_f64(time as f64)
    }

    #[allow(clippy::cast_precision_loss, reason = "a time of more than 2^53 s is no time")]
    fn visit_i64<E: Error>(self, time: i64) -> Result<(), E> {
        self.visit_f64(time as f64)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        let time = self.into.scalar.take().ok_or_else(|| E::custom("a value without a time"))?;
        let value = number(value)?;
        self.so_far.one_more_series()?;
        self.so_far.points += 1;
        self.into.samples.push(Sample { labels: Labels::default(), value, time });
        Ok(())
    }
}

#[derive(Default)]
struct Points(Vec<(f64, f64)>);

impl Collect for Points {
    fn next<'de, A: SeqAccess<'de>>(&mut self, from: &mut A, so_far: &mut SoFar) -> Result<bool, A::Error> {
        let Some(Point(time, value)) = from.next_element()? else { return Ok(false) };
        so_far.points += 1;
        self.0.push((time, value));
        Ok(true)
    }
}

/// `[1435781451.781, "1"]`.
struct Point(f64, f64);

impl<'de> serde::Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (time, Value(value)) = serde::Deserialize::deserialize(from)?;
        Ok(Point(to_milliseconds(time), value))
    }
}

/// A number as a string, since JSON has no NaN and no infinity.
struct Value(f64);

impl<'de> serde::Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as a string")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
                number(text).map(Value)
            }
        }
        from.deserialize_str(Text)
    }
}

fn number<E: Error>(text: &str) -> Result<f64, E> {
    text.parse().map_err(|_| E::custom("a value that is not a number"))
}

/// Times have three decimals (prometheus util/jsonutil, `MarshalTimestamp`). `serde_json` may be off by the last bit, and equal times
/// have to be equal numbers.
fn to_milliseconds(time: f64) -> f64 {
    (time * 1e3).round() / 1e3
}
