//! GPUs: what there are, who has them, and what they do.
//!
//! A [`Backend`] per vendor reads them on a thread of its own ([`Sampler`]), never in a scrape: drivers may hang, and a
//! call may hold up users' kernels. What it reads is a [`Sample`]: units that SLURM can give to jobs, numbers that only
//! grow ([`Quantity`], which the ledger splits over jobs), and facts of the hardware that are nobody's. `binding` finds
//! out which job has which unit.

pub mod amd;
mod backend;
pub mod binding;
pub mod drm;
pub mod families;
pub mod intel;
pub mod nvml;
mod pci;
pub mod peaks;
mod quantity;
mod sample;
mod sampler;
mod unit;

pub use backend::{Backend, Wanted};
pub use quantity::{COUNTERS, GpuCounter, Quantity};
pub use sample::{Fact, Memory, Process, ProcessKind, Sample, UnitSample};
pub use sampler::{Condition, Deliver, Make, PATIENCE, Sampler};
pub use unit::{DeviceNode, Part, Unit, Vendor};
