//! The job that this process is in, read from its own cgroup, for nodes without the exporter.
//!
//! What it shows has the exporter's names and meanings: CPU time and CPUs, memory, pressure, I/O, GPUs, and the node's energy where users may
//! read it. Other jobs, the job's part of the energy, counters and network are the exporter's, which has the privileges for them. Sources: `/proc/PID/cgroup` (cgroups(7)), crates `cgroups` and `cpu-topology`,
//! `/proc/PID/stat` for the start. Needs no privilege.

mod energy;
mod gpus;
mod io;
pub mod place;

use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::cpu::{self, CpuStat};
use cgroups::memory::{parse_memory_events, parse_memory_stat, parse_memory_stat_v1};
use cgroups::{Cgroup, Controller, Version, View};
use cpu_topology::CpuSet;
use energy::NodeEnergy;
use gpus::Gpus;
pub use gpus::Visible;
use io::ProcessIo;
use kernel_files::parse::{Limit, parse_integer, parse_limit, parse_pid_stat, parse_pressure};
use kernel_files::processes::parse_pids;
use kernel_files::{Buffer, Dir, NodeFiles, ReadError, Roots};
use rustix::time::{ClockId, clock_gettime};
use slurm_jobs::process::parse_cgroups;
use slurm_jobs::scope::hierarchies;

use crate::recording::escaped;
use crate::{Failure, Kind};

/// `USER_HZ`: ticks of a second in `/proc/PID/stat`, on every architecture that Linux has.
const TICKS: f64 = 100.0;
/// Steps, tasks and what a task makes itself are below a job's directory.
const DEPTH: usize = 8;

/// A job on this node.
#[derive(Debug)]
pub struct OwnJob {
    name: String,
    /// Further labels of `jobledger_job_info`.
    identity: Vec<(&'static str, String)>,
    cgroup: Cgroup,
    files: NodeFiles,
    buffer: Buffer,
    /// When the first of its processes that run now started, seconds since the epoch.
    start: f64,
    /// CPUs that this process may run on, where the job has no cpuset.
    affinity: usize,
    last: CpuStat,
    proc: Dir,
    /// `dev/block` of sysfs: links from numbers to devices.
    devices: Option<Dir>,
    io: ProcessIo,
    gpus: Option<Gpus>,
    energy: Option<NodeEnergy>,
}

impl OwnJob {
    /// The cgroup of a job, above this process's. `identity` are further labels of the job.
    pub fn find(
        name: &str,
        identity: Vec<(&'static str, String)>,
        affinity: usize,
        roots: &Arc<Roots>,
    ) -> Result<Self, Failure> {
        let mut buffer = Buffer::default();
        let nowhere = || {
            Failure::new(
                Kind::NotFound,
                format!("job {name}: this process is in no cgroup of it, and no exporter answers"),
            )
        };
        let cgroup =
            cgroup_of(name, roots, &mut buffer).map_err(|error| failed(&error))?.ok_or_else(nowhere)?;
        let proc = Dir::open(&roots.proc("")).map_err(|error| Failure::other(error.to_string()))?;
        let start = start(&cgroup, &proc, &mut buffer);
        let start =
            start.ok_or_else(|| Failure::other(format!("job {name}: it is not known when it started")))?;
        let files = NodeFiles::new(roots);
        let last = CpuStat::default();
        Ok(Self {
            name: name.to_owned(),
            identity,
            cgroup,
            files,
            buffer,
            start,
            affinity,
            last,
            proc,
            devices: Dir::open(&roots.sys("dev/block")).ok(),
            io: ProcessIo::default(),
            gpus: None,
            energy: None,
        })
    }

    /// With what is counted from the first reading on: the GPUs that this process may open and that are `visible` to programs, and the
    /// node's energy. `library` is NVIDIA's, where the linker does not find it.
    #[must_use]
    pub fn with_devices(self, roots: &Arc<Roots>, visible: Visible, library: Option<PathBuf>) -> Self {
        let (gpus, energy) = (Gpus::new(roots, visible, library), NodeEnergy::new(roots));
        Self { gpus: Some(gpus), energy: Some(energy), ..self }
    }

    /// What could not be read of its GPUs, each once.
    pub fn take_problems(&mut self) -> Vec<String> {
        self.gpus.as_mut().map(Gpus::take_problems).unwrap_or_default()
    }

    /// Whether a driver of a GPU does not answer: what its library does at the end of the process may wait for it.
    pub fn is_stuck(&self) -> bool {
        self.gpus.as_ref().is_some_and(Gpus::is_stuck)
    }

    /// What is known of the job and its node at a time, in Prometheus' text format; nothing once the job is over.
    pub fn page(&mut self, now: f64) -> Result<String, Failure> {
        if self.cgroup.is_gone() {
            return Ok(String::new());
        }
        let id = place::number(&self.name).unwrap_or_default();
        let mut page = Page { text: String::new(), job: format!("jobid=\"{id}\"") };
        let mut labels = String::new();
        for (label, value) in &self.identity {
            // A String takes all that is written.
            let _ = write!(labels, ",{label}=\"{}\"", escaped(value));
        }
        page.of_job("jobledger_job_info", &labels, 1);
        page.of_job("jobledger_job_start_time_seconds", "", format_args!("{:.3}", self.start));
        let view = self.cgroup.view();
        let mut cpu =
            cpu::read(&view, &mut self.buffer).map_err(|error| Failure::other(error.to_string()))?;
        if view.version() == Version::V1 {
            cpu.keep_from_falling(&self.last);
        }
        self.last = cpu;
        for (mode, time) in [("user", cpu.user_usec), ("system", cpu.system_usec)] {
            page.seconds("jobledger_job_cpu_seconds_total", &format!(",mode=\"{mode}\""), time);
        }
        page.seconds("jobledger_job_cpu_throttled_seconds_total", "", cpu.throttled_usec);
        let cpus = cpus(&view, &mut self.buffer).unwrap_or(u64::try_from(self.affinity).unwrap_or(u64::MAX));
        page.of_job("jobledger_job_cpus", "", cpus);
        #[allow(clippy::cast_precision_loss, reason = "there are not 2^53 CPUs")]
        let held = cpus as f64 * (now - self.start).max(0.0);
        page.of_job("jobledger_job_allocated_cpu_seconds_total", "", format_args!("{held:.3}"));
        memory(&view, &mut self.buffer, &mut page);
        pressure(&view, &mut self.buffer, &mut page);
        if view.version() == Version::V2
            && let Ok(Some(io_stat)) = view.read(Controller::Io, "io.stat", &mut self.buffer)
        {
            let target = |number: &str| self.devices.as_ref()?.read_link(number).ok();
            io::write_devices(
                io_stat,
                |number| target(number)?.rsplit('/').next().map(str::to_owned),
                &mut page,
            );
        }
        let pids = processes(&self.cgroup, &mut self.buffer);
        self.io.write(pids, &self.proc, &mut self.buffer, &mut page);
        if let Some(gpus) = &mut self.gpus {
            gpus.write(&mut page);
        }
        if let Some(energy) = &mut self.energy {
            energy.write(Instant::now(), &mut page);
        }
        self.node(&mut page);
        Ok(page.text)
    }

    fn node(&mut self, page: &mut Page) {
        let online = cpu_topology::online(&mut self.files).ok().flatten();
        page.of_node("jobledger_node_cpus", online.as_ref().map(CpuSet::len));
        let cores = online.and_then(|online| cpu_topology::count_cores(&mut self.files, &online).ok()?);
        page.of_node("jobledger_node_cores", cores);
        page.of_node(
            "jobledger_node_memory_total_bytes",
            self.files.read("proc/meminfo").ok().and_then(|meminfo| of_meminfo(meminfo, b"MemTotal:")),
        );
        page.of_node(
            "jobledger_node_memory_available_bytes",
            self.files.read("proc/meminfo").ok().and_then(|meminfo| of_meminfo(meminfo, b"MemAvailable:")),
        );
    }
}

/// The samples, line by line.
struct Page {
    text: String,
    job: String,
}

impl Page {
    fn of_job(&mut self, name: &str, more: &str, value: impl Display) {
        // A String takes all that is written.
        let _ = writeln!(self.text, "{name}{{{}{more}}} {value}", self.job);
    }

    fn seconds(&mut self, name: &str, more: &str, microseconds: Option<u64>) {
        if let Some(time) = microseconds {
            self.of_job(name, more, format_args!("{}.{:06}", time / 1_000_000, time % 1_000_000));
        }
    }

    fn time(&mut self, name: &str, more: &str, time: Duration) {
        self.of_job(name, more, format_args!("{}.{:09}", time.as_secs(), time.subsec_nanos()));
    }

    /// Of a GPU or of the node, whatever job has it.
    fn plain(&mut self, name: &str, labels: &str, value: impl Display) {
        // As above.
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.trim_start_matches(','));
    }

    fn bytes(&mut self, name: &str, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.of_job(name, "", bytes);
        }
    }

    fn of_node(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            // As above.
            let _ = writeln!(self.text, "{name} {value}");
        }
    }
}

fn failed(error: &ReadError) -> Failure {
    Failure::other(format!("the cgroup of the job: {error}"))
}

/// The job's own directories in the mounted hierarchies.
fn cgroup_of(name: &str, roots: &Roots, buffer: &mut Buffer) -> Result<Option<Cgroup>, ReadError> {
    let proc = Dir::open(&roots.proc(""))?;
    let root = Dir::open(&roots.cgroup(""))?;
    let mut places = Vec::new();
    let lines = proc.read_list("self/cgroup", buffer)?;
    // A line that cannot be read ends the list.
    let _ = parse_cgroups(lines, |controllers, path| {
        places.extend(place::of_job(path, name).map(|path| (controllers.to_owned(), path.to_owned())));
    });
    let (mut v1, mut v2) = (Vec::new(), None);
    for hierarchy in hierarchies(&root)? {
        let is_of = |controllers: &str| match hierarchy.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => controllers
                .split(',')
                .filter_map(Controller::from_v1_name)
                .any(|controller| hierarchy.controllers.contains(&controller)),
        };
        let Some((_, path)) = places.iter().find(|(controllers, _)| is_of(controllers)) else { continue };
        let below = format!("{}{path}", hierarchy.mount);
        let dir = root.open_dir(below.trim_start_matches('/'))?;
        match hierarchy.version {
            Version::V1 => v1.push((hierarchy.controllers, dir)),
            Version::V2 => v2 = Some(dir),
        }
    }
    Ok(match v2 {
        _ if !v1.is_empty() => Some(Cgroup::v1(v1)),
        Some(dir) => Some(Cgroup::v2(dir).without_absent_controllers(buffer)),
        None => None,
    })
}

/// When the first of the job's processes started that run now: its batch script, or SLURM's process of the first step.
fn start(cgroup: &Cgroup, proc: &Dir, buffer: &mut Buffer) -> Option<f64> {
    let pids = processes(cgroup, buffer);
    let mut ticks = |pid: u32| {
        let stat = proc.read_record(&format!("{pid}/stat"), buffer).ok()?;
        parse_pid_stat(stat).ok().map(|stat| stat.start_ticks)
    };
    let first = pids.into_iter().filter_map(&mut ticks).min()?;
    let seconds = |clock| {
        let time = clock_gettime(clock);
        #[allow(clippy::cast_precision_loss, reason = "seconds since the epoch")]
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        seconds
    };
    #[allow(clippy::cast_precision_loss, reason = "ticks since the boot")]
    let after_boot = first as f64 / TICKS;
    Some(seconds(ClockId::Realtime) - seconds(ClockId::Boottime) + after_boot)
}

/// The processes of a job, some of them more than once on v1.
fn processes(cgroup: &Cgroup, buffer: &mut Buffer) -> Vec<u32> {
    let mut pids = Vec::new();
    for dir in cgroup.dirs() {
        list(dir, DEPTH, buffer, &mut pids);
    }
    pids
}

/// The processes of a cgroup and those below it.
fn list(dir: &Dir, depth: usize, buffer: &mut Buffer, pids: &mut Vec<u32>) {
    if let Ok(bytes) = dir.read_list("cgroup.procs", buffer) {
        // What cannot be read of it is another kernel's.
        let _ = parse_pids(bytes, |pid| pids.push(pid));
    }
    if depth == 0 {
        return;
    }
    for entry in dir.directories().unwrap_or_default() {
        if let Ok(below) = dir.open_dir(&entry.name) {
            list(&below, depth - 1, buffer, pids);
        }
    }
}

fn read<T>(
    view: &View<'_>,
    (controller, file): (Controller, &str),
    buffer: &mut Buffer,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    view.read(controller, file, buffer).ok().flatten().and_then(parse)
}

fn cpus(view: &View<'_>, buffer: &mut Buffer) -> Option<u64> {
    let file = match view.version() {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
    };
    let set = read(view, (Controller::Cpuset, file), buffer, |bytes| CpuSet::parse(bytes).ok())?;
    Some(set.len()).filter(|cpus| *cpus > 0)
}

fn memory(view: &View<'_>, buffer: &mut Buffer, page: &mut Page) {
    let mut number = |file| read(view, (Controller::Memory, file), buffer, |bytes| parse_integer(bytes).ok());
    let (used, peak) = match view.version() {
        Version::V1 => (number("memory.usage_in_bytes"), number("memory.max_usage_in_bytes")),
        Version::V2 => (number("memory.current"), number("memory.peak")),
    };
    page.bytes("jobledger_job_memory_used_bytes", used);
    page.bytes("jobledger_job_memory_peak_bytes", peak);
    let parse = match view.version() {
        Version::V1 => parse_memory_stat_v1,
        Version::V2 => parse_memory_stat,
    };
    let stat = read(view, (Controller::Memory, "memory.stat"), buffer, |bytes| parse(bytes).ok())
        .unwrap_or_default();
    page.bytes("jobledger_job_memory_anon_bytes", stat.anon);
    page.bytes("jobledger_job_memory_file_bytes", stat.file);
    page.bytes("jobledger_job_memory_shmem_bytes", stat.shmem);
    let mut limit = |file| {
        read(view, (Controller::Memory, file), buffer, |bytes| parse_limit(bytes).ok().and_then(Limit::value))
    };
    let limit = match view.version() {
        Version::V1 => stat.limit.and_then(|limit| Limit::from_v1_bytes(limit).value()),
        Version::V2 => limit("memory.max").into_iter().chain(limit("memory.high")).min(),
    };
    page.bytes("jobledger_job_memory_limit_bytes", limit);
    // v1 does not count below.
    if view.version() == Version::V2 {
        let events = read(view, (Controller::Memory, "memory.events"), buffer, |bytes| {
            parse_memory_events(bytes).ok()
        });
        page.bytes("jobledger_job_oom_kills_total", events.and_then(|events| events.oom_kill));
    }
}

/// v2 alone has it (Documentation/accounting/psi.rst).
fn pressure(view: &View<'_>, buffer: &mut Buffer, page: &mut Page) {
    if view.version() == Version::V1 {
        return;
    }
    for resource in ["cpu", "memory", "io"] {
        // These files are in every cgroup, whatever controllers it has, as cpu.stat is.
        let file = format!("{resource}.pressure");
        let Some(found) = read(view, (Controller::Cpu, &file), buffer, |bytes| parse_pressure(bytes).ok())
        else {
            continue;
        };
        for (kind, line) in [("some", found.some), ("full", found.full)] {
            let labels = format!(",resource=\"{resource}\",kind=\"{kind}\"");
            page.seconds("jobledger_job_pressure_seconds_total", &labels, line.map(|line| line.total_usec));
        }
    }
}

/// Bytes of a line of `/proc/meminfo`.
fn of_meminfo(meminfo: &[u8], name: &[u8]) -> Option<u64> {
    let line = meminfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim_ascii().strip_suffix(b" kB")?;
    parse_integer(&[kib.trim_ascii(), b"\n"].concat()).ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests;
