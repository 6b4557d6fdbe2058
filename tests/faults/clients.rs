//! Clients that are slow, rude or gone, against the real binary. Rows 21, 22 and 37; the web tests have every case.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use jobledger_testkit::http;

use crate::support::*;

/// Row 21.
#[test]
fn slow_clients_are_closed_and_delay_no_scrape() {
    let node = Node::with_jobs([1]);
    let exporter = node.start(&[]);
    let mut slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(exporter.address()).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    let (slept, _) = quiet_time(|| scrape(&exporter));
    assert!(slept < Duration::from_secs(3), "{slept:?}");
    let (slept, ()) = quiet_time(|| {
        for stream in &mut slow {
            stream.set_read_timeout(Some(LONGEST)).unwrap();
            let mut said = Vec::new();
            // A reset closes it, too.
            let _ = stream.read_to_end(&mut said);
        }
    });
    assert!(slept < Duration::from_secs(8), "5 s is the limit for a head: {slept:?}");
}

/// Row 21.
#[test]
fn large_heads_bodies_and_other_methods_are_refused() {
    let node = Node::with_jobs([1]);
    let exporter = node.start(&[]);
    let ask = |method: &str, headers: &[(&str, &str)]| {
        http::request(exporter.address(), method, "/metrics", headers, QUIET).unwrap().status
    };
    assert_eq!(ask("GET", &[("X-Large", &"y".repeat(17 << 10))]), 431);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(ask(method, &[]), 405, "{method}");
    }
    let mut stream = TcpStream::connect(exporter.address()).unwrap();
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    let two = "GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2);
    stream.write_all(two.replacen("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n", 1).as_bytes()).unwrap();
    stream.write_all(b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 3, "pipelined requests are answered in turn: {said}");
    assert_eq!(scrape(&exporter).value("jobledger_exporter_scrapes_total", &[]), Some(1.0));
}

/// Row 22.
#[test]
fn clients_that_leave_are_not_logged_and_affect_no_one() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&["--log.level=info"]);
    for _ in 0..100 {
        let mut stream = TcpStream::connect(exporter.address()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        // With data unread, closing resets the connection.
        drop(stream);
    }
    // Requests in progress occupy their slots for a moment.
    let free =
        || http::get(exporter.address(), "/metrics", &[], QUIET).is_ok_and(|answer| answer.status == 200);
    jobledger_testkit::eventually("their places are free", free);
    let now = scrape(&exporter);
    assert_eq!(user_seconds(&now, 3), Some(3.0));
    let log = exporter.log();
    // One line for each unsupported collector, and none for a client.
    assert!(log.lines().count() < 20, "{log}");
    let open = |e| scrape(e).value("process_open_fds", &[]).unwrap();
    assert!(open(&exporter) < 60.0, "connections are closed");
}

/// Row 37.
#[test]
fn malformed_requests_are_refused_with_a_short_text() {
    let node = Node::with_jobs([1]);
    let exporter = node.start(&[]);
    let many = |n: usize| vec!["collect[]=cpu"; n].join("&");
    for (query, status) in [
        (many(100), 200),
        (many(101), 400),
        (many(1000), 400),
        ("x=1&".repeat(1000), 400),
        ("collect[]=none".to_owned(), 400),
        ("collect[]=%ff%00".to_owned(), 400),
        (format!("collect[]={}", "a".repeat(9000)), 400),
        ("collect[]=cpu&exclude[]=cpu".to_owned(), 400),
        ("debug=1&name[]=x".to_owned(), 200),
    ] {
        let answer = http::get(exporter.address(), &format!("/metrics?{query}"), &[], QUIET).unwrap();
        assert_eq!(answer.status, status, "{query}");
        assert!(status == 200 || answer.body.len() < 2000, "{query}: {}", answer.text());
    }
    for path in ["/metrics/../metrics", "//metrics", "/%2e%2e/etc/passwd", "/metrics%00"] {
        assert_eq!(http::get(exporter.address(), path, &[], QUIET).unwrap().status, 404, "{path}");
    }
}
