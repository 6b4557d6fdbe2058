//! What the server knows about its clients, for the exporter's own metrics.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::state::ServerState;

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
pub struct Monitor(Arc<Mutex<Weak<ServerState>>>);

impl Monitor {
    /// The state now; empty while no server runs.
    pub fn stats(&self) -> ServerStats {
        let server = self.0.lock().upgrade();
        server.map(|server| server.stats()).unwrap_or_default()
    }

    pub(crate) fn watch(&self, server: &Arc<ServerState>) {
        *self.0.lock() = Arc::downgrade(server);
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

impl ServerState {
    fn stats(&self) -> ServerStats {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Refusals { rate, password, login, scrape } = &self.refusals;
        ServerStats {
            connections: self.admission.states().to_vec(),
            evicted: self.admission.evicted().to_vec(),
            rejected: vec![
                ("place", self.admission.refused()),
                ("rate", of(rate)),
                ("password", of(password)),
                ("login", of(login)),
                ("scrape", of(scrape)),
            ],
            logins_waiting: self.auth.waiting(),
            scrapes_waiting: self.scrapes.as_ref().map_or(0, |scrapes| scrapes.waiting()),
            unread_bytes: self.admission.unread(),
        }
    }
}
