//! Durations as Go writes them, since the web configuration file is Go's.

use std::time::Duration;

/// Reads `1s`, `1m30s`, `1.5h`, `100ms`, `0` (<https://pkg.go.dev/time#ParseDuration>).
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration such as 1s, 250ms or 1m30s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() || text.starts_with('-') {
        return Err(bad());
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, behind) = rest.split_at_checked(number_end).ok_or_else(bad)?;
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at_checked(unit_end).ok_or_else(bad)?;
        let seconds = match unit {
            "ns" => 1e-9,
            // U+00B5 is the micro sign, U+03BC the Greek letter; Go takes both.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
        rest = behind;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations() {
        for (text, milliseconds) in [
            ("1s", 1000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("0s", 0),
            (".5s", 500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("3µs"), Ok(Duration::from_micros(3)));
        for text in ["", "1", "s", "1 s", "-1s", "1d", "1.2.3s", "1s2", ".s", "1e9s", "99999999999999999999h"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
