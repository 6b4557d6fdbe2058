//! Who counts as a reader: a client that keeps what it reads, so that the end of a job need not be kept for it any more.
//!
//! Any user of a node can send any request from that node. So a client is a reader if the site says so (`--web.scrapers`,
//! a login), or, where the site says nothing, if it comes from elsewhere and sends Prometheus' header.

use std::net::{IpAddr, UdpSocket};

use exporter_toolkit::Client;
use slurm_jobs::Reader;

/// What a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// It keeps what it reads.
    Reader(Reader),
    /// A Prometheus on this node, where the site has not said that it is one.
    Local,
    /// A Prometheus that is not in `--web.scrapers`.
    Unlisted,
    /// Anybody else.
    Other,
}

/// The role of a client. `has_scrapers` is whether the site has set `--web.scrapers`, `is_own` whether this node has an
/// address.
pub(super) fn role(client: &Client, has_scrapers: bool, is_own: impl Fn(IpAddr) -> bool) -> Role {
    let address = client.address.ip().to_canonical();
    if let Some(user) = &client.user {
        return Role::Reader(Reader::User(user.clone()));
    }
    if client.scraper {
        return Role::Reader(Reader::Address(address));
    }
    if !client.prometheus {
        return Role::Other;
    }
    if has_scrapers {
        return Role::Unlisted;
    }
    let is_local = address.is_loopback() || address == client.local.ip().to_canonical() || is_own(address);
    if is_local { Role::Local } else { Role::Reader(Reader::Address(address)) }
}

/// Whether this node has an address: a socket can be bound to it. If that cannot be found out, it counts as the node's own.
pub(super) fn is_own(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS: &str = "10.0.0.9:40000";

    fn client(address: &str) -> Client {
        Client {
            address: address.parse().unwrap(),
            local: "10.0.0.1:9810".parse().unwrap(),
            user: None,
            prometheus: true,
            scraper: false,
        }
    }

    fn at(address: &str) -> Role {
        Role::Reader(Reader::Address(address.parse().unwrap()))
    }

    #[test]
    fn where_the_site_says_nothing_a_prometheus_elsewhere_is_a_reader() {
        let is_own = |address| address == "10.1.0.1".parse::<IpAddr>().unwrap();
        for (address, wanted) in [
            (PROMETHEUS, at("10.0.0.9")),
            ("[::ffff:10.0.0.9]:4", at("10.0.0.9")),
            ("[fd00::9]:4", at("fd00::9")),
            ("127.0.0.1:4", Role::Local),
            ("[::1]:4", Role::Local),
            ("[::ffff:127.0.0.1]:4", Role::Local),
            ("10.0.0.1:4", Role::Local),
            ("10.1.0.1:4", Role::Local),
        ] {
            assert_eq!(role(&client(address), false, is_own), wanted, "{address}");
        }
        let plain = Client { prometheus: false, ..client(PROMETHEUS) };
        assert_eq!(role(&plain, false, is_own), Role::Other, "curl, a browser");
    }

    #[test]
    fn where_the_site_names_its_scrapers_they_alone_are_readers() {
        assert_eq!(role(&client(PROMETHEUS), true, |_| false), Role::Unlisted);
        let listed = |address| Client { scraper: true, prometheus: false, ..client(address) };
        assert_eq!(role(&listed("127.0.0.1:4"), true, |_| true), at("127.0.0.1"));
        assert_eq!(role(&listed(PROMETHEUS), true, |_| false), at("10.0.0.9"));
    }

    #[test]
    fn who_logs_in_is_a_reader_by_name_wherever_he_is() {
        let alice = Client { user: Some("alice".to_owned()), prometheus: false, ..client("127.0.0.1:4") };
        for has_scrapers in [false, true] {
            let wanted = Role::Reader(Reader::User("alice".to_owned()));
            assert_eq!(role(&alice, has_scrapers, |_| true), wanted);
        }
    }

    #[test]
    fn the_addresses_of_this_node_are_its_own() {
        assert!(is_own([127, 0, 0, 1].into()));
        // TEST-NET-3 (RFC 5737): no node has it.
        assert!(!is_own([203, 0, 113, 7].into()));
    }
}
