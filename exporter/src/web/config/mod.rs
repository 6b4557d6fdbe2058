//! `--web.config.file`: TLS, client certificates, passwords, rate limit and headers, in the format that all
//! Prometheus exporters share (exporter-toolkit, docs/web-configuration.md).
//!
//! This module only reads the text; [`super::tls`] loads what the file names. It is stricter than the toolkit
//! where the toolkit would start with less protection than the file seems to give, or with a server that refuses
//! everyone: TLS settings without a certificate, a client CA that nothing is checked against, a burst of 0.

mod check;
mod duration;
mod lines;
mod names;
mod raw;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use tokio_rustls::rustls::SupportedCipherSuite;
use tokio_rustls::rustls::crypto::SupportedKxGroup;

use check::Reader;
use lines::Lines;
pub(super) use names::{ClientAuth, TlsVersion};

/// What is wrong with the web configuration file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", path.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ConfigError {
    /// The web configuration file.
    pub path: PathBuf,
    /// The line, where one can be named.
    pub line: Option<usize>,
    /// What is wrong.
    pub reason: String,
}

/// A web configuration file that makes sense in itself.
#[derive(Debug, Default)]
pub struct WebConfig {
    pub(super) tls: Option<Tls>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) rate: Option<Rate>,
    pub(super) users: BTreeMap<String, Secret>,
}

/// `tls_server_config`.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) cert: Pem,
    pub(super) key: Pem,
    pub(super) client_ca: Option<Pem>,
    pub(super) client_auth: ClientAuth,
    pub(super) client_allowed_sans: Option<Vec<String>>,
    /// Empty for rustls' own choice.
    pub(super) cipher_suites: Vec<SupportedCipherSuite>,
    /// Empty for rustls' own choice.
    pub(super) curves: Vec<&'static dyn SupportedKxGroup>,
    pub(super) min_version: TlsVersion,
    pub(super) max_version: TlsVersion,
    pub(super) prefer_server_cipher_suites: bool,
}

/// PEM text, and the key of the file that gives it.
#[derive(Debug)]
pub(super) struct Pem {
    pub(super) source: PemSource,
    pub(super) key: &'static str,
    pub(super) line: Option<usize>,
}

#[derive(Debug)]
pub(super) enum PemSource {
    Inline(Secret),
    File(PathBuf),
}

/// `rate_limit`: a bucket of `burst` requests that gains one per `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) interval: Duration,
    pub(super) burst: u32,
}

/// Text that no log may hold.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl WebConfig {
    /// Reads the text of a web configuration file; paths in it are relative to the directory of `path`.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            ConfigError { path: path.to_owned(), line: Some(line), reason: "not UTF-8".to_owned() }
        })?;
        let lines = Lines::of(text);
        let file = raw::read(text, &lines, path)?;
        let reader = Reader { path, lines };
        Ok(WebConfig {
            tls: file.tls_server_config.map(|tls| reader.tls(tls)).transpose()?.flatten(),
            headers: reader
                .headers(file.http_server_config.and_then(|http| http.headers).unwrap_or_default())?,
            rate: file.rate_limit.map(|rate| reader.rate(rate)).transpose()?.flatten(),
            users: reader.users(file.basic_auth_users.unwrap_or_default())?,
        })
    }
}
