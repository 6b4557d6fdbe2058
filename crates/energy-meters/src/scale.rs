//! Factors of the kernel's event sources, kept as ratios so that no joule is lost to rounding.

use kernel_files::parse::{Decimal, ParseError, decimal};

/// What one count of an event is worth, as an exact ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Microjoules ...
    numerator: u64,
    /// ... per this many counts. Not 0.
    denominator: u128,
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Scale {
    /// 2^-`bits` joules per count, the unit of RAPL's registers.
    pub fn binary(bits: u8) -> Option<Self> {
        Self::reduced(1_000_000, 1_u128.checked_shl(u32::from(bits))?)
    }

    fn reduced(numerator: u128, denominator: u128) -> Option<Self> {
        let common = gcd(numerator, denominator).max(1);
        let numerator = u64::try_from(numerator / common).ok()?;
        (numerator > 0 && denominator > 0).then_some(Self { numerator, denominator: denominator / common })
    }

    /// A cumulative count in microjoules, rounded down. Differences of two of them add up to what the difference of
    /// the counts is worth, because it is always the whole count that is converted. `None` beyond `u64`.
    pub fn microjoules(self, count: u64) -> Option<u64> {
        u64::try_from(u128::from(count) * u128::from(self.numerator) / self.denominator).ok()
    }

    /// The value in microjoules at which a 64-bit count wraps; `None` if that is beyond `u64`.
    pub fn wraps_at(self) -> Option<u64> {
        let full = (1_u128 << 64).checked_mul(u128::from(self.numerator))?;
        u64::try_from(full / self.denominator).ok()
    }
}

/// Parses the `.scale` of an event that counts joules (Documentation/ABI/testing/sysfs-bus-event_source-devices-events):
/// `2.3283064365386962890625e-10`, which is 2^-32 to the last digit.
pub fn parse_scale(bytes: &[u8]) -> Result<Scale, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not a positive decimal factor" };
    let Decimal { digits, exponent } = decimal(bytes.trim_ascii()).ok_or(BAD)?;
    // Joules to microjoules.
    let power = exponent.saturating_add(6);
    let ten = 10_u128.checked_pow(power.unsigned_abs()).ok_or(BAD)?;
    let (numerator, denominator) =
        if power < 0 { (digits, ten) } else { (digits.checked_mul(ten).ok_or(BAD)?, 1) };
    Scale::reduced(numerator, denominator).ok_or(BAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_factor_is_two_to_the_minus_32_exactly() {
        let scale = parse_scale(b"2.3283064365386962890625e-10\n").unwrap();
        assert_eq!(scale, Scale::binary(32).unwrap());
        assert_eq!(scale.microjoules(1 << 32), Some(1_000_000), "a joule");
        assert_eq!(scale.microjoules((1 << 32) - 1), Some(999_999), "rounded down");
        assert_eq!(scale.wraps_at(), Some(4_294_967_296_000_000), "4.3 GJ: 99 days at 500 W");
        assert_eq!(scale.microjoules(u64::MAX), Some(4_294_967_295_999_999));
    }

    #[test]
    fn other_factors_are_exact_too() {
        for (text, count, uj) in [
            ("1", 3, 3_000_000),
            ("1.0", 3, 3_000_000),
            ("1e-6", 7, 7),
            ("1E-9", 1_999, 1),
            ("0.5", 3, 1_500_000),
            ("2.5e+1", 2, 50_000_000),
            ("1e1", 2, 20_000_000),
            ("6.103515625e-05", 1 << 14, 1_000_000),
            (".25", 4, 1_000_000),
        ] {
            assert_eq!(parse_scale(text.as_bytes()).unwrap().microjoules(count), Some(uj), "{text}");
        }
        assert_eq!(Scale::binary(16).unwrap().microjoules(1 << 16), Some(1_000_000));
        assert_eq!(Scale::binary(14).unwrap().microjoules(3), Some(183), "3 * 61.035...");
        assert_eq!(Scale::binary(0).unwrap().microjoules(u64::MAX), None, "beyond u64 is no number");
        assert_eq!(Scale::binary(0).unwrap().wraps_at(), None);
        assert_eq!(Scale::binary(200), None);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            ".",
            "e-10",
            "-1",
            "+1",
            "1.2.3",
            "1e",
            "1e-",
            "1e--1",
            "1e1000",
            "0",
            "0.0e-3",
            "1 J",
            "0x1",
            "1e300",
            "1e-300",
            "nan",
            "inf",
            "340282366920938463463374607431768211456",
        ] {
            assert!(parse_scale(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
