//! The settings of the server.

use std::net::IpAddr;
use std::time::Duration;

use crate::{Monitor, Network};

/// Limits and paths of the server. The defaults suit an exporter on a compute node.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Path of the metrics (`--web.telemetry-path`), as [`parse_telemetry_path`] accepts it.
    pub telemetry_path: String,
    /// Most scrapes at once (`--web.max-requests`); one more waits, and its client gets 503 at its deadline. 0 for no limit.
    pub max_requests: usize,
    /// Most connections at once (`--web.max-connections`); with one more, one of little use is closed. With `scrapers`, a
    /// quarter is for these.
    pub max_connections: usize,
    /// Most bytes of answers that clients leave unread; beyond, the slowest reader of the peer that has most is closed.
    pub max_unread_bytes: usize,
    /// Where the site's scrapers are (`--web.scrapers`). They have places of their own, go first, and `rate_limit` is not
    /// for them. An address of the node itself should not be among them, since all its users have that.
    pub scrapers: Vec<Network>,
    /// How long a client may take to send the head of a request, or to finish a TLS handshake.
    pub header_timeout: Duration,
    /// How long a client may take to read an answer.
    pub write_timeout: Duration,
    /// How long a connection is kept without a request: longer than the usual scrape interval.
    pub idle_timeout: Duration,
    /// The largest head of a request.
    pub max_header_bytes: usize,
    /// How long before Prometheus' scrape timeout an answer is due.
    pub timeout_offset: Duration,
    /// The scrape timeout of a client that sends none; by default that of Prometheus.
    pub default_scrape_timeout: Duration,
    /// How long answers under way may take when the server stops.
    pub drain_timeout: Duration,
    /// Shows the state of the server. Keep a clone of it.
    pub monitor: Monitor,
}

impl Default for WebOptions {
    fn default() -> Self {
        WebOptions {
            telemetry_path: "/metrics".to_owned(),
            max_requests: 40,
            max_connections: 256,
            max_unread_bytes: 64 << 20,
            scrapers: Vec::new(),
            header_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(60),
            max_header_bytes: 16 * 1024,
            timeout_offset: Duration::from_millis(500),
            default_scrape_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(5),
            monitor: Monitor::default(),
        }
    }
}

impl WebOptions {
    /// Whether one of the site's scrapers has this address.
    pub(crate) fn is_scraper(&self, address: IpAddr) -> bool {
        self.scrapers.iter().any(|network| network.contains(address))
    }
}

/// Checks a `--web.telemetry-path`: absolute, and not one of the server's own.
pub fn parse_telemetry_path(path: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    match path {
        "/-/healthy" | "/-/ready" => Err(format!("{path} is taken")),
        _ if !path.starts_with('/') => Err("it must begin with /".to_owned()),
        _ if !path.bytes().all(is_plain) => Err("only letters, digits and / - . _ ~".to_owned()),
        _ => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn telemetry_paths() {
        for path in ["/metrics", "/", "/node/metrics-1.txt"] {
            assert_eq!(parse_telemetry_path(path).as_deref(), Ok(path));
        }
        for path in ["", "metrics", "/a b", "/a?b", "/é", "/-/ready", "/-/healthy"] {
            assert!(parse_telemetry_path(path).is_err(), "{path}");
        }
    }
}
