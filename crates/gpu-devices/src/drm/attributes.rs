//! Files of a device in sysfs: a missing one is absent, an unreadable one is reported once.

use kernel_files::parse::{ParseError, integer, parse_integer};
use kernel_files::{Buffer, Dir, ReadError, SourceError, label_text};

const FILES: &str = "/sys/class/drm/card*/device";
/// What drivers answer for a sensor that this model does not have: EINVAL, ENODATA, ENOTTY.
const NOT_THERE: [i32; 3] = [22, 61, 25];

/// Parses a signed number and a newline (hwmon temperatures).
pub fn parse_signed(bytes: &[u8]) -> Result<i64, ParseError> {
    let text = bytes.trim_ascii();
    let (sign, digits) = text.strip_prefix(b"-").map_or((1, text), |digits| (-1, digits));
    let value = integer(digits).and_then(|value| i64::try_from(value).ok());
    value.map(|value| sign * value).ok_or(ParseError::new(1, "not an integer"))
}

/// Generation of a PCIe link by its speed: `16.0 GT/s PCIe` is 4 (drivers/pci/probe.c, `pci_speed_string`).
pub fn link_generation(bytes: &[u8]) -> Option<u64> {
    match bytes.split(|byte| *byte == b' ').next()? {
        b"2.5" => Some(1),
        b"5" | b"5.0" => Some(2),
        b"8" | b"8.0" => Some(3),
        b"16" | b"16.0" => Some(4),
        b"32" | b"32.0" => Some(5),
        b"64" | b"64.0" => Some(6),
        _ => None,
    }
}

/// Reads files below directories and keeps what went wrong.
pub(crate) struct Attributes<'a> {
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) failed: &'a mut Vec<SourceError>,
}

impl Attributes<'_> {
    /// Notes an error, once.
    pub(crate) fn fail(&mut self, error: SourceError) {
        if !self.failed.contains(&error) {
            self.failed.push(error);
        }
    }

    /// The content of a file that there is.
    pub(crate) fn bytes(&mut self, dir: &Dir, file: &str) -> Option<Vec<u8>> {
        match dir.read(file, self.buffer) {
            Ok(bytes) => Some(bytes.to_vec()),
            Err(ReadError::Gone | ReadError::Unsupported) => None,
            Err(ReadError::Io(errno)) if NOT_THERE.contains(&errno) => None,
            Err(ReadError::Denied) => {
                self.fail(SourceError::Denied { what: format!("{FILES}/{file}") });
                None
            }
            Err(error) => {
                self.fail(SourceError::Io { file: FILES, error });
                None
            }
        }
    }

    /// What a file says; a content of another form is an error.
    pub(crate) fn parsed<T>(
        &mut self,
        dir: &Dir,
        file: &str,
        parse: impl FnOnce(&[u8]) -> Result<T, ParseError>,
    ) -> Option<T> {
        let bytes = self.bytes(dir, file)?;
        match parse(&bytes) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(SourceError::Malformed { file: FILES, error });
                None
            }
        }
    }

    /// An unsigned number.
    pub(crate) fn number(&mut self, dir: &Dir, file: &str) -> Option<u64> {
        self.parsed(dir, file, parse_integer)
    }

    /// A line that says something.
    pub(crate) fn line(&mut self, dir: &Dir, file: &str) -> Option<String> {
        let text = label_text(self.bytes(dir, file)?.trim_ascii());
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures_may_be_below_zero() {
        assert_eq!(parse_signed(b"41000\n"), Ok(41000));
        assert_eq!(parse_signed(b"-5000\n"), Ok(-5000));
        for bad in [&b"\n"[..], b"--5\n", b"+5\n", b"5.0\n", b"9223372036854775808\n"] {
            assert!(parse_signed(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_link_s_generation_follows_from_its_speed() {
        let of = |text: &str| link_generation(text.as_bytes());
        assert_eq!(of("2.5 GT/s PCIe\n"), Some(1));
        assert_eq!(of("16.0 GT/s PCIe\n"), Some(4));
        assert_eq!(of("16 GT/s\n"), Some(4), "before Linux 5.1");
        assert_eq!(of("32.0 GT/s PCIe\n"), Some(5));
        assert_eq!(of("Unknown\n"), None);
        assert_eq!(of(""), None);
    }
}
