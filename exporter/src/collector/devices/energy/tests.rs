mod memory;
mod meters_that_go;
mod node_meter;

use exposition::encode_openmetrics;

use super::events::MOST_EVENTS;
use super::*;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::testing::{Machine as Laid, built, ended, job, snapshot_of, value};

const POWERCAP: &str = "sys/class/powercap";
/// Wraps at 262 kJ, as Intel's servers do.
const RANGE: u64 = 262_143_328_850;

/// Two sockets of two CPUs and 1 GiB each, package and DRAM by powercap, job 7 on socket 0 (one CPU) and job 8 on the whole
/// of socket 1.
struct Node {
    machine: Laid,
    context: BuildContext,
    built: Built,
    occupancy: OccupancyObserver,
    jobs: [Job; 2],
    began: Instant,
    idle: [u64; 4],
}

impl Node {
    fn new(idle: &[&str]) -> Self {
        Self::with_pause(idle, Duration::ZERO)
    }

    fn with_pause(idle: &[&str], pause: Duration) -> Self {
        let machine = Laid::new();
        machine.write("sys/devices/system/cpu/online", "0-3\n");
        machine.write("sys/devices/system/node/online", "0-1\n");
        machine.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t: 106\n\n");
        for cpu in 0..4 {
            let package = format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
            machine.write(&package, format!("{}\n", cpu / 2));
        }
        for node in 0..2 {
            let dir = format!("sys/devices/system/node/node{node}");
            machine.write(&format!("{dir}/cpulist"), format!("{}-{}\n", node * 2, node * 2 + 1));
            machine.write(&format!("{dir}/meminfo"), format!("Node {node} MemTotal:  1048576 kB\n"));
            for (zone, name) in [("", "package"), (":0", "dram")] {
                let dir = format!("{POWERCAP}/intel-rapl:{node}{zone}");
                let name = if zone.is_empty() { format!("{name}-{node}") } else { name.to_owned() };
                machine.write(&format!("{dir}/name"), format!("{name}\n"));
                machine.write(&format!("{dir}/max_energy_range_uj"), format!("{RANGE}\n"));
                machine.write(&format!("{dir}/energy_uj"), "0\n");
            }
        }
        for (id, cpus) in [(7, "0"), (8, "2-3")] {
            machine.write(&format!("cgroup/job_{id}/cpuset.cpus"), format!("{cpus}\n"));
            machine.write(&format!("cgroup/job_{id}/cpu.stat"), "usage_usec 0\n");
            machine.write(&format!("cgroup/job_{id}/memory.numa_stat"), "anon N0=0 N1=0\nfile N0=0 N1=0\n");
        }
        let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        let idle_power = idle.iter().map(|text| parse_idle_power(text).unwrap()).collect();
        context.options.set(EnergyOptions { pause, idle_power, ..EnergyOptions::default() });
        let built = built(&ENTRY, &context);
        let jobs = [7, 8].map(|id| job(id, machine.v2(&format!("job_{id}")), &[]));
        let node = Self {
            machine,
            built,
            occupancy: OccupancyObserver(context.interval_reader.clone()),
            context,
            jobs,
            began: Instant::now(),
            idle: [0; 4],
        };
        node.busy();
        node
    }

    fn spends(&self, zone: &str, microjoules: u64) -> &Self {
        self.machine.write(&format!("{POWERCAP}/intel-rapl:{zone}/energy_uj"), format!("{microjoules}\n"));
        self
    }

    /// Idle time in ticks, by CPU. The clock runs while the test does: so much of it was busy as the test's own duration.
    fn busy(&self) {
        let lines = self.idle.iter().enumerate().map(|(cpu, idle)| format!("cpu{cpu} 0 0 0 {idle} 0\n"));
        self.machine.write("proc/stat", lines.collect::<String>());
    }

    fn uses(&self, id: u32, millis: u64) -> &Self {
        self.machine.write(&format!("cgroup/job_{id}/cpu.stat"), format!("usage_usec {}\n", millis * 1000));
        self
    }

    fn appears(&self, index: usize) -> &Self {
        self.built.observer.as_ref().unwrap().job_started(&self.jobs[index]);
        self
    }

    fn collect_these(&mut self, jobs: &[Job]) -> (Result<(), SourceError>, String) {
        let mut section = Section::default();
        let outcome =
            self.built.collector.collect(&snapshot_of(self.machine.roots(), jobs.to_vec()), &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    fn collect(&mut self) -> (Result<(), SourceError>, String) {
        let jobs = self.jobs.clone();
        self.collect_these(&jobs)
    }
}

fn node_total(text: &str, domain: &str, socket: &str) -> Option<f64> {
    total_of(text, domain, socket, "powercap")
}

fn total_of(text: &str, domain: &str, socket: &str, source: &str) -> Option<f64> {
    let labels = format!("domain=\"{domain}\",socket=\"{socket}\",source=\"{source}\"");
    value(text, &format!("jobledger_node_energy_joules_total{{{labels}}}"))
}

fn unattributed(text: &str, domain: &str, socket: &str) -> Option<f64> {
    value(
        text,
        &format!(
            "jobledger_node_energy_unattributed_joules_total{{domain=\"{domain}\",socket=\"{socket}\"}}"
        ),
    )
}

/// What a job has of a domain and socket, by all methods.
fn jobs_part(text: &str, id: u32, domain: &str, socket: &str) -> f64 {
    let start =
        format!("jobledger_job_energy_joules_total{{jobid=\"{id}\",domain=\"{domain}\",socket=\"{socket}\"");
    let lines = text.lines().filter(|line| line.starts_with(&start));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-3 * other.abs().max(1.0)
}

#[test]
fn energy_is_split_socket_by_socket_and_balances() {
    // All power is idle power: the split does not depend on how long this test takes.
    let mut node = Node::new(&["package=50000"]);
    node.appears(0).appears(1);
    drop(node.collect());
    std::thread::sleep(Duration::from_millis(30));
    node.spends("0", 1_000_000_000).spends("1", 500_000_000);
    let (outcome, text) = node.collect();
    assert_eq!(outcome, Ok(()), "{text}");
    assert_eq!(node_total(&text, "package", "0"), Some(1000.0), "{text}");
    assert_eq!(node_total(&text, "package", "1"), Some(500.0), "{text}");
    assert!(close(jobs_part(&text, 7, "package", "0"), 500.0), "one of two CPUs: {text}");
    assert_eq!(jobs_part(&text, 7, "package", "1"), 0.0, "{text}");
    assert!(close(jobs_part(&text, 8, "package", "1"), 500.0), "{text}");
    assert!(text.contains("method=\"cpus_held_and_cpu_time\""), "{text}");
    for (socket, total) in [("0", 1000.0), ("1", 500.0)] {
        let jobs: f64 = [7, 8].iter().map(|id| jobs_part(&text, *id, "package", socket)).sum();
        assert!((jobs + unattributed(&text, "package", socket).unwrap() - total).abs() < 1e-6, "{text}");
    }
    assert!(
        text.contains(
            "jobledger_node_energy_idle_watts{domain=\"package\",socket=\"0\",origin=\"set\"} 50000.0\n"
        ),
        "{text}"
    );
}

#[test]
fn what_is_beyond_idle_goes_by_cpu_time() {
    jobledger_testkit::in_time(|| {
        let mut node = Node::new(&["package=0"]);
        node.appears(0).appears(1);
        drop(node.collect());
        std::thread::sleep(Duration::from_millis(200));
        // CPUs 0 and 1 were idle all the time; job 7 reports 50 ms of CPU time, more than the socket's busy time can
        // be.
        let passed = u64::try_from(node.began.elapsed().as_millis() / 10).unwrap() + 1000;
        node.idle = [passed, passed, 0, 0];
        node.busy();
        node.uses(7, 50).uses(8, 20).spends("0", 1_000_000).spends("1", 1_000_000);
        let (_, text) = node.collect();
        assert!(close(jobs_part(&text, 7, "package", "0"), 1.0), "{text}");
        // Socket 1 was busy with other things for most of the time.
        let eight = jobs_part(&text, 8, "package", "1");
        assert!(eight > 0.0 && eight < 0.06, "{eight} {text}");
        assert!((eight + unattributed(&text, "package", "1").unwrap() - 1.0).abs() < 1e-6, "{text}");
    });
}

#[test]
fn memory_goes_by_what_is_held_of_what_is_used_of_each_socket() {
    let mut node = Node::new(&[]);
    node.appears(0).appears(1);
    let gib = 1_u64 << 30;
    // All of it is used, where the kernel does not say how much.
    let used = "Node 0 MemTotal:  1048576 kB\nNode 0 MemUsed:  524288 kB\n";
    node.machine.write("sys/devices/system/node/node0/meminfo", used);
    node.machine.write(
        "cgroup/job_7/memory.numa_stat",
        format!("anon N0={} N1={}\nfile N0={} N1=0\n", gib / 8, gib / 2, gib / 8),
    );
    drop(node.collect());
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0:0", 8_000_000).spends("1:0", 8_000_000);
    let (_, text) = node.collect();
    assert!(close(jobs_part(&text, 7, "dram", "0"), 4.0), "{text}");
    assert!(close(jobs_part(&text, 7, "dram", "1"), 4.0), "{text}");
    assert!(close(unattributed(&text, "dram", "0").unwrap(), 4.0), "{text}");
    assert!(text.contains("method=\"memory_held\""), "{text}");
    assert!(!text.contains("domain=\"dram\",socket=\"0\",origin"), "memory has no idle power: {text}");
}

#[test]
fn while_the_idle_power_is_unknown_the_method_says_so() {
    let mut node = Node::new(&[]);
    node.appears(0).appears(1);
    drop(node.collect());
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0", 1_000_000);
    let (_, text) = node.collect();
    let own =
        "jobledger_job_energy_joules_total{jobid=\"7\",domain=\"package\",socket=\"0\",method=\"cpus_held\"}";
    assert!(close(value(&text, own).unwrap(), 0.5), "{text}");
    assert!(!text.contains("idle_watts{"), "{text}");
}

#[test]
fn a_wrap_is_charged_and_a_driver_that_was_loaded_anew_is_none() {
    let mut node = Node::new(&["package=0"]);
    node.spends("0", RANGE - 1_000_000).spends("1", RANGE / 2);
    drop(node.collect());
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0", 2_000_000).spends("1", 3_000_000);
    let (_, text) = node.collect();
    assert!(close(node_total(&text, "package", "0").unwrap(), 3.0), "{text}");
    // A wrap would be 131 kJ in 20 ms.
    assert_eq!(node_total(&text, "package", "1"), Some(0.0), "{text}");
    node.spends("1", 4_000_000);
    let (_, text) = node.collect();
    assert_eq!(node_total(&text, "package", "1"), Some(1.0), "{text}");
}

#[test]
fn a_job_that_came_and_went_between_two_scrapes_is_charged_for_the_time_it_was_there() {
    jobledger_testkit::in_time(|| {
        let mut node = Node::new(&["package=100000"]);
        drop(node.collect());
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        node.appears(0);
        std::thread::sleep(Duration::from_millis(100));
        node.built.observer.as_ref().unwrap().job_left_node(node.jobs[0].run);
        let there = begin.elapsed();
        std::thread::sleep(Duration::from_millis(100));
        node.spends("0", 3_000_000);
        let seven = ended(&node.jobs[0]);
        let (_, text) = node.collect_these(std::slice::from_ref(&seven));
        let all = node.began.elapsed();
        // Half the socket for about a third of the time.
        let part = jobs_part(&text, 7, "package", "0");
        let least = 1.5 * there.as_secs_f64() / all.as_secs_f64();
        assert!(part > 0.9 * least && part < 1.5, "{part} {least} {text}");
        // While it is retained it is exported; when it is dropped the node's total does not change.
        node.built.observer.as_ref().unwrap().job_removed(seven.run, Disposition::Exported);
        let (_, text) = node.collect_these(&[]);
        assert_eq!(node_total(&text, "package", "0"), Some(3.0), "{text}");
        assert!((unattributed(&text, "package", "0").unwrap() - (3.0 - part)).abs() < 1e-6, "{text}");
    });
}

#[test]
fn a_run_that_is_dropped_before_a_scrape_shows_it_leaves_its_energy_unattributed() {
    let mut node = Node::new(&["package=100000"]);
    drop(node.collect_these(&[]));
    std::thread::sleep(Duration::from_millis(20));
    node.appears(0);
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0", 3_000_000);
    let (observer, run) = (node.built.observer.clone().unwrap(), node.jobs[0].run);
    observer.job_left_node(run);
    // Before the meters were read again: a part of the three joules is not charged to it yet.
    observer.job_removed(run, Disposition::Dropped);
    for _ in 0..2 {
        let (_, text) = node.collect_these(&[]);
        assert_eq!(node_total(&text, "package", "0"), Some(3.0), "{text}");
        assert_eq!(unattributed(&text, "package", "0"), Some(3.0), "{text}");
    }
}

#[test]
fn jobs_that_come_and_go_are_read_by_the_thread_of_the_ledger() {
    jobledger_testkit::in_time(|| {
        let mut node = Node::new(&["package=100000"]);
        node.occupancy.initial_scan_done();
        drop(node.collect());
        std::thread::sleep(Duration::from_millis(150));
        node.spends("0", 1_000_000);
        // The joule was spent before the job: a reading at its start keeps it from being charged.
        node.appears(0);
        node.occupancy.job_started(&node.jobs[0]);
        std::thread::sleep(Duration::from_millis(200));
        let jobs = [node.jobs[0].clone()];
        let (_, text) = node.collect_these(&jobs);
        assert!(jobs_part(&text, 7, "package", "0") < 0.05, "{text}");
        assert_eq!(node_total(&text, "package", "0"), Some(1.0), "{text}");
    });
}

#[test]
fn a_zone_that_cannot_be_read_is_absent_and_the_others_are_exported() {
    let mut node = Node::new(&["package=0"]);
    node.appears(0).appears(1);
    drop(node.collect());
    node.spends("1", 1_000_000);
    node.machine.write(&format!("{POWERCAP}/intel-rapl:0/energy_uj"), "nonsense\n");
    let (outcome, text) = node.collect();
    assert_eq!(outcome.unwrap_err().reason(), "partial");
    assert_eq!(node_total(&text, "package", "0"), None, "{text}");
    assert_eq!(unattributed(&text, "package", "0"), None, "{text}");
    assert_eq!(node_total(&text, "package", "1"), Some(1.0), "{text}");
    node.spends("0", 2_000_000);
    let (outcome, text) = node.collect();
    assert_eq!(outcome, Ok(()));
    assert_eq!(node_total(&text, "package", "0"), Some(2.0), "nothing is lost: {text}");
}

#[test]
fn every_zone_is_listed_with_its_role() {
    let mut node = Node::new(&[]);
    let (_, text) = node.collect();
    let info = "jobledger_node_energy_zone_info{domain=\"package\",socket=\"0\",source=\"powercap\",standing=\"booked\",estimated=\"false\"} 1\n";
    assert!(text.contains(info), "{text}");
    assert_eq!(text.matches("standing=\"booked\"").count(), 4, "{text}");
}

#[test]
fn a_node_without_any_meter_is_unsupported_and_nothing_is_exported() {
    let machine = Laid::new();
    machine.write("sys/devices/system/cpu/online", "0\n");
    machine.write("proc/stat", "cpu0 0 0 0 0 0\n");
    let (outcome, text) =
        crate::collector::testing::collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
    assert_eq!(outcome.unwrap_err().reason(), "unsupported");
    assert_eq!(text, "# EOF\n");
}

#[test]
fn jobs_that_no_event_reported_are_taken_over_from_the_scrape() {
    let mut node = Node::new(&["package=100000"]);
    drop(node.collect());
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0", 1_000_000);
    let (_, text) = node.collect();
    assert!(close(jobs_part(&text, 7, "package", "0"), 0.5), "{text}");
}

#[test]
fn a_directory_that_somebody_left_holds_nothing() {
    let mut node = Node::new(&["package=100000"]);
    let mut snapshot = snapshot_of(node.machine.roots(), Vec::new());
    snapshot.pending = vec![Arc::new(node.jobs[0].clone())];
    let collect = |node: &mut Node| {
        let mut section = Section::default();
        node.built.collector.collect(&snapshot, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text
    };
    collect(&mut node);
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0", 1_000_000);
    assert_eq!(unattributed(&collect(&mut node), "package", "0"), Some(1.0));
}

#[test]
fn events_of_a_busy_node_whose_meter_hangs_do_not_pile_up() {
    let node = Node::new(&[]);
    let shared = parts(&BuildContext::new(
        Arc::new(node.machine.roots()),
        Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap()),
    ));
    for run in 0..3 * MOST_EVENTS as u64 {
        shared.job_left_node(JobRunId(run));
    }
    let events = shared.events.lock();
    assert!(events.lost && events.waiting.len() <= MOST_EVENTS);
}

#[test]
fn who_scrapes_often_learns_no_more_than_who_scrapes_once_a_second() {
    let mut node = Node::with_pause(&["package=0"], Duration::from_millis(300));
    drop(node.collect());
    let begun = Instant::now();
    for joule in 1..=10_u64 {
        node.spends("0", joule * 1_000_000);
        let (outcome, text) = node.collect();
        assert_eq!(outcome, Ok(()));
        if begun.elapsed() < Duration::from_millis(250) {
            assert_eq!(node_total(&text, "package", "0"), Some(0.0), "{text}");
        }
    }
    std::thread::sleep(Duration::from_millis(310));
    assert_eq!(node_total(&node.collect().1, "package", "0"), Some(10.0), "nothing is lost");
}

#[test]
fn it_is_read_again_before_a_counter_can_wrap_twice_and_only_without_scrapes() {
    let node = Node::new(&[]);
    let shared = parts(&BuildContext::new(
        Arc::new(node.machine.roots()),
        Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap()),
    ));
    assert_eq!(shared.due(), None, "nothing was read yet");
    let before = Instant::now();
    Energy { shared: shared.clone() }
        .collect(&snapshot_of(node.machine.roots(), Vec::new()), &mut Section::default())
        .unwrap();
    let due = shared.due().unwrap();
    assert!(due >= before + Duration::from_secs(30) && due <= Instant::now() + Duration::from_secs(60));
    std::thread::sleep(Duration::from_millis(5));
    shared.read_now(Call::Due);
    assert!(shared.due().unwrap() > due, "the next one is later");
}

#[test]
fn who_finds_the_meters_taken_waits_and_does_not_ask_without_end() {
    let node = Node::new(&[]);
    let shared = parts(&BuildContext::new(
        Arc::new(node.machine.roots()),
        Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap()),
    ));
    shared.read_now(Call::Due);
    shared.plan.lock().soon = Some(Instant::now());
    assert!(shared.due().unwrap() <= Instant::now());
    shared.accounts.with(Duration::ZERO, |_| shared.read_now(Call::Due)).unwrap();
    assert!(shared.due().unwrap() > Instant::now() + Duration::from_millis(500));
    shared.read_now(Call::Due);
    assert!(shared.due().unwrap() > Instant::now() + Duration::from_secs(20), "read: the next is regular");
}
