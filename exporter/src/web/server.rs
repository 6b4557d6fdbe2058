//! Accepting connections, and ending them.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::handler::Site;
use super::{WebConfigHandle, WebOptions, connection};
use crate::scrape::Exporter;

/// How long accepting pauses when the system has no descriptor or memory left: long enough not to spin, short
/// enough that a scrape which waits meanwhile is still answered.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` ends. Then nothing more is accepted, idle connections are closed, and answers under
/// way have `drain_timeout` to get out.
///
/// The listeners come from [`super::bind`] or [`super::systemd_listeners`]. Runs on the current tokio runtime, with
/// time and I/O enabled; encoding and bcrypt go to its blocking threads, of which a handful is enough.
pub async fn serve(
    listeners: Vec<TcpListener>,
    options: WebOptions,
    config: WebConfigHandle,
    exporter: Arc<dyn Exporter>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let drain_timeout = options.drain_timeout;
    let site = Arc::new(Site::new(options, config, exporter)?);
    let (stop, stopped) = watch::channel(false);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let tls = site.config.active().tls.is_some();
        tracing::info!(address = %listener.local_addr()?, tls, "listening");
        accepting.spawn(accept(listener, Arc::clone(&site), stopped.clone()));
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

/// Ends when the server is told to stop.
pub(super) async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone, which is no reason to go on either.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Accepts on one listener until told to stop, then waits for the connections. Dropped, it takes them along.
async fn accept(listener: tokio::net::TcpListener, site: Arc<Site>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut exhausted = false;
    loop {
        let stream = tokio::select! {
            () = told(&mut stop) => break,
            Some(_) = connections.join_next() => continue,
            stream = next(&listener, &mut exhausted) => stream,
        };
        // Each listener holds one connection beyond `max_connections`; more wait in the kernel's queue.
        let place = tokio::select! {
            () = told(&mut stop) => break,
            place = Arc::clone(&site.connections).acquire_owned() => place,
        };
        let (site, stop) = (Arc::clone(&site), stop.clone());
        connections.spawn(async move {
            let _place = place;
            connection::run(stream, site, stop).await;
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn next(listener: &tokio::net::TcpListener, exhausted: &mut bool) -> TcpStream {
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
                tokio::time::sleep(PAUSE).await;
            }
            // The connection failed before it was accepted (accept(2): treat these like EAGAIN).
            Err(error) => tracing::debug!(%error, "accept failed"),
        }
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
