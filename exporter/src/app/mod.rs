//! What the binary does, in parts that `main` puts in order.

mod check;
mod documents;
mod end;
mod logging;
mod node;
mod plan;
mod serve;
mod tables;

pub use check::check;
pub use documents::document;
pub use end::end;
pub use logging::log_to_stderr;
pub use node::{Node, NodeError, Opened};
pub use plan::report as plan;
pub use serve::{once, serve};
pub use tables::{catalogue, peaks};
