//! How a server is asked.

use std::path::PathBuf;
use std::time::Duration;

/// How a server is asked.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its URL, with the path before `/api/v1` if there is one.
    pub url: String,
    /// Credentials and more, in the format of promtool's `--http.config.file`.
    pub http_config_file: Option<PathBuf>,
    /// `http_proxy` and others of the environment, which `proxy_from_environment` refers to.
    pub proxies: ProxyEnvironment,
    /// For a request and its whole answer.
    pub timeout: Duration,
    /// How many requests are under way at once.
    pub at_once: usize,
    /// Points for each series of one request. A server has a limit: Prometheus 11,000.
    pub max_points: usize,
    /// Series of one answer.
    pub max_series: usize,
    /// Bytes of one answer, decompressed.
    pub max_bytes: u64,
}

/// Variables of the environment. Empty is the same as none.
#[derive(Debug, Clone, Default)]
pub struct ProxyEnvironment {
    /// `HTTP_PROXY` or `http_proxy`.
    pub http_proxy: Option<String>,
    /// `HTTPS_PROXY` or `https_proxy`.
    pub https_proxy: Option<String>,
    /// `NO_PROXY` or `no_proxy`.
    pub no_proxy: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            url: String::new(),
            http_config_file: None,
            proxies: ProxyEnvironment::default(),
            timeout: Duration::from_secs(30),
            at_once: 4,
            max_points: 10_000,
            max_series: 20_000,
            max_bytes: 1 << 30,
        }
    }
}
