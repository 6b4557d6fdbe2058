//! Collecting, and its answer to the web server.

mod clients;
mod desk;
mod encode;
mod engine;
pub mod health;
mod reader;
mod schedule;
mod snapshot;
mod web;

pub use engine::{Engine, Page, Reloads};
pub use health::{WebConfigState, families as health_families};
pub use schedule::Limits;
pub use web::WebExporter;

/// Why there is no exposition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// Nothing at all was collected before the deadline.
    #[error("nothing could be collected before the deadline")]
    TimedOut,
    /// The samples could not be written as text: a bug.
    #[error("the samples could not be encoded: a bug in the exporter, please report it")]
    Encoding,
    /// The exporter is stopping.
    #[error("the exporter is stopping")]
    Stopping,
}
