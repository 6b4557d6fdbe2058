//! Opening and reading one event, behind traits so that tests need no such hardware.

use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use rustix::io::Errno;

use super::Spec;
use crate::kernel_file::ReadError;

/// A reading of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Count {
    /// What was counted.
    pub(in super::super) value: u64,
    /// For how long, nanoseconds.
    pub(in super::super) enabled: u64,
}

/// An event that counts.
pub(in super::super) trait Opened: Send {
    fn read(&mut self) -> Result<Count, ReadError>;
}

/// Opens events.
pub(in super::super) trait Open: Send {
    fn open(&self, spec: Spec) -> Result<Box<dyn Opened>, ReadError>;
}

/// The kernel's own, perf_event_open(2).
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Kernel;

fn class(error: &std::io::Error) -> ReadError {
    let errno = error.raw_os_error();
    // No errno: a short read, which is that of an event in error state (kernel/events/core.c, `__perf_read`).
    errno.map_or(ReadError::Gone, |errno| ReadError::from_errno(Errno::from_raw_os_error(errno)))
}

impl Open for Kernel {
    fn open(&self, spec: Spec) -> Result<Box<dyn Opened>, ReadError> {
        let mut builder = Builder::new(Raw::new(spec.config));
        builder.attrs_mut().type_ = spec.pmu;
        let cpu = usize::try_from(spec.cpu).map_err(|_| ReadError::Gone)?;
        // The PMU refuses every exclusion (PERF_PMU_CAP_NO_EXCLUDE).
        builder.any_pid().one_cpu(cpu).exclude_kernel(false).exclude_hv(false);
        let mut counter = builder.build().map_err(|error| class(&error))?;
        counter.enable().map_err(|error| class(&error))?;
        Ok(Box::new(counter))
    }
}

impl Opened for Counter {
    fn read(&mut self) -> Result<Count, ReadError> {
        let count = self.read_count_and_time().map_err(|error| class(&error))?;
        Ok(Count { value: count.count, enabled: count.time_enabled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No power PMU in virtual machines, but `cpu-clock` of one CPU is opened and read the same way.
    #[test]
    fn the_kernel_counts_what_was_opened() {
        const SOFTWARE: u32 = 1;
        let mut clock = match Kernel.open(Spec { pmu: SOFTWARE, config: 0, cpu: 0 }) {
            Ok(clock) => clock,
            Err(error) => {
                eprintln!("SKIPPED: perf events of a CPU: {error}");
                return;
            }
        };
        let first = clock.read().unwrap();
        let second = clock.read().unwrap();
        assert!(second.value > first.value && second.enabled > first.enabled, "{first:?} {second:?}");
        let without = std::thread::spawn(|| {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            Kernel.open(Spec { pmu: SOFTWARE, config: 0, cpu: 0 }).err()
        });
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        let refused = (paranoid.trim().parse::<i32>().unwrap() > 0).then_some(ReadError::Denied);
        assert_eq!(without.join().unwrap(), refused, "without CAP_PERFMON, at level {paranoid}");
        let absent = Kernel.open(Spec { pmu: u32::MAX, config: 0, cpu: 0 });
        assert_eq!(absent.err(), Some(ReadError::Gone), "ENOENT: no such PMU");
    }
}
