//! `/metrics`: one scrape, from the request to the bytes of the answer.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};
use hyper::{StatusCode, Uri};
use tokio::sync::OwnedSemaphorePermit;

use super::deadline::deadline;
use super::handler::Site;
use super::negotiate;
use super::query;
use super::respond::{self, Answer};

/// Level 3 costs half of level 6 and gains nearly as much (13 MB: 30 ms and 1.37 MB against 46 ms and 1.19 MB).
const GZIP_LEVEL: u32 = 3;

/// Answers a scrape.
pub(super) async fn metrics(site: &Site, uri: &Uri, headers: &HeaderMap) -> Answer {
    let Some(slot) = Slot::take(site) else {
        return respond::unavailable("too many scrapes at once");
    };
    let selection = match query::selection(uri.query(), &site.exporter.collectors()) {
        Ok(selection) => selection,
        Err(reason) => return respond::text(StatusCode::BAD_REQUEST, &reason),
    };
    let deadline = deadline(headers, &site.options, Instant::now());
    // An exporter that keeps its promise answers by the deadline; nobody waits for one that does not.
    let patience = tokio::time::Instant::from_std(deadline + site.options.timeout_offset);
    let format = negotiate::format(headers);
    let scrape = site.exporter.scrape(selection, format, deadline);
    let text = match tokio::time::timeout_at(patience, scrape).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return respond::unavailable(&error.to_string()),
        Err(_) => return respond::unavailable("the scrape did not end by its deadline"),
    };
    let gzip = negotiate::gzip(headers);
    let Some(bytes) = (if gzip { compress(text).await } else { Some(text) }) else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be compressed");
    };
    let body = Bytes::from_owner(Body { bytes, _slot: slot });
    let mut answer = respond::with_type(StatusCode::OK, format.content_type(), body);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// A scrape's place among `max_requests`. It is given back with the last byte of the body, not before: a client
/// that does not read keeps megabytes here.
struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Slot {
    fn take(site: &Site) -> Option<Self> {
        let Some(scrapes) = &site.scrapes else { return Some(Slot { _permit: None }) };
        Some(Slot { _permit: Some(Arc::clone(scrapes).try_acquire_owned().ok()?) })
    }
}

/// The bytes of an answer, and its place.
struct Body {
    bytes: Bytes,
    _slot: Slot,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// On another thread: a large exposition takes milliseconds, which the thread that serves everyone does not have.
async fn compress(text: Bytes) -> Option<Bytes> {
    let compressing = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::new(GZIP_LEVEL));
        encoder.write_all(&text)?;
        encoder.finish()
    });
    compressing.await.ok()?.ok().map(Bytes::from)
}
