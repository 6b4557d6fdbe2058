//! What the server asks of the exporter behind it.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use crate::{Bytes, Format};

/// A future without borrowed data.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The exporter behind the server. No method blocks.
pub trait Exporter: Send + Sync + 'static {
    /// Name, version and links, for the landing page.
    fn about(&self) -> About;

    /// Collects and answers by the deadline, in the format that the client asked for.
    ///
    /// The future is dropped when its client leaves.
    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Bytes, ScrapeError>>;

    /// Whether it writes [`Format::Protobuf`]. If not, no scrape asks for it.
    fn writes_protobuf(&self) -> bool {
        false
    }

    /// Every collector, switched on or off, in the order of the landing page. A client selects among those that are
    /// switched on (`collect[]`, `exclude[]`).
    fn collectors(&self) -> Vec<CollectorStatus> {
        Vec::new()
    }

    /// `Err` with a reason while the exporter cannot answer a scrape yet.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// One line for the landing page about the present state, such as the number of targets.
    fn summary(&self) -> String {
        String::new()
    }

    /// A page of the exporter's own, at a path that the server does not use itself.
    fn page(&self, _path: &str) -> Option<Page> {
        None
    }
}

/// How an exporter presents itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Title of the landing page, and realm of basic authentication.
    pub name: String,
    /// Version of the exporter.
    pub version: String,
    /// What it measures, in one sentence.
    pub description: String,
    /// Links on the landing page, after those of the server's own pages.
    pub links: Vec<Link>,
}

/// A link on the landing page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// URL or path.
    pub address: String,
    /// Text of the link.
    pub text: String,
}

/// A page of the exporter's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Content.
    pub body: Bytes,
}

/// What one scrape asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scrape {
    /// Collectors that the client wants.
    pub selection: Selection,
    /// Format of the answer.
    pub format: Format,
    /// When the answer is due. Late collectors are left out.
    pub deadline: Instant,
}

/// Collectors that a client wants, by name. The server checks the names against [`Exporter::collectors`].
///
/// The sets are ordered, so that equal selections are equal keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Only these collectors; all that are switched on when empty.
    pub collect: BTreeSet<&'static str>,
    /// Not these.
    pub exclude: BTreeSet<&'static str>,
}

impl Selection {
    /// Whether a collector of this name is wanted.
    pub fn wants(&self, name: &str) -> bool {
        (self.collect.is_empty() || self.collect.contains(name)) && !self.exclude.contains(name)
    }
}

/// Why a scrape has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// Not now: the client gets 503 with this reason.
    #[error("{0}")]
    Unavailable(String),
    /// A defect of the exporter: the client gets 500 with this reason.
    #[error("{0}")]
    Failed(String),
}

/// A collector, for the landing page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorStatus {
    /// Name, as in `collect[]`.
    pub name: &'static str,
    /// What it measures, in one line.
    pub summary: &'static str,
    /// Whether it is switched on.
    pub enabled: bool,
    /// `None` before its first run; `Err` with a reason when the latest run failed.
    pub state: Option<Result<(), String>>,
}
