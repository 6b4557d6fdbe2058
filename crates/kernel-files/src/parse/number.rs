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

/// A decimal number, exactly as it is written: `digits` times ten to the power of `exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// All digits, without the point.
    pub digits: u128,
    /// What the point and the written exponent make.
    pub exponent: i32,
}

impl Decimal {
    /// This number times `factor` times ten to the power of `power`, rounded down. `None` beyond `u64`.
    pub fn scaled(self, factor: u64, power: i32) -> Option<u64> {
        let digits = self.digits.checked_mul(u128::from(factor))?;
        let power = self.exponent.saturating_add(power);
        let ten = 10_u128.checked_pow(power.unsigned_abs());
        let whole = match (power < 0, ten) {
            (true, Some(ten)) => digits / ten,
            // Ten to this power is more than all digits.
            (true, None) => 0,
            (false, _) if digits == 0 => 0,
            (false, ten) => digits.checked_mul(ten?)?,
        };
        u64::try_from(whole).ok()
    }
}

/// An unsigned decimal without blanks: `12`, `0.5`, `2.3283e-10`. The exponent has at most three digits.
pub fn decimal(bytes: &[u8]) -> Option<Decimal> {
    let at = bytes.iter().position(|b| matches!(b, b'e' | b'E'));
    let (mantissa, written) = at.map_or((bytes, &b""[..]), |at| bytes.split_at(at));
    let small = |digits| integer(digits).filter(|_| digits.len() <= 3).and_then(|n| i32::try_from(n).ok());
    let mut exponent = match written.split_first() {
        None => 0,
        Some((_, [b'-', digits @ ..])) => -small(digits)?,
        Some((_, [b'+', digits @ ..] | digits)) => small(digits)?,
    };
    let mut digits: u128 = 0;
    let (mut point, mut any) = (false, false);
    for byte in mantissa {
        match byte {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                any = true;
                digits = digits.checked_mul(10)?.checked_add(u128::from(byte.wrapping_sub(b'0')))?;
                exponent -= i32::from(point);
            }
            _ => return None,
        }
    }
    any.then_some(Decimal { digits, exponent })
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

    #[test]
    fn a_decimal_is_read_to_its_last_digit() {
        let read = |text: &str| decimal(text.as_bytes()).map(|d| (d.digits, d.exponent));
        assert_eq!(read("345.25"), Some((34525, -2)));
        assert_eq!(read("0"), Some((0, 0)));
        assert_eq!(read(".5"), Some((5, -1)));
        assert_eq!(read("2.5e+1"), Some((25, 0)));
        assert_eq!(read("1E-9"), Some((1, -9)));
        for bad in ["", ".", "-1", "+1", "1 ", "1.2.3", "1e", "1e-", "1e1000", "0x1", "nan"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read("340282366920938463463374607431768211456"), None, "more digits than are kept");
    }

    #[test]
    fn a_scaled_decimal_is_rounded_down_and_never_wraps() {
        let scaled = |text: &str, factor, power| decimal(text.as_bytes()).unwrap().scaled(factor, power);
        assert_eq!(scaled("345.2500019", 1, 6), Some(345_250_001));
        assert_eq!(scaled("12.345", 3_600_000, 6), Some(44_442_000_000_000));
        assert_eq!(scaled("1e-300", 1, 6), Some(0));
        assert_eq!(scaled("0e300", 1, 6), Some(0));
        assert_eq!(scaled("1e300", 1, 6), None);
        assert_eq!(scaled("18446744073709551615", 1, 0), Some(u64::MAX));
        assert_eq!(scaled("18446744073709551616", 1, 0), None);
    }
}
