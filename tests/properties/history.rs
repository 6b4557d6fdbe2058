//! Random histories of a node: jobs start, spend, end and are requeued in a tree of files, the job table and the CPU
//! collector follow them, and at every scrape the ledger balances, to the last digit of the page's decimals. No threads:
//! the history is the schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exposition::{Section, encode_openmetrics};
use jobledger_exporter::collector::{BuildContext, Built, REGISTRY};
use jobledger_testkit::exposition::{Format, parse};
use jobledger_testkit::scratch::Scratch;
use kernel_files::Roots;
use proptest::prelude::*;
use slurm_jobs::table::{MOST_RETAINED, Table, TableOptions};
use slurm_jobs::{JobRunId, Levels, NodeSnapshot, Reader, Users};

const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
const IDS: u32 = 4;

#[derive(Debug, Clone)]
enum Op {
    /// A job's directory is made, with a step.
    Start(u32),
    /// Its processes spend time.
    Spend(u32, u64),
    /// Its step's last process leaves.
    StepEnds(u32),
    /// A job starts, spends and leaves its directory without a process, as SLURM may leave it behind; it is used again.
    StartEmpty(u32, u64),
    UseAgain(u32),
    /// Its directory is removed, after its slurmstepd spent a little more.
    Remove(u32, u64),
    /// A job whose id is never found out starts, spends and ends.
    Unidentified(u64),
    /// SLURM's own processes spend time: slurmd in `system`, and cgroups nobody saw.
    Own(u64),
    Unseen(u64),
    /// The thread that follows the jobs wakes up.
    Wake,
    /// A scrape is made, and served or not.
    Scrape(bool),
}

fn history() -> impl Strategy<Value = Vec<Op>> {
    let id = 1..=IDS;
    let usec = 1..5_000_000_u64;
    let op = prop_oneof![
        3 => id.clone().prop_map(Op::Start),
        6 => (id.clone(), usec.clone()).prop_map(|(id, usec)| Op::Spend(id, usec)),
        2 => id.clone().prop_map(Op::StepEnds),
        3 => (id, 0..20_000_u64).prop_map(|(id, usec)| Op::Remove(id, usec)),
        1 => usec.clone().prop_map(Op::Own),
        1 => usec.prop_map(Op::Unseen),
        4 => Just(Op::Wake),
        4 => any::<bool>().prop_map(Op::Scrape),
    ];
    proptest::collection::vec(op, 1..80)
}

/// A history with job runs that are not retained until a scrape shows their end, and some whose id is never known.
fn history_with_drops() -> impl Strategy<Value = Vec<Op>> {
    let id = 1..=9_u32;
    let usec = 1..5_000_000_u64;
    let op = prop_oneof![
        4 => id.clone().prop_map(Op::Start),
        6 => (id.clone(), usec.clone()).prop_map(|(id, usec)| Op::Spend(id, usec)),
        2 => id.clone().prop_map(Op::StepEnds),
        4 => (id, 0..20_000_u64).prop_map(|(id, usec)| Op::Remove(id, usec)),
        2 => usec.clone().prop_map(Op::Unidentified),
        1 => usec.prop_map(Op::Unseen),
        6 => Just(Op::Wake),
        2 => any::<bool>().prop_map(Op::Scrape),
    ];
    proptest::collection::vec(op, 1..120)
}

/// A history of directories that are left behind and used again. Each id has one directory, since the runs in one
/// directory cannot be distinguished from outside.
fn history_of_leftovers() -> impl Strategy<Value = Vec<Op>> {
    let id = 3..12_u32;
    let usec = 1..5_000_000_u64;
    let op = prop_oneof![
        1 => id.clone().prop_map(Op::Start),
        3 => (id.clone(), usec.clone()).prop_map(|(id, usec)| Op::StartEmpty(id, usec)),
        3 => id.clone().prop_map(Op::UseAgain),
        5 => (id.clone(), usec.clone()).prop_map(|(id, usec)| Op::Spend(id, usec)),
        1 => (id, 0..20_000_u64).prop_map(|(id, usec)| Op::Remove(id, usec)),
        1 => usec.prop_map(Op::Unseen),
        3 => Just(Op::Wake),
        6 => any::<bool>().prop_map(Op::Scrape),
    ];
    proptest::collection::vec(op, 1..80)
}

/// The node as it is, and what its exporter should know of it.
struct Node {
    dir: Scratch,
    table: Table,
    cpu: Built,
    /// What owners used, of the same samples.
    owners: Built,
    /// What running jobs have spent, by id.
    running: BTreeMap<u32, u64>,
    /// Ids that were used, where each may be used once.
    used: Option<BTreeSet<u32>>,
    /// Directories without a process.
    empty: BTreeSet<u32>,
    own: u64,
    /// The scope's counter, which keeps what is gone.
    spent: u64,
    before: u64,
    exported_so_far: Exported,
}

/// What was published so far, in microseconds.
#[derive(Default)]
struct Exported {
    total: u64,
    residual: u64,
    /// By run, or by id where that has one directory.
    jobs: BTreeMap<u64, u64>,
    ends: BTreeSet<JobRunId>,
    /// Runs that were seen running: their end has to be exported.
    seen: BTreeSet<JobRunId>,
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

/// The microseconds of a decimal of seconds, exactly as it is written.
fn usec(seconds: &str) -> u64 {
    let (whole, fraction) = seconds.split_once('.').unwrap_or_else(|| panic!("{seconds} has no point"));
    assert!(fraction.len() <= 6, "{seconds} is finer than what was measured");
    format!("{whole}{fraction:0<6}").parse().unwrap_or_else(|_| panic!("{seconds} is no decimal"))
}

impl Node {
    /// A node on which jobs 1 and 2 run already, and others did.
    fn new(ids_are_used_once: bool) -> Self {
        Self::retaining(ids_are_used_once, MOST_RETAINED)
    }

    /// The same with so many ended job runs that are retained.
    fn retaining(ids_are_used_once: bool, most_retained: usize) -> Self {
        let dir = Scratch::new("history");
        for sub in ["proc", "sys", "dev", SCOPE, &format!("{SCOPE}/system")] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "cpu\n").unwrap();
        fs::write(dir.path().join(SCOPE).join("cgroup.procs"), "").unwrap();
        let at = |sub: &str| dir.path().join(sub);
        let roots = Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")));
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let entry = REGISTRY.iter().find(|entry| entry.name == "cpu").unwrap();
        let context = BuildContext::new(roots.clone(), users.clone());
        let cpu = (entry.build)(&context);
        let entry = REGISTRY.iter().find(|entry| entry.name == "owners").unwrap();
        let owners = (entry.build)(&context);
        let options = TableOptions {
            retention: Duration::ZERO,
            retention_max: Duration::from_secs(3600),
            readers: 1,
            most_retained,
            // At the second look: a job is read at least once before.
            stale_after: if ids_are_used_once { Duration::from_nanos(1) } else { Duration::from_secs(3600) },
            levels: Levels::default(),
            job_labels: Vec::new(),
            jobs_dir: None,
            environment_hints: false,
        };
        let table =
            Table::new(roots, options, users, cpu.observer.iter().chain(&owners.observer).cloned().collect());
        let (running, exported_so_far) = (BTreeMap::new(), Exported::default());
        let used = ids_are_used_once.then(BTreeSet::new);
        let (spent, before) = (123_456_789, 123_456_789);
        let mut node = Self {
            dir,
            table,
            cpu,
            owners,
            running,
            used,
            empty: BTreeSet::new(),
            own: 0,
            spent,
            before,
            exported_so_far,
        };
        for id in [1, 2] {
            node.apply(&Op::Start(id));
            node.apply(&Op::Spend(id, 1_000_000));
        }
        node
    }

    fn job(&self, id: u32) -> PathBuf {
        self.dir.path().join(SCOPE).join(format!("job_{id}"))
    }

    fn write_sums(&self) {
        for (id, spent) in &self.running {
            fs::write(self.job(*id).join("cpu.stat"), stat(*spent)).unwrap();
        }
        let scope = self.dir.path().join(SCOPE);
        fs::write(scope.join("system/cpu.stat"), stat(self.own)).unwrap();
        fs::write(scope.join("cpu.stat"), stat(self.spent)).unwrap();
    }

    /// Lets something happen. What cannot (an end without a start) does not.
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Start(id) if !self.running.contains_key(&id) => {
                if self.used.as_mut().is_some_and(|used| !used.insert(id)) {
                    return;
                }
                let user = self.job(id).join("step_0/user");
                fs::create_dir_all(&user).unwrap();
                fs::write(user.join("cgroup.events"), "populated 1\n").unwrap();
                fs::write(self.job(id).join("cgroup.procs"), "").unwrap();
                fs::write(self.job(id).join("cgroup.events"), "populated 1\n").unwrap();
                self.running.insert(id, 0);
                self.write_sums();
            }
            Op::Spend(id, usec) if !self.empty.contains(&id) => {
                if let Some(spent) = self.running.get_mut(&id) {
                    *spent += usec;
                    self.spent += usec;
                    self.write_sums();
                }
            }
            Op::StepEnds(id) if self.running.contains_key(&id) => {
                let events = self.job(id).join("step_0/user/cgroup.events");
                fs::write(events, "populated 0\n").unwrap();
            }
            Op::Remove(id, late) if self.running.contains_key(&id) => {
                self.apply(&Op::Spend(id, late));
                self.running.remove(&id);
                self.empty.remove(&id);
                fs::remove_dir_all(self.job(id)).unwrap();
            }
            Op::StartEmpty(id, usec) if !self.running.contains_key(&id) => {
                self.apply(&Op::Start(id));
                if self.running.contains_key(&id) {
                    self.apply(&Op::Spend(id, usec));
                    fs::write(self.job(id).join("cgroup.events"), "populated 0\n").unwrap();
                    self.empty.insert(id);
                }
            }
            Op::UseAgain(id) if self.running.contains_key(&id) => {
                fs::write(self.job(id).join("cgroup.events"), "populated 1\n").unwrap();
                self.empty.remove(&id);
            }
            Op::Unidentified(usec) => {
                let dir = self.dir.path().join(SCOPE).join("sDNHM7VZHTTA00");
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("cgroup.procs"), "").unwrap();
                fs::write(dir.join("cgroup.events"), "populated 1\n").unwrap();
                self.apply(&Op::Wake);
                self.spent += usec;
                self.write_sums();
                fs::write(dir.join("cpu.stat"), stat(usec)).unwrap();
                self.scrape(false);
                fs::remove_dir_all(dir).unwrap();
            }
            Op::Own(usec) => {
                self.own += usec;
                self.spent += usec;
                self.write_sums();
            }
            Op::Unseen(usec) => {
                self.spent += usec;
                self.write_sums();
            }
            Op::Wake => {
                self.table.process_events();
                self.table.run_due();
            }
            Op::Scrape(served) => self.scrape(served),
            Op::Start(_)
            | Op::StartEmpty(..)
            | Op::UseAgain(_)
            | Op::Spend(..)
            | Op::StepEnds(_)
            | Op::Remove(..) => {}
        }
    }

    fn scrape(&mut self, served: bool) {
        let snapshot = self.table.snapshot();
        let mut section = Section::default();
        self.cpu.collector.collect(&snapshot, &mut section).unwrap();
        let (sections, mut owners) = ([(0, Arc::new(section))], Section::default());
        self.owners.summary.as_ref().unwrap().summarize(&snapshot, &sections, &mut owners);
        let mut text = String::new();
        encode_openmetrics(&[sections[0].1.clone(), Arc::new(owners)], &mut text).unwrap();
        self.check(&snapshot, &text);
        if served {
            for job in snapshot.jobs.iter().filter(|job| !job.is_running()) {
                self.exported_so_far.ends.insert(job.run);
            }
            self.table.delivered(&Reader::User("prometheus".to_owned()), &snapshot.jobs);
        }
        self.exported_so_far
            .seen
            .extend(snapshot.jobs.iter().chain(&snapshot.pending).filter(|j| j.is_running()).map(|j| j.run));
    }

    fn check(&mut self, snapshot: &NodeSnapshot, text: &str) {
        let exposition = parse(text.as_bytes(), Format::OpenMetrics).unwrap();
        let value = |name| {
            let mut all = exposition.named(name);
            let first = usec(&all.next().unwrap().text);
            assert_eq!(all.next(), None, "{name} is one series");
            first
        };
        let residual = value("jobledger_node_slurm_cpu_unattributed_seconds_total");
        let total = value("jobledger_node_slurm_cpu_seconds_total");
        for job in &snapshot.jobs {
            let id = job.id.unwrap();
            let key = if self.used.is_some() { u64::from(id.0) } else { job.run.0 };
            let id = id.to_string();
            let all = exposition.named("jobledger_job_cpu_seconds_total");
            let now: u64 = all.filter(|s| s.label("jobid") == Some(&id)).map(|s| usec(&s.text)).sum();
            let before = self.exported_so_far.jobs.insert(key, now).unwrap_or(0);
            assert!(now >= before, "{:?} of job {id} went from {before} to {now}", job.run);
        }
        // Dropped ones keep their last exported value.
        let closed: u64 = self.exported_so_far.jobs.values().sum();
        assert_eq!(closed + residual, total, "all jobs ever exported {closed} and {residual} unattributed");
        let owners: u64 = exposition.named("jobledger_owner_cpu_seconds_total").map(|s| usec(&s.text)).sum();
        assert_eq!(owners + residual, total, "owners {owners} and {residual} unattributed");
        assert!(residual >= self.exported_so_far.residual, "the residual shrank");
        assert!(
            total >= self.exported_so_far.total,
            "the total shrank from {} to {total}",
            self.exported_so_far.total
        );
        // What is exported was used: since the start, or by jobs that ran at the start.
        assert!(total <= self.spent - self.before, "{total} us exported of {}", self.spent - self.before);
        (self.exported_so_far.total, self.exported_so_far.residual) = (total, residual);
    }

    /// Nothing runs any more: a few scrapes later the end of everything that was seen has been exported.
    fn settle(&mut self) {
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            self.apply(&Op::Remove(id, 0));
        }
        for _ in 0..40 {
            self.apply(&Op::Scrape(true));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_balances_whatever_happens_in_whatever_order(history in history()) {
        let mut node = Node::new(false);
        for op in &history {
            node.apply(op);
        }
        node.settle();
        let unexported: Vec<_> = node.exported_so_far.seen.difference(&node.exported_so_far.ends).collect();
        prop_assert!(unexported.is_empty(), "the end of {unexported:?} was never exported");
    }

    #[test]
    fn the_ledger_balances_when_job_runs_are_dropped_before_a_scrape_shows_their_end(
        history in history_with_drops(), most_retained in 0..4_usize
    ) {
        let mut node = Node::retaining(false, most_retained);
        for op in &history {
            node.apply(op);
        }
        node.settle();
    }

    #[test]
    fn the_ledger_balances_with_directories_left_behind_and_used_again(history in history_of_leftovers()) {
        let mut node = Node::new(true);
        for op in &history {
            node.apply(op);
        }
        node.settle();
    }
}

/// With a wake-up after every event the residual has only what no job used, and what was used before the first round.
#[test]
fn what_a_job_spends_before_its_steps_end_is_its_own_to_the_microsecond() {
    let mut node = Node::new(false);
    node.apply(&Op::Scrape(true));
    for id in [3, 4, 1, 2, 3] {
        node.apply(&Op::Start(id));
        node.apply(&Op::Wake);
        node.apply(&Op::Spend(id, 777_777));
        node.apply(&Op::StepEnds(id));
        node.apply(&Op::Wake);
        node.apply(&Op::Remove(id, 1_111));
        node.apply(&Op::Wake);
        node.apply(&Op::Scrape(true));
    }
    node.settle();
    assert_eq!(node.exported_so_far.total, node.spent - node.before);
    assert_eq!(node.exported_so_far.residual, 0, "the last time of a job that vanished alone is its own");
}

#[test]
fn a_directory_that_is_used_again_while_another_job_vanishes_is_exported_whole() {
    let history = [
        Op::Start(10),
        Op::Scrape(false),
        Op::StartEmpty(6, 1),
        Op::Scrape(false),
        Op::Scrape(true),
        Op::UseAgain(6),
        Op::Remove(10, 0),
        Op::Spend(6, 1),
        Op::Wake,
    ];
    let mut node = Node::new(true);
    history.iter().for_each(|op| node.apply(op));
    node.settle();
}

/// What a job run spent that is not retained any more is unattributed, and not found again in the next one that ends.
#[test]
fn a_job_is_not_charged_with_what_a_forgotten_one_spent() {
    let ends = |node: &mut Node, id: u32| {
        for op in [
            Op::Start(id),
            Op::Wake,
            Op::Spend(id, 1_000),
            Op::StepEnds(id),
            Op::Wake,
            Op::Remove(id, 0),
            Op::Wake,
        ] {
            node.apply(&op);
        }
    };
    for (most_retained, forgotten) in [(MOST_RETAINED, Op::Unidentified(5_000_000)), (1, Op::Wake)] {
        let mut node = Node::retaining(false, most_retained);
        node.apply(&Op::Scrape(true));
        node.apply(&forgotten);
        node.apply(&Op::Wake);
        if most_retained == 1 {
            // The second end drops the first job run, which no scrape showed.
            node.apply(&Op::Start(3));
            node.apply(&Op::Wake);
            node.apply(&Op::Spend(3, 5_000_000));
            node.apply(&Op::StepEnds(3));
            node.apply(&Op::Wake);
            node.apply(&Op::Remove(3, 0));
            node.apply(&Op::Wake);
            ends(&mut node, 4);
        }
        ends(&mut node, 5);
        node.apply(&Op::Scrape(true));
        let last = node.exported_so_far.jobs.iter().next_back().unwrap();
        assert_eq!(*last.1, 1_000, "of {last:?}");
        assert!(node.exported_so_far.residual >= 5_000_000, "{}", node.exported_so_far.residual);
    }
}
