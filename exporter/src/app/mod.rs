//! What the binary does, in parts that `main` puts in order.

mod check;
mod documents;
mod end;
mod failure;
mod logging;
mod node;
mod opened;
mod output;
mod plan;
mod serve;
mod state;
mod systemd;
mod tables;

pub use check::check;
pub use documents::document;
pub use end::end;
pub use failure::{Failure, refuse};
pub use logging::log_to_stderr;
pub use node::{Node, NodeError};
pub use opened::{Opened, drop_privileges, energy_meters, perf_options};
pub use output::{Output, print};
pub use plan::report as plan;
pub use serve::{once, serve};
pub use state::{Keeper, KeptState, LAYOUT};
pub use tables::{catalogue, peaks};
