//! What the settings of a web configuration file mean together, and which of them contradict each other.

use std::path::Path;

use config_files::{Setting, TlsVersion};
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS, X_XSS_PROTECTION,
};

use super::file::{self, Parsed};
use super::{ClientAuth, Rate, Tls, WebConfig};

/// Checks a file whose relative paths start in this directory. `Err` names the key and what is wrong.
pub(crate) fn config(file: file::File, dir: &Path) -> Result<WebConfig, String> {
    let in_section = |section: &'static str| move |why: String| format!("{section}{why}");
    Ok(WebConfig {
        tls: tls(file.tls_server_config.unwrap_or_default(), dir).map_err(in_section("tls_server_config"))?,
        headers: headers(file.http_server_config.and_then(|http| http.headers).unwrap_or_default())
            .map_err(in_section("http_server_config.headers"))?,
        rate: rate(file.rate_limit.unwrap_or_default()).map_err(in_section("rate_limit"))?,
        users: file.basic_auth_users.unwrap_or_default().0,
    })
}

fn tls(file: file::Tls, dir: &Path) -> Result<Option<Tls>, String> {
    if file == file::Tls::default() {
        return Ok(None);
    }
    let pem = |inline, in_file| {
        Setting::new("tls_server_config", inline, in_file, dir).map_err(|why| format!(": {why}"))
    };
    let cert = pem(("cert", file.cert), ("cert_file", file.cert_file))?;
    let key = pem(("key", file.key), ("key_file", file.key_file))?;
    let tls = Tls {
        cert: cert.ok_or(": missing one of cert or cert_file")?,
        key: key.ok_or(": missing one of key or key_file")?,
        client_ca: pem(("client_ca", file.client_ca), ("client_ca_file", file.client_ca_file))?,
        client_auth: value(file.client_auth_type).unwrap_or(ClientAuth::None),
        client_allowed_sans: file.client_allowed_sans,
        cipher_suites: list(file.cipher_suites),
        curves: list(file.curve_preferences),
        min_version: value(file.min_version).unwrap_or(TlsVersion::Tls12),
        max_version: value(file.max_version).unwrap_or(TlsVersion::Tls13),
        prefer_server_cipher_suites: file.prefer_server_cipher_suites.unwrap_or(true),
    };
    if tls.min_version > tls.max_version {
        return Err(".min_version: above max_version".to_owned());
    }
    let any_of_12 = tls.cipher_suites.iter().any(|suite| suite.tls13().is_none());
    if tls.max_version == TlsVersion::Tls12 && !tls.cipher_suites.is_empty() && !any_of_12 {
        return Err(".cipher_suites: none of these is a suite of TLS 1.2".to_owned());
    }
    match &tls.client_ca {
        Some(ca) if tls.client_auth == ClientAuth::None => {
            return Err(format!(".{}: has no effect without client_auth_type", ca.key));
        }
        None if tls.client_auth.verifies() => {
            return Err(".client_auth_type: needs client_ca or client_ca_file".to_owned());
        }
        _ => {}
    }
    match &tls.client_allowed_sans {
        Some(_) if !tls.client_auth.requires() => Err(".client_allowed_sans: needs client_auth_type \
            RequireAndVerifyClientCert or RequireAnyClientCert"
            .to_owned()),
        Some(sans) if sans.is_empty() => {
            Err(".client_allowed_sans: an empty list refuses every client".to_owned())
        }
        _ => Ok(Some(tls)),
    }
}

fn value<T>(value: Option<Parsed<T>>) -> Option<T> {
    value.map(|Parsed(value)| value)
}

fn list<T>(list: Option<Vec<Parsed<T>>>) -> Vec<T> {
    list.unwrap_or_default().into_iter().map(|Parsed(value)| value).collect()
}

/// A header, its value, and the values that it may have; any without such a list.
type Header<'a> = (HeaderName, Option<Parsed<HeaderValue>>, &'a [&'a str]);

fn headers(file: file::Headers) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let all: [Header<'_>; 5] = [
        (STRICT_TRANSPORT_SECURITY, file.strict_transport_security, &[]),
        (X_CONTENT_TYPE_OPTIONS, file.content_type_options, &["nosniff"]),
        (X_FRAME_OPTIONS, file.frame_options, &["deny", "sameorigin"]),
        (X_XSS_PROTECTION, file.xss_protection, &[]),
        (CONTENT_SECURITY_POLICY, file.content_security_policy, &[]),
    ];
    let mut headers = Vec::new();
    for (name, header, allowed) in all {
        let Some(header) = value(header).filter(|header| !header.is_empty()) else { continue };
        if !allowed.is_empty() && !allowed.iter().any(|allowed| header == *allowed) {
            return Err(format!(": {name} is {header:?}, not one of: {}", allowed.join(", ")));
        }
        headers.push((name, header));
    }
    Ok(headers)
}

fn rate(file: file::Rate) -> Result<Option<Rate>, String> {
    let interval = value(file.interval).unwrap_or_default();
    match file.burst.unwrap_or(0) {
        _ if interval.is_zero() => Ok(None),
        0 => Err(".burst: 0 refuses every request".to_owned()),
        burst => Ok(Some(Rate { interval, burst })),
    }
}
