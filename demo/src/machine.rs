//! The simulated machine: CPUs, clock, load and power, and its files that change.

use std::sync::Arc;

use super::counters::{Places, RESOURCES};
use super::files::pressure;
use super::group::Group;
use super::layout::{CPUS, socket_of};
use super::memory::{memory_info, node_memory_info};
use super::power::{Power, package, wall};
use super::random::{real, whole};
use super::{devices, nfs};

#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    user: u64,
    system: u64,
    waiting: u64,
    idle: u64,
    busy_at_tick: u64,
    fast: bool,
}

/// The state of the machine. Times are in microseconds.
#[derive(Debug)]
pub(super) struct Machine {
    /// Seconds since the epoch.
    pub(super) boot: u64,
    /// The numbers of all CPUs.
    pub(super) all: Arc<[u32]>,
    now: u64,
    cpus: Vec<Cpu>,
    loads: [f64; 3],
    running: u64,
    switches: f64,
    power: Power,
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
            power: Power::default(),
        }
    }

    /// Charges CPU time to these CPUs, in equal parts.
    pub(super) fn charge_cpus(&mut self, cpus: &[u32], user: u64, system: u64, waiting: u64) {
        let share = u64::try_from(cpus.len()).unwrap_or(1).max(1);
        for (cpu, n) in cpus.iter().zip(0..) {
            let Some(cpu) = usize::try_from(*cpu).ok().and_then(|at| self.cpus.get_mut(at)) else { continue };
            let part = |whole: u64| whole / share + if n == 0 { whole % share } else { 0 };
            cpu.user += part(user);
            cpu.system += part(system);
            cpu.waiting += part(waiting);
        }
    }

    /// Updates load, frequencies and energy after `elapsed` microseconds.
    pub(super) fn tick(&mut self, now: u64, elapsed: u64, memory: Places) {
        self.now = now;
        self.power.tick(elapsed, memory.map(|[anon, file]| anon + file));
        let mut running = 0.0;
        for cpu in &mut self.cpus {
            let busy = cpu.user + cpu.system + cpu.waiting;
            // slurmstepd's CPU time is charged at once and may exceed the elapsed time. Later ticks make up for that.
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
    pub(super) fn cpu_time(&self) -> [u64; 2] {
        [self.cpus.iter().map(|c| c.user).sum(), self.cpus.iter().map(|c| c.system).sum()]
    }

    /// Microjoules of each package and of each socket's memory since the boot.
    pub(super) fn energy(&self) -> [[u64; 2]; 2] {
        let mut busy = [0; 2];
        for (cpu, n) in self.cpus.iter().zip(0..) {
            if let Some(busy) = busy.get_mut(socket_of(n)) {
                *busy += cpu.user + cpu.system;
            }
        }
        [busy.map(|busy| package(self.now, busy)), self.power.memory()]
    }

    /// Path and content of the files that change with time. The GPUs have taken `gpus` microjoules.
    pub(super) fn changing_files(&self, root: &Group, forks: u64, gpus: u64) -> Vec<(String, String)> {
        let mut files = vec![
            ("proc/stat".to_owned(), self.stat(forks)),
            ("proc/uptime".to_owned(), self.uptime()),
            ("proc/loadavg".to_owned(), self.load_average(root, forks)),
            ("proc/meminfo".to_owned(), memory_info(root)),
            ("proc/diskstats".to_owned(), devices::disks(&root.totals.counters)),
            ("proc/net/dev".to_owned(), devices::network(&root.totals.counters, self.now)),
            ("proc/self/mountstats".to_owned(), nfs::mountstats(&root.totals.counters, self.now)),
        ];
        let [packages, memories] = self.energy();
        let parts = packages.iter().chain(&memories).sum::<u64>() + gpus;
        files.extend(devices::energy(packages, memories, wall(self.now, parts)));
        files.extend(devices::infiniband(&root.totals.counters, self.now));
        for node in 0..2 {
            files.push((format!("sys/devices/system/node/node{node}/meminfo"), node_memory_info(root, node)));
        }
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
