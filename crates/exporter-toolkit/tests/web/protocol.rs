//! Paths, methods and connections.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use exporter_toolkit::{WebConfigHandle, WebOptions};
use jobledger_testkit::eventually;

use crate::support::{Double, Server, ask, quick, read_answer};

#[test]
fn every_path_answers_for_itself() {
    let server = Server::start(quick(), Double::default());
    let landing = server.get("/", "");
    assert_eq!((landing.status, landing.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(landing.text().contains("<h1>Test exporter 1.2.3</h1>"));
    assert!(landing.text().contains("<p>Measures what the tests want. 3 jobs are running.</p>"));
    assert!(landing.text().contains("<a href=\"/own\">Own page</a>"));
    assert!(landing.text().contains("denied: &lt;CAP_SYS_RAWIO&gt;"));
    assert_eq!(server.get("/-/healthy", "").text(), "healthy\n");
    assert_eq!(server.get("/-/ready", "").text(), "ready\n");
    assert_eq!(server.get("http://node:1/-/healthy?x=y", "").status, 200);
    let own = server.get("/own", "");
    assert_eq!((own.status, own.header("content-type"), own.text()), (200, Some("application/json"), "{}"));
    for path in ["/nothing", "/metrics/", "/-/reload", "/-/quit", "/../metrics", "/favicon.ico", "//"] {
        let answer = server.get(path, "");
        assert_eq!((answer.status, answer.text()), (404, "Not Found\n"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn an_exporter_that_is_not_ready_says_why() {
    let exporter = Double { ready: Err("the first walk is not done".to_owned()), ..Double::default() };
    let server = Server::start(quick(), exporter);
    let answer = server.get("/-/ready", "");
    assert_eq!((answer.status, answer.text()), (503, "the first walk is not done\n"));
    assert_eq!(server.get("/-/healthy", "").status, 200);
    assert!(server.get("/", "").text().contains("Not ready: the first walk is not done"));
}

#[test]
fn the_telemetry_path_can_be_any_even_the_root() {
    let server =
        Server::start(WebOptions { telemetry_path: "/node".to_owned(), ..quick() }, Double::default());
    assert_eq!(server.get("/node", "").status, 200);
    assert_eq!(server.get("/metrics", "").status, 404);
    assert!(server.get("/", "").text().contains("href=\"/node\""));
    let server = Server::start(WebOptions { telemetry_path: "/".to_owned(), ..quick() }, Double::default());
    assert!(server.get("/", "").text().contains("cpu_seconds_total"));
}

#[test]
fn only_get_and_head() {
    let server = Server::start(quick(), Double::default());
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
        for path in ["/metrics", "/", "/nothing"] {
            let answer = ask(&mut server.connect(), method, path, "").unwrap();
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method} {path}");
        }
    }
    assert!(server.exporter.asked.lock().unwrap().is_empty());
}

#[test]
fn head_is_get_without_the_body() {
    let server = Server::start(quick(), Double::default());
    for path in ["/metrics", "/", "/-/healthy", "/nothing"] {
        let mut connection = server.connect();
        let get = ask(&mut connection, "GET", path, "").unwrap();
        let head = ask(&mut connection, "HEAD", path, "").unwrap();
        assert_eq!(head.status, get.status);
        for name in ["content-length", "content-type", "vary"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {path}");
        }
        // The connection goes on, so that no byte of a body was behind the head.
        assert_eq!(ask(&mut connection, "GET", "/-/healthy", "").unwrap().text(), "healthy\n");
    }
}

#[test]
fn bodies_are_never_waited_for() {
    let server = Server::start(quick(), Double::default());
    for (method, status) in [("POST", 405), ("GET", 200)] {
        for length in ["Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"] {
            let headers = format!("{length}Expect: 100-continue\r\n");
            let answer = ask(&mut server.connect(), method, "/-/healthy", &headers).unwrap();
            assert_eq!(
                (answer.status, answer.header("connection")),
                (status, Some("close")),
                "{method} {length}"
            );
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
    let paths = ["/-/healthy", "/metrics", "/nothing", "/-/ready"];
    connection.write_all(paths.map(request).concat().repeat(20).as_bytes()).unwrap();
    for _ in 0..20 {
        let statuses = paths.map(|_| read_answer(&mut connection, false).unwrap().status);
        assert_eq!(statuses, [200, 200, 404, 200]);
    }
}

#[test]
fn old_clients_are_served_and_their_connection_closed() {
    let server = Server::start(quick(), Double::default());
    let mut connection = server.connect();
    connection.write_all(b"GET /-/healthy HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(read_answer(&mut connection, false).unwrap().text(), "healthy\n");
    assert!(read_answer(&mut connection, false).is_err());
}

#[test]
fn both_address_families_are_served() {
    let config = WebConfigHandle::load(None).unwrap();
    let server = Server::start_with(quick(), Double::default(), config, "[::1]:0");
    assert_eq!(server.get("/-/healthy", "").status, 200);
}

#[test]
fn stopping_lets_answers_out_and_closes_what_is_idle() {
    let exporter = Double { takes: Some(Duration::from_millis(500)), ..Double::default() };
    let mut server = Server::start(quick(), exporter);
    let idle = server.connect();
    let mut kept = server.connect();
    assert_eq!(ask(&mut kept, "GET", "/-/healthy", "").unwrap().status, 200);
    let mut scraping = server.connect();
    scraping.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let under_way = server.exporter.under_way.clone();
    eventually("the scrape begins", || under_way.load(Ordering::SeqCst) == 1);

    let took = server.stop();
    assert!(took < quick().drain_timeout, "{took:?}");
    assert_eq!(read_answer(&mut scraping, false).unwrap().status, 200);
    drop(idle);
}

#[test]
fn stopping_waits_no_longer_than_it_may() {
    let mut server = Server::start(quick(), Double { takes: None, ..Double::default() });
    let mut scraping = server.connect();
    scraping.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let under_way = server.exporter.under_way.clone();
    eventually("the scrape begins", || under_way.load(Ordering::SeqCst) == 1);
    let took = server.stop();
    assert!(took >= quick().drain_timeout && took < quick().drain_timeout * 2, "{took:?}");
    assert_eq!(under_way.load(Ordering::SeqCst), 0, "the scrape is given up");
}
