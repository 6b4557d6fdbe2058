//! The exporter behind the web server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use exporter_toolkit::{About, BoxFuture, CollectorStatus, Exporter, Exposition, Scrape};
use parking_lot::Mutex;

use super::reader::{Role, role};
use super::{Engine, ScrapeError};
use crate::state_log::StateLog;

/// Answers the web server's scrapes with an [`Engine`]'s expositions.
pub struct WebExporter {
    engine: Engine,
    /// Whether the site has named its scrapers.
    has_scrapers: bool,
    /// Whether a reader ever came.
    has_readers: AtomicBool,
    /// Which warning about clients that are no readers was written.
    log: Mutex<StateLog<(), Option<&'static str>>>,
}

const LOCAL: &str = "scrapes come from this node only, as those of any user on it could: they do not count as a reader's, and \
    ended jobs are exported for --jobs.retention-max; if Prometheus or its agent runs here, set --web.scrapers";
const UNLISTED: &str = "a Prometheus scrapes that is not in --web.scrapers: it does not count as a reader, and ended jobs are \
    exported for --jobs.retention-max";

impl WebExporter {
    /// An exporter for the web. `has_scrapers` is whether the site has set `--web.scrapers`.
    pub fn new(engine: Engine, has_scrapers: bool) -> Self {
        Self { engine, has_scrapers, has_readers: AtomicBool::new(false), log: Mutex::default() }
    }

    /// Logs a Prometheus that does not count as a reader, unless one came that does.
    fn note(&self, role: &Role, now: Instant) {
        let warning = match role {
            Role::Reader(_) => return self.has_readers.store(true, Ordering::Relaxed),
            Role::Local => LOCAL,
            Role::Unlisted => UNLISTED,
            Role::Other => return,
        };
        if !self.has_readers.load(Ordering::Relaxed)
            && self.log.lock().line((), None, Some(warning), now).is_some()
        {
            tracing::warn!("{warning}");
        }
    }
}

impl Exporter for WebExporter {
    fn about(&self) -> About {
        About {
            name: "Jobledger exporter".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "What each SLURM job uses on this node.".to_owned(),
            links: Vec::new(),
        }
    }

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Exposition, exporter_toolkit::ScrapeError>> {
        let Scrape { selection, format, deadline, client } = scrape;
        let role = role(&client, self.has_scrapers);
        self.note(&role, Instant::now());
        let (engine, page) = (self.engine.clone(), self.engine.scrape(selection, format, deadline));
        Box::pin(async move {
            let page = page.await?;
            let exposition = Exposition::from(page.body);
            Ok(match role {
                Role::Reader(reader) if page.is_whole => {
                    exposition.on_delivery(move || engine.delivered(reader, &page.ended))
                }
                _ => exposition,
            })
        })
    }

    fn writes_protobuf(&self) -> bool {
        true
    }

    fn collectors(&self) -> Vec<CollectorStatus> {
        self.engine.collectors()
    }

    fn ready(&self) -> Result<(), String> {
        self.engine.ready()
    }

    fn summary(&self) -> String {
        match self.engine.running_jobs() {
            1 => "1 job is running.".to_owned(),
            jobs => format!("{jobs} jobs are running."),
        }
    }
}

impl From<ScrapeError> for exporter_toolkit::ScrapeError {
    fn from(error: ScrapeError) -> Self {
        let reason = error.to_string();
        match error {
            ScrapeError::TimedOut | ScrapeError::Stopping => Self::Unavailable(reason),
            ScrapeError::Encoding => Self::Failed(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_defect_of_the_exporter_is_a_failure() {
        use exporter_toolkit::ScrapeError as Answer;
        for (error, wanted) in [
            (ScrapeError::TimedOut, Answer::Unavailable as fn(String) -> Answer),
            (ScrapeError::Stopping, Answer::Unavailable),
            (ScrapeError::Encoding, Answer::Failed),
        ] {
            assert_eq!(Answer::from(error.clone()), wanted(error.to_string()));
        }
    }
}
