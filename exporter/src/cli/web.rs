//! Flags of the web server.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use exporter_toolkit::{Network, WebOptions, parse_listen_address, parse_telemetry_path};

use super::{duration, flag, one, switch};

/// A shorter one would leave no time to collect.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn flags() -> Vec<Arg> {
    vec![
        flag("web.listen-address")
            .value_name("ADDRESS")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .default_value(":9810")
            .value_parser(parse_listen_address)
            .help("Address to listen on, as in :9810, 127.0.0.1:9810 or [::1]:9810; may be repeated"),
        switch("web.systemd-socket").help("Use the sockets that systemd hands over instead of --web.listen-address"),
        flag("web.config.file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("TLS and basic authentication, in the format of the Prometheus exporter-toolkit; read again on SIGHUP"),
        flag("web.telemetry-path")
            .value_name("PATH")
            .default_value("/metrics")
            .value_parser(parse_telemetry_path)
            .help("Path of the metrics"),
        flag("web.max-requests")
            .value_name("N")
            .default_value("40")
            .value_parser(value_parser!(usize))
            .help("Most scrapes in flight; one more waits, and gets 503 at its deadline. 0 for no limit"),
        flag("web.max-connections")
            .value_name("N")
            .default_value("256")
            .value_parser(value_parser!(usize))
            .help("Most open connections, and at most a quarter of the open files; beyond that one that is half open, idle or not read is closed"),
        flag("web.scrapers")
            .value_name("CIDR")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(value_parser!(Network))
            .help("Address or network of the site's Prometheus, as in 10.0.0.5 or fd00::/64; it has places of its own, goes first and has no rate limit; may be repeated"),
        duration("web.timeout-offset", "500ms")
            .help("How long before Prometheus' own scrape timeout an answer is sent with what is complete by then"),
    ]
}

pub(super) fn parse(matches: &ArgMatches) -> Result<WebOptions, clap::Error> {
    Ok(WebOptions {
        telemetry_path: one(matches, "web.telemetry-path")?,
        max_requests: one(matches, "web.max-requests")?,
        max_connections: one(matches, "web.max-connections")?,
        scrapers: matches.get_many("web.scrapers").into_iter().flatten().copied().collect(),
        timeout_offset: one(matches, "web.timeout-offset")?,
        default_scrape_timeout: one::<Duration>(matches, "scrape.timeout")?.max(SHORTEST_TIMEOUT),
        ..WebOptions::default()
    })
}
