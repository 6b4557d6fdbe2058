//! Pure parsers of the formats that kernel files share. They never index, unwrap or panic; unknown keys are
//! the caller's to ignore, absent is `None`, and a torn line is an error and not a shorter number.

mod keyed;
mod limit;
mod number;
mod pid_stat;
mod pressure;

pub use keyed::{colon_keyed, flat_keyed, nested_keyed};
pub use limit::{Limit, parse_limit};
pub use number::{Decimal, decimal, fields, integer, lines, parse_integer};
pub use pid_stat::{PidStat, parse_pid_stat};
pub use pressure::{Pressure, PressureLine, parse_pressure};

/// One malformed line of a kernel file; the file's name is added by whoever read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub reason: &'static str,
}

impl ParseError {
    /// An error in a line counted from 1.
    pub fn new(line: usize, reason: &'static str) -> Self {
        Self { line, reason }
    }
}
