//! Where the server is.

use std::net::IpAddr;

use hyper::Uri;

/// A URL such as `https://host/prometheus/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) https: bool,
    /// A name or an IP address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As the `Host` header has it.
    pub(crate) authority: String,
}

impl Origin {
    /// Whether nothing of what is sent leaves this host, or can be read on its way.
    pub(crate) fn is_private(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.https || self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is the same server, with more protection at most: `http://host` sends to `https://host`.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let upgrade = !self.https && other.https && (self.port, other.port) == (80, 443);
        self.host.eq_ignore_ascii_case(&other.host)
            && (upgrade || (self.https, self.port) == (other.https, other.port))
    }
}

/// Reads a URL into its origin and its path and query.
pub(crate) fn parse(text: &str) -> Result<(Origin, String), &'static str> {
    if text.contains('#') {
        return Err("leave out # and what follows");
    }
    let uri: Uri = text.parse().map_err(|_| "not a URL such as https://host:9090/")?;
    let authority = uri.authority().ok_or("not a URL such as https://host:9090/")?;
    if authority.as_str().contains('@') {
        return Err(
            "user and password belong in the HTTP configuration file: everybody can see a command line",
        );
    }
    let https = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("it begins with neither https:// nor http://"),
    };
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") if https => 443,
        Some("") => 80,
        Some(port) => port.strip_prefix(':').and_then(|port| port.parse().ok()).unwrap_or(0),
        None => 0,
    };
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    if port == 0 || host.is_empty() {
        return Err("not a host and a port");
    }
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Ok((Origin { https, host, port, authority: authority.to_string() }, target))
}

/// Reads the URL of a server into its origin and the prefix of its paths, without a slash at the end.
pub(crate) fn base(text: &str) -> Result<(Origin, String), &'static str> {
    let (origin, target) = parse(text.trim())?;
    if target.contains('?') {
        return Err("leave out ? and what follows");
    }
    Ok((origin, target.trim_end_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_may_have_a_port_and_a_path() {
        for (text, https, host, port, authority, prefix) in [
            ("https://prom.site", true, "prom.site", 443, "prom.site", ""),
            ("http://localhost:9090/", false, "localhost", 9090, "localhost:9090", ""),
            ("https://host/prometheus/", true, "host", 443, "host", "/prometheus"),
            ("https://[fe80::1]:8443/a/b", true, "fe80::1", 8443, "[fe80::1]:8443", "/a/b"),
            ("http://[::1]", false, "::1", 80, "[::1]", ""),
            (
                " https://grafana/api/datasources/proxy/uid/x ",
                true,
                "grafana",
                443,
                "grafana",
                "/api/datasources/proxy/uid/x",
            ),
        ] {
            let (origin, found) = base(text).unwrap();
            assert_eq!((origin.https, origin.host.as_str(), origin.port), (https, host, port), "{text}");
            assert_eq!((origin.authority.as_str(), found.as_str()), (authority, prefix), "{text}");
        }
    }

    #[test]
    fn what_is_no_such_url_is_refused() {
        for bad in [
            "",
            "prometheus",
            "prometheus:9090",
            "/prometheus",
            "ftp://host/",
            "https://",
            "https:///a",
            "https://host:0/",
            "https://host:/",
            "https://host:99999/",
            "https://h ost/",
            "https://host/?a=b",
            "https://host/#a",
            "https://user:secret@host/",
            "https://[]/",
        ] {
            assert!(base(bad).is_err(), "{bad}");
        }
    }
}
