//! Which resource is asked.

use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use kernel_files::label_text;

/// The URL of a resource: `https://192.0.2.7/redfish/v1/Chassis/1/EnvironmentMetrics`. Plain HTTP is for loopback alone, since
/// it shows the password to the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether it is asked through TLS.
    pub https: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// As the `Host` header has it.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) target: String,
    /// The last segment of the path, as a label.
    pub name: String,
}

/// Why a text is no such URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoAddress(&'static str);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if text.contains('#') {
            return Err(NoAddress("a fragment is not sent to a service: leave out # and what follows"));
        }
        let uri: Uri = text.parse().map_err(|_| NoAddress("not a URL"))?;
        let authority = uri.authority().ok_or(NoAddress("not a URL with a host"))?;
        if authority.as_str().contains('@') {
            return Err(NoAddress(
                "user and password belong in the credentials file: everybody can see a command line",
            ));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if is_loopback(&host) => false,
            Some("http") => return Err(NoAddress("http is for loopback alone: use https")),
            _ => return Err(NoAddress("neither https nor http")),
        };
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") if https => 443,
            Some("") => 80,
            Some(port) => port.strip_prefix(':').and_then(|port| port.parse().ok()).unwrap_or(0),
            None => 0,
        };
        if port == 0 {
            return Err(NoAddress("not a port"));
        }
        let segment = uri.path().split('/').rfind(|segment| !segment.is_empty());
        let name = segment.ok_or(NoAddress(
            "no resource: a path such as /redfish/v1/Chassis/1/EnvironmentMetrics is needed",
        ))?;
        let name = label_text(name.as_bytes());
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(Self { https, host, port, authority: authority.to_string(), target, name })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        text.parse().map_err(|error: NoAddress| error.to_string())
    }

    #[test]
    fn a_url_has_host_port_and_resource() {
        let address = parse("https://bmc7.site/redfish/v1/Chassis/1/EnvironmentMetrics").unwrap();
        assert_eq!((address.https, address.host.as_str(), address.port), (true, "bmc7.site", 443));
        assert_eq!(address.name, "EnvironmentMetrics");
        let address =
            parse("https://[fe80::1]:8443/redfish/v1/Chassis/1/Power/?$select=PowerControl").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("fe80::1", 8443));
        assert_eq!((address.authority.as_str(), address.name.as_str()), ("[fe80::1]:8443", "Power"));
        assert_eq!(address.target, "/redfish/v1/Chassis/1/Power/?$select=PowerControl");
        assert_eq!(parse("https://169.254.0.17/redfish/v1/Chassis/1/Power").unwrap().host, "169.254.0.17");
    }

    #[test]
    fn plain_http_is_for_loopback_alone() {
        for loopback in ["http://127.0.0.1:8000/a", "http://[::1]/a", "http://localhost/a"] {
            assert!(!parse(loopback).unwrap().https, "{loopback}");
        }
        assert_eq!(parse("http://127.0.0.1/a").unwrap().port, 80);
        for other in ["http://192.0.2.7/a", "http://bmc/a", "http://localhost.example/a"] {
            assert_eq!(parse(other).unwrap_err(), "http is for loopback alone: use https", "{other}");
        }
    }

    #[test]
    fn what_is_not_such_a_url_is_refused_and_a_password_is_not_repeated() {
        for bad in [
            "",
            "bmc",
            "bmc/a",
            "/redfish",
            "ftp://bmc/a",
            "https://",
            "https:///a",
            "https://bmc",
            "https://bmc/",
            "https://bmc:0/a",
            "https://bmc:/a",
            "https://bmc:99999/a",
            "https://bmc/a#/PowerControl/0",
            "https://b mc/a",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let error = parse("https://root:calvin@bmc/redfish").unwrap_err();
        assert!(error.contains("credentials file") && !error.contains("calvin"), "{error}");
    }
}
