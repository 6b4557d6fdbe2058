//! What a node measured, split over the runs of jobs so that the sum balances.
//!
//! Everything is pure: it knows a job run by its id, and nothing of files or metrics. For each quantity the sum over job runs plus the
//! unattributed part is what was measured.
//!
//! ```
//! use attribution::split;
//!
//! // 10 joules, of which one run is charged with a third and another with half.
//! let split = split(10, vec![("a", 2), ("b", 3)], 6);
//! assert_eq!(split.shares, [("a", 3), ("b", 5)]);
//! assert_eq!(split.rest, 2);
//! ```
#![forbid(unsafe_code)]

mod account;
mod energy;
mod exported;
mod gpu;
mod idle_power;
mod measured;
mod occupancy;
mod overhead;
mod power_model;
mod scope;
mod split;

pub use account::Account;
pub use energy::{Basis, Busy, EnergyAccounts, Interval, Method, Use};
pub use exported::{Amount, Exported};
pub use gpu::{GpuLedger, GpuMethod, GpuReading, GpuUsage, Part, Roles as GpuRoles, SavedGpuLedger, Shares};
pub use idle_power::{IdleEstimate, IdlePower};
pub use measured::Measured;
pub use occupancy::{Occupancy, Occupants, SIMULTANEOUS, SavedOccupancy};
pub use overhead::{Charged, EnergyCharge, OverheadAccounts, PartsReading};
pub use power_model::{FittedPower, PowerModel};
pub use scope::{Reading, ScopeLedger};
pub use split::{Split, split};
