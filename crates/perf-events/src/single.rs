//! One event of a CPU, or of the socket or memory controller it stands for, counting all processes: a group of one.

use kernel_files::ReadError;

use crate::{Attr, Counters, On, Open, Reading};

/// The attributes for opening an event (again).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spec {
    /// Which event.
    pub attr: Attr,
    /// The CPU, one of the PMU's `cpumask`.
    pub cpu: u32,
}

/// A reading of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// The count.
    pub value: u64,
    /// For how long it was wanted, nanoseconds.
    pub enabled: u64,
    /// For how long it had a counter, nanoseconds; less where events take turns.
    pub running: u64,
}

/// An event that counts, until it is dropped.
pub struct Single {
    counters: Box<dyn Counters>,
    reading: Reading,
}

impl Single {
    /// Opens one, which counts from 0.
    pub fn open(open: &dyn Open, spec: Spec) -> Result<Self, ReadError> {
        let counters = open.open(On::Everybody, spec.cpu, &[spec.attr])?;
        Ok(Self { counters, reading: Reading::default() })
    }

    /// Reads it; `Gone` for one that the kernel has taken off its CPU for good.
    pub fn read(&mut self) -> Result<Count, ReadError> {
        self.counters.read(&mut self.reading)?;
        let Reading { enabled, running, ref counts } = self.reading;
        let value = counts.first().copied().ok_or(ReadError::Gone)?;
        Ok(Count { value, enabled, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernel;

    /// No such PMU in virtual machines, but `cpu-clock` of one CPU is opened and read the same way.
    #[test]
    fn the_kernel_counts_what_was_opened() {
        let clock = Spec { attr: Attr::new(Attr::SOFTWARE, 0), cpu: 0 };
        let mut event = match Single::open(&Kernel, clock) {
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
            Single::open(&Kernel, clock).err()
        });
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        let refused = (paranoid.trim().parse::<i32>().unwrap() > 0).then_some(ReadError::Denied);
        assert_eq!(without.join().unwrap(), refused, "without CAP_PERFMON, at level {paranoid}");
        let absent = Single::open(&Kernel, Spec { attr: Attr::new(u32::MAX, 0), cpu: 0 });
        assert_eq!(absent.err(), Some(ReadError::Gone), "ENOENT: no such PMU");
        let offline = Single::open(&Kernel, Spec { cpu: 4095, ..clock });
        assert!(offline.is_err(), "no such CPU");
    }
}
