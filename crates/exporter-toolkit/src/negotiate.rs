//! What a client accepts: the exposition format by `Accept`, gzip by `Accept-Encoding` (RFC 9110 §12.5).

use hyper::header::{ACCEPT, ACCEPT_ENCODING, AsHeaderName, HeaderMap};

/// The format of an exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' protobuf: each `io.prometheus.client.MetricFamily` behind its length. For clients that name it.
    Protobuf,
    /// Prometheus text 0.0.4, for every client that prefers neither of the others.
    Text,
}

impl Format {
    /// The `Content-Type`. Prometheus 3 refuses a scrape with an unknown type or version.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The format that the client prefers, protobuf only if the exporter writes it. A client that accepts none of them gets
/// text 0.0.4, as from other exporters: Prometheus falls back to it.
pub(crate) fn format(headers: &HeaderMap, writes_protobuf: bool) -> Format {
    let mut openmetrics = Best::default();
    let mut protobuf = Best::default();
    let mut text = Best::default();
    for (place, item) in items(headers, ACCEPT).enumerate() {
        let Some(item) = Item::parse(item) else { continue };
        let version = item.parameter("version");
        match item.name.to_ascii_lowercase().as_str() {
            "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => {
                openmetrics.offer(3, item.quality, place);
            }
            // The other encodings are text, or without lengths; a pattern never means what people cannot read.
            "application/vnd.google.protobuf"
                if writes_protobuf
                    && item.parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && item.parameter("encoding") == Some("delimited") =>
            {
                protobuf.offer(3, item.quality, place);
            }
            "application/*" => openmetrics.offer(2, item.quality, place),
            "text/plain" if matches!(version, None | Some("0.0.4")) => text.offer(3, item.quality, place),
            "text/*" => text.offer(2, item.quality, place),
            "*/*" => {
                openmetrics.offer(1, item.quality, place);
                text.offer(1, item.quality, place);
            }
            _ => {}
        }
    }
    // At equal quality the first one wins. `*/*` covers two of them and means text, which people can read.
    let others = [(openmetrics, Format::OpenMetrics), (protobuf, Format::Protobuf)];
    let best = others.into_iter().fold((text, Format::Text), |best, other| {
        let better = other.0.quality > best.0.quality
            || (other.0.quality == best.0.quality && other.0.place < best.0.place);
        if other.0.quality > 0 && better { other } else { best }
    });
    best.1
}

/// Whether to compress the answer: for a client that names gzip and does not prefer plain bytes, or that refuses plain
/// bytes and takes anything else.
pub(crate) fn gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for item in items(headers, ACCEPT_ENCODING).filter_map(Item::parse) {
        let seen = match item.name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => &mut gzip,
            "identity" => &mut identity,
            "*" => &mut any,
            _ => continue,
        };
        *seen = (*seen).max(Some(item.quality));
    }
    match (gzip, identity.or(any.filter(|quality| *quality == 0))) {
        (Some(gzip), identity) => gzip > 0 && gzip >= identity.unwrap_or(0),
        (None, Some(0)) => any.is_some_and(|quality| quality > 0),
        (None, _) => false,
    }
}

/// The quality of the most specific range that covers a format, and where in the header it stands.
#[derive(Clone, Copy, Default)]
struct Best {
    specificity: u8,
    quality: u16,
    place: usize,
}

impl Best {
    fn offer(&mut self, specificity: u8, quality: u16, place: usize) {
        if (specificity, quality) > (self.specificity, self.quality) {
            *self = Best { specificity, quality, place };
        }
    }
}

/// One element of such a header: `name;parameter=value;q=0.5`.
struct Item<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths, the finest that RFC 9110 §12.4.2 has.
    quality: u16,
}

impl<'a> Item<'a> {
    /// `None` for an empty element and for one with an invalid quality.
    fn parse(item: &'a str) -> Option<Self> {
        let mut parts = split_unquoted(item, b';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let parameters: Vec<_> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let mut item = Item { name, parameters, quality: 1000 };
        if let Some(quality) = item.parameter("q") {
            item.quality = parse_quality(quality)?;
        }
        Some(item)
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

fn parse_quality(quality: &str) -> Option<u16> {
    let (whole, decimals) = quality.split_once('.').unwrap_or((quality, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

fn items(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|v| split_unquoted(v, b','))
}

/// Splits at a separator that stands outside of double quotes.
fn split_unquoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let end = text.bytes().position(|byte| {
            quoted ^= byte == b'"';
            byte == separator && !quoted
        });
        let (item, behind) = match end.and_then(|end| text.split_at_checked(end)) {
            Some((item, behind)) => (item, behind.get(1..)),
            None => (text, None),
        };
        rest = behind;
        Some(item)
    })
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn the_format_follows_the_client() {
        use Format::{OpenMetrics, Protobuf, Text};
        for (accept, wanted) in [
            // Prometheus 2.5x, without and with native histograms; Prometheus 3.x (scrape/scrape.go: acceptHeader).
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,application/openmetrics-text;version=0.0.1;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Protobuf,
            ),
            // Prometheus 3.x with created-timestamp-zero-ingestion.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Protobuf,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            // `scrape_protocols: [PrometheusText0.0.4]`, `[PrometheusProto]`, `[OpenMetricsText0.0.1]`.
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.4", Text),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5",
                Protobuf,
            ),
            (
                "text/plain;q=0.6, application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5",
                Text,
            ),
            (
                "application/openmetrics-text, application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                OpenMetrics,
            ),
            (
                "Application/VND.google.protobuf; Proto=\"io.prometheus.client.MetricFamily\"; Encoding=\"delimited\", text/plain",
                Protobuf,
            ),
            // Other encodings and other messages.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text, text/plain;q=0.1",
                Text,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=compact-text",
                Text,
            ),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", Text),
            ("application/vnd.google.protobuf;proto=some.Other;encoding=delimited", Text),
            ("application/vnd.google.protobuf", Text),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
                Text,
            ),
            ("application/openmetrics-text;version=0.0.1;q=0.9", Text),
            ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4", Text),
            ("*/*", Text),
            ("", Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("APPLICATION/OpenMetrics-Text; VERSION=1.0.0; Q=1.0", OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"", OpenMetrics),
            ("application/*", OpenMetrics),
            ("text/*, application/*;q=0.9", Text),
            ("application/openmetrics-text;q=0, */*", Text),
            ("text/plain;q=0, */*", OpenMetrics),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=2", Text),
            ("application/openmetrics-text;q=0.1234, text/plain;q=0.001", Text),
            ("text/plain;note=\"a,application/openmetrics-text\";q=0.5", Text),
            ("text/plain, application/openmetrics-text", Text),
            ("application/openmetrics-text, text/plain", OpenMetrics),
            (",,;;q=1,", Text),
        ] {
            assert_eq!(format(&headers(ACCEPT, accept), true), wanted, "{accept}");
            let without = format(&headers(ACCEPT, accept), false);
            assert!(without == wanted || (wanted == Protobuf && without != Protobuf), "{accept}");
        }
        assert_eq!(format(&HeaderMap::new(), true), Text);
    }

    #[test]
    fn without_protobuf_prometheus_gets_what_it_prefers_of_the_others() {
        let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5,\
            application/openmetrics-text;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(format(&headers(ACCEPT, accept), false), Format::OpenMetrics);
    }

    #[test]
    fn several_accept_lines_are_one_list() {
        let mut both = headers(ACCEPT, "text/plain;q=0.1");
        both.append(ACCEPT, HeaderValue::from_static("application/openmetrics-text;q=0.2"));
        assert_eq!(format(&both, true), Format::OpenMetrics);
    }

    #[test]
    fn gzip_only_if_asked() {
        for (accept, wanted) in [
            ("gzip", true),
            ("deflate, gzip, br, zstd", true),
            ("GZIP;q=0.1", true),
            ("x-gzip", true),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("", false),
            ("*", false),
            ("identity", false),
            ("br", false),
            ("gzip;q=0.5, identity", false),
            ("gzip, identity", true),
            ("gzip;q=0.5, identity;q=0.2", true),
            ("gzip;q=0.5, *;q=0", true),
            ("identity;q=0, *", true),
            ("identity;q=0", false),
            ("gzip;q=no", false),
        ] {
            assert_eq!(gzip(&headers(ACCEPT_ENCODING, accept)), wanted, "{accept}");
        }
        assert!(!gzip(&HeaderMap::new()));
    }
}
