//! Arithmetic on readings: counters that wrap or restart, power integrated to energy, and what a whole counted beyond its parts.
//!
//! Everything is pure. A reading that proves nothing adds nothing.
//!
//! ```
//! use readings::{Counter, Gain, Range};
//!
//! let mut counter = Counter::default();
//! counter.advance(4_000_000_000, Range::Wraps { at: 1 << 32 });
//! assert_eq!(counter.advance(5_032_704, Range::Wraps { at: 1 << 32 }), Gain::Grown(300_000_000));
//! ```
#![forbid(unsafe_code)]

mod counter;
mod integral;
mod remainder;

pub use counter::{Counter, Gain, Range};
pub use integral::{Integral, LARGEST_POWER, LONGEST_GAP};
pub use remainder::{Remainder, Round};
