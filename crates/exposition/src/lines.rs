//! What both text formats have in common: a sample's line.

use std::fmt::{Error, Write};

use super::section::SampleRef;
use super::{Section, Value};

/// Writes numbers, without an allocation.
#[derive(Default)]
pub(crate) struct Numbers {
    float: zmij::Buffer,
    integer: itoa::Buffer,
}

impl Numbers {
    /// Writes a value: integers and decimals exactly, a float as the shortest text that gives it back.
    pub(crate) fn write(&mut self, value: Value, out: &mut impl Write) -> Result<(), Error> {
        match value {
            Value::Int(value) => out.write_str(self.integer.format(value)),
            Value::Decimal(value) => value.write(out),
            Value::Float(value) => out.write_str(self.float.format(value)),
        }
    }
}

/// The subjects of a section as they are in each of their samples' lines. A job has hundreds of them.
#[derive(Default)]
pub(crate) struct Subjects {
    text: String,
    /// Where the labels of each subject end in the text, and where its start ends.
    ends: Vec<(usize, usize)>,
}

impl Subjects {
    /// Takes the subjects of the next section.
    pub(crate) fn take(&mut self, section: &Section, numbers: &mut Numbers) -> Result<(), Error> {
        self.text.clear();
        self.ends.clear();
        for (labels, began) in section.subjects() {
            let mut between = "";
            for label in labels {
                self.text.push_str(between);
                write_label(label, &mut self.text)?;
                between = ",";
            }
            let labels = self.text.len();
            if let Some(began) = began {
                numbers.write(Value::Float(began), &mut self.text)?;
            }
            self.ends.push((labels, self.text.len()));
        }
        Ok(())
    }

    fn place(&self, sample: &SampleRef<'_>) -> (usize, usize, usize) {
        let Some(at) = sample.subject() else { return (0, 0, 0) };
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        self.ends.get(at).map_or((0, 0, 0), |(labels, began)| (start, *labels, *began))
    }

    /// The labels that a sample has from its subject, without braces.
    fn labels(&self, sample: &SampleRef<'_>) -> &str {
        let (start, labels, _) = self.place(sample);
        self.text.get(start..labels).unwrap_or_default()
    }

    /// When the sample's counter began, as a number; empty if that is not known.
    pub(crate) fn began(&self, sample: &SampleRef<'_>) -> &str {
        let (_, labels, began) = self.place(sample);
        self.text.get(labels..began).unwrap_or_default()
    }

    /// Writes a sample's line up to its value.
    pub(crate) fn write_series(
        &self,
        (name, suffix): (&str, &str),
        sample: &SampleRef<'_>,
        out: &mut impl Write,
    ) -> Result<(), Error> {
        out.write_str(name)?;
        out.write_str(suffix)?;
        let shared = self.labels(sample);
        let mut before = "{";
        if !shared.is_empty() {
            out.write_str("{")?;
            out.write_str(shared)?;
            before = ",";
        }
        for label in sample.own_labels() {
            out.write_str(before)?;
            write_label(label, out)?;
            before = ",";
        }
        out.write_str(if before == "{" { " " } else { "} " })
    }
}

fn write_label((key, value): (&str, &str), out: &mut impl Write) -> Result<(), Error> {
    out.write_str(key)?;
    out.write_str("=\"")?;
    escape(value, true, out)?;
    out.write_str("\"")
}

/// Escapes what would end a HELP text or a label value. Whether a quote does, depends on the place and the format.
pub(crate) fn escape(text: &str, quotes: bool, out: &mut impl Write) -> Result<(), Error> {
    let mut rest = text;
    let special = |byte: u8| matches!(byte, b'\\' | b'\n') || (quotes && byte == b'"');
    while let Some((before, after)) = rest.bytes().position(special).and_then(|at| rest.split_at_checked(at))
    {
        out.write_str(before)?;
        out.write_str(match after.as_bytes() {
            [b'\n', ..] => "\\n",
            [b'"', ..] => "\\\"",
            _ => "\\\\",
        })?;
        rest = after.get(1..).unwrap_or_default();
    }
    out.write_str(rest)
}
