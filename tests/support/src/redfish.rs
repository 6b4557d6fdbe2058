//! A Redfish service of the tests: it answers each request with what the test says, byte by byte, through TLS or plainly.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Identity {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
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
        Identity { certificate: params.signed_by(&key, &self.0).unwrap().der().to_vec(), key }
    }
}

impl Identity {
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
        Self { certificate: params.self_signed(&key).unwrap().der().to_vec(), key }
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

/// What a request is answered with: the request's head in, the reply out.
type Answers = Box<dyn Fn(&str) -> Reply + Send>;

struct State {
    answers: Mutex<Answers>,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
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
            let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![identity.certificate.into()], key);
            Arc::new(config.unwrap())
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            answers: Mutex::new(Box::new(answers)),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
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

    /// The heads of the requests so far.
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
        while let Some(head) = read_head(&mut stream) {
            let reply = (self.answers.lock().unwrap())(&head);
            self.requests.lock().unwrap().push(head);
            sleep(reply.after);
            let written = stream.write_all(&reply.bytes).and_then(|()| stream.flush());
            if written.is_err() || reply.close || reply.bytes.is_empty() {
                return;
            }
        }
    }
}

/// A request's head; `None` at the end of the connection.
fn read_head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}
