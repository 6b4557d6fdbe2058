//! The answers that are not an exposition.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

/// Every answer: whole, so that its length is known and a part of it is never taken for all of it.
pub(super) type Answer = Response<Full<Bytes>>;

/// An answer of any type.
pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Part of a request may be repeated in a text: a browser is not to guess that it is HTML.
    let sniff = HeaderName::from_static("x-content-type-options");
    answer.headers_mut().insert(sniff, HeaderValue::from_static("nosniff"));
    answer
}

/// One line of plain text.
pub(super) fn text(status: StatusCode, line: &str) -> Answer {
    with_type(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

pub(super) fn unavailable(line: &str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, line);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

pub(super) fn method_not_allowed() -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

pub(super) fn unauthorized() -> Answer {
    let mut answer = text(StatusCode::UNAUTHORIZED, "Unauthorized");
    let challenge = HeaderValue::from_static("Basic realm=\"jobledger\", charset=\"UTF-8\"");
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    answer
}
