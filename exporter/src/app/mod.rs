//! What the binary does, in parts that `main` puts in order.

mod check;
mod confine;
mod documents;
mod end;
mod failure;
mod logging;
mod node;
mod opened;
mod output;
mod plan;
mod results;
mod serve;
mod state;
mod systemd;
mod tables;
mod validate;

pub use check::check;
pub use confine::{drop_privileges, hold_files, user_to_become};
pub use documents::document;
pub use end::end;
pub use failure::{Failure, refuse};
pub use logging::log_to_stderr;
pub use node::{Node, NodeError};
pub use opened::{Opened, energy_meters, perf_options};
pub use output::{Output, print};
pub use plan::report as plan;
pub use serve::{once, serve};
pub use state::{Keeper, KeptState, LAYOUT};
pub use tables::{catalogue, peaks};
pub use validate::run as validate;
