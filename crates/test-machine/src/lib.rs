//! A scratch machine for unit tests: ordinary directories that look like procfs, sysfs, cgroupfs and devtmpfs.
//!
//! ```
//! let machine = test_machine::Machine::new();
//! machine.write("proc/loadavg", "0.00 0.01 0.05 1/100 4242\n");
//! assert!(machine.roots().proc("loadavg").exists());
//! ```
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "only tests use it: what fails here fails them"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use cgroups::{Cgroup, Controller};
use kernel_files::{Dir, Roots};

/// A scratch directory with `cgroup`, `proc`, `sys` and `dev`, removed at the end.
pub struct Machine {
    /// The scratch directory.
    pub path: PathBuf,
}

impl Machine {
    /// An empty one.
    #[expect(clippy::new_without_default, reason = "a default that makes directories would surprise")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("jobledger-unit-{}-{number}", std::process::id()));
        for dir in ["cgroup", "proc", "sys", "dev"] {
            std::fs::create_dir_all(path.join(dir)).unwrap();
        }
        Self { path }
    }

    /// Writes a file, its directories included: `cgroup/job_1/cpu.stat`. A cgroup is alive: it has `cgroup.procs`.
    pub fn write(&self, file: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let below = |dir: &&Path| dir.starts_with(self.path.join("cgroup"));
        for dir in path.ancestors().skip(1).take_while(below).filter(|d| !d.join("cgroup.procs").exists()) {
            std::fs::write(dir.join("cgroup.procs"), "").unwrap();
        }
        std::fs::write(path, content).unwrap();
        self
    }

    /// Removes a file or a directory.
    pub fn remove(&self, path: &str) -> &Self {
        let path = self.path.join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        self
    }

    /// Its directories as mount points.
    pub fn roots(&self) -> Roots {
        let at = |dir: &str| self.path.join(dir);
        Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev"))
    }

    /// A v2 cgroup at `cgroup/<path>`.
    pub fn v2(&self, path: &str) -> Cgroup {
        Cgroup::v2(Dir::open(&self.path.join("cgroup").join(path)).unwrap())
    }

    /// A v1 cgroup: hierarchies by their names, as in `("cpu,cpuacct", "slurm/uid_0/job_1")`.
    pub fn v1(&self, dirs: &[(&str, &str)]) -> Cgroup {
        let open = |(hierarchy, path): &(&str, &str)| {
            let controllers = hierarchy.split(',').filter_map(Controller::from_v1_name).collect();
            (controllers, Dir::open(&self.path.join("cgroup").join(hierarchy).join(path)).unwrap())
        };
        Cgroup::v1(dirs.iter().map(open).collect())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Path::new(&self.path));
    }
}
