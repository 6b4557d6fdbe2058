//! What the settings of a web configuration mean, and which of them make no sense.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use hyper::header::{HeaderName, HeaderValue};

use super::lines::Lines;
use super::names::{self, ClientAuth, TlsVersion};
use super::{ConfigError, Pem, PemSource, Rate, Secret, Tls, duration, raw};

/// A hash of this cost takes about 13 s: a higher one would let nobody in, and keep a core busy meanwhile.
const MAX_BCRYPT_COST: u32 = 18;

/// What it takes to say where a mistake is.
pub(super) struct Reader<'a> {
    pub(super) path: &'a Path,
    pub(super) lines: Lines,
}

impl Reader<'_> {
    fn error(&self, at: &[&str], reason: impl Into<String>) -> ConfigError {
        ConfigError { path: self.path.to_owned(), line: self.lines.line(at), reason: reason.into() }
    }

    pub(super) fn tls(&self, raw: raw::Tls) -> Result<Option<Tls>, ConfigError> {
        if raw == raw::Tls::default() {
            return Ok(None);
        }
        let error = |key: &str, reason: &str| self.error(&["tls_server_config", key], reason);
        let client_auth =
            self.tls_value("client_auth_type", raw.client_auth_type.as_deref(), ClientAuth::parse)?;
        let client_auth = client_auth.unwrap_or(ClientAuth::None);
        let cert = self.pem("cert", raw.cert, "cert_file", raw.cert_file)?;
        let key = self.pem("key", raw.key, "key_file", raw.key_file)?;
        let client_ca = self.pem("client_ca", raw.client_ca, "client_ca_file", raw.client_ca_file)?;
        let min_version = self.tls_value("min_version", raw.min_version.as_deref(), names::version)?;
        let max_version = self.tls_value("max_version", raw.max_version.as_deref(), names::version)?;
        let tls = Tls {
            cert: cert.ok_or_else(|| error("", "missing one of cert or cert_file"))?,
            key: key.ok_or_else(|| error("", "missing one of key or key_file"))?,
            client_ca,
            client_auth,
            client_allowed_sans: raw.client_allowed_sans,
            cipher_suites: self.tls_list("cipher_suites", raw.cipher_suites, names::cipher_suite)?,
            curves: self.tls_list("curve_preferences", raw.curve_preferences, names::curve)?,
            min_version: min_version.unwrap_or(TlsVersion::Tls12),
            max_version: max_version.unwrap_or(TlsVersion::Tls13),
            prefer_server_cipher_suites: raw.prefer_server_cipher_suites.unwrap_or(true),
        };
        self.check_versions(&tls)?;
        match (&tls.client_ca, client_auth) {
            (Some(ca), ClientAuth::None) => {
                return Err(error(ca.key, "a client CA has no effect without client_auth_type"));
            }
            (None, auth) if auth.verifies() => {
                return Err(error("client_auth_type", "needs client_ca or client_ca_file"));
            }
            _ => {}
        }
        match &tls.client_allowed_sans {
            Some(_) if !client_auth.requires() => Err(error(
                "client_allowed_sans",
                "needs client_auth_type RequireAndVerifyClientCert or RequireAnyClientCert",
            )),
            Some(sans) if sans.is_empty() => {
                Err(error("client_allowed_sans", "an empty list refuses every client"))
            }
            _ => Ok(Some(tls)),
        }
    }

    fn check_versions(&self, tls: &Tls) -> Result<(), ConfigError> {
        if tls.min_version > tls.max_version {
            return Err(self.error(&["tls_server_config", "min_version"], "min_version is above max_version"));
        }
        let any_of_12 = tls.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        if tls.max_version == TlsVersion::Tls12 && !tls.cipher_suites.is_empty() && !any_of_12 {
            return Err(
                self.error(&["tls_server_config", "cipher_suites"], "none of these is a suite of TLS 1.2")
            );
        }
        Ok(())
    }

    /// The toolkit's documents forbid both spellings at once; its code would silently prefer the file.
    fn pem(
        &self,
        inline_key: &'static str,
        inline: Option<String>,
        file_key: &'static str,
        file: Option<String>,
    ) -> Result<Option<Pem>, ConfigError> {
        let given = |text: &String| !text.is_empty();
        let (key, source) = match (inline.filter(given), file.filter(given)) {
            (None, None) => return Ok(None),
            (Some(text), None) => (inline_key, PemSource::Inline(Secret(text))),
            (None, Some(file)) => {
                (file_key, PemSource::File(self.path.parent().unwrap_or(Path::new("")).join(file)))
            }
            (Some(_), Some(_)) => {
                let reason = format!("{inline_key} and {file_key} exclude each other");
                return Err(self.error(&["tls_server_config", file_key], reason));
            }
        };
        Ok(Some(Pem { source, key, line: self.lines.line(&["tls_server_config", key]) }))
    }

    fn tls_value<T>(
        &self,
        key: &str,
        value: Option<&str>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        value
            .map(|value| parse(value).map_err(|why| self.error(&["tls_server_config", key], why)))
            .transpose()
    }

    fn tls_list<T>(
        &self,
        key: &str,
        list: Option<Vec<String>>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        let items = list.unwrap_or_default().into_iter().enumerate();
        items
            .map(|(nth, name)| {
                parse(&name).map_err(|why| self.error(&["tls_server_config", key, &format!("#{nth}")], why))
            })
            .collect()
    }

    pub(super) fn headers(&self, pairs: raw::Pairs) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (name, value) in pairs.0 {
            let error = |reason: String| self.error(&["http_server_config", "headers", &name], reason);
            // The toolkit's list, kept short there "to ensure consistency in the Prometheus ecosystem".
            let values: &[&str] = match name.as_str() {
                "Strict-Transport-Security" | "X-XSS-Protection" | "Content-Security-Policy" => &[],
                "X-Content-Type-Options" => &["nosniff"],
                "X-Frame-Options" => &["deny", "sameorigin"],
                _ => return Err(error(format!("HTTP header {name:?} can not be configured"))),
            };
            if value.is_empty() {
                continue;
            }
            if !values.is_empty() && !values.contains(&value.as_str()) {
                return Err(error(format!("{name} is {value:?}, not one of: {}", values.join(", "))));
            }
            let unusable = |_| error(format!("{value:?} is not a header value"));
            let parsed = HeaderValue::from_str(&value).map_err(unusable)?;
            let known = HeaderName::from_str(&name).map_err(|_| error("not a header name".to_owned()))?;
            if headers.iter().any(|(earlier, _)| *earlier == known) {
                return Err(self.duplicate("http_server_config.headers", &name));
            }
            headers.push((known, parsed));
        }
        Ok(headers)
    }

    pub(super) fn rate(&self, raw: raw::Rate) -> Result<Option<Rate>, ConfigError> {
        let interval = duration::parse(raw.interval.as_deref().unwrap_or("0"));
        let interval = interval.map_err(|why| self.error(&["rate_limit", "interval"], why))?;
        let burst = raw.burst.unwrap_or(0);
        if interval.is_zero() {
            return Ok(None);
        }
        if burst == 0 {
            return Err(self.error(&["rate_limit", "burst"], "a burst of 0 refuses every request"));
        }
        Ok(Some(Rate { interval, burst }))
    }

    pub(super) fn users(&self, pairs: raw::Pairs) -> Result<BTreeMap<String, Secret>, ConfigError> {
        let mut users = BTreeMap::new();
        for (name, hash) in pairs.0 {
            let error = |reason: String| self.error(&["basic_auth_users", &name], reason);
            if name.contains(':') {
                return Err(error(format!("user {name:?}: a user name cannot hold a colon")));
            }
            let parts = bcrypt::HashParts::from_str(&hash)
                .map_err(|why| error(format!("the password of {name:?} is not a bcrypt hash: {why}")))?;
            let cost = parts.get_cost();
            if !(4..=MAX_BCRYPT_COST).contains(&cost) {
                return Err(error(format!(
                    "the password of {name:?} has bcrypt cost {cost}, not 4..{MAX_BCRYPT_COST}"
                )));
            }
            if users.insert(name.clone(), Secret(hash)).is_some() {
                return Err(self.duplicate("basic_auth_users", &name));
            }
        }
        Ok(users)
    }

    fn duplicate(&self, section: &str, key: &str) -> ConfigError {
        let line = self.lines.repeated(key);
        ConfigError {
            path: self.path.to_owned(),
            line,
            reason: format!("{section}: duplicate field `{key}`"),
        }
    }
}
