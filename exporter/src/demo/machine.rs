//! The simulated machine around the groups: CPUs, clock, load, and its files in procfs and sysfs.

use std::fmt::Write;
use std::sync::Arc;

use super::counters::{PAGE, RESOURCES};
use super::files::{cpu_list, pressure};
use super::group::Group;
use super::process::Io;
use super::random::{real, whole};

/// Two sockets of 16 cores.
pub(super) const CPUS: u32 = 32;
const SOCKETS: u32 = 2;
/// 256 GiB less what firmware and kernel reserve.
const MEMORY_KIB: u64 = 263_764_000;
const RELEASE: &str = "6.12.48";
/// Device number and name, in the order of `Counters::io`.
pub(super) const DISKS: [(&str, &str); 2] = [("259:0", "nvme0n1"), ("8:0", "sda")];

#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    user: u64,
    system: u64,
    waiting: u64,
    idle: u64,
    busy_at_tick: u64,
    fast: bool,
}

/// Its state. Times are microseconds.
#[derive(Debug)]
pub(super) struct Machine {
    /// Seconds since the epoch.
    pub(super) boot: u64,
    /// Every CPU.
    pub(super) all: Arc<[u32]>,
    now: u64,
    cpus: Vec<Cpu>,
    loads: [f64; 3],
    running: u64,
    switches: f64,
}

impl Machine {
    pub(super) fn new(boot: u64, now: u64) -> Self {
        let cpus = (0..CPUS).map(|_| Cpu { idle: now / 4, ..Cpu::default() }).collect();
        Self {
            boot,
            all: (0..CPUS).collect(),
            now,
            cpus,
            loads: [20.0; 3],
            running: 0,
            switches: real(now) / 40.0,
        }
    }

    /// Books CPU time, shared by these CPUs.
    pub(super) fn spend(&mut self, cpus: &[u32], user: u64, system: u64, waiting: u64) {
        let share = u64::try_from(cpus.len()).unwrap_or(1).max(1);
        for (cpu, n) in cpus.iter().zip(0..) {
            let Some(cpu) = usize::try_from(*cpu).ok().and_then(|at| self.cpus.get_mut(at)) else { continue };
            let part = |whole: u64| whole / share + if n == 0 { whole % share } else { 0 };
            cpu.user += part(user);
            cpu.system += part(system);
            cpu.waiting += part(waiting);
        }
    }

    /// Ends a tick.
    pub(super) fn tick(&mut self, now: u64, elapsed: u64) {
        self.now = now;
        let mut running = 0.0;
        for cpu in &mut self.cpus {
            let busy = cpu.user + cpu.system + cpu.waiting;
            // What is spent within an instant may be more than the instant: it is made up for soon.
            cpu.idle = cpu.idle.max(now.saturating_sub(busy));
            let share = real(busy - cpu.busy_at_tick) / real(elapsed.max(1));
            cpu.busy_at_tick = busy;
            cpu.fast = share > 0.2;
            running += share.min(1.0);
        }
        self.running = whole(running.ceil());
        self.switches += running * real(elapsed) / 2_000.0;
        for (load, seconds) in self.loads.iter_mut().zip([60.0, 300.0, 900.0]) {
            let keep = (-real(elapsed) / 1e6 / seconds).exp();
            *load = *load * keep + running * (1.0 - keep);
        }
    }

    /// User and system time over all CPUs.
    #[cfg(test)]
    pub(super) fn spent(&self) -> [u64; 2] {
        [self.cpus.iter().map(|c| c.user).sum(), self.cpus.iter().map(|c| c.system).sum()]
    }

    /// Path and content of the files that change with every tick.
    pub(super) fn changing_files(&self, root: &Group, forks: u64) -> Vec<(String, String)> {
        let mut files = vec![
            ("proc/stat".to_owned(), self.stat(forks)),
            ("proc/uptime".to_owned(), self.uptime()),
            ("proc/loadavg".to_owned(), self.load_average(root, forks)),
            ("proc/meminfo".to_owned(), memory_info(root)),
            ("proc/diskstats".to_owned(), disks(root)),
            ("proc/net/dev".to_owned(), self.network()),
        ];
        for (resource, stalls) in RESOURCES.iter().zip(root.pressure) {
            files.push((format!("proc/pressure/{resource}"), pressure(stalls)));
        }
        let frequencies = self.cpus.iter().zip(0_u64..).map(|(cpu, n)| {
            let khz = if cpu.fast { 3_200_000 + n % 7 * 12_500 } else { 800_000 };
            (format!("sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq"), format!("{khz}\n"))
        });
        files.extend(frequencies);
        files
    }

    /// Who computes talks: so many bytes for each microsecond of CPU time.
    fn network(&self) -> String {
        let usec: u64 = self.cpus.iter().map(|cpu| cpu.user + cpu.system).sum();
        let mut text = String::from(
            "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
        );
        for (name, received, sent) in [("lo", usec / 100, usec / 100), ("eth0", usec * 40, usec * 25)] {
            let _ = writeln!(
                text,
                "{name:>6}: {received} {} 0 0 0 0 0 0 {sent} {} 0 0 0 0 0 0",
                received / 1400,
                sent / 1400
            );
        }
        text
    }

    fn stat(&self, forks: u64) -> String {
        let line = |name: &str, cpu: &Cpu| {
            let [user, system, idle, waiting] =
                [cpu.user, cpu.system, cpu.idle, cpu.waiting].map(|usec| usec / 10_000);
            format!("{name} {user} 0 {system} {idle} {waiting} 0 0 0 0 0\n")
        };
        let mut sum = Cpu::default();
        let mut lines = String::new();
        for (cpu, n) in self.cpus.iter().zip(0..) {
            sum.user += cpu.user;
            sum.system += cpu.system;
            sum.idle += cpu.idle;
            sum.waiting += cpu.waiting;
            lines.push_str(&line(&format!("cpu{n}"), cpu));
        }
        let Self { boot, running, .. } = self;
        let switches = whole(self.switches);
        format!(
            "{}{lines}intr {switches} 0\nctxt {switches}\nbtime {boot}\nprocesses {forks}\nprocs_running {running}\n\
             procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
            line("cpu ", &sum)
        )
    }

    fn uptime(&self) -> String {
        let idle: u64 = self.cpus.iter().map(|cpu| cpu.idle).sum();
        let [now, idle] = [self.now, idle].map(|usec| real(usec) / 1e6);
        format!("{now:.2} {idle:.2}\n")
    }

    fn load_average(&self, root: &Group, forks: u64) -> String {
        let [one, five, fifteen] = self.loads;
        let threads = root.totals.memory.threads + 400;
        format!("{one:.2} {five:.2} {fifteen:.2} {}/{threads} {forks}\n", self.running.max(1))
    }
}

fn memory_info(root: &Group) -> String {
    let memory = root.totals.memory;
    let [anon, file, shmem, mapped, current, stack, tables, reclaimable, unreclaimable] = [
        memory.anon,
        memory.file,
        memory.shmem,
        memory.mapped,
        memory.current(),
        memory.kernel_stack(),
        memory.page_tables,
        memory.slab_reclaimable(),
        memory.slab_unreclaimable(),
    ]
    .map(|bytes| bytes / 1024);
    let kernel = 900_000;
    let free = MEMORY_KIB.saturating_sub(current + kernel);
    let rows = [
        ("MemTotal", MEMORY_KIB),
        ("MemFree", free),
        ("MemAvailable", free + (file - shmem) * 9 / 10),
        ("Buffers", 0),
        ("Cached", file),
        ("SwapCached", 0),
        ("Active", anon / 8 + (file - shmem) / 2),
        ("Inactive", anon - anon / 8 + shmem + (file - shmem) / 2),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 1_024),
        ("Writeback", 0),
        ("AnonPages", anon),
        ("Mapped", mapped),
        ("Shmem", shmem),
        ("KReclaimable", reclaimable + kernel / 3),
        ("Slab", reclaimable + unreclaimable + kernel / 2),
        ("SReclaimable", reclaimable + kernel / 3),
        ("SUnreclaim", unreclaimable + kernel / 2 - kernel / 3),
        ("KernelStack", stack + 9_600),
        ("PageTables", tables),
        ("CommitLimit", MEMORY_KIB / 2),
        ("Committed_AS", anon * 3 / 2),
        ("AnonHugePages", anon / 2 / 2048 * 2048),
        ("Hugepagesize", 2048),
        ("Hugetlb", 0),
    ];
    let mut text = String::new();
    for (key, kib) in rows {
        let _ = writeln!(text, "{:<15} {kib:>8} kB", format!("{key}:"));
    }
    text
}

fn disks(root: &Group) -> String {
    let mut text = String::new();
    for ((number, name), io) in DISKS.iter().zip(root.totals.counters.io) {
        let (major, minor) = number.split_once(':').unwrap_or_default();
        let Io { read_bytes, written_bytes, reads, writes } = io;
        let [read, written] = [read_bytes, written_bytes].map(|bytes| bytes / 512);
        let _ = writeln!(
            text,
            "{major:>4} {minor:>7} {name} {reads} 0 {read} {} {writes} 0 {written} {} 0 {} {} 0 0 0 0 0 0",
            reads * 2,
            writes * 3,
            reads + writes,
            reads * 2 + writes * 3
        );
    }
    text
}

/// Path and content of the files that never change.
pub(super) fn fixed_files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = vec![
        ("proc/cpuinfo".to_owned(), cpu_info()),
        (
            "proc/version".to_owned(),
            format!("Linux version {RELEASE} (demo@jobledger) #1 SMP PREEMPT_DYNAMIC\n"),
        ),
    ];
    let mut add = |path: &str, content: String| files.push((path.to_owned(), content));
    let line = |value: &str| format!("{value}\n");
    for (name, value) in [
        ("osrelease", RELEASE),
        ("ostype", "Linux"),
        ("hostname", "demo1"),
        ("arch", "x86_64"),
        ("perf_event_paranoid", "2"),
    ] {
        add(&format!("proc/sys/kernel/{name}"), line(value));
    }
    let all: Vec<u32> = (0..CPUS).collect();
    let each = CPUS / SOCKETS;
    for name in ["online", "possible", "present"] {
        add(&format!("sys/devices/system/cpu/{name}"), line(&cpu_list(&all)));
    }
    add("sys/devices/system/cpu/offline", "\n".to_owned());
    for name in ["online", "possible", "has_cpu", "has_memory"] {
        add(&format!("sys/devices/system/node/{name}"), line("0-1"));
    }
    for (socket, cpus) in (0..SOCKETS).zip(all.chunks_exact(16)) {
        let node = format!("sys/devices/system/node/node{socket}");
        add(&format!("{node}/cpulist"), line(&cpu_list(cpus)));
        add(&format!("{node}/distance"), line(if socket == 0 { "10 21" } else { "21 10" }));
        for cpu in cpus {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            for (name, value) in [
                ("core_id", (cpu % each).to_string()),
                ("physical_package_id", socket.to_string()),
                ("die_id", "0".to_owned()),
                ("core_cpus_list", cpu.to_string()),
                ("thread_siblings_list", cpu.to_string()),
                ("core_siblings_list", cpu_list(cpus)),
                ("package_cpus_list", cpu_list(cpus)),
            ] {
                add(&format!("{dir}/topology/{name}"), line(&value));
            }
            for (name, value) in [
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3400000"),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "3400000"),
                ("scaling_driver", "intel_pstate"),
                ("scaling_governor", "performance"),
            ] {
                add(&format!("{dir}/cpufreq/{name}"), line(value));
            }
        }
    }
    for (number, name) in DISKS {
        add(&format!("sys/block/{name}/dev"), line(number));
    }
    add("sys/class/net/eth0/operstate", line("up"));
    add("sys/class/net/eth0/speed", line("25000"));
    add("sys/devices/virtual/dmi/id/sys_vendor", line("Jobledger"));
    add("sys/devices/virtual/dmi/id/product_name", line("Simulated node"));
    files
}

/// Symbolic links: path and target.
pub(super) fn links() -> Vec<(String, String)> {
    let mut links: Vec<(String, String)> = DISKS
        .iter()
        .map(|(number, name)| (format!("sys/dev/block/{number}"), format!("../../block/{name}")))
        .collect();
    links.push(("sys/class/dmi/id".to_owned(), "../../devices/virtual/dmi/id".to_owned()));
    links
}

fn cpu_info() -> String {
    let mut text = String::new();
    for cpu in 0..CPUS {
        let each = CPUS / SOCKETS;
        let _ = write!(
            text,
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
             model name\t: Intel(R) Xeon(R) Gold 6326 CPU @ 2.90GHz\nstepping\t: 6\nmicrocode\t: 0xd0003f6\n\
             cpu MHz\t\t: 2900.000\ncache size\t: 24576 KB\nphysical id\t: {}\nsiblings\t: {each}\ncore id\t\t: {}\n\
             cpu cores\t: {each}\nfpu\t\t: yes\nflags\t\t: fpu tsc msr sse2 avx2 avx512f constant_tsc arch_perfmon\n\
             clflush size\t: {}\naddress sizes\t: 46 bits physical, 57 bits virtual\npower management:\n\n",
            cpu / each,
            cpu % each,
            PAGE / 64
        );
    }
    text
}
