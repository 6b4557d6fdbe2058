//! The answers that are not an exposition.

use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use crate::payload::Payload;

/// Every answer. Its body is whole, so that its length is known and no client takes a part of it for all of it.
pub(crate) type Answer = Response<Full<Payload>>;

/// An answer of any type.
pub(crate) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Payload>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // A text may repeat part of a request. Browsers must not guess that it is HTML.
    let sniff = HeaderName::from_static("x-content-type-options");
    answer.headers_mut().insert(sniff, HeaderValue::from_static("nosniff"));
    answer
}

/// One line of plain text.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    with_type(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// 503: the client may come again soon.
pub(crate) fn unavailable(line: &str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, line);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// 405.
pub(crate) fn method_not_allowed() -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

/// 401, with this realm (RFC 7617 §2).
pub(crate) fn unauthorized(realm: &str) -> Answer {
    let is_plain = |character: &char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    let realm: String = realm.chars().filter(is_plain).collect();
    let challenge = HeaderValue::from_str(&format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    let challenge = challenge.unwrap_or(HeaderValue::from_static("Basic realm=\"\""));
    let mut answer = text(StatusCode::UNAUTHORIZED, "Unauthorized");
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_a_realm() {
        for (name, wanted) in [
            ("Node exporter", "Basic realm=\"Node exporter\", charset=\"UTF-8\""),
            ("a\"b\\c\r\nd\u{e9}", "Basic realm=\"abcd\", charset=\"UTF-8\""),
        ] {
            assert_eq!(unauthorized(name).headers()[WWW_AUTHENTICATE], wanted);
        }
    }
}
