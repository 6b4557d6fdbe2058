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

use crate::handler::Ends;
use crate::state::ServerState;
use crate::timed::{Limits, Requests, Timed};

/// hyper refuses a smaller buffer.
const MIN_BUFFER: usize = 8 * 1024;

/// Ends when the server stops.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves a connection until its client or the server ends it. Failures are logged at level debug only, since any
/// client can cause them at any rate.
pub(crate) async fn run(stream: TcpStream, state: Arc<ServerState>, mut stop: watch::Receiver<bool>) {
    // Answers are written whole: Nagle's algorithm would only delay their last packet.
    let _ = stream.set_nodelay(true);
    // Without an address the client is gone.
    let (Ok(client), Ok(server)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let ends = Ends { client, server };
    let tls = state.config.fresh().await.tls.clone();
    let Some(server) = tls else { return serve(stream, ends, state, None, stop).await };
    let handshake = TlsAcceptor::from(Arc::clone(&server)).accept(stream);
    let stream = tokio::select! {
        done = tokio::time::timeout(state.options.header_timeout, handshake) => done,
        () = stopped(&mut stop) => return,
    };
    match stream {
        Ok(Ok(stream)) => serve(stream, ends, state, Some(server), stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    ends: Ends,
    state: Arc<ServerState>,
    tls: Option<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) {
    let options = &state.options;
    let limits =
        Limits { header: options.header_timeout, write: options.write_timeout, idle: options.idle_timeout };
    let requests = Arc::new(Requests::default());
    let io = TokioIo::new(Timed::new(stream, limits, Arc::clone(&requests)));

    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Behind `Timed`. hyper's timer also runs while a connection is idle, so it must allow for both.
        .header_read_timeout(limits.idle + limits.header)
        .max_header_size(options.max_header_bytes)
        .max_buf_size(options.max_header_bytes.max(MIN_BUFFER))
        // The body is written without a copy, also through TLS.
        .writev(true);

    let service = service_fn(|request| {
        let (state, tls, answering) = (Arc::clone(&state), tls.clone(), requests.begin());
        async move {
            let answer = state.answer(request, tls.as_ref(), ends).await;
            drop(answering);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = pin!(http.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection failed");
    }
}
