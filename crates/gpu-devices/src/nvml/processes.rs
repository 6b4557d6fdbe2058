//! Processes on a GPU, by the host's pids, and how long their kernels ran.
//!
//! The driver gives one sample a process: the mean over all its samples of the GPU since the time that is asked for, in each
//! of which one process counts as the one that ran. Seen on an H200 with driver 580: the percentages of all processes add up
//! to that of the GPU, and the time of a process's sample is only when it ran last.

use std::collections::HashMap;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::ask::{Asker, Notes, Stop};
use super::raw::{Handle, Library};
use crate::{Process, ProcessKind};

/// A process and the part of the GPU that it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) process: Process,
    /// GPU instance and compute instance, on a divided GPU.
    pub(super) part: (Option<u32>, Option<u32>),
}

/// The driver's samples of the GPU since the reading before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since {
    /// The driver's time of the newest one that was known then, microseconds.
    pub(super) last: u64,
    /// Time that those since then cover, nanoseconds.
    pub(super) covered: u64,
}

/// A sample of a process: pid, the driver's time in microseconds, percent.
pub(super) type Sample = (u32, u64, u32);

/// Time that kernels of each process ran, nanoseconds, by pid.
#[derive(Debug, Default)]
pub(super) struct Busy(HashMap<u32, u64>);

impl Busy {
    /// Takes the samples of some time; of several of one process the newest is its mean.
    fn take(&mut self, samples: &[Sample], covered: u64) {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable_by_key(|(pid, at, _)| (*pid, std::cmp::Reverse(*at)));
        sorted.dedup_by_key(|(pid, ..)| *pid);
        for (pid, _, percent) in sorted {
            let busy = covered / 100 * u64::from(percent.min(100));
            *self.0.entry(pid).or_default() += busy;
        }
    }

    fn of(&self, pid: u32) -> u64 {
        self.0.get(&pid).copied().unwrap_or(0)
    }

    /// Forgets those that are not there.
    fn keep(&mut self, found: &[Found]) {
        self.0.retain(|pid, _| found.iter().any(|there| there.process.pid == *pid));
    }
}

/// The driver's lists may grow between asking for their length and for themselves.
fn again<T>(call: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    match call() {
        Err(NvmlError::InsufficientSize(_)) => call(),
        other => other,
    }
}

fn add(found: &mut Vec<Found>, kind: ProcessKind, listed: Vec<ProcessInfo>) {
    for info in listed {
        // A process that computes and draws is in both lists, with the same memory; MPS clients have their own list.
        let there = found.iter_mut().find(|f| {
            f.process.pid == info.pid && f.part == (info.gpu_instance_id, info.compute_instance_id)
        });
        match there {
            Some(there) if kind == ProcessKind::Mps => there.process.kind = kind,
            Some(_) => {}
            None => {
                let memory = match info.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                };
                let process = Process { pid: info.pid, kind, memory, busy_ns: None };
                found.push(Found { process, part: (info.gpu_instance_id, info.compute_instance_id) });
            }
        }
    }
}

/// The processes on a GPU; `None` where the driver does not know them. `busy` is `None` where it has no samples, as of
/// divided GPUs.
pub(super) fn read(
    library: &Library,
    handle: Handle,
    busy: Option<(&mut Busy, Since)>,
    asker: &mut Asker,
    notes: &mut Notes,
) -> Result<Option<Vec<Found>>, Stop> {
    let device = library.device(handle);
    let compute = asker.ask("nvmlDeviceGetComputeRunningProcesses_v3", notes, || {
        again(|| device.running_compute_processes())
    })?;
    let graphics = asker.ask("nvmlDeviceGetGraphicsRunningProcesses_v3", notes, || {
        again(|| device.running_graphics_processes())
    })?;
    let mps = asker.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3", notes, || {
        again(|| device.mps_running_compute_processes())
    })?;
    let mut found = Vec::new();
    if compute.is_none() && graphics.is_none() {
        return Ok(None);
    }
    add(&mut found, ProcessKind::Compute, compute.unwrap_or_default());
    add(&mut found, ProcessKind::Graphics, graphics.unwrap_or_default());
    add(&mut found, ProcessKind::Mps, mps.unwrap_or_default());
    let Some((busy, since)) = busy else { return Ok(Some(found)) };
    let utilization = asker.ask("nvmlDeviceGetProcessUtilization", notes, || {
        match again(|| device.process_utilization_stats(since.last)) {
            // No process did anything.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        }
    })?;
    if let Some(utilization) = utilization {
        let samples: Vec<Sample> = utilization.iter().map(|s| (s.pid, s.timestamp, s.sm_util)).collect();
        busy.take(&samples, since.covered);
        busy.keep(&found);
        for there in &mut found {
            there.process.busy_ns = Some(busy.of(there.process.pid));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_processs_sample_is_the_mean_of_the_time_since_the_last_reading() {
        let mut busy = Busy::default();
        busy.take(&[(1, 1_000_000, 100)], 0);
        assert_eq!(busy.of(1), 0, "what was before is not known");
        // The second one ran last a while ago.
        busy.take(&[(1, 11_000_000, 50), (2, 6_000_000, 10)], 10 * SECOND);
        assert_eq!((busy.of(1), busy.of(2)), (5 * SECOND, SECOND));
        busy.take(&[], 10 * SECOND);
        busy.take(&[(2, 31_000_000, 100)], 10 * SECOND);
        assert_eq!((busy.of(1), busy.of(2)), (5 * SECOND, 11 * SECOND));
        busy.take(&[(2, 41_000_000, 40), (2, 36_000_000, 100), (2, 41_000_000, 40)], 10 * SECOND);
        assert_eq!(busy.of(2), 15 * SECOND, "each process once");
        busy.take(&[(2, 5, 300)], SECOND);
        assert_eq!(busy.of(2), 16 * SECOND, "no more than all the time");
    }

    #[test]
    fn a_pid_that_is_gone_is_forgotten() {
        let mut busy = Busy::default();
        busy.take(&[(7, 5_000_000, 100)], SECOND);
        assert_eq!(busy.of(7), SECOND);
        busy.keep(&[]);
        assert_eq!(busy.of(7), 0);
    }

    #[test]
    fn a_process_on_two_lists_is_one() {
        let info = |pid, used_gpu_memory| ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let mut found = Vec::new();
        add(
            &mut found,
            ProcessKind::Compute,
            vec![info(1, UsedGpuMemory::Used(5)), info(2, UsedGpuMemory::Unavailable)],
        );
        add(
            &mut found,
            ProcessKind::Graphics,
            vec![info(1, UsedGpuMemory::Used(5)), info(3, UsedGpuMemory::Used(0))],
        );
        add(&mut found, ProcessKind::Mps, vec![info(2, UsedGpuMemory::Unavailable)]);
        let utilization: Vec<_> =
            found.iter().map(|f| (f.process.pid, f.process.kind, f.process.memory)).collect();
        assert_eq!(
            utilization,
            [
                (1, ProcessKind::Compute, Some(5)),
                (2, ProcessKind::Mps, None),
                (3, ProcessKind::Graphics, Some(0))
            ]
        );
    }
}
