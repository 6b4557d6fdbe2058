//! Which proxy a request goes through (golang.org/x/net/http/httpproxy, which Prometheus uses).

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config_files::Network;
use hyper::header::{HeaderName, HeaderValue};

use crate::address::{self, Origin};

/// The proxies for both schemes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    none_for: Vec<Exempt>,
    /// Whether this host itself is asked without a proxy.
    not_for_loopback: bool,
    /// Of a request for a tunnel.
    pub(crate) connect_headers: Vec<(HeaderName, HeaderValue)>,
}

/// One proxy. It is asked over plain HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) origin: Origin,
    /// `Proxy-Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
}

/// What is asked without a proxy.
#[derive(Debug, Clone)]
enum Exempt {
    All,
    Addresses(Network, Option<u16>),
    /// A domain in lower case that begins with a dot, and whether the name without the dot is meant, too.
    Names {
        domain: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// One for everything.
    pub(crate) fn one(url: &str, none_for: Option<&str>) -> Result<Self, &'static str> {
        let proxy = proxy(url)?;
        Ok(Self {
            http: Some(proxy.clone()),
            https: Some(proxy),
            none_for: none_for.map(exempt).unwrap_or_default(),
            // As in prometheus/common, where only a list brings the rules of httpproxy with it.
            not_for_loopback: none_for.is_some(),
            connect_headers: Vec::new(),
        })
    }

    /// Those of the environment, where a URL may lack its scheme.
    pub(crate) fn of_environment(
        http: Option<&str>,
        https: Option<&str>,
        none_for: Option<&str>,
    ) -> Result<Self, &'static str> {
        let given = |url: Option<&str>| match url.filter(|url| !url.is_empty()) {
            None => Ok(None),
            Some(url) if url.contains("://") => proxy(url).map(Some),
            Some(url) => proxy(&format!("http://{url}")).map(Some),
        };
        Ok(Self {
            http: given(http)?,
            https: given(https)?,
            none_for: none_for.map(exempt).unwrap_or_default(),
            not_for_loopback: true,
            connect_headers: Vec::new(),
        })
    }

    pub(crate) fn with_connect_headers(self, connect_headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self { connect_headers, ..self }
    }

    /// Those of the environment instead, with the same headers, if the file says so.
    pub(crate) fn or_environment(self, wanted: bool, environment: &Self) -> Self {
        if wanted { environment.clone().with_connect_headers(self.connect_headers) } else { self }
    }

    pub(crate) fn have_a_secret(&self) -> bool {
        let has = |proxy: &Option<Proxy>| proxy.as_ref().is_some_and(|proxy| proxy.authorization.is_some());
        has(&self.http) || has(&self.https) || !self.connect_headers.is_empty()
    }

    /// The proxy that a server is asked through.
    pub(crate) fn of(&self, server: &Origin) -> Option<&Proxy> {
        let proxy = if server.https { self.https.as_ref() } else { self.http.as_ref() }?;
        let host = server.host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        if self.not_for_loopback
            && (host == "localhost" || address.is_some_and(|address| address.is_loopback()))
        {
            return None;
        }
        let exempt = self.none_for.iter().any(|exempt| match exempt {
            Exempt::All => true,
            Exempt::Addresses(network, port) => {
                address.is_some_and(|address| network.contains(address))
                    && port.is_none_or(|port| port == server.port)
            }
            Exempt::Names { domain, itself, port } => {
                (host.ends_with(domain.as_str()) || *itself && domain.strip_prefix('.') == Some(&host))
                    && port.is_none_or(|port| port == server.port)
            }
        });
        if exempt { None } else { Some(proxy) }
    }
}

/// `http://user:password@host:3128`.
fn proxy(url: &str) -> Result<Proxy, &'static str> {
    let rest = url.strip_prefix("http://").ok_or("only proxies of http:// are supported")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let (origin, _) = address::parse(&format!("http://{host}/"))?;
    let authorization = match user {
        None => None,
        Some(user) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            let login = [&*decoded(user)?, b":", &*decoded(password)?].concat();
            let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login)))
                .map_err(|_| "no header can be made of user and password")?;
            value.set_sensitive(true);
            Some(value)
        }
    };
    Ok(Proxy { origin, authorization })
}

/// Without the percent encoding of RFC 3986, section 2.1.
fn decoded(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or("a % without two digits")?;
        out.push(u8::from_str_radix(code, 16).map_err(|_| "a % without two digits")?);
        out.extend_from_slice(rest.as_bytes());
    }
    Ok(out)
}

fn exempt(list: &str) -> Vec<Exempt> {
    list.split(',')
        .map(|entry| entry.trim().to_ascii_lowercase())
        .filter_map(|entry| one_exempt(&entry))
        .collect()
}

/// What is neither an address nor a name is passed over, as in httpproxy.
fn one_exempt(entry: &str) -> Option<Exempt> {
    if entry == "*" {
        return Some(Exempt::All);
    }
    if let Ok(network) = entry.trim_matches(['[', ']']).parse() {
        return Some(Exempt::Addresses(network, None));
    }
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (entry, None),
    };
    if let Ok(network) = name.trim_matches(['[', ']']).parse() {
        return Some(Exempt::Addresses(network, port));
    }
    let name = if name.starts_with("*.") { name.trim_start_matches('*') } else { name };
    match name.strip_prefix('.') {
        Some("") => None,
        Some(_) => Some(Exempt::Names { domain: name.to_owned(), itself: false, port }),
        None if name.is_empty() => None,
        None => Some(Exempt::Names { domain: format!(".{name}"), itself: true, port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        address::parse(url).unwrap().0
    }

    #[test]
    fn a_proxy_may_have_user_and_password() {
        let proxies = Proxies::one("http://user:p%40ss%3a@proxy:3128", None).unwrap();
        let proxy = proxies.of(&origin("https://prom/")).unwrap();
        assert_eq!((proxy.origin.host.as_str(), proxy.origin.port), ("proxy", 3128));
        assert_eq!(
            proxy.authorization.as_ref().unwrap(),
            &format!("Basic {}", STANDARD.encode("user:p@ss:"))
        );
        assert!(!format!("{proxies:?}").contains("Basic"));
        assert!(proxies.of(&origin("http://127.0.0.1/")).is_some());
        for bad in [
            "proxy:3128",
            "https://proxy",
            "socks5://proxy",
            "http://",
            "http://a%4@proxy",
            "http://a%zz@proxy",
        ] {
            assert!(Proxies::one(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn some_hosts_need_no_proxy() {
        let list = "site.org, .inner.net,10.0.0.0/8,192.0.2.7:9090,[fd00::1]:443,*.star, named:8443,fd01::/16,,:,*x:y";
        let proxies = Proxies::one("http://proxy", Some(list)).unwrap();
        for (url, direct) in [
            ("https://site.org", true),
            ("https://a.SITE.org.", true),
            ("https://asite.org", false),
            ("https://a.inner.net", true),
            ("https://inner.net", false),
            ("http://10.1.2.3", true),
            ("http://11.1.2.3", false),
            ("http://192.0.2.7:9090", true),
            ("http://192.0.2.7", false),
            ("https://[fd00::1]", true),
            ("http://[fd00::1]", false),
            ("http://[fd01::2]", true),
            ("http://a.star", true),
            ("https://named:8443", true),
            ("https://named", false),
            ("http://localhost", true),
            ("http://[::1]:9090", true),
        ] {
            assert_eq!(proxies.of(&origin(url)).is_none(), direct, "{url}");
        }
        assert!(Proxies::one("http://proxy", Some("*")).unwrap().of(&origin("http://a")).is_none());
    }

    #[test]
    fn the_environment_has_a_proxy_for_each_scheme() {
        let proxies = Proxies::of_environment(Some("plain:1"), Some("http://tls:2"), Some("direct")).unwrap();
        let port = |url: &str| proxies.of(&origin(url)).map(|proxy| proxy.origin.port);
        assert_eq!((port("http://a"), port("https://a"), port("https://direct")), (Some(1), Some(2), None));
        assert!(Proxies::of_environment(Some(""), None, None).unwrap().of(&origin("http://a")).is_none());
    }
}
