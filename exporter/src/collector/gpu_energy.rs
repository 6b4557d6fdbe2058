//! What jobs were charged with of the energy of GPUs, on its way to the account of the whole node.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attribution::EnergyCharge;
use parking_lot::Mutex;
use slurm_jobs::JobRunId;

/// More charges wait only while nobody takes them: the collector of energy hangs.
const MOST_WAITING: usize = 4096;

/// The GPUs of the node, and their charges.
#[derive(Debug, Clone, Default)]
pub struct GpusReading {
    /// GPUs whose energy is counted.
    pub measured: Vec<Arc<str>>,
    /// Whether there is one whose energy is not.
    pub unmeasured: bool,
    /// Charges since the last call, by GPU.
    pub charges: Vec<(Arc<str>, EnergyCharge)>,
}

/// A box that the collector of GPUs fills and that of energy empties.
#[derive(Debug, Default)]
pub struct GpuEnergy {
    wanted: AtomicBool,
    sockets: AtomicBool,
    held: Mutex<Option<GpusReading>>,
    /// Jobs that have a GPU, or had one.
    jobs: Mutex<HashSet<JobRunId>>,
}

impl GpuEnergy {
    /// The node has a meter of its own, which counts the energy of GPUs, too.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Whether somebody wants it.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The energy of GPUs is that of whole sockets, with their CPU cores and memory.
    pub fn count_sockets(&self) {
        self.sockets.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub fn counts_sockets(&self) -> bool {
        self.sockets.load(Ordering::Relaxed)
    }

    /// These jobs have a GPU, or had one.
    pub fn set_jobs(&self, jobs: impl Iterator<Item = JobRunId>) {
        *self.jobs.lock() = jobs.collect();
    }

    /// Whether a job's part of the sockets is in its GPUs' energy.
    pub fn has_sockets_of(&self, job: JobRunId) -> bool {
        self.counts_sockets() && self.jobs.lock().contains(&job)
    }

    /// There are these GPUs, and these were charged.
    pub fn put(&self, measured: Vec<Arc<str>>, unmeasured: bool, charges: Vec<(Arc<str>, EnergyCharge)>) {
        let mut held = self.held.lock();
        let reading = held.get_or_insert_default();
        (reading.measured, reading.unmeasured) = (measured, unmeasured);
        if reading.charges.len().saturating_add(charges.len()) > MOST_WAITING {
            reading.charges.clear();
        }
        reading.charges.extend(charges);
    }

    /// Takes the charges; `None` while no GPU was ever read.
    pub fn take(&self) -> Option<GpusReading> {
        let mut held = self.held.lock();
        let reading = held.as_mut()?;
        let charges = std::mem::take(&mut reading.charges);
        Some(GpusReading { charges, ..reading.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use attribution::Charged;

    use super::*;

    #[test]
    fn charges_are_taken_once_and_the_gpus_remain() {
        let energy = GpuEnergy::default();
        assert!(energy.take().is_none());
        let gpu: Arc<str> = "GPU-1".into();
        let now = Instant::now();
        let charge =
            EnergyCharge { from: now, to: now + Duration::from_secs(1), charged: Charged::default() };
        let some = |count| (0..count).map(|_| (gpu.clone(), charge.clone())).collect::<Vec<_>>();
        energy.put(vec![gpu.clone()], false, some(2));
        energy.put(vec![gpu.clone()], true, some(1));
        assert_eq!(energy.take().unwrap().charges.len(), 3);
        let again = energy.take().unwrap();
        assert_eq!((again.measured, again.unmeasured, again.charges.len()), (vec![gpu.clone()], true, 0));
        energy.put(vec![gpu.clone()], true, some(MOST_WAITING));
        energy.put(vec![gpu.clone()], true, some(1));
        assert_eq!(energy.take().unwrap().charges.len(), 1, "a time that is too long ago is not known");
    }
}
