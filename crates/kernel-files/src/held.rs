//! Files and directories that were opened while the process had the privileges for it, and are read when it has not.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::{Dir, ReadError};

/// What is held, by the name that [`NodeFiles`](crate::NodeFiles) takes (`sys/class/powercap/intel-rapl:0/energy_uj`). Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct Held(Arc<BTreeMap<String, OwnedFd>>);

/// Two are the same if they share what they hold.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.is_empty() && other.0.is_empty())
    }
}

impl Eq for Held {}

impl Held {
    /// Opens what of `names` is there and may be opened; a name in `names` is one for `NodeFiles`, with its path.
    pub fn open(names: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let open = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
            rustix::fs::open(path, flags, Mode::empty()).ok()
        };
        Self(Arc::new(names.into_iter().filter_map(|(name, path)| Some((name, open(&path)?))).collect()))
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn file(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.0.get(name).map(AsFd::as_fd)
    }

    /// A directory in or below one that is held.
    pub(crate) fn directory(&self, name: &str) -> Option<Result<Dir, ReadError>> {
        let below = |held: &str| name.strip_prefix(held)?.strip_prefix('/');
        self.0.iter().find_map(|(held, fd)| {
            let relative = if held == name { "." } else { below(held)? };
            Some(Dir::open_at(fd.as_fd(), relative))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{NodeFiles, Roots};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Root without the capability to pass over modes, on a thread of its own.
    fn without_override<T: Send>(f: impl FnOnce() -> T + Send) -> T {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let weaken = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
        };
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                weaken();
                f()
            });
            work.join().unwrap()
        })
    }

    #[test]
    fn what_is_held_is_read_where_its_path_is_denied_and_again_from_its_start() {
        let base = std::env::temp_dir().join(format!("jobledger-held-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir_all(base.join("sys/debug/lustre/llite/mount")).unwrap();
        let at = |file: &str| base.join("sys").join(file);
        for (file, text) in [("energy", "1\n"), ("other", "2\n"), ("debug/lustre/llite/mount/stats", "3\n")] {
            std::fs::write(at(file), text).unwrap();
        }
        let names = ["energy", "debug/lustre", "not-there"].map(|name| (format!("sys/{name}"), at(name)));
        let held = Held::open(names);
        assert_eq!(held.names().collect::<Vec<_>>(), ["sys/debug/lustre", "sys/energy"]);
        let roots = Roots::new(base.join("proc"), base.join("sys"), base.join("cgroup"), base.join("dev"));
        let mut without = NodeFiles::new(&Arc::new(roots.clone()));
        let mut files = NodeFiles::new(&Arc::new(roots.holding(held)));
        for file in ["energy", "other", "debug"] {
            mode(&at(file), 0o000);
        }
        without_override(|| {
            for text in ["1\n", "11\n", "4\n"] {
                // The kernel's file has another content each time.
                let path = at("energy");
                mode(&path, 0o600);
                std::fs::write(&path, text).unwrap();
                mode(&path, 0o000);
                assert_eq!(files.read("sys/energy"), Ok(text.as_bytes()));
                assert_eq!(files.read_long("sys/energy", 1 << 20), Ok((text.as_bytes(), true)));
                assert_eq!(without.read("sys/energy"), Err(ReadError::Denied));
            }
            assert_eq!(files.read("sys/other"), Err(ReadError::Denied), "not held");
            let mut buffer = crate::Buffer::default();
            for (directory, below) in
                [("", "llite/mount/stats"), ("/llite", "mount/stats"), ("/llite/mount", "stats")]
            {
                let dir = files.open(&format!("sys/debug/lustre{directory}")).unwrap();
                assert_eq!(dir.read(below, &mut buffer), Ok(&b"3\n"[..]));
                assert_eq!(dir.list().unwrap().len(), 1);
            }
            assert_eq!(files.open("sys/debug/lustre/none").map(drop), Err(ReadError::Gone));
            assert_eq!(files.open("sys/debug/lustreless").map(drop), Err(ReadError::Denied));
            assert_eq!(without.open("sys/debug/lustre").map(drop), Err(ReadError::Denied));
        });
        mode(&at("debug"), 0o700);
        // What can be opened is opened: the path may be another file by now.
        std::fs::remove_file(at("energy")).unwrap();
        assert_eq!(files.read("sys/energy"), Err(ReadError::Gone));
        std::fs::write(at("energy"), "5\n").unwrap();
        assert_eq!(files.read("sys/energy"), Ok(&b"5\n"[..]));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
