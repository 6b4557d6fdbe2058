//! A client against servers that answer as the tests say.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod answers;
mod config;
mod proxies;
mod redirects;
mod tls;
mod tokens;

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Reply, Service};
use prometheus_api::{Client, Error, Options};

/// The answer to `1`.
const ONE: &str = r#"{"status":"success","data":{"resultType":"scalar","result":[5,"1"]}}"#;

fn options(server: &Service) -> Options {
    let url = format!("http://{}", server.address);
    Options { url, timeout: Duration::from_secs(20), ..Options::default() }
}

/// A client with an HTTP configuration file.
fn client(options: Options, dir: &Scratch, config: &str) -> Client {
    let http_config_file = Some(file(dir, "http.yml", config, 0o600));
    Client::new(&Options { http_config_file, ..options }).unwrap()
}

fn file(dir: &Scratch, name: &str, text: &str, mode: u32) -> PathBuf {
    let file = dir.path().join(name);
    write(&file, text).unwrap();
    set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    file
}

async fn ask(client: &Client) -> Result<f64, Error> {
    client.query("1", 5.0).await.map(|samples| samples[0].value)
}

fn says(status: &str, head: &str, body: &str) -> impl Fn(&str) -> Reply + Send + 'static {
    let reply = Reply::new(status, head, body);
    move |_| reply.clone()
}
