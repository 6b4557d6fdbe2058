//! An answer of the API (<https://prometheus.io/docs/prometheus/latest/querying/api/>), read as it comes.
//!
//! Only numbers and the shared strings of labels are kept: an answer may have a million points.

use std::fmt;
use std::io::Read;
use std::marker::PhantomData;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::labels::{LabelSet, Labels, Strings};

mod result;

pub use result::QueryResult;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Empty for a scalar.
    pub labels: Labels,
    /// The value, which may be NaN or infinite.
    pub value: f64,
    /// Unix time in seconds.
    pub time: f64,
}

/// Values over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Unix time in seconds, and value.
    pub points: Vec<(f64, f64)>,
}

/// An answer with what it is about.
#[derive(Debug, PartialEq)]
pub struct Answer<T> {
    /// Whether the server says `"status": "success"`.
    pub success: bool,
    /// What was asked for.
    pub data: Option<T>,
    /// What the server says went wrong.
    pub error: Option<String>,
    /// `warnings`, such as of a part that did not answer, and that of VictoriaMetrics' `isPartial`.
    pub warnings: Vec<String>,
    /// `infos`, which are about the expression.
    pub infos: Vec<String>,
    /// How many series the data has.
    pub series: usize,
    /// How many points the data has.
    pub points: usize,
}

/// Why bytes are no answer.
#[derive(Debug, thiserror::Error)]
pub enum NotAnAnswer {
    /// The limit was exceeded; the rest was not read.
    #[error("more than {0} series")]
    TooManySeries(usize),
    /// Not JSON, not of this API, or an error of the reader.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// The data of one endpoint.
pub trait Data: Sized + Send + 'static {
    /// Reads it.
    #[doc(hidden)]
    fn read<'de, D: Deserializer<'de>>(from: D, so_far: &mut SoFar) -> Result<Self, D::Error>;
}

/// What counts over the whole of an answer.
#[derive(Debug)]
pub struct SoFar {
    strings: Strings,
    most_series: usize,
    series: usize,
    points: usize,
}

impl SoFar {
    fn one_more_series<E: serde::de::Error>(&mut self) -> Result<(), E> {
        self.series += 1;
        if self.series > self.most_series { Err(E::custom("too many series")) } else { Ok(()) }
    }
}

/// Reads one answer to its end.
pub fn parse_answer<T: Data>(from: impl Read, most_series: usize) -> Result<Answer<T>, NotAnAnswer> {
    let mut so_far = SoFar { strings: Strings::default(), most_series, series: 0, points: 0 };
    let mut json = serde_json::Deserializer::from_reader(from);
    let read = Envelope::<T> { so_far: &mut so_far, data: PhantomData }
        .deserialize(&mut json)
        .and_then(|answer| json.end().map(|()| answer));
    match read {
        Err(_) if so_far.series > most_series => Err(NotAnAnswer::TooManySeries(most_series)),
        Err(error) => Err(error.into()),
        Ok(answer) => Ok(Answer { series: so_far.series, points: so_far.points, ..answer }),
    }
}

struct Envelope<'a, T> {
    so_far: &'a mut SoFar,
    data: PhantomData<T>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
enum Key {
    Status,
    Data,
    Error,
    Warnings,
    Infos,
    IsPartial,
    #[serde(other)]
    Other,
}

impl<'de, T: Data> DeserializeSeed<'de> for Envelope<'_, T> {
    type Value = Answer<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Answer<T>, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: Data> Visitor<'de> for Envelope<'_, T> {
    type Value = Answer<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer<T>, A::Error> {
        let mut status: Option<String> = None;
        let mut answer = Answer {
            success: false,
            data: None,
            error: None,
            warnings: Vec::new(),
            infos: Vec::new(),
            series: 0,
            points: 0,
        };
        while let Some(key) = map.next_key()? {
            match key {
                Key::Status => status = Some(map.next_value()?),
                Key::Data => answer.data = map.next_value_seed(Nullable(&mut *self.so_far, PhantomData))?,
                Key::Error => answer.error = map.next_value()?,
                Key::Warnings => {
                    answer.warnings.extend(map.next_value::<Option<Vec<String>>>()?.into_iter().flatten());
                }
                Key::Infos => answer.infos = map.next_value::<Option<_>>()?.unwrap_or_default(),
                Key::IsPartial => {
                    let is_partial = map.next_value::<Option<bool>>()? == Some(true);
                    answer.warnings.extend(is_partial.then(|| "the answer is partial".to_owned()));
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        answer.success = match status.as_deref() {
            Some("success") => true,
            Some("error") => false,
            _ => return Err(A::Error::custom("no status of success or error")),
        };
        Ok(answer)
    }
}

/// Data, or null with an error.
struct Nullable<'a, T>(&'a mut SoFar, PhantomData<T>);

impl<'de, T: Data> DeserializeSeed<'de> for Nullable<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de, T: Data> Visitor<'de> for Nullable<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("data or null")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        T::read(from, self.0).map(Some)
    }
}

/// Data that is small.
#[derive(Debug)]
pub(crate) struct Small<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> Data for Small<T> {
    fn read<'de, D: Deserializer<'de>>(from: D, _so_far: &mut SoFar) -> Result<Self, D::Error> {
        T::deserialize(from).map(Small)
    }
}

/// Data of `/api/v1/series`.
#[derive(Debug, Default, PartialEq)]
pub struct LabelSets(pub Vec<Labels>);

impl Data for LabelSets {
    fn read<'de, D: Deserializer<'de>>(from: D, so_far: &mut SoFar) -> Result<Self, D::Error> {
        let mut sets = Self::default();
        from.deserialize_seq(List { into: &mut sets, so_far })?;
        Ok(sets)
    }
}

impl Collect for LabelSets {
    fn next<'de, A: SeqAccess<'de>>(&mut self, from: &mut A, so_far: &mut SoFar) -> Result<bool, A::Error> {
        let Some(labels) = from.next_element_seed(LabelSet(&mut so_far.strings))? else { return Ok(false) };
        so_far.one_more_series()?;
        self.0.push(labels);
        Ok(true)
    }
}

/// Takes the elements of a list one by one.
pub(crate) trait Collect {
    /// Whether there was another one.
    fn next<'de, A: SeqAccess<'de>>(&mut self, from: &mut A, so_far: &mut SoFar) -> Result<bool, A::Error>;
}

/// A list, read into `into`.
pub(crate) struct List<'a, C> {
    pub(crate) into: &'a mut C,
    pub(crate) so_far: &'a mut SoFar,
}

impl<'de, C: Collect> DeserializeSeed<'de> for List<'_, C> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, C: Collect> Visitor<'de> for List<'_, C> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        while self.into.next(&mut from, self.so_far)? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests;
