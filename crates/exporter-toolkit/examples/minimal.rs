//! An exporter with one metric: `cargo run -p exporter-toolkit --example minimal [web.yml]`, then
//! <http://127.0.0.1:9999>. Ctrl-C ends it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use exporter_toolkit::{
    About, BoxFuture, Exporter, Exposition, Format, Scrape, ScrapeError, WebConfigHandle, WebOptions, bind,
    serve,
};

struct Uptime(Instant);

impl Exporter for Uptime {
    fn about(&self) -> About {
        About {
            name: "Uptime exporter".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: "How long this process has been running.".into(),
            ..About::default()
        }
    }

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Exposition, ScrapeError>> {
        let end = if scrape.format == Format::OpenMetrics { "# EOF\n" } else { "" };
        let seconds = self.0.elapsed().as_secs_f64();
        let text = format!("# TYPE uptime_seconds gauge\nuptime_seconds {seconds}\n{end}");
        Box::pin(async move { Ok(text.into()) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let web_config = std::env::args_os().nth(1).map(PathBuf::from);
    let config = WebConfigHandle::load(web_config.as_deref())?;
    let listeners = bind(&["127.0.0.1:9999".parse()?])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = async {
            // An error means that Ctrl-C cannot be waited for.
            let _ = tokio::signal::ctrl_c().await;
        };
        serve(listeners, WebOptions::default(), config, Arc::new(Uptime(Instant::now())), shutdown).await
    })?;
    Ok(())
}
