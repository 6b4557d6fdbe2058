//! Dropping what a process does not need: root, capabilities, the way back to them, writing to files, and most system calls;
//! and keeping what it opened before.
//!
//! Users, capabilities, Landlock and seccomp are per thread: call this before any thread is started.
//!
//! ```no_run
//! use rustix::thread::CapabilitySet;
//!
//! let dropped = privileges::drop_capabilities(CapabilitySet::PERFMON)?;
//! println!("kept {:?}", dropped.kept);
//! # Ok::<(), rustix::io::Errno>(())
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

pub mod helper;
mod sandbox;
mod system_calls;
mod user;

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
pub use sandbox::{Leave, forbid_writing};
pub use system_calls::{Extra, FilterError, restrict_system_calls};
pub use user::{UnknownUser, User};

/// What was opened or started before privileges were dropped, for the one that takes it. Clones share the value.
pub struct TakenOnce<T>(Arc<Mutex<Option<T>>>);

impl<T> TakenOnce<T> {
    /// Holds the value until it is taken.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(Some(value))))
    }

    /// Takes the value: `None` where there was none, and after the first call.
    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
}

impl<T> Default for TakenOnce<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for TakenOnce<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for TakenOnce<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TakenOnce").field(&self.0.lock().is_some()).finish()
    }
}

/// The result, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Capabilities that are left.
    pub kept: CapabilitySet,
    /// Whether any was dropped.
    pub changed: bool,
}

/// Whether the process holds a capability.
pub fn holds(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Keeps only `needed` of the capabilities that the process holds, for good: the bounding and ambient sets are
/// emptied too, and no execve can bring anything back (`no_new_privs`).
pub fn drop_capabilities(needed: CapabilitySet) -> rustix::io::Result<Dropped> {
    drop_all_but(needed, None).map_err(|(DropError::Capabilities(errno) | DropError::User(errno))| errno)
}

/// Why not all was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropError {
    /// It is the user that it was, with all capabilities. That takes CAP_SETUID and CAP_SETGID, and a user namespace that
    /// has these ids.
    #[error("cannot become this user: {0}")]
    User(rustix::io::Errno),
    /// Capabilities.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(rustix::io::Errno),
}

/// As [`drop_capabilities`], and becomes a user, for good. Supplementary groups become this user's too.
pub fn become_user(user: &User, needed: CapabilitySet) -> Result<Dropped, DropError> {
    drop_all_but(needed, Some(user))
}

fn drop_all_but(needed: CapabilitySet, user: Option<&User>) -> Result<Dropped, DropError> {
    let failed = DropError::Capabilities;
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    let held = rustix::thread::capabilities(None).map_err(failed)?;
    let kept = held.permitted & needed;
    if let Some(user) = user {
        user.become_it().map_err(DropError::User)?;
        // Another uid than 0 has no effective capability until it asks, and emptying the bounding set takes one.
        let all = CapabilitySets { effective: held.permitted, ..held };
        rustix::thread::set_capabilities(None, all).map_err(failed)?;
    }
    for capability in CapabilitySet::all().iter().filter(|c| !kept.contains(*c)) {
        // EPERM without CAP_SETPCAP: then there is nothing in the permitted set that matters either.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set().map_err(failed)?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    Ok(Dropped { kept, changed: held.permitted != kept })
}

/// No core is dumped of this process, nobody but root traces it, and its files in procfs are root's: what it holds in memory,
/// keys among it, remains its own (prctl(2), `PR_SET_DUMPABLE`). Becoming another user undoes this.
pub fn forbid_dumps() -> rustix::io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)?;
    read_auxiliary_vector();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// rustix reads the auxiliary vector once, when it is first asked, and before Linux 6.4 from `/proc/self/auxv`. That is root's
/// file once this process is not dumpable, as it is not when it becomes another user either.
fn read_auxiliary_vector() {
    let _ = rustix::param::page_size();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, since all of this is for good.
    pub(crate) fn apart<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(f).join().unwrap()
    }

    #[test]
    fn capabilities_are_gone_for_good_but_those_that_are_needed() {
        if !rustix::process::geteuid().is_root() {
            return jobledger_testkit::skip("root", "giving up capabilities");
        }
        let (dropped, holds_admin, holds_ptrace, new_privs) = apart(|| {
            let dropped = drop_capabilities(CapabilitySet::SYS_PTRACE).unwrap();
            let new_privs = rustix::thread::no_new_privs().unwrap();
            (dropped, holds(CapabilitySet::SYS_ADMIN), holds(CapabilitySet::SYS_PTRACE), new_privs)
        });
        assert!(dropped.changed);
        assert_eq!(dropped.kept, CapabilitySet::SYS_PTRACE);
        assert!(!holds_admin && holds_ptrace && new_privs);
    }

    /// What another user's thread may not do although it was root's: files, processes and sockets go by the uid.
    #[test]
    fn who_became_a_user_is_root_to_nobody() {
        use std::os::unix::net::{UnixListener, UnixStream};

        use rustix::io::Errno;
        use rustix::process::{Signal, kill_process, test_kill_process};

        if !rustix::process::geteuid().is_root() {
            return jobledger_testkit::skip("root", "becoming another user");
        }
        let secret = std::env::temp_dir().join(format!("jobledger-user-{}", std::process::id()));
        std::fs::write(&secret, "root's").unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let socket = secret.with_extension("socket");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        // A process of root's without any capability, which any uid 0 could signal.
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let paths = (secret.clone(), socket.clone());
        let user = User { name: None, uid: 65_534, gid: 65_533, groups: vec![44, 105] };
        let (dropped, status, read, signals, shadow, back, stream) = apart(move || {
            let dropped = become_user(&user, CapabilitySet::PERFMON);
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let read = std::fs::read(&paths.0).map_err(|error| error.kind());
            let signals = (kill_process(pid, Signal::TERM), test_kill_process(pid));
            let shadow = std::fs::read("/etc/shadow").map_err(|error| error.kind());
            let back = rustix::thread::set_thread_uid(rustix::process::Uid::ROOT);
            (dropped, status, read, signals, shadow, back, UnixStream::connect(&paths.1).unwrap())
        });
        let peer = rustix::net::sockopt::socket_peercred(listener.accept().unwrap().0).unwrap();
        drop(stream);
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&secret).unwrap();
        std::fs::remove_file(&socket).unwrap();
        let denied = std::io::ErrorKind::PermissionDenied;
        assert_eq!(dropped.unwrap().kept, CapabilitySet::PERFMON);
        assert_eq!((read, shadow), (Err(denied), Err(denied)));
        assert_eq!((signals, back), ((Err(Errno::PERM), Err(Errno::PERM)), Err(Errno::PERM)));
        assert_eq!((peer.uid.as_raw(), peer.gid.as_raw()), (65_534, 65_533), "what a socket's owner sees");
        let line = |key: &str| {
            status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().replace('\t', " ")
        };
        assert_eq!(
            (line("Uid:"), line("Gid:")),
            ("65534 ".repeat(4).trim().to_owned(), "65533 ".repeat(4).trim().to_owned())
        );
        assert_eq!(line("Groups:"), "44 105");
        let kept = format!("{:016x}", CapabilitySet::PERFMON.bits());
        for (set, expected) in [("CapPrm:", &kept), ("CapEff:", &kept), ("CapBnd:", &kept)] {
            assert_eq!(line(set), *expected, "{set}");
        }
        assert_eq!((line("CapInh:"), line("CapAmb:")), ("0".repeat(16), "0".repeat(16)));
    }

    /// As in a container that was given no CAP_SETUID: the caller decides what then.
    #[test]
    fn without_the_capability_to_change_users_nothing_changes() {
        if !rustix::process::geteuid().is_root() {
            return jobledger_testkit::skip("root", "becoming another user");
        }
        let (refused, uid, dropped) = apart(|| {
            let all = rustix::thread::capabilities(None).unwrap();
            let less = all.permitted - (CapabilitySet::SETUID | CapabilitySet::SETGID);
            rustix::thread::set_capabilities(
                None,
                CapabilitySets { effective: less, permitted: less, ..all },
            )
            .unwrap();
            let refused = become_user(&User::usual(b"", b""), CapabilitySet::empty());
            (refused, rustix::process::geteuid(), drop_capabilities(CapabilitySet::empty()).unwrap())
        });
        assert_eq!(refused, Err(DropError::User(rustix::io::Errno::PERM)));
        assert!(uid.is_root() && dropped.kept.is_empty());
    }
}
