//! What all connections of a server share.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::auth::Authenticator;
use crate::{Exporter, WebConfigHandle, WebOptions};

/// What all connections share.
pub(crate) struct ServerState {
    pub(crate) options: WebOptions,
    pub(crate) config: WebConfigHandle,
    pub(crate) exporter: Arc<dyn Exporter>,
    pub(crate) connections: Arc<Semaphore>,
    /// `None` for no limit.
    pub(crate) scrapes: Option<Arc<Semaphore>>,
    pub(crate) auth: Authenticator,
}

impl ServerState {
    pub(crate) fn new(
        options: WebOptions,
        config: WebConfigHandle,
        exporter: Arc<dyn Exporter>,
    ) -> io::Result<Self> {
        let places = |limit: usize| Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        Ok(ServerState {
            connections: places(options.max_connections.max(1)),
            scrapes: (options.max_requests > 0).then(|| places(options.max_requests)),
            auth: Authenticator::new()?,
            options,
            config,
            exporter,
        })
    }
}
