//! What the helper drops before it reads the first question: everything except two capabilities, one socket, memory,
//! and the three commands of bpf(2) that inspect programs.

#![allow(unsafe_code, reason = "signals and ranges of descriptors have no safe interface")]

use std::collections::BTreeMap;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::protocol::MOST_CGROUPS;

/// What the kernel asks for: CAP_SYS_ADMIN to look at a program by its number (kernel/bpf/syscall.c,
/// `bpf_prog_get_fd_by_id`), CAP_NET_ADMIN for the numbers of a cgroup's programs before Linux 5.8 and in EL 9.
pub(super) const CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::NET_ADMIN);

/// Commands of bpf(2) (include/uapi/linux/bpf.h, `enum bpf_cmd`): BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD,
/// BPF_PROG_QUERY.
const COMMANDS: [u64; 3] = [13, 15, 16];

/// Confines this process for good. True where the kernel has Landlock; anything else that cannot be done is an error, and
/// then nothing is served.
pub(super) fn confine() -> Result<bool, String> {
    // A signal to the service is a signal to all its processes: SIGHUP has the exporter read its configuration again,
    // and after SIGTERM it still answers open requests. The helper ends when the exporter does.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let _ = rustix::thread::set_name(c"device-helper");
    close_all_but_the_socket();
    let refused = |what: &str| {
        let what = what.to_owned();
        move |error: rustix::io::Errno| format!("{what}: {error}")
    };
    let dropped = privileges::drop_capabilities(CAPABILITIES).map_err(refused("giving up capabilities"))?;
    if !dropped.kept.contains(CapabilitySet::SYS_ADMIN) {
        return Err("CAP_SYS_ADMIN did not come along".to_owned());
    }
    // No other process may trace it, and it dumps no core.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(refused("core dumps"))?;
    // The socket, the cgroups of a question, and the program that is looked at.
    let most = u64::try_from(MOST_CGROUPS).unwrap_or(0) + 8;
    for (resource, most) in [(Resource::Nofile, most), (Resource::Core, 0), (Resource::Fsize, 0)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::setrlimit(resource, limit).map_err(refused("limits"))?;
    }
    let landlock = forbid_files().map_err(|error| format!("Landlock: {error}"))?;
    let filter = system_calls().map_err(|error| format!("system call filter: {error}"))?;
    seccompiler::apply_filter(&filter).map_err(|error| format!("system call filter: {error}"))?;
    Ok(landlock)
}

/// The socket is standard input.
fn close_all_but_the_socket() {
    let (first, last, no_flags) = (1_u32, u32::MAX, 0_u32);
    // SAFETY: plain numbers. Nothing in this process owns a descriptor yet but the socket: it began with this.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, no_flags) } == 0 {
        return;
    }
    // Before Linux 5.9.
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20);
    for descriptor in 1..i32::try_from(limit).unwrap_or(1024) {
        // SAFETY: as above; what is not open is not closed.
        unsafe { libc::close(descriptor) };
    }
}

/// Forbids every access to files, reading too, to ports, and to processes outside (Landlock, Linux 5.13; ports 6.7, signals
/// and sockets of others 6.12).
fn forbid_files() -> Result<bool, RulesetError> {
    let nothing: [Result<PathBeneath<PathFd>, RulesetError>; 0] = [];
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .handle_access(AccessNet::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V9))?
        .create()?
        .add_rules(nothing)?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Other calls fail with EPERM: another libc may try some that it can do without.
fn system_calls() -> Result<BpfProgram, seccompiler::BackendError> {
    let when = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let number = |argument: &libc::c_int| u64::try_from(*argument).unwrap_or(u64::MAX);
    let always = [
        // Questions and answers.
        libc::SYS_recvmsg,
        libc::SYS_sendto,
        libc::SYS_close,
        libc::SYS_fstatfs,
        // Memory.
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_getrandom,
        // Waiting, and the end.
        libc::SYS_futex,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = always.iter().map(|call| (*call, Vec::new())).collect();
    let looks = COMMANDS.iter().map(|command| when(0, SeccompCmpOp::Eq, *command));
    rules.insert(libc::SYS_bpf, looks.collect::<Result<_, _>>()?);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let executable = SeccompCmpOp::MaskedEq(number(&libc::PROT_EXEC));
        rules.insert(call, vec![when(2, executable, 0)?]);
    }
    // Debug builds of the standard library ask before they close.
    rules.insert(libc::SYS_fcntl, vec![when(1, SeccompCmpOp::Eq, number(&libc::F_GETFD))?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)?.try_into()
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

    #[test]
    fn no_file_can_be_opened_where_the_kernel_has_landlock() {
        let (landlock, opened) = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            (forbid_files().unwrap(), std::fs::File::open("/proc/self/status"))
        })
        .join()
        .unwrap();
        assert_eq!(opened.is_err(), landlock);
    }
}
