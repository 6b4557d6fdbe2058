//! What a backend read at one moment.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use exposition::{Family, Value};
use kernel_files::SourceError;
use serde::{Deserialize, Serialize};

use super::{Quantity, Unit, Vendor};

/// All GPUs of a vendor at one moment.
#[derive(Debug)]
pub struct Sample {
    /// The vendor.
    pub vendor: Vendor,
    /// When reading began.
    pub began: Instant,
    /// When it was over.
    pub ended: Instant,
    /// GPUs and their parts; of lost ones the last known unit.
    pub units: Vec<UnitSample>,
    /// Of the driver and of all GPUs together.
    pub facts: Vec<Fact>,
    /// What could not be read though it should have been; what a GPU or driver does not have is no failure.
    pub failed: Vec<SourceError>,
}

/// A unit at one moment.
#[derive(Debug)]
pub struct UnitSample {
    /// Which.
    pub unit: Arc<Unit>,
    /// Why nothing can be read of it: `lost`, `reset_required`, `denied`.
    pub down: Option<&'static str>,
    /// Counters. They restart with another `epoch`, and counts in between are not known.
    pub counts: Vec<(&'static Quantity, u64)>,
    /// Which beginning the counts go on from.
    pub epoch: u64,
    /// Counters of the hardware or the driver as they stand, in the units of the counts. They go on while nobody reads them, and
    /// one that is lower than before restarted.
    pub standing: Vec<(&'static Quantity, u64)>,
    /// Memory of it.
    pub memory: Option<Memory>,
    /// Processes on it; `None` when they were not requested or are not known.
    pub processes: Option<Vec<Process>>,
    /// The present state of the hardware.
    pub facts: Vec<Fact>,
}

impl UnitSample {
    /// A unit of which nothing was read yet.
    pub fn new(unit: Arc<Unit>, epoch: u64) -> Self {
        let (counts, standing, facts) = (Vec::new(), Vec::new(), Vec::new());
        Self { unit, down: None, counts, epoch, standing, memory: None, processes: None, facts }
    }
}

/// Memory of a unit, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Used by any process.
    pub used: u64,
    /// Free.
    pub free: u64,
    /// What driver and firmware keep for themselves.
    pub reserved: Option<u64>,
}

/// What a process does on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessKind {
    /// It computes.
    Compute,
    /// It draws.
    Graphics,
    /// It computes through an MPS server.
    Mps,
}

/// A process on a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// As the host counts.
    pub pid: u32,
    /// Its kind of work.
    pub kind: ProcessKind,
    /// Memory of the GPU that it has, bytes.
    pub memory: Option<u64>,
    /// Time in which its kernels ran, nanoseconds, counted since the sample's epoch as long as the process is there.
    pub busy_ns: Option<u64>,
}

/// A sample of a metric as it is: `gpu` and `uuid` are added to what belongs to a unit.
#[derive(Debug, Clone)]
pub struct Fact {
    /// Row of the catalogue.
    pub family: &'static Family,
    /// Labels beyond the unit's.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The number.
    pub value: Value,
}

impl Fact {
    /// One without labels of its own.
    pub fn plain(family: &'static Family, value: impl Into<Value>) -> Self {
        Self { family, labels: Vec::new(), value: value.into() }
    }

    /// One with a label.
    pub fn with(
        family: &'static Family,
        key: &'static str,
        label: impl Into<Cow<'static, str>>,
        value: impl Into<Value>,
    ) -> Self {
        Self { family, labels: vec![(key, label.into())], value: value.into() }
    }
}
