//! A connection to a server, through a proxy or directly.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, PROXY_AUTHORIZATION};
use hyper::upgrade::Upgraded;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, ClientConfig};

use super::{Sender, broken, tls};
use crate::address::Origin;
use crate::config::Tls;
use crate::error::Error;
use crate::proxy::{Proxies, Proxy};

/// Of the head of an answer.
const MOST_HEAD: usize = 64 << 10;
/// For one address of a name that has several.
const PER_ADDRESS: Duration = Duration::from_secs(3);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// How connections are made.
pub(super) struct Connector {
    tls: Arc<ClientConfig>,
    /// The name of servers, if it is not that of their URL.
    name: Option<ServerName<'static>>,
    pub(super) proxies: Proxies,
}

impl Connector {
    pub(super) fn new(tls: &Tls, proxies: Proxies) -> Result<Self, String> {
        Ok(Self { tls: tls::client_config(tls)?, name: tls.server_name.clone(), proxies })
    }

    pub(super) async fn connect(&self, to: &Origin) -> Result<Sender, Error> {
        let stream: Box<dyn Stream> = match self.proxies.of(to) {
            None => Box::new(tcp(to, &to.authority).await?),
            Some(proxy) => {
                let stream = tcp(&proxy.origin, &format!("the proxy {}", proxy.origin.authority)).await?;
                if to.https { Box::new(self.tunnel(proxy, stream, to).await?) } else { Box::new(stream) }
            }
        };
        let stream = if to.https { Box::new(self.secured(stream, to).await?) } else { stream };
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MOST_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(to, &error))?;
        // It fails where the request on it fails, which says so.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn secured(&self, stream: Box<dyn Stream>, to: &Origin) -> Result<impl Stream + use<>, Error> {
        let failed = |why: String| Error::Tls { host: to.authority.clone(), why };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(to.host.clone())
                .map_err(|_| failed("this is not the name of a host".to_owned()))?,
        };
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        connector.connect(name, stream).await.map_err(|error| match of_tls(&error) {
            Some(error) => failed(config_files::tls_error(error)),
            None => failed(error.to_string()),
        })
    }

    /// Asks a proxy for a connection to a server (RFC 9110, section 9.3.6).
    async fn tunnel(
        &self,
        proxy: &Proxy,
        stream: TcpStream,
        to: &Origin,
    ) -> Result<TokioIo<Upgraded>, Error> {
        let failed = |why: String| Error::Proxy { proxy: proxy.origin.authority.clone(), why };
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MOST_HEAD)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        tokio::spawn(async move { drop(connection.with_upgrades().await) });
        let host = if to.host.contains(':') { format!("[{}]", to.host) } else { to.host.clone() };
        let target = format!("{host}:{}", to.port);
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(&target)
            .header(HOST, &target)
            .body(Full::default())
            .map_err(|_| Error::Url("no request can be made of it"))?;
        let headers = request.headers_mut();
        headers.extend(
            self.proxies.connect_headers.iter().map(|(name, value)| (Some(name.clone()), value.clone())),
        );
        if let Some(authorization) = &proxy.authorization {
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        if !response.status().is_success() {
            return Err(failed(format!("no connection to {}: {}", to.authority, response.status())));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| failed(error.to_string()))?;
        Ok(TokioIo::new(upgraded))
    }
}

/// The error of TLS that an error of a stream is about.
pub(super) fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

async fn tcp(to: &Origin, called: &str) -> Result<TcpStream, Error> {
    let unreachable = |why: String| Error::Unreachable { host: called.to_owned(), why };
    let found = tokio::net::lookup_host((to.host.as_str(), to.port)).await;
    let found: Vec<_> =
        found.map_err(|error| unreachable(format!("the name of the host: {error}")))?.collect();
    let mut last = "the name of the host has no address".to_owned();
    for (at, address) in found.iter().enumerate() {
        let connecting = TcpStream::connect(address);
        // The time limit of the request is that of the last one.
        let connected = if at + 1 < found.len() {
            timeout(PER_ADDRESS, connecting).await.unwrap_or_else(|late| Err(late.into()))
        } else {
            connecting.await
        };
        match connected {
            Ok(stream) => {
                // A request is few packets, and the last one must not wait.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(unreachable(last))
}
