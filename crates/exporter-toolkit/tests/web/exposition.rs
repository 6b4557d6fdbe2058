//! `/metrics`: formats, compression, selections, deadlines, and how many at once.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use exporter_toolkit::{Bytes, ScrapeError, WebOptions};
use jobledger_testkit::eventually;

use crate::support::{Double, OPENMETRICS, Server, TEXT, quick, read_answer};

const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Prometheus 3 with its defaults (scrape/scrape.go), down to the spelling of its header names.
const PROMETHEUS: &str = "Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
    text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\nUser-Agent: Prometheus/3.5.0\r\n\
    X-Prometheus-Scrape-Timeout-Seconds: 8\r\n";

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_format_is_the_one_that_was_asked_for() {
    const PROTOBUF: &str = "Accept: application/vnd.google.protobuf;\
        proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";
    let server = Server::start(quick(), Double::default());
    for (accept, content_type, body) in [
        ("", TEXT_TYPE, TEXT),
        ("Accept: */*\r\n", TEXT_TYPE, TEXT),
        ("Accept: application/openmetrics-text; version=1.0.0\r\n", OPENMETRICS_TYPE, OPENMETRICS),
        (PROTOBUF, TEXT_TYPE, TEXT),
    ] {
        let answer = server.get("/metrics", accept);
        assert_eq!(answer.header("content-type"), Some(content_type), "{accept}");
        assert_eq!(answer.text(), body);
        assert_eq!(answer.header("vary"), Some("Accept, Accept-Encoding"));
        assert_eq!(answer.header("content-encoding"), None);
    }
    let double = Double { protobuf: Some(Bytes::from_static(&[0xff, 0x00, b'\n'])), ..Double::default() };
    let answer = Server::start(quick(), double).get("/metrics", PROTOBUF);
    let wanted =
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    assert_eq!(answer.header("content-type"), Some(wanted));
    assert_eq!(answer.body, [0xff, 0x00, b'\n'], "an exporter that writes it is asked for it");
}

#[test]
fn prometheus_gets_compressed_openmetrics_and_its_timeout_is_kept() {
    let server = Server::start(quick(), Double::default());
    let answer = server.get("/metrics", PROMETHEUS);
    assert_eq!(answer.header("content-type"), Some(OPENMETRICS_TYPE));
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(gunzip(&answer.body), OPENMETRICS);
    let answer = server.get("/metrics", "Accept-Encoding: gzip\r\n");
    assert_eq!(gunzip(&answer.body), TEXT);

    let asked = server.exporter.asked.lock().unwrap();
    let [(_, eight), (_, default)] = &asked[..] else { panic!("{asked:?}") };
    let near = |left: &Duration, wanted: f64| (wanted - 0.4..=wanted).contains(&left.as_secs_f64());
    assert!(near(eight, 7.5) && near(default, 9.5), "{asked:?}");
}

#[test]
fn a_large_exposition_arrives_whole_in_every_form() {
    let server = Server::start(quick(), Double::large(2));
    let whole = |bytes| std::str::from_utf8(bytes).unwrap();
    let (openmetrics, text) = (whole(&server.exporter.openmetrics), whole(&server.exporter.text));
    assert_eq!(server.get("/metrics", "Accept: application/openmetrics-text\r\n").text(), openmetrics);
    assert_eq!(server.get("/metrics", "").text(), text);
    let gzip = server.get("/metrics", "Accept-Encoding: gzip\r\n");
    assert!(gzip.body.len() < text.len() / 2);
    assert_eq!(gunzip(&gzip.body), text);
}

#[test]
fn collectors_are_selected_by_name() {
    let server = Server::start(quick(), Double::default());
    assert_eq!(server.get("/metrics?collect[]=cpu&collect%5B%5D=energy", "").status, 200);
    assert_eq!(server.get("/metrics?exclude[]=energy", "").status, 200);
    let asked = server.exporter.asked.lock().unwrap();
    assert_eq!(asked[0].0.collect.iter().copied().collect::<Vec<_>>(), ["cpu", "energy"]);
    assert!(asked[1].0.exclude.contains("energy") && asked[1].0.collect.is_empty());
}

#[test]
fn a_selection_that_makes_no_sense_is_refused_before_anything_is_collected() {
    let server = Server::start(quick(), Double::default());
    for (query, wanted) in [
        ("collect[]=nope".to_owned(), "unknown collector \"nope\"; enabled are: cpu, energy\n"),
        ("collect[]=perf".to_owned(), "disabled collector \"perf\"; enabled are: cpu, energy\n"),
        ("collect[]=%3Cb%3E%0A".to_owned(), "unknown collector \"<b>\\n\"; enabled are: cpu, energy\n"),
        ("collect[]=cpu&exclude[]=energy".to_owned(), "collect[] and exclude[] cannot be combined\n"),
        ("collect[]=%ff".to_owned(), "the query is not UTF-8\n"),
        ("a=b&".repeat(101), "more than 100 parameters\n"),
        ("a".repeat(9000), "the query is longer than 8192 bytes\n"),
    ] {
        let answer = server.get(&format!("/metrics?{query}"), "");
        assert_eq!((answer.status, answer.text()), (400, wanted));
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    assert!(server.exporter.asked.lock().unwrap().is_empty());
}

#[test]
fn a_scrape_without_a_result_is_an_error_with_its_reason() {
    for (fails, status, retry) in [
        (ScrapeError::Unavailable("not now".to_owned()), 503, Some("1")),
        (ScrapeError::Failed("not now".to_owned()), 500, None),
    ] {
        let server = Server::start(quick(), Double { fails: Some(fails), ..Double::default() });
        let answer = server.get("/metrics", "");
        assert_eq!(
            (answer.status, answer.text(), answer.header("retry-after")),
            (status, "not now\n", retry)
        );
    }
}

#[test]
fn an_exporter_that_never_answers_does_not_keep_its_client() {
    let server = Server::start(quick(), Double { takes: None, ..Double::default() });
    let started = Instant::now();
    let answer = server.get("/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 0.8\r\n");
    assert_eq!((answer.status, answer.text()), (503, "the scrape did not end by its deadline\n"));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(800) && took < Duration::from_secs(3), "{took:?}");
    assert_eq!(server.exporter.under_way.load(Ordering::SeqCst), 0);
}

#[test]
fn a_hundred_scrapes_at_once_are_all_answered() {
    let exporter = Double { takes: Some(Duration::from_millis(100)), ..Double::default() };
    let server = Server::start(WebOptions { max_requests: 0, ..quick() }, exporter);
    std::thread::scope(|scope| {
        let scrapes: Vec<_> = (0..100).map(|_| scope.spawn(|| server.get("/metrics", PROMETHEUS))).collect();
        for scrape in scrapes {
            let answer = scrape.join().unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(gunzip(&answer.body), OPENMETRICS);
        }
    });
}

#[test]
fn scrapes_beyond_the_limit_wait_and_get_a_retry_after_at_their_deadline() {
    let exporter = Double { takes: Some(Duration::from_millis(1500)), ..Double::default() };
    let server = Server::start(WebOptions { max_requests: 2, ..quick() }, exporter);
    let mut both = [server.connect(), server.connect()];
    for connection in &mut both {
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    }
    eventually("two scrapes are under way", || server.exporter.under_way.load(Ordering::SeqCst) == 2);
    let answer = server.get("/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 0.1\r\n");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert_eq!(server.get("/-/healthy", "").status, 200, "only scrapes are limited");
    assert_eq!(server.get("/metrics", "").status, 200, "one that can wait is served");
    for connection in &mut both {
        assert_eq!(read_answer(connection, false).unwrap().status, 200);
    }
    let stats = server.monitor.stats();
    assert!(stats.rejected.contains(&("scrape", 1)), "{stats:?}");
    assert_eq!(stats.scrapes_waiting, 0);
}

#[test]
fn whoever_does_not_read_keeps_no_scrape_from_others() {
    let options = WebOptions { max_requests: 1, write_timeout: Duration::from_secs(20), ..quick() };
    let server = Server::start(options, Double::large(16));
    let mut lazy: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for connection in &mut lazy {
        let accept = "Accept: application/openmetrics-text";
        connection
            .write_all(format!("GET /metrics HTTP/1.1\r\nHost: node\r\n{accept}\r\n\r\n").as_bytes())
            .unwrap();
    }
    eventually("three answers are unread", || server.monitor.stats().unread_bytes > 16 << 20);
    assert_eq!(server.get("/metrics", "").status, 200);
    for connection in &mut lazy {
        assert_eq!(read_answer(connection, false).unwrap().status, 200, "it may still read");
    }
    eventually("nothing is unread", || server.monitor.stats().unread_bytes == 0);
}

#[test]
fn too_many_unread_bytes_cost_the_one_who_has_not_read_for_longest() {
    let options =
        WebOptions { max_unread_bytes: 24 << 20, write_timeout: Duration::from_secs(20), ..quick() };
    let server = Server::start(options, Double::large(16));
    let request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: application/openmetrics-text\r\n\r\n";
    let mut lazy = Vec::new();
    for nth in 0..5 {
        let mut connection = server.connect();
        connection.write_all(request).unwrap();
        lazy.push(connection);
        eventually("its answer is there", || server.exporter.asked.lock().unwrap().len() > nth);
    }
    let evicted =
        || server.monitor.stats().evicted.into_iter().find(|(reason, _)| *reason == "unread").unwrap().1;
    eventually("the oldest are closed", || evicted() >= 2);
    assert!(read_answer(&mut lazy[0], false).is_err());
    assert_eq!(read_answer(&mut lazy[4], false).unwrap().body.len(), server.exporter.openmetrics.len());
}
