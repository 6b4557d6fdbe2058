//! Random histories with restarts and crashes of the exporter have the same counters as the history without. Two exporters
//! look at the same files; one of them is restarted. No threads: the history is the schedule.

mod files;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use durable_state::Sections;
use exposition::{Section, encode_openmetrics};
use jobledger_exporter::collector::devices::energy::EnergyOptions;
use jobledger_exporter::collector::durable::{Before, Durable};
use jobledger_exporter::collector::interval_reader::{Call, OccupancyObserver};
use jobledger_exporter::collector::job::perf::PerfOptions;
use jobledger_exporter::collector::{BuildContext, Built, REGISTRY};
use jobledger_testkit::exposition::{Format, parse};
use jobledger_testkit::machine::Machine;
use kernel_files::Roots;
use perf_counters::testing::{Opener, World, plan};
use proptest::prelude::*;
use slurm_jobs::table::{MOST_RETAINED, SavedTable, Table, TableOptions};
use slurm_jobs::{JobObserver, Levels, Reader, Users};

use self::files::{diskstats, list, lustre, nfs, stat};
use crate::history::usec;

const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
const ZONE: &str = "sys/class/powercap/intel-rapl:0";
const COLLECTORS: [&str; 8] = ["cpu", "cpuset", "energy", "lustre", "nfs", "node_disk", "owners", "perf"];
/// They go on while the two exporters are read one after the other.
const MOVING: [&str; 3] = [
    "jobledger_job_allocated_cpu_seconds_total",
    "jobledger_owner_allocated_cpu_seconds_total",
    "jobledger_owner_unused_cpu_seconds_total",
];
const DAY: u64 = 86_400;
const IDS: u32 = 3;

#[derive(Debug, Clone)]
enum Op {
    /// A job starts with so many CPUs.
    Start(u32),
    /// A job ends.
    End(u32),
    /// SLURM gives a job other CPUs.
    Resize(u32, u32),
    /// A job uses CPU time, no job does, the socket uses energy, the disk is written.
    Spend(u32, u64),
    Unseen(u64),
    Joules(u64),
    Write(u64),
    /// A file of an NFS mount or of Lustre is read.
    Nfs(u64),
    Lustre(u64),
    /// A CPU works, whose counters the jobs on it have.
    Work(u32, u64),
    Scrape,
    /// The exporter is ended by SIGTERM, or killed; another one starts.
    Restart,
    Crash,
}

fn history() -> impl Strategy<Value = Vec<Op>> {
    let id = 1..=IDS;
    let op = prop_oneof![
        2 => (1..=4_u32).prop_map(Op::Start),
        2 => id.clone().prop_map(Op::End),
        1 => (id.clone(), 1..=4_u32).prop_map(|(id, cpus)| Op::Resize(id, cpus)),
        4 => (id, 1..5_000_000_u64).prop_map(|(id, usec)| Op::Spend(id, usec)),
        1 => (1..5_000_000_u64).prop_map(Op::Unseen),
        4 => (1..500_u64).prop_map(Op::Joules),
        2 => (1..5000_u64).prop_map(Op::Write),
        2 => (1..5000_u64).prop_map(Op::Nfs),
        2 => (1..5000_u64).prop_map(Op::Lustre),
        2 => (0..4_u32, 1..5000_u64).prop_map(|(cpu, cycles)| Op::Work(cpu, cycles)),
        3 => Just(Op::Scrape),
        2 => Just(Op::Restart),
        2 => Just(Op::Crash),
    ];
    proptest::collection::vec(op, 1..40)
}

/// What one process has saved.
struct Saved {
    at: Instant,
    sections: Vec<(&'static str, Vec<u8>)>,
    table: Vec<u8>,
}

/// An exporter without threads.
struct Exporter {
    table: Table,
    collectors: Vec<(&'static str, Built)>,
    parts: Vec<(&'static str, Arc<dyn Durable>)>,
    /// What a crash leaves.
    saved: Saved,
    /// By series.
    counters: BTreeMap<String, f64>,
}

impl Exporter {
    fn start(machine: &Machine, hardware: &Arc<World>, before: Option<&Saved>) -> Self {
        let at = |dir: &str| machine.path(dir);
        let roots = Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")));
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(roots.clone(), users.clone());
        context.options.set(EnergyOptions { pause: Duration::ZERO, ..EnergyOptions::default() });
        let open = Arc::new(Opener(hardware.clone()));
        let plan = Some(Arc::new(hardware.plan.clone()));
        context.options.set(PerfOptions { plan, open, ..PerfOptions::default() });
        let collectors: Vec<_> = REGISTRY.iter().map(|entry| (entry.name, (entry.build)(&context))).collect();
        let occupancy: (_, Arc<dyn Durable>) = ("occupancy", context.interval_reader.clone());
        let parts = collectors.iter().filter_map(|(name, built)| Some((*name, built.durable.clone()?)));
        let parts: Vec<_> = std::iter::once(occupancy).chain(parts).collect();
        let observer: Arc<dyn JobObserver> = Arc::new(OccupancyObserver(context.interval_reader.clone()));
        let chosen = collectors.iter().filter(|(name, _)| COLLECTORS.contains(name));
        let hooks = chosen.filter_map(|(_, built)| built.observer.clone());
        let options = TableOptions {
            retention: Duration::ZERO,
            retention_max: Duration::from_secs(3600),
            readers: 1,
            most_retained: MOST_RETAINED,
            stale_after: Duration::from_secs(3600),
            levels: Levels::default(),
            job_labels: Vec::new(),
            jobs_dir: None,
            environment_hints: false,
        };
        let hooks = std::iter::once(observer).chain(hooks).collect();
        let mut table = Table::new(roots, options, users, hooks);
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
        let mut exporter = Self { table, collectors, parts, saved, counters: BTreeMap::new() };
        // The counters of the jobs that were found are opened by now, on whichever thread.
        exporter.read_last("perf");
        exporter.save();
        exporter
    }

    /// As at SIGTERM.
    fn read_last(&self, collector: &str) {
        self.parts.iter().filter(|(name, _)| *name == collector).for_each(|(_, part)| part.read_last());
    }

    fn save(&mut self) {
        let at = Instant::now();
        let sections = self.parts.iter().map(|(name, part)| (*name, part.save().unwrap())).collect();
        self.saved = Saved { at, sections, table: durable_state::encode(&self.table.save()) };
    }

    /// The kernel's events are taken in, and the node's counters are read.
    fn wake(&mut self) {
        self.table.process_events();
        self.table.run_due();
        for (_, built) in self.collectors.iter().filter(|(name, _)| COLLECTORS.contains(name)) {
            built.source.iter().for_each(|source| source.read_now(Call::Exclusive));
        }
        self.save();
    }

    fn scrape(&mut self) {
        let snapshot = self.table.snapshot();
        let mut sections = Vec::new();
        for (name, built) in self.collectors.iter_mut().filter(|(name, _)| COLLECTORS.contains(name)) {
            let mut section = Section::default();
            built
                .collector
                .collect(&snapshot, &mut section)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            sections.push((sections.len(), Arc::new(section)));
        }
        let summary = self.collectors.iter().find_map(|(_, built)| built.summary.clone()).unwrap();
        // As the engine: before the page is made.
        summary.take_in(&snapshot, &sections);
        self.save();
        let mut owners = Section::default();
        summary.summarize(&snapshot, &sections, &mut owners);
        sections.push((sections.len(), Arc::new(owners)));
        let sections: Vec<_> = sections.into_iter().map(|(_, section)| section).collect();
        self.table.delivered(&Reader::User("prometheus".to_owned()), &snapshot.jobs);
        let mut text = String::new();
        encode_openmetrics(&sections, &mut text).unwrap();
        let parsed = parse(text.as_bytes(), Format::OpenMetrics).unwrap();
        let counters = parsed.samples().filter(|sample| sample.name.ends_with("_total"));
        self.counters = counters.map(|sample| (series(sample), sample.value)).collect();
        self.check_owners(&parsed);
    }
}

impl Exporter {
    /// Owners and the unattributed rest are the node, to the last digit.
    fn check_owners(&self, page: &jobledger_testkit::exposition::Exposition) {
        let micro = |name: &str| -> u64 { page.named(name).map(|s| usec(&s.text)).sum() };
        for (owners, rest, node) in [
            (
                "jobledger_owner_cpu_seconds_total",
                "jobledger_node_slurm_cpu_unattributed_seconds_total",
                "jobledger_node_slurm_cpu_seconds_total",
            ),
            (
                "jobledger_owner_energy_joules_total",
                "jobledger_node_energy_unattributed_joules_total",
                "jobledger_node_energy_joules_total",
            ),
        ] {
            assert_eq!(micro(owners) + micro(rest), micro(node), "{owners}");
        }
    }
}

fn series(sample: &jobledger_testkit::exposition::Sample) -> String {
    format!("{}{:?}", sample.name, sample.labels)
}

/// The node, and both exporters.
struct Node {
    machine: Machine,
    hardware: Arc<World>,
    began: Instant,
    straight: Exporter,
    restarted: Exporter,
    /// CPU time of the jobs that are there, microseconds.
    jobs: BTreeMap<u32, u64>,
    scope: u64,
    joules: u64,
    sectors: u64,
    nfs: u64,
    lustre: u64,
    ids: u32,
    /// What a crash would lose was counted since the last scrape.
    unread: bool,
}

impl Node {
    fn new() -> Self {
        let machine = Machine::empty();
        machine.write("cgroup/cgroup.controllers", "cpuset cpu memory\n").write("cgroup/cgroup.procs", "");
        machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
        machine
            .write(format!("{SCOPE}/system/cpu.stat"), stat(0))
            .write(format!("{SCOPE}/system/cgroup.procs"), "");
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        for cpu in 0..8 {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            machine.write(format!("{dir}/physical_package_id"), "0\n");
        }
        let idle: String = (0..8).map(|cpu| format!("cpu{cpu} 0 0 0 100 0\n")).collect();
        machine.write("proc/stat", idle);
        machine.write(format!("{ZONE}/name"), "package-0\n");
        machine.write(format!("{ZONE}/max_energy_range_uj"), "262143328850\n");
        machine.write(format!("{ZONE}/energy_uj"), "0\n").mkdir("sys/block/sda");
        machine.write("proc/diskstats", diskstats(1));
        nfs(&machine, 1);
        lustre(&machine, 1);
        let hardware = Arc::new(World::new(plan()));
        let mut node = Self {
            straight: Exporter::start(&machine, &hardware, None),
            restarted: Exporter::start(&machine, &hardware, None),
            machine,
            hardware,
            began: Instant::now(),
            jobs: BTreeMap::new(),
            scope: 0,
            joules: 0,
            sectors: 1,
            nfs: 1,
            lustre: 1,
            ids: 100,
            unread: false,
        };
        // Jobs that are a day old, so that what they had until now matters.
        for id in 1..=2 {
            node.lay_out(id, 2);
        }
        node.straight = node.start(None);
        node.restarted = node.start(None);
        node.scrape();
        node
    }

    fn start(&self, before: Option<&Saved>) -> Exporter {
        Exporter::start(&self.machine, &self.hardware, before)
    }

    fn lay_out(&mut self, id: u32, cpus: u32) {
        let raw = format!("made/job_{id}");
        for dir in ["", "/step_0", "/step_0/user", "/step_0/user/task_0"] {
            let dir = format!("{raw}{dir}");
            self.machine.write(format!("{dir}/cgroup.procs"), "").write(format!("{dir}/cpu.stat"), stat(0));
            self.machine.write(format!("{dir}/cgroup.events"), "populated 1\n");
            self.machine.write(format!("{dir}/cpuset.cpus"), list(cpus));
            self.machine.write(format!("{dir}/cpuset.cpus.effective"), list(cpus));
            self.machine.write(format!("{dir}/cpuset.mems.effective"), "0\n");
        }
        let dir = File::open(self.machine.path(&raw)).unwrap();
        dir.set_modified(SystemTime::now() - Duration::from_secs(DAY)).unwrap();
        self.machine.rename(raw, format!("{SCOPE}/job_{id}"));
        self.jobs.insert(id, 0);
    }

    fn job(&self, id: u32) -> Option<u32> {
        // By place, so that histories hit jobs that are there.
        let there: Vec<u32> = self.jobs.keys().copied().collect();
        there.get(usize::try_from(id).unwrap() % there.len().max(1)).copied()
    }

    fn scope_spends(&mut self, usec: u64) {
        self.scope += usec;
        self.machine.write(format!("{SCOPE}/cpu.stat"), stat(self.scope));
    }

    fn each(&mut self, f: impl Fn(&mut Exporter)) {
        f(&mut self.straight);
        f(&mut self.restarted);
    }

    /// A change of the jobs, between two readings of the node: the power in between is a mean over time otherwise, and
    /// the two exporters do not read at the same nanosecond.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        self.scrape();
        change(self);
        self.each(Exporter::wake);
        self.scrape();
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Start(cpus) if self.jobs.len() < usize::try_from(IDS).unwrap() => {
                self.ids += 1;
                let id = self.ids;
                self.change(|node| node.lay_out(id, cpus));
            }
            Op::End(id) => {
                let Some(id) = self.job(id) else { return };
                self.change(|node| {
                    node.jobs.remove(&id);
                    let gone = format!("gone/job_{id}");
                    node.machine
                        .rename(format!("{SCOPE}/job_{id}"), &gone)
                        .remove(format!("{gone}/cgroup.procs"));
                });
            }
            Op::Resize(id, cpus) => {
                let Some(id) = self.job(id) else { return };
                self.change(|node| {
                    for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
                        node.machine.write(format!("{SCOPE}/job_{id}/{file}"), list(cpus));
                    }
                });
            }
            Op::Spend(id, usec) => {
                let Some(id) = self.job(id) else { return };
                let spent = self.jobs.get_mut(&id).unwrap();
                *spent += usec;
                self.machine.write(format!("{SCOPE}/job_{id}/cpu.stat"), stat(*spent));
                self.scope_spends(usec);
            }
            Op::Unseen(usec) => self.scope_spends(usec),
            Op::Joules(joules) => {
                self.joules += joules;
                self.machine.write(format!("{ZONE}/energy_uj"), format!("{}\n", self.joules * 1_000_000));
            }
            Op::Write(sectors) => {
                self.sectors += sectors;
                self.machine.write("proc/diskstats", diskstats(self.sectors));
            }
            Op::Nfs(bytes) => {
                self.nfs += bytes;
                nfs(&self.machine, self.nfs);
            }
            Op::Lustre(bytes) => {
                self.lustre += bytes;
                lustre(&self.machine, self.lustre);
            }
            Op::Work(cpu, cycles) => {
                self.hardware.run(cpu, "flops", (cycles, cycles), &[cycles, cycles]);
                self.unread = true;
            }
            Op::Scrape => self.scrape(),
            Op::Restart => {
                self.restarted.read_last("perf");
                self.restarted.save();
                self.restarted = self.start(Some(&self.restarted.saved));
            }
            Op::Crash => {
                // A crash loses the counts of descriptors since they were read last.
                if self.unread {
                    self.scrape();
                }
                self.restarted = self.start(Some(&self.restarted.saved));
            }
            Op::Start(_) => {}
        }
    }

    fn scrape(&mut self) {
        self.unread = false;
        let before = std::mem::take(&mut self.restarted.counters);
        self.each(Exporter::scrape);
        let (one, other) = (&self.straight.counters, &self.restarted.counters);
        let most = self.began.elapsed().as_secs_f64() * 8.0 + 1.0;
        for (series, value) in one {
            let found = other.get(series).unwrap_or_else(|| panic!("{series} is lost: {other:#?}"));
            let tolerance = if MOVING.iter().any(|name| series.starts_with(name)) { most } else { 1e-4 };
            assert!((found - value).abs() <= tolerance, "{series}: {found} after restarts, {value} without");
        }
        for (series, value) in &before {
            assert!(other.get(series).is_none_or(|now| now >= value), "{series} fell from {value}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_history_with_restarts_and_crashes_has_the_counters_of_one_without(ops in history()) {
        let mut node = Node::new();
        for op in &ops {
            node.apply(op);
        }
        node.scrape();
        node.scrape();
        let series = |exporter: &Exporter| exporter.counters.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(series(&node.straight), series(&node.restarted));
    }
}

/// A state as this version saves it. A change of a saved type changes it: then `LAYOUT` has to be another one, or a later version
/// misreads what an earlier one saved. `JOBLEDGER_BLESS=1` records it.
#[test]
fn what_is_saved_has_the_recorded_layout() {
    let mut node = Node::new();
    for op in [
        Op::Joules(40),
        Op::Spend(1, 5_000_000),
        Op::Write(77),
        Op::Nfs(50),
        Op::Lustre(60),
        Op::Work(0, 70),
        Op::Scrape,
        Op::Start(3),
        Op::End(0),
        Op::Scrape,
    ] {
        node.apply(&op);
    }
    let of = |name: &str| {
        node.restarted
            .counters
            .iter()
            .filter(|(series, _)| series.starts_with(name))
            .map(|(_, value)| value)
            .sum::<f64>()
    };
    for (counter, most) in [
        ("jobledger_job_cycles_total", 140.0),
        ("jobledger_node_nfs_read_bytes_total", 50.0),
        ("jobledger_node_lustre_read_bytes_total", 60.0),
    ] {
        assert!((1.0..=most).contains(&of(counter)), "{counter} counts {}", of(counter));
    }
    let file = jobledger_testkit::machine::fixtures_dir()
        .join(format!("../state/layout-{}", jobledger_exporter::app::LAYOUT));
    let saved = &node.restarted.saved;
    if std::env::var_os("JOBLEDGER_BLESS").is_some() {
        let named = saved.sections.iter().map(|(name, section)| ((*name).to_owned(), section.clone()));
        let sections = named.chain([("table".to_owned(), saved.table.clone())]).collect();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, durable_state::encode(&Sections { saved: saved.at, sections })).unwrap();
    }
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}: record it", file.display()));
    let recorded: Sections = durable_state::decode(&bytes).unwrap();
    let table: SavedTable =
        durable_state::decode(recorded.get("table").unwrap()).expect("the table has another layout");
    assert!(table.runs().len() >= 2);
    let before = Before { runs: table.runs(), seen: recorded.saved };
    let exporter = node.start(None);
    assert_eq!(exporter.parts.len() + 1, recorded.sections.len(), "a part came or went");
    for (name, part) in &exporter.parts {
        let section = recorded.get(name).unwrap_or_else(|| panic!("{name} has another name"));
        assert!(!section.is_empty(), "{name} could not be encoded");
        part.restore(section, &before)
            .unwrap_or_else(|error| panic!("{name}: {error}: increase LAYOUT and record it"));
    }
}
