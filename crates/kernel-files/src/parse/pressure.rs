//! PSI files: `some avg10=0.00 avg60=0.00 avg300=0.00 total=14629` (Documentation/accounting/psi.rst).

use serde::{Deserialize, Serialize};

use super::{ParseError, fields, integer, lines};

/// One line of a PSI file. The averages are left to the query language, which can form them from the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureLine {
    /// Stalled time, microseconds since the cgroup (or the boot) began.
    pub total_usec: u64,
}

/// A PSI file. `full` is absent for CPU before Linux 5.13 and always 0 for the system's CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Time in which at least one task waited.
    pub some: Option<PressureLine>,
    /// Time in which all non-idle tasks waited.
    pub full: Option<PressureLine>,
}

/// Parses a PSI file; unknown lines and fields are passed over.
pub fn parse_pressure(bytes: &[u8]) -> Result<Pressure, ParseError> {
    let mut pressure = Pressure::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let slot = match parts.next() {
            Some(b"some") => &mut pressure.some,
            Some(b"full") => &mut pressure.full,
            _ => continue,
        };
        let total = parts.filter_map(|p| p.strip_prefix(b"total=")).find_map(integer);
        let total_usec = total.ok_or(ParseError::new(number, "no total"))?;
        *slot = Some(PressureLine { total_usec });
    }
    Ok(pressure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_or_one() {
        let both = parse_pressure(
            b"some avg10=0.00 avg60=0.00 avg300=0.00 total=14629\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=10581\n",
        )
        .unwrap();
        assert_eq!(both.some.unwrap().total_usec, 14629);
        assert_eq!(both.full.unwrap().total_usec, 10581);
        let one = parse_pressure(b"some avg10=0.00 total=1\n").unwrap();
        assert_eq!(one.full, None, "absent is none, not zero");
    }

    #[test]
    fn a_bare_keyword_is_an_error_and_no_panic() {
        assert_eq!(parse_pressure(b"some\n"), Err(ParseError::new(1, "no total")));
        assert_eq!(parse_pressure(b"some"), Err(ParseError::new(1, "torn line")));
    }
}
