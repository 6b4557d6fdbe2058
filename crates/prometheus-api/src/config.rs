//! promtool's `--http.config.file`: credentials, TLS, proxies and headers, in the format that Prometheus' own programs share
//! (`HTTPClientConfig` of prometheus/common, config/http_config.go).
//!
//! This module only reads the text; [`crate::http`] loads the files that it names. It is stricter than Prometheus where that
//! would go on without what the file seems to give, such as an authorization without credentials.

mod check;
mod file;

use std::path::Path;

use config_files::{ConfigError, Secret, Setting, Source, TlsVersion, read_yaml};
use hyper::header::HeaderName;
use rustls_pki_types::ServerName;

pub(crate) use self::check::header_value;
use crate::address::Origin;
use crate::proxy::Proxies;

/// An HTTP configuration file without a mistake in itself.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    pub(crate) auth: Option<Auth>,
    pub(crate) tls: Tls,
    pub(crate) proxies: Proxies,
    pub(crate) proxy_from_environment: bool,
    pub(crate) headers: Vec<(HeaderName, Vec<Setting>)>,
    pub(crate) follow_redirects: bool,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Auth {
    /// `basic_auth`.
    Basic { user: Option<Setting>, password: Option<Setting> },
    /// `authorization`.
    Scheme { scheme: String, credentials: Setting },
    /// `oauth2`.
    OAuth2(Box<OAuth2>),
}

/// A token is asked of a server of its own (RFC 6749, section 4.4).
#[derive(Debug, Clone)]
pub(crate) struct OAuth2 {
    pub(crate) id: String,
    pub(crate) secret: Setting,
    pub(crate) scopes: Vec<String>,
    pub(crate) server: (Origin, String),
    pub(crate) parameters: Vec<(String, Secret)>,
    pub(crate) tls: Tls,
    pub(crate) proxies: Proxies,
    pub(crate) proxy_from_environment: bool,
}

/// `tls_config`.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) ca: Option<Setting>,
    pub(crate) identity: Option<(Setting, Setting)>,
    pub(crate) server_name: Option<ServerName<'static>>,
    pub(crate) insecure_skip_verify: bool,
    pub(crate) min_version: TlsVersion,
    pub(crate) max_version: TlsVersion,
}

impl HttpConfig {
    /// Reads the text of a file. Paths in it are relative to the directory of `path`.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, ConfigError> {
        let file: Option<file::File> = read_yaml(bytes, path)?;
        check::config(file.unwrap_or_default(), path.parent().unwrap_or(Path::new("")))
            .map_err(|reason| ConfigError::new(path, reason))
    }

    /// The settings that are secrets.
    pub(crate) fn secrets(&self) -> Vec<&Setting> {
        let headers =
            self.headers.iter().flat_map(|(_, values)| values).filter(|value| value.key != "values");
        let mut secrets: Vec<&Setting> = headers.chain(self.tls.key()).collect();
        match &self.auth {
            None => {}
            Some(Auth::Basic { password, .. }) => secrets.extend(password),
            Some(Auth::Scheme { credentials, .. }) => secrets.push(credentials),
            Some(Auth::OAuth2(oauth2)) => {
                secrets.extend([&oauth2.secret].into_iter().chain(oauth2.tls.key()))
            }
        }
        secrets
    }

    /// Whether a secret stands in the file itself.
    pub(crate) fn has_secret(&self) -> bool {
        let inline = |setting: &Setting| matches!(setting.source, Source::Inline(_));
        let of_oauth2 = match &self.auth {
            Some(Auth::OAuth2(oauth2)) => oauth2.proxies.have_a_secret(),
            _ => false,
        };
        self.secrets().into_iter().any(inline) || self.proxies.have_a_secret() || of_oauth2
    }

    /// Whether a proxy is the environment's.
    pub(crate) fn uses_environment(&self) -> bool {
        let oauth2 = matches!(&self.auth, Some(Auth::OAuth2(oauth2)) if oauth2.proxy_from_environment);
        self.proxy_from_environment || oauth2
    }
}

impl Tls {
    fn key(&self) -> Option<&Setting> {
        self.identity.as_ref().map(|(_, key)| key)
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            auth: None,
            tls: Tls::default(),
            proxies: Proxies::default(),
            proxy_from_environment: false,
            headers: Vec::new(),
            follow_redirects: true,
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            ca: None,
            identity: None,
            server_name: None,
            insecure_skip_verify: false,
            min_version: TlsVersion::Tls12,
            max_version: TlsVersion::Tls13,
        }
    }
}

#[cfg(test)]
mod tests;
