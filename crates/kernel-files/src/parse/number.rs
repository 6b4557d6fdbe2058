//! Numbers and lines.

use super::ParseError;

/// An unsigned decimal without sign, blanks or overflow; anything else is `None`.
pub fn integer(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for digit in bytes {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A file that holds one unsigned decimal and a newline (`memory.current`, `cpuacct.usage`).
pub fn parse_integer(bytes: &[u8]) -> Result<u64, ParseError> {
    integer(bytes.trim_ascii()).ok_or(ParseError::new(1, "not an unsigned integer"))
}

/// The lines of a file, numbered from 1, without their newlines. The last one must have its newline: the
/// kernel ends every record with one, so a missing one means that the record was cut.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &[u8]), ParseError>> {
    bytes.split_inclusive(|b| *b == b'\n').enumerate().map(|(i, raw)| {
        let line = raw.strip_suffix(b"\n").ok_or(ParseError::new(i + 1, "torn line"))?;
        Ok((i + 1, line))
    })
}

/// The blank-separated fields of a line.
pub fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|b| b.is_ascii_whitespace()).filter(|f| !f.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimals_are_integers() {
        assert_eq!(integer(b"0"), Some(0));
        assert_eq!(integer(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"-1", b"+1", b"1 ", b"18446744073709551616", b"0x10", b"max", b"1.5"] {
            assert_eq!(integer(bad), None, "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(parse_integer(b"42\n"), Ok(42));
        assert!(parse_integer(b"\n").is_err());
    }
}
