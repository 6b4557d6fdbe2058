//! Amounts in a fraction of a unit, exact to the last printed digit.

use std::fmt::{Display, Error, Formatter, Write};

/// Most digits after the point: 10^19 is the largest power of ten in a `u64`.
const MOST_PLACES: u32 = 19;

/// `amount / 10^places`. Sums of decimals agree digit by digit, which sums of floats do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    amount: u64,
    places: u8,
}

impl Decimal {
    /// An amount in units of `10^-places`, with at most 19 places.
    #[expect(clippy::cast_possible_truncation, reason = "19 at most")]
    pub const fn new(amount: u64, places: u32) -> Self {
        Self { amount, places: if places < MOST_PLACES { places as u8 } else { MOST_PLACES as u8 } }
    }

    /// How many units of `10^-places` it is.
    pub const fn amount(self) -> u64 {
        self.amount
    }

    /// Its digits after the point.
    pub fn places(self) -> u32 {
        u32::from(self.places)
    }

    fn scale(self) -> u64 {
        10_u64.pow(u32::from(self.places))
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        const EXACT: u64 = 1 << 53;
        #[expect(
            clippy::cast_precision_loss,
            reason = "both are exact floats, and their quotient is rounded once"
        )]
        if self.amount <= EXACT {
            return self.amount as f64 / self.scale() as f64;
        }
        let mut text = Short::default();
        let written = self.write(&mut text);
        written.ok().and_then(|()| text.as_str().parse().ok()).unwrap_or(f64::MAX)
    }

    /// Writes all its digits but the zeros at the end, and at least one after the point.
    pub(crate) fn write(self, out: &mut impl Write) -> Result<(), Error> {
        let (whole, mut rest) = (self.amount / self.scale(), self.amount % self.scale());
        out.write_str(itoa::Buffer::new().format(whole))?;
        let mut digits = Short { bytes: [b'0'; 40], len: usize::from(self.places).max(1) };
        for digit in digits.bytes.iter_mut().take(usize::from(self.places)).rev() {
            *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        let digits = digits.as_str();
        let used = digits.trim_end_matches('0');
        out.write_str(".")?;
        out.write_str(if used.is_empty() { "0" } else { used })
    }
}

impl Display for Decimal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result<(), Error> {
        self.write(f)
    }
}

/// A short text without an allocation.
struct Short {
    bytes: [u8; 40],
    len: usize,
}

impl Default for Short {
    fn default() -> Self {
        Self { bytes: [0; 40], len: 0 }
    }
}

impl Short {
    fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> Result<(), Error> {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(amount: u64, places: u32) -> String {
        let mut text = String::new();
        Decimal::new(amount, places).write(&mut text).unwrap();
        text
    }

    #[test]
    fn every_digit_is_written_and_no_zero_too_many() {
        assert_eq!(text(7_007_159_177, 6), "7007.159177", "as a float it was 7007.1591770000009");
        assert_eq!(text(1_500_000, 6), "1.5");
        assert_eq!(text(2_000_000, 6), "2.0");
        assert_eq!(text(1, 6), "0.000001");
        assert_eq!(text(0, 9), "0.0");
        assert_eq!(text(10, 0), "10.0");
        assert_eq!(text(u64::MAX, 19), "1.8446744073709551615");
        assert_eq!(text(u64::MAX, 6), "18446744073709.551615");
        assert_eq!(text(5, 40), text(5, 19), "as fine as it goes");
    }

    proptest! {
        #[test]
        fn the_digits_are_the_amount_and_the_float_is_the_nearest(amount in any::<u64>(), places in 0..19_u32) {
            let text = text(amount, places);
            let (whole, fraction) = text.split_once('.').unwrap();
            let width = (places as usize).max(1);
            let digits = format!("{whole}{fraction:0<width$}");
            let amount_shown: u128 = digits.parse().unwrap();
            prop_assert_eq!(amount_shown, u128::from(amount) * if places == 0 { 10 } else { 1 });
            prop_assert_eq!(Decimal::new(amount, places).to_f64(), text.parse::<f64>().unwrap(), "{}", text);
        }
    }
}
