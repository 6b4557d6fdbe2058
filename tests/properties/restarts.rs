//! Random histories with restarts and crashes of the exporter have the same counters as the history without. Two exporters
//! look at the same files; one of them is restarted. No threads: the history is the schedule.

mod files;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use durable_state::Sections;
use jobledger_exporter::collector::durable::Before;
use jobledger_exporter::collector::job::perf::PerfOptions;
use jobledger_exporter::collector::options::Options;
use jobledger_testkit::machine::Machine;
use perf_counters::testing::{Opener, World, plan};
use proptest::prelude::*;
use slurm_jobs::table::SavedTable;

use self::files::{lustre, nfs};
use crate::exporter::{
    self, SCOPE, Saved, Setup, diskstats, lay_out, machine, remove, resize, show_joules, stat, table_options,
};

const COLLECTORS: [&str; 8] = ["cpu", "cpuset", "energy", "lustre", "nfs", "node_disk", "owners", "perf"];
/// They go on while the two exporters are read one after the other.
const MOVING: [&str; 5] = [
    "jobledger_job_allocated_cpu_seconds_total",
    "jobledger_job_cpus_idle_seconds_total",
    "jobledger_node_allocated_cpu_seconds_total",
    "jobledger_owner_allocated_cpu_seconds_total",
    "jobledger_owner_unused_cpu_seconds_total",
];
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

/// An exporter, and the counters of its last page by series.
struct Exporter {
    exporter: exporter::Exporter,
    counters: BTreeMap<String, f64>,
}

impl Exporter {
    fn start(machine: &Machine, hardware: &Arc<World>, before: Option<&Saved>) -> Self {
        let options = |options: &mut Options| {
            let plan = Some(Arc::new(hardware.plan.clone()));
            let open = Arc::new(Opener(hardware.clone()));
            options.set(PerfOptions { plan, open, ..PerfOptions::default() });
        };
        let setup = Setup { collectors: &COLLECTORS, options: &options, table: table_options() };
        let mut exporter = exporter::Exporter::start(machine, &setup, before);
        // The counters of the jobs that were found are opened by now, on whichever thread.
        exporter.read_last("perf");
        exporter.save();
        Self { exporter, counters: BTreeMap::new() }
    }

    fn wake(&mut self) {
        self.exporter.wake();
    }

    fn scrape(&mut self) {
        let (_, page) = self.exporter.scrape(true, || ());
        let counters = page.samples().filter(|sample| sample.name.ends_with("_total"));
        self.counters = counters.map(|sample| (series(sample), sample.value)).collect();
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
        let machine = machine();
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
        lay_out(&self.machine, id, cpus);
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
                    remove(&node.machine, id);
                });
            }
            Op::Resize(id, cpus) => {
                let Some(id) = self.job(id) else { return };
                self.change(|node| resize(&node.machine, id, cpus));
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
                show_joules(&self.machine, self.joules);
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
                self.restarted.exporter.read_last("perf");
                self.restarted.exporter.save();
                self.restarted = self.start(Some(&self.restarted.exporter.saved));
            }
            Op::Crash => {
                // A crash loses the counts of descriptors since they were read last.
                if self.unread {
                    self.scrape();
                }
                self.restarted = self.start(Some(&self.restarted.exporter.saved));
            }
            Op::Start(_) => {}
        }
    }

    fn scrape(&mut self) {
        let before = std::mem::take(&mut self.restarted.counters);
        self.each(Exporter::scrape);
        self.unread = false;
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
    let saved = &node.restarted.exporter.saved;
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
    let parts = &exporter.exporter.parts;
    assert_eq!(parts.len() + 1, recorded.sections.len(), "a part came or went");
    for (name, part) in parts {
        let section = recorded.get(name).unwrap_or_else(|| panic!("{name} has another name"));
        assert!(!section.is_empty(), "{name} could not be encoded");
        part.restore(section, &before)
            .unwrap_or_else(|error| panic!("{name}: {error}: increase LAYOUT and record it"));
    }
}
