//! The exporter behind the web server.

use std::sync::Arc;

use exporter_toolkit::{About, BoxFuture, Bytes, CollectorStatus, Exporter, Format, Scrape, ScrapeError};

use super::{Engine, Exposition, openmetrics_to_text};

/// Answers the web server's scrapes with an [`Engine`]'s expositions.
pub struct WebExporter(pub Engine);

impl Exporter for WebExporter {
    fn about(&self) -> About {
        About {
            name: "Jobledger exporter".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "What each SLURM job uses on this node.".to_owned(),
            links: Vec::new(),
        }
    }

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Bytes, ScrapeError>> {
        let exposition = self.0.scrape(scrape.selection, scrape.deadline);
        Box::pin(async move {
            let exposition = exposition.await.map_err(|error| ScrapeError::Unavailable(error.to_string()))?;
            match scrape.format {
                // Clients that share a collection share its bytes.
                Format::OpenMetrics => Ok(Bytes::from_owner(Shared(exposition))),
                Format::Text => as_text(exposition).await,
            }
        })
    }

    fn collectors(&self) -> Vec<CollectorStatus> {
        self.0.collectors()
    }

    fn ready(&self) -> Result<(), String> {
        self.0.ready()
    }

    fn summary(&self) -> String {
        match self.0.running_jobs() {
            1 => "1 job is running.".to_owned(),
            jobs => format!("{jobs} jobs are running."),
        }
    }
}

struct Shared(Arc<Exposition>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.openmetrics.as_bytes()
    }
}

/// On a blocking thread: a large exposition takes milliseconds, and one thread serves all connections.
async fn as_text(exposition: Arc<Exposition>) -> Result<Bytes, ScrapeError> {
    let rewriting = tokio::task::spawn_blocking(move || openmetrics_to_text(&exposition.openmetrics));
    let failed = |_| ScrapeError::Failed("the answer could not be encoded".to_owned());
    rewriting.await.map(Bytes::from).map_err(failed)
}
