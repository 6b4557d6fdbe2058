//! What all connections of a server share.

use std::sync::Arc;

use crate::admission::Admission;
use crate::auth::Authenticator;
use crate::queue::{Order, Queue};
use crate::stats::Refusals;
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
            options,
            config,
            exporter,
        });
        state.options.monitor.watch(&state);
        state
    }
}
