//! `event=0x02` (Documentation/ABI/testing/sysfs-bus-event_source-devices-events).

use kernel_files::parse::{ParseError, integer};

/// Parses the description of an event of the `power` PMU. Its only field is `event`, the low eight bits of the
/// configuration (`format/event` says `config:0-7`). Another field means an unknown PMU.
pub fn parse_event(bytes: &[u8]) -> Result<u64, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not event=<number below 256>" };
    let value = bytes.trim_ascii().strip_prefix(b"event=").ok_or(BAD)?;
    let number = match value.strip_prefix(b"0x") {
        None => integer(value),
        // Two digits at most, so that no sign and no blank gets through.
        Some(digits @ ([_] | [_, _])) if digits.iter().all(u8::is_ascii_hexdigit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok())
        }
        Some(_) => None,
    };
    number.filter(|number| *number < 256).ok_or(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_field_is_a_small_number() {
        for (text, value) in [("event=0x02\n", 2), ("event=0xff", 255), ("event=5\n", 5), ("event=0xA", 10)] {
            assert_eq!(parse_event(text.as_bytes()), Ok(value), "{text}");
        }
        for bad in [
            "",
            "event=",
            "event=0x",
            "event=0x100",
            "event=256",
            "event=-1",
            "event=0x+1",
            "umask=1",
            "event=1,umask=2",
        ] {
            assert!(parse_event(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
