//! The metrics page: one scrape, from the request to the bytes of the answer.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};
use hyper::{StatusCode, Uri};
use tokio::sync::OwnedSemaphorePermit;

use crate::deadline::deadline;
use crate::respond::{self, Answer};
use crate::state::ServerState;
use crate::{Bytes, Scrape, ScrapeError, negotiate, query};

/// Level 3 costs half of level 6 and gains nearly as much (13 MB: 30 ms and 1.37 MB against 46 ms and 1.19 MB).
const GZIP_LEVEL: u32 = 3;

/// Answers a scrape.
pub(crate) async fn metrics(server: &ServerState, uri: &Uri, headers: &HeaderMap) -> Answer {
    let Some(slot) = Slot::take(server) else {
        return respond::unavailable("too many scrapes at once");
    };
    let selection = match query::selection(uri.query(), &server.exporter.collectors()) {
        Ok(selection) => selection,
        Err(reason) => return respond::text(StatusCode::BAD_REQUEST, &reason),
    };
    let format = negotiate::format(headers, server.exporter.writes_protobuf());
    let deadline = deadline(headers, &server.options, Instant::now());
    let scrape = server.exporter.scrape(Scrape { selection, format, deadline });
    // The exporter answers by the deadline. A later answer is abandoned when Prometheus stops waiting.
    let limit = tokio::time::Instant::from_std(deadline + server.options.timeout_offset);
    let body = match tokio::time::timeout_at(limit, scrape).await {
        Ok(Ok(body)) => body,
        Ok(Err(ScrapeError::Unavailable(reason))) => return respond::unavailable(&reason),
        Ok(Err(ScrapeError::Failed(reason))) => {
            return respond::text(StatusCode::INTERNAL_SERVER_ERROR, &reason);
        }
        Err(_) => return respond::unavailable("the scrape did not end by its deadline"),
    };
    let gzip = negotiate::gzip(headers);
    let body = if gzip { compressed(body).await } else { Some(body) };
    let Some(body) = body else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be compressed");
    };
    let body = Bytes::from_owner(Body { bytes: body, _slot: slot });
    let mut answer = respond::with_type(StatusCode::OK, format.content_type(), body);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// A scrape's place among `max_requests`. It is returned with the last byte of the body and not before: a client that
/// does not read keeps megabytes in memory.
struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Slot {
    fn take(server: &ServerState) -> Option<Self> {
        let Some(scrapes) = &server.scrapes else { return Some(Slot { _permit: None }) };
        Some(Slot { _permit: Some(Arc::clone(scrapes).try_acquire_owned().ok()?) })
    }
}

/// The bytes of an answer, and the place that they take.
struct Body {
    bytes: Bytes,
    _slot: Slot,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// On a blocking thread: a large exposition takes milliseconds, and one thread serves all connections.
async fn compressed(body: Bytes) -> Option<Bytes> {
    let compressing = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::new(GZIP_LEVEL));
        encoder.write_all(&body)?;
        encoder.finish()
    });
    compressing.await.ok()?.ok().map(Bytes::from)
}
