//! What the kernel counts for a group: CPU time, faults, I/O, memory, and PSI's stall time.

use std::ops::AddAssign;

use super::process::Io;
use super::random::{real, whole};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Counters. A parent has the sum over its children, removed ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// CPU time in user mode, microseconds.
    pub(super) user: u64,
    /// CPU time in the kernel, microseconds.
    pub(super) system: u64,
    pub(super) page_faults: u64,
    pub(super) major_faults: u64,
    /// `max`, `oom` and `oom_kill` of `memory.events`.
    pub(super) limit_hits: u64,
    pub(super) ooms: u64,
    pub(super) oom_kills: u64,
    /// By device, in the order of `layout::DISKS`.
    pub(super) io: [Io; 2],
    /// The kernel counts this and the next fields per device or mount only; the simulation counts them per group, too.
    pub(super) fabric: Moved,
    pub(super) network: Moved,
    pub(super) nfs: Io,
    /// NFS requests that move no data.
    pub(super) nfs_metadata: u64,
}

/// Bytes over a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.sent += other.sent;
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.page_faults += other.page_faults;
        self.major_faults += other.major_faults;
        self.limit_hits += other.limit_hits;
        self.ooms += other.ooms;
        self.oom_kills += other.oom_kills;
        for (mine, theirs) in self.io.iter_mut().zip(other.io) {
            *mine += theirs;
        }
        self.fabric += other.fabric;
        self.network += other.network;
        self.nfs += other.nfs;
        self.nfs_metadata += other.nfs_metadata;
    }
}

/// Bytes of anonymous memory and of page cache, by NUMA node.
pub(super) type Places = [[u64; 2]; 2];

/// The memory that is charged, in bytes; `file` includes `shmem`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) shmem: u64,
    pub(super) mapped: u64,
    pub(super) page_tables: u64,
    pub(super) threads: u64,
}

impl Memory {
    /// Memory of `threads` threads; page tables follow from what is mapped.
    pub(super) fn of(anon: u64, file: u64, shmem: u64, threads: u64) -> Self {
        let pages = |bytes: u64| bytes - bytes % PAGE;
        let (anon, shmem) = (pages(anon), pages(shmem));
        let file = pages(file).max(shmem);
        let mapped = (shmem + pages(file / 16)).min(file);
        Self { anon, file, shmem, mapped, page_tables: Self::tables(anon), threads }
    }

    fn tables(anon: u64) -> u64 {
        (anon / 512).next_multiple_of(PAGE) + 16 * PAGE
    }

    /// The most anonymous memory that fits into `room` with its page tables.
    pub(super) fn anon_within(room: u64) -> u64 {
        let anon = (room.saturating_sub(18 * PAGE) / 513) * 512;
        anon - anon % PAGE
    }

    pub(super) fn kernel_stack(&self) -> u64 {
        self.threads * 4 * PAGE
    }

    pub(super) fn slab_reclaimable(&self) -> u64 {
        self.threads * 6 * PAGE
    }

    pub(super) fn slab_unreclaimable(&self) -> u64 {
        self.threads * 10 * PAGE
    }

    pub(super) fn per_cpu(&self) -> u64 {
        self.threads * PAGE
    }

    /// `kernel` of `memory.stat`, which includes stacks, page tables, per-CPU memory and slab.
    pub(super) fn kernel(&self) -> u64 {
        self.kernel_stack()
            + self.page_tables
            + self.per_cpu()
            + self.slab_reclaimable()
            + self.slab_unreclaimable()
    }

    /// Its NUMA nodes, for a group with `cpus` CPUs on each socket: memory is allocated where the program runs.
    pub(super) fn places(&self, cpus: [u64; 2]) -> Places {
        let [near, far] = if cpus == [0, 0] { [1, 1] } else { cpus };
        let there = [self.anon, self.file].map(|bytes| {
            let bytes = bytes * far / (near + far);
            bytes - bytes % PAGE
        });
        let [anon, file] = there;
        [[self.anon - anon, self.file - file], there]
    }

    /// `memory.current`.
    pub(super) fn current(&self) -> u64 {
        self.anon + self.file + self.kernel()
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        self.anon += other.anon;
        self.file += other.file;
        self.shmem += other.shmem;
        self.mapped += other.mapped;
        self.page_tables += other.page_tables;
        self.threads += other.threads;
    }
}

/// Stall time and its running averages, as in a PSI file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Stall {
    /// Microseconds.
    pub(super) total: u64,
    /// At the latest tick.
    ticked: u64,
    /// Percent over 10, 60 and 300 seconds.
    pub(super) averages: [f64; 3],
}

impl Stall {
    /// Stall time since the latest tick.
    pub(super) fn since_tick(&self) -> u64 {
        self.total - self.ticked
    }

    fn tick(&mut self, elapsed: u64) {
        let percent = (100.0 * real(self.since_tick()) / real(elapsed.max(1))).min(100.0);
        for (average, seconds) in self.averages.iter_mut().zip([10.0, 60.0, 300.0]) {
            let keep = (-real(elapsed) / 1e6 / seconds).exp();
            *average = *average * keep + percent * (1.0 - keep);
            // Smaller than a PSI file can show.
            if *average < 0.005 {
                *average = 0.0;
            }
        }
        self.ticked = self.total;
    }
}

/// The resources of PSI, in the order of [`Pressure`].
pub(super) const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];

/// Stalls by resource: some and full.
pub(super) type Pressure = [[Stall; 2]; 3];

/// Adds microseconds of stall by resource: some and full.
pub(super) fn add_stalls(pressure: &mut Pressure, stalls: [[u64; 2]; 3]) {
    for (stall, more) in pressure.iter_mut().flatten().zip(stalls.into_iter().flatten()) {
        stall.total += more;
    }
}

/// Updates the averages of all stalls.
pub(super) fn tick_stalls(pressure: &mut Pressure, elapsed: u64) {
    pressure.iter_mut().flatten().for_each(|stall| stall.tick(elapsed));
}

/// `cpu.max` and its effect. Not summed over children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bandwidth {
    /// Microseconds per period of 100 000.
    pub(super) quota: Option<u64>,
    pub(super) periods: u64,
    pub(super) throttled: u64,
    pub(super) throttled_usec: u64,
}

/// Stall times of an interval, from fractions of it.
pub(super) fn stalls(fractions: [[f64; 2]; 3], elapsed: u64) -> [[u64; 2]; 3] {
    fractions.map(|pair| pair.map(|fraction| whole(fraction * real(elapsed))))
}
