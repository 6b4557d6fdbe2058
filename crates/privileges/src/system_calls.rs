//! The system calls that a process which reads, counts and serves can do with (seccomp(2)).
//!
//! The list is what systemd calls `@system-service`, without `@privileged`, `@setuid`, `@chown`, `@keyring`, `@memlock`,
//! `@resources` and `@aio`, without starting programs, and without what inspects or signals other processes. Name services'
//! modules (files, sssd, nscd, systemd), NVIDIA's library, bcrypt's threads and tokio need no more. What is refused answers
//! EPERM, so that a library may do without.

use std::collections::BTreeMap;

use rustix::process::{Pid, getpid};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// What some sources need beside the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extra {
    /// perf_event_open(2).
    pub perf_events: bool,
    /// bpf(2).
    pub bpf: bool,
}

/// With any arguments.
const ALWAYS: &[libc::c_long] = &[
    // Descriptors.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_pipe2,
    libc::SYS_memfd_create,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    // Files. Which of them may be written is a matter of Landlock and of file modes.
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_readlinkat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    // Connections. Nothing listens that did not when the filter came, so listen(2) is not here.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Memory; mmap and mprotect have rules.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    // Threads, and the end; clone has a rule.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_restart_syscall,
    libc::SYS_prctl,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Signals to itself; tgkill has a rule.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    // Who it is, where, and when.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_umask,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
];

/// The older names that only this architecture has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// TIOCSTI and TIOCLINUX (include/uapi/asm-generic/ioctls.h), which put characters into a terminal.
const TYPING: [u64; 2] = [0x5412, 0x541C];

/// IPMICTL_SEND_COMMAND and IPMICTL_SEND_COMMAND_SETTIME (include/uapi/linux/ipmi.h), with which who opened a BMC's device has all
/// power over the node. A helper asks the BMC.
const TO_THE_BMC: [u64; 2] = [0x8028_690D, 0x8030_6915];

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// It cannot be made for this architecture.
    #[error("no filter can be made: {0}")]
    Make(#[from] BackendError),
    /// The kernel has no seccomp, or another filter forbids it.
    #[error("the kernel takes no filter: {0}")]
    Apply(#[from] seccompiler::Error),
}

/// Refuses this thread, and those that it starts, all system calls but those that it needs, for good (Linux 3.5).
pub fn restrict_system_calls(extra: Extra) -> Result<(), FilterError> {
    // The list does not let another filter in, so it comes last.
    let programs = [without_clone3()?, allowed(extra, getpid())?];
    for program in programs {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

fn unsigned(number: i32) -> u64 {
    u64::from(number.unsigned_abs())
}

/// One condition on an argument.
fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn allowed(extra: Extra, own: Pid) -> Result<BpfProgram, BackendError> {
    let rule = |condition: Result<SeccompCondition, BackendError>| SeccompRule::new(vec![condition?]);
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        ALWAYS.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    // Scrapes, and sockets of the machine. No raw packets, no netlink, no kernel crypto.
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let families = families.map(|family| rule(when(0, SeccompCmpOp::Eq, unsigned(family))));
    rules.insert(libc::SYS_socket, families.into_iter().collect::<Result<_, _>>()?);
    // Libraries are mapped to be executed; no memory is both written and executed.
    let both = unsigned(libc::PROT_WRITE | libc::PROT_EXEC);
    let one = [0, unsigned(libc::PROT_WRITE), unsigned(libc::PROT_EXEC)];
    let one = one.map(|protection| rule(when(2, SeccompCmpOp::MaskedEq(both), protection)));
    rules.insert(libc::SYS_mmap, one.into_iter().collect::<Result<_, _>>()?);
    let executable = SeccompCmpOp::MaskedEq(unsigned(libc::PROT_EXEC));
    for call in [libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, vec![rule(when(2, executable.clone(), 0))?]);
    }
    // Threads are started, processes are not. Without CLONE_THREAD no namespace can be asked for either.
    let threads = unsigned(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![rule(when(0, SeccompCmpOp::MaskedEq(threads), threads))?]);
    // abort(3) signals itself.
    let own = unsigned(own.as_raw_nonzero().get());
    rules.insert(libc::SYS_tgkill, vec![rule(when(0, SeccompCmpOp::Eq, own))?]);
    // Nothing is typed into a terminal that it may have been started from, and nothing said to the BMC.
    let refused = TYPING.into_iter().chain(TO_THE_BMC).map(|request| when(1, SeccompCmpOp::Ne, request));
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(refused.collect::<Result<_, _>>()?)?]);
    if extra.perf_events {
        rules.insert(libc::SYS_perf_event_open, Vec::new());
    }
    if extra.bpf {
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    compile(rules, SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow)
}

/// The flags of clone3(2) are in memory, where no filter sees them: the C library takes clone(2) where there is none. Of two
/// filters the stricter answer counts (seccomp(2)), so this one is beside the list.
fn without_clone3() -> Result<BpfProgram, BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.unsigned_abs()))
}

pub(crate) fn compile(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    #[allow(clippy::useless_conversion, reason = "c_long is shorter than i64 on some architectures")]
    let rules = rules.into_iter().map(|(call, rules)| (i64::from(call), rules)).collect();
    SeccompFilter::new(rules, others, these, std::env::consts::ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::tests::apart;

    /// On a thread of its own, to which the filter applies.
    fn filtered<T: Send + 'static>(extra: Extra, f: impl FnOnce() -> T + Send + 'static) -> T {
        apart(move || {
            restrict_system_calls(extra).unwrap();
            f()
        })
    }

    #[test]
    fn what_reads_serves_and_starts_threads_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let (user, status) = filtered(Extra::default(), move || {
            let (mut stream, _) = listener.accept().unwrap();
            let thread = std::thread::Builder::new().name("named".to_owned());
            let thread = thread.spawn(move || stream.write_all(b"served")).unwrap();
            thread.join().unwrap().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            std::fs::read_dir("/proc/self/fd").unwrap().count();
            // The name service opens libraries and sockets.
            (nix::unistd::User::from_uid(0.into()).unwrap(), status)
        });
        assert_eq!(client.join().unwrap(), "served");
        assert_eq!(user.unwrap().name, "root");
        let seccomp = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
        assert_eq!((seccomp("Seccomp:"), seccomp("Seccomp_filters:")), ("2", "2"));
    }

    /// A system call with its errno, 0 when it was let through.
    #[expect(unsafe_code, reason = "most of these calls have no safe interface")]
    fn call(number: libc::c_long, arguments: [i64; 4]) -> i32 {
        let [a, b, c, d] = arguments;
        // SAFETY: null, empty or invalid arguments, of which the kernel reads and writes nothing.
        let answer = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
        if answer < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
    }

    #[test]
    fn programs_namespaces_other_processes_and_the_kernel_are_refused() {
        let (writable, executable) = (i64::from(libc::PROT_WRITE), i64::from(libc::PROT_EXEC));
        let anonymous = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let own = i64::from(getpid().as_raw_nonzero().get());
        let refused = [
            ("a program", libc::SYS_execve, [0; 4]),
            ("a program by descriptor", libc::SYS_execveat, [-1, 0, 0, 0]),
            ("a process", libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0]),
            ("a namespace", libc::SYS_clone, [i64::from(libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0, 0]),
            ("an own namespace", libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0, 0]),
            ("another's namespace", libc::SYS_setns, [-1, 0, 0, 0]),
            ("a signal", libc::SYS_kill, [own, 0, 0, 0]),
            ("a signal to a thread", libc::SYS_tkill, [own, 0, 0, 0]),
            ("a signal to another's thread", libc::SYS_tgkill, [1, 1, 0, 0]),
            ("a signal by descriptor", libc::SYS_pidfd_send_signal, [-1, 0, 0, 0]),
            ("another's descriptors", libc::SYS_pidfd_getfd, [-1, 0, 0, 0]),
            ("another's memory", libc::SYS_process_vm_readv, [1, 0, 0, 0]),
            ("tracing", libc::SYS_ptrace, [0; 4]),
            ("a packet socket", libc::SYS_socket, [i64::from(libc::AF_PACKET), 3, 0, 0]),
            ("a netlink socket", libc::SYS_socket, [i64::from(libc::AF_NETLINK), 3, 0, 0]),
            ("a listener", libc::SYS_listen, [-1, 0, 0, 0]),
            ("a mode", libc::SYS_fchmod, [-1, 0, 0, 0]),
            ("an owner", libc::SYS_fchown, [-1, 0, 0, 0]),
            ("a device", libc::SYS_mknodat, [-1, 0, 0, 0]),
            ("a link", libc::SYS_symlinkat, [0, -1, 0, 0]),
            ("a mount", libc::SYS_mount, [0; 4]),
            ("a root", libc::SYS_chroot, [0; 4]),
            ("a handle", libc::SYS_open_by_handle_at, [-1, 0, 0, 0]),
            ("capabilities", libc::SYS_capset, [0; 4]),
            ("a user", libc::SYS_setresuid, [-1, -1, -1, 0]),
            ("a key", libc::SYS_keyctl, [0; 4]),
            ("the clock", libc::SYS_clock_settime, [0; 4]),
            ("a module", libc::SYS_init_module, [0; 4]),
            ("a ring", libc::SYS_io_uring_setup, [1, 0, 0, 0]),
            ("page faults", libc::SYS_userfaultfd, [-1, 0, 0, 0]),
            ("memory written and executed", libc::SYS_mmap, [0, 4096, writable | executable, anonymous]),
            ("memory that becomes executable", libc::SYS_mprotect, [0, 0, executable, 0]),
            ("typing", libc::SYS_ioctl, [-1, 0x5412, 0, 0]),
            ("a command to the BMC", libc::SYS_ioctl, [-1, 0x8028_690d, 0, 0]),
            ("a command to the BMC with a timing", libc::SYS_ioctl, [-1, 0x8030_6915, 0, 0]),
            ("a BPF program", libc::SYS_bpf, [5, 0, 0, 0]),
            ("a perf event", libc::SYS_perf_event_open, [0, 0, -1, -1]),
        ];
        let answers = filtered(Extra::default(), move || {
            refused.map(|(what, number, arguments)| (what, call(number, arguments)))
        });
        for (what, errno) in answers {
            assert_eq!(errno, libc::EPERM, "{what}");
        }
        let answers = filtered(Extra::default(), move || {
            [
                call(libc::SYS_mmap, [0, 4096, executable, anonymous]),
                call(libc::SYS_ioctl, [-1, 0x5413, 0, 0]),
                call(libc::SYS_tgkill, [own, 0, 0, 0]),
                call(libc::SYS_clone3, [0; 4]),
            ]
        });
        assert_eq!(answers, [0, libc::EBADF, libc::EINVAL, libc::ENOSYS]);
    }

    #[test]
    fn counters_and_bpf_are_let_through_where_a_source_needs_them() {
        let ask = |extra| {
            filtered(extra, || {
                [call(libc::SYS_perf_event_open, [0, 0, -1, -1]), call(libc::SYS_bpf, [-1, 0, 0, 0])]
                    .map(|errno| errno != libc::EPERM)
            })
        };
        // Without attributes the kernel comes as far as those, unless this user may not use bpf(2) at all.
        assert_eq!(ask(Extra { perf_events: true, bpf: false }), [true, false]);
        if crate::holds(rustix::thread::CapabilitySet::SYS_ADMIN) {
            assert_eq!(ask(Extra { perf_events: false, bpf: true }), [false, true]);
        }
    }
}
