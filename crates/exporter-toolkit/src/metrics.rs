//! The metrics page: one scrape, from the request to the bytes of the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};
use hyper::{StatusCode, Uri};

use crate::admission::Place;
use crate::deadline::deadline;
use crate::gzip::Gzip;
use crate::payload::Payload;
use crate::queue::{Ask, Turn};
use crate::respond::{self, Answer};
use crate::state::ServerState;
use crate::{Bytes, Client, Exposition, Scrape, ScrapeError, negotiate, query};

/// Answers a scrape.
pub(crate) async fn metrics(
    server: &ServerState,
    uri: &Uri,
    headers: &HeaderMap,
    client: Client,
    place: &Place,
) -> Answer {
    let selection = match query::selection(uri.query(), &server.exporter.collectors()) {
        Ok(selection) => selection,
        Err(reason) => return respond::text(StatusCode::BAD_REQUEST, &reason),
    };
    let format = negotiate::format(headers, server.exporter.writes_protobuf());
    let deadline = deadline(headers, &server.options, Instant::now());
    // The exporter answers by the deadline. A later answer is abandoned when Prometheus stops waiting.
    let limit = tokio::time::Instant::from_std(deadline + server.options.timeout_offset);
    // Held while collecting and not while the client reads.
    let Ok(_turn) = tokio::time::timeout_at(limit, turn(server, place)).await else {
        server.refusals.scrape.fetch_add(1, Ordering::Relaxed);
        return respond::unavailable("too many scrapes at once");
    };
    let scrape = server.exporter.scrape(Scrape { selection, format, deadline, client });
    let Exposition { body, on_delivery } = match tokio::time::timeout_at(limit, scrape).await {
        Ok(Ok(exposition)) => exposition,
        Ok(Err(ScrapeError::Unavailable(reason))) => return respond::unavailable(&reason),
        Ok(Err(ScrapeError::Failed(reason))) => {
            return respond::text(StatusCode::INTERNAL_SERVER_ERROR, &reason);
        }
        Err(_) => return respond::unavailable("the scrape did not end by its deadline"),
    };
    let gzip = negotiate::gzip(headers);
    let body = if gzip { compressed(&server.gzip, body).await } else { Some(body) };
    let Some(body) = body else {
        return respond::text(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be compressed");
    };
    let body = Payload::new(body, on_delivery);
    let mut answer = respond::with_type(StatusCode::OK, format.content_type(), body);
    answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// Waits for a place among `max_requests`. Those who are known come first: the site's scrapers, and connections that had an
/// answer before.
async fn turn(server: &ServerState, place: &Place) -> Option<Turn> {
    let rank = u8::from(!place.scraper && !place.has_scraped());
    let ask = Ask { rank, peer: place.peer, name: String::new() };
    server.scrapes.as_ref()?.wait(ask).await
}

async fn compressed(gzip: &Arc<Gzip>, body: Bytes) -> Option<Bytes> {
    if Gzip::is_small(&body) {
        return gzip.compress(&body);
    }
    let gzip = gzip.clone();
    tokio::task::spawn_blocking(move || gzip.compress(&body)).await.ok()?
}
