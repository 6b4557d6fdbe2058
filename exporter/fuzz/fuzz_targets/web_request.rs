//! Requests to the real server: whatever the query and the headers say, the answer is whole, in the format that its
//! type says, and never the server's fault.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use exporter_toolkit::{About, BoxFuture, CollectorStatus, Exporter, Exposition, Scrape, ScrapeError, WebConfigHandle, WebOptions, serve};
use jobledger_testkit::exposition::{Format, parse};
use jobledger_exporter_fuzz::typed;

const TEXT: &str = "# TYPE x gauge\nx{a=\"b\"} 1\n";
const OPENMETRICS: &str = "# TYPE x gauge\nx{a=\"b\"} 1\n# EOF\n";

struct Double;

impl Exporter for Double {
    fn about(&self) -> About {
        About::default()
    }

    fn collectors(&self) -> Vec<CollectorStatus> {
        let status = |name, enabled| CollectorStatus { name, summary: "", enabled, state: None };
        vec![status("cpu", true), status("memory", true), status("io", false)]
    }

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Exposition, ScrapeError>> {
        let selection = scrape.selection;
        assert!(selection.collect.is_empty() || selection.exclude.is_empty());
        assert!(!selection.collect.contains("io"), "it is not enabled");
        let body = match scrape.format {
            exporter_toolkit::Format::OpenMetrics => OPENMETRICS,
            exporter_toolkit::Format::Text => TEXT,
            exporter_toolkit::Format::Protobuf => panic!("this exporter does not write it"),
        };
        Box::pin(async move { Ok(body.into()) })
    }
}

fn server() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let config = WebConfigHandle::load(None).expect("no configuration");
            let never = std::future::pending();
            runtime.block_on(serve(vec![listener], WebOptions::default(), config, Arc::new(Double), never))
        });
        address
    })
}

/// What a client library lets through.
fn plain(bytes: &[u8], extra: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|b| b.is_ascii_graphic() && *b != b'#' || extra.contains(b)).collect()
}

pub fn fuzz(bytes: &[u8]) {
    typed(bytes, run);
}

fn run(input: (&[u8], &[u8], &[u8], &[u8])) {
    let (query, accept, encoding, timeout) = input;
    let request = [
        &b"GET /metrics?"[..],
        &plain(query, b""),
        b" HTTP/1.1\r\nHost: node\r\nConnection: close\r\nAccept: ",
        &plain(accept, b" \t#"),
        b"\r\nAccept-Encoding: ",
        &plain(encoding, b" \t#"),
        b"\r\nX-Prometheus-Scrape-Timeout-Seconds: ",
        &plain(timeout, b" \t#"),
        b"\r\n\r\n",
    ]
    .concat();
    let mut stream = TcpStream::connect(server()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    if stream.write_all(&request).is_err() {
        return;
    }
    let mut answer = Vec::new();
    if stream.read_to_end(&mut answer).is_err() && answer.is_empty() {
        return;
    }
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head");
    let (head, body) = answer.split_at(end + 4);
    let head = String::from_utf8(head.to_vec()).expect("a head in ASCII").to_ascii_lowercase();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    match head.split(' ').nth(1) {
        Some("200") => {
            let format = header("content-type").and_then(Format::of_content_type).expect("a format");
            match header("content-encoding") {
                None => assert_eq!(parse(body, format).expect("a valid body").samples().count(), 1),
                Some("gzip") => assert!(body.starts_with(&[0x1f, 0x8b])),
                Some(other) => panic!("{other} was never on offer"),
            }
        }
        // What is no request at all is refused by the HTTP library, without a word.
        Some("400") => assert!(body.len() < 1000, "a short reason"),
        Some("414" | "431") => assert!(request.len() > 8000),
        status => panic!("{status:?} for {:?}", String::from_utf8_lossy(&request)),
    }
}
