//! The CPUs and disks of the simulated machine.

/// Two sockets of 24 cores.
pub(super) const CPUS: u32 = 48;
pub(super) const SOCKETS: u32 = 2;
/// Device number and name, in the order of `Counters::io`.
pub(super) const DISKS: [(&str, &str); 2] = [("259:0", "nvme0n1"), ("8:0", "sda")];

/// The socket of a CPU.
pub(super) fn socket_of(cpu: u32) -> usize {
    usize::from(cpu >= CPUS / SOCKETS)
}
