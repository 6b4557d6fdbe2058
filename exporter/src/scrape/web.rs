//! The exporter behind the web server.

use exporter_toolkit::{About, BoxFuture, Bytes, CollectorStatus, Exporter, Scrape};

use super::{Engine, ScrapeError};

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

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Bytes, exporter_toolkit::ScrapeError>> {
        let Scrape { selection, format, deadline } = scrape;
        let exposition = self.0.scrape(selection, format, deadline);
        Box::pin(async move { exposition.await.map_err(Into::into) })
    }

    fn writes_protobuf(&self) -> bool {
        true
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
