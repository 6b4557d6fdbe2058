//! What the settings mean together, and which of them contradict each other.

use std::collections::BTreeMap;
use std::path::Path;

use config_files::{Secret, Setting, TlsVersion};
use hyper::header::{HeaderName, HeaderValue};
use rustls_pki_types::ServerName;

use super::file;
use super::{Auth, HttpConfig, OAuth2, Tls};
use crate::address;
use crate::proxy::Proxies;

/// Headers that this client sets itself (`reservedHeaders` of prometheus/common, config/headers.go).
const RESERVED: [&str; 16] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "www-authenticate",
];

/// Checks a file whose relative paths start in this directory. `Err` names the key and what is wrong.
pub(super) fn config(file: file::File, dir: &Path) -> Result<HttpConfig, String> {
    let proxy_from_environment = file.proxy_from_environment.unwrap_or(false);
    Ok(HttpConfig {
        auth: auth(file.basic_auth, file.authorization, file.oauth2, dir)?,
        tls: tls("tls_config", file.tls_config.unwrap_or_default(), dir)?,
        proxies: proxies(
            file.proxy_url,
            file.no_proxy,
            proxy_from_environment,
            file.proxy_connect_header.unwrap_or_default(),
        )?,
        proxy_from_environment,
        headers: headers(file.http_headers.unwrap_or_default(), dir)?,
        follow_redirects: file.follow_redirects.unwrap_or(true),
    })
}

fn auth(
    basic: Option<file::BasicAuth>,
    authorization: Option<file::Authorization>,
    oauth2: Option<file::OAuth2>,
    dir: &Path,
) -> Result<Option<Auth>, String> {
    match (basic, authorization, oauth2) {
        (None, None, None) => Ok(None),
        (Some(basic), None, None) => {
            let setting = |inline, in_file| {
                Setting::new("basic_auth", inline, in_file, dir).map_err(|why| format!("basic_auth: {why}"))
            };
            let user = setting(("username", basic.username), ("username_file", basic.username_file))?;
            let password = setting(("password", basic.password), ("password_file", basic.password_file))?;
            Ok(Some(Auth::Basic { user, password }))
        }
        (None, Some(of), None) => {
            let scheme = of.r#type.as_deref().map_or("Bearer", str::trim).to_owned();
            if scheme.eq_ignore_ascii_case("basic") {
                return Err("authorization.type: use basic_auth instead of Basic".to_owned());
            }
            let (inline, in_file) = (of.credentials, of.credentials_file);
            let credentials =
                Setting::new("authorization", ("credentials", inline), ("credentials_file", in_file), dir);
            let credentials = credentials
                .map_err(|why| format!("authorization: {why}"))?
                .ok_or("authorization: missing one of credentials or credentials_file")?;
            Ok(Some(Auth::Scheme { scheme, credentials }))
        }
        (None, None, Some(oauth2)) => Ok(Some(Auth::OAuth2(Box::new(self::oauth2(oauth2, dir)?)))),
        _ => Err("basic_auth, authorization and oauth2 exclude each other".to_owned()),
    }
}

fn oauth2(file: file::OAuth2, dir: &Path) -> Result<OAuth2, String> {
    let (inline, in_file) = (file.client_secret, file.client_secret_file);
    let secret = Setting::new("oauth2", ("client_secret", inline), ("client_secret_file", in_file), dir)
        .map_err(|why| format!("oauth2: {why}"))?
        .ok_or("oauth2: missing one of client_secret or client_secret_file")?;
    let id = file.client_id.filter(|id| !id.is_empty()).ok_or("oauth2: missing client_id")?;
    let url = file.token_url.ok_or("oauth2: missing token_url")?;
    let in_section = |why| format!("oauth2.{why}");
    let proxy_from_environment = file.proxy_from_environment.unwrap_or(false);
    Ok(OAuth2 {
        id,
        secret,
        scopes: file.scopes.unwrap_or_default(),
        server: address::parse(&url).map_err(|why| format!("oauth2.token_url: {why}"))?,
        parameters: file.endpoint_params.unwrap_or_default().into_iter().collect(),
        tls: tls("oauth2.tls_config", file.tls_config.unwrap_or_default(), dir)?,
        proxies: proxies(
            file.proxy_url,
            file.no_proxy,
            proxy_from_environment,
            file.proxy_connect_header.unwrap_or_default(),
        )
        .map_err(in_section)?,
        proxy_from_environment,
    })
}

fn tls(section: &'static str, file: file::Tls, dir: &Path) -> Result<Tls, String> {
    let setting = |inline, in_file| {
        Setting::new(section, inline, in_file, dir).map_err(|why| format!("{section}: {why}"))
    };
    let ca = setting(("ca", file.ca), ("ca_file", file.ca_file))?;
    let cert = setting(("cert", file.cert), ("cert_file", file.cert_file))?;
    let key = setting(("key", file.key), ("key_file", file.key_file))?;
    let identity = match (cert, key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert, key)),
        (Some(_), None) => return Err(format!("{section}: missing one of key or key_file")),
        (None, Some(_)) => return Err(format!("{section}: missing one of cert or cert_file")),
    };
    let version = |key: &str, name: Option<String>, default| match name.filter(|name| !name.is_empty()) {
        None => Ok(default),
        Some(name) => name.parse::<TlsVersion>().map_err(|why| format!("{section}.{key}: {why}")),
    };
    let min_version = version("min_version", file.min_version, TlsVersion::Tls12)?;
    let max_version = version("max_version", file.max_version, TlsVersion::Tls13)?;
    if min_version > max_version {
        return Err(format!("{section}.min_version: above max_version"));
    }
    let server_name = file.server_name.filter(|name| !name.is_empty()).map(ServerName::try_from).transpose();
    let server_name = server_name.map_err(|_| format!("{section}.server_name: not the name of a host"))?;
    Ok(Tls {
        ca,
        identity,
        server_name,
        insecure_skip_verify: file.insecure_skip_verify.unwrap_or(false),
        min_version,
        max_version,
    })
}

fn proxies(
    url: Option<Secret>,
    none_for: Option<String>,
    from_environment: bool,
    connect_header: BTreeMap<String, Vec<Secret>>,
) -> Result<Proxies, String> {
    let url = url.filter(|url| !url.0.is_empty());
    let none_for = none_for.filter(|none_for| !none_for.is_empty());
    let excluded = |keys| Err(format!("{keys} exclude each other"));
    match (&url, &none_for) {
        (Some(_), _) if from_environment => return excluded("proxy_url and proxy_from_environment"),
        (_, Some(_)) if from_environment => return excluded("no_proxy and proxy_from_environment"),
        (None, Some(_)) => return Err("no_proxy: has no effect without proxy_url".to_owned()),
        (None, None) if !from_environment && !connect_header.is_empty() => {
            return Err("proxy_connect_header: has no effect without a proxy".to_owned());
        }
        _ => {}
    }
    let mut headers = Vec::new();
    for (name, values) in connect_header {
        let name = header_name("proxy_connect_header", &name)?;
        for value in values {
            headers.push((
                name.clone(),
                header_value(&value.0).map_err(|why| format!("proxy_connect_header.{name}: {why}"))?,
            ));
        }
    }
    let proxies = match url {
        Some(url) => Proxies::one(&url.0, none_for.as_deref()).map_err(|why| format!("proxy_url: {why}"))?,
        None => Proxies::default(),
    };
    Ok(proxies.with_connect_headers(headers))
}

fn headers(
    file: BTreeMap<String, file::Header>,
    dir: &Path,
) -> Result<Vec<(HeaderName, Vec<Setting>)>, String> {
    let mut headers = Vec::new();
    for (name, given) in file {
        let name = header_name("http_headers", &name)?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("http_headers: {name} is set by this program"));
        }
        let text = |key| move |text| Setting::new("http_headers", (key, Some(text)), ("", None), dir);
        let in_file = |file| Setting::new("http_headers", ("", None), ("files", Some(file)), dir);
        let values = given.values.unwrap_or_default().into_iter().map(text("values"));
        let secrets = given.secrets.unwrap_or_default().into_iter().map(text("secrets"));
        let files = given.files.unwrap_or_default().into_iter().map(in_file);
        let settings: Result<Vec<_>, _> = values.chain(secrets).chain(files).collect();
        headers.push((name, settings?.into_iter().flatten().collect()));
    }
    Ok(headers)
}

fn header_name(section: &str, name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("{section}: {name:?} is not the name of a header"))
}

/// A value that is not shown.
pub(crate) fn header_value(text: &str) -> Result<HeaderValue, &'static str> {
    let mut value = HeaderValue::from_str(text).map_err(|_| "not the value of a header")?;
    value.set_sensitive(true);
    Ok(value)
}
