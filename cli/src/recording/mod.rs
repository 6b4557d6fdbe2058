//! Recordings of a job on a node: what `jobledger record` writes, and reports are made of without a server.
//!
//! A recording is OpenMetrics text with a time at each sample, so that `promtool tsdb create-blocks-from openmetrics` reads it. Each batch of
//! samples is added in the place of the `# EOF` at the end, with a new one: whatever ends the recorder, the file is whole, or its last line
//! is not.

mod batch;
mod file;
mod line;
mod read;

pub use batch::{Batch, Selection};
pub use file::{Recorder, file_name};
pub use line::{Line, escaped};
pub use read::{Recorded, read};
