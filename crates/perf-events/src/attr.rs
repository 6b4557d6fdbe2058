//! What the kernel is asked to count.

/// The part of `struct perf_event_attr` that says which event is meant (perf_event_open(2)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attr {
    /// `type`: a number of the kernel's (`PERF_TYPE_*`), or what sysfs says in a PMU's `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`.
    pub config1: u64,
    /// `config2`.
    pub config2: u64,
}

impl Attr {
    /// `PERF_TYPE_HARDWARE`: the kernel's own names for what most CPUs count.
    pub const HARDWARE: u32 = 0;
    /// `PERF_TYPE_SOFTWARE`: counted by the kernel itself.
    pub const SOFTWARE: u32 = 1;
    /// `PERF_TYPE_RAW`: the CPU's own code, where it has one PMU for all its cores.
    pub const RAW: u32 = 4;

    /// An event that a number says all of.
    pub fn new(kind: u32, config: u64) -> Self {
        Self { kind, config, ..Self::default() }
    }
}
