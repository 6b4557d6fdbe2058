//! Processes on a GPU, by the host's pids, and how long their kernels ran.
//!
//! The driver gives one sample a process at most: the part of a recent period in which a kernel of it was resident. It is
//! taken for the time since the last sample of the process, and never for longer than since the last reading.

use std::collections::HashMap;
use std::time::Instant;

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

/// A sample of a process: pid, the driver's time in microseconds, percent.
pub(super) type Sample = (u32, u64, u32);

/// Time that kernels of each process ran.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// By pid: nanoseconds, and the driver's time of its last sample.
    by_pid: HashMap<u32, (u64, u64)>,
    /// The driver's time of the newest sample, microseconds; 0 before the first reading.
    last: u64,
    read: Option<Instant>,
}

impl Busy {
    /// Takes the samples after `self.last`; the first reading only says where to begin.
    fn take(&mut self, samples: &[Sample], now: Instant) {
        let newest = samples.iter().map(|(_, at, _)| *at).max().unwrap_or(0).max(self.last);
        if let Some(read) = self.read.replace(now) {
            let passed = u64::try_from(now.saturating_duration_since(read).as_micros()).unwrap_or(u64::MAX);
            let mut sorted = samples.to_vec();
            sorted.sort_unstable_by_key(|(pid, at, _)| (*pid, *at));
            for (pid, at, percent) in sorted {
                let (busy, seen) = self.by_pid.entry(pid).or_default();
                let since = if self.last == 0 { passed } else { at.saturating_sub((*seen).max(self.last)) };
                *busy += since.min(passed) * u64::from(percent.min(100)) * 10;
                *seen = at.max(*seen);
            }
        }
        self.last = newest;
    }

    fn of(&self, pid: u32) -> u64 {
        self.by_pid.get(&pid).map_or(0, |(busy, _)| *busy)
    }

    /// Forgets those that are not there.
    fn keep(&mut self, found: &[Found]) {
        self.by_pid.retain(|pid, _| found.iter().any(|there| there.process.pid == *pid));
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

/// The processes on a GPU; `None` where the driver does not know them. `busy` is `None` where it has no utilisation
/// of processes (divided GPUs).
pub(super) fn read(
    library: &Library,
    handle: Handle,
    busy: Option<&mut Busy>,
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
    let Some(busy) = busy else { return Ok(Some(found)) };
    let last = busy.last;
    let utilization = asker.ask("nvmlDeviceGetProcessUtilization", notes, || {
        match again(|| device.process_utilization_stats(last)) {
            // No process did anything.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            other => other,
        }
    })?;
    if let Some(utilization) = utilization {
        let samples: Vec<Sample> = utilization.iter().map(|s| (s.pid, s.timestamp, s.sm_util)).collect();
        busy.take(&samples, Instant::now());
        busy.keep(&found);
        for there in &mut found {
            there.process.busy_ns = Some(busy.of(there.process.pid));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_processs_sample_stands_for_the_time_since_its_last_one() {
        let mut busy = Busy::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        busy.take(&[(1, 1_000_000, 100)], at(0));
        assert_eq!(busy.of(1), 0, "what was before is not known");
        busy.take(&[(1, 11_000_000, 50), (2, 6_000_000, 10)], at(10));
        assert_eq!((busy.of(1), busy.of(2)), (5_000_000_000, 500_000_000));
        busy.take(&[], at(20));
        busy.take(&[(2, 31_000_000, 100)], at(30));
        assert_eq!(busy.of(2), 10_500_000_000, "not for the time in which it had none");
        busy.take(&[(2, 36_000_000, 100), (2, 41_000_000, 100), (2, 41_000_000, 100)], at(40));
        assert_eq!(busy.of(2), 20_500_000_000);
        busy.take(&[(2, 999_000_000_000, 100), (1, 5, 100)], at(50));
        assert_eq!(
            (busy.of(1), busy.of(2)),
            (5_000_000_000, 30_500_000_000),
            "a clock that is set makes no time"
        );
    }

    #[test]
    fn a_pid_that_is_gone_is_forgotten() {
        let mut busy = Busy::default();
        let start = Instant::now();
        busy.take(&[], start);
        busy.take(&[(7, 5_000_000, 100)], start + Duration::from_secs(1));
        assert_eq!(busy.of(7), 1_000_000_000);
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
