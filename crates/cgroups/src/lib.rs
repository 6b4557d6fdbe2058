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

pub mod cpu;
mod kept;
pub mod memory;

use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;

pub use kept::DescriptorBudget;
use kept::KeptFiles;
use kernel_files::parse::fields;
use kernel_files::{Buffer, Content, Dir, ReadError, Stat};

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

/// A directory of a cgroup, with the controllers whose files are in it.
#[derive(Debug)]
struct Directory {
    controllers: Vec<Controller>,
    dir: Dir,
    /// `None` where files are opened for each reading.
    kept: Option<KeptFiles>,
}

impl Directory {
    fn new((controllers, dir): (Vec<Controller>, Dir)) -> Self {
        Self { controllers, dir, kept: None }
    }

    /// Another directory of the same hierarchy.
    fn other(&self, dir: Dir) -> Self {
        let kept = self.kept.as_ref().map(KeptFiles::other);
        Self { controllers: self.controllers.clone(), dir, kept }
    }

    fn read<'b>(&self, path: &str, content: Content, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        match &self.kept {
            Some(kept) => kept.read(&self.dir, path, content, buffer),
            None => kept::read_once(&self.dir, path, content, buffer),
        }
    }
}

/// The directories of one cgroup, held open.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    /// v2: one directory for all controllers. v1: one per hierarchy, with the controllers mounted there.
    dirs: Vec<Directory>,
}

impl Cgroup {
    /// A v2 cgroup.
    pub fn v2(dir: Dir) -> Self {
        Self { version: Version::V2, dirs: vec![Directory::new((Controller::ALL.to_vec(), dir))] }
    }

    /// A v1 cgroup; directories of later hierarchies may be added as they appear.
    pub fn v1(dirs: Vec<(Vec<Controller>, Dir)>) -> Self {
        Self { version: Version::V1, dirs: dirs.into_iter().map(Directory::new).collect() }
    }

    /// This cgroup and those opened below it, with files that are read again and again held open, within the budget.
    /// Only the kernel's own files are: an ordinary file may be replaced under its name.
    pub fn keeping_files(mut self, budget: &Arc<DescriptorBudget>) -> Self {
        for directory in &mut self.dirs {
            directory.kept = directory.dir.is_cgroup().then(|| KeptFiles::new(budget.clone()));
        }
        self
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
        for directory in &self.dirs {
            match directory.dir.open_dir(path) {
                Ok(dir) => dirs.push(directory.other(dir)),
                Err(ReadError::Gone) => {}
                // No descriptors left, above all: what cannot be opened is not therefore gone.
                Err(error) => return Err(error),
            }
        }
        if dirs.is_empty() { Err(ReadError::Gone) } else { Ok(Self { version: self.version, dirs }) }
    }

    /// This v2 cgroup with the controllers that it has now.
    pub fn reopened(&self, buffer: &mut Buffer) -> Option<Self> {
        let known = self.dirs.first()?;
        let mut directory = known.other(known.dir.open_dir(".").ok()?);
        directory.controllers = Controller::ALL.to_vec();
        Some(Self { version: Version::V2, dirs: vec![directory] }.without_absent_controllers(buffer))
    }

    /// Leaves out the controllers that `cgroup.controllers` of a v2 cgroup does not list: without this, each scrape
    /// would try to open their files.
    pub fn without_absent_controllers(mut self, buffer: &mut Buffer) -> Self {
        if self.version == Version::V2
            && let Some(directory) = self.dirs.first_mut()
            && let Ok(listed) = directory.dir.read_record("cgroup.controllers", buffer)
        {
            let has = |name: &[u8]| fields(listed).any(|listed| listed == name);
            directory.controllers.retain(|controller| controller.v2_name().is_none_or(has));
        }
        self
    }

    /// Which interface this is.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory where a controller's files are.
    pub fn dir(&self, controller: Controller) -> Option<&Dir> {
        Some(&self.directory(controller)?.dir)
    }

    fn directory(&self, controller: Controller) -> Option<&Directory> {
        self.dirs.iter().find(|directory| directory.controllers.contains(&controller))
    }

    /// Which of its directories that is.
    pub fn position(&self, controller: Controller) -> Option<usize> {
        self.dirs.iter().position(|directory| directory.controllers.contains(&controller))
    }

    /// One directory per hierarchy.
    pub fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.dirs.iter().map(|directory| &directory.dir)
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
        let Some(directory) = self.cgroup.directory(controller) else { return Ok(None) };
        self.absent_if_gone(directory.read(self.path(file)?.as_str(), Content::Record, buffer))
    }

    /// Reads a list (`cgroup.procs`, `tasks`) to its end, from the first hierarchy that has it. Where files are kept, a
    /// list of v1 that was read less than a second ago may be that one again, up to two seconds old (kernel/cgroup/cgroup-v1.c,
    /// `CGROUP_PIDLIST_DESTROY_DELAY`).
    pub fn read_list<'b>(&self, file: &str, buffer: &'b mut Buffer) -> Result<Option<&'b [u8]>, ReadError> {
        let path = self.path(file)?;
        let directory = match (self.cgroup.dirs.as_slice(), self.cgroup.version) {
            ([only], _) | ([only, ..], Version::V2) => only,
            (several, _) => match several.iter().find(|directory| directory.dir.has(path.as_str())) {
                Some(directory) => directory,
                None => return Ok(None),
            },
        };
        self.absent_if_gone(directory.read(path.as_str(), Content::List, buffer))
    }

    /// Reads a list to its end, from the hierarchy of a controller.
    pub fn read_list_of<'b>(
        &self,
        controller: Controller,
        file: &str,
        buffer: &'b mut Buffer,
    ) -> Result<Option<&'b [u8]>, ReadError> {
        let Some(directory) = self.cgroup.directory(controller) else { return Ok(None) };
        self.absent_if_gone(directory.read(self.path(file)?.as_str(), Content::List, buffer))
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

    /// Opens its directory in the hierarchy of a controller.
    pub fn open(&self, controller: Controller) -> Result<Dir, ReadError> {
        self.cgroup.dir(controller).ok_or(ReadError::Gone)?.open_dir(self.below.as_str())
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
