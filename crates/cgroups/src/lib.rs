//! One job's cgroup, v1 and v2 behind one type.
//!
//! On v2 every controller's files lie in one directory; on v1 a job has one directory per mounted hierarchy,
//! and a site may have only some of them (the freezer alone is enough for SLURM).
//!
//! ```no_run
//! use std::path::Path;
//! use cgroups::Cgroup;
//! use kernel_files::{Buffer, Dir};
//!
//! let dir = Dir::open(Path::new("/sys/fs/cgroup/system.slice"))?;
//! let stat = Cgroup::v2(dir);
//! println!("{} directory", stat.dirs().count());
//! # let _ = Buffer::default();
//! # Ok::<(), kernel_files::ReadError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests lay out and read their own files"))]

use std::cell::Cell;
use std::fmt::Write;

use kernel_files::parse::fields;
use kernel_files::{Buffer, Dir, ReadError, Stat};

/// v1 controllers that SLURM or a reader of it cares for. On v2 they say which part of the one directory is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Controller {
    /// CPU bandwidth (`cpu.stat` with throttling).
    Cpu,
    /// CPU time.
    Cpuacct,
    /// CPUs and memory nodes.
    Cpuset,
    /// Memory.
    Memory,
    /// SLURM's process tracking.
    Freezer,
    /// Device access.
    Devices,
    /// Block I/O (`blkio` on v1).
    Io,
    /// Number of tasks.
    Pids,
    /// Hardware counters.
    PerfEvent,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Cpuacct,
        Self::Cpuset,
        Self::Memory,
        Self::Freezer,
        Self::Devices,
        Self::Io,
        Self::Pids,
        Self::PerfEvent,
    ];

    /// From its name in a v1 mount point (`cpu,cpuacct` holds two).
    pub fn from_v1_name(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "cpuacct" => Self::Cpuacct,
            "cpuset" => Self::Cpuset,
            "memory" => Self::Memory,
            "freezer" => Self::Freezer,
            "devices" => Self::Devices,
            "blkio" => Self::Io,
            "pids" => Self::Pids,
            "perf_event" => Self::PerfEvent,
            _ => return None,
        })
    }

    /// The name in `cgroup.controllers` of the controllers whose files exist only with them. Others have files in
    /// every v2 cgroup (`cpu.stat`, `cpu.pressure`), or in none.
    fn v2_name(self) -> Option<&'static [u8]> {
        match self {
            Self::Cpuset => Some(b"cpuset"),
            Self::Memory => Some(b"memory"),
            Self::Io => Some(b"io"),
            Self::Pids => Some(b"pids"),
            Self::Cpu | Self::Cpuacct | Self::Freezer | Self::Devices | Self::PerfEvent => None,
        }
    }
}

/// Version of the cgroup interface that SLURM uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// The directories of one cgroup, held open.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    /// v2: one directory for all controllers. v1: one per hierarchy, with the controllers mounted there.
    dirs: Vec<(Vec<Controller>, Dir)>,
}

impl Cgroup {
    /// A v2 cgroup.
    pub fn v2(dir: Dir) -> Self {
        Self { version: Version::V2, dirs: vec![(Controller::ALL.to_vec(), dir)] }
    }

    /// A v1 cgroup; directories of later hierarchies may be added as they appear.
    pub fn v1(dirs: Vec<(Vec<Controller>, Dir)>) -> Self {
        Self { version: Version::V1, dirs }
    }

    /// A cgroup that is gone, of which nothing but the interface is known.
    pub fn gone(version: Version) -> Self {
        Self { version, dirs: Vec::new() }
    }

    /// A removed cgroup: no directory is held open for it.
    pub fn closed(&self) -> Self {
        Self { version: self.version, dirs: Vec::new() }
    }

    /// The cgroup at a path below this one, in every hierarchy that has it; `Gone` when none does.
    pub fn open_below(&self, path: &str) -> Result<Self, ReadError> {
        let mut dirs = Vec::with_capacity(self.dirs.len());
        for (controllers, dir) in &self.dirs {
            match dir.open_dir(path) {
                Ok(dir) => dirs.push((controllers.clone(), dir)),
                Err(ReadError::Gone) => {}
                // No descriptors left, above all: what cannot be opened is not therefore gone.
                Err(error) => return Err(error),
            }
        }
        if dirs.is_empty() { Err(ReadError::Gone) } else { Ok(Self { version: self.version, dirs }) }
    }

    /// This v2 cgroup with the controllers that it has now.
    pub fn reopened(&self, buffer: &mut Buffer) -> Option<Self> {
        let dir = self.dirs().next()?.open_dir(".").ok()?;
        Some(Self::v2(dir).without_absent_controllers(buffer))
    }

    /// Leaves out the controllers that `cgroup.controllers` of a v2 cgroup does not list: without this, each scrape
    /// would try to open their files.
    pub fn without_absent_controllers(mut self, buffer: &mut Buffer) -> Self {
        if self.version == Version::V2
            && let Some((controllers, dir)) = self.dirs.first_mut()
            && let Ok(listed) = dir.read_record("cgroup.controllers", buffer)
        {
            let has = |name: &[u8]| fields(listed).any(|listed| listed == name);
            controllers.retain(|controller| controller.v2_name().is_none_or(has));
        }
        self
    }

    /// Which interface this is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory where a controller's files are.
    pub fn dir(&self, controller: Controller) -> Option<&Dir> {
        self.dirs().nth(self.position(controller)?)
    }

    /// Which of its directories that is.
    pub fn position(&self, controller: Controller) -> Option<usize> {
        self.dirs.iter().position(|(controllers, _)| controllers.contains(&controller))
    }

    /// One directory per hierarchy.
    pub fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.dirs.iter().map(|(_, dir)| dir)
    }

    /// Whether no directory of it is left. Every live cgroup has `cgroup.procs`.
    pub fn is_gone(&self) -> bool {
        self.dirs().all(|dir| !dir.has("cgroup.procs"))
    }

    /// This cgroup itself.
    pub fn view(&self) -> View<'_> {
        View { cgroup: self, below: Below { len: 0, bytes: [0; 96] }, missing: Cell::new(0) }
    }
}

/// A path below the job's directory, without a leading slash. Longer ones than SLURM makes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Below {
    len: u8,
    bytes: [u8; 96],
}

impl Write for Below {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let start = usize::from(self.len);
        let end = start + s.len();
        let slot = self.bytes.get_mut(start..end).ok_or(std::fmt::Error)?;
        slot.copy_from_slice(s.as_bytes());
        self.len = u8::try_from(end).map_err(|_| std::fmt::Error)?;
        Ok(())
    }
}

impl Below {
    fn as_str(&self) -> &str {
        self.bytes.get(..usize::from(self.len)).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or_default()
    }
}

/// A job's cgroup or one below it (a step, a task), read through the job's open directories.
#[derive(Debug, Clone)]
pub struct View<'a> {
    cgroup: &'a Cgroup,
    below: Below,
    missing: Cell<u32>,
}

impl<'a> View<'a> {
    /// The cgroup at a path below this one; `None` when the path is too long for a SLURM name.
    pub fn below(&self, path: std::fmt::Arguments<'_>) -> Option<Self> {
        let mut below = self.below;
        if below.len > 0 {
            below.write_str("/").ok()?;
        }
        below.write_fmt(path).ok()?;
        Some(Self { cgroup: self.cgroup, below, missing: Cell::new(0) })
    }

    /// Which interface this is.
    pub fn version(&self) -> Version {
        self.cgroup.version
    }

    /// Whether files of a controller can be here at all.
    pub fn has(&self, controller: Controller) -> bool {
        self.cgroup.dir(controller).is_some()
    }

    fn path(&self, file: &str) -> Result<Below, ReadError> {
        let mut path = self.below;
        let joined = if path.len > 0 { path.write_str("/") } else { Ok(()) };
        joined.and_then(|()| path.write_str(file)).map_err(|_| ReadError::Gone)?;
        Ok(path)
    }

    /// Reads a one-record file of a controller; `None` when the file is not there, which on a live cgroup means
    /// that the kernel is too old or the controller is off.
    pub fn read<'b>(
        &self,
        controller: Controller,
        file: &str,
        buffer: &'b mut Buffer,
    ) -> Result<Option<&'b [u8]>, ReadError> {
        let Some(dir) = self.cgroup.dir(controller) else { return Ok(None) };
        self.absent_if_gone(dir.read_record(self.path(file)?.as_str(), buffer))
    }

    /// Reads a list (`cgroup.procs`, `tasks`) to its end, from the first hierarchy that has it.
    pub fn read_list<'b>(&self, file: &str, buffer: &'b mut Buffer) -> Result<Option<&'b [u8]>, ReadError> {
        let path = self.path(file)?;
        let mut dirs = self.cgroup.dirs();
        let dir = match (dirs.next(), self.cgroup.version) {
            (Some(dir), Version::V2) => dir,
            (first, _) => match first.into_iter().chain(dirs).find(|dir| dir.has(path.as_str())) {
                Some(dir) => dir,
                None => return Ok(None),
            },
        };
        self.absent_if_gone(dir.read_list(path.as_str(), buffer))
    }

    /// Reads a list to its end, from the hierarchy of a controller.
    pub fn read_list_of<'b>(
        &self,
        controller: Controller,
        file: &str,
        buffer: &'b mut Buffer,
    ) -> Result<Option<&'b [u8]>, ReadError> {
        let Some(dir) = self.cgroup.dir(controller) else { return Ok(None) };
        self.absent_if_gone(dir.read_list(self.path(file)?.as_str(), buffer))
    }

    fn absent_if_gone<'b>(&self, result: Result<&'b [u8], ReadError>) -> Result<Option<&'b [u8]>, ReadError> {
        match result {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::Gone) => {
                self.missing.set(self.missing.get() + 1);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The directory of a controller itself, of the cgroup that is at the top of this view.
    pub fn stat(&self, controller: Controller) -> Option<Stat> {
        self.cgroup.dir(controller)?.stat().ok()
    }

    /// How many files were requested and missing. A file that is missing in a live cgroup is missing every time, so a
    /// changed number is a hint that the cgroup was removed during the reading.
    pub fn missing(&self) -> u32 {
        self.missing.get()
    }

    /// Whether the cgroup is gone from every hierarchy.
    pub fn is_gone(&self) -> bool {
        match self.path("cgroup.procs") {
            Ok(path) => self.cgroup.dirs().all(|dir| !dir.has(path.as_str())),
            Err(_) => true,
        }
    }
}
