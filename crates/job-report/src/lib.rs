//! What a report says of a job: its numbers, their definitions, and advice.
//!
//! Nothing here does I/O. A source of data fills a [`Job`]; [`Report::new`] derives [`Numbers`] and [`Advice`] from it; formats
//! show the result. Units are seconds, bytes, joules and their quotients; ratios are 0 to 1. What is not known is `None`.

mod advice;
mod curves;
mod evidence;
mod exact;
mod job;
pub mod metric;
mod numbers;
pub mod part;
mod report;
mod run;
pub mod show;
mod step;
mod thresholds;
mod values;

pub use advice::{Advice, Piece, Severity, gpus_never_used};
pub use curves::{Curve, Curves, Summary};
pub use evidence::{Accounted, Evidence};
pub use exact::{Reason, Subject, Unchecked};
pub use job::{Ended, Gpu, Hardware, Identity, Job, Node, Origin, State};
pub use metric::Metric;
pub use numbers::Numbers;
pub use part::Part;
pub use report::{Quality, Report};
pub use run::{CLOCKS, Run, Seen, runs};
pub use step::{Step, busiest_steps, steps};
pub use thresholds::{Texts, Thresholds, ThresholdsError};
pub use values::{Values, ratio};
