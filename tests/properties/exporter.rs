//! An exporter without threads, which histories drive step by step, and the node of ordinary files that it looks at.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use exposition::{Section, encode_openmetrics};
use jobledger_exporter::collector::devices::energy::EnergyOptions;
use jobledger_exporter::collector::durable::{Before, Durable};
use jobledger_exporter::collector::interval_reader::{Call, OccupancyObserver};
use jobledger_exporter::collector::options::Options;
use jobledger_exporter::collector::{BuildContext, Built, REGISTRY};
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::machine::Machine;
use kernel_files::Roots;
use slurm_jobs::table::{MOST_RETAINED, SavedTable, Table, TableOptions};
use slurm_jobs::{JobObserver, Levels, NodeSnapshot, Reader, Users};

pub(crate) const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
const ZONE: &str = "sys/class/powercap/intel-rapl:0";
const DAY: u64 = 86_400;

/// What one process has saved.
pub(crate) struct Saved {
    pub(crate) at: Instant,
    pub(crate) sections: Vec<(&'static str, Vec<u8>)>,
    pub(crate) table: Vec<u8>,
}

/// Which collectors run, and their options, made for each start.
pub(crate) struct Setup<'a> {
    pub(crate) collectors: &'static [&'static str],
    pub(crate) options: &'a dyn Fn(&mut Options),
    pub(crate) table: TableOptions,
}

pub(crate) struct Exporter {
    names: &'static [&'static str],
    table: Table,
    collectors: Vec<(&'static str, Built)>,
    pub(crate) options: Options,
    pub(crate) parts: Vec<(&'static str, Arc<dyn Durable>)>,
    /// What a crash leaves.
    pub(crate) saved: Saved,
}

/// One reader; what it has is not retained.
pub(crate) fn table_options() -> TableOptions {
    TableOptions {
        retention: Duration::ZERO,
        retention_max: Duration::from_secs(3600),
        readers: 1,
        most_retained: MOST_RETAINED,
        stale_after: Duration::from_secs(3600),
        levels: Levels::default(),
        job_labels: Vec::new(),
        jobs_dir: None,
        environment_hints: false,
    }
}

impl Exporter {
    pub(crate) fn start(machine: &Machine, setup: &Setup<'_>, before: Option<&Saved>) -> Self {
        let at = |dir: &str| machine.path(dir);
        let roots = Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")));
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(roots.clone(), users.clone());
        context.options.set(EnergyOptions { pause: Duration::ZERO, ..EnergyOptions::default() });
        (setup.options)(&mut context.options);
        let collectors: Vec<_> = REGISTRY.iter().map(|entry| (entry.name, (entry.build)(&context))).collect();
        let occupancy: (_, Arc<dyn Durable>) = ("occupancy", context.interval_reader.clone());
        let parts = collectors.iter().filter_map(|(name, built)| Some((*name, built.durable.clone()?)));
        let parts: Vec<_> = std::iter::once(occupancy).chain(parts).collect();
        let observer: Arc<dyn JobObserver> = Arc::new(OccupancyObserver(context.interval_reader.clone()));
        let chosen = collectors.iter().filter(|(name, _)| setup.collectors.contains(name));
        let hooks = chosen.filter_map(|(_, built)| built.observer.clone());
        let hooks = std::iter::once(observer).chain(hooks).collect();
        let mut table = Table::new(roots, setup.table.clone(), users, hooks);
        if let Some(saved) = before {
            let restored: SavedTable = durable_state::decode(&saved.table).unwrap();
            let before = Before { runs: restored.runs(), seen: saved.at };
            for (name, part) in &parts {
                let section = saved.sections.iter().find(|(known, _)| known == name);
                part.restore(&section.unwrap().1, &before).unwrap();
            }
            table.restore(restored, saved.at);
        }
        table.verify();
        let saved = Saved { at: Instant::now(), sections: Vec::new(), table: Vec::new() };
        let (names, options) = (setup.collectors, context.options);
        let mut exporter = Self { names, table, collectors, options, parts, saved };
        exporter.save();
        exporter
    }

    pub(crate) fn save(&mut self) {
        let at = Instant::now();
        let sections = self.parts.iter().map(|(name, part)| (*name, part.save().unwrap())).collect();
        self.saved = Saved { at, sections, table: durable_state::encode(&self.table.save()) };
    }

    /// As at SIGTERM.
    pub(crate) fn read_last(&self, collector: &str) {
        self.parts.iter().filter(|(name, _)| *name == collector).for_each(|(_, part)| part.read_last());
    }

    /// The kernel's events are taken in, and the node's counters are read.
    pub(crate) fn wake(&mut self) {
        self.table.process_events();
        self.table.run_due();
        for (_, built) in self.collectors.iter().filter(|(name, _)| self.names.contains(name)) {
            built.source.iter().for_each(|source| source.read_now(Call::Exclusive));
        }
        self.save();
    }

    /// A collection, and its page, which a reader gets or not. `meanwhile` happens after the last collector, and the table
    /// takes it in before the sums are made.
    pub(crate) fn scrape(&mut self, served: bool, meanwhile: impl FnOnce()) -> (NodeSnapshot, Exposition) {
        let snapshot = self.table.snapshot();
        let mut sections = Vec::new();
        for (name, built) in self.collectors.iter_mut().filter(|(name, _)| self.names.contains(name)) {
            let mut section = Section::default();
            built
                .collector
                .collect(&snapshot, &mut section)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            sections.push((sections.len(), Arc::new(section)));
        }
        meanwhile();
        self.table.process_events();
        let summary = self.collectors.iter().find_map(|(_, built)| built.summary.clone()).unwrap();
        // As the engine: before the page is made.
        summary.take_in(&snapshot, &sections);
        self.save();
        let mut owners = Section::default();
        summary.summarize(&snapshot, &sections, &mut owners);
        sections.push((sections.len(), Arc::new(owners)));
        let sections: Vec<_> = sections.into_iter().map(|(_, section)| section).collect();
        if served {
            self.table.delivered(&Reader::User("prometheus".to_owned()), &snapshot.jobs);
        }
        let mut text = String::new();
        encode_openmetrics(&sections, &mut text).unwrap();
        (snapshot, parse(text.as_bytes(), Format::OpenMetrics).unwrap())
    }
}

/// A node with eight CPUs on a socket that is measured, a disk, and no job.
pub(crate) fn machine() -> Machine {
    let machine = Machine::empty();
    machine.write("cgroup/cgroup.controllers", "cpuset cpu memory\n").write("cgroup/cgroup.procs", "");
    machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
    machine.write(format!("{SCOPE}/system/cpu.stat"), stat(0));
    machine.write(format!("{SCOPE}/system/cgroup.procs"), "");
    machine.write("sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        machine.write(format!("{dir}/physical_package_id"), "0\n");
    }
    let idle: String = (0..8).map(|cpu| format!("cpu{cpu} 0 0 0 100 0\n")).collect();
    machine.write("proc/stat", idle);
    machine.write(format!("{ZONE}/name"), "package-0\n");
    machine.write(format!("{ZONE}/max_energy_range_uj"), "262143328850\n");
    show_joules(&machine, 0);
    machine.mkdir("sys/block/sda");
    machine.write("proc/diskstats", diskstats(1));
    machine
}

/// A job with so many CPUs, which is a day old.
pub(crate) fn lay_out(machine: &Machine, id: u32, cpus: u32) {
    let raw = format!("made/job_{id}");
    for dir in ["", "/step_0", "/step_0/user", "/step_0/user/task_0"] {
        let dir = format!("{raw}{dir}");
        machine.write(format!("{dir}/cgroup.procs"), "").write(format!("{dir}/cpu.stat"), stat(0));
        machine.write(format!("{dir}/cgroup.events"), "populated 1\n");
        machine.write(format!("{dir}/cpuset.cpus"), list(cpus));
        machine.write(format!("{dir}/cpuset.cpus.effective"), list(cpus));
        machine.write(format!("{dir}/cpuset.mems.effective"), "0\n");
        machine.write(format!("{dir}/memory.current"), "4096\n");
        machine.write(format!("{dir}/memory.max"), "max\n").write(format!("{dir}/memory.high"), "max\n");
    }
    let dir = File::open(machine.path(&raw)).unwrap();
    dir.set_modified(SystemTime::now() - Duration::from_secs(DAY)).unwrap();
    machine.rename(raw, format!("{SCOPE}/job_{id}"));
}

/// A job's directory is removed.
pub(crate) fn remove(machine: &Machine, id: u32) {
    let gone = format!("gone/job_{id}");
    machine.rename(format!("{SCOPE}/job_{id}"), &gone).remove(format!("{gone}/cgroup.procs"));
}

/// SLURM gives a job other CPUs.
pub(crate) fn resize(machine: &Machine, id: u32, cpus: u32) {
    for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
        machine.write(format!("{SCOPE}/job_{id}/{file}"), list(cpus));
    }
}

pub(crate) fn show_joules(machine: &Machine, joules: u64) {
    machine.write(format!("{ZONE}/energy_uj"), format!("{}\n", joules * 1_000_000));
}

pub(crate) fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

fn list(cpus: u32) -> String {
    format!("0-{}\n", cpus - 1)
}

pub(crate) fn diskstats(sectors: u64) -> String {
    format!("   8       0 sda {sectors} 0 {sectors} 5 7 0 7 5 0 5 10\n")
}
