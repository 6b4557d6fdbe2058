//! Tables as Parquet: a row group for each node, ZSTD, and in the footer what the job is (`jobledger.*`).

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{ColumnPath, Type, TypePtr};
use job_report::Job;

use crate::Error;
use crate::table::{Block, Layout, Table, milliseconds, name, unit};

/// The version of what is in the footer and of the columns' names.
const SCHEMA: &str = "1";

/// Writes a table of a job.
pub fn write(job: &Job, table: &Table<'_>, layout: Layout, to: impl Write + Send) -> Result<(), Error> {
    let names: Vec<String> = table.metrics.iter().map(|metric| name(metric)).collect();
    let columns = Columns { table, names: &names, layout };
    let mut file = SerializedFileWriter::new(to, columns.schema()?, columns.properties(job)?)?;
    for blocks in table.blocks.chunk_by(|one, next| one.node() == next.node()) {
        let mut group = file.next_row_group()?;
        columns.write(blocks, &mut group)?;
        group.close()?;
    }
    file.close()?;
    Ok(())
}

struct Columns<'a> {
    table: &'a Table<'a>,
    names: &'a [String],
    layout: Layout,
}

impl Columns<'_> {
    /// The columns that have numbers.
    fn values(&self) -> Vec<&str> {
        match self.layout {
            Layout::Wide => self.names.iter().map(String::as_str).collect(),
            Layout::Long => vec!["value"],
        }
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
        let mut fields = vec![field("time", Physical::INT64, Repetition::REQUIRED, Some(time))?];
        let mut texts: Vec<&str> = self.table.by.keys().iter().map(|key| key.name()).collect();
        if self.layout == Layout::Long {
            texts.extend(["metric", "unit"]);
        }
        for text in texts {
            fields.push(field(text, Physical::BYTE_ARRAY, Repetition::REQUIRED, Some(LogicalType::String))?);
        }
        for value in self.values() {
            fields.push(field(value, Physical::DOUBLE, Repetition::OPTIONAL, None)?);
        }
        Type::group_type_builder("job").with_fields(fields).build().map(Arc::new)
    }

    fn properties(&self, job: &Job) -> Result<WriterPropertiesPtr, Error> {
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("jobledger ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_column_encoding(ColumnPath::from("time"), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(ColumnPath::from("time"), false)
            .set_key_value_metadata(Some(self.footer(job)?));
        for value in self.values() {
            // The bytes of like numbers beside each other compress better.
            properties = properties
                .set_column_encoding(ColumnPath::from(value), Encoding::BYTE_STREAM_SPLIT)
                .set_column_dictionary_enabled(ColumnPath::from(value), false);
        }
        Ok(Arc::new(properties.build()))
    }

    /// What is not known is left out.
    fn footer(&self, job: &Job) -> Result<Vec<KeyValue>, Error> {
        let of_columns = |of: &dyn Fn(usize) -> Option<String>| {
            let each: BTreeMap<_, _> =
                (0..self.names.len()).filter_map(|at| Some((self.names.get(at)?, of(at)?))).collect();
            serde_json::to_string(&each)
        };
        let metric = |at: usize| self.table.metrics.get(at);
        let identity = &job.identity;
        let curves = job.curves.as_ref();
        let texts = [
            ("schema", SCHEMA.to_owned()),
            ("layout", self.layout.word().to_owned()),
            ("by", self.table.by.word().to_owned()),
            ("job_id", job.id.to_string()),
            ("run", job.run.to_string()),
            ("cluster", job.cluster.clone().unwrap_or_default()),
            ("user", identity.user.clone()),
            ("uid", identity.uid.clone()),
            ("account", identity.account.clone()),
            ("partition", identity.partition.clone()),
            ("qos", identity.qos.clone()),
            ("name", identity.name.clone()),
            (
                "start_milliseconds",
                curves.map_or_else(String::new, |curves| milliseconds(curves.start).to_string()),
            ),
            ("step_seconds", curves.map_or_else(String::new, |curves| curves.step.to_string())),
            ("units", of_columns(&|at| metric(at).map(|metric| unit(metric)))?),
            ("descriptions", of_columns(&|at| metric(at).map(|metric| metric.help.to_owned()))?),
        ];
        let known = texts.into_iter().filter(|(_, text)| !text.is_empty());
        Ok(known.map(|(key, text)| KeyValue::new(format!("jobledger.{key}"), text)).collect())
    }

    fn write<W: Write + Send>(
        &self,
        blocks: &[Block<'_>],
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let times = &self.table.times;
        // What a repetition of all moments in the file is of: a block, or a metric of one.
        let parts: Vec<(&Block<'_>, usize)> = match self.layout {
            Layout::Wide => blocks.iter().map(|block| (block, 0)).collect(),
            Layout::Long => blocks
                .iter()
                .flat_map(|block| (0..self.names.len()).map(move |column| (block, column)))
                .filter(|(block, column)| block.has(*column))
                .collect(),
        };
        let of_block = |block: &Block<'_>| times.get(block.rows.clone()).unwrap_or_default().to_vec();
        column::<Int64Type, W>(group, parts.iter().map(|(block, _)| (of_block(block), None)))?;
        let mut texts = |of: &dyn Fn(&Block<'_>, usize) -> String| {
            column::<ByteArrayType, W>(
                group,
                parts.iter().map(|(block, column)| {
                    (vec![ByteArray::from(of(block, *column).into_bytes()); block.rows.len()], None)
                }),
            )
        };
        for key in 0..self.table.by.keys().len() {
            texts(&|block, _| block.names().get(key).copied().unwrap_or_default().to_owned())?;
        }
        let numbers = |group: &mut _, of: &dyn Fn(usize) -> usize| {
            column::<DoubleType, W>(
                group,
                parts.iter().map(|(block, part)| {
                    let cells: Vec<_> = block.rows.clone().map(|row| block.value(of(*part), row)).collect();
                    let known = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
                    (cells.into_iter().flatten().collect(), Some(known))
                }),
            )
        };
        match self.layout {
            Layout::Wide => (0..self.names.len()).try_for_each(|at| numbers(group, &|_| at)),
            Layout::Long => {
                texts(&|_, column| self.names.get(column).cloned().unwrap_or_default())?;
                texts(&|_, column| {
                    self.table.metrics.get(column).map_or_else(String::new, |metric| unit(metric))
                })?;
                numbers(group, &|column| column)
            }
        }
    }
}

fn field(
    name: &str,
    physical: Physical,
    repetition: Repetition,
    logical: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
        .map(Arc::new)
}

/// Writes the group's next column, part by part: values, and of a column with gaps which of its rows have one.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    parts: impl Iterator<Item = (Vec<T::T>, Option<Vec<i16>>)>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("more columns than in the schema".to_owned()))?;
    for (values, known) in parts {
        column.typed::<T>().write_batch(&values, known.as_deref(), None)?;
    }
    column.close()
}

#[cfg(test)]
mod tests;
