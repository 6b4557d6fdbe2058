//! Where the kernel's file systems are: the only place that joins a path below them.

use std::path::{Path, PathBuf};

use crate::Held;

/// Mount points of the kernel file systems, changed by `--path.*` for fixtures, containers and the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    procfs: PathBuf,
    sysfs: PathBuf,
    cgroupfs: PathBuf,
    dev: PathBuf,
    held: Held,
}

impl Default for Roots {
    fn default() -> Self {
        Self::new("/proc", "/sys", "/sys/fs/cgroup", "/dev")
    }
}

impl Roots {
    /// Roots at the given mount points.
    pub fn new(
        procfs: impl Into<PathBuf>,
        sysfs: impl Into<PathBuf>,
        cgroupfs: impl Into<PathBuf>,
        dev: impl Into<PathBuf>,
    ) -> Self {
        Self {
            procfs: procfs.into(),
            sysfs: sysfs.into(),
            cgroupfs: cgroupfs.into(),
            dev: dev.into(),
            held: Held::default(),
        }
    }

    /// The same roots, with what was opened there while the process had the privileges for it.
    #[must_use]
    pub fn holding(self, held: Held) -> Self {
        Self { held, ..self }
    }

    /// What is held open there.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// A path below procfs, `""` for its root.
    pub fn proc(&self, relative: &str) -> PathBuf {
        self.procfs.join(relative)
    }

    /// A path below sysfs.
    pub fn sys(&self, relative: &str) -> PathBuf {
        self.sysfs.join(relative)
    }

    /// A path below the cgroup mount point.
    pub fn cgroup(&self, relative: &str) -> PathBuf {
        self.cgroupfs.join(relative)
    }

    /// A path below the device directory.
    pub fn dev(&self, relative: &str) -> PathBuf {
        self.dev.join(relative)
    }

    /// Every root, for sandbox rules.
    pub fn all(&self) -> [&Path; 4] {
        [&self.procfs, &self.sysfs, &self.cgroupfs, &self.dev]
    }
}
