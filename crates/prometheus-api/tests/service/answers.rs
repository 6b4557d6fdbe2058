//! What a server answers, and what becomes of it.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use jobledger_testkit::servers::free_address;
use jobledger_testkit::service::{Reply, Service};
use prometheus_api::{BuildInfo, Client, Error, Kind, Options, Range};

use super::{ONE, ask, options, says};

fn json(body: &str) -> impl Fn(&str) -> Reply + Send + 'static {
    says("200 OK", "Content-Type: application/json\r\n", body)
}

#[tokio::test]
async fn a_request_is_a_form_to_the_path_of_the_url() {
    let server = Service::start(None, json(ONE));
    let url = format!("http://{}/prometheus/", server.address);
    let client = Client::new(&Options { url, ..options(&server) }).unwrap();
    assert_eq!(ask(&client).await, Ok(1.0));
    assert_eq!(ask(&client).await, Ok(1.0));
    let requests = server.requests();
    let (head, form) = requests[0].split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /prometheus/api/v1/query HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("accept-encoding: gzip") && !head.contains("authorization"), "{head}");
    assert_eq!(form, "query=1&time=5.000&timeout=20000ms");
    assert_eq!(server.connections(), 1);
    let log = client.log();
    assert_eq!((log.len(), log[0].expr.as_str(), log[0].series, log[0].points), (2, "1", 1, 1));
    assert_eq!(log[0].bytes, ONE.len() as u64);
}

#[tokio::test]
async fn an_error_says_what_happened_and_what_to_do() {
    let server = Service::start(None, json(ONE));
    let client = Client::new(&options(&server)).unwrap();
    let host = server.address;
    let page = "<html>secret <b>page</b></html>";
    for (status, head, body, kind, text) in [
        (
            "401 No",
            "Content-Type: text/html\r\n",
            page,
            Kind::Server,
            format!(
                "{host} does not accept the credentials, or wants some (401): see the HTTP configuration file"
            ),
        ),
        (
            "401 No",
            "Content-Type: text/plain\r\n",
            "no org id\n",
            Kind::Server,
            format!(
                "{host} does not accept the credentials, or wants some (401): see the HTTP configuration file: no org id"
            ),
        ),
        (
            "403 No",
            "",
            r#"{"message":"no"}"#,
            Kind::Server,
            format!(r#"{host} forbids it for these credentials (403): {{"message":"no"}}"#),
        ),
        (
            "404 No",
            "Content-Type: text/html\r\n",
            page,
            Kind::Server,
            format!("{host} has no /api/v1/query (404): is the path of the URL right?"),
        ),
        (
            "422 No",
            "",
            "{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"many-to-many\\nmatching\\u001b[0m\"}",
            Kind::Server,
            format!("{host} answers with an error (422): many-to-many matching [0m"),
        ),
        (
            "422 No",
            "",
            r#"{"status":"error","data":null,"error":"query processing would load too many samples into memory"}"#,
            Kind::Limit,
            format!(
                "a limit of {host} is exceeded: ask for a shorter time or fewer series: query processing would load too many samples into memory"
            ),
        ),
        (
            "503 No",
            "",
            r#"{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}"#,
            Kind::Limit,
            format!(
                "a limit of {host} is exceeded: ask for a shorter time or fewer series: query timed out in expression evaluation"
            ),
        ),
        (
            "502 No",
            "Content-Type: text/html\r\n",
            page,
            Kind::Server,
            format!("{host} answers with an error (502)"),
        ),
        (
            "200 OK",
            "",
            r#"{"status":"error","error":"odd"}"#,
            Kind::Server,
            format!("{host} answers with an error (200): odd"),
        ),
        (
            "200 OK",
            "Content-Type: text/html; charset=utf-8\r\n",
            page,
            Kind::Server,
            format!("the answer of {host} is not Prometheus' (a web page): is the URL right?"),
        ),
        (
            "200 OK",
            "",
            r#"{"status":"success"}"#,
            Kind::Server,
            format!("the answer of {host} is not Prometheus' (no data): is the URL right?"),
        ),
        (
            "200 OK",
            "Content-Encoding: br\r\n",
            ONE,
            Kind::Server,
            format!(
                "the answer of {host} is not Prometheus' (compressed otherwise than by gzip): is the URL right?"
            ),
        ),
    ] {
        server.answer(says(status, head, body));
        let error = ask(&client).await.unwrap_err();
        assert_eq!((error.to_string(), error.kind()), (text, kind));
    }
    server.answer(says("400 No", "", &format!(r#"{{"status":"error","error":"{}"}}"#, "x".repeat(1000))));
    assert!(ask(&client).await.unwrap_err().to_string().len() < 400);
    server.answer(json(r#"{"a":1}"#));
    assert!(matches!(ask(&client).await, Err(Error::NotPrometheus { .. })));
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_not_reached() {
    let address = free_address();
    let url = format!("http://{address}");
    let client = Client::new(&Options { url, ..Options::default() }).unwrap();
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Network);
    assert_eq!(error.to_string(), format!("{address} cannot be reached: Connection refused (os error 111)"));
}

#[tokio::test]
async fn a_page_that_a_server_lacks_says_nothing() {
    let server = Service::start(None, says("404 Not Found", "", "page not found"));
    let client = Client::new(&options(&server)).unwrap();
    assert_eq!(client.build_info().await, Ok(BuildInfo::default()));
    assert!(client.flags().await.unwrap().is_empty());
    assert!(client.recording_rules().await.is_err());
    server.answer(json(
        r#"{"status":"success","data":{"application":"Grafana Mimir","version":"2.1","features":{}}}"#,
    ));
    let mimir = client.build_info().await.unwrap();
    assert_eq!(
        (mimir.version.as_deref(), mimir.application.as_deref()),
        (Some("2.1"), Some("Grafana Mimir"))
    );
}

#[tokio::test]
async fn warnings_of_the_server_are_in_the_log() {
    let body = ONE.replace("\"data\"", "\"warnings\":[\"store\\n2 is away\"],\"infos\":[\"old\"],\"data\"");
    let server = Service::start(None, json(&body));
    let client = Client::new(&options(&server)).unwrap();
    ask(&client).await.unwrap();
    let asked = &client.log()[0];
    assert_eq!(
        (asked.warnings.as_slice(), asked.infos.as_slice()),
        (["store 2 is away".to_owned()].as_slice(), ["old".to_owned()].as_slice())
    );
}

fn zipped(body: &[u8], times: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap().repeat(times)
}

fn gzip(body: Vec<u8>) -> impl Fn(&str) -> Reply + Send + 'static {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    let bytes = [head.into_bytes(), body].concat();
    move |_| Reply { bytes: bytes.clone(), ..Reply::default() }
}

#[tokio::test]
async fn gzip_is_read_up_to_a_limit() {
    let server = Service::start(None, gzip(zipped(ONE.as_bytes(), 1)));
    let client = Client::new(&Options { max_bytes: 1 << 20, ..options(&server) }).unwrap();
    assert_eq!(ask(&client).await, Ok(1.0));
    assert_eq!(client.log()[0].bytes, ONE.len() as u64);
    // A few KiB that are 8 MiB of spaces.
    server.answer(gzip(zipped(&[b' '; 1 << 20], 8)));
    let error = ask(&client).await.unwrap_err();
    assert_eq!((error.clone(), error.kind()), (Error::TooLarge(1 << 20), Kind::Limit));
    let mut damaged = zipped(ONE.as_bytes(), 1);
    damaged.truncate(damaged.len() - 9);
    server.answer(gzip(damaged));
    assert!(matches!(ask(&client).await, Err(Error::NotPrometheus { .. })));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let server = Service::start(None, json(ONE));
    let client = Client::new(&options(&server)).unwrap();
    let whole = Reply::json(ONE).bytes;
    let length = whole.len();
    for kept in [length - 1, length - 20, length - ONE.len(), 20, 0] {
        let bytes = whole[..kept].to_vec();
        server.answer(move |_| Reply { bytes: bytes.clone(), close: true, ..Reply::default() });
        let error = ask(&client).await.unwrap_err();
        assert!(matches!(error, Error::Broken { .. }), "{kept}: {error}");
    }
    let chunked =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{ONE}\r\n", ONE.len());
    server.answer(move |_| Reply { bytes: chunked.clone().into_bytes(), close: true, ..Reply::default() });
    assert!(matches!(ask(&client).await, Err(Error::Broken { .. })));
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    server.answer(move |_| Reply { bytes: head.clone().into_bytes(), close: true, ..Reply::default() });
    let error = ask(&client).await;
    assert!(matches!(error, Err(Error::Broken { .. })), "{error:?}");
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closes_is_made_anew() {
    let server = Service::start(None, json(ONE));
    let client = Client::new(&options(&server)).unwrap();
    ask(&client).await.unwrap();
    let count = AtomicUsize::new(0);
    // The next request is answered by the end of the connection, the one after that is answered.
    server.answer(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::default(),
        _ => Reply::json(ONE),
    });
    assert_eq!(ask(&client).await, Ok(1.0));
    assert_eq!((server.connections(), server.requests().len()), (2, 3));
}

#[tokio::test]
async fn a_busy_server_is_asked_again_once_and_only_if_it_wants_that_soon() {
    let server = Service::start(None, json(ONE));
    let client = Client::new(&options(&server)).unwrap();
    let count = AtomicUsize::new(0);
    server.answer(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::new("429 Too Many Requests", "Retry-After: 0\r\n", ""),
        _ => Reply::json(ONE),
    });
    assert_eq!(ask(&client).await, Ok(1.0));
    server.answer(says("503 No", "Retry-After: 0\r\n", "busy"));
    assert!(matches!(ask(&client).await, Err(Error::Refused { status: 503, .. })));
    assert_eq!(server.requests().len(), 4);
    server.answer(says("429 No", "Retry-After: 6\r\n", "busy"));
    assert_eq!(ask(&client).await.unwrap_err().kind(), Kind::Limit);
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn the_time_limit_is_for_the_whole_answer() {
    let head = Reply::json(ONE).bytes[..60].to_vec();
    let server = Service::start(None, move |_| Reply { bytes: head.clone(), ..Reply::default() });
    let client = Client::new(&Options { timeout: Duration::from_millis(300), ..options(&server) }).unwrap();
    let began = Instant::now();
    let error = ask(&client).await.unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        error.to_string(),
        format!("no whole answer of {} within 0.3 s: ask for a shorter time, or wait longer", server.address)
    );
    assert_eq!(error.kind(), Kind::Network);
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_may_be() {
    let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let server =
        Service::start(None, move |_| Reply { after: Duration::from_millis(50), ..Reply::json(answer) });
    let client = Client::new(&Options { at_once: 2, max_points: 1, ..options(&server) }).unwrap();
    let range = Range { start: 0.0, end: 11.0, step: 1.0 };
    assert_eq!(client.query_range("a", range).await, Ok(Vec::new()));
    assert_eq!((server.requests().len(), server.most_under_way()), (12, 2));
    assert!(server.connections() <= 2);
    let mut starts: Vec<_> =
        server.requests().iter().map(|request| request.split("start=").nth(1).unwrap().to_owned()).collect();
    starts.sort();
    assert_eq!(starts[0], "0.000&end=0.000&step=1.000&timeout=20000ms&nocache=1");
}

#[tokio::test]
async fn too_many_series_end_the_reading() {
    let series = r#"{"metric":{"a":"b"},"values":[[1,"1"]]}"#;
    let many = vec![series; 30].join(",");
    let server = Service::start(
        None,
        json(&format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{many}]}}}}"#)),
    );
    let client = Client::new(&Options { max_series: 20, ..options(&server) }).unwrap();
    let range = Range { start: 0.0, end: 10.0, step: 1.0 };
    let error = client.query_range("a", range).await.unwrap_err();
    assert_eq!((error.clone(), error.kind()), (Error::TooManySeries(20), Kind::Limit));
}

#[tokio::test]
async fn an_exporters_page_is_at_the_url_itself() {
    let server =
        Service::start(None, says("200 OK", "Content-Type: text/plain; version=0.0.4\r\n", "up 1\n"));
    let url = format!("http://{}/metrics", server.address);
    let client = Client::new(&Options { url, ..options(&server) }).unwrap();
    assert_eq!(client.exposition().await.unwrap(), "up 1\n");
    assert_eq!(client.exposition().await.unwrap(), "up 1\n");
    let head = &server.requests()[0];
    assert!(
        head.starts_with("GET /metrics HTTP/1.1\r\n") && head.contains("accept: text/plain;version=0.0.4"),
        "{head}"
    );
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn what_is_no_page_is_an_error() {
    for (status, head, body, says_so) in [
        ("200 OK", "Content-Type: text/html\r\n", "<html>", "a web page"),
        ("200 OK", "Content-Type: text/plain\r\n", "a \u{0}\n", ""),
        ("403 No", "Content-Type: text/plain\r\n", "not from here\n", "not from here"),
        ("404 No", "", "", "404"),
    ] {
        let server = Service::start(None, says(status, head, body));
        let client = Client::new(&options(&server)).unwrap();
        match client.exposition().await {
            Ok(text) => assert_eq!((text.as_str(), says_so), (body, "")),
            Err(error) => assert!(!says_so.is_empty() && error.to_string().contains(says_so), "{error}"),
        }
    }
    let server = Service::start(None, says("200 OK", "", "a long text"));
    let client = Client::new(&Options { max_bytes: 4, ..options(&server) }).unwrap();
    assert_eq!(client.exposition().await, Err(Error::TooLarge(4)));
}
