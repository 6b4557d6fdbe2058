//! Tables as CSV (RFC 4180): a line of names, then the rows. A gap is an empty field.

use std::borrow::Cow;
use std::io::Write;

use crate::Error;
use crate::table::{Layout, Table, name, rfc3339, unit};

/// Writes a table.
pub fn write(table: &Table<'_>, layout: Layout, to: impl Write) -> Result<(), Error> {
    let mut out =
        Out { csv: ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(to) };
    let names: Vec<String> = table.metrics.iter().map(|metric| name(metric)).collect();
    let units: Vec<String> = table.metrics.iter().map(|metric| unit(metric)).collect();
    out.csv.write_field("time")?;
    for key in table.by.keys() {
        out.csv.write_field(key.name())?;
    }
    match layout {
        Layout::Wide => names.iter().try_for_each(|name| out.csv.write_field(name))?,
        Layout::Long => ["metric", "unit", "value"].iter().try_for_each(|name| out.csv.write_field(name))?,
    }
    out.end()?;
    let times: Vec<String> = table.times.iter().map(|time| rfc3339(*time).unwrap_or_default()).collect();
    for block in &table.blocks {
        let start = |out: &mut Out<_>, time: &str| -> Result<(), Error> {
            out.csv.write_field(time)?;
            for text in block.names() {
                out.text(text)?;
            }
            Ok(())
        };
        match layout {
            Layout::Wide => {
                for (row, time) in times.iter().enumerate().filter(|(row, _)| block.rows.contains(row)) {
                    start(&mut out, time)?;
                    for column in 0..names.len() {
                        out.number(block.value(column, row))?;
                    }
                    out.end()?;
                }
            }
            Layout::Long => {
                for (column, (name, unit)) in names.iter().zip(&units).enumerate() {
                    let rows = times.iter().enumerate().filter(|(row, _)| block.rows.contains(row));
                    for (row, time) in rows.filter(|_| block.has(column)) {
                        start(&mut out, time)?;
                        out.csv.write_field(name)?;
                        out.csv.write_field(unit)?;
                        out.number(block.value(column, row))?;
                        out.end()?;
                    }
                }
            }
        }
    }
    out.csv.flush()?;
    Ok(())
}

struct Out<W: Write> {
    csv: ::csv::Writer<W>,
}

impl<W: Write> Out<W> {
    fn text(&mut self, text: &str) -> Result<(), Error> {
        Ok(self.csv.write_field(guarded(text).as_ref())?)
    }

    /// The shortest decimal that is read back as the same number.
    fn number(&mut self, value: Option<f64>) -> Result<(), Error> {
        let mut digits = zmij::Buffer::new();
        let text = value.map_or("", |value| digits.format_finite(value));
        Ok(self.csv.write_field(text.strip_suffix(".0").unwrap_or(text))?)
    }

    fn end(&mut self) -> Result<(), Error> {
        Ok(self.csv.write_record(None::<&[u8]>)?)
    }
}

/// A spreadsheet takes a text that begins so for a formula, which may run programs. An apostrophe before it makes it a text (OWASP, CSV injection).
pub fn guarded(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests;
