//! What the server knows about its clients, for the exporter's own metrics.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The state of a server, at one moment. The names are fit for labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Open connections by what they do: `handshake`, `head`, `answering`, `idle`.
    pub connections: Vec<(&'static str, usize)>,
    /// Connections that lost their place to others, by what they did, since the start.
    pub evicted: Vec<(&'static str, u64)>,
    /// What was refused since the start: connections for which there was no `place`, requests beyond the `rate`,
    /// wrong `password`s, and requests that waited too long for a `login` or a `scrape`.
    pub rejected: Vec<(&'static str, u64)>,
    /// Requests whose password waits for its check.
    pub logins_waiting: usize,
    /// Requests that wait for others' scrapes.
    pub scrapes_waiting: usize,
    /// Bytes of answers that the kernel could not take, because clients do not read.
    pub unread_bytes: u64,
}

/// Shows the state of the server whose options hold it. Clones are the same.
#[derive(Clone, Default)]
pub struct Monitor(Arc<Mutex<Option<Weak<dyn Watched>>>>);

/// What a monitor shows.
pub(crate) trait Watched: Send + Sync {
    /// The state now.
    fn stats(&self) -> ServerStats;
}

impl Monitor {
    /// The state now; empty while no server runs.
    pub fn stats(&self) -> ServerStats {
        let server = self.0.lock().as_ref().and_then(Weak::upgrade);
        server.map(|server| server.stats()).unwrap_or_default()
    }

    pub(crate) fn watch(&self, server: Weak<dyn Watched>) {
        *self.0.lock() = Some(server);
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Monitor")
    }
}

/// Requests that were refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    pub(crate) rate: AtomicU64,
    pub(crate) password: AtomicU64,
    pub(crate) login: AtomicU64,
    pub(crate) scrape: AtomicU64,
}
