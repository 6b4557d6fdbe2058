//! What the exporter learns about who asks.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exporter_toolkit::{Client, WebConfigHandle, WebOptions};
use jobledger_testkit::eventually;

use crate::support::{Dir, Double, Server, ask, quick};

#[test]
fn an_exporter_learns_who_asks() {
    let dir = Dir::new();
    let hash = bcrypt::hash("right", 4).unwrap();
    let config = dir.put("web.yml", &format!("basic_auth_users:\n  alice: {hash}\n"));
    for (scrapers, scraper) in [("10.0.0.0/8", false), ("::ffff:127.0.0.0/104", true)] {
        let options = WebOptions { scrapers: vec![scrapers.parse().unwrap()], ..quick() };
        let config = WebConfigHandle::load(Some(&config)).unwrap();
        let server = Server::start_with(options, Double::default(), config, "127.0.0.1:0");
        let login = format!("Authorization: Basic {}\r\n", STANDARD.encode("alice:right"));
        let mut connection = server.connect();
        for headers in [login.clone(), format!("{login}X-Prometheus-Scrape-Timeout-Seconds: 5\r\n")] {
            assert_eq!(ask(&mut connection, "GET", "/metrics", &headers).unwrap().status, 200);
        }
        let plain = Client {
            address: connection.local_addr().unwrap(),
            local: true,
            user: Some("alice".to_owned()),
            prometheus: false,
            scraper,
        };
        let prometheus = Client { prometheus: true, ..plain.clone() };
        assert_eq!(*server.exporter.clients.lock().unwrap(), [plain, prometheus]);
    }
}

#[test]
fn without_users_nobody_has_a_name() {
    let server = Server::start(quick(), Double::default());
    let login = format!("Authorization: Basic {}\r\n", STANDARD.encode("alice:right"));
    assert_eq!(server.get("/metrics", &login).status, 200);
    let clients = server.exporter.clients.lock().unwrap();
    assert!(clients.iter().all(|client| client.user.is_none() && !client.scraper), "{clients:?}");
}

/// Which answers the exporter learns that their clients got.
#[test]
fn an_answer_counts_as_delivered_with_its_last_byte() {
    let options = WebOptions { write_timeout: Duration::from_secs(20), ..quick() };
    let server = Server::start(options, Double::large(16));
    let delivered = || server.exporter.delivered.load(Ordering::SeqCst);
    let mut head = server.connect();
    assert_eq!(ask(&mut head, "HEAD", "/metrics", "").unwrap().status, 200);
    assert_eq!(server.get("/-/healthy", "").status, 200);
    // Reads the first byte, and leaves.
    let mut leaving = server.connect();
    leaving
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: application/openmetrics-text\r\n\r\n")
        .unwrap();
    leaving.read_exact(&mut [0]).unwrap();
    drop(leaving);
    assert_eq!(delivered(), 0);
    for (nth, headers) in ["", "Accept: application/openmetrics-text\r\n"].iter().enumerate() {
        assert_eq!(server.get("/metrics", headers).status, 200);
        eventually("its delivery", || delivered() == nth + 1);
    }
    let small = Server::start(quick(), Double::default());
    assert_eq!(small.get("/metrics", "Accept-Encoding: gzip\r\n").status, 200);
    eventually("its delivery", || small.exporter.delivered.load(Ordering::SeqCst) == 1);
}
