//! Memory's energy by what was moved.

use attribution::Measured;

use super::*;
use crate::collector::memory_moved::{BySocket, MovedSource};
use crate::collector::testing::restore;

/// Answers what a test has set, once.
#[derive(Default)]
struct Canned(Mutex<BySocket>);

impl MovedSource for Canned {
    fn moved(&self) -> BySocket {
        std::mem::take(&mut *self.0.lock())
    }

    fn core_energy(&self) -> BySocket {
        BySocket::default()
    }
}

impl Canned {
    fn of(node: &Node) -> Arc<Self> {
        let canned = Arc::new(Self::default());
        let source: Arc<dyn MovedSource> = canned.clone();
        node.context.memory_moved.set(&source);
        canned
    }

    /// Bytes of a socket, and of the jobs where that is known.
    fn moved(&self, socket: u32, bytes: u64, jobs: Option<&[(&Job, u64)]>) -> &Self {
        let jobs = jobs.map(|jobs| jobs.iter().map(|(job, bytes)| (job.run, *bytes)).collect());
        self.0.lock().insert(Some(socket), Some(Measured { amount: bytes, jobs }));
        self
    }
}

fn by(text: &str, id: u32, socket: u32, method: &str) -> Option<f64> {
    let labels = format!("jobid=\"{id}\",domain=\"dram\",socket=\"{socket}\",method=\"{method}\"");
    value(text, &format!("jobledger_job_energy_joules_total{{{labels}}}"))
}

/// Job 7 holds one of two CPUs of socket 0 and a quarter of its memory, job 8 all CPUs of socket 1 and nothing of its memory.
fn begun(idle: &[&str]) -> (Node, Arc<Canned>) {
    let mut node = Node::new(idle);
    let canned = Canned::of(&node);
    node.appears(0).appears(1);
    let quarter = (1_u64 << 30) / 4;
    node.machine.write("cgroup/job_7/memory.numa_stat", format!("anon N0={quarter} N1=0\nfile N0=0 N1=0\n"));
    drop(node.collect());
    (node, canned)
}

#[test]
fn memory_beyond_its_idle_power_goes_by_what_jobs_moved() {
    let (mut node, canned) = begun(&["dram=0"]);
    let jobs = node.jobs.clone();
    canned.moved(0, 1000, Some(&[(&jobs[0], 500), (&jobs[1], 200)])).moved(1, 10, Some(&[(&jobs[0], 10)]));
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0:0", 8_000_000).spends("1:0", 6_000_000);
    let (outcome, text) = node.collect();
    assert_eq!(outcome, Ok(()), "{text}");
    const METHOD: &str = "cpus_held_and_memory_traffic";
    assert_eq!((by(&text, 7, 0, METHOD), by(&text, 8, 0, METHOD)), (Some(4.0), Some(1.6)), "{text}");
    assert_eq!((by(&text, 7, 1, METHOD), by(&text, 8, 1, METHOD)), (Some(6.0), Some(0.0)), "{text}");
    assert_eq!(unattributed(&text, "dram", "0"), Some(2.4), "{text}");
    let idle = "jobledger_node_energy_idle_watts{domain=\"dram\",socket=\"0\",origin=\"set\"}";
    assert_eq!(value(&text, idle), Some(0.0), "{text}");
}

#[test]
fn the_idle_power_of_memory_goes_by_the_cpus_held() {
    let (mut node, canned) = begun(&["dram=50000"]);
    canned.moved(0, 1000, Some(&[])).moved(1, 1000, Some(&[]));
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0:0", 8_000_000).spends("1:0", 6_000_000);
    let (_, text) = node.collect();
    assert!(close(jobs_part(&text, 7, "dram", "0"), 4.0), "{text}");
    assert!(close(jobs_part(&text, 8, "dram", "1"), 6.0), "{text}");
}

#[test]
fn what_is_counted_late_of_a_job_that_is_gone_is_unattributed() {
    let (mut node, canned) = begun(&["dram=0"]);
    let [gone, there] = node.jobs.clone();
    let observer = node.built.observer.clone().unwrap();
    observer.job_left_node(gone.run);
    canned.moved(0, 1000, Some(&[(&gone, 500), (&there, 500)]));
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0:0", 8_000_000);
    let jobs = [ended(&gone), there.clone()];
    let (_, text) = node.collect_these(&jobs);
    assert!(close(jobs_part(&text, 7, "dram", "0"), 4.0), "it was there until now: {text}");
    canned.moved(0, 1000, Some(&[(&gone, 500), (&there, 500)]));
    std::thread::sleep(Duration::from_millis(20));
    node.spends("0:0", 16_000_000);
    let (_, text) = node.collect_these(&jobs);
    assert!(close(jobs_part(&text, 7, "dram", "0"), 4.0), "{text}");
    assert_eq!(unattributed(&text, "dram", "0"), Some(4.0), "{text}");
    assert_eq!(node_total(&text, "dram", "0"), Some(16.0), "{text}");
}

#[test]
fn a_time_of_which_it_is_not_known_who_moved_what_goes_by_memory_held() {
    let (mut node, canned) = begun(&["dram=0"]);
    let job = node.jobs[0].clone();
    let mut joules = 0;
    let mut step = |node: &mut Node| {
        joules += 8;
        std::thread::sleep(Duration::from_millis(20));
        node.spends("0:0", joules * 1_000_000);
        let (_, text) = node.collect();
        let jobs: f64 = [7, 8].iter().map(|id| jobs_part(&text, *id, "dram", "0")).sum();
        assert!((jobs + unattributed(&text, "dram", "0").unwrap() - joules as f64).abs() < 1e-9, "{text}");
        let sum = |method| by(&text, 7, 0, method).map(f64::round);
        (sum("memory_held"), sum("cpus_held_and_memory_traffic"))
    };
    assert_eq!(step(&mut node), (Some(2.0), None), "nobody said anything");
    canned.moved(0, 1000, None);
    assert_eq!(step(&mut node), (Some(4.0), None), "not whose it was");
    canned.moved(0, 1000, Some(&[(&job, 1000)]));
    assert_eq!(step(&mut node), (Some(4.0), Some(8.0)));
    // The meter fails while it is not known: then it is not known of all the time until the next reading.
    node.machine.write(&format!("{POWERCAP}/intel-rapl:0:0/energy_uj"), "");
    drop(node.collect());
    canned.moved(0, 1000, Some(&[(&job, 1000)]));
    assert_eq!(step(&mut node), (Some(6.0), Some(8.0)));
    let source = Canned::of(&node);
    drop(source);
    assert_eq!(step(&mut node), (Some(8.0), Some(8.0)), "who counted is gone");
}

#[test]
fn what_was_learned_of_memory_outlives_a_restart() {
    let (mut node, canned) = begun(&[]);
    let mut joules = 0;
    let mut step = |node: &mut Node, bytes, more| {
        joules += more;
        canned.moved(0, bytes, Some(&[(&node.jobs[0].clone(), bytes)]));
        std::thread::sleep(Duration::from_millis(950));
        node.spends("0:0", joules * 1_000_000);
        node.collect().1
    };
    step(&mut node, 1_000_000_000, 900);
    let text = step(&mut node, 0, 5);
    let idle = "jobledger_node_energy_idle_watts{domain=\"dram\",socket=\"0\",origin=\"learned\"}";
    let learned = value(&text, idle).unwrap();
    assert!(learned > 0.0 && learned <= 5.0 / 0.95, "{text}");
    let after = built(&ENTRY, &node.context);
    let runs = node.jobs.each_ref().map(|job| job.run);
    restore(&**node.built.durable.as_ref().unwrap(), &**after.durable.as_ref().unwrap(), &runs);
    node.built = after;
    let text = step(&mut node, 1_000_000_000, 900);
    assert_eq!(value(&text, idle), Some(learned), "{text}");
    assert!(by(&text, 7, 0, "cpus_held_and_memory_traffic").unwrap() > 500.0, "{text}");
}
