//! What the layouts need of a library that writes HDF5. It is small so that the library can be replaced.

use std::io::Write;

use super::Error;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A string of any length. It takes 4 KiB at least.
    Text(String),
    /// A short string that is where the attribute is.
    Word(String),
    /// Strings of any length.
    Texts(Vec<String>),
    /// An array of one string of fixed length, as SLURM's `put_string_attribute` writes it (hdf5_api.c).
    FixedText(String),
    Number(f64),
    Unsigned(u64),
    /// An array of one 32-bit integer, as SLURM's `put_int_attribute` writes it (hdf5_api.c).
    Int(i32),
}

/// Attributes of a dataset.
pub(super) type Attributes = Vec<(&'static str, Value)>;

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cells {
    Unsigned(Vec<u64>),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Unsigned(cells) => cells.len(),
            Self::Numbers(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }
}

/// A file that grows. Paths have no `/` at their begin; groups on the way are made, and an empty path is the root.
pub(super) trait Writer {
    /// Adds an attribute to a group.
    fn attribute(&mut self, group: &str, name: &str, value: Value);
    /// Adds a dataset of strings of any length.
    fn texts(&mut self, path: &str, texts: &[String], attributes: Attributes);
    /// Adds a dataset with one dimension.
    fn vector(&mut self, path: &str, values: &[f64], attributes: Attributes);
    /// Adds a dataset with two dimensions. Rows have the same length, and there is at least one.
    fn matrix(&mut self, path: &str, rows: Vec<Vec<f64>>, attributes: Attributes);
    /// Adds a dataset of records, column by column. Columns have the same length.
    fn table(&mut self, path: &str, columns: &[(String, Cells)], attributes: Attributes)
    -> Result<(), Error>;
    /// Writes all of it.
    fn finish(self, to: impl Write) -> Result<(), Error>;
}
