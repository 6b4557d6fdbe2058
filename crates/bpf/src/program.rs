//! Programs in the kernel.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{BpfError, Direction, object_name, syscall};

/// Kinds of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sees the packets of a cgroup's sockets.
    CgroupPacket(Direction),
    /// Runs when it is started on a CPU.
    RawTracepoint,
    /// Runs at the tracepoint with this number ([`crate::Btf::tracepoint`]). Its context is the arguments of the tracepoint, which
    /// are followed as the kernel's types have them. Linux 5.5.
    Tracepoint(u32),
}

impl Kind {
    /// The licence under which such a program is loaded. Reading perf events is for those that are compatible with the GPL
    /// (kernel/trace/bpf_trace.c, `gpl_only`): this project's MIT is, and the kernel has a name for that pair
    /// (include/linux/license.h). Packets are counted without such helpers.
    fn licence(self) -> &'static CStr {
        match self {
            Self::CgroupPacket(_) => c"",
            Self::RawTracepoint | Self::Tracepoint(_) => c"Dual MIT/GPL",
        }
    }

    /// Its number, and those of how and where it is attached (include/uapi/linux/bpf.h, `enum bpf_prog_type` and `bpf_attach_type`).
    fn numbers(self) -> [u32; 3] {
        match self {
            Self::CgroupPacket(direction) => [8, direction as u32, 0],
            Self::RawTracepoint => [17, 0, 0],
            Self::Tracepoint(number) => [26, 23, number],
        }
    }
}

/// A loaded program. It goes when it is dropped and attached nowhere.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Has the kernel verify and load a program.
    pub fn load(kind: Kind, name: &str, code: &[[u8; 8]]) -> Result<Self, BpfError> {
        let load = |log: &mut [u8]| {
            syscall::program_load(kind.numbers(), code, kind.licence(), object_name(name), log)
        };
        match uninterrupted(|| load(&mut [])) {
            Ok(descriptor) => Ok(Self(descriptor)),
            // Again, only for the verifier's log.
            Err(errno) => {
                let mut log = vec![0; 1 << 16];
                match uninterrupted(|| load(&mut log)) {
                    Ok(descriptor) => Ok(Self(descriptor)),
                    Err(_) => {
                        let why = last_words(&log).filter(|_| errno != Errno::PERM);
                        Err(BpfError { what: "loading a program", errno, why })
                    }
                }
            }
        }
    }
}

impl Program {
    /// Runs a program of a raw tracepoint on a CPU, with interrupts off unless it is this one, and gives what it returns. Its
    /// context is these numbers, 12 at most. `ENXIO` when the CPU is offline. Linux 5.10
    /// (net/bpf/test_run.c, `bpf_prog_test_run_raw_tp`).
    pub fn run_on(&self, cpu: u32, context: &mut [u64]) -> Result<u32, Errno> {
        syscall::program_run(self.0.as_fd(), cpu, context)
    }

    /// Has a program run at its tracepoint, on every CPU, for as long as the descriptor is open.
    pub fn at_tracepoint(&self) -> Result<OwnedFd, BpfError> {
        syscall::tracepoint_open(self.0.as_fd()).map_err(BpfError::new("attaching a program"))
    }
}

/// A pending signal interrupts the verifier (EAGAIN, kernel/bpf/verifier.c): the kernel is asked again, as often as
/// libbpf does.
fn uninterrupted<T>(mut load: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 1..5 {
        match load() {
            Err(Errno::AGAIN) => {}
            answer => return answer,
        }
    }
    load()
}

/// The verifier's reason: the last line of its log but for its statistics.
fn last_words(log: &[u8]) -> Option<String> {
    let text = log.split(|byte| *byte == 0).next()?;
    let said = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"processed ");
    let line = text.split(|byte| *byte == b'\n').rfind(said)?;
    Some(String::from_utf8_lossy(line).into_owned())
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_a_signal_interrupts_is_asked_again_and_no_other() {
        let asked = |answers: &[Result<u8, Errno>]| {
            let mut count = 0;
            let answer = uninterrupted(|| {
                count += 1;
                answers[(count - 1).min(answers.len() - 1)]
            });
            (answer, count)
        };
        assert_eq!(asked(&[Ok(7)]), (Ok(7), 1));
        assert_eq!(asked(&[Err(Errno::AGAIN), Err(Errno::AGAIN), Ok(7)]), (Ok(7), 3));
        assert_eq!(asked(&[Err(Errno::AGAIN), Err(Errno::PERM), Ok(7)]), (Err(Errno::PERM), 2));
        assert_eq!(asked(&[Err(Errno::AGAIN)]), (Err(Errno::AGAIN), 5));
    }

    #[test]
    fn the_reason_is_the_last_line_that_is_no_statistics() {
        let log = b"0: (85) call bpf_x#83\nunknown func bpf_x#83\nprocessed 1 insns (limit 1000000)\n\0\0\0";
        assert_eq!(last_words(log).as_deref(), Some("unknown func bpf_x#83"));
        assert_eq!(last_words(b"\0\0"), None);
        assert_eq!(last_words(b""), None);
    }
}
