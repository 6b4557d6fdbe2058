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
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
pub(crate) use names::{ClientAuth, Curve, TlsVersion};
use tokio_rustls::rustls::SupportedCipherSuite;

/// An error in the web configuration file, and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The web configuration file.
    pub path: PathBuf,
    /// The line of the wrong key or value, or of the mapping that has a key twice.
    pub line: Option<usize>,
    /// The key and its error; the path of a file that it names, if that is wrong.
    pub reason: String,
}

impl ConfigError {
    /// One without a line.
    pub(crate) fn new(path: &Path, reason: impl Into<String>) -> Self {
        ConfigError { path: path.to_owned(), line: None, reason: reason.into() }
    }
}

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
    pub(crate) cert: Pem,
    pub(crate) key: Pem,
    pub(crate) client_ca: Option<Pem>,
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

/// PEM text, and the key of `tls_server_config` that gives it.
#[derive(Debug)]
pub(crate) struct Pem {
    pub(crate) source: PemSource,
    pub(crate) key: &'static str,
}

#[derive(Debug)]
pub(crate) enum PemSource {
    Inline(Secret),
    File(PathBuf),
}

/// `rate_limit`: a bucket of `burst` requests that gains one per `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

/// Text that must not be logged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl WebConfig {
    /// Reads the text of a web configuration file. Paths in it are relative to the directory of `path`.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            ConfigError { line: Some(line), ..ConfigError::new(path, "not UTF-8") }
        })?;
        let file = file::read(text, path)?;
        check::config(file, path.parent().unwrap_or(Path::new("")))
            .map_err(|reason| ConfigError::new(path, reason))
    }
}
