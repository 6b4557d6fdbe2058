//! A server under test, the exporter behind it, and a client that sends exactly the given bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exporter_toolkit::{
    About, BoxFuture, Bytes, Client, CollectorStatus, Exporter, Exposition, Format, Link, Monitor, Page,
    Scrape, ScrapeError, Selection, WebConfigHandle, WebOptions, serve,
};
use rustix::net::{AddressFamily, SocketType};

/// A small exposition in both formats.
pub(crate) const OPENMETRICS: &str = "# HELP cpu_seconds Time.\n# TYPE cpu_seconds counter\n# UNIT cpu_seconds seconds\n\
    cpu_seconds_total{jobid=\"1\",name=\"a\\\"b\"} 1.5\n# EOF\n";
pub(crate) const TEXT: &str = "# HELP cpu_seconds_total Time.\n# TYPE cpu_seconds_total counter\n\
    cpu_seconds_total{jobid=\"1\",name=\"a\\\"b\"} 1.5\n";

/// An exporter that answers as the test wants, and remembers what it was asked.
pub(crate) struct Double {
    pub(crate) openmetrics: Bytes,
    pub(crate) text: Bytes,
    pub(crate) protobuf: Option<Bytes>,
    /// How long a scrape takes; `None` for one that never ends.
    pub(crate) takes: Option<Duration>,
    pub(crate) fails: Option<ScrapeError>,
    pub(crate) ready: Result<(), String>,
    pub(crate) asked: Mutex<Vec<(Selection, Duration)>>,
    pub(crate) clients: Mutex<Vec<Client>>,
    pub(crate) under_way: Arc<AtomicUsize>,
    /// Answers that were handed over.
    pub(crate) delivered: Arc<AtomicUsize>,
}

impl Default for Double {
    fn default() -> Self {
        Double {
            openmetrics: Bytes::from_static(OPENMETRICS.as_bytes()),
            text: Bytes::from_static(TEXT.as_bytes()),
            protobuf: None,
            takes: Some(Duration::ZERO),
            fails: None,
            ready: Ok(()),
            asked: Mutex::default(),
            clients: Mutex::default(),
            under_way: Arc::default(),
            delivered: Arc::default(),
        }
    }
}

impl Double {
    /// One whose answer is as large as a large node's, and does not compress to nothing.
    pub(crate) fn large(megabytes: usize) -> Self {
        let mut openmetrics = String::with_capacity(megabytes << 20);
        openmetrics.push_str("# TYPE x gauge\n");
        let mut nth = 0_u64;
        while openmetrics.len() < megabytes << 20 {
            nth += 1;
            let value = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            openmetrics.push_str(&format!("x{{jobid=\"{nth}\",step=\"{value:x}\"}} {value}\n"));
        }
        let text = Bytes::from(openmetrics.clone());
        openmetrics.push_str("# EOF\n");
        Double { openmetrics: openmetrics.into(), text, ..Double::default() }
    }
}

impl Exporter for Double {
    fn about(&self) -> About {
        About {
            name: "Test exporter".to_owned(),
            version: "1.2.3".to_owned(),
            description: "Measures what the tests want.".to_owned(),
            links: vec![Link { address: "/own".to_owned(), text: "Own page".to_owned() }],
        }
    }

    fn writes_protobuf(&self) -> bool {
        self.protobuf.is_some()
    }

    fn collectors(&self) -> Vec<CollectorStatus> {
        let status = |name, enabled, state| CollectorStatus { name, summary: "what it says", enabled, state };
        vec![
            status("cpu", true, Some(Ok(()))),
            status("energy", true, Some(Err("denied: <CAP_SYS_RAWIO>".to_owned()))),
            status("perf", false, None),
        ]
    }

    fn scrape(&self, scrape: Scrape) -> BoxFuture<Result<Exposition, ScrapeError>> {
        struct UnderWay(Arc<AtomicUsize>);
        impl Drop for UnderWay {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let left = scrape.deadline.saturating_duration_since(Instant::now());
        self.asked.lock().unwrap().push((scrape.selection, left));
        self.clients.lock().unwrap().push(scrape.client);
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(Arc::clone(&self.under_way));
        let (takes, fails, delivered) = (self.takes, self.fails.clone(), Arc::clone(&self.delivered));
        let exposition = match scrape.format {
            Format::OpenMetrics => self.openmetrics.clone(),
            Format::Protobuf => self.protobuf.clone().unwrap(),
            Format::Text => self.text.clone(),
        };
        Box::pin(async move {
            let _under_way = under_way;
            match takes {
                Some(takes) => tokio::time::sleep(takes).await,
                None => std::future::pending().await,
            }
            let exposition = Exposition::from(exposition).on_delivery(move || {
                delivered.fetch_add(1, Ordering::SeqCst);
            });
            fails.map_or(Ok(exposition), Err)
        })
    }

    fn ready(&self) -> Result<(), String> {
        self.ready.clone()
    }

    fn summary(&self) -> String {
        "3 jobs are running.".to_owned()
    }

    fn page(&self, path: &str) -> Option<Page> {
        let page = || Page { content_type: "application/json", body: Bytes::from_static(b"{}") };
        (path == "/own").then(page)
    }
}

/// The defaults, with every wait short enough for a test.
pub(crate) fn quick() -> WebOptions {
    WebOptions {
        header_timeout: Duration::from_millis(400),
        write_timeout: Duration::from_millis(600),
        idle_timeout: Duration::from_millis(2500),
        drain_timeout: Duration::from_millis(2000),
        ..WebOptions::default()
    }
}

/// A running server; dropped, it stops.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) exporter: Arc<Double>,
    pub(crate) config: WebConfigHandle,
    pub(crate) monitor: Monitor,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(options: WebOptions, exporter: Double) -> Self {
        Self::start_with(options, exporter, WebConfigHandle::load(None).unwrap(), "127.0.0.1:0")
    }

    pub(crate) fn start_with(
        options: WebOptions,
        exporter: Double,
        config: WebConfigHandle,
        at: &str,
    ) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let exporter = Arc::new(exporter);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (served, configured, monitor) = (Arc::clone(&exporter), config.clone(), options.monitor.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            runtime.block_on(serve(vec![listener], options, configured, served, shutdown)).unwrap();
        });
        Server { address, exporter, config, monitor, stop: Some(stop), thread: Some(thread) }
    }

    /// With a web configuration file that is looked at for every connection.
    pub(crate) fn configured(config: &Path) -> Self {
        let config = WebConfigHandle::load_with(Some(config), Duration::from_millis(20)).unwrap();
        Self::start_with(quick(), Double::default(), config, "127.0.0.1:0")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// A connection from this address of the node.
    pub(crate) fn connect_from(&self, address: &str) -> TcpStream {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let address: IpAddr = address.parse().unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(address, 0)).unwrap();
        rustix::net::connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Answer {
        ask(&mut self.connect(), "GET", path, headers).expect("an answer")
    }

    /// Signals the server to stop and waits for it. Returns how long that took.
    pub(crate) fn stop(&mut self) -> Duration {
        let started = Instant::now();
        self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        started.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().skip(1).find(named).and_then(|line| Some(line.split_once(':')?.1.trim()))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Sends a request and reads its answer. `headers` are whole lines.
pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    headers: &str,
) -> std::io::Result<Answer> {
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: node\r\n{headers}\r\n").as_bytes())?;
    read_answer(stream, method == "HEAD")
}

/// Reads one answer and not a byte more.
pub(crate) fn read_answer(stream: &mut impl Read, head_only: bool) -> std::io::Result<Answer> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ => head.push(byte[0]),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut answer = Answer { status, head, body: Vec::new() };
    let length: usize = answer.header("content-length").expect("a length").parse().unwrap();
    if !head_only {
        answer.body.resize(length, 0);
        stream.read_exact(&mut answer.body)?;
    }
    Ok(answer)
}

/// Waits until the server closes the connection; how long that took, and what came before.
pub(crate) fn until_closed(stream: &mut impl Read, started: Instant) -> (Duration, Vec<u8>) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert!(is_end(&error), "still open after {:?}: {error}", started.elapsed()),
    }
    (started.elapsed(), rest)
}

/// A connection that was closed with unread bytes ends with a reset instead of an end of file, and TLS misses its
/// `close_notify`.
pub(crate) fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}

/// A directory that goes with the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NTH: AtomicUsize = AtomicUsize::new(0);
        let nth = NTH.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("exporter-toolkit-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    /// Puts a file in place whole, as a careful administrator does.
    pub(crate) fn put(&self, name: &str, content: &str) -> PathBuf {
        let new = self.0.join(format!("{name}.new"));
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, self.0.join(name)).unwrap();
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
