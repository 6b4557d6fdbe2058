//! Programs that decide which devices a cgroup may open (BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15): asked for and read,
//! never attached, detached or loaded.
//!
//! The kernel asks every program that is in effect for a cgroup and refuses when one of them answers 0
//! (kernel/bpf/cgroup.c, `__cgroup_bpf_check_dev_permission`). Asking for them needs CAP_NET_ADMIN (until Linux 5.8 and in
//! EL 9) or CAP_SYS_ADMIN, reading them CAP_SYS_ADMIN.

mod evaluate;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, OwnedFd};

pub use evaluate::{Access, DeviceKind, Outcome, evaluate};
use rustix::io::Errno;

use super::{BpfError, syscall};

/// `BPF_CGROUP_DEVICE` of `enum bpf_attach_type`.
const ATTACH_TYPE: u32 = 6;
/// `BPF_PROG_TYPE_CGROUP_DEVICE` of `enum bpf_prog_type`.
const PROGRAM_TYPE: u32 = 15;

/// A cgroup with more programs in effect than this is not followed. The kernel takes 64 at each level
/// (kernel/bpf/cgroup.c, `BPF_CGROUP_MAX_PROGS`); two are many.
pub const MOST_PROGRAMS: usize = 64;

/// Instructions of a program that is still followed; SLURM writes five for a device.
pub const MOST_INSTRUCTIONS: usize = 1 << 15;

/// Numbers of the programs in effect for a cgroup, in `room`; `None` when they are more.
pub fn effective(cgroup: impl AsFd, room: &mut [u32; MOST_PROGRAMS]) -> Result<Option<&[u32]>, BpfError> {
    let (_, count) = syscall::program_query(cgroup.as_fd(), ATTACH_TYPE, syscall::Which::Effective, room)
        .map_err(BpfError::new("asking for the programs that guard a cgroup's devices"))?;
    Ok(usize::try_from(count).ok().and_then(|count| room.get(..count)))
}

/// The identity of a program: the kernel's digest of the instructions as they were loaded, and their number as they
/// run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    tag: [u8; 8],
    length: u32,
}

/// A program in the kernel, held while it is looked at.
#[derive(Debug)]
pub struct Seen {
    descriptor: OwnedFd,
    /// Which one it is.
    pub identity: Identity,
}

impl Seen {
    /// Looks at a program by its number; `None` when it is gone.
    pub fn by_id(id: u32) -> Result<Option<Self>, BpfError> {
        let refused = BpfError::new("looking at a program that guards devices");
        let descriptor = match syscall::program_by_id(id) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(refused(errno)),
        };
        let info = syscall::program_info(descriptor.as_fd(), &mut []).map_err(refused)?;
        // The id was used again meanwhile.
        if info.kind != PROGRAM_TYPE {
            return Ok(None);
        }
        Ok(Some(Self { descriptor, identity: Identity { tag: info.tag, length: info.length } }))
    }

    /// Its instructions as they run; `None` when the kernel does not show them (CAP_SYS_ADMIN is not held, or they are
    /// blinded and `kernel.kptr_restrict` hides them), or they are too many.
    pub fn instructions(&self) -> Result<Option<Vec<[u8; 8]>>, BpfError> {
        let count = usize::try_from(self.identity.length).unwrap_or(usize::MAX) / 8;
        if count == 0 || count > MOST_INSTRUCTIONS {
            return Ok(None);
        }
        let mut code = vec![[0; 8]; count];
        let info = syscall::program_info(self.descriptor.as_fd(), &mut code)
            .map_err(BpfError::new("reading a program that guards devices"))?;
        Ok((info.instructions != 0 && info.length == self.identity.length).then_some(code))
    }
}
