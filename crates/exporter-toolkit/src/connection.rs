//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;

use crate::admission::{Place, Stage};
use crate::state::ServerState;
use crate::timed::{Limits, Requests, Timed};

/// hyper refuses a smaller buffer.
const MIN_BUFFER: usize = 8 * 1024;

/// Ends when the server stops.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves a connection until its client or the server ends it, or another one needs its place. Failures are logged at level
/// debug only, since any client can cause them at any rate.
pub(crate) async fn run(
    stream: TcpStream,
    place: Arc<Place>,
    state: Arc<ServerState>,
    stop: watch::Receiver<bool>,
) {
    tokio::select! {
        () = shake(stream, Arc::clone(&place), state, stop) => {}
        () = place.lost() => tracing::debug!("connection closed, since others need its place"),
    }
}

async fn shake(
    stream: TcpStream,
    place: Arc<Place>,
    state: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are written whole: Nagle's algorithm would only delay their last packet.
    let _ = stream.set_nodelay(true);
    let tls = state.config.fresh().await.tls.clone();
    let Some(server) = tls else { return serve(stream, place, state, None, stop).await };
    let handshake = async {
        let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        place.set(Stage::Greeted);
        started.into_stream(Arc::clone(&server)).await
    };
    let stream = tokio::select! {
        done = tokio::time::timeout(state.options.header_timeout, handshake) => done,
        () = stopped(&mut stop) => return,
    };
    match stream {
        Ok(Ok(stream)) => {
            place.set(Stage::Head);
            serve(stream, place, state, Some(server), stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    place: Arc<Place>,
    state: Arc<ServerState>,
    tls: Option<Arc<ServerConfig>>,
    mut stop: watch::Receiver<bool>,
) {
    let options = &state.options;
    let limits =
        Limits { header: options.header_timeout, write: options.write_timeout, idle: options.idle_timeout };
    let requests = Arc::new(Requests::new(Some(Arc::clone(&place))));
    let io = TokioIo::new(Timed::new(stream, limits, Arc::clone(&requests)));

    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Behind `Timed`. hyper's timer also runs while a connection is idle, so it must allow for both.
        .header_read_timeout(limits.idle + limits.header)
        .max_header_size(options.max_header_bytes)
        .max_buf_size(options.max_header_bytes.max(MIN_BUFFER))
        // The body is written without a copy, also through TLS.
        .writev(true);

    let service = service_fn(|request: Request<Incoming>| {
        let (state, tls, place) = (Arc::clone(&state), tls.clone(), Arc::clone(&place));
        let answering = requests.begin();
        async move {
            let is_scrape =
                *request.method() == Method::GET && request.uri().path() == state.options.telemetry_path;
            let has_body = *request.method() != Method::HEAD;
            let answer = state.answer(request, tls.as_ref(), &place).await;
            let bytes = if has_body { answer.body().size_hint().lower() } else { 0 };
            answering.answered(bytes, is_scrape && answer.status() == StatusCode::OK);
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
