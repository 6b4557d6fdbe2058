//! One event of a CPU or of what it stands for (a socket, a memory controller), counted for everybody; behind traits so that tests
//! need no such hardware.

use kernel_files::ReadError;
use perf_event::events::Raw;
use perf_event::{Builder, Counter};
use rustix::io::Errno;

use crate::Attr;

/// What is needed to open an event (again).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spec {
    /// Which event.
    pub attr: Attr,
    /// On which CPU, one of the PMU's `cpumask`.
    pub cpu: u32,
}

/// A reading of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// What was counted.
    pub value: u64,
    /// For how long it was wanted, nanoseconds.
    pub enabled: u64,
    /// For how long it had a counter, nanoseconds; less where events take turns.
    pub running: u64,
}

/// An event that counts, until it is dropped.
pub trait Opened: Send {
    /// Reads it; `Gone` for one that the kernel has taken off its CPU for good.
    fn read(&mut self) -> Result<Count, ReadError>;
}

/// Opens events.
pub trait Open: Send {
    /// Opens one, which counts from 0.
    fn open(&self, spec: Spec) -> Result<Box<dyn Opened>, ReadError>;
}

/// The kernel's own, perf_event_open(2).
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

fn class(error: &std::io::Error) -> ReadError {
    let errno = error.raw_os_error();
    // No errno: a short read, which is that of an event in error state (kernel/events/core.c, `__perf_read`).
    errno.map_or(ReadError::Gone, |errno| ReadError::from_errno(Errno::from_raw_os_error(errno)))
}

impl Open for Kernel {
    fn open(&self, spec: Spec) -> Result<Box<dyn Opened>, ReadError> {
        let Spec { attr, cpu } = spec;
        let mut builder = Builder::new(Raw::new(attr.config).config1(attr.config1).config2(attr.config2));
        builder.attrs_mut().type_ = attr.kind;
        let cpu = usize::try_from(cpu).map_err(|_| ReadError::Gone)?;
        // PMUs beside the cores refuse every exclusion (PERF_PMU_CAP_NO_EXCLUDE).
        builder.any_pid().one_cpu(cpu).exclude_kernel(false).exclude_hv(false);
        let mut counter = builder.build().map_err(|error| class(&error))?;
        counter.enable().map_err(|error| class(&error))?;
        Ok(Box::new(counter))
    }
}

impl Opened for Counter {
    fn read(&mut self) -> Result<Count, ReadError> {
        let count = self.read_count_and_time().map_err(|error| class(&error))?;
        Ok(Count { value: count.count, enabled: count.time_enabled, running: count.time_running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No such PMU in virtual machines, but `cpu-clock` of one CPU is opened and read the same way.
    #[test]
    fn the_kernel_counts_what_was_opened() {
        let clock = Spec { attr: Attr::new(Attr::SOFTWARE, 0), cpu: 0 };
        let mut event = match Kernel.open(clock) {
            Ok(event) => event,
            Err(error) => {
                jobledger_testkit::skip("perf-events", error);
                return;
            }
        };
        let first = event.read().unwrap();
        let second = event.read().unwrap();
        assert!(second.value > first.value && second.enabled > first.enabled, "{first:?} {second:?}");
        assert_eq!(second.running, second.enabled, "the kernel's own events take no turns");
        let without = std::thread::spawn(move || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            Kernel.open(clock).err()
        });
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        let refused = (paranoid.trim().parse::<i32>().unwrap() > 0).then_some(ReadError::Denied);
        assert_eq!(without.join().unwrap(), refused, "without CAP_PERFMON, at level {paranoid}");
        let absent = Kernel.open(Spec { attr: Attr::new(u32::MAX, 0), cpu: 0 });
        assert_eq!(absent.err(), Some(ReadError::Gone), "ENOENT: no such PMU");
        let offline = Kernel.open(Spec { cpu: 4095, ..clock });
        assert!(offline.is_err(), "no such CPU");
    }
}
