mod steps;
mod v1;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use perf_counters::catalogue::{Catalogue, Class, Extent};
use perf_counters::sharing::{CounterOwnership, Reason};
use perf_counters::testing::{Opener, World, plan};
use perf_counters::{CacheLevel, Event, Flow, Group, Plan, Precision, Quantity, Width, planner};
use perf_events::{Attr, OpenError};
use slurm_jobs::{Disposition, Job, JobRunId, Levels, Users};

use super::*;
use crate::collector::testing::{Bench, Machine, ended, job, snapshot_of, value};
use crate::collector::{BuildContext, CollectError};

/// A node of eight CPUs with counters that the test moves.
struct Node {
    machine: Machine,
    world: Arc<World>,
    levels: Levels,
    ownership: CounterOwnership,
    bench: Bench,
    /// The jobs whose start was reported.
    started: BTreeSet<JobRunId>,
}

/// What the collector is built from.
fn context(machine: &Machine, world: &Arc<World>, options: PerfOptions) -> BuildContext {
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    let mut context = BuildContext::new(Arc::new(machine.roots()), users);
    context.options.set(PerfOptions { open: Arc::new(Opener(world.clone())), ..options });
    context
}

impl Node {
    fn new(plan: Plan, most_descriptors: Option<usize>) -> Self {
        let plan = Some(Arc::new(plan));
        Self::with(PerfOptions { plan, most_descriptors, ..PerfOptions::default() }, |_| {})
    }

    /// `set_up` is done to the world before anything is counted.
    fn with(options: PerfOptions, set_up: impl FnOnce(&World)) -> Self {
        let machine = Machine::new();
        machine.write("sys/devices/system/cpu/online", "0-7\n");
        let world = Arc::new(World::new(options.plan.as_deref().unwrap().clone()));
        set_up(&world);
        let levels = options.levels;
        let context = context(&machine, &world, options);
        let bench = Bench::with_context(&ENTRY, &context);
        Self { machine, world, levels, ownership: context.ownership, bench, started: BTreeSet::new() }
    }

    /// Another exporter takes over, which knows these runs still.
    fn restart(&mut self, plan: Plan, runs: &[JobRunId]) {
        let options =
            PerfOptions { plan: Some(Arc::new(plan)), levels: self.levels, ..PerfOptions::default() };
        let context = context(&self.machine, &self.world, options);
        self.bench = self.bench.restarted(&ENTRY, &context, runs);
        self.ownership = context.ownership;
        self.started.clear();
    }

    /// Reports the starts of running jobs, as it is done before any scrape has them.
    fn start(&mut self, jobs: &[&Job]) {
        for job in jobs.iter().filter(|job| job.is_running() && self.started.insert(job.run)) {
            self.bench.run().job_started(job);
        }
    }

    /// A job of v2 on some CPUs that has used so many microseconds.
    fn v2(&self, id: u32, cpus: &str, usec: u64) -> Job {
        let group = format!("job_{id}");
        self.machine.write(&format!("cgroup/{group}/cpuset.cpus.effective"), format!("{cpus}\n"));
        self.uses(id, usec);
        job(id, self.machine.v2(&group), &[])
    }

    fn uses(&self, id: u32, usec: u64) {
        self.machine.write(&format!("cgroup/job_{id}/cpu.stat"), format!("usage_usec {usec}\n"));
    }

    /// One of v1, where SLURM makes no group for perf.
    fn v1(&self, id: u32, cpus: &str) -> Job {
        let group = format!("slurm/uid_0/job_{id}");
        self.machine.write(&format!("cgroup/cpuset/{group}/cpuset.effective_cpus"), format!("{cpus}\n"));
        job(id, self.machine.v1(&[("cpuset", &group)]), &[])
    }

    fn scrape(&mut self, jobs: &[&Job]) -> (Result<(), SourceError>, String) {
        self.start(jobs);
        let snapshot = snapshot_of(self.machine.roots(), jobs.iter().map(|job| (*job).clone()).collect());
        self.bench.collect(&snapshot)
    }

    /// A scrape that succeeds.
    fn well(&mut self, jobs: &[&Job]) {
        assert_eq!(self.scrape(jobs).0, Ok(()));
    }

    fn open(&self) -> usize {
        self.world.open.load(Ordering::SeqCst)
    }
}

fn of(text: &str, id: u32, name: &str, labels: &str) -> Option<f64> {
    value(text, &format!("jobledger_job_{name}{{jobid=\"{id}\"{labels}}}"))
}

fn info(text: &str, id: u32, mode: &str, reason: &str) -> bool {
    of(text, id, "counters_info", &format!(",mode=\"{mode}\",reason=\"{reason}\"")) == Some(1.0)
}

#[test]
fn a_job_is_counted_on_its_own_cpus_from_its_start_to_its_end() {
    let mut node = Node::new(plan(), None);
    let job = node.v2(7, "2-3", 40);
    node.bench.run().job_started(&job);
    jobledger_testkit::eventually("the counters are open without a scrape", || node.open() == 6);
    node.world.run(2, "flops", (10_000, 10_000), &[1000, 500]);
    node.world.run(3, "flops", (20_000, 20_000), &[2000, 700]);
    node.world.run(3, "branches", (20_000, 5_000), &[3]);
    node.world.run(4, "flops", (20_000, 20_000), &[4000, 900]);
    let (outcome, text) = node.scrape(&[&job]);
    assert_eq!(outcome, Ok(()));
    assert!(info(&text, 7, "cgroup", ""), "{text}");
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(3000.0));
    assert_eq!(of(&text, 7, "instructions_total", ""), Some(1200.0));
    assert_eq!(of(&text, 7, "branches_total", ""), Some(12.0));
    assert_eq!(of(&text, 7, "counted_cpu_seconds_total", ""), Some(3e-5));
    assert_eq!(of(&text, 7, "counters_coverage_ratio", ""), Some(0.75));
    assert_eq!(of(&text, 7, "counters_running_ratio", ",group=\"flops\""), Some(1.0));
    assert_eq!(of(&text, 7, "counters_running_ratio", ",group=\"branches\""), Some(0.25));
    assert_eq!(value(&text, "jobledger_exporter_counters_descriptors"), Some(6.0));
    assert_eq!(
        value(&text, "jobledger_exporter_counters_descriptors_limit"),
        Some(96.0),
        "3 events, 8 CPUs, 4 jobs"
    );
    // What it did up to its end is read when it is gone: the kernel keeps the counts.
    node.world.run(2, "flops", (10_000, 10_000), &[1, 1]);
    node.machine.remove("cgroup/job_7");
    node.bench.run().job_left_node(job.run);
    jobledger_testkit::eventually("nothing is open", || node.open() == 0);
    let (_, text) = node.scrape(&[&ended(&job)]);
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(3001.0));
    assert_eq!(of(&text, 7, "counters_coverage_ratio", ""), Some(1.0), "never above 1");
    assert!(!text.contains("jobledger_job_counters_info{"), "{text}");
    node.bench.run().job_removed(job.run, Disposition::Exported);
    assert_eq!(of(&node.scrape(&[&ended(&job)]).1, 7, "cycles_total", ""), None);
}

#[test]
fn cpus_that_are_added_to_a_job_are_counted_and_those_that_go_are_not() {
    let mut node = Node::new(plan(), None);
    let job = node.v2(7, "0", 1000);
    node.well(&[&job]);
    assert_eq!(node.open(), 3);
    node.world.run(0, "flops", (10, 10), &[5, 1]);
    node.machine.write("cgroup/job_7/cpuset.cpus.effective", "4-5\n");
    node.well(&[&job]);
    assert_eq!(node.open(), 6);
    node.world.run(0, "flops", (10, 10), &[50, 1]);
    node.world.run(5, "flops", (10, 10), &[500, 1]);
    assert_eq!(of(&node.scrape(&[&job]).1, 7, "cycles_total", ""), Some(505.0));
    // One that has no cpuset may run anywhere.
    node.machine.remove("cgroup/job_7/cpuset.cpus.effective");
    let unbound = Job { run: JobRunId(99), ..job };
    node.bench.run().job_removed(JobRunId(7), Disposition::Exported);
    node.well(&[&unbound]);
    assert_eq!(node.open(), 24);
}

/// A profiler's pinned event, or the kernel's watchdog that is switched on later.
#[test]
fn counters_that_somebody_else_keeps_are_planned_without_and_what_was_counted_is_kept() {
    const SECOND: u64 = 1_000_000_000;
    let mut node = Node::new(plan(), None);
    let (job, over) = (node.v2(7, "2", 40), node.v2(8, "3", 40));
    node.world.run(2, "flops", (0, 0), &[0, 0]);
    node.well(&[&job, &over]);
    node.world.run(2, "flops", (SECOND, SECOND), &[1000, 500]);
    node.world.run(2, "branches", (SECOND, SECOND), &[7]);
    node.world.run(3, "branches", (SECOND, SECOND), &[9]);
    node.well(&[&job, &over]);
    node.bench.run().job_left_node(over.run);
    node.world.kept.lock().unwrap().insert("branches".to_owned());
    node.world.run(2, "flops", (2 * SECOND, 2 * SECOND), &[100, 50]);
    node.world.run(2, "branches", (2 * SECOND, 0), &[0]);
    let (outcome, text) = node.scrape(&[&job, &ended(&over)]);
    assert!(outcome.is_ok() && info(&text, 7, "cgroup", ""), "turns may take a while: {text}");
    node.world.run(2, "flops", (2 * SECOND, 2 * SECOND), &[10, 5]);
    node.world.run(2, "branches", (2 * SECOND, 0), &[0]);
    let (outcome, text) = node.scrape(&[&job, &ended(&over)]);
    assert!(outcome.is_ok() && info(&text, 7, "cgroup", ""), "{text}");
    let absent = "jobledger_node_counters_absent_info{what=\"e\",\
                  reason=\"it never has its turn: somebody else keeps a counter that it needs\"}";
    assert_eq!((value(&text, absent), node.open()), (Some(1.0), 2), "{text}");
    assert_eq!(of(&text, 7, "branches_total", ""), None, "a part would look like the whole: {text}");
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(1110.0));
    node.world.run(2, "flops", (SECOND, SECOND), &[2, 1]);
    let (_, text) = node.scrape(&[&job, &ended(&over)]);
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(1112.0));
    assert_eq!(of(&text, 7, "counted_cpu_seconds_total", ""), Some(6.0));
}

/// slurmstepd binds a job after it made its directory: what the directory shows until then is the node's.
#[test]
fn a_job_is_not_opened_on_the_whole_node_while_it_is_not_bound_yet() {
    let mut node = Node::new(plan(), None);
    let (job, other) = (node.v2(7, "0-7", 10), node.v2(8, "0-7", 10));
    for id in [7, 8] {
        node.machine.write(&format!("cgroup/job_{id}/cpuset.cpus"), "\n");
        node.bench.run().job_started(if id == 7 { &job } else { &other });
    }
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(node.open(), 0);
    // What is waited for comes last: the kernel writes both at once.
    for file in ["cpuset.cpus.effective", "cpuset.cpus"] {
        node.machine.write(&format!("cgroup/job_7/{file}"), "2\n");
    }
    // 3 on its one CPU; a test that has no turn for a while finds the other one open, too.
    jobledger_testkit::eventually("it is open as soon as it is bound", || node.open() >= 3);
    // Without ConstrainCores nobody ever binds it.
    jobledger_testkit::eventually("the other is not waited for any longer", || node.open() == 27);
    node.well(&[&job, &other]);
    assert_eq!(node.open(), 27);
}

#[test]
fn while_the_counters_are_yielded_there_is_a_gap_and_never_a_zero() {
    let mut node = Node::new(plan(), None);
    let (job, over) = (node.v2(7, "0-1", 1000), node.v2(8, "2", 1000));
    node.well(&[&job, &over]);
    node.world.run(0, "flops", (10, 10), &[100, 1]);
    node.world.run(2, "flops", (10, 10), &[3, 1]);
    node.bench.run().job_left_node(over.run);
    node.ownership.yield_for(Reason::Lock);
    assert_eq!(node.open(), 0);
    node.world.run(0, "flops", (10, 10), &[10_000, 1]);
    let newcomer = node.v2(9, "3", 10);
    node.bench.run().job_started(&newcomer);
    let (outcome, text) = node.scrape(&[&job, &ended(&over), &newcomer]);
    assert_eq!((outcome, node.open()), (Ok(()), 0));
    assert!(!text.contains("jobid=\"7\"") && !text.contains("jobid=\"9\""), "{text}");
    assert_eq!(of(&text, 8, "cycles_total", ""), Some(3.0), "what ended before is known");
    node.ownership.resume_from(Reason::Lock);
    jobledger_testkit::eventually("they are open again", || node.open() == 9);
    node.world.run(0, "flops", (10, 10), &[1, 1]);
    node.world.run(3, "flops", (10, 10), &[5, 1]);
    let (_, text) = node.scrape(&[&job, &newcomer]);
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(101.0), "from where it was, without the gap");
    assert_eq!(of(&text, 9, "cycles_total", ""), Some(5.0));
}

#[test]
fn what_the_kernel_refuses_is_reported_with_what_helps() {
    let mut node = Node::new(plan(), None);
    node.world.refused.lock().unwrap().insert("flops".to_owned(), OpenError::Denied);
    let job = node.v2(7, "0", 10);
    let (outcome, text) = node.scrape(&[&job]);
    let error = CollectError::from(outcome.unwrap_err()).to_string();
    assert!(error.starts_with("denied") && error.contains("CAP_PERFMON"), "{error}");
    assert!(!text.contains("jobledger_job_"), "{text}");
    node.world.refused.lock().unwrap().clear();
    let (outcome, text) = node.scrape(&[&job]);
    assert_eq!((outcome, of(&text, 7, "cycles_total", "")), (Ok(()), Some(0.0)), "as soon as it lets");

    let mut node = Node::new(plan(), Some(7));
    let (first, second) = (node.v2(1, "0-1", 10), node.v2(2, "2", 10));
    let (outcome, text) = node.scrape(&[&first, &second]);
    let error = CollectError::from(outcome.unwrap_err()).to_string();
    assert!(error.contains("--collector.perf.most-descriptors"), "{error}");
    assert!(info(&text, 1, "cgroup", "") && info(&text, 2, "cgroup", "descriptors"), "{text}");
    assert_eq!((of(&text, 2, "cycles_total", ""), of(&text, 1, "cycles_total", "")), (None, Some(0.0)));

    let mut node = Node::new(plan(), None);
    node.world.refused.lock().unwrap().insert("branches".to_owned(), OpenError::Unsupported);
    let (outcome, text) = node.scrape(&[&node.v2(7, "0", 10)]);
    assert_eq!(outcome, Ok(()));
    let absent = "jobledger_node_counters_absent_info{what=\"e\",reason=\"the PMU does not count it, or a virtual machine has the PMU (EOPNOTSUPP)\"}";
    assert_eq!(value(&text, absent), Some(1.0), "{text}");
    assert_eq!(of(&text, 7, "branches_total", ""), None);
}

#[test]
fn every_quantity_has_its_series() {
    let flops = |precision, width, each| Quantity::Flops { precision, width, each };
    let traffic = |level, flow| Quantity::CacheTraffic { level, flow, each: 64 };
    let quantities = [
        (Quantity::Cycles, "cycles_total", ""),
        (Quantity::ReferenceCycles, "reference_cycles_total", ""),
        (Quantity::Instructions, "instructions_total", ""),
        (Quantity::Branches, "branches_total", ""),
        (Quantity::BranchMisses, "branch_misses_total", ""),
        (Quantity::CacheReferences(CacheLevel::L1d), "cache_references_total", ",level=\"l1d\""),
        (Quantity::CacheMisses(CacheLevel::L3), "cache_misses_total", ",level=\"l3\""),
        (
            traffic(CacheLevel::L2, Flow::Load),
            "cache_traffic_bytes_total",
            ",level=\"l2\",direction=\"load\"",
        ),
        (
            traffic(CacheLevel::L3, Flow::Evict),
            "cache_traffic_bytes_total",
            ",level=\"l3\",direction=\"evict\"",
        ),
        (Quantity::FlopsOfAllTypes, "flops_all_types_total", ""),
        (Quantity::MemoryLoads { each: 32 }, "memory_load_bytes_total", ""),
        (flops(Precision::Double, Width::Scalar, 1), "flops_total", ",precision=\"double\",width=\"scalar\""),
        (
            flops(Precision::Single, Width::Bits(512), 16),
            "flops_total",
            ",precision=\"single\",width=\"512\"",
        ),
        (flops(Precision::Any, Width::Any, 1), "flops_total", ",precision=\"any\",width=\"any\""),
        (Quantity::ContextSwitches, "context_switches_total", ""),
        (Quantity::Migrations, "cpu_migrations_total", ""),
        (Quantity::MinorFaults, "cpu_page_faults_total", ",type=\"minor\""),
        (Quantity::MajorFaults, "cpu_page_faults_total", ",type=\"major\""),
    ];
    let event = |(quantity, _, _): &(Quantity, _, _)| Event {
        name: "e".into(),
        quantity: *quantity,
        attr: Attr::default(),
        minus: false,
    };
    let events: Vec<_> = quantities.iter().map(event).collect();
    let group = Group { name: "all".into(), hardware: true, cpus: None, events };
    let mut node =
        Node::new(Plan { groups: vec![group], microarchitecture: Some("Zen 9".into()), ..plan() }, None);
    let job = node.v2(7, "0", 10);
    node.well(&[&job]);
    let counts: Vec<u64> = (1..).map(|n| n * 10).take(quantities.len()).collect();
    node.world.run(0, "all", (10, 10), &counts);
    let (_, text) = node.scrape(&[&job]);
    for ((quantity, name, labels), count) in quantities.iter().zip(counts) {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let expected = (count * quantity.each()) as f64;
        assert_eq!(of(&text, 7, name, labels), Some(expected), "{name}{labels}");
    }
    let node_info = "jobledger_node_counters_info{microarchitecture=\"Zen 9\",flops=\"none\"}";
    assert_eq!(value(&text, node_info), Some(1.0));
}

#[test]
fn operations_of_both_kinds_of_cores_are_one_series() {
    let group = |name: &str, cpus: &[u8], each| Group {
        name: name.into(),
        hardware: true,
        cpus: cpu_topology::CpuSet::parse(cpus).ok(),
        events: vec![Event {
            name: "e".into(),
            quantity: Quantity::Flops { precision: Precision::Double, width: Width::Any, each },
            attr: Attr::default(),
            minus: false,
        }],
    };
    let groups = vec![group("big", b"0-3", 4), group("small", b"4-7", 1)];
    let mut node = Node::new(Plan { groups, ..plan() }, None);
    let job = node.v2(7, "0-7", 10);
    node.well(&[&job]);
    assert_eq!(node.open(), 8, "each kind on its own CPUs");
    node.world.run(0, "big", (10, 10), &[10]);
    node.world.run(4, "small", (10, 10), &[3]);
    let (_, text) = node.scrape(&[&job]);
    assert_eq!(of(&text, 7, "flops_total", ",precision=\"double\",width=\"any\""), Some(43.0), "{text}");
}

/// Both kinds of cores have groups of the same names; a duplicate series is no valid exposition.
#[test]
fn groups_of_one_name_on_two_kinds_of_cores_are_one_series() {
    let catalogue = Catalogue::built_in();
    for (name, group) in [("Alder Lake", "topdown"), ("Meteor Lake", "flops")] {
        let mut machine = planner::Machine::assumed(&catalogue, name, true, false).unwrap();
        for (pmu, cpus) in machine.pmus.iter_mut().zip(["0-3", "4-7"]) {
            pmu.cpus = cpu_topology::CpuSet::parse(cpus.as_bytes()).ok();
        }
        let plan = planner::plan(&machine, &catalogue, Extent::Full, &Class::ALL);
        let events = |cpu: u32| {
            let here = |known: &&Group| {
                &*known.name == group && known.cpus.as_ref().is_some_and(|cpus| cpus.contains(cpu))
            };
            plan.groups.iter().find(here).unwrap().events.len()
        };
        let (big, small) = (vec![1; events(0)], vec![1; events(4)]);
        let mut node = Node::new(plan, None);
        let job = node.v2(7, "0-7", 10);
        node.well(&[&job]);
        node.world.run(0, group, (3000, 1000), &big);
        node.world.run(4, group, (1000, 1000), &small);
        let (_, text) = node.scrape(&[&job]);
        assert_eq!(
            of(&text, 7, "counters_running_ratio", &format!(",group=\"{group}\"")),
            Some(0.5),
            "{name}"
        );
        let mut series: Vec<&str> =
            text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(s, _)| s).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "{name}: {text}");
    }
}

#[test]
fn after_a_restart_counts_go_on_from_the_last_reading_without_the_time_between() {
    let mut node = Node::new(plan(), None);
    let (running, gone, foreign) = (node.v2(7, "2", 100), node.v2(8, "3", 100), node.v2(9, "4", 100));
    node.well(&[&running, &gone, &foreign]);
    for (cpu, cycles) in [(2, 1000), (3, 2000), (4, 4000)] {
        node.world.run(cpu, "flops", (50_000, 50_000), &[cycles, 1]);
    }
    node.well(&[&running, &gone, &foreign]);
    node.bench.run().job_left_node(gone.run);
    // What no scrape saw is read when the exporter ends.
    node.world.run(2, "flops", (10_000, 10_000), &[30, 1]);
    node.bench.durable().read_last();
    node.restart(plan(), &[running.run, gone.run]);
    // Here a thread of the one before does it, at its end.
    jobledger_testkit::wait::eventually("the kernel closes what a process had", || node.open() == 0);
    // Nobody counts.
    node.world.run(2, "flops", (40_000, 40_000), &[500_000, 1]);
    let over = ended(&gone);
    let (outcome, text) = node.scrape(&[&running, &over]);
    assert_eq!(outcome, Ok(()));
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(1030.0), "{text}");
    assert_eq!(of(&text, 7, "counted_cpu_seconds_total", ""), Some(6e-5));
    assert_eq!(of(&text, 7, "counters_coverage_ratio", ""), Some(0.6));
    assert_eq!(of(&text, 8, "cycles_total", ""), Some(2000.0), "of a job that ended before");
    assert_eq!(of(&text, 8, "counted_cpu_seconds_total", ""), Some(5e-5));
    assert!(
        info(&text, 7, "cgroup", "") && !text.contains("jobledger_job_counters_info{jobid=\"8\""),
        "{text}"
    );
    node.world.run(2, "flops", (10_000, 10_000), &[5, 1]);
    let (_, text) = node.scrape(&[&running, &over, &foreign]);
    assert_eq!(of(&text, 7, "cycles_total", ""), Some(1035.0), "{text}");
    assert_eq!(of(&text, 9, "cycles_total", ""), Some(0.0), "a run that is not known begins at 0");
    node.bench.run().job_removed(gone.run, Disposition::Exported);
    assert_eq!(of(&node.scrape(&[&over]).1, 8, "cycles_total", ""), None);
}

#[test]
fn dropped_intervals_are_counted_over_a_restart() {
    let mut node = Node::new(plan(), None);
    let job = node.v2(7, "2", 100);
    node.well(&[&job]);
    let dropped = |text: &str| {
        value(text, "jobledger_exporter_counters_intervals_dropped_total{reason=\"running_above_enabled\"}")
    };
    for round in 1..=2 {
        node.world.run(2, "flops", (1000, 2000), &[1, 1]);
        let (_, text) = node.scrape(&[&job]);
        assert_eq!(dropped(&text), Some(f64::from(round)), "{text}");
        node.restart(plan(), &[job.run]);
        node.well(&[&job]);
    }
}

#[test]
fn a_run_that_was_dropped_after_the_snapshot_was_made_does_not_come_back() {
    let mut node = Node::new(plan(), None);
    let job = node.v2(7, "2", 100);
    node.well(&[&job]);
    assert_eq!(node.open(), 3);
    node.bench.run().job_left_node(job.run);
    node.bench.run().job_removed(job.run, Disposition::Dropped);
    let (outcome, text) = node.scrape(&[&job]);
    assert_eq!((outcome, of(&text, 7, "cycles_total", ""), node.open()), (Ok(()), None, 0), "{text}");
}

#[test]
fn a_directory_without_a_process_is_not_counted() {
    let mut node = Node::new(plan(), None);
    let left_behind = Arc::new(node.v2(6, "2", 100));
    node.bench.run().step_grew(&left_behind, None);
    let snapshot =
        NodeSnapshot { pending: vec![left_behind], ..snapshot_of(node.machine.roots(), Vec::new()) };
    assert_eq!((node.bench.collect(&snapshot).0, node.open()), (Ok(()), 0));
}
