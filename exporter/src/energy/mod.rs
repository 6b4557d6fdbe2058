//! Everything on a node that measures energy or power: found, read, and told apart. What of it is whose is the
//! ledger's business.

mod sample;
mod standing;
mod zone;

use std::time::{Duration, Instant};

pub use sample::{Range, Sample};
pub use standing::{Standing, standings};
pub use zone::{Domain, Source, Zone};

use std::sync::Arc;

use crate::collector::CollectError;
use crate::roots::Roots;

/// Reads the zones of one source.
pub trait Meter: Send {
    /// Its zones, always the same ones in the same order.
    fn zones(&self) -> &[Zone];

    /// Reads every zone and calls `each` with its index among [`zones`](Self::zones). A zone that fails costs no other.
    /// `now` is the time of the reading, by which power is added up to energy.
    fn read(&mut self, now: Instant, each: &mut dyn FnMut(usize, Result<Sample, CollectError>));

    /// How far apart readings may be at most, so that no wrap is missed and no estimate gets too coarse; `None` where
    /// it does not matter.
    fn at_least_every(&self) -> Option<Duration>;

    /// Whether reading may take long (a baseboard controller answers in up to a second): to be read in scrapes only.
    fn slow(&self) -> bool {
        false
    }
}

/// What was found.
#[derive(Default)]
pub struct Discovery {
    /// What can be read.
    pub meters: Vec<Box<dyn Meter>>,
    /// What is there and cannot be read, each with its fix.
    pub refused: Vec<CollectError>,
    /// hwmon devices with power or energy sensors that are none of node, CPU or memory, by name: not read.
    pub ignored: Vec<String>,
}

/// Finds all meters of this node. Reads each source once; to be repeated when CPUs come and go or a driver was loaded.
pub fn discover(roots: &Arc<Roots>) -> Discovery {
    let _ = roots;
    Discovery::default()
}
