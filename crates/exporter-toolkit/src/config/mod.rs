//! `--web.config.file`: TLS, client certificates, passwords, rate limit and headers, in the format that all
//! Prometheus exporters share (exporter-toolkit, docs/web-configuration.md).
//!
//! This module only reads the text; [`crate::tls`] loads the files that it names. It is stricter than Go's
//! exporter-toolkit where that would start with less protection than the file seems to give, or with a server that
//! refuses every client: TLS settings without a certificate, a client CA without a check, a burst of 0.

mod check;
mod file;
mod names;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use config_files::{ConfigError, Secret, Setting, TlsVersion, read_yaml};
use hyper::header::{HeaderName, HeaderValue};
pub(crate) use names::{ClientAuth, Curve};
use tokio_rustls::rustls::SupportedCipherSuite;

/// A web configuration file without a mistake in itself.
#[derive(Debug, Default)]
pub struct WebConfig {
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) rate: Option<Rate>,
    pub(crate) users: BTreeMap<String, Secret>,
}

/// `tls_server_config`.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) cert: Setting,
    pub(crate) key: Setting,
    pub(crate) client_ca: Option<Setting>,
    pub(crate) client_auth: ClientAuth,
    pub(crate) client_allowed_sans: Option<Vec<String>>,
    /// Empty for the default of rustls.
    pub(crate) cipher_suites: Vec<SupportedCipherSuite>,
    /// Empty for the default of rustls.
    pub(crate) curves: Vec<Curve>,
    pub(crate) min_version: TlsVersion,
    pub(crate) max_version: TlsVersion,
    pub(crate) prefer_server_cipher_suites: bool,
}

/// `rate_limit`: a bucket of `burst` requests that gains one per `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

impl WebConfig {
    /// Reads the text of a web configuration file. Paths in it are relative to the directory of `path`.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let file = read_yaml(bytes, path)?;
        check::config(file, path.parent().unwrap_or(Path::new("")))
            .map_err(|reason| ConfigError::new(path, reason))
    }
}
