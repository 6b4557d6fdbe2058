//! The samples of a collection as the bytes that a client gets.

use std::fmt;
use std::sync::Arc;

use exporter_toolkit::{Bytes, Format};
use exposition::{Created, Section, encode_openmetrics_with, encode_protobuf, encode_text};

use super::ScrapeError;

/// Encodes sections, with room for what the last encoding took. Protobuf always says since when its counters count.
pub(super) fn encode(
    sections: &[Arc<Section>],
    format: Format,
    created: Created,
    capacity: usize,
) -> Result<Bytes, ScrapeError> {
    let room = capacity + capacity / 8;
    match format {
        Format::OpenMetrics => text(room, |out| encode_openmetrics_with(sections, created, out)),
        Format::Text => text(room, |out| encode_text(sections, out)),
        Format::Protobuf => {
            let mut out = Vec::with_capacity(room);
            encode_protobuf(sections, &mut out);
            Ok(out.into())
        }
    }
}

fn text(room: usize, encode: impl FnOnce(&mut String) -> fmt::Result) -> Result<Bytes, ScrapeError> {
    let mut text = String::with_capacity(room);
    match encode(&mut text) {
        Ok(()) => Ok(text.into()),
        Err(fmt::Error) => {
            tracing::error!("the samples of a scrape could not be encoded");
            Err(ScrapeError::Encoding)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_encoder_is_no_time_out() {
        assert_eq!(text(8, |_| Err(fmt::Error)), Err(ScrapeError::Encoding));
        let written = text(8, |text| {
            text.push_str("# EOF\n");
            Ok(())
        });
        assert_eq!(written.as_deref(), Ok(&b"# EOF\n"[..]));
    }
}
