//! What the device helper keeps: two capabilities, one socket, memory, and the three commands of bpf(2) that inspect programs.

#![cfg_attr(test, allow(unsafe_code, reason = "the calls that are refused have no safe interface"))]

use privileges::helper::{Confinement, small_filter};
use seccompiler::{BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::protocol::MOST_CGROUPS;

/// Commands of bpf(2) (include/uapi/linux/bpf.h, `enum bpf_cmd`): BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD,
/// BPF_PROG_QUERY.
const COMMANDS: [u64; 3] = [13, 15, 16];

/// No file at all; the cgroups of a question, and the program that is looked at.
pub(super) fn confinement() -> Confinement {
    let cgroups = u64::try_from(MOST_CGROUPS).unwrap_or(0);
    Confinement { descriptors: cgroups + 7, writes: false, tree: None, system_calls }
}

fn system_calls() -> Result<BpfProgram, BackendError> {
    let command = |command: &u64| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *command)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let looks = COMMANDS.iter().map(command).collect::<Result<_, _>>()?;
    small_filter(&[libc::SYS_recvmsg, libc::SYS_fstatfs], vec![(libc::SYS_bpf, looks)])
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use rustix::io::Errno;

    use super::*;

    /// A system call with its errno, 0 when it was let through.
    fn call(number: libc::c_long, arguments: [usize; 4]) -> i32 {
        let [a, b, c, d] = arguments;
        // SAFETY: null and empty arguments, of which the kernel writes nothing.
        let answer = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
        if answer < 0 { Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
    }

    /// On a thread of its own, to which the filter applies.
    #[test]
    fn the_filter_lets_look_at_programs_and_nothing_else() {
        let filter = system_calls().unwrap();
        let (allowed, refused) = std::thread::spawn(move || {
            seccompiler::apply_filter(&filter).unwrap();
            let bpf = |command: usize| call(libc::SYS_bpf, [command, 0, 0, 0]);
            let executable = usize::try_from(libc::PROT_READ | libc::PROT_EXEC).unwrap();
            let allowed = [13, 15, 16].map(bpf);
            let refused: Vec<(usize, i32)> = (0..40)
                .filter(|command| !matches!(command, 13 | 15 | 16))
                .map(|command| (command, bpf(command)))
                .chain([
                    (100, call(libc::SYS_openat, [0, 0, 0, 0])),
                    (101, call(libc::SYS_socket, [1, 1, 0, 0])),
                    (102, call(libc::SYS_execve, [0, 0, 0, 0])),
                    (103, call(libc::SYS_clone, [0, 0, 0, 0])),
                    (104, call(libc::SYS_kill, [0, 0, 0, 0])),
                    (105, call(libc::SYS_ptrace, [0, 0, 0, 0])),
                    (106, call(libc::SYS_mount, [0, 0, 0, 0])),
                    (107, call(libc::SYS_setns, [0, 0, 0, 0])),
                    (108, call(libc::SYS_prctl, [0, 0, 0, 0])),
                    (109, call(libc::SYS_capset, [0, 0, 0, 0])),
                    (110, call(libc::SYS_read, [0, 0, 0, 0])),
                    (111, call(libc::SYS_write, [1, 0, 0, 0])),
                    (112, call(libc::SYS_ioctl, [0, 0, 0, 0])),
                    (113, call(libc::SYS_mmap, [0, 4096, executable, 0x22])),
                    (114, call(libc::SYS_mprotect, [0, 0, executable, 0])),
                    (115, call(libc::SYS_perf_event_open, [0, 0, 0, 0])),
                    (116, call(libc::SYS_init_module, [0, 0, 0, 0])),
                    (117, call(libc::SYS_io_uring_setup, [1, 0, 0, 0])),
                ])
                .collect();
            (allowed, refused)
        })
        .join()
        .unwrap();
        let eperm = Errno::PERM.raw_os_error();
        // Without attributes they come as far as that: EFAULT, EINVAL.
        assert!(allowed.iter().all(|errno| *errno != eperm), "{allowed:?}");
        for (what, errno) in refused {
            assert_eq!(errno, eperm, "{what}");
        }
    }
}
