//! Serving, and the one exposition of `--once`.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use exporter_toolkit::{Format, Selection, WebConfigHandle, WebOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::Node;
use super::systemd::{feed_watchdog, notify};
use crate::scrape::{Page, ScrapeError, WebConfigState, WebExporter};

/// Names that are looked up before the only scrape of `--once`.
const NAMES_WAIT: Duration = Duration::from_secs(2);
/// The start also waits this long for the readings of GPUs that the first attribution needs.
const GPUS_WAIT: Duration = Duration::from_secs(5);

/// Makes one exposition in text 0.0.4, within `limit`. It counts as read by nobody.
pub fn once(node: &Node, limit: Duration) -> std::io::Result<Result<Page, ScrapeError>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let scrape =
        || runtime.block_on(node.engine.scrape(Selection::default(), Format::Text, Instant::now() + limit));
    if let Err(error) = scrape() {
        return Ok(Err(error));
    }
    node.users.settle(NAMES_WAIT);
    if let Some(gpus) = &node.gpus {
        gpus.settle(GPUS_WAIT);
    }
    Ok(scrape())
}

/// Serves until SIGTERM or SIGINT; reads the web configuration again on SIGHUP.
pub fn serve(
    node: Node,
    listeners: Vec<TcpListener>,
    options: WebOptions,
    web_config: WebConfigHandle,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(Duration::from_secs(5))
        .thread_name("web")
        .build()?;
    let (engine, end, state) = (node.engine.clone(), node.end.clone(), node.state.clone());
    engine.report_clients(options.monitor.clone());
    if !web_config.files().is_empty() {
        let reloads = web_config.clone();
        engine.report_reloads(Box::new(move || {
            let last = reloads.last_reload();
            let unix = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let certificate_expires = reloads.certificate_expires().map(unix);
            WebConfigState { reloaded: last.succeeded, at: unix(last.at), certificate_expires }
        }));
    }
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let reloading = web_config.clone();
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // Errors are logged where they are found; the last good configuration remains in force.
                let _ = reloading.reload().await;
            }
        });
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            notify(&[sd_notify::NotifyState::Stopping]);
        };
        notify(&[sd_notify::NotifyState::Ready]);
        if let Some(limit) = sd_notify::watchdog_enabled() {
            tokio::spawn(feed_watchdog(node.pulse, limit));
        }
        let exporter = Arc::new(WebExporter::new(node.engine, !options.scrapers.is_empty()));
        exporter_toolkit::serve(listeners, options, web_config, exporter, shutdown).await
    });
    if let Some(state) = state {
        state.save_last();
    }
    engine.stop();
    end.run();
    // A collector that hangs in the kernel must not hold up the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
