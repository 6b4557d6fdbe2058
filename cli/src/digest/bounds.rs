//! Bounds of a number, as a site writes them: `>= 30`, `> 0, <= 15 %`.

use std::str::FromStr;

use serde::Deserialize;

/// Which values of a number are meant: those for which all comparisons hold.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bounds(Vec<(Comparison, f64)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    Above,
    AtMost,
    Below,
}

/// Longer signs go before their beginnings.
const SIGNS: [(&str, Comparison); 4] = [
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

impl Bounds {
    /// A value that is not known is within no bounds.
    pub fn hold(&self, value: Option<f64>) -> bool {
        value.is_some_and(|value| {
            self.0.iter().all(|(comparison, bound)| match comparison {
                Comparison::AtLeast => value >= *bound,
                Comparison::Above => value > *bound,
                Comparison::AtMost => value <= *bound,
                Comparison::Below => value < *bound,
            })
        })
    }

    /// The least value that can be within them, where a comparison says so.
    pub(super) fn least(&self) -> Option<f64> {
        let lower = self
            .0
            .iter()
            .filter(|(comparison, _)| matches!(comparison, Comparison::AtLeast | Comparison::Above));
        lower.map(|(_, bound)| *bound).reduce(f64::max)
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bounds: Option<Vec<_>> = text.split(',').map(comparison).collect();
        bounds
            .map(Self)
            .ok_or_else(|| format!("{text:?} are no bounds such as \">= 30\" or \"> 0, <= 15 %\""))
    }
}

impl TryFrom<String> for Bounds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn comparison(text: &str) -> Option<(Comparison, f64)> {
    let text = text.trim();
    let (rest, comparison) =
        SIGNS.iter().find_map(|(sign, comparison)| Some((text.strip_prefix(sign)?, *comparison)))?;
    let (number, unit) = match rest.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (rest, 1.0),
    };
    let number: f64 = number.trim().parse().ok()?;
    number.is_finite().then_some((comparison, number * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(bounds: &str, value: f64) -> bool {
        bounds.parse::<Bounds>().unwrap().hold(Some(value))
    }

    #[test]
    fn all_comparisons_of_bounds_hold() {
        assert!(hold(">= 30", 30.0) && !hold(">= 30", 29.9) && !hold("> 30", 30.0) && hold("<1", 0.9));
        assert!(hold("> 0, <= 15 %", 0.15) && !hold("> 0, <= 15%", 0.0) && !hold("> 0, <= 15 %", 0.151));
        assert!(!"<= 5".parse::<Bounds>().unwrap().hold(None), "what is not known is no waste");
        assert!(!hold("<= 5", f64::NAN));
        for wrong in ["", "30", "=3", "> 1,", "> x", ">= inf", "<= 5 % of it", "> 1 < 3"] {
            assert!(wrong.parse::<Bounds>().unwrap_err().contains("are no bounds such as"), "{wrong}");
        }
        assert_eq!(">= 5, > 7, < 9".parse::<Bounds>().unwrap().least(), Some(7.0));
        assert_eq!("< 9".parse::<Bounds>().unwrap().least(), None);
    }
}
