//! What the collector of energy gets, and what it makes of it.

use attribution::Measured;
use perf_counters::resctrl::testing::Fake;

use super::resctrl::monitored;
use super::*;
use crate::collector::devices::energy;
use crate::collector::memory_moved::BySocket;

/// Meters that are read as often as somebody asks.
pub(super) fn unpaused() -> energy::EnergyOptions {
    energy::EnergyOptions { pause: Duration::ZERO, ..Default::default() }
}

/// What it gets of a socket: bytes, and of which jobs (by id).
type Got = Option<(u64, Option<Vec<(u32, u64)>>)>;

impl Node {
    fn moved(&self) -> [Got; 2] {
        self.hardware.runs(1);
        let moved: BySocket = self.context.memory_moved.take();
        let id = |run: JobRunId| self.jobs.iter().find(|job| job.run == run).unwrap().id.unwrap().0;
        let got = |Measured { amount: bytes, jobs }| {
            let jobs: Option<Vec<_>> =
                jobs.map(|jobs| jobs.into_iter().map(|(run, bytes)| (id(run), bytes)).collect());
            (bytes, jobs)
        };
        [0, 1].map(|socket| moved.get(&Some(socket)).cloned().flatten().map(got))
    }
}

fn known(bytes: u64, jobs: &[(u32, u64)]) -> Got {
    Some((bytes, Some(jobs.to_vec())))
}

#[test]
fn controllers_say_what_a_socket_moved_and_whose_it_was_while_a_job_was_alone() {
    let at = Node::new();
    at.looked();
    assert_eq!(at.moved(), [None, None], "since when is not known");
    at.reads(0, 10);
    assert_eq!(at.moved(), [known(640, &[]), known(0, &[])], "no job is there");
    at.appears(7);
    at.moved();
    at.reads(0, 10).settle().reads(0, 1);
    at.hardware.counts(20, WRITE, 0, 3);
    assert_eq!(at.moved(), [known(14 * 64, &[(7, 14 * 64)]), known(0, &[(7, 0)])]);
    // Both may be everywhere.
    at.machine.write("cgroup/job_8/cpuset.mems.effective", "0-1\n");
    at.appears(8);
    at.moved();
    at.reads(0, 10);
    assert_eq!(at.moved(), [Some((640, None)), known(0, &[(8, 0)])], "7 cannot be on the second");
}

#[test]
fn what_controllers_did_not_count_all_the_time_is_not_handed_over() {
    let at = Node::new();
    at.looked().appears(7);
    at.moved();
    at.reads(0, 10);
    assert_eq!(at.moved()[0], known(640, &[(7, 640)]));
    at.hardware.fails(21, READ, 0, Some(ReadError::Io(5)));
    at.reads(0, 10);
    assert_eq!(at.moved(), [None, known(0, &[(7, 0)])]);
    at.hardware.fails(21, READ, 0, None);
    at.reads(0, 10);
    assert_eq!(at.moved()[0], None, "these bytes are of a longer time");
    at.reads(0, 10);
    assert_eq!(at.moved()[0], known(640, &[(7, 640)]));
    at.hardware.turns(1000, 200).counts(20, READ, 0, 10);
    assert_eq!(at.moved()[0], None, "a fifth of the time");
    at.hardware.turns(1000, 500).counts(20, READ, 0, 10);
    let [Some((bytes, Some(_))), _] = at.moved() else { panic!("half of it") };
    assert!(bytes.abs_diff(1280) < 10, "{bytes}");
    at.hardware.runs(5).goes_back(20, READ, 0, 4);
    assert_eq!(at.moved()[0], None, "began anew");
    at.context.ownership.yield_for(Reason::Lock);
    assert_eq!(at.moved(), [None, None], "a profiler has them");
    at.context.ownership.resume_from(Reason::Lock);
    assert_eq!(at.moved(), [None, None], "since when is not known");
    assert_eq!(at.moved()[0], known(0, &[(7, 0)]));
    // Somebody else is reading.
    at.reads(0, 10);
    at.shared.accounts.with(Duration::from_secs(20), |_| assert_eq!(at.moved(), [None, None])).unwrap();
    assert_eq!(at.moved(), [None, None], "of a longer time");
    assert_eq!(at.moved()[0], known(0, &[(7, 0)]));
}

#[test]
fn resctrl_says_what_jobs_moved_if_all_of_them_are_monitored() {
    let (at, fake) = monitored(&[0, 1, 2, 3], 1);
    fake.spawn(70, "job_7", "");
    at.looked().appears(7);
    assert_eq!(at.moved(), [None, None], "since when is not known");
    fake.moves(70, 0, 1000).moves(70, 1, 24).moves(70, 2, 6).moves(1, 0, 9);
    at.reads(0, 10);
    assert_eq!(at.moved(), [known(1033, &[(7, 1024)]), known(6, &[(7, 6)])]);
    // There is one RMID.
    fake.spawn(80, "job_8", "");
    at.appears(8);
    at.moved();
    fake.moves(80, 0, 50).moves(70, 0, 5);
    assert_eq!(at.moved(), [Some((55, None)), Some((0, None))]);
    fake.exit(80);
    at.leaves(8);
    at.moved();
    fake.moves(70, 0, 5);
    assert_eq!(at.moved()[0], known(5, &[(7, 5)]));
    // What it moved last is read when it ends.
    fake.moves(70, 0, 7).exit(70);
    at.leaves(7);
    fake.moves(1, 0, 2);
    assert_eq!(at.moved()[0], known(9, &[(7, 7)]));
    fake.moves(1, 0, 2);
    assert_eq!(at.moved()[0], known(2, &[]));
}

#[test]
fn a_socket_whose_l3_caches_were_not_all_read_is_not_handed_over() {
    let (at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.spawn(70, "job_7", "");
    at.looked().appears(7);
    at.moved();
    let group = fake.ours().remove(0);
    fake.state().instead.insert((group.clone(), 1), "Unavailable");
    fake.moves(70, 0, 10).moves(70, 2, 20);
    assert_eq!(at.moved(), [None, known(20, &[(7, 20)])]);
    fake.state().instead.clear();
    fake.moves(70, 1, 10);
    assert_eq!(at.moved(), [None, known(0, &[(7, 0)])], "the count begins here");
    fake.moves(70, 1, 10);
    assert_eq!(at.moved()[0], known(10, &[(7, 10)]));
}

fn joules(text: &str, id: u32, socket: u32, method: &str) -> Option<f64> {
    let labels = format!("jobid=\"{id}\",domain=\"dram\",socket=\"{socket}\",method=\"{method}\"");
    value(text, &format!("jobledger_job_energy_joules_total{{{labels}}}"))
}

/// A job that streams with little memory beside one that computes with much.
#[test]
fn memory_energy_follows_the_bytes_of_jobs_that_resctrl_monitors() {
    let (mut at, fake): (Node, Fake) = monitored(&[0, 1, 2, 3], 8);
    for (id, cpus, kib) in [(7, "0", 1), (8, "1-3", 1 << 19)] {
        at.machine.write(&format!("cgroup/job_{id}/cpuset.cpus"), format!("{cpus}\n"));
        at.machine.write(&format!("cgroup/job_{id}/cpu.stat"), "usage_usec 0\n");
        let bytes = kib * 1024;
        at.machine.write(
            &format!("cgroup/job_{id}/memory.numa_stat"),
            format!("anon N0={bytes} N1=0\nfile N0=0 N1=0\n"),
        );
    }
    let idle: String = (0..8).map(|cpu| format!("cpu{cpu} 0 0 0 0 0\n")).collect();
    at.machine.write("proc/stat", idle);
    let zone = "sys/class/powercap/intel-rapl:0";
    for (zone, name) in [(zone.to_owned(), "package-0"), (format!("{zone}:0"), "dram")] {
        at.machine.write(&format!("{zone}/name"), format!("{name}\n"));
        at.machine.write(&format!("{zone}/max_energy_range_uj"), "262143328850\n");
        at.machine.write(&format!("{zone}/energy_uj"), "0\n");
    }
    let idle_power = vec![energy::parse_idle_power("dram=0").unwrap()];
    at.context.options.set(energy::EnergyOptions { idle_power, ..unpaused() });
    let mut meter = crate::collector::testing::built(&energy::ENTRY, &at.context);
    let mut collect = |at: &mut Node| {
        at.hardware.runs(1);
        let mut section = Section::default();
        let snapshot = snapshot_of(at.machine.roots(), at.jobs.clone());
        meter.collector.collect(&snapshot, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text
    };
    fake.spawn(70, "job_7", "").spawn(80, "job_8", "");
    at.looked().appears(7).appears(8);
    // The meter's first reading, and the first of which it is known since when the bytes count.
    collect(&mut at);
    collect(&mut at);
    fake.moves(70, 0, 900).moves(80, 1, 80).moves(1, 0, 20);
    std::thread::sleep(Duration::from_millis(20));
    at.machine.write(&format!("{zone}:0/energy_uj"), "10000000\n");
    let text = collect(&mut at);
    let by = |id| joules(&text, id, 0, "cpus_held_and_memory_traffic");
    assert_eq!((by(7), by(8)), (Some(9.0), Some(0.8)), "{text}");
}

/// The collector of energy runs right before.
#[test]
fn what_was_read_for_the_collector_of_energy_is_not_read_again_in_the_same_collection() {
    jobledger_testkit::in_time(|| {
        let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
        fake.spawn(70, "job_7", "");
        at.looked().appears(7);
        at.collect();
        let series = "jobledger_job_memory_traffic_bytes_total{jobid=\"7\",socket=\"0\",kind=\"l3_external\",direction=\"both\",method=\"resctrl\"}";
        fake.moves(70, 0, 900);
        at.moved();
        fake.moves(70, 0, 1);
        assert_eq!(value(&at.collect(), series), Some(900.0));
        assert_eq!(value(&at.collect(), series), Some(901.0));
    });
}
