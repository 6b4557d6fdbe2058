//! Nodes with a meter of their own: what is split of it, and its overhead.

use attribution::{Charged, EnergyCharge};

use super::*;
use crate::collector::testing::restore;

#[test]
fn the_nodes_own_total_is_split_only_where_nothing_finer_is_and_nothing_else_draws_from_it() {
    for (accelerator, attributed) in [(false, true), (true, false)] {
        let machine = Laid::new();
        machine.write("sys/devices/system/cpu/online", "0-1\n");
        machine.write("proc/stat", "cpu0 0 0 0 0 0\ncpu1 0 0 0 0 0\n");
        let hwmon = "sys/class/hwmon/hwmon0";
        machine.write(&format!("{hwmon}/name"), "power_meter\n");
        machine.write(&format!("{hwmon}/power1_average"), "300000000\n");
        if accelerator {
            machine.write("dev/nvidia0", "");
        }
        let mut site = Site::new(machine);
        drop(site.collect(&[]));
        std::thread::sleep(SLOW_PERIOD);
        let (outcome, text) = site.collect(&[]);
        assert_eq!(outcome, Ok(()), "{text}");
        assert!(
            text.contains("jobledger_node_power_watts{domain=\"node\",socket=\"\",source=\"hwmon\"} 300.0\n"),
            "{text}"
        );
        let total = "jobledger_node_energy_joules_total{domain=\"node\",socket=\"\",source=\"hwmon\"}";
        jobledger_testkit::eventually("joules are counted", || {
            value(&site.collect(&[]).1, total).unwrap() > 10.0
        });
        assert_eq!(text.contains("unattributed_joules_total{domain=\"node\""), attributed, "{text}");
        assert_eq!(text.contains("unattributed_joules_total{domain=\"overhead\""), accelerator, "{text}");
    }
}

/// How often the controllers of these tests are asked.
const SLOW_PERIOD: Duration = Duration::from_millis(50);

/// A machine with the collector, read at every collection.
struct Site {
    machine: Laid,
    context: BuildContext,
    built: Built,
}

impl Site {
    fn new(machine: Laid) -> Self {
        let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(Arc::new(machine.roots()), users);
        let reading = energy_meters::Options { slow_period: SLOW_PERIOD, ..Default::default() };
        context.options.set(EnergyOptions { pause: Duration::ZERO, reading, ..EnergyOptions::default() });
        let built = built(&ENTRY, &context);
        Self { machine, context, built }
    }

    fn restart(&mut self, jobs: &[Job]) {
        let after = built(&ENTRY, &self.context);
        let runs: Vec<_> = jobs.iter().map(|job| job.run).collect();
        restore(&**self.built.durable.as_ref().unwrap(), &**after.durable.as_ref().unwrap(), &runs);
        self.built = after;
        jobs.iter().for_each(|job| self.built.observer.as_ref().unwrap().job_started(job));
    }

    fn collect(&mut self, jobs: &[Job]) -> (Result<(), SourceError>, String) {
        let mut section = Section::default();
        let snapshot = snapshot_of(self.machine.roots(), jobs.to_vec());
        let outcome = self.built.collector.collect(&snapshot, &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }
}

/// A Cray blade of two CPUs whose controller has counted nothing yet, with a job on one of them.
fn blade() -> (Site, Job) {
    let machine = Laid::new();
    machine.write("sys/devices/system/cpu/online", "0-1\n");
    machine.write("sys/devices/system/node/online", "0\n");
    machine.write("sys/devices/system/node/node0/cpulist", "0-1\n");
    machine.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1048576 kB\n");
    machine.write("proc/stat", "cpu0 0 0 0 0 0\ncpu1 0 0 0 0 0\n");
    machine.write("cgroup/job_7/cpuset.cpus", "0\n");
    machine.write("cgroup/job_7/cpu.stat", "usage_usec 0\n");
    machine.write("cgroup/job_7/memory.current", "536870912\n");
    let job = job(7, machine.v2("job_7"), &[]);
    counts(&machine, 0, 0, 0);
    (Site::new(machine), job)
}

/// The same after 1000 J of the node, 400 of them of its CPUs and 100 of its memory.
fn blade_at_work() -> (Site, Job) {
    let (mut site, job) = blade();
    drop(site.collect(std::slice::from_ref(&job)));
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1000, 400, 100);
    drop(site.collect(std::slice::from_ref(&job)));
    (site, job)
}

/// The controller's joules: the node, its CPUs, its memory.
fn counts(machine: &Laid, node: u64, cpus: u64, memory: u64) {
    for (file, joules) in [("energy", node), ("cpu_energy", cpus), ("memory_energy", memory)] {
        machine.write(&format!("sys/cray/pm_counters/{file}"), format!("{joules} J\n"));
    }
}

fn sum_of_jobs(text: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with("jobledger_job_energy_joules_total"));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

fn sum_of_nobody(text: &str) -> f64 {
    let lines =
        text.lines().filter(|line| line.starts_with("jobledger_node_energy_unattributed_joules_total"));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[test]
fn jobs_and_unattributed_are_what_the_nodes_own_meter_counts() {
    let (mut site, job) = blade();
    drop(site.collect(std::slice::from_ref(&job)));
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1000, 400, 100);
    let (outcome, text) = site.collect(std::slice::from_ref(&job));
    assert_eq!(outcome, Ok(()), "{text}");
    let (jobs, nobody) = (sum_of_jobs(&text), sum_of_nobody(&text));
    assert!((jobs + nobody - 1000.0).abs() < 1e-9, "{jobs} + {nobody}: {text}");
    // Half of the CPUs' joules, half of the memory's, so half of the other 500.
    let overhead =
        "jobledger_job_energy_joules_total{jobid=\"7\",domain=\"overhead\",socket=\"\",method=\"energy\"}";
    assert!(close(value(&text, overhead).unwrap(), 250.0), "{text}");
    let labels = "{domain=\"overhead\",socket=\"\",source=\"cray_pm_counters\"}";
    assert_eq!(value(&text, &format!("jobledger_node_energy_joules_total{labels}")), Some(500.0), "{text}");
    assert_eq!(value(&text, "jobledger_node_energy_overhead_deficit_joules"), Some(0.0), "{text}");
    let standing = energy_meters::ZoneRole::Attributed.as_str();
    let zone = format!("source=\"cray_pm_counters\",standing=\"{standing}\",estimated=\"false\"}} 1\n");
    assert!(text.contains(&format!("domain=\"overhead\",socket=\"\",{zone}")), "{text}");
    // The parts count more than the whole: shown, and nobody is charged.
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1100, 500, 150);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    assert_eq!(value(&text, "jobledger_node_energy_overhead_deficit_joules"), Some(50.0), "{text}");
    let (jobs, nobody) = (sum_of_jobs(&text), sum_of_nobody(&text));
    assert!((jobs + nobody - 1150.0).abs() < 1e-9, "the node's 1100 and the deficit of 50: {text}");
}

#[test]
fn overhead_goes_on_without_a_part_that_went_and_remains_when_the_nodes_meter_went() {
    let (mut site, job) = blade_at_work();
    let jobs = std::slice::from_ref(&job);
    let counter = |file: &str| format!("sys/cray/pm_counters/{file}");
    let with_cpus = |site: &mut Site, online: &str| {
        site.machine.write("sys/devices/system/cpu/online", online);
        site.collect(jobs)
    };
    site.machine.remove(&counter("memory_energy"));
    assert_eq!(with_cpus(&mut site, "0\n").0, Ok(()));
    std::thread::sleep(Duration::from_millis(1100));
    site.machine.write(&counter("energy"), "1600 J\n").write(&counter("cpu_energy"), "700 J\n");
    let (outcome, text) = site.collect(jobs);
    assert_eq!(outcome, Ok(()));
    // The job has the only CPU now, so it has all of it.
    assert!(close(jobs_part(&text, 7, "overhead", ""), 250.0 + 300.0), "{text}");
    let (of_jobs, of_nobody) = (sum_of_jobs(&text), sum_of_nobody(&text));
    assert!((of_jobs + of_nobody - 1600.0).abs() < 1e-9, "{of_jobs} + {of_nobody}: {text}");
    site.machine.remove(&counter("energy"));
    let (outcome, text) = with_cpus(&mut site, "0-1\n");
    assert_eq!(outcome, Ok(()));
    assert_eq!((sum_of_jobs(&text), sum_of_nobody(&text)), (of_jobs, of_nobody), "{text}");
    assert_eq!(total_of(&text, "overhead", "", "cray_pm_counters"), Some(800.0), "{text}");
    assert!(
        text.contains("domain=\"overhead\",socket=\"\",source=\"cray_pm_counters\",standing=\"retired\"")
    );
}

#[test]
fn what_the_node_took_during_a_restart_is_overhead_afterwards() {
    let (mut site, job) = blade_at_work();
    site.restart(std::slice::from_ref(&job));
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1700, 600, 150);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    let (jobs, nobody) = (sum_of_jobs(&text), sum_of_nobody(&text));
    assert!((jobs + nobody - 1700.0).abs() < 1e-9, "{jobs} + {nobody}: {text}");
    let labels = "{domain=\"overhead\",socket=\"\",source=\"cray_pm_counters\"}";
    assert_eq!(value(&text, &format!("jobledger_node_energy_joules_total{labels}")), Some(950.0), "{text}");
}

const NODE: &str = "sys/cray/pm_counters/energy";

/// With rights a node has finer meters, and without them its own alone.
#[test]
fn sums_remain_those_of_the_nodes_meter_when_finer_ones_come_and_go_at_restarts() {
    for finer_first in [true, false] {
        let (mut site, job) = blade();
        let jobs = std::slice::from_ref(&job);
        let mut node = 0;
        for (phase, finer) in [finer_first, !finer_first, finer_first].into_iter().enumerate() {
            let before = site.collect(jobs).1;
            // A reading that fails: what happens meanwhile is kept for the next one.
            site.machine.write(NODE, "nonsense\n");
            std::thread::sleep(Duration::from_millis(20));
            drop(site.collect(jobs));
            node += 50;
            if finer {
                counts(&site.machine, node, 0, 0);
            } else {
                for part in ["cpu_energy", "memory_energy"] {
                    site.machine.remove(&format!("sys/cray/pm_counters/{part}"));
                }
                site.machine.write(NODE, format!("{node} J\n"));
            }
            site.restart(jobs);
            let (outcome, text) = site.collect(jobs);
            assert_eq!(outcome, Ok(()));
            let of_node = |text: &str| (jobs_part(text, 7, "node", ""), unattributed(text, "node", ""));
            if phase > 0 && finer {
                assert_eq!(of_node(&text), of_node(&before), "{before}\n\n{text}");
            }
            std::thread::sleep(Duration::from_millis(1100));
            node += 1000;
            if finer {
                counts(&site.machine, node, 400, 100);
            } else {
                site.machine.write(NODE, format!("{node} J\n"));
            }
            let text = site.collect(jobs).1;
            let (of_jobs, of_nobody) = (sum_of_jobs(&text), sum_of_nobody(&text));
            assert!(
                (of_jobs + of_nobody - node as f64).abs() < 1e-9,
                "{phase}: {of_jobs} + {of_nobody}: {text}"
            );
            assert_eq!(total_of(&text, "node", "", "cray_pm_counters"), Some(node as f64), "{text}");
        }
    }
}

/// A BMC has not answered yet when parts of the node are read first.
#[test]
fn a_meter_of_the_node_that_is_found_late_after_a_restart_goes_on_from_its_last_reading() {
    let (mut site, job) = blade_at_work();
    let jobs = std::slice::from_ref(&job);
    site.machine.remove(NODE);
    site.restart(jobs);
    drop(site.collect(jobs));
    std::thread::sleep(Duration::from_millis(20));
    site.machine.write("sys/cray/pm_counters/cpu_energy", "450 J\n");
    drop(site.collect(jobs));
    site.machine.write(NODE, "1700 J\n").write("sys/devices/system/cpu/online", "0\n");
    let (outcome, text) = site.collect(jobs);
    assert_eq!((outcome, total_of(&text, "node", "", "cray_pm_counters")), (Ok(()), Some(1700.0)), "{text}");
}

#[test]
fn energy_of_gpus_is_in_the_nodes_and_is_not_charged_twice() {
    let (mut site, job) = blade();
    let gpu: Arc<str> = "GPU-1".into();
    site.context.gpu_energy.put(vec![gpu.clone()], false, Vec::new());
    let from = Instant::now() - Duration::from_secs(1);
    drop(site.collect(std::slice::from_ref(&job)));
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1000, 400, 100);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    assert!(!text.contains("domain=\"overhead\",socket=\"\",method"), "the GPU was not read since: {text}");
    std::thread::sleep(Duration::from_millis(1100));
    // 300 J in the time of the node's 1000 J, and more before and after.
    let to = Instant::now();
    let length = to.saturating_duration_since(from).as_micros();
    let energy = u64::try_from(length).unwrap() * 300;
    let charged = Charged { energy, jobs: [(job.run, energy)].into() };
    site.context.gpu_energy.put(vec![gpu.clone()], false, vec![(gpu, EnergyCharge { from, to, charged })]);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    let overhead = value(
        &text,
        "jobledger_node_energy_joules_total{domain=\"overhead\",socket=\"\",source=\"cray_pm_counters\"}",
    );
    // 300 W for at least 1.1 s; tests may be slow.
    assert!(overhead.is_some_and(|overhead| overhead < 500.0 - 300.0 * 1.0), "{text}");
}

#[test]
fn a_gpu_that_nobody_measures_leaves_the_overhead_to_no_job() {
    let (mut site, job) = blade();
    site.machine.write("dev/nvidia0", "");
    site.built = built(&ENTRY, &site.context);
    drop(site.collect(std::slice::from_ref(&job)));
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1000, 400, 100);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    assert_eq!(unattributed(&text, "overhead", ""), Some(500.0), "{text}");
}

#[test]
fn sockets_that_are_gpus_are_charged_by_the_gpu_collector_alone() {
    let (mut site, job) = blade();
    let gpu: Arc<str> = "GPU-1".into();
    site.context.gpu_energy.put(vec![gpu.clone()], false, Vec::new());
    let from = Instant::now() - Duration::from_secs(1);
    drop(site.collect(std::slice::from_ref(&job)));
    // The driver was found after the first reading.
    site.context.gpu_energy.count_sockets();
    std::thread::sleep(Duration::from_millis(1100));
    counts(&site.machine, 1000, 400, 100);
    drop(site.collect(std::slice::from_ref(&job)));
    std::thread::sleep(Duration::from_millis(1100));
    // The GPU's next reading is after this one of the node.
    let to = Instant::now() + Duration::from_secs(60);
    let energy = u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap() * 100;
    let charged = Charged { energy, jobs: [(job.run, energy)].into() };
    site.context.gpu_energy.put(vec![gpu.clone()], false, vec![(gpu, EnergyCharge { from, to, charged })]);
    let (_, text) = site.collect(std::slice::from_ref(&job));
    for (domain, joules) in [("package", 400.0), ("dram", 100.0)] {
        let labels = format!("domain=\"{domain}\",socket=\"\",source=\"cray_pm_counters\"");
        assert!(text.contains(&format!("zone_info{{{labels},standing=\"contained\"")), "{text}");
        assert_eq!(value(&text, &format!("jobledger_node_energy_joules_total{{{labels}}}")), Some(joules));
        assert!(!text.contains(&format!("unattributed_joules_total{{domain=\"{domain}\"")), "{text}");
    }
    let charged = |text: &str| -> Vec<String> {
        let of_jobs = text.lines().filter(|line| line.starts_with("jobledger_job_energy_joules_total"));
        of_jobs.filter(|line| !line.contains("overhead")).map(str::to_owned).collect()
    };
    assert_eq!(charged(&text), [""; 0], "the job has no GPU, and nobody knows what its CPU cores took");
    site.context.gpu_energy.set_jobs([job.run].into_iter());
    let package = "jobledger_job_energy_joules_total{jobid=\"7\",domain=\"package\",socket=\"\",method=\"with_gpu\"} 0.0";
    assert_eq!(charged(&site.collect(std::slice::from_ref(&job)).1), [package]);
    let total =
        "jobledger_node_energy_joules_total{domain=\"overhead\",socket=\"\",source=\"cray_pm_counters\"}";
    let (overhead, charged) = (value(&text, total).unwrap(), sum_of_jobs(&text) + sum_of_nobody(&text));
    assert!((overhead - charged).abs() < 1e-6, "{overhead} is {charged} of jobs and nobody: {text}");
    // 100 W of the GPU are not in it, what its CPU cores and memory took is.
    let most = 1000.0 - 100.0 * 2.2;
    assert!((most - 100.0 * from.elapsed().as_secs_f64()..=most).contains(&overhead), "{text}");
}
