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
use super::negotiate::{self, Format};
use super::query;
use super::respond::{self, Answer};
use super::text::openmetrics_to_text;
use crate::scrape::Exposition;

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
    let exposition = match tokio::time::timeout_at(patience, site.exporter.scrape(selection, deadline)).await
    {
        Ok(Ok(exposition)) => exposition,
        Ok(Err(error)) => return respond::unavailable(&error.to_string()),
        Err(_) => return respond::unavailable("the scrape did not end by its deadline"),
    };
    let format = negotiate::format(headers);
    let gzip = negotiate::gzip(headers);
    let Some(body) = encode(exposition, slot, format, gzip).await else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be encoded");
    };
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

/// Bytes that own what they come from.
struct Body<T> {
    bytes: T,
    _slot: Slot,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Body<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

struct Shared(Arc<Exposition>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.openmetrics.as_bytes()
    }
}

async fn encode(exposition: Arc<Exposition>, slot: Slot, format: Format, gzip: bool) -> Option<Bytes> {
    if format == Format::OpenMetrics && !gzip {
        // As it is: clients that share a collection share its bytes.
        return Some(Bytes::from_owner(Body { bytes: Shared(exposition), _slot: slot }));
    }
    // Milliseconds for a large exposition, which the thread that serves everyone does not have.
    let encoding = tokio::task::spawn_blocking(move || {
        let rewritten;
        let text = match format {
            Format::OpenMetrics => exposition.openmetrics.as_str(),
            Format::Text => {
                rewritten = openmetrics_to_text(&exposition.openmetrics);
                rewritten.as_str()
            }
        };
        let bytes = if gzip { compress(text).ok()? } else { text.as_bytes().to_vec() };
        Some(Bytes::from_owner(Body { bytes, _slot: slot }))
    });
    encoding.await.ok().flatten()
}

fn compress(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::new(GZIP_LEVEL));
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}
