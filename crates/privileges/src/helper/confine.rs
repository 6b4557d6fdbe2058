//! What a helper drops before it reads the first question.

#![allow(unsafe_code, reason = "signals and ranges of descriptors have no safe interface")]

use std::collections::BTreeMap;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
};

use super::Kind;
use crate::system_calls::compile;
use crate::{User, become_user, drop_capabilities, forbid_dumps};

/// What a helper keeps.
#[derive(Debug)]
pub struct Confinement {
    /// Descriptors beside its socket, at most.
    pub descriptors: u64,
    /// Whether it writes, the kernel's files alone.
    pub writes: bool,
    /// A directory below which it may do some things, if it may do any with files.
    pub tree: Option<(std::path::PathBuf, BitFlags<AccessFs>)>,
    /// The system calls that are left.
    pub system_calls: fn() -> Result<BpfProgram, BackendError>,
}

/// Confines this process for good: it becomes `user`, keeps the capabilities of its kind, one descriptor, memory, and the system
/// calls of its filter. True where the kernel has Landlock; anything else that cannot be done is an error, and then nothing is
/// served.
pub fn confine(kind: &Kind, user: Option<&User>, to: Confinement) -> Result<bool, String> {
    // A signal to the service is a signal to all its processes: SIGHUP has the exporter read its configuration again,
    // and after SIGTERM it still answers open requests. The helper ends when the exporter does.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal runs no code of this process.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let _ = rustix::thread::set_name(kind.word);
    close_all_but_the_socket();
    let dropped = match user {
        Some(user) => become_user(user, kind.kept).map_err(|error| error.to_string())?,
        None => drop_capabilities(kind.kept).map_err(|error| format!("giving up capabilities: {error}"))?,
    };
    let missing = kind.required - dropped.kept;
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        return Err(format!("{} did not come along", names.join(", ")));
    }
    let refused = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    forbid_dumps().map_err(refused("core dumps"))?;
    let longest = if to.writes { 4096 } else { 0 };
    for (resource, most) in [(Resource::Nofile, to.descriptors + 1), (Resource::Fsize, longest)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(resource, limit).map_err(refused("limits"))?;
    }
    let landlock = forbid_files(to.tree).map_err(|error| format!("Landlock: {error}"))?;
    let filter = (to.system_calls)().map_err(|error| format!("system call filter: {error}"))?;
    seccompiler::apply_filter(&filter).map_err(|error| format!("system call filter: {error}"))?;
    Ok(landlock)
}

/// A filter for what answers on its socket and needs memory, with these calls and rules beside that. Other calls fail with
/// EPERM: another libc may try some that it can do without.
pub fn small_filter(
    more: &[libc::c_long],
    ruled: Vec<(libc::c_long, Vec<SeccompRule>)>,
) -> Result<BpfProgram, BackendError> {
    let when = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let number = |argument: libc::c_int| u64::from(argument.unsigned_abs());
    let always = [
        // Answers.
        libc::SYS_sendto,
        libc::SYS_close,
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
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        always.iter().chain(more).map(|call| (*call, Vec::new())).collect();
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![when(2, SeccompCmpOp::MaskedEq(number(libc::PROT_EXEC)), 0)?]);
    }
    // Debug builds of the standard library ask before they close.
    rules.insert(libc::SYS_fcntl, vec![when(1, SeccompCmpOp::Eq, number(libc::F_GETFD))?]);
    rules.extend(ruled);
    compile(rules, SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow)
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

/// Forbids every access to files but those of a tree, reading too, to ports, and to processes outside (Landlock, Linux 5.13;
/// ports 6.7, signals and sockets of others 6.12).
fn forbid_files(tree: Option<(std::path::PathBuf, BitFlags<AccessFs>)>) -> Result<bool, RulesetError> {
    let left = tree.and_then(|(path, access)| Some(PathBeneath::new(PathFd::new(path).ok()?, access)));
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V9))?
        .handle_access(AccessNet::from_all(ABI::V9))?
        .scope(Scope::from_all(ABI::V9))?
        .create()?
        .add_rules(left.into_iter().map(Ok::<_, RulesetError>))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::apart;

    #[test]
    fn no_file_can_be_opened_where_the_kernel_has_landlock_but_those_of_its_tree() {
        let (landlock, opened) = apart(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            (forbid_files(None).unwrap(), std::fs::File::open("/proc/self/status"))
        });
        assert_eq!(opened.is_err(), landlock);
        let (landlock, inside, outside) = apart(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            let tree = Some(("/proc/self".into(), AccessFs::ReadFile.into()));
            let open = |file| std::fs::File::open(file).is_ok();
            (forbid_files(tree).unwrap(), open("/proc/self/status"), open("/proc/stat"))
        });
        assert!(inside);
        assert_eq!(outside, !landlock);
    }
}
