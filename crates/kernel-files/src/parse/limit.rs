//! `max` or a number.

use super::{ParseError, integer};

/// A limit file's content: no number stands for "none".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// No limit: `max` on v2, the largest page-aligned number on v1.
    Max,
    /// A limit in the file's unit.
    Value(u64),
}

impl Limit {
    /// The number, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Max => None,
            Self::Value(v) => Some(v),
        }
    }

    /// A limit in bytes as v1 writes it: "none" is `PAGE_COUNTER_MAX` (mm/page_counter.c), which is `LONG_MAX`
    /// rounded down to the page size, whatever that is (4, 16 or 64 KiB).
    pub fn from_v1_bytes(bytes: u64) -> Self {
        const LARGEST_PAGE: u64 = 64 << 10;
        if bytes >= i64::MAX.unsigned_abs() - LARGEST_PAGE { Self::Max } else { Self::Value(bytes) }
    }
}

/// Parses a limit file of v1 or v2.
pub fn parse_limit(bytes: &[u8]) -> Result<Limit, ParseError> {
    match bytes.trim_ascii() {
        b"max" => Ok(Limit::Max),
        number => integer(number)
            .map(Limit::from_v1_bytes)
            .ok_or(ParseError::new(1, "neither max nor an unsigned integer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_is_no_number() {
        assert_eq!(parse_limit(b"max\n"), Ok(Limit::Max));
        assert_eq!(parse_limit(b"9223372036854771712\n"), Ok(Limit::Max), "v1, 4 KiB pages");
        assert_eq!(parse_limit(b"9223372036854710272\n"), Ok(Limit::Max), "v1, 64 KiB pages");
        assert_eq!(parse_limit(b"104857600\n"), Ok(Limit::Value(104_857_600)));
        assert!(parse_limit(b"-1\n").is_err());
    }
}
