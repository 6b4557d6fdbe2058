//! Which cgroup a directory is, as programs of the kernel see it.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, fstat, fstatfs, openat};

/// include/uapi/linux/magic.h, `CGROUP2_SUPER_MAGIC` and `CGROUP_SUPER_MAGIC`.
const CGROUP2: u64 = 0x6367_7270;
const CGROUP1: u64 = 0x0027_e0eb;

/// The root of the hierarchy (fs/kernfs/dir.c, `kernfs_create_root`: the first id).
const ROOT: u64 = 1;

/// The deepest cgroup that can be counted: SLURM's tasks are at 6.
pub(crate) const MOST_LEVELS: u32 = 16;

/// A cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cgroup {
    /// Its inode, which is its id (Linux 5.5).
    pub(crate) id: u64,
    /// How deep it is below the root, which is 0.
    pub(crate) level: u32,
}

/// The cgroup with this directory, of v2 if `unified`. `None` when it is not one of that version, when it is the root, or when its depth is not to be seen: the
/// hierarchy is mounted from further below (cgroup_namespaces(7)).
pub(crate) fn identify(unified: bool, directory: impl AsFd) -> Option<Cgroup> {
    let magic = if unified { CGROUP2 } else { CGROUP1 };
    if u64::try_from(fstatfs(&directory).ok()?.f_type).ok()? != magic {
        return None;
    }
    let below = fstat(&directory).ok()?;
    let (id, device) = (below.st_ino, below.st_dev);
    let mut at = None;
    for level in 0..MOST_LEVELS {
        let here = match &at {
            None => fstat(&directory),
            Some(at) => fstat(at),
        };
        let here = here.ok().filter(|here| here.st_dev == device)?;
        if here.st_ino == ROOT {
            return (level > 0).then_some(Cgroup { id, level });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let up = match &at {
            None => openat(&directory, "..", flags, Mode::empty()),
            Some(at) => openat(at, "..", flags, Mode::empty()),
        };
        at = Some(up.ok()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_cgroup_is_known_by_its_inode_and_its_depth() {
        assert_eq!(identify(true, File::open("/").unwrap()), None, "no cgroup");
        let Some(mount) = jobledger_testkit::cgroups::cgroup2_mount() else { return };
        assert_eq!(identify(true, File::open(&mount).unwrap()), None, "the root has everybody");
        let parent = mount.join(format!("jobledger-identify-{}", std::process::id()));
        let deep = parent.join("a/b");
        if fs::create_dir_all(&deep).is_err() {
            jobledger_testkit::skip("cgroup2", "no cgroups can be made");
            return;
        }
        let of = |path: &std::path::Path| identify(true, File::open(path).unwrap()).unwrap();
        let (one, three) = (of(&parent), of(&deep));
        for path in [&deep, &parent.join("a"), &parent] {
            fs::remove_dir(path).unwrap();
        }
        assert_eq!((one.level, three.level), (1, 3));
        assert_ne!(one.id, three.id);
    }
}
