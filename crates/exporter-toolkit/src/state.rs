//! What all connections of a server share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::admission::Admission;
use crate::auth::Authenticator;
use crate::gzip::Gzip;
use crate::queue::{Order, Queue};
use crate::stats::{Refusals, ServerStats, Watched};
use crate::{Exporter, WebConfigHandle, WebOptions};

/// What all connections share.
pub(crate) struct ServerState {
    pub(crate) options: WebOptions,
    pub(crate) config: WebConfigHandle,
    pub(crate) exporter: Arc<dyn Exporter>,
    pub(crate) admission: Arc<Admission>,
    /// `None` for no limit.
    pub(crate) scrapes: Option<Arc<Queue>>,
    pub(crate) auth: Authenticator,
    pub(crate) refusals: Refusals,
    pub(crate) gzip: Arc<Gzip>,
}

impl ServerState {
    pub(crate) fn new(
        options: WebOptions,
        config: WebConfigHandle,
        exporter: Arc<dyn Exporter>,
    ) -> Arc<Self> {
        let most = options.max_requests;
        let state = Arc::new(ServerState {
            admission: Arc::new(Admission::new(&options)),
            // An eighth for clients that are known.
            scrapes: (most > 0).then(|| Queue::new(most, most / 8, Order::Arrival)),
            auth: Authenticator::new(config.logins()),
            refusals: Refusals::default(),
            gzip: Arc::default(),
            options,
            config,
            exporter,
        });
        let watched: Weak<dyn Watched> = Arc::downgrade(&state) as _;
        state.options.monitor.watch(watched);
        state
    }
}

impl Watched for ServerState {
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
