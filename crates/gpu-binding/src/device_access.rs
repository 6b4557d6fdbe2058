//! The kernel's own verdicts: the programs that guard a cgroup's devices are read and followed (`bpf::device`).
//!
//! Jobs with equal rights have equal programs, and SLURM attaches the same program again with each step, under a new
//! id (`task_cgroup_devices.c`). So answers are cached by a program's identity, and identities by id: an unchanged
//! cgroup costs one query.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use bpf::BpfError;
use bpf::device::{Access, DeviceKind, Identity, MOST_PROGRAMS, Outcome, Seen, effective, evaluate};
use gpu_devices::DeviceNode;
use kernel_files::{ReadError, SourceError};
use rustix::io::Errno;

use super::{DeviceAccess, DeviceAccessSource};

/// Devices that can be asked for at once. 16 GPUs of 7 parts each, with three nodes per part, are 352.
pub const MOST_NODES: usize = 1024;

/// Most programs with cached answers.
const MOST_ANSWERS: usize = 256;

/// Numbers of programs that are remembered.
const MOST_NUMBERS: usize = 4096;

/// An id that was not in effect for so many rounds is dropped. The kernel uses an id again only after 2³¹ others
/// (kernel/bpf/syscall.c, `idr_alloc_cyclic`).
const ROUNDS: u64 = 64;

/// Where a failure to ask belongs.
pub(super) enum Fault {
    /// No cgroup can be queried.
    Everywhere(SourceError),
    /// This cgroup cannot be.
    Here(SourceError),
}

/// What a refusal of the kernel means.
pub(super) fn fault(errno: Errno) -> Fault {
    const FILE: &str = "device programs of a cgroup";
    match errno {
        Errno::PERM | Errno::ACCESS => Fault::Everywhere(SourceError::Denied {
            what: "the programs that guard the devices of jobs".to_owned(),
        }),
        Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP => Fault::Everywhere(SourceError::Unsupported {
            needs: "Linux 4.15 with CONFIG_CGROUP_BPF".to_owned(),
        }),
        errno => Fault::Here(SourceError::Io { file: FILE, error: ReadError::from_errno(errno) }),
    }
}

/// What a program answers for one device; `None` where it cannot be followed.
type Answer = Option<bool>;

struct Known {
    identity: Identity,
    seen: u64,
}

/// Asks the kernel from this process, which needs CAP_SYS_ADMIN (and before Linux 5.8, and in EL 9, CAP_NET_ADMIN) for it.
#[derive(Default)]
pub struct KernelDeviceAccess {
    nodes: Vec<DeviceNode>,
    /// By program, its answer for each of `nodes`.
    answers: HashMap<Identity, Vec<Answer>>,
    numbers: HashMap<u32, Known>,
    round: u64,
}

impl std::fmt::Debug for KernelDeviceAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KernelVerdicts")
    }
}

impl KernelDeviceAccess {
    /// Begins a round of questions for these devices; [`Errno::TOOBIG`] when they are too many.
    pub(super) fn begin(&mut self, nodes: &[DeviceNode]) -> Result<(), Errno> {
        if nodes.len() > MOST_NODES {
            return Err(Errno::TOOBIG);
        }
        if self.nodes != nodes {
            self.nodes = nodes.to_vec();
            self.answers.clear();
        }
        self.round += 1;
        if self.round.is_multiple_of(ROUNDS) {
            let oldest = self.round - ROUNDS;
            self.numbers.retain(|_, known| known.seen >= oldest);
        }
        Ok(())
    }

    /// What the kernel would answer this cgroup.
    pub(super) fn device_access(&mut self, cgroup: BorrowedFd<'_>) -> Result<DeviceAccess, Errno> {
        // A program may go between the two questions, when SLURM attaches another. Not again and again.
        for _ in 0..8 {
            let mut room = [0; MOST_PROGRAMS];
            let Some(ids) = effective(cgroup, &mut room).map_err(errno)? else {
                return Ok(DeviceAccess::NotFollowed);
            };
            if ids.is_empty() {
                return Ok(DeviceAccess::NoProgram);
            }
            let mut all: Vec<Answer> = vec![Some(true); self.nodes.len()];
            let known = ids.iter().try_fold(true, |known, id| {
                let answers = if known { self.answers_of(*id)? } else { None };
                let Some(answers) = answers else { return Ok(false) };
                all.iter_mut().zip(answers).for_each(|(all, one)| *all = both(*all, *one));
                Ok(true)
            })?;
            if known {
                let nodes: Option<Vec<bool>> = all.into_iter().collect();
                return Ok(nodes.map_or(DeviceAccess::NotFollowed, |nodes| DeviceAccess::Allowed {
                    nodes,
                    programs: ids.to_vec(),
                }));
            }
        }
        Err(Errno::AGAIN)
    }

    /// What a program answers; `None` when it is gone.
    fn answers_of(&mut self, id: u32) -> Result<Option<&[Answer]>, Errno> {
        let known = self.numbers.get_mut(&id).map(|known| {
            known.seen = self.round;
            known.identity
        });
        let identity = match known.filter(|identity| self.answers.contains_key(identity)) {
            Some(identity) => identity,
            None => {
                let Some(program) = Seen::by_id(id).map_err(errno)? else { return Ok(None) };
                let identity = program.identity;
                if !self.answers.contains_key(&identity) {
                    let answers = self.follow(&program)?;
                    if self.answers.len() >= MOST_ANSWERS {
                        self.answers.clear();
                    }
                    self.answers.insert(identity, answers);
                }
                if self.numbers.len() >= MOST_NUMBERS {
                    self.numbers.clear();
                }
                self.numbers.insert(id, Known { identity, seen: self.round });
                identity
            }
        };
        Ok(self.answers.get(&identity).map(Vec::as_slice))
    }

    fn follow(&self, program: &Seen) -> Result<Vec<Answer>, Errno> {
        let code = program.instructions().map_err(errno)?;
        let answer = |node: &DeviceNode| {
            let kind = DeviceKind::Character;
            match evaluate(code.as_ref()?, Access::READ_WRITE, kind, node.major, node.minor) {
                Outcome::Allowed => Some(true),
                Outcome::Denied => Some(false),
                Outcome::NotFollowed(_) => None,
            }
        };
        Ok(self.nodes.iter().map(answer).collect())
    }
}

/// As [`Outcome::and`].
fn both(a: Answer, b: Answer) -> Answer {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn errno(error: BpfError) -> Errno {
    error.errno
}

impl DeviceAccessSource for KernelDeviceAccess {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        self.begin(nodes).map_err(|_| too_many_nodes())?;
        let ask = |cgroup: &BorrowedFd<'_>| place(self.device_access(*cgroup));
        cgroups.iter().map(ask).collect()
    }
}

/// Puts a failure where it belongs.
pub(super) fn place(
    answer: Result<DeviceAccess, Errno>,
) -> Result<Result<DeviceAccess, SourceError>, SourceError> {
    match answer.map_err(fault) {
        Ok(device_access) => Ok(Ok(device_access)),
        Err(Fault::Here(error)) => Ok(Err(error)),
        Err(Fault::Everywhere(error)) => Err(error),
    }
}

/// More devices than can be asked for.
pub(super) fn too_many_nodes() -> SourceError {
    SourceError::Unsupported { needs: format!("at most {MOST_NODES} device nodes of GPUs") }
}

#[cfg(test)]
mod tests;
