//! Labels of a series, and the strings that the series of an answer share.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

/// The labels of a series, sorted by name. An empty label is the same as none for Prometheus, so there is none here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(label, _)| (**label).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// The name of the metric.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.get("__name__")
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    /// The first of two labels of the same name counts.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        sorted(labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

fn sorted(mut labels: Vec<(Arc<str>, Arc<str>)>) -> Labels {
    labels.retain(|(_, value)| !value.is_empty());
    labels.sort_by(|(a, _), (b, _)| a.cmp(b));
    labels.dedup_by(|(a, _), (b, _)| a == b);
    Labels(labels.into())
}

/// As PromQL writes a selector: `up{job="node"}`, and `{"an odd name", job="node"}` since Prometheus 3.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        match self.name() {
            Some(name) if is_plain(name) => write!(f, "{name}{{")?,
            Some(name) => {
                write!(f, "{{{}", Quoted(name))?;
                separator = ", ";
            }
            None => f.write_str("{")?,
        }
        for (name, value) in self.iter().filter(|(name, _)| *name != "__name__") {
            f.write_str(separator)?;
            if is_plain(name) { f.write_str(name) } else { Quoted(name).fmt(f) }?;
            write!(f, "={}", Quoted(value))?;
            separator = ", ";
        }
        f.write_str("}")
    }
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars().all(of_name) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// A string of PromQL, without control characters.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        self.0.chars().try_for_each(|c| match c {
            '\\' | '"' => write!(f, "\\{c}"),
            '\n' => f.write_str("\\n"),
            '\t' => f.write_str("\\t"),
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c)),
            c => write!(f, "{c}"),
        })?;
        f.write_str("\"")
    }
}

/// The strings of an answer, each once: the same names and values come with every series.
#[derive(Debug, Default)]
pub(crate) struct Strings(HashSet<Arc<str>>);

impl Strings {
    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

/// An object of strings.
pub(crate) struct LabelSet<'a>(pub(crate) &'a mut Strings);

impl<'de> DeserializeSeed<'de> for LabelSet<'_> {
    type Value = Labels;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Labels, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelSet<'_> {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut labels = Vec::new();
        while let Some(name) = map.next_key_seed(Text(self.0))? {
            labels.push((name, map.next_value_seed(Text(self.0))?));
        }
        Ok(sorted(labels))
    }
}

struct Text<'a>(&'a mut Strings);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Arc<str>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(self.0.share(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_have_no_empty_value() {
        let labels: Labels = [("job", "node"), ("empty", ""), ("__name__", "up")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("__name__", "up"), ("job", "node")]);
        assert_eq!((labels.get("job"), labels.get("empty"), labels.get("no")), (Some("node"), None, None));
        assert_eq!(labels.name(), Some("up"));
        let same: Labels = [("__name__", "up"), ("job", "node")].into_iter().collect();
        assert_eq!(labels, same);
        assert!(labels > [("__name__", "up"), ("job", "a")].into_iter().collect());
    }

    #[test]
    fn labels_are_shown_as_promql_writes_them() {
        let labels: Labels = [("b", "x\"\\\n\u{1b}"), ("a", "ä"), ("__name__", "up")].into_iter().collect();
        assert_eq!(labels.to_string(), r#"up{a="ä", b="x\"\\\n\u001b"}"#);
        assert_eq!(Labels::default().to_string(), "{}");
        let odd: Labels = [("a.b", "c"), ("\u{7f}", "d"), ("__name__", "1 x")].into_iter().collect();
        assert_eq!(odd.to_string(), r#"{"1 x", "a.b"="c", "\u007f"="d"}"#);
    }

    #[test]
    fn equal_strings_are_one() {
        let mut strings = Strings::default();
        let mut read = |text: &str| {
            LabelSet(&mut strings).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
        };
        let (a, b) = (read(r#"{"job":"node"}"#), read(r#"{"job":"node","x":""}"#));
        assert_eq!(a, b);
        assert!(Arc::ptr_eq(&a.0[0].1, &b.0[0].1));
    }
}
