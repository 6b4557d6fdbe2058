//! What the exporter learns about who asks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exporter_toolkit::{Client, WebConfigHandle, WebOptions};

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
            local: server.address,
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
