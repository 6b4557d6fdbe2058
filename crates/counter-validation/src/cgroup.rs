//! A cgroup of this process's own, as SLURM makes one for a job.

use std::fs::File;
use std::path::{Path, PathBuf};

use kernel_files::{Dir, NodeFiles, Roots};
use rustix::fs::{AtFlags, Mode, OFlags, open};
use rustix::io::Errno;

/// A cgroup beneath the one that this process was in. Dropping it moves the process back and removes it.
#[derive(Debug)]
pub(crate) struct Own {
    before: PathBuf,
    path: PathBuf,
    directory: File,
}

/// The line of `/proc/self/cgroup` of the unified hierarchy (cgroups(7)): `0::/system.slice/x.service`.
fn unified(bytes: &[u8]) -> Option<&str> {
    bytes.split(|byte| *byte == b'\n').find_map(|line| std::str::from_utf8(line.strip_prefix(b"0::/")?).ok())
}

fn enter(cgroup: &Path) -> Result<(), Errno> {
    let procs = open(cgroup.join("cgroup.procs"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The writing process itself, with all of its threads (Documentation/admin-guide/cgroup-v2.rst).
    rustix::io::write(procs, b"0\n").map(drop)
}

impl Own {
    /// Makes it and enters it. An error says why this is not possible here.
    pub(crate) fn make(roots: &Roots, files: &mut NodeFiles) -> Result<Self, String> {
        let of_this =
            files.read_lines("proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let relative = unified(of_this).ok_or("there is no cgroup v2")?.to_owned();
        let mounts = [roots.cgroup(""), roots.cgroup("unified")];
        let is_unified = |mount: &&PathBuf| Dir::open(mount).is_ok_and(|dir| dir.has("cgroup.controllers"));
        let mount = mounts.iter().find(is_unified).ok_or("cgroup v2 is not mounted")?;
        let before = mount.join(relative);
        let path = before.join(format!("jobledger-validate-{}", rustix::process::getpid()));
        let failed = |what: &str, errno: Errno| format!("{what} {}: {errno}", path.display());
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).map_err(|errno| failed("making", errno))?;
        let directory = Dir::open(&path)
            .and_then(|dir| dir.readable())
            .map_err(|error| format!("{}: {error}", path.display()));
        let own = directory.map(|directory| Self { before, path: path.clone(), directory: directory.into() });
        let entered =
            own.and_then(|own| enter(&own.path).map(|()| own).map_err(|errno| failed("entering", errno)));
        if entered.is_err() {
            let _ = rustix::fs::unlinkat(rustix::fs::CWD, &path, AtFlags::REMOVEDIR);
        }
        entered
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> std::io::Result<File> {
        self.directory.try_clone()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Where this fails the cgroup is left behind, empty when the process has ended.
        let _ = enter(&self.before);
        let _ = rustix::fs::unlinkat(rustix::fs::CWD, &self.path, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_has_the_number_0() {
        let both = b"12:cpuset:/slurm\n1:name=systemd:/x\n0::/system.slice/sshd.service\n";
        assert_eq!(unified(both), Some("system.slice/sshd.service"));
        assert_eq!(unified(b"0::/\n"), Some(""));
        assert_eq!(unified(b"4:memory:/a\n"), None);
    }
}
