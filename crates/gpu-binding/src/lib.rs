//! Which job has which GPU, from what no user can forge, strongest first.
//!
//! ```
//! use gpu_binding::Source;
//!
//! assert!(Source::DeviceProgram < Source::Environment, "the kernel's word before that of a user's process");
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

mod binder;
mod device_access;
pub mod devices_list;
mod evidence;
pub mod files;
pub mod helper;
mod names;
mod owner;
#[cfg(test)]
mod testing;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

pub use binder::{BindOptions, Binder, Binding, DevicesList, JobBinding};
pub use device_access::{KernelDeviceAccess, MOST_NODES};
use gpu_devices::DeviceNode;
use kernel_files::SourceError;
pub use names::GresName;
pub use owner::{Owner, Owners, ProcessesOnUnits};
use privileges::TakenOnce;
use serde::{Deserialize, Serialize};

/// The source of a job's binding, strongest first. The words are the `source` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// The programs that the kernel asks when a device is opened (cgroup v2).
    DeviceProgram,
    /// `devices.list` (cgroup v1).
    DevicesList,
    /// The file that our prolog snippet left.
    Prolog,
    /// Files of a prolog in the manner of Princeton's jobstats (`/run/gpustat`).
    Gpustat,
    /// Files of a prolog in the manner of dcgm-exporter (`hpc-job-mapping-dir`).
    JobMapping,
    /// Its processes are on the GPU.
    Processes,
    /// The environment of its processes, which users can forge.
    Environment,
}

impl Source {
    /// The `source` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DeviceProgram => "device_program",
            Self::DevicesList => "devices_list",
            Self::Prolog => "prolog",
            Self::Gpustat => "gpustat",
            Self::JobMapping => "job_mapping",
            Self::Processes => "processes",
            Self::Environment => "environment",
        }
    }
}

/// The units of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// By their `uuid`; empty: it is known that it has none.
    pub units: Vec<Arc<str>>,
    /// Its source.
    pub source: Source,
}

/// What the kernel would answer a cgroup that wants to open devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceAccess {
    /// No program is in effect there: nothing is constrained, so nothing is known.
    NoProgram,
    /// A program does what cannot be followed (calls, maps).
    NotFollowed,
    /// By device, in the order of the question: whether reading and writing it is allowed.
    Allowed {
        /// One for each device that was asked for.
        nodes: Vec<bool>,
        /// Ids of the programs in effect, which a cgroup below inherits if it has none of its own.
        programs: Vec<u32>,
    },
}

/// Asks the kernel. What does so may be another process, which alone holds the capabilities for it.
pub trait DeviceAccessSource: Send {
    /// For each of these v2 cgroup directories: whether these character devices may be opened there. The outer error
    /// says why no query is possible (denied, no kernel support), the inner one why this cgroup's failed (gone).
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError>;
}

/// The source for the collector that takes it, or why there is none. Opened before privileges are dropped.
pub type DeviceAccessSlot = TakenOnce<Result<Box<dyn DeviceAccessSource>, SourceError>>;
