//! Attribution: what a node measured, split over jobs so that it balances. Pure.

mod account;
mod counter;
mod energy;
mod exported;
mod gpu;
mod holding;
mod occupancy;
mod remainder;
mod scope;
mod split;

pub use account::Account;
pub use counter::{Counter, Gain, Range};
pub use energy::{Basis, EnergyBook, Idle, Interval, Method, Use};
pub use exported::{Amount, Exported};
pub use gpu::{GpuLedger, GpuMethod, Observation, Part, Shares, Standing};
pub use holding::{Heard, Holders, Holding, Look, SETTLE};
pub use occupancy::{Occupancy, Occupants, SIMULTANEOUS};
pub use remainder::{Remainder, Round};
pub use scope::{Reading, ScopeLedger};
pub use split::{Split, split};
