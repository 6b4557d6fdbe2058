//! Dropping what a process does not need: capabilities, the way back to them, and writing to files; and keeping what it
//! opened before.
//!
//! Capabilities and Landlock are per thread: call this before any thread is started.
//!
//! ```no_run
//! use rustix::thread::CapabilitySet;
//!
//! let dropped = privileges::drop_capabilities(CapabilitySet::PERFMON)?;
//! println!("kept {:?}", dropped.kept);
//! # Ok::<(), rustix::io::Errno>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

use std::path::PathBuf;
use std::sync::Arc;

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};
use parking_lot::Mutex;
use rustix::thread::{CapabilitySet, CapabilitySets};

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
    rustix::thread::set_no_new_privs(true)?;
    let held = rustix::thread::capabilities(None)?;
    let kept = held.permitted & needed;
    for capability in CapabilitySet::all().iter().filter(|c| !kept.contains(*c)) {
        // EPERM without CAP_SETPCAP: then there is nothing in the permitted set that matters either.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(Dropped { kept, changed: held.permitted != kept })
}

/// Forbids this process to write, create, remove or execute anything in the file system (Landlock, Linux 5.13).
/// Exceptions: writing to the devices `but`, or to those below where one is a directory; writing, creating and
/// removing directories below `trees`. Reading is not restricted: the sources are spread over procfs and sysfs, and
/// certificates lie where admins put them. False when the kernel has no Landlock.
pub fn forbid_writing(but: &[PathBuf], trees: &[PathBuf]) -> Result<bool, landlock::RulesetError> {
    let access = AccessFs::from_write(ABI::V1) | AccessFs::Execute;
    // One that is gone meanwhile needs no leave.
    let leave = |paths: &[PathBuf], access| -> Vec<_> {
        let there = paths.iter().filter_map(|path| PathFd::new(path).ok());
        there.map(|path| Ok::<_, landlock::RulesetError>(PathBeneath::new(path, access))).collect()
    };
    let devices = leave(but, AccessFs::WriteFile.into());
    let trees = leave(trees, AccessFs::WriteFile | AccessFs::MakeDir | AccessFs::RemoveDir);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(access)?
        .create()?
        .add_rules(devices.into_iter().chain(trees))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, since both are for good.
    fn apart<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(f).join().unwrap()
    }

    #[test]
    fn nothing_can_be_written_once_that_is_forbidden_but_everything_read() {
        let file = std::env::temp_dir().join(format!("jobledger-landlock-{}", std::process::id()));
        std::fs::write(&file, "before").unwrap();
        let path = file.clone();
        let (forbidden, written, read) = apart(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let forbidden = forbid_writing(&[], &[]).unwrap();
            (forbidden, std::fs::write(&path, "after"), std::fs::read_to_string(&path).unwrap())
        });
        std::fs::remove_file(&file).unwrap();
        if forbidden {
            assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
            assert_eq!(read, "before");
        } else {
            assert!(written.is_ok(), "this kernel has no Landlock");
        }
    }

    /// The driver of a GPU is asked through nodes that are opened for writing.
    #[test]
    fn a_device_that_is_named_can_be_written_and_another_cannot() {
        let dir = std::env::temp_dir().join(format!("jobledger-landlock-devices-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("caps")).unwrap();
        for file in ["ctl", "other", "caps/cap1"] {
            std::fs::write(dir.join(file), "").unwrap();
        }
        let at = dir.clone();
        let opened = apart(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let forbidden = forbid_writing(&[at.join("ctl"), at.join("caps"), at.join("gone")], &[]).unwrap();
            let open =
                |file: &str| std::fs::OpenOptions::new().read(true).write(true).open(at.join(file)).is_ok();
            forbidden.then(|| [open("ctl"), open("caps/cap1"), open("other")])
        });
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            opened.unwrap_or([true, true, false]),
            [true, true, false],
            "or this kernel has no Landlock"
        );
    }

    /// resctrl's groups are directories that the kernel fills.
    #[test]
    fn below_a_tree_that_is_named_directories_are_made_and_removed() {
        let dir = std::env::temp_dir().join(format!("jobledger-landlock-trees-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("resctrl/mon_groups")).unwrap();
        std::fs::write(dir.join("resctrl/tasks"), "").unwrap();
        let at = dir.clone();
        let done = apart(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let forbidden = forbid_writing(&[], &[at.join("resctrl")]).unwrap();
            let group = at.join("resctrl/mon_groups/x");
            forbidden.then(|| {
                [
                    std::fs::create_dir(&group).is_ok(),
                    std::fs::OpenOptions::new().write(true).open(at.join("resctrl/tasks")).is_ok(),
                    std::fs::remove_dir(&group).is_ok(),
                    std::fs::write(at.join("resctrl/new"), "").is_ok(),
                    std::fs::create_dir(at.join("other")).is_ok(),
                ]
            })
        });
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(
            done.unwrap_or([true, true, true, false, false]),
            [true, true, true, false, false],
            "or this kernel has no Landlock"
        );
    }

    #[test]
    fn capabilities_are_gone_for_good_but_those_that_are_needed() {
        if !rustix::process::geteuid().is_root() {
            return;
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
}
