//! What the BMC helper keeps: the device, one socket, memory, and two commands of ioctl(2).

#![cfg_attr(test, allow(unsafe_code, reason = "the calls that are refused have no safe interface"))]

use privileges::helper::{Confinement, small_filter};
use seccompiler::{BackendError, BpfProgram, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::ipmi::device::{RECEIVE_MSG_TRUNC, SEND_COMMAND};

/// The device's number: nothing but the socket, standard input, is open when it comes.
const DEVICE: u64 = 1;

/// No file at all, and no further descriptor.
pub(super) fn confinement() -> Confinement {
    Confinement { descriptors: 1, writes: false, tree: None, system_calls }
}

fn system_calls() -> Result<BpfProgram, BackendError> {
    let is =
        |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let command = |command: u32| SeccompRule::new(vec![is(0, DEVICE)?, is(1, command.into())?]);
    let commands = [SEND_COMMAND, RECEIVE_MSG_TRUNC].map(command).into_iter().collect::<Result<_, _>>()?;
    // The clock is a system call where the kernel's clock source is none that a process can read.
    let calls = [libc::SYS_recvmsg, libc::SYS_recvfrom, libc::SYS_ppoll, libc::SYS_clock_gettime];
    small_filter(&calls, vec![(libc::SYS_ioctl, commands)])
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
    fn the_filter_lets_the_device_be_asked_and_nothing_else() {
        let filter = system_calls().unwrap();
        let (allowed, refused) = std::thread::spawn(move || {
            seccompiler::apply_filter(&filter).unwrap();
            // Without arguments the driver of whatever is open there answers ENOTTY or EFAULT.
            let ioctl = |device: usize, command: u32| {
                call(libc::SYS_ioctl, [device, command.try_into().unwrap(), 0, 0])
            };
            let executable = usize::try_from(libc::PROT_READ | libc::PROT_EXEC).unwrap();
            let allowed = [ioctl(1, SEND_COMMAND), ioctl(1, RECEIVE_MSG_TRUNC)];
            // linux/ipmi.h: what sends with another timing, registers for others' commands, and changes the driver.
            let commands =
                [0x8030_6915, 0x8002_690e, 0x800c_691c, 0x8004_6910, 0x8004_6911, 0x4004_691f, 0x5413];
            let refused: Vec<(usize, i32)> = commands
                .into_iter()
                .map(|command: u32| (0, ioctl(1, command)))
                .chain([0, 2, 3].map(|device| (1, ioctl(device, SEND_COMMAND))))
                .chain([
                    (100, call(libc::SYS_openat, [0, 0, 0, 0])),
                    (101, call(libc::SYS_socket, [1, 1, 0, 0])),
                    (102, call(libc::SYS_execve, [0, 0, 0, 0])),
                    (103, call(libc::SYS_clone, [0, 0, 0, 0])),
                    (104, call(libc::SYS_kill, [0, 0, 0, 0])),
                    (105, call(libc::SYS_ptrace, [0, 0, 0, 0])),
                    (106, call(libc::SYS_mount, [0, 0, 0, 0])),
                    (107, call(libc::SYS_dup, [0, 0, 0, 0])),
                    (108, call(libc::SYS_prctl, [0, 0, 0, 0])),
                    (109, call(libc::SYS_sendmsg, [0, 0, 0, 0])),
                    (110, call(libc::SYS_read, [0, 0, 0, 0])),
                    (111, call(libc::SYS_write, [1, 0, 0, 0])),
                    (112, call(libc::SYS_bpf, [0, 0, 0, 0])),
                    (113, call(libc::SYS_mmap, [0, 4096, executable, 0x22])),
                    (114, call(libc::SYS_mprotect, [0, 0, executable, 0])),
                    (115, call(libc::SYS_pidfd_getfd, [0, 0, 0, 0])),
                    (116, call(libc::SYS_io_uring_setup, [1, 0, 0, 0])),
                ])
                .collect();
            (allowed, refused)
        })
        .join()
        .unwrap();
        let eperm = Errno::PERM.raw_os_error();
        assert!(allowed.iter().all(|errno| *errno != eperm), "{allowed:?}");
        for (what, errno) in refused {
            assert_eq!(errno, eperm, "{what}");
        }
    }
}
