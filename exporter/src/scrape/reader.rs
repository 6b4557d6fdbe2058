//! Who counts as a reader: a client that keeps what it reads, so that the end of a job need not be kept for it any more.
//!
//! Any user of a node can send any request from that node. So a client is a reader if the site says so (`--web.scrapers`,
//! a login), or, where the site says nothing, if it comes from elsewhere and sends Prometheus' header.

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

/// The role of a client. `has_scrapers` is whether the site has set `--web.scrapers`.
pub(super) fn role(client: &Client, has_scrapers: bool) -> Role {
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
    if client.local { Role::Local } else { Role::Reader(Reader::Address(address)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS: &str = "10.0.0.9:40000";

    fn client(address: &str) -> Client {
        Client {
            address: address.parse().unwrap(),
            local: false,
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
        for (address, wanted) in [
            (PROMETHEUS, at("10.0.0.9")),
            ("[::ffff:10.0.0.9]:4", at("10.0.0.9")),
            ("[fd00::9]:4", at("fd00::9")),
        ] {
            assert_eq!(role(&client(address), false), wanted, "{address}");
            assert_eq!(role(&Client { local: true, ..client(address) }, false), Role::Local, "{address}");
        }
        let plain = Client { prometheus: false, ..client(PROMETHEUS) };
        assert_eq!(role(&plain, false), Role::Other, "curl, a browser");
    }

    #[test]
    fn where_the_site_names_its_scrapers_they_alone_are_readers() {
        assert_eq!(role(&client(PROMETHEUS), true), Role::Unlisted);
        let listed = |address| Client { scraper: true, prometheus: false, ..client(address) };
        assert_eq!(role(&listed("127.0.0.1:4"), true), at("127.0.0.1"));
        assert_eq!(role(&listed(PROMETHEUS), true), at("10.0.0.9"));
    }

    #[test]
    fn who_logs_in_is_a_reader_by_name_wherever_he_is() {
        let alice = Client { user: Some("alice".to_owned()), prometheus: false, ..client("127.0.0.1:4") };
        for has_scrapers in [false, true] {
            let wanted = Role::Reader(Reader::User("alice".to_owned()));
            assert_eq!(role(&alice, has_scrapers), wanted);
        }
    }
}
