use attribution::{Basis, EnergyAccounts, IdlePower, Interval};
use cpu_topology::Part;
use readings::Gain;

use super::*;
use crate::collector::testing::Machine as Laid;

const RUN: JobRunId = JobRunId(7);
const MS: u128 = 1_000_000;

/// Two sockets of four CPUs, a NUMA node each.
fn topology() -> Topology {
    let part = |cpus: std::ops::Range<u32>, node| Part {
        cpus: cpus.collect(),
        nodes: [node].into_iter().collect(),
        memory: Some(1 << 30),
    };
    let whole = Part { cpus: (0..8).collect(), nodes: (0..2).collect(), memory: Some(2 << 30) };
    Topology {
        sockets: BTreeMap::from([(0, part(0..4, 0)), (1, part(4..8, 1))]),
        whole,
        ..Topology::default()
    }
}

struct Case {
    machine: Laid,
    usages: JobUsages,
    begin: Instant,
}

impl Case {
    fn new(cpuset: &str) -> Self {
        let machine = Laid::new();
        machine.write("cgroup/job_7/cpuset.cpus", format!("{cpuset}\n"));
        let mut usages = JobUsages::default();
        let begin = Instant::now();
        usages.appeared(RUN, Arc::new(machine.v2("job_7")), Facts::default(), begin);
        Self { machine, usages, begin }
    }

    fn at(&self, millis: u64) -> Instant {
        self.begin + Duration::from_millis(millis)
    }

    fn spends(&mut self, millis: u64) -> &mut Self {
        self.machine.write("cgroup/job_7/cpu.stat", format!("usage_usec {}\n", millis * 1000));
        self.read()
    }

    fn read(&mut self) -> &mut Self {
        let wanted = Wanted { memory: true, page: 4096 };
        self.usages.read(wanted, &topology(), &mut Buffer::default());
        self
    }

    fn of(&self, part: Option<u32>, (from, to): (u64, u64), busy: &[(u32, u64)]) -> Use {
        let cpus = busy.iter().map(|(cpu, ms)| (*cpu, Duration::from_millis(*ms))).collect();
        let busy = BusyTimes { cores: topology().core_times(&cpus), cpus };
        let uses = self.usages.uses((self.at(from), self.at(to)), (part, &topology()), Some(&busy));
        uses.get(&RUN).copied().unwrap_or_default()
    }
}

fn spent(total_ns: u64) -> Facts {
    Facts { spent: Some(Spent { total_ns, ..Spent::default() }), cpuset: None }
}

#[test]
fn a_job_that_came_and_went_between_two_looks_is_known_by_what_was_read_then() {
    let mut case = Case::new("4");
    let cgroup = Arc::new(case.machine.v2("job_7"));
    case.machine.write("cgroup/job_7/cpu.stat", "usage_usec 70000\n");
    let facts = Facts::read(&cgroup.view(), &mut Buffer::default());
    case.usages.appeared(RUN, cgroup, Facts::default(), case.at(100));
    case.usages.facts(RUN, facts);
    case.usages.left(RUN, case.at(300));
    case.machine.remove("cgroup/job_7");
    let there = case.read().of(Some(1), (0, 1000), &[]);
    assert_eq!((there.held_cpu_ns, there.used_core_ns), (200 * MS, 70 * MS));
}

#[test]
fn a_job_on_one_socket_spent_all_its_time_there() {
    let mut case = Case::new("1-2");
    case.spends(300);
    let there = case.of(Some(0), (0, 1000), &[(1, 10), (5, 1000)]);
    assert_eq!((there.held_cpu_ns, there.used_core_ns), (2000 * MS, 300 * MS));
    assert_eq!(case.of(Some(1), (0, 1000), &[(1, 10), (5, 1000)]), Use::default());
    assert_eq!(case.of(None, (0, 1000), &[]).used_core_ns, 300 * MS);
}

#[test]
fn a_job_across_sockets_is_split_as_its_cpus_were_busy() {
    let mut case = Case::new("3-5");
    case.spends(900);
    let busy = [(0, 500), (3, 200), (4, 100), (5, 300)];
    assert_eq!(case.of(Some(0), (0, 1000), &busy).used_core_ns, 300 * MS);
    assert_eq!(case.of(Some(1), (0, 1000), &busy).used_core_ns, 600 * MS);
    assert_eq!(case.of(Some(1), (0, 1000), &busy).held_cpu_ns, 2000 * MS);
    assert_eq!(
        case.of(Some(1), (0, 1000), &[]).used_core_ns,
        600 * MS,
        "by their number where that is not known"
    );
}

#[test]
fn a_job_whose_cpus_slurm_does_not_constrain_holds_none() {
    let mut case = Case::new("");
    case.spends(900);
    let there = case.of(Some(1), (0, 1000), &[(0, 100), (5, 200)]);
    assert_eq!((there.held_cpu_ns, there.used_core_ns), (0, 600 * MS));
}

#[test]
fn what_it_spent_before_it_was_seen_is_not_split() {
    let mut case = Case::new("0");
    let cgroup = Arc::new(case.machine.v2("job_7"));
    let before = Spent { total_ns: 5_000_000_000, ..Spent::default() };
    case.usages.appeared(RUN, cgroup, Facts { spent: Some(before), cpuset: None }, case.begin);
    case.spends(5200);
    assert_eq!(case.of(Some(0), (0, 1000), &[]).used_core_ns, 200 * MS);
}

#[test]
fn only_the_time_it_was_there_counts_and_what_was_charged_is_not_charged_again() {
    let mut case = Case::new("0-1");
    case.spends(300);
    assert_eq!(case.of(Some(0), (0, 1000), &[]).held_cpu_ns, 2000 * MS);
    case.usages.attributed();
    assert_eq!(case.of(Some(0), (1000, 1000), &[]), Use::default());
    // The end of its last step, then its directory goes in the middle of the interval.
    case.usages.facts(RUN, spent(450_000_000));
    case.usages.left(RUN, case.at(1500));
    case.machine.remove("cgroup/job_7");
    case.read();
    let last = case.of(Some(0), (1000, 2000), &[]);
    assert_eq!((last.held_cpu_ns, last.used_core_ns), (1000 * MS, 150 * MS));
    case.usages.attributed();
    assert!(!case.usages.has(RUN));
}

#[test]
fn an_older_reading_changes_nothing() {
    let mut case = Case::new("0");
    case.spends(300);
    case.usages.facts(RUN, spent(1));
    assert_eq!(case.of(Some(0), (0, 1000), &[]).used_core_ns, 300 * MS);
}

#[test]
fn v1_counts_each_cpu() {
    let machine = Laid::new();
    machine.write("cgroup/cpuacct/job_7/cpuacct.usage_percpu", "10 0 0 5 0 0 0 9 \n");
    machine.write("cgroup/cpuset/job_7/cpuset.cpus", "0-7\n");
    machine
        .write("cgroup/memory/job_7/memory.numa_stat", "total=1 N0=1 N1=0\nhierarchical_total=9 N0=3 N1=6\n");
    let cgroup = machine.v1(&[("cpuacct", "job_7"), ("cpuset", "job_7"), ("memory", "job_7")]);
    let mut usages = JobUsages::default();
    let begin = Instant::now();
    let buffer = &mut Buffer::default();
    let cgroup = Arc::new(cgroup);
    let facts = Facts::read(&cgroup.view(), buffer);
    usages.appeared(RUN, cgroup, facts, begin);
    machine.write("cgroup/cpuacct/job_7/cpuacct.usage_percpu", "30 1 0 5 0 0 0 19 \n");
    usages.read(Wanted { memory: true, page: 4096 }, &topology(), buffer);
    let interval = (begin, begin + Duration::from_secs(1));
    let of = |part| usages.uses(interval, (part, &topology()), None).get(&RUN).copied().unwrap();
    assert_eq!((of(Some(0)).used_core_ns, of(Some(1)).used_core_ns, of(None).used_core_ns), (21, 10, 31));
    assert_eq!(of(Some(1)).held_byte_ns, 6 * 4096 * 1000 * MS);
}

#[test]
fn directories_that_v1_made_anew_count_from_their_beginning() {
    let machine = Laid::new();
    let mut usages = JobUsages::default();
    let begin = Instant::now();
    let buffer = &mut Buffer::default();
    let mut usages_with = |usage: &str, millis: u64| {
        if millis == 2 {
            std::fs::rename(machine.path.join("cgroup/cpuacct/job_7"), machine.path.join("cgroup/gone"))
                .unwrap();
        }
        machine.write("cgroup/cpuacct/job_7/cpuacct.usage_percpu", usage);
        let cgroup = Arc::new(machine.v1(&[("cpuacct", "job_7")]));
        if usages.has(RUN) {
            usages.reopened(RUN, &cgroup);
        } else {
            usages.appeared(RUN, cgroup, Facts::default(), begin);
        }
        usages.read(Wanted { memory: false, page: 4096 }, &topology(), buffer);
        let interval = (begin, begin + Duration::from_millis(millis));
        let used = usages.uses(interval, (Some(0), &topology()), None).get(&RUN).map(|u| u.used_core_ns);
        usages.attributed();
        used
    };
    assert_eq!(usages_with("50 10\n", 1), Some(60));
    assert_eq!(usages_with("5 1\n", 2), Some(6));
    assert_eq!(usages_with("7 1\n", 3), Some(2));
}

#[test]
fn memory_is_where_the_kernel_says() {
    let mut case = Case::new("0");
    case.machine
        .write("cgroup/job_7/memory.numa_stat", "anon N0=100 N1=7\nfile N0=20 N1=0\nshmem N0=5 N1=0\n");
    case.read();
    assert_eq!(case.of(Some(0), (0, 1000), &[]).held_byte_ns, 120 * 1000 * MS);
    assert_eq!(case.of(Some(1), (0, 1000), &[]).held_byte_ns, 7 * 1000 * MS);
    assert_eq!(case.of(None, (0, 1000), &[]).held_byte_ns, 127 * 1000 * MS);
}

#[test]
fn a_node_of_one_socket_needs_no_more_than_the_sum() {
    let machine = Laid::new();
    machine.write("cgroup/job_7/memory.current", "4096\n");
    let part = Part { cpus: (0..2).collect(), nodes: (0..1).collect(), memory: Some(1 << 30) };
    let topology =
        Topology { sockets: BTreeMap::from([(0, part.clone())]), whole: part, ..Topology::default() };
    let mut usages = JobUsages::default();
    let begin = Instant::now();
    usages.appeared(RUN, Arc::new(machine.v2("job_7")), Facts::default(), begin);
    usages.read(Wanted { memory: true, page: 4096 }, &topology, &mut Buffer::default());
    let interval = (begin, begin + Duration::from_secs(1));
    for part in [Some(0), None] {
        assert_eq!(usages.uses(interval, (part, &topology), None)[&RUN].held_byte_ns, 4096 * 1000 * MS);
    }
}

#[test]
fn what_is_malformed_is_refused() {
    assert_eq!(parse_numa_stat(b"anon N0=x\n"), Err(ParseError::new(1, "not N<node>=<number>")));
    assert_eq!(parse_numa_stat(b"anon 5\n"), Err(ParseError::new(1, "not N<node>=<number>")));
    assert_eq!(parse_numa_stat(b"anon N0=5"), Err(ParseError::new(1, "torn line")));
    assert_eq!(parse_numa_stat(b"slab_reclaimable N0=5\n").unwrap(), BTreeMap::new());
    assert!(parse_numa_stat_v1(b"hierarchical_total=5 N-1=5\n", 4096).is_err());
    assert_eq!(parse_usage_percpu(b"1 2 3 \n").unwrap(), [1, 2, 3]);
    assert!(parse_usage_percpu(b"1 -2\n").is_err());
}

/// Cores of two threads draw 10 W with one of them busy and 12 W with both. One job has both threads of four cores, another one
/// thread of each of four more; the table of docs/energy.md has what they are charged over what they spent.
#[test]
fn a_second_thread_of_a_core_is_not_charged_like_another_core() {
    let topology = Topology {
        whole: Part { cpus: (0..16).collect(), ..Part::default() },
        cores: (0..16).map(|cpu| (cpu, cpu % 8)).collect(),
        ..Topology::default()
    };
    let second = Duration::from_secs(1);
    let cpus: BTreeMap<u32, Duration> = (0..12).map(|cpu| (cpu, second)).collect();
    let busy = BusyTimes { cores: topology.core_times(&cpus), cpus };
    let machine = Laid::new();
    let mut usages = JobUsages::default();
    let begin = Instant::now();
    for (run, cpuset, seconds) in [(1, "0-3,8-11", 8), (2, "4-7", 4)] {
        let job = format!("job_{run}");
        machine.write(&format!("cgroup/{job}/cpuset.cpus"), format!("{cpuset}\n"));
        machine.write(&format!("cgroup/{job}/cpu.stat"), format!("usage_usec {}\n", seconds * 1_000_000));
        usages.appeared(JobRunId(run), Arc::new(machine.v2(&job)), Facts::default(), begin);
    }
    usages.read(Wanted { memory: false, page: 4096 }, &topology, &mut Buffer::default());
    let uses = usages.uses((begin, begin + second), (None, &topology), Some(&busy));
    assert_eq!(busy.of(&topology.whole.cpus), Busy { cpus_ns: 12_000 * MS, cores_ns: 8_000 * MS });
    assert_eq!(uses.values().map(|used| used.used_core_ns).collect::<Vec<_>>(), [4_000 * MS; 2]);
    let mut energy = EnergyAccounts::new(Basis::Cpus, IdlePower::Set(0));
    energy.observe(&Interval::default(), Some(Gain::First));
    let busy = Some(busy.of(&topology.whole.cpus));
    let interval = Interval { length: second, uses, busy, ..Interval::default() };
    energy.observe(&interval, Some(Gain::Grown(88_000_000)));
    // One spent 48 J, the other 40; by CPU time it were 58.7 J and 29.3 J.
    for (run, true_joules) in [(1, 48.0), (2, 40.0)] {
        let charged: u64 = energy.account().of(JobRunId(run)).map(|(_, energy)| energy).sum();
        let ratio = charged as f64 / 1e6 / true_joules;
        assert!((ratio - 1.0).abs() <= 0.1001, "{run}: {ratio}");
    }
}
