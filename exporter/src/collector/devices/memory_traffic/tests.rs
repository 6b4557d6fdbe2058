mod energy;
mod resctrl;
mod telemetry;

use std::collections::BTreeMap;

use exposition::encode_openmetrics;
use kernel_files::ReadError;
use perf_counters::sharing::Reason;
use perf_counters::uncore::testing::{self, Hardware, ice_lake};
use perf_events::OpenError;

use super::*;
use crate::collector::CollectError;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::testing::{Machine, ended, job, restore, snapshot_of, value};

const READ: u64 = 0x0f04;
const WRITE: u64 = 0x3004;

/// Ice Lake, two sockets of two channels and four CPUs; jobs 7 (socket 0) and 8 (socket 1).
struct Node {
    machine: Machine,
    hardware: Hardware,
    context: BuildContext,
    built: Built,
    shared: Arc<Shared>,
    occupancy: OccupancyObserver,
    jobs: Vec<Job>,
}

impl Node {
    fn new() -> Self {
        let machine = Machine::new();
        ice_lake(&machine, 2);
        Self::with(machine, None)
    }

    fn with(machine: Machine, tree: Option<Box<dyn Tree>>) -> Self {
        for (id, cpus, mems) in [(7, "0-3", "0"), (8, "4-7", "1")] {
            machine.write(&format!("cgroup/job_{id}/cpuset.cpus.effective"), format!("{cpus}\n"));
            machine.write(&format!("cgroup/job_{id}/cpuset.mems.effective"), format!("{mems}\n"));
            machine.write(&format!("cgroup/job_{id}/cgroup.threads"), "");
        }
        let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
        // Nobody reads but the test: the thread that reads when jobs come and go is another interval_reader's.
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        context.options.set(TrafficOptions::default());
        context.options.set(energy::unpaused());
        let hardware = Hardware::default();
        let opener = hardware.clone();
        let shared = parts(&context, Box::new(move || Box::new(opener.clone())), tree);
        let jobs = vec![job(7, machine.v2("job_7"), &[]), job(8, machine.v2("job_8"), &[])];
        let occupancy = OccupancyObserver(context.interval_reader.clone());
        let built = built(shared.clone(), None);
        Self { machine, hardware, context, built, shared, occupancy, jobs }
    }

    /// Another exporter takes over; the kernel closes the events of the first.
    fn restart(self, tree: Option<Box<dyn Tree>>) -> Self {
        let runs: Vec<JobRunId> = self.jobs.iter().map(|job| job.run).collect();
        let Self { machine, hardware, shared, jobs, built, .. } = self;
        let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        context.options.set(TrafficOptions::default());
        context.options.set(energy::unpaused());
        let opener = hardware.clone();
        let next = parts(&context, Box::new(move || Box::new(opener.clone())), tree);
        restore(&*shared, &*next, &runs);
        drop((shared, built));
        assert_eq!(hardware.are_open(), 0);
        let occupancy = OccupancyObserver(context.interval_reader.clone());
        Self {
            machine,
            hardware,
            context,
            built: super::built(next.clone(), None),
            shared: next,
            occupancy,
            jobs,
        }
    }

    fn looked(&self) -> &Self {
        self.occupancy.initial_scan_done();
        self.built.observer.as_ref().unwrap().initial_scan_done();
        self.settle()
    }

    fn appears(&self, id: u32) -> &Self {
        let job = &self.jobs[id as usize - 7];
        self.occupancy.job_started(job);
        self.built.observer.as_ref().unwrap().job_started(job);
        self.settle()
    }

    fn leaves(&self, id: u32) -> &Self {
        let run = self.jobs[id as usize - 7].run;
        self.occupancy.job_left_node(run);
        self.built.observer.as_ref().unwrap().job_left_node(run);
        self.settle()
    }

    /// What the thread that waits for jobs does, here at once; the other one finds it done.
    fn settle(&self) -> &Self {
        self.hardware.runs(1);
        self.shared
            .accounts
            .with(Duration::from_secs(20), |accounts| self.shared.read(accounts, false))
            .unwrap()
            .ok();
        // Readings of other threads are of the same moment.
        std::thread::sleep(Duration::from_millis(5));
        self
    }

    /// Time passes, in which a channel of a socket reads so many lines.
    fn reads(&self, socket: u32, lines: u64) -> &Self {
        std::thread::sleep(Duration::from_millis(60));
        self.hardware.runs(60).counts(20 + u32::from(lines % 2 == 1), READ, socket * 4, lines);
        self
    }

    fn collect_these(&mut self, jobs: &[Job]) -> (Result<(), SourceError>, String) {
        self.hardware.runs(1);
        let mut section = Section::default();
        let outcome =
            self.built.collector.collect(&snapshot_of(self.machine.roots(), jobs.to_vec()), &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    fn collect(&mut self) -> String {
        let jobs = self.jobs.clone();
        let (outcome, text) = self.collect_these(&jobs);
        assert_eq!(outcome, Ok(()));
        text
    }
}

fn of(
    text: &str,
    family: &str,
    job: Option<u32>,
    socket: &str,
    direction: &str,
    method: &str,
) -> Option<f64> {
    let job = job.map(|id| format!("jobid=\"{id}\",")).unwrap_or_default();
    let method = if method.is_empty() { String::new() } else { format!(",method=\"{method}\"") };
    let kind = if direction == "both" { "l3_external" } else { "dram" };
    value(
        text,
        &format!("{family}{{{job}socket=\"{socket}\",kind=\"{kind}\",direction=\"{direction}\"{method}}}"),
    )
}

fn node(text: &str, socket: &str) -> Option<f64> {
    of(text, "jobledger_node_memory_traffic_bytes_total", None, socket, "read", "")
}

fn unattributed(text: &str, socket: &str) -> Option<f64> {
    of(text, "jobledger_node_memory_traffic_unattributed_bytes_total", None, socket, "read", "")
}

fn jobs(text: &str, id: u32, socket: &str) -> Option<f64> {
    of(text, "jobledger_job_memory_traffic_bytes_total", Some(id), socket, "read", "exclusive")
}

#[test]
fn bytes_are_a_jobs_while_it_has_the_node_for_itself_on_every_socket() {
    let mut at = Node::new();
    at.looked().reads(0, 10).appears(7).reads(0, 100).reads(1, 4);
    let text = at.collect();
    assert_eq!(
        (node(&text, "0"), unattributed(&text, "0"), jobs(&text, 7, "0")),
        (Some(7040.0), Some(640.0), Some(6400.0))
    );
    assert_eq!(
        (node(&text, "1"), unattributed(&text, "1"), jobs(&text, 7, "1")),
        (Some(256.0), Some(0.0), Some(256.0))
    );
    assert_eq!(
        value(
            &text,
            "jobledger_node_memory_traffic_running_ratio{socket=\"0\",kind=\"dram\",direction=\"read\"}"
        ),
        Some(1.0)
    );
    let info = "jobledger_node_memory_traffic_info{kind=\"dram\",pmu=\"uncore_imc_[0-9]+\",events=\"2\",counters=\"4\",verified=\"true\",why=\"\"}";
    assert_eq!(value(&text, info), Some(1.0));
    at.hardware.counts(20, WRITE, 0, 3);
    let text = at.collect();
    let written = of(&text, "jobledger_job_memory_traffic_bytes_total", Some(7), "0", "write", "exclusive");
    assert_eq!(written, Some(192.0));
}

#[test]
fn on_a_shared_node_bytes_are_a_jobs_where_no_other_one_can_have_moved_them() {
    let mut at = Node::new();
    at.looked().appears(7).appears(8).settle().reads(0, 10).reads(1, 20);
    let text = at.collect();
    assert_eq!((jobs(&text, 7, "0"), jobs(&text, 8, "1")), (Some(640.0), Some(1280.0)));
    // SLURM leaves memory nodes as they are: then the other one may have its memory here.
    at.machine.write("cgroup/job_8/cpuset.mems.effective", "0-1\n");
    at.settle().reads(0, 10).reads(1, 20);
    let text = at.collect();
    assert_eq!((jobs(&text, 7, "0"), unattributed(&text, "0")), (Some(640.0), Some(640.0)));
    assert_eq!((jobs(&text, 8, "1"), node(&text, "1")), (Some(2560.0), Some(2560.0)));
}

#[test]
fn a_job_that_ended_is_exported_with_all_it_moved_and_what_comes_after_is_unattributed() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10).leaves(7).reads(0, 5);
    let gone = ended(&at.jobs[0]);
    let (_, text) = at.collect_these(&[gone]);
    assert_eq!(
        (jobs(&text, 7, "0"), unattributed(&text, "0"), node(&text, "0")),
        (Some(640.0), Some(320.0), Some(960.0))
    );
}

#[test]
fn what_is_charged_to_a_run_that_is_not_exported_yet_is_in_no_total() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10);
    let (_, text) = at.collect_these(&[]);
    assert_eq!((node(&text, "0"), unattributed(&text, "0")), (Some(0.0), Some(0.0)));
    at.built.observer.as_ref().unwrap().job_removed(at.jobs[0].run, Disposition::Unidentified);
    let (_, text) = at.collect_these(&[]);
    assert_eq!((node(&text, "0"), unattributed(&text, "0")), (Some(640.0), Some(640.0)));
}

#[test]
fn while_a_profiler_has_the_counters_there_is_a_gap_and_then_the_totals_go_on() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10);
    at.collect();
    at.reads(0, 10);
    assert_eq!(at.hardware.are_open(), 8);
    at.context.ownership.yield_for(Reason::Lock);
    assert_eq!(at.hardware.are_open(), 0);
    let text = at.collect();
    assert!(!text.contains("_memory_traffic_"), "{text}");
    at.reads(0, 1000);
    at.settle();
    assert_eq!(at.hardware.are_open(), 0, "nothing is opened meanwhile");
    let gone = ended(&at.jobs[0]);
    let (_, text) = at.collect_these(&[gone]);
    assert_eq!(jobs(&text, 7, "0"), Some(1280.0), "the last reading; of what ended nothing can change");
    at.context.ownership.resume_from(Reason::Lock);
    assert_eq!(at.hardware.are_open(), 8);
    at.reads(0, 1);
    let text = at.collect();
    assert_eq!((jobs(&text, 7, "0"), node(&text, "0")), (Some(1344.0), Some(1344.0)));
}

#[test]
fn a_box_that_fails_costs_its_place_and_nothing_is_lost() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10);
    at.hardware.fails(21, READ, 0, Some(ReadError::Io(5)));
    let everyone = at.jobs.clone();
    let (outcome, text) = at.collect_these(&everyone);
    assert_eq!(outcome.unwrap_err().reason(), "partial");
    assert_eq!((node(&text, "0"), jobs(&text, 7, "0")), (None, None), "a part is not exported as the whole");
    assert_eq!(node(&text, "1"), Some(0.0));
    at.hardware.fails(21, READ, 0, None);
    at.reads(0, 1);
    let text = at.collect();
    assert_eq!((node(&text, "0"), jobs(&text, 7, "0")), (Some(704.0), Some(704.0)));
}

#[test]
fn counts_that_fall_are_reported_and_charge_nothing() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10).reads(1, 1);
    at.collect();
    at.hardware.runs(5).goes_back(20, READ, 0, 4);
    let text = at.collect();
    assert_eq!(node(&text, "0"), Some(640.0));
    at.shared
        .accounts
        .with(Duration::from_secs(20), |accounts| assert_eq!(accounts.restarts, 0, "handed on"))
        .unwrap();
}

#[test]
fn events_that_had_no_counter_are_absent_with_the_reason() {
    let mut at = Node::new();
    at.looked().appears(7);
    at.hardware.turns(60, 0);
    // None of the following readings gives any event more than no time.
    let mut section = Section::default();
    let snapshot = snapshot_of(at.machine.roots(), at.jobs.clone());
    let outcome = at.built.collector.collect(&snapshot, &mut section);
    assert!(outcome.unwrap_err().to_string().contains("other programs"));
    at.hardware.turns(100, 40).counts(20, READ, 0, 10);
    let text = at.collect();
    let ratio = value(
        &text,
        "jobledger_node_memory_traffic_running_ratio{socket=\"0\",kind=\"dram\",direction=\"read\"}",
    );
    // 161 ms, in 41 of which it was counted.
    assert_eq!(ratio.map(|ratio| (ratio * 161.0).round()), Some(41.0));
    let bytes = node(&text, "0").unwrap();
    assert!((bytes - 640.0 * 161.0 / 41.0).abs() < 50.0, "{bytes}");
}

#[test]
fn cpus_that_come_and_go_have_the_boxes_looked_for_anew() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10).reads(1, 1);
    at.collect();
    // The second socket is off.
    testing::sockets(&at.machine, 1, 4);
    for channel in 0..2 {
        at.machine.write(&format!("sys/bus/event_source/devices/uncore_imc_{channel}/cpumask"), "0\n");
    }
    let text = at.collect();
    assert_eq!((node(&text, "0"), at.hardware.are_open()), (Some(640.0), 4));
    let text = at.collect();
    assert_eq!(node(&text, "1"), None, "not there is absent");
    at.reads(0, 10);
    assert_eq!(node(&at.collect(), "0"), Some(1280.0));
}

#[test]
fn without_a_pmu_it_is_unsupported_and_without_the_capability_denied() {
    let machine = Machine::new();
    testing::sockets(&machine, 1, 2);
    testing::intel(&machine, 0x6a, 6);
    let mut at = Node::with(machine, None);
    let (outcome, _) = at.collect_these(&[]);
    assert_eq!(outcome.unwrap_err().reason(), "unsupported");
    let mut at = Node::new();
    *at.hardware.refused.lock().unwrap() = Some(OpenError::Denied);
    let (outcome, text) = at.collect_these(&[]);
    assert!(CollectError::from(outcome.unwrap_err()).to_string().contains("CAP_PERFMON"));
    assert!(!text.contains("memory_traffic_bytes"));
}

#[test]
fn a_job_that_came_is_looked_at_again_and_readings_are_not_too_close() {
    let at = Node::new();
    assert_eq!(at.shared.due(), None);
    at.looked().appears(7);
    let due = at.shared.due().unwrap();
    assert!(due <= Instant::now() + Duration::from_secs(3));
    assert!(!at.shared.soon() || at.shared.plan.lock().last.is_none());
    // While another thread reads it is put off, and not asked for over and over.
    at.shared.accounts.with(Duration::from_secs(20), |_| {
        at.shared.put_off();
        assert!(at.shared.due().unwrap() > Instant::now());
    });
    for _ in 0..1000 {
        at.built.observer.as_ref().unwrap().job_started(&at.jobs[0]);
    }
    assert!(at.shared.plan.lock().again.len() <= MOST_AGAIN + AGAIN.len());
}

/// A random history of two jobs that may be everywhere: what was exported of each, and what moved while it was alone.
fn history(seed: u64, looks: u64) -> BTreeMap<u32, (Option<f64>, Option<f64>)> {
    let mut state = seed;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let machine = Machine::new();
    ice_lake(&machine, 1);
    let mut at = Node::with(machine, None);
    for id in [7, 8] {
        at.machine.write(&format!("cgroup/job_{id}/cpuset.mems.effective"), "0-1\n");
    }
    at.looked();
    let (mut there, mut alone, mut all) = (BTreeSet::new(), BTreeMap::new(), 0);
    for _ in 0..10 {
        let id = if random(2) == 0 { 7 } else { 8 };
        if there.remove(&id) {
            at.leaves(id);
        } else {
            there.insert(id);
            at.appears(id);
        }
        let lines = random(1000);
        for part in 0..looks {
            let part = if part == 0 { lines - lines / looks * (looks - 1) } else { lines / looks };
            std::thread::sleep(Duration::from_millis(60));
            at.hardware.runs(60).counts(20, READ, 0, part);
            if looks > 1 {
                at.collect();
            }
        }
        all += lines;
        if there.len() == 1 {
            *alone.entry(*there.first().unwrap()).or_insert(0) += lines;
        }
    }
    let text = at.collect();
    let sum: f64 = [7, 8].map(|id| jobs(&text, id, "0").unwrap_or(0.0)).iter().sum();
    assert_eq!(Some(sum + unattributed(&text, "0").unwrap()), node(&text, "0"));
    assert_eq!(node(&text, "0"), Some((all * 64) as f64));
    let of = |id| (id, (jobs(&text, id, "0"), alone.get(&id).map(|lines| (lines * 64) as f64)));
    [7, 8].map(of).into()
}

/// Jobs and nobody make up the node, and a job is charged with what was moved while it was alone, however often it is looked;
/// with less only where this machine is too busy to read in time.
#[test]
fn jobs_and_the_unattributed_rest_are_the_node_however_often_it_is_looked() {
    for looks in [1, 3] {
        let exact = (0..5).any(|_| {
            let exported = history(0x9e37_79b9_7f4a_7c15, looks);
            assert!(
                exported.values().all(|(exported, alone)| exported.unwrap_or(0.0) <= alone.unwrap_or(0.0)),
                "{exported:?}"
            );
            exported.values().all(|(exported, alone)| exported.unwrap_or(0.0) == alone.unwrap_or(0.0))
        });
        assert!(exact, "{looks} looks");
    }
}

#[test]
fn counters_that_a_reading_hangs_on_are_not_reported_as_released() {
    let mut at = Node::new();
    at.looked();
    at.collect();
    let (taken, is_taken) = std::sync::mpsc::channel();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let shared = at.shared.clone();
    let hangs = std::thread::spawn(move || {
        shared.accounts.with(Duration::from_secs(20), |_| {
            taken.send(()).unwrap();
            may_go.recv().unwrap();
        })
    });
    is_taken.recv().unwrap();
    assert!(!at.context.ownership.yield_for(Reason::Order));
    assert_eq!(at.hardware.are_open(), 8);
    go.send(()).unwrap();
    hangs.join().unwrap().unwrap();
    assert!(at.context.ownership.yield_for(Reason::Order), "it is back");
    assert_eq!(at.hardware.are_open(), 0);
}

#[test]
fn after_a_restart_totals_go_on_without_what_was_moved_while_nobody_counted() {
    let mut at = Node::new();
    at.looked().appears(7).reads(0, 10).leaves(7).reads(0, 5).appears(8).reads(0, 3);
    at.collect();
    // What no scrape saw is read when the exporter ends.
    at.reads(0, 2);
    at.shared.read_last();
    let mut at = at.restart(None);
    at.reads(0, 1000);
    at.appears(8).looked().reads(0, 1);
    let jobs_now = [ended(&at.jobs[0]), at.jobs[1].clone()];
    let (outcome, text) = at.collect_these(&jobs_now);
    assert_eq!(outcome, Ok(()));
    assert_eq!((jobs(&text, 7, "0"), jobs(&text, 8, "0")), (Some(640.0), Some(384.0)), "{text}");
    assert_eq!((node(&text, "0"), unattributed(&text, "0")), (Some(1344.0), Some(320.0)), "{text}");
}
