//! An HTTP service of the tests, such as a Redfish one: it answers each request with what the test says, byte by byte, through TLS or plainly.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::{WantsServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::{ConfigBuilder, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Identity {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    certificate_pem: String,
    key: KeyPair,
}

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
}

impl Authority {
    /// Its certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.as_ref().pem()
    }

    /// A certificate for 127.0.0.1 that ends at the beginning of a year.
    ///
    /// # Panics
    /// If none can be made.
    #[must_use]
    pub fn issue_until(&self, year: i32) -> Identity {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        Identity::new(&params.signed_by(&key, &self.0).unwrap(), key)
    }
}

impl Identity {
    fn new(certificate: &Certificate, key: KeyPair) -> Self {
        Self { certificate: certificate.der().to_vec(), certificate_pem: certificate.pem(), key }
    }

    /// Certificate and key, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        format!("{}{}", self.certificate_pem, self.key.serialize_pem())
    }

    fn config(self, builder: ConfigBuilder<ServerConfig, WantsServerCert>) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        Arc::new(builder.with_single_cert(vec![self.certificate.into()], key).unwrap())
    }

    /// As controllers have it from the factory: signed by itself, for another name, expired.
    ///
    /// # Panics
    /// If none can be made.
    #[must_use]
    pub fn of_factory() -> Self {
        let mut params = CertificateParams::new(vec!["factory".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2010, 1, 1);
        let key = KeyPair::generate().unwrap();
        Self::new(&params.self_signed(&key).unwrap(), key)
    }
}

/// What a request is answered with.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// After this time.
    pub after: Duration,
    /// These bytes; none closes the connection without an answer.
    pub bytes: Vec<u8>,
    /// Whether the connection is closed then.
    pub close: bool,
}

impl Reply {
    /// A whole answer.
    #[must_use]
    pub fn new(status: &str, headers: &str, body: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        Self { bytes: format!("{head}{body}").into_bytes(), ..Self::default() }
    }

    /// A resource.
    #[must_use]
    pub fn json(body: &str) -> Self {
        Self::new("200 OK", "Content-Type: application/json\r\n", body)
    }
}

/// What a request is answered with: the request in, the reply out.
type Answers = Box<dyn Fn(&str) -> Reply + Send>;

struct State {
    answers: Mutex<Answers>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

/// A service on a loopback port. Its threads end with the test's process.
pub struct Service {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Service {
    /// Starts one, with TLS if it has an identity.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start(identity: Option<Identity>, answers: impl Fn(&str) -> Reply + Send + 'static) -> Self {
        let tls = identity.map(|identity| {
            let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            identity.config(builder.with_no_client_auth())
        });
        Self::start_with(tls, answers)
    }

    /// Starts one that wants a certificate of this authority from its clients.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn start_for(
        clients: &Authority,
        identity: Identity,
        answers: impl Fn(&str) -> Reply + Send + 'static,
    ) -> Self {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(clients.0.as_ref().der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        Self::start_with(Some(identity.config(config)), answers)
    }

    fn start_with(tls: Option<Arc<ServerConfig>>, answers: impl Fn(&str) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            answers: Mutex::new(Box::new(answers)),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        });
        let of_thread = state.clone();
        spawn(move || {
            for stream in listener.incoming() {
                let (state, tls) = (of_thread.clone(), tls.clone());
                state.connections.fetch_add(1, Ordering::Relaxed);
                spawn(move || {
                    let stream = stream.unwrap();
                    match tls {
                        None => state.serve(stream),
                        Some(tls) => {
                            state.serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream));
                        }
                    }
                });
            }
        });
        Self { address, state }
    }

    /// Answers otherwise from now on.
    ///
    /// # Panics
    /// If a thread of it panicked.
    pub fn answer(&self, answers: impl Fn(&str) -> Reply + Send + 'static) {
        *self.state.answers.lock().unwrap() = Box::new(answers);
    }

    /// The most requests that were under way at once.
    #[must_use]
    pub fn most_under_way(&self) -> usize {
        self.state.most_under_way.load(Ordering::Relaxed)
    }

    /// The requests so far: the head, and what follows it.
    ///
    /// # Panics
    /// If a thread of it panicked.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl State {
    fn serve(&self, mut stream: impl Read + Write) {
        while let Some(request) = read_request(&mut stream) {
            let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_under_way.fetch_max(under_way, Ordering::Relaxed);
            let reply = (self.answers.lock().unwrap())(&request);
            self.requests.lock().unwrap().push(request);
            sleep(reply.after);
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let written = stream.write_all(&reply.bytes).and_then(|()| stream.flush());
            if written.is_err() || reply.close || reply.bytes.is_empty() {
                return;
            }
        }
    }
}

/// A request; `None` at the end of the connection.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend(byte);
    }
    let mut request = String::from_utf8(head).ok()?;
    let length = request
        .to_lowercase()
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.lines().next().and_then(|length| length.parse().ok()).expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    request.push_str(&String::from_utf8(body).ok()?);
    Some(request)
}
