//! The GPUs of a node and what they do: NVIDIA's by NVML, AMD's and Intel's by the kernel.
//!
//! A [`Backend`] per vendor reads them on a thread of its own ([`Sampler`]), never in a scrape: drivers may hang, and
//! a call may delay users' kernels. A [`Sample`] has units that SLURM can give to jobs, counters ([`Quantity`], which
//! attribution splits over jobs), and facts of the hardware that belong to no job.
//!
//! ```
//! use gpu_devices::{COUNTERS, Quantity};
//!
//! // Every quantity has three rows: of the GPU, of a job, and of what belongs to no job.
//! assert!(COUNTERS.iter().any(|counter| std::ptr::eq(*counter, Quantity::ENERGY.counter)));
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod amd;
mod backend;
pub mod drm;
mod end;
pub mod families;
pub mod intel;
pub mod nvml;
pub mod pci;
pub mod peaks;
mod quantity;
mod sample;
mod sampler;
mod unit;

pub use backend::{Backend, Wanted};
pub use end::end_process;
pub use quantity::{COUNTERS, GpuCounter, Quantity};
pub use sample::{Fact, Memory, Process, ProcessKind, Sample, UnitSample};
pub use sampler::{Deliver, Make, PATIENCE, Sampler, SamplerState};
pub use unit::{DeviceNode, Part, Unit, Vendor};
