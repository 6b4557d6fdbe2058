//! Collecting, and its answer to the web server.

mod engine;
pub mod health;
mod text;
mod web;

pub use engine::{Engine, Reloads};
pub use health::families as health_families;
pub use text::openmetrics_to_text;
pub use web::WebExporter;

/// One complete exposition; requests that come while it is collected share it.
#[derive(Debug, Default)]
pub struct Exposition {
    /// OpenMetrics 1.0 text, with its `# EOF`.
    pub openmetrics: String,
}

/// Why there is no exposition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// Nothing at all was collected before the deadline.
    #[error("nothing could be collected before the deadline")]
    TimedOut,
    /// The exporter is stopping.
    #[error("the exporter is stopping")]
    Stopping,
}
