//! Accepting connections, and ending them.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::Stage;
use crate::connection::{self, stopped};
use crate::state::ServerState;
use crate::{Exporter, WebConfigHandle, WebOptions};

/// How long accepting pauses when the system has no descriptor or memory left. A scrape that waits meanwhile is still
/// answered in time.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` ends. Then the server accepts no more connections, closes those that are idle, and waits
/// up to `drain_timeout` for answers under way.
///
/// The listeners come from [`bind`](crate::bind) or [`systemd_listeners`](crate::systemd_listeners). The current tokio
/// runtime needs time and I/O enabled. Compression and bcrypt run on its blocking threads; four are enough.
pub async fn serve(
    listeners: Vec<TcpListener>,
    options: WebOptions,
    config: WebConfigHandle,
    exporter: Arc<dyn Exporter>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let drain_timeout = options.drain_timeout;
    let server = ServerState::new(options, config, exporter);
    let (stop, stopped) = watch::channel(false);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let tls = server.config.active().tls.is_some();
        tracing::info!(address = %listener.local_addr()?, tls, "listening");
        accepting.spawn(accept(listener, Arc::clone(&server), stopped.clone()));
    }
    shutdown.await;
    stop.send_replace(true);
    let drained =
        tokio::time::timeout(drain_timeout, async { while accepting.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        tracing::warn!(
            seconds = drain_timeout.as_secs_f64(),
            "answers were still under way and have been cut off"
        );
    }
    Ok(())
}

/// Accepts on one listener until the server stops, then waits for the connections. Dropping it drops them.
async fn accept(
    listener: tokio::net::TcpListener,
    server: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut exhausted = false;
    loop {
        let stream = tokio::select! {
            () = stopped(&mut stop) => break,
            Some(_) = connections.join_next() => continue,
            stream = next(&listener, &server, &mut exhausted) => stream,
        };
        // Without an address the client is gone.
        let (Ok(client), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { continue };
        let first = if server.config.active().tls.is_some() { Stage::Handshake } else { Stage::Head };
        let scraper = server.options.is_scraper(client.ip());
        let (place, full) = server.admission.admit((client, local), scraper, first);
        if let Some(place) = place {
            let (server, stop) = (Arc::clone(&server), stop.clone());
            connections.spawn(connection::run(stream, Arc::new(place), server, stop));
        }
        if full {
            // A request that has come with the connection is read before the next connection could push it out, and who has
            // lost its place gives its descriptor back.
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn next(listener: &tokio::net::TcpListener, server: &ServerState, exhausted: &mut bool) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if std::mem::take(exhausted) {
                    tracing::info!("accepting connections again");
                }
                return stream;
            }
            Err(error) if is_exhaustion(&error) => {
                if !std::mem::replace(exhausted, true) {
                    tracing::error!(%error, "cannot accept connections, trying again until it passes");
                }
                if server.admission.relieve() {
                    // That connection closes now.
                    tokio::task::yield_now().await;
                } else {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            // The connection failed before it was accepted (accept(2): treat these like EAGAIN).
            Err(error) => tracing::debug!(%error, "accept failed"),
        }
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}
