//! The library that writes HDF5: hdf5-pure, which no other file here knows.

use std::collections::BTreeMap;
use std::io::Write;

use hdf5_pure::{
    AttrValue, CharacterSet, CompoundTypeBuilder, DatasetBuilder, Datatype, FileBuilder, GroupBuilder,
    MaxExtent, StringPadding, make_f64_type, make_u64_type,
};

use super::Error;
use super::writer::{Attributes, Cells, Value, Writer};

/// zlib's level; higher ones take longer and save little.
const LEVEL: u32 = 4;
/// Values in a chunk of a row.
const VALUES: usize = 4096;
/// Records in a chunk of a table.
const RECORDS: usize = 512;
/// libhdf5 does not read types of longer records as hdf5-pure 0.47 writes them.
const LONGEST_RECORD: usize = 65_535;

/// A file in memory: the library lays out all of it before it writes the first byte.
#[derive(Default)]
pub(super) struct Library {
    file: FileBuilder,
    groups: BTreeMap<String, GroupBuilder>,
}

impl Writer for Library {
    fn attribute(&mut self, group: &str, name: &str, value: Value) {
        if group.is_empty() {
            self.file.set_attr(name, stored(value));
        } else {
            self.group(group).set_attr(name, stored(value));
        }
    }

    fn texts(&mut self, path: &str, texts: &[String], attributes: Attributes) {
        let texts: Vec<String> = texts.iter().map(|text| clean(text)).collect();
        let dataset = self.dataset(path, attributes);
        dataset.with_vlen_strings(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn vector(&mut self, path: &str, values: &[f64], attributes: Attributes) {
        self.dataset(path, attributes).with_f64_data(values);
    }

    fn matrix(&mut self, path: &str, rows: Vec<Vec<f64>>, attributes: Attributes) {
        let (height, width) = (rows.len(), rows.first().map_or(0, Vec::len));
        let mut bytes = Vec::with_capacity(height * width * size_of::<f64>());
        // Each row goes as soon as it is copied.
        for row in rows {
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
        }
        self.dataset(path, attributes)
            .with_raw_data(make_f64_type(), bytes, count(height * width))
            .with_shape(&[count(height), count(width)])
            .with_chunks(&[1, count(width.min(VALUES))])
            .with_shuffle()
            .with_deflate(LEVEL);
    }

    fn table(
        &mut self,
        path: &str,
        columns: &[(String, Cells)],
        attributes: Attributes,
    ) -> Result<(), Error> {
        let mut members = CompoundTypeBuilder::new();
        let mut packed = Vec::new();
        for (name, cells) in columns {
            let column = Packed::new(cells)?;
            members = members.field(name, column.datatype.clone());
            packed.push(column);
        }
        let width = packed.iter().map(|column| column.width).sum::<usize>();
        if width > LONGEST_RECORD {
            return Err(Error::Format(format!("a record of {path} would take {width} bytes")));
        }
        let records = columns.first().map_or(0, |(_, cells)| cells.len());
        let datatype = members.build().map_err(|error| Error::Format(error.to_string()))?;
        let mut bytes = Vec::with_capacity(records * width);
        for record in 0..records {
            for column in &packed {
                column.append(record, &mut bytes);
            }
        }
        let dataset = self.dataset(path, attributes);
        if records == 0 {
            dataset.with_dtype(datatype).with_shape(&[0]);
        } else {
            dataset
                .with_compound_data(datatype, bytes, count(records))
                .with_maxshape(&[MaxExtent::Unlimited])
                .with_chunks(&[count(records.min(RECORDS))])
                .with_shuffle()
                .with_deflate(LEVEL);
        }
        Ok(())
    }

    fn finish(mut self, to: impl Write) -> Result<(), Error> {
        // A group sorts before all that is below it, so the last one is whole.
        while let Some((path, group)) = self.groups.pop_last() {
            match path.rsplit_once('/') {
                Some((parent, _)) => self.group(parent).add_group(group.finish()),
                None => self.file.add_group(group.finish()),
            }
        }
        self.file.finish_to(to).map_err(|error| match error {
            hdf5_pure::Error::Io(error) => Error::Io(error),
            other => Error::Format(other.to_string()),
        })
    }
}

impl Library {
    fn group(&mut self, path: &str) -> &mut GroupBuilder {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        self.groups.entry(path.to_owned()).or_insert_with(|| self.file.create_group(name))
    }

    fn dataset(&mut self, path: &str, attributes: Attributes) -> &mut DatasetBuilder {
        let dataset = match path.rsplit_once('/') {
            Some((group, name)) => self.group(group).create_dataset(name),
            None => self.file.create_dataset(path),
        };
        for (name, value) in attributes {
            dataset.set_attr(name, stored(value));
        }
        dataset
    }
}

/// A column that knows its width.
struct Packed<'a> {
    cells: &'a Cells,
    datatype: Datatype,
    width: usize,
}

impl<'a> Packed<'a> {
    fn new(cells: &'a Cells) -> Result<Self, Error> {
        let (datatype, width) = match cells {
            Cells::Unsigned(_) => (make_u64_type(), size_of::<u64>()),
            Cells::Numbers(_) => (make_f64_type(), size_of::<f64>()),
            Cells::Texts(texts) => {
                // A record has no room for strings of any length: all are as long as the longest.
                let width = texts.iter().map(|text| clean(text).len()).max().unwrap_or(0).max(1);
                let size = u32::try_from(width).map_err(|error| Error::Format(error.to_string()))?;
                let (padding, charset) = (StringPadding::NullPad, CharacterSet::Utf8);
                (Datatype::String { size, padding, charset }, width)
            }
        };
        Ok(Self { cells, datatype, width })
    }

    fn append(&self, record: usize, to: &mut Vec<u8>) {
        let end = to.len() + self.width;
        match self.cells {
            Cells::Unsigned(cells) => to.extend(cells.get(record).copied().unwrap_or(0).to_le_bytes()),
            Cells::Numbers(cells) => to.extend(cells.get(record).copied().unwrap_or(f64::NAN).to_le_bytes()),
            Cells::Texts(cells) => {
                to.extend(cells.get(record).map(|text| clean(text)).unwrap_or_default().bytes());
            }
        }
        to.resize(end, 0);
    }
}

fn stored(value: Value) -> AttrValue {
    match value {
        Value::Text(text) => AttrValue::VarLenString(clean(&text)),
        Value::Word(text) => AttrValue::String(clean(&text)),
        Value::Texts(texts) => AttrValue::VarLenStringArray(texts.iter().map(|text| clean(text)).collect()),
        Value::FixedText(text) if text.is_ascii() => AttrValue::AsciiStringArray(vec![text]),
        Value::FixedText(text) => AttrValue::StringArray(vec![text]),
        Value::Number(number) => AttrValue::F64(number),
        Value::Unsigned(number) => AttrValue::U64(number),
        Value::Int(number) => AttrValue::I32Array(vec![number]),
    }
}

/// HDF5's strings end at the first NUL.
fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn count(things: usize) -> u64 {
    u64::try_from(things).unwrap_or(u64::MAX)
}
