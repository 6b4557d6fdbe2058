//! Energy and activity of cores by job.

use perf_counters::resctrl::testing::Fake;

use super::resctrl::monitored;
use super::*;
use crate::collector::devices::energy as meters;

/// Two sockets with telemetry, and jobs 7 and 8 that were seen on both.
fn measured() -> (Node, Fake) {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.has_telemetry(&[0, 1]).spawn(70, "job_7", "").spawn(80, "job_8", "");
    at.looked().appears(7).appears(8);
    for (task, package) in [(70, 0), (70, 1), (80, 0), (80, 1), (1, 0), (1, 1)] {
        fake.spends(task, package, 1);
    }
    at.collect();
    (at, fake)
}

fn of_job(text: &str, what: &str, id: u32, socket: u32) -> Option<f64> {
    value(text, &format!("jobledger_job_core_{what}_total{{jobid=\"{id}\",socket=\"{socket}\"}}"))
}

fn of_node(text: &str, socket: u32) -> [Option<f64>; 2] {
    ["energy", "energy_unattributed"]
        .map(|what| value(text, &format!("jobledger_node_core_{what}_joules_total{{socket=\"{socket}\"}}")))
}

#[test]
fn jobs_have_the_energy_of_their_cores_and_with_the_rest_it_is_the_nodes() {
    let (mut at, fake) = measured();
    fake.spends(70, 0, 7_022_030).spends(80, 0, 500_000).spends(1, 0, 250_000).spends(80, 1, 1_000_000);
    let text = at.collect();
    assert_eq!(of_job(&text, "energy_joules", 7, 0), Some(7.022_030), "{text}");
    assert_eq!(
        (of_job(&text, "energy_joules", 8, 0), of_job(&text, "energy_joules", 8, 1)),
        (Some(0.5), Some(1.0))
    );
    assert_eq!(of_job(&text, "activity_farads", 8, 1), Some(0.001));
    assert_eq!(of_node(&text, 0), [Some(7.772_030), Some(0.25)]);
    assert_eq!(of_node(&text, 1), [Some(1.0), Some(0.0)]);
    fake.spends(70, 0, 1_000_000).exit(70);
    at.leaves(7);
    let gone = [ended(&at.jobs[0]), at.jobs[1].clone()];
    let (_, text) = at.collect_these(&gone);
    assert_eq!(of_job(&text, "energy_joules", 7, 0), Some(8.022_030), "up to its end");
    assert_eq!(of_node(&text, 0), [Some(8.772_030), Some(0.25)]);
}

#[test]
fn a_cpu_that_does_not_measure_it_has_none() {
    let (mut at, fake) = monitored(&[0, 1, 2, 3], 8);
    fake.spawn(70, "job_7", "");
    at.looked().appears(7);
    assert!(!at.collect().contains("core_energy"));
}

/// Energy that is read often and exactly shows what other processes compute (CVE-2020-8694).
#[test]
fn scrapes_that_follow_each_other_closely_get_the_same_energy() {
    let (mut at, fake) = measured();
    at.shared
        .accounts
        .with(Duration::from_secs(20), |accounts| accounts.telemetry.pause = Duration::from_secs(3600))
        .unwrap();
    fake.spends(70, 0, 1_000_000).moves(70, 0, 64);
    let text = at.collect();
    assert_eq!(of_job(&text, "energy_joules", 7, 0), Some(0.0), "{text}");
    assert_eq!(of_node(&text, 0)[0], Some(0.0));
    at.shared
        .accounts
        .with(Duration::from_secs(20), |accounts| accounts.telemetry.pause = Duration::ZERO)
        .unwrap();
    assert_eq!(of_job(&at.collect(), "energy_joules", 7, 0), Some(1.0));
}

#[test]
fn a_restart_goes_on_with_the_energy_of_cores() {
    let (mut at, fake) = measured();
    fake.spends(70, 0, 1_000_000).spends(1, 0, 3_000_000);
    at.collect();
    fake.spends(70, 0, 500_000);
    let mut at = at.restart(Some(Box::new(fake.clone())));
    at.appears(7).appears(8).looked();
    let text = at.collect();
    assert_eq!(of_job(&text, "energy_joules", 7, 0), Some(1.5), "{text}");
    assert_eq!(of_node(&text, 0), [Some(4.5), Some(3.0)]);
}

/// Both jobs keep a CPU busy; one of them spends four times as much in it.
#[test]
fn a_sockets_energy_goes_by_that_of_its_cores_if_all_jobs_are_monitored() {
    let (mut at, fake) = measured();
    for (id, cpus) in [(7, "0-1"), (8, "2-3")] {
        at.machine.write(&format!("cgroup/job_{id}/cpuset.cpus"), format!("{cpus}\n"));
        at.machine.write(&format!("cgroup/job_{id}/cpu.stat"), "usage_usec 0\n");
    }
    let idle: String = (0..8).map(|cpu| format!("cpu{cpu} 0 0 0 0 0\n")).collect();
    at.machine.write("proc/stat", idle);
    let zone = "sys/class/powercap/intel-rapl:0";
    at.machine.write(&format!("{zone}/name"), "package-0\n");
    at.machine.write(&format!("{zone}/max_energy_range_uj"), "262143328850\n");
    at.machine.write(&format!("{zone}/energy_uj"), "0\n");
    let idle_power = vec![meters::parse_idle_power("package=0").unwrap()];
    at.context.options.set(meters::EnergyOptions { idle_power, ..energy::unpaused() });
    let mut meter = crate::collector::testing::built(&meters::ENTRY, &at.context);
    let mut collect = |at: &mut Node, microjoules: u64| {
        std::thread::sleep(Duration::from_millis(20));
        at.machine.write(&format!("{zone}/energy_uj"), format!("{microjoules}\n"));
        let mut section = Section::default();
        let snapshot = snapshot_of(at.machine.roots(), at.jobs.clone());
        meter.collector.collect(&snapshot, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text
    };
    let by = |text: &str, id: u32, method: &str| {
        let labels = format!("jobid=\"{id}\",domain=\"package\",socket=\"0\",method=\"{method}\"");
        value(text, &format!("jobledger_job_energy_joules_total{{{labels}}}"))
    };
    collect(&mut at, 0);
    fake.spends(70, 0, 4_000_000).spends(80, 0, 1_000_000).spends(1, 0, 3_000_000);
    let text = collect(&mut at, 16_000_000);
    const METHOD: &str = "cpus_held_and_core_energy";
    assert_eq!((by(&text, 7, METHOD), by(&text, 8, METHOD)), (Some(8.0), Some(2.0)), "{text}");
    let unattributed = "jobledger_node_energy_unattributed_joules_total{domain=\"package\",socket=\"0\"}";
    assert_eq!(value(&text, unattributed), Some(6.0), "{text}");
    // A thread in somebody else's group: whose the rest is is not known, and no CPU was busy.
    fake.site_makes("mon_groups/pqos").spawn(81, "job_8", "mon_groups/pqos");
    at.settle();
    fake.spends(70, 0, 4_000_000);
    let text = collect(&mut at, 32_000_000);
    assert_eq!((by(&text, 7, METHOD), by(&text, 8, METHOD)), (Some(8.0), Some(2.0)), "{text}");
    assert_eq!(value(&text, unattributed), Some(22.0), "{text}");
}
