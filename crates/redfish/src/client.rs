//! One connection to a service, and one request after the other.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;

use crate::address::Address;

/// A chassis with dozens of sensors has some ten KiB.
const MOST_BYTES: usize = 256 << 10;
/// Of the head of an answer.
const MOST_HEAD: usize = 64 << 10;

/// What a service answered.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

/// How TLS is spoken with the service.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    pub(crate) fn new(config: Arc<rustls::ClientConfig>, host: &str) -> Result<Self, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is not the name of a host"))?;
        Ok(Self { connector: config.into(), name })
    }
}

type Sender = SendRequest<Empty<Bytes>>;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A client of one service. It works on the thread that calls it, and holds its connection while the service does.
pub(crate) struct Client {
    address: Address,
    tls: Option<Tls>,
    runtime: Option<Runtime>,
    kept: Option<Sender>,
}

impl Client {
    pub(crate) fn new(address: Address, tls: Option<Tls>) -> Self {
        Self { address, tls, runtime: None, kept: None }
    }

    /// Asks once, within `limit`. `Err` says why there is no answer, and nothing of the request.
    pub(crate) fn get(
        &mut self,
        authorization: Option<HeaderValue>,
        limit: Duration,
    ) -> Result<Reply, String> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => runtime().map_err(|error| error.to_string())?,
        };
        let kept = self.kept.take();
        let asking = self.ask(kept, authorization);
        let outcome = runtime.block_on(async { tokio::time::timeout(limit, asking).await });
        self.runtime = Some(runtime);
        let (reply, sender) =
            outcome.map_err(|_| format!("no answer within {} s", limit.as_secs_f32()))??;
        self.kept = Some(sender);
        Ok(reply)
    }

    async fn ask(
        &self,
        kept: Option<Sender>,
        authorization: Option<HeaderValue>,
    ) -> Result<(Reply, Sender), String> {
        if let Some(mut sender) = kept {
            // The service may close a connection that rests at any time, also while it is asked.
            if let Ok(response) = self.send(&mut sender, authorization.clone()).await {
                return Ok((read(response).await?, sender));
            }
        }
        let mut sender = self.connect().await?;
        let response = self.send(&mut sender, authorization).await?;
        Ok((read(response).await?, sender))
    }

    async fn send(
        &self,
        sender: &mut Sender,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::get(&self.address.target)
            .header(HOST, &self.address.authority)
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, "identity")
            .header("OData-Version", "4.0")
            .body(Empty::new())
            .map_err(|error| error.to_string())?;
        if let Some(authorization) = authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        sender.ready().await.map_err(|error| chain(&error))?;
        sender.send_request(request).await.map_err(|error| chain(&error))
    }

    async fn connect(&self) -> Result<Sender, String> {
        let stream = self.tcp().await?;
        // A request is one packet.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let connecting = tls.connector.connect(tls.name.clone(), stream).await;
                Box::new(connecting.map_err(|error| tls_error(&error))?)
            }
        };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MOST_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| chain(&error))?;
        // It fails where the request on it fails, which says so.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn tcp(&self) -> Result<TcpStream, String> {
        let at = (self.address.host.as_str(), self.address.port);
        let found =
            tokio::net::lookup_host(at).await.map_err(|error| format!("the name of the host: {error}"))?;
        let mut last = None;
        for address in found.filter(|address| self.may_be_asked(address)) {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error.to_string()),
            }
        }
        Err(last.unwrap_or_else(|| "the name of the host has no address that may be asked".to_owned()))
    }

    /// Plain HTTP goes to loopback alone, whatever the name of the host means.
    fn may_be_asked(&self, address: &SocketAddr) -> bool {
        self.tls.is_some() || address.ip().is_loopback()
    }
}

impl Drop for Client {
    /// A name service that hangs must not hold up who drops the client.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// On the caller's thread, but for the name service, which may block on one of its own.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(1)
        .thread_keep_alive(Duration::from_secs(1))
        .thread_name("node-meter-name")
        .build()
}

async fn read(response: Response<Incoming>) -> Result<Reply, String> {
    let status = response.status();
    let body =
        Limited::new(response.into_body(), MOST_BYTES).collect().await.map_err(|error| match error
            .downcast_ref::<hyper::Error>(
        ) {
            Some(error) => chain(error),
            None => "the answer is larger than 256 KiB".to_owned(),
        })?;
    Ok(Reply { status, body: body.to_bytes().to_vec() })
}

/// hyper's error and what it was caused by.
fn chain(error: &hyper::Error) -> String {
    let cause: Option<&dyn Display> = std::error::Error::source(error).map(|cause| cause as _);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn tls_error(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    cause.map_or_else(|| format!("TLS: {error}"), config_files::tls_error)
}
