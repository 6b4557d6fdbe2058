//! When a scrape is due.

use std::time::{Duration, Instant};

use hyper::header::HeaderMap;

use crate::WebOptions;

pub(crate) const HEADER: &str = "x-prometheus-scrape-timeout-seconds";
/// The shortest time that a client can ask for.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest one.
const LONGEST: Duration = Duration::from_secs(300);

/// When collecting must end so that the answer reaches Prometheus before its scrape timeout.
///
/// Prometheus sends that timeout in a header. The offset is kept for encoding and sending, but at most half of the
/// timeout, so that a short one leaves time to collect.
pub(crate) fn deadline(headers: &HeaderMap, options: &WebOptions, now: Instant) -> Instant {
    let patience = patience(headers, options);
    now + (patience - options.timeout_offset.min(patience / 2))
}

/// How long the client waits for its answer.
pub(crate) fn patience(headers: &HeaderMap, options: &WebOptions) -> Duration {
    headers
        .get(HEADER)
        .and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok())
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.min(LONGEST.as_secs_f64())).ok())
        .unwrap_or(options.default_scrape_timeout)
        .max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_header_minus_the_offset_and_never_in_the_past() {
        let now = Instant::now();
        for (value, milliseconds) in [
            (Some("10.000000"), 9_500),
            (Some("5"), 4_500),
            (Some(" 1.5 "), 1_000),
            (Some("0.5"), 250),
            (Some("0.000001"), 50),
            (Some("0.001"), 50),
            (Some("1e9"), 299_500),
            (Some("inf"), 299_500),
            (Some("NaN"), 9_500),
            (Some("0"), 9_500),
            (Some("-3"), 9_500),
            (Some("1e-300"), 50),
            (Some("ten"), 9_500),
            (Some(""), 9_500),
            (None, 9_500),
        ] {
            let headers = HeaderMap::from_iter(
                value.map(|value| (HEADER.parse().unwrap(), HeaderValue::from_str(value).unwrap())),
            );
            let left = deadline(&headers, &WebOptions::default(), now) - now;
            assert_eq!(left.as_millis(), milliseconds, "{value:?}");
        }
    }
}
