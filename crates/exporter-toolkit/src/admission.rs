//! Places for connections: a client that holds many cannot take those of others.

mod table;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::table::Stage;
use self::table::{Admitted, Reason, Table};
use crate::WebOptions;
use crate::peer::{OwnAddresses, Peer};

/// Gives places to connections, and takes them away.
pub(crate) struct Admission {
    own: OwnAddresses,
    max_unread: u64,
    state: Mutex<State>,
    evicted: [AtomicU64; Reason::ALL.len()],
    refused: AtomicU64,
}

struct State {
    table: Table,
    /// How each connection learns that it has lost its place.
    lost: HashMap<u64, Arc<Notify>>,
    next: u64,
}

/// The place of one connection; given back when dropped.
pub(crate) struct Place {
    id: u64,
    pub(crate) client: SocketAddr,
    pub(crate) peer: Peer,
    /// Whether its client may be on this node.
    pub(crate) local: bool,
    /// Whether it is one of the site's scrapers.
    pub(crate) scraper: bool,
    /// Whether a wrong password came over this connection.
    pub(crate) failed_login: AtomicBool,
    lost: Arc<Notify>,
    admission: Arc<Admission>,
}

impl Admission {
    pub(crate) fn new(options: &WebOptions) -> Self {
        let table = Table::new(options.max_connections.max(1), !options.scrapers.is_empty());
        Admission {
            own: OwnAddresses::new(),
            max_unread: u64::try_from(options.max_unread_bytes).unwrap_or(u64::MAX),
            state: Mutex::new(State { table, lost: HashMap::new(), next: 0 }),
            evicted: Default::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// A place for a connection between these addresses, if need be that of another connection. The second value says
    /// whether all places are taken.
    pub(crate) fn admit(
        self: &Arc<Self>,
        (client, server): (SocketAddr, SocketAddr),
        scraper: bool,
        stage: Stage,
    ) -> (Option<Place>, bool) {
        let peer = self.own.peer(client.ip(), server.ip());
        let local = self.own.may_be(peer);
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        let admitted = state.table.admit(id, peer, scraper, stage);
        match admitted {
            Admitted::Refused => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return (None, true);
            }
            Admitted::Instead(victim, reason) => self.evict(&mut state, victim, reason),
            Admitted::Free => {}
        }
        let lost = Arc::new(Notify::new());
        state.lost.insert(id, Arc::clone(&lost));
        let failed_login = AtomicBool::new(false);
        let admission = Arc::clone(self);
        let place = Place { id, client, peer, local, scraper, failed_login, lost, admission };
        (Some(place), admitted != Admitted::Free)
    }

    /// Ends a connection that is of little use, for its descriptor. Returns whether there was one.
    pub(crate) fn relieve(&self) -> bool {
        let mut state = self.state.lock();
        let Some((victim, reason)) = state.table.relieve() else { return false };
        self.evict(&mut state, victim, reason);
        true
    }

    fn evict(&self, state: &mut State, victim: u64, reason: Reason) {
        if let Some(count) = self.evicted.get(reason as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(lost) = state.lost.remove(&victim) {
            lost.notify_one();
        }
    }

    /// Connections in each state.
    pub(crate) fn states(&self) -> [(&'static str, usize); 4] {
        self.state.lock().table.states()
    }

    /// Bytes that clients have not taken.
    pub(crate) fn unread(&self) -> u64 {
        self.state.lock().table.unread()
    }

    /// Connections that lost their place, by reason.
    pub(crate) fn evicted(&self) -> [(&'static str, u64); Reason::ALL.len()] {
        let mut counts = Reason::ALL.map(|reason| (reason.name(), 0));
        counts.iter_mut().zip(&self.evicted).for_each(|((_, to), count)| *to = count.load(Ordering::Relaxed));
        counts
    }

    /// Connections for which there was no place.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Place {
    /// Notes what the connection does now.
    pub(crate) fn set(&self, stage: Stage) {
        self.admission.state.lock().table.set(self.id, stage);
    }

    /// Notes that its client has a whole exposition.
    pub(crate) fn scraped(&self) {
        self.admission.state.lock().table.scraped(self.id);
    }

    /// Whether its client ever had a whole exposition.
    pub(crate) fn has_scraped(&self) -> bool {
        self.admission.state.lock().table.has_scraped(self.id)
    }

    /// Notes how many bytes of the answer the client has not taken.
    pub(crate) fn set_unread(&self, bytes: u64) {
        let mut state = self.admission.state.lock();
        if let Some(victim) = state.table.set_unread(self.id, bytes, self.admission.max_unread) {
            self.admission.evict(&mut state, victim, Reason::Unread);
        }
    }

    /// Ends when the place is lost.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.table.remove(self.id);
        state.lost.remove(&self.id);
    }
}
