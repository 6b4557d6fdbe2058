//! Clients that are slow, silent, endless, too many, or gone. None of them costs the others anything.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use exporter_toolkit::WebOptions;
use jobledger_testkit::eventually;

use crate::support::{Double, Server, ask, is_end, quick, read_answer, until_closed};

/// For the format that is sent as it lies, since the others take their time in a debug build.
const LARGE_REQUEST: &[u8] =
    b"GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: application/openmetrics-text\r\n\r\n";

/// With limits that no test waits for.
fn patient() -> WebOptions {
    let long = Duration::from_secs(30);
    WebOptions { header_timeout: long, write_timeout: long, idle_timeout: long, ..quick() }
}

/// Generous, since the machine may be busy, and still far from the next longer limit.
fn assert_about(took: Duration, wanted: Duration) {
    let latest = wanted + Duration::from_millis(1800);
    assert!(took >= wanted && took < latest, "{took:?} instead of {wanted:?}");
}

#[test]
fn a_client_that_sends_nothing_is_closed() {
    let server = Server::start(quick(), Double::default());
    let started = Instant::now();
    let (took, said) = until_closed(&mut server.connect(), started);
    assert_about(took, quick().header_timeout);
    assert!(said.is_empty());
}

#[test]
fn slowloris_is_closed_although_it_keeps_sending() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    let started = Instant::now();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n").unwrap();
    while connection.write_all(b"X-Slow: y\r\n").is_ok() {
        assert!(started.elapsed() < Duration::from_secs(5), "still taken");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_about(started.elapsed(), quick().header_timeout);
}

#[test]
fn two_hundred_slow_clients_do_not_keep_a_scrape_waiting() {
    let server = Server::start(quick(), Double::default());
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut connection = server.connect();
            connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
            connection
        })
        .collect();
    let started = Instant::now();
    assert_eq!(server.get("/metrics", "").status, 200);
    assert!(started.elapsed() < quick().header_timeout);
    drop(slow);
}

#[test]
fn a_slow_second_request_has_the_header_limit_and_not_the_idle_one() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    assert_eq!(ask(&mut connection, "GET", "/-/healthy", "").unwrap().status, 200);
    std::thread::sleep(quick().header_timeout * 2);
    let started = Instant::now();
    connection.write_all(b"GET /").unwrap();
    assert_about(until_closed(&mut connection, started).0, quick().header_timeout);
}

#[test]
fn a_connection_is_kept_between_scrapes_and_no_longer_than_it_may() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    for _ in 0..2 {
        assert_eq!(ask(&mut connection, "GET", "/metrics", "").unwrap().status, 200);
        std::thread::sleep(quick().header_timeout * 2);
    }
    assert_eq!(ask(&mut connection, "GET", "/metrics", "").unwrap().status, 200);
    let started = Instant::now();
    assert_about(until_closed(&mut connection, started).0, quick().idle_timeout);
}

#[test]
fn a_scrape_that_takes_longer_than_every_limit_is_not_cut_off() {
    let takes = quick().idle_timeout + quick().header_timeout + Duration::from_millis(300);
    let server = Server::start(quick(), Double { takes: Some(takes), ..Double::default() });
    assert_eq!(server.get("/metrics", "").status, 200);
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let server = Server::start(quick(), Double::large(20));
    let mut connection = server.connect();
    connection.write_all(LARGE_REQUEST).unwrap();
    std::thread::sleep(quick().write_timeout + Duration::from_millis(900));
    let mut taken = Vec::new();
    let ended = connection.read_to_end(&mut taken);
    assert!(ended.is_ok() || ended.as_ref().is_err_and(is_end), "{ended:?}");
    assert!(taken.len() < 20 << 20, "all of it was sent");
}

#[test]
fn a_client_that_reads_in_sips_is_closed_too() {
    let server = Server::start(quick(), Double::large(20));
    let mut connection = server.connect();
    connection.write_all(LARGE_REQUEST).unwrap();
    let started = Instant::now();
    let mut sip = vec![0; 64 * 1024];
    let mut taken = 0;
    let took = loop {
        match connection.read(&mut sip) {
            Ok(0) => break started.elapsed(),
            Err(error) if is_end(&error) => break started.elapsed(),
            Ok(length) => taken += length,
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(taken < 20 << 20, "all of it was sent, in {took:?}");
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let server = Server::start(quick(), Double::default());
    assert_eq!(server.get("/-/healthy", &format!("X: {}\r\n", "y".repeat(14 * 1024))).status, 200);
    for headers in [format!("X: {}\r\n", "y".repeat(17 * 1024)), "X: y\r\n".repeat(101)] {
        let mut connection = server.connect();
        assert_eq!(ask(&mut connection, "GET", "/-/healthy", &headers).unwrap().status, 431);
        until_closed(&mut connection, Instant::now());
    }
    let mut endless = server.connect();
    let started = Instant::now();
    let _ = endless.write_all(b"GET /");
    while endless.write_all(&[b'a'; 4096]).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(5), "still taken");
    }
}

#[test]
fn what_is_no_http_is_refused() {
    let server = Server::start(quick(), Double::default());
    for garbage in
        ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/3\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let mut connection = server.connect();
        connection.write_all(garbage.as_bytes()).unwrap();
        let (_, said) = until_closed(&mut connection, Instant::now());
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 400 "), "{garbage:?}");
    }
}

#[test]
fn a_client_that_leaves_takes_its_scrape_along() {
    let server = Server::start(quick(), Double { takes: None, ..Double::default() });
    let mut connection = server.connect();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    eventually("the scrape begins", || server.exporter.under_way.load(Ordering::SeqCst) == 1);
    drop(connection);
    eventually("the scrape ends", || server.exporter.under_way.load(Ordering::SeqCst) == 0);
    assert_eq!(server.get("/-/healthy", "").status, 200);
}

#[test]
fn beyond_the_limit_a_half_open_connection_is_closed_and_one_that_scraped_is_kept() {
    let server = Server::start(WebOptions { max_connections: 16, ..patient() }, Double::default());
    let mut kept = server.connect();
    assert_eq!(ask(&mut kept, "GET", "/metrics", "").unwrap().status, 200);
    let mut half: Vec<_> = (0..100)
        .map(|_| {
            let mut connection = server.connect();
            // The server may have closed it already.
            let _ = connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
            connection
        })
        .collect();
    let started = Instant::now();
    for _ in 0..5 {
        assert_eq!(server.get("/metrics", "").status, 200);
        let answer = ask(&mut kept, "GET", "/metrics", "").unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, None));
    }
    assert!(started.elapsed() < patient().header_timeout, "it waited for the others' time to be up");
    let (_, said) = until_closed(&mut half[0], started);
    assert!(said.is_empty());
    let stats = server.monitor.stats();
    let count = |counts: &[(&str, u64)], name: &str| counts.iter().find(|(key, _)| *key == name).unwrap().1;
    assert!(count(&stats.evicted, "half_open") >= 80, "{stats:?}");
    assert_eq!(count(&stats.rejected, "place"), 0, "{stats:?}");
    assert!(stats.connections.iter().map(|(_, count)| count).sum::<usize>() <= 16, "{stats:?}");
}

#[test]
fn a_kept_connection_that_is_idle_makes_way() {
    let server = Server::start(WebOptions { max_connections: 2, ..patient() }, Double::default());
    let mut first = server.connect();
    assert_eq!(ask(&mut first, "GET", "/metrics", "").unwrap().status, 200);
    let mut second = server.connect();
    assert_eq!(ask(&mut second, "GET", "/-/healthy", "").unwrap().status, 200);
    for _ in 0..3 {
        assert_eq!(server.get("/metrics", "").status, 200);
    }
    until_closed(&mut second, Instant::now());
    assert_eq!(ask(&mut first, "GET", "/metrics", "").unwrap().status, 200, "it has scraped first");
}

#[test]
fn the_sites_scraper_has_a_place_whoever_has_all_others() {
    let exporter = Double { takes: None, ..Double::default() };
    // Only the second address is a scraper's.
    let scrapers = vec!["127.0.0.2".parse().unwrap()];
    let server = Server::start(WebOptions { max_connections: 8, scrapers, ..patient() }, exporter);
    let mut busy: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for connection in &mut busy {
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    }
    eventually("all places are taken", || server.exporter.under_way.load(Ordering::SeqCst) == 6);
    let mut refused = server.connect();
    let _ = refused.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: node\r\n\r\n");
    let (_, said) = until_closed(&mut refused, Instant::now());
    assert!(said.is_empty(), "{said:?}");
    let mut scraper = server.connect_from("127.0.0.2");
    assert_eq!(ask(&mut scraper, "GET", "/-/healthy", "").unwrap().status, 200);
    assert!(server.monitor.stats().rejected.contains(&("place", 1)));
}

#[test]
fn a_request_cut_in_pieces_is_one_request() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    for byte in b"GET /-/healthy HTTP/1.1\r\nHost: node\r\n\r\n" {
        connection.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(read_answer(&mut connection, false).unwrap().text(), "healthy\n");
}
