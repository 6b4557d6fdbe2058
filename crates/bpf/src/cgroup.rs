//! Programs on cgroups: attaching programs, and listing attached ones. Programs of others are never removed: a link
//! ends with its own descriptor alone.

use std::os::fd::{AsFd, OwnedFd};

use super::{BpfError, Program, syscall};

/// Which packets of a cgroup a program sees (include/uapi/linux/bpf.h, `enum bpf_attach_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Those that its sockets receive.
    Ingress = 0,
    /// Those that they send.
    Egress = 1,
}

/// Other programs may be attached to this cgroup and below, and all run (`BPF_F_ALLOW_MULTI`).
const ALLOW_MULTI: u32 = 2;

/// A program at a cgroup for as long as this runs. Links always let others be attached beside them
/// (kernel/bpf/cgroup.c, `cgroup_bpf_link_attach`).
#[derive(Debug)]
pub struct Link {
    _descriptor: OwnedFd,
}

impl Link {
    /// Attaches a program behind those that are there.
    pub fn new(program: &Program, cgroup: impl AsFd, direction: Direction) -> Result<Self, BpfError> {
        syscall::link_create(program.as_fd(), cgroup.as_fd(), direction as u32)
            .map(|descriptor| Self { _descriptor: descriptor })
            .map_err(BpfError::new("attaching a program"))
    }
}

/// The programs attached to a cgroup itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Their ids, in the order in which they run.
    pub ids: Vec<u32>,
    flags: u32,
}

impl Attached {
    /// Asks the kernel.
    pub fn of(cgroup: impl AsFd, direction: Direction) -> Result<Self, BpfError> {
        // The kernel takes 64 at most (kernel/bpf/cgroup.c, `BPF_CGROUP_MAX_PROGS`).
        let mut ids = vec![0; 64];
        let (flags, count) =
            syscall::program_query(cgroup.as_fd(), direction as u32, syscall::Which::Attached, &mut ids)
                .map_err(BpfError::new("asking for a cgroup's programs"))?;
        ids.truncate(usize::try_from(count).unwrap_or(0));
        Ok(Self { ids, flags })
    }

    /// Whether a program attached below would put these out of force, or the kernel would refuse it: they were
    /// attached without a word that others may run beside them.
    pub fn tolerates_no_other(&self) -> bool {
        !self.ids.is_empty() && self.flags & ALLOW_MULTI == 0
    }
}

/// Attaches a program without a link, as older tools do. Without flags it allows no other.
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, reason = "only tests use it: what fails here fails them")]
pub fn attach_alone(program: &Program, cgroup: impl AsFd, direction: Direction, override_allowed: bool) {
    let flags = u32::from(override_allowed);
    syscall::program_attach(program.as_fd(), cgroup.as_fd(), direction as u32, flags).unwrap();
}
