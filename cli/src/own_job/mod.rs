//! The job that this process is in, read from its own cgroup, for nodes without the exporter.
//!
//! What it shows has the exporter's names and meanings: CPU time and CPUs, memory, pressure, I/O, GPUs. Other jobs, the node's energy,
//! counters and network are the exporter's, which has the privileges for them. Sources: `/proc/PID/cgroup` (cgroups(7)), crates `cgroups` and `cpu-topology`,
//! `/proc/PID/stat` for the start. Needs no privilege.

mod gpus;
mod io;
pub mod place;

use std::fmt::{Display, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cgroups::cpu::{self, CpuStat};
use cgroups::memory::{parse_memory_events, parse_memory_stat, parse_memory_stat_v1};
use cgroups::{Cgroup, Controller, Version, View};
use cpu_topology::CpuSet;
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
        })
    }

    /// With the GPUs that this process may open and that are `visible` to programs. `library` is NVIDIA's, where the linker does not
    /// find it.
    #[must_use]
    pub fn with_gpus(self, roots: &Arc<Roots>, visible: Visible, library: Option<PathBuf>) -> Self {
        Self { gpus: Some(Gpus::new(roots, visible, library)), ..self }
    }

    /// What could not be read of its GPUs, each once.
    pub fn take_problems(&mut self) -> Vec<String> {
        self.gpus.as_mut().map(Gpus::take_problems).unwrap_or_default()
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
            self.files.read("proc/meminfo").ok().and_then(memory_total),
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

    /// Of a GPU, whatever job has it.
    fn of_gpu(&mut self, name: &str, labels: &str, value: impl Display) {
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

/// Bytes of `MemTotal` in `/proc/meminfo`.
fn memory_total(meminfo: &[u8]) -> Option<u64> {
    let line = meminfo.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"MemTotal:"))?;
    let kib = line.trim_ascii().strip_suffix(b" kB")?;
    parse_integer(&[kib.trim_ascii(), b"\n"].concat()).ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;
    use crate::recording::Line;

    fn node(machine: &Machine) {
        machine.write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            machine.write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"),
                format!("{}\n", cpu % 2),
            );
        }
        machine.write("proc/meminfo", "MemTotal:        2048 kB\nMemFree:         1024 kB\n");
        for (pid, ticks) in [(70, 9000), (71, 500), (99, 1)] {
            machine.write(&format!("proc/{pid}/stat"), stat(pid, ticks));
        }
    }

    fn stat(pid: u32, ticks: u32) -> String {
        format!("{pid} (a b) S 1 1 1 0 -1 4194560 517 0 2 0 4 11 0 0 20 0 9 0 {ticks} 480743424 1582 0 0\n")
    }

    /// `/proc/PID/io`
    fn io(times: u64) -> String {
        let counters =
            ["rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes"];
        let lines =
            counters.iter().zip(1..).map(|(name, number): (_, u64)| format!("{name}: {}\n", number * times));
        lines.collect()
    }

    /// (name, labels) of a page's samples with their values.
    fn samples(page: &str) -> Vec<(String, String)> {
        let one = |line: &str| {
            let line = Line::parse(line).unwrap();
            (format!("{}{{{}}}", line.name, line.labels), line.value.to_owned())
        };
        page.lines().map(one).collect()
    }

    fn get(page: &str, name: &str) -> Option<String> {
        samples(page).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    #[test]
    fn a_job_of_slurm_on_v2() {
        let machine = Machine::new();
        node(&machine);
        let job = "cgroup/system.slice/slurmstepd.scope/job_7";
        machine.write("cgroup/cgroup.controllers", "cpuset cpu memory io\n");
        machine.write("proc/70/io", io(1));
        std::fs::create_dir_all(machine.path.join("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink("../../block/vda", machine.path.join("sys/dev/block/254:0")).unwrap();
        for (file, content) in [
            ("cgroup.controllers", "cpuset cpu memory io\n"),
            ("cpu.stat", "usage_usec 3500000\nuser_usec 3000000\nsystem_usec 500000\nthrottled_usec 7\n"),
            ("cpuset.cpus.effective", "0-1\n"),
            ("memory.current", "5000\n"),
            ("memory.peak", "6000\n"),
            ("memory.max", "max\n"),
            ("memory.high", "8000\n"),
            ("memory.stat", "anon 1000\nfile 2000\nshmem 300\n"),
            ("memory.events", "low 0\nhigh 0\nmax 0\noom 1\noom_kill 1\n"),
            ("io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n"),
            ("io.stat", "254:0 rbytes=462848 wbytes=25296896 rios=11 wios=53 dbytes=4096 dios=1\n8:0 rby"),
            ("step_0/user/task_0/cgroup.procs", "70\n"),
            ("step_batch/slurm/cgroup.procs", "71\n"),
        ] {
            machine.write(&format!("{job}/{file}"), content);
        }
        machine.write("proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n");
        let mut own =
            OwnJob::find("7", vec![("name", "a\"b".to_owned())], 64, &Arc::new(machine.roots())).unwrap();
        let page = own.page(own.start + 10.0).unwrap();
        for (name, value) in [
            (r#"jobledger_job_info{jobid="7",name="a\"b"}"#, "1"),
            (r#"jobledger_job_cpu_seconds_total{jobid="7",mode="user"}"#, "3.000000"),
            (r#"jobledger_job_cpu_seconds_total{jobid="7",mode="system"}"#, "0.500000"),
            (r#"jobledger_job_cpu_throttled_seconds_total{jobid="7"}"#, "0.000007"),
            (r#"jobledger_job_cpus{jobid="7"}"#, "2"),
            (r#"jobledger_job_allocated_cpu_seconds_total{jobid="7"}"#, "20.000"),
            (r#"jobledger_job_memory_used_bytes{jobid="7"}"#, "5000"),
            (r#"jobledger_job_memory_peak_bytes{jobid="7"}"#, "6000"),
            (r#"jobledger_job_memory_anon_bytes{jobid="7"}"#, "1000"),
            (r#"jobledger_job_memory_shmem_bytes{jobid="7"}"#, "300"),
            (r#"jobledger_job_memory_limit_bytes{jobid="7"}"#, "8000"),
            (r#"jobledger_job_oom_kills_total{jobid="7"}"#, "1"),
            (r#"jobledger_job_pressure_seconds_total{jobid="7",resource="io",kind="some"}"#, "1.500000"),
            (r#"jobledger_job_io_read_bytes_total{jobid="7",device="vda"}"#, "462848"),
            (r#"jobledger_job_io_written_bytes_total{jobid="7",device="vda"}"#, "25296896"),
            (r#"jobledger_job_io_operations_total{jobid="7",device="vda",direction="write"}"#, "53"),
            // Of slurmstepd, 71, nothing can be read.
            (r#"jobledger_job_process_read_bytes_total{jobid="7"}"#, "5"),
            (r#"jobledger_job_process_syscall_written_bytes_total{jobid="7"}"#, "2"),
            (r#"jobledger_job_process_io_syscalls_total{jobid="7",direction="read"}"#, "3"),
            ("jobledger_node_cpus{}", "4"),
            ("jobledger_node_cores{}", "2"),
            ("jobledger_node_memory_total_bytes{}", "2097152"),
        ] {
            assert_eq!(get(&page, name).as_deref(), Some(value), "{name}\n{page}");
        }
        // A process ends and another one begins.
        machine.write("proc/70/io", io(10));
        own.page(own.start + 11.0).unwrap();
        std::fs::remove_dir_all(machine.path.join("proc/70")).unwrap();
        machine.write("proc/72/stat", stat(72, 9500));
        machine.write("proc/72/io", io(100));
        machine.write(&format!("{job}/step_0/user/task_0/cgroup.procs"), "72\n");
        let page = own.page(own.start + 12.0).unwrap();
        let read = get(&page, r#"jobledger_job_process_read_bytes_total{jobid="7"}"#);
        assert_eq!(read.as_deref(), Some("550"), "what the one before did is in it");
        // Of the processes of the job the one of the batch step was first.
        let clocks = clock_gettime(ClockId::Realtime).tv_sec - clock_gettime(ClockId::Boottime).tv_sec;
        #[allow(clippy::cast_precision_loss, reason = "seconds")]
        let boot = clocks as f64;
        assert!((own.start - boot - 5.0).abs() < 2.0, "{} {boot}", own.start);
    }

    #[test]
    fn a_job_of_pbs_on_v1() {
        let machine = Machine::new();
        node(&machine);
        let below = "pbs_jobs.service/jobid/1234.server";
        for (file, content) in [
            ("cpuacct/X/cpuacct.usage", "4000000000\n"),
            ("cpuacct/X/cpuacct.stat", "user 300\nsystem 100\n"),
            ("cpuset/X/cpuset.effective_cpus", "0-2\n"),
            ("cpuset/X/cgroup.procs", "70\n"),
            ("memory/X/memory.usage_in_bytes", "5000\n"),
            ("memory/X/memory.max_usage_in_bytes", "6000\n"),
            (
                "memory/X/memory.stat",
                "total_rss 1000\ntotal_cache 2000\nhierarchical_memory_limit 9223372036854771712\n",
            ),
        ] {
            machine.write(&format!("cgroup/{}", file.replace('X', below)), content);
        }
        machine.write(
            "proc/self/cgroup",
            format!("4:memory:/{below}\n3:cpuset:/{below}\n2:cpuacct:/{below}\n1:name=systemd:/init.scope\n"),
        );
        let mut own = OwnJob::find("1234.server", Vec::new(), 64, &Arc::new(machine.roots())).unwrap();
        let page = own.page(own.start + 10.0).unwrap();
        for (name, value) in [
            (r#"jobledger_job_cpu_seconds_total{jobid="1234",mode="user"}"#, Some("3.000000")),
            (r#"jobledger_job_cpus{jobid="1234"}"#, Some("3")),
            (r#"jobledger_job_memory_peak_bytes{jobid="1234"}"#, Some("6000")),
            (r#"jobledger_job_memory_anon_bytes{jobid="1234"}"#, Some("1000")),
            // No limit, and kills that are not counted here.
            (r#"jobledger_job_memory_limit_bytes{jobid="1234"}"#, None),
            (r#"jobledger_job_oom_kills_total{jobid="1234"}"#, None),
        ] {
            assert_eq!(get(&page, name).as_deref(), value, "{name}\n{page}");
        }
        // Ticks came in for the user alone, and no mode falls.
        machine.write(&format!("cgroup/cpuacct/{below}/cpuacct.stat"), "user 900\nsystem 100\n");
        machine.write(&format!("cgroup/cpuacct/{below}/cpuacct.usage"), "4100000000\n");
        let page = own.page(own.start + 11.0).unwrap();
        let system = get(&page, r#"jobledger_job_cpu_seconds_total{jobid="1234",mode="system"}"#);
        assert_eq!(system.as_deref(), Some("1.000000"), "{page}");
        for hierarchy in ["cpuacct", "cpuset", "memory"] {
            std::fs::remove_dir_all(machine.path.join("cgroup").join(hierarchy).join(below)).unwrap();
        }
        assert_eq!(own.page(own.start + 12.0).unwrap(), "", "time that nobody held");
    }

    #[test]
    fn without_a_cgroup_of_the_job_nothing_is_read() {
        let machine = Machine::new();
        node(&machine);
        machine
            .write("cgroup/cgroup.controllers", "cpu\n")
            .write("cgroup/user.slice/cpu.stat", "usage_usec 1\n");
        machine.write("proc/self/cgroup", "0::/user.slice/user-1000.slice\n");
        let says = OwnJob::find("7", Vec::new(), 1, &Arc::new(machine.roots())).unwrap_err().says;
        assert_eq!(says, "job 7: this process is in no cgroup of it, and no exporter answers");
    }

    #[test]
    fn the_names_are_the_exporters() {
        let documented = include_str!("../../../docs/metrics.md");
        let sources = [include_str!("mod.rs"), include_str!("gpus.rs"), include_str!("io.rs")];
        let names: std::collections::BTreeSet<&str> = sources
            .iter()
            .flat_map(|source| source.split("mod tests").next().unwrap().split('"'))
            .filter(|text| text.starts_with("jobledger_") && !text.contains(' '))
            .collect();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            assert!(documented.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
