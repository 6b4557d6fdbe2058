//! Attribution: what a node measured, split over jobs so that it balances. Pure.

mod scope;

pub use scope::{Reading, ScopeLedger};
