//! Thresholds and texts of advice: rules/thresholds.yaml, which alerts and dashboards are made from, too.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::numbers::Numbers;

/// What a user reads of a piece of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// What was seen.
    pub what: String,
    /// What to change.
    pub change: String,
    /// When it applies.
    pub when: String,
}

/// Numbers and texts of advice.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    values: BTreeMap<String, f64>,
    texts: BTreeMap<String, Texts>,
}

/// Why a file has no thresholds.
#[derive(Debug, thiserror::Error)]
pub enum ThresholdsError {
    /// It is no YAML of this layout.
    #[error("{0}")]
    Layout(#[from] serde_yaml::Error),
    /// A piece of advice or a number that it rests on is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A text names a number in a way that is not understood.
    #[error("{piece}: {{{placeholder}}} is not understood")]
    Placeholder {
        /// The piece of advice.
        piece: String,
        /// What is between the braces.
        placeholder: String,
    },
}

#[derive(Deserialize)]
struct File {
    settings: BTreeMap<String, BTreeMap<String, Setting>>,
    report: BTreeMap<String, f64>,
    advice: BTreeMap<String, Raw>,
}

#[derive(Deserialize)]
struct Setting {
    value: f64,
}

#[derive(Deserialize)]
struct Raw {
    what: String,
    change: String,
    when: String,
}

/// Those that alerts and dashboards are shipped with.
pub(crate) const SHIPPED: &str = include_str!("../../../rules/thresholds.yaml");

impl Thresholds {
    /// Reads a file of the layout of rules/thresholds.yaml. These numbers and texts have to be there.
    pub(crate) fn read<'a>(
        yaml: &str,
        mut numbers: impl Iterator<Item = &'a str>,
        mut pieces: impl Iterator<Item = &'a str>,
    ) -> Result<Self, ThresholdsError> {
        let file: File = serde_yaml::from_str(yaml)?;
        let mut values = file.report;
        values.extend(file.settings.into_values().flatten().map(|(name, setting)| (name, setting.value)));
        let mut texts = BTreeMap::new();
        for (name, Raw { what, change, when }) in file.advice {
            let when = filled(&name, &when, &values)?;
            texts.insert(name, Texts { what, change, when });
        }
        let missing = numbers.find(|name| !values.contains_key(*name));
        match missing.or_else(|| pieces.find(|name| !texts.contains_key(*name))) {
            Some(name) => Err(ThresholdsError::Missing(name.to_owned())),
            None => Ok(Self { values, texts }),
        }
    }

    /// A number. That all are there was checked when the file was read.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(f64::NAN)
    }

    /// A number for a format, such as the limit of a colour.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// What was seen of GPUs for a moment says nothing of the rest: whether this was nearly all of their time.
    pub fn gpus_were_seen(&self, numbers: &Numbers) -> bool {
        numbers.gpu_seen.is_some_and(|seen| seen >= self.value("gpu_seen"))
    }

    /// The texts of a piece of advice.
    pub fn texts(&self, name: &str) -> Option<&Texts> {
        self.texts.get(name)
    }
}

/// Fills in numbers as Python's format does, of which the file uses `{name}`, `{name:g}` and `{name:.1%}`.
fn filled(piece: &str, text: &str, values: &BTreeMap<String, f64>) -> Result<String, ThresholdsError> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        result.push_str(before);
        let unknown = |placeholder: &str| ThresholdsError::Placeholder {
            piece: piece.to_owned(),
            placeholder: placeholder.to_owned(),
        };
        let (placeholder, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
        let (name, form) = placeholder.split_once(':').unwrap_or((placeholder, "g"));
        let value = *values.get(name).ok_or_else(|| unknown(placeholder))?;
        match form.strip_prefix('.').and_then(|form| form.strip_suffix('%')).map(str::parse::<usize>) {
            Some(Ok(digits)) if digits < 10 => result.push_str(&format!("{:.digits$}%", value * 100.0)),
            None if form == "g" => result.push_str(&value.to_string()),
            _ => return Err(unknown(placeholder)),
        }
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_filled_in_as_python_does() {
        let values = BTreeMap::from([("ratio".to_owned(), 0.001), ("cores".to_owned(), 1.1)]);
        assert_eq!(filled("p", "{ratio:.1%} of {cores:g}, {cores}", &values).unwrap(), "0.1% of 1.1, 1.1");
        for form in ["{ratio:d}", "{ratio:.x%}", "{ratio", "{}", "{other}"] {
            assert!(filled("p", form, &values).is_err(), "{form}");
        }
    }
}
