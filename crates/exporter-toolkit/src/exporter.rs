//! What the server asks of the exporter behind it.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Instant;

use crate::payload::OnDelivery;
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
    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Exposition, ScrapeError>>;

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

/// The answer to a scrape.
pub struct Exposition {
    /// In the format that the client asked for.
    pub body: Bytes,
    pub(crate) on_delivery: Option<OnDelivery>,
}

impl Exposition {
    /// Has this called when the kernel has taken the last byte of the answer; over TLS, when the TLS layer has. It is not
    /// called if the client leaves before, or asked for the head only. It must not block.
    #[must_use]
    pub fn on_delivery(self, call: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { on_delivery: Some(Box::new(call)), ..self }
    }
}

impl<B: Into<Bytes>> From<B> for Exposition {
    fn from(body: B) -> Self {
        Self { body: body.into(), on_delivery: None }
    }
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
    /// Who asks.
    pub client: Client,
}

/// Who asks for a scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it may be on this node, where any user can be a client: it comes from an address that this node has, or it
    /// cannot be found out which those are (net.ipv4.ip_nonlocal_bind).
    pub local: bool,
    /// The user that it logged in as, where the web configuration has users.
    pub user: Option<String>,
    /// Whether it sent `X-Prometheus-Scrape-Timeout-Seconds`, as Prometheus does. Any client can.
    pub prometheus: bool,
    /// Whether its address is among [`WebOptions::scrapers`](crate::WebOptions::scrapers).
    pub scraper: bool,
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
