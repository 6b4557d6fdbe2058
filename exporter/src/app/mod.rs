//! What the binary does, in parts that `main` puts in order.

mod check;
mod documents;
mod logging;
mod node;
mod serve;

pub use check::check;
pub use documents::document;
pub use logging::log_to_stderr;
pub use node::{Node, NodeError};
pub use serve::{once, serve};
