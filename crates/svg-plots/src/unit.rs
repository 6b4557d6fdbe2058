//! Numbers with their units and prefixes.

/// What values are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit<'a> {
    /// No unit, and a prefix where the number is long: 1.5 k.
    Number,
    /// Ratios, shown as percent: 0.5 is 50 %.
    Percent,
    /// A unit with prefixes of 1000: `W` gives 1.5 kW.
    Si(&'a str),
    /// A unit with prefixes of 1024: `B` gives 1.5 KiB.
    Binary(&'a str),
}

const SI: [(f64, &str); 9] = [
    (1e18, "E"),
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
];
const BINARY: [(f64, &str); 7] = [
    (1_152_921_504_606_846_976.0, "Ei"),
    (1_125_899_906_842_624.0, "Pi"),
    (1_099_511_627_776.0, "Ti"),
    (1_073_741_824.0, "Gi"),
    (1_048_576.0, "Mi"),
    (1024.0, "Ki"),
    (1.0, ""),
];

/// How the numbers of an axis are written: one factor and one suffix for all of them.
#[derive(Debug, Clone)]
pub(crate) struct Format {
    /// None where no prefix is large or small enough: such numbers have an exponent.
    factor: Option<f64>,
    suffix: String,
    decimals: usize,
}

impl<'a> Unit<'a> {
    /// A value by itself, with three digits: `12.9 GiB`. What is not finite is `no data`.
    ///
    /// ```
    /// use svg_plots::Unit;
    ///
    /// assert_eq!(Unit::Binary("B").show(13_851_000_000.0), "12.9 GiB");
    /// assert_eq!(Unit::Percent.show(0.4931), "49.3 %");
    /// assert_eq!(Unit::Si("W").show(-1240.0), "-1.24 kW");
    /// ```
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "no data".to_owned();
        }
        let mut format = self.format(value.abs(), value.abs() / 1000.0);
        let shown = format.factor.map_or(1.0, |factor| value.abs() / factor);
        format.decimals = (0..9).take_while(|digits| shown * 10f64.powi(*digits) < 99.95).count();
        format.show(value)
    }

    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Number | Self::Percent => "",
            Self::Si(name) | Self::Binary(name) => name,
        }
    }

    /// The format of an axis whose largest value and step are these.
    pub(crate) fn format(self, largest: f64, step: f64) -> Format {
        let prefixes: &[(f64, &str)] = match self {
            // A small number without a unit has no prefix: 5 m would be metres.
            Self::Number => SI.split_at(7).0,
            Self::Si(_) => &SI,
            Self::Binary(_) => &BINARY,
            Self::Percent => &[(0.01, "%")],
        };
        let space = if self == Self::Percent { "" } else { self.name() };
        // 999.6 is shown as 1 k, not as 1000.
        let found = prefixes.iter().find(|(factor, _)| largest >= factor * 0.9995).or(prefixes.last());
        let found = found
            .filter(|(factor, _)| largest == 0.0 || (largest < factor * 1e6 && largest >= factor * 1e-6));
        let zero = Some(&(1.0, "")).filter(|_| largest == 0.0 && self != Self::Percent);
        let (factor, prefix) = zero.or(found).map_or((None, ""), |(factor, prefix)| (Some(*factor), *prefix));
        let suffix = if factor.is_none() && self == Self::Percent {
            String::new()
        } else {
            format!("{prefix}{space}")
        };
        let step = step.abs() / factor.unwrap_or(1.0);
        // As many as make two steps different; zeros at the end go.
        let decimals = (0..9).find(|digits| step >= 0.99 * 10f64.powi(-digits)).unwrap_or(9) + 2;
        Format { factor, suffix, decimals: usize::try_from(decimals).unwrap_or(0) }
    }
}

impl Format {
    pub(crate) fn show(&self, value: f64) -> String {
        let number = match self.factor {
            Some(factor) => {
                let shown = format!("{:.*}", self.decimals, value / factor);
                without_zeros(&shown).to_owned()
            }
            None if value == 0.0 => "0".to_owned(),
            None => {
                let shown = format!("{value:.2e}");
                let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
                format!("{}e{exponent}", without_zeros(mantissa))
            }
        };
        let number = if number == "-0" { "0" } else { &number };
        if self.suffix.is_empty() { number.to_owned() } else { format!("{number} {}", self.suffix) }
    }
}

fn without_zeros(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_three_digits_and_one_prefix() {
        let cases = [
            (Unit::Number, 0.0, "0"),
            (Unit::Number, 999.4, "999"),
            (Unit::Number, 999.6, "1 k"),
            (Unit::Number, 1234.0, "1.23 k"),
            (Unit::Number, 0.0042, "0.0042"),
            (Unit::Si("W"), 0.0042, "4.2 mW"),
            (Unit::Si("W"), 1_240.0, "1.24 kW"),
            (Unit::Si("W"), -50.0, "-50 W"),
            (Unit::Si("FLOP/s"), 19.5e12, "19.5 TFLOP/s"),
            (Unit::Si("W"), 1e50, "1e50 W"),
            (Unit::Si("W"), 1e-50, "1e-50 W"),
            (Unit::Binary("B"), 0.0, "0 B"),
            (Unit::Binary("B"), 1023.0, "1023 B"),
            (Unit::Binary("B"), 137_438_953_472.0, "128 GiB"),
            (Unit::Binary("B/s"), 1536.0, "1.5 KiB/s"),
            (Unit::Percent, 0.0, "0 %"),
            (Unit::Percent, 1.0, "100 %"),
            (Unit::Percent, 0.005, "0.5 %"),
            (Unit::Percent, f64::NAN, "no data"),
        ];
        for (unit, value, expected) in cases {
            assert_eq!(unit.show(value), expected, "{unit:?} {value}");
        }
    }

    #[test]
    fn an_axis_has_one_prefix_and_enough_digits_for_its_steps() {
        let gib = 1_073_741_824.0;
        let format = Unit::Binary("B").format(1.5 * gib, 0.125 * gib);
        assert_eq!(format.show(0.375 * gib), "0.375 GiB");
        assert_eq!(format.show(0.0), "0 GiB");
        let format = Unit::Si("V").format(1000.02, 0.005);
        assert_eq!(
            (format.show(1000.005), format.show(1000.01)),
            ("1.000005 kV".into(), "1.00001 kV".into())
        );
    }
}
