//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::handler::Site;
use super::server::told;
use super::timed::{Limits, Requests, Timed};

/// hyper refuses a smaller buffer.
const MIN_BUFFER: usize = 8 * 1024;

/// Serves a connection until its client or the server ends it. What goes wrong on it is the client's business: it
/// is logged for debugging only, since anybody can make it happen at any rate.
pub(super) async fn run(stream: TcpStream, site: Arc<Site>, mut stop: watch::Receiver<bool>) {
    // Answers are written whole; waiting for more would only delay their last packet.
    let _ = stream.set_nodelay(true);
    let tls = site.config.fresh().await.tls.clone();
    let Some(server) = tls else { return serve(stream, site, None, stop).await };
    let handshake = TlsAcceptor::from(Arc::clone(&server)).accept(stream);
    let stream = tokio::select! {
        done = tokio::time::timeout(site.options.header_timeout, handshake) => done,
        () = told(&mut stop) => return,
    };
    match stream {
        Ok(Ok(stream)) => serve(stream, site, Some(server), stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    site: Arc<Site>,
    tls: Option<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) {
    let options = &site.options;
    let limits =
        Limits { header: options.header_timeout, write: options.write_timeout, idle: options.idle_timeout };
    let requests = Arc::new(Requests::default());
    let io = TokioIo::new(Timed::new(stream, limits, Arc::clone(&requests)));

    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // The wall behind `Timed`. hyper runs it while a connection is idle too, so it has to hold for both.
        .header_read_timeout(limits.idle + limits.header)
        .max_header_size(options.max_header_bytes)
        .max_buf_size(options.max_header_bytes.max(MIN_BUFFER))
        // The body goes out from where it lies, without a copy, also through TLS.
        .writev(true);

    let service = service_fn(|request| {
        let (site, tls, answering) = (Arc::clone(&site), tls.clone(), requests.begin());
        async move {
            let answer = site.answer(request, tls.as_ref()).await;
            drop(answering);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = pin!(http.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}
