//! What a scrape is, seen from outside: who asks for what until when, and what comes back.
//!
//! The web layer knows only the types here; how an answer is collected is [`Engine`]'s business.

mod engine;
pub mod health;

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

pub use engine::{Engine, Reloads};
pub use health::families as health_families;
use hyper::body::Bytes;

use crate::web::Format;

/// Which collectors a client wants (`collect[]`, `exclude[]`), by name; names are checked against
/// [`Exporter::collectors`] before a request is made. Ordered, so that equal selections share one collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Only these collectors, or every enabled one when empty.
    pub collect: std::collections::BTreeSet<&'static str>,
    /// Not these.
    pub exclude: std::collections::BTreeSet<&'static str>,
}

impl Selection {
    /// Whether a collector of this name is asked for.
    pub fn wants(&self, name: &str) -> bool {
        (self.collect.is_empty() || self.collect.contains(name)) && !self.exclude.contains(name)
    }
}

/// Why there is no exposition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// Nothing at all was collected before the deadline.
    #[error("nothing could be collected before the deadline")]
    TimedOut,
    /// What was collected could not be written as text: a bug.
    #[error("the samples could not be encoded: a bug in the exporter, please report it")]
    Encoding,
    /// The exporter is stopping.
    #[error("the exporter is stopping")]
    Stopping,
}

/// How a collector stands now, for the landing page and `/-/ready`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorStatus {
    /// Name, as in `--collector.<name>`, `collect[]` and the `collector` label.
    pub name: &'static str,
    /// What it measures, one line.
    pub summary: &'static str,
    /// Whether flags turned it on.
    pub enabled: bool,
    /// `None` before its first run; `Err` says why it yields nothing ("denied: ...", "unsupported: ...").
    pub state: Option<Result<(), String>>,
}

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the web layer asks of the rest of the exporter. No method blocks.
pub trait Exporter: Send + Sync + 'static {
    /// Every collector this binary has, enabled or not, in the order of the registry.
    fn collectors(&self) -> Vec<CollectorStatus>;

    /// Collects (or joins a collection of the same selection under way) and answers in `format`, by `deadline`, with all
    /// that is complete by then; what is late is absent and counted.
    fn scrape(
        &self,
        selection: Selection,
        format: Format,
        deadline: Instant,
    ) -> BoxFuture<Result<Bytes, ScrapeError>>;

    /// `Err` with a reason while the exporter cannot answer a scrape yet.
    fn ready(&self) -> Result<(), String>;

    /// How many jobs are running on the node, for the landing page.
    fn running_jobs(&self) -> usize;
}
