//! Grams of CO2 equivalent of energy, by a factor of the site. Pure and in integers: what was counted with one factor is as
//! it was when the site sets another.

use std::str::FromStr;

/// Digits after the point that a factor may have.
const PLACES: usize = 6;
/// Of a factor, in its smallest parts: below a ton for each kilowatt hour.
const MOST: u64 = 1_000_000_000_000;

/// Parts in the last digit of what is shown: a nanogram in microjoules times micrograms for each kilowatt hour. A kilowatt
/// hour is 3.6e12 microjoules, and a microgram is 1000 nanograms.
pub(super) const PARTS_IN_NANOGRAM: u128 = 3_600_000_000;

/// Grams of CO2 equivalent for each kilowatt hour, exact to six digits after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Co2Factor(u64);

/// Why a text is no factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a positive decimal number is needed, below 1000000 and with at most 6 digits after the point, such as 380.5"
)]
pub struct NoFactor;

impl FromStr for Co2Factor {
    type Err = NoFactor;

    fn from_str(text: &str) -> Result<Self, NoFactor> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > PLACES {
            return Err(NoFactor);
        }
        let micrograms: u64 = format!("{whole}{fraction:0<PLACES$}").parse().map_err(|_| NoFactor)?;
        if micrograms == 0 || micrograms >= MOST { Err(NoFactor) } else { Ok(Self(micrograms)) }
    }
}

impl Co2Factor {
    /// What so many microjoules are, in parts of which [`PARTS_IN_NANOGRAM`] make a nanogram.
    pub(super) fn parts(self, microjoules: u128) -> u128 {
        microjoules.saturating_mul(u128::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_a_positive_decimal() {
        let parse = |text: &str| text.parse::<Co2Factor>().map(|factor| factor.0);
        assert_eq!(parse("380"), Ok(380_000_000));
        assert_eq!(parse("0.000001"), Ok(1));
        assert_eq!(parse("437.25"), Ok(437_250_000));
        assert_eq!(parse("999999.999999"), Ok(MOST - 1));
        for bad in ["", "0", "0.0", "-1", "+1", "1e3", "1.", ".5", "1.0000001", "1000000", "NaN", "1,5", " 1"]
        {
            assert_eq!(parse(bad), Err(NoFactor), "{bad}");
        }
        assert_eq!(parse(&"9".repeat(40)), Err(NoFactor));
    }

    #[test]
    fn a_kilowatt_hour_is_the_factor_in_grams() {
        let factor: Co2Factor = "380.5".parse().unwrap();
        assert_eq!(factor.parts(3_600_000_000_000) / PARTS_IN_NANOGRAM, 380_500_000_000);
        assert_eq!(factor.parts(u128::MAX), u128::MAX);
    }
}
