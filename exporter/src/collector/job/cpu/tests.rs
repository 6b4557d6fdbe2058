use std::sync::Arc;

use exposition::encode_openmetrics;
use slurm_jobs::{NodeSnapshot, RemovedCgroup, Users};

use super::*;
use crate::collector::BuildContext;
use crate::collector::testing::{Bench, Machine, job, snapshot_of, value};

#[test]
fn a_v1_directory_that_was_made_anew_goes_on_where_the_one_before_stopped() {
    let machine = Machine::new();
    let spent = |usec: u64| {
        machine.write("cgroup/cpuacct/job_7/cpuacct.usage", format!("{}\n", usec * 1000));
        machine.write("cgroup/cpuacct/job_7/cpuacct.stat", "user 0\nsystem 0\n");
    };
    spent(3_000_000);
    let seven = |machine: &Machine| {
        snapshot_of(machine.roots(), vec![job(7, machine.v1(&[("cpuacct", "job_7")]), &[])])
    };
    let mut bench = Bench::new(&ENTRY, &seven(&machine));
    let exported = |bench: &mut Bench| {
        let text = bench.collect(&seven(&machine)).1;
        value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}")
    };
    assert_eq!(exported(&mut bench), Some(3.0));
    // A reading of another thread was quicker than this one: nothing was spent twice.
    spent(2_900_000);
    assert_eq!(exported(&mut bench), Some(2.9));
    let make_anew = || {
        std::fs::rename(machine.path.join("cgroup/cpuacct/job_7"), machine.path.join("cgroup/gone")).unwrap();
    };
    spent(3_000_000);
    assert_eq!(exported(&mut bench), Some(3.0));
    make_anew();
    spent(500_000);
    assert_eq!(exported(&mut bench), Some(3.5));
    spent(700_000);
    assert_eq!(exported(&mut bench), Some(3.7));
}

#[test]
fn steps_and_tasks_are_exported_on_request_and_in_their_own_families() {
    use crate::collector::testing::{Machine, collect, job};
    let machine = Machine::new();
    let stat =
        |n: u32| format!("usage_usec {}\nuser_usec {n}000000\nsystem_usec 500000\n", n * 1_000_000 + 500_000);
    machine.write("cgroup/job_7/cpu.stat", stat(9)).write("cgroup/job_7/step_0/cpu.stat", stat(4));
    machine.write("cgroup/job_7/step_0/user/task_1/cpu.stat", stat(2));
    let mut snapshot = snapshot_of(machine.roots(), vec![job(7, machine.v2("job_7"), &[("0", &["1"])])]);
    let (outcome, text) = collect(&ENTRY, &snapshot);
    assert_eq!(outcome, Ok(()));
    assert!(text.contains("jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"} 9.0\n"), "{text}");
    assert!(!text.contains("jobledger_step"));
    snapshot.levels = slurm_jobs::Levels { steps: true, tasks: true };
    let text = collect(&ENTRY, &snapshot).1;
    assert!(
        text.contains("jobledger_step_cpu_seconds_total{jobid=\"7\",step=\"0\",mode=\"user\"} 4.0\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "jobledger_task_cpu_seconds_total{jobid=\"7\",step=\"0\",task=\"1\",mode=\"user\"} 2.0\n"
        ),
        "{text}"
    );
}

/// Jobs 1 to 3 in SLURM's root, and what a file of theirs says.
fn three_jobs(machine: &Machine) -> (Vec<Job>, Arc<SlurmCgroup>) {
    machine.write("cgroup/s/cpu.stat", stat(1_000_000));
    for (job, usec) in [(1, 300_000), (2, 50_000), (3, 13_000)] {
        machine.write(&format!("cgroup/s/job_{job}/cpu.stat"), stat(usec));
    }
    let jobs = (1..4).map(|id| job(id, machine.v2(&format!("s/job_{id}")), &[])).collect();
    let scope = SlurmCgroup { paths: vec!["s".to_owned()], node: None, inode: 1, cgroup: machine.v2("s") };
    (jobs, Arc::new(scope))
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

#[test]
fn a_job_that_is_read_again_while_a_scrape_is_made_is_in_its_sums_as_it_was_shown() {
    let machine = Machine::new();
    let (jobs, scope) = three_jobs(&machine);
    let snapshot =
        NodeSnapshot { scopes: vec![scope.clone()], ..snapshot_of(machine.roots(), jobs[..2].to_vec()) };
    let (cpu, mut readings, mut buffer) = (Cpu::default(), Readings::new(Cpu::amount), Buffer::default());
    cpu.begin(&snapshot, &mut buffer).unwrap();
    for job in &snapshot.jobs {
        let mut fresh = cpu.read(&Group::of_job(job), &mut buffer).unwrap();
        cpu.complete(job, None, &mut fresh, &mut buffer).unwrap();
        cpu.shown(&fresh);
        readings.insert(job.run, None, fresh);
    }
    // Between the jobs and the sums of the scrape the third is found to have gone, and the first is read for it.
    machine.write("cgroup/s/job_1/cpu.stat", stat(313_000)).write("cgroup/s/cpu.stat", stat(1_013_000));
    let others = [Arc::new(jobs[0].clone())];
    let gone = RemovedCgroup { job: &jobs[2], others: Some(&others), scopes: &snapshot.scopes, alone: true };
    cpu.before_end(&snapshot.scopes, &mut buffer);
    cpu.vanished(&gone, &mut readings, &mut buffer);
    assert_eq!(readings.job(jobs[0].run).as_deref().map(CpuReading::total), Some(313_000));
    let mut section = Section::default();
    cpu.finish(&snapshot, &mut readings, &mut buffer, &mut section).unwrap();
    let mut text = String::new();
    encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
    let unattributed = value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total").unwrap();
    let exported = value(&text, "jobledger_node_slurm_cpu_seconds_total").unwrap() - unattributed;
    assert!((exported - 0.35).abs() < 1e-9, "{exported}");
}

/// The second of three jobs ends after it spent 0.1 s more, and the first spent 0.4 s more.
fn charged_to_the_second(first_can_be_read: bool) -> (u64, f64) {
    let machine = Machine::new();
    let (jobs, scope) = three_jobs(&machine);
    let snapshot = NodeSnapshot { scopes: vec![scope], ..snapshot_of(machine.roots(), jobs.clone()) };
    let (cpu, mut readings, mut buffer) = (Cpu::default(), Readings::new(Cpu::amount), Buffer::default());
    cpu.begin(&snapshot, &mut buffer).unwrap();
    for job in &snapshot.jobs {
        let mut fresh = cpu.read(&Group::of_job(job), &mut buffer).unwrap();
        cpu.complete(job, None, &mut fresh, &mut buffer).unwrap();
        readings.insert(job.run, None, fresh);
    }
    cpu.finish(&snapshot, &mut readings, &mut buffer, &mut Section::default()).unwrap();
    machine.write("cgroup/s/cpu.stat", stat(1_500_000)).write("cgroup/s/job_1/cpu.stat", stat(700_000));
    if !first_can_be_read {
        std::fs::remove_dir_all(machine.path.join("cgroup/s/job_1")).unwrap();
    }
    cpu.before_end(&snapshot.scopes, &mut buffer);
    let others = [Arc::new(jobs[0].clone()), Arc::new(jobs[2].clone())];
    let gone = RemovedCgroup { job: &jobs[1], others: Some(&others), scopes: &snapshot.scopes, alone: true };
    cpu.vanished(&gone, &mut readings, &mut buffer);
    let mut section = Section::default();
    cpu.finish(&snapshot, &mut readings, &mut buffer, &mut section).unwrap();
    let mut text = String::new();
    encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
    let unattributed = value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total").unwrap();
    (readings.job(jobs[1].run).as_deref().map_or(0, CpuReading::total), unattributed)
}

#[test]
fn a_job_is_charged_with_its_time_after_its_last_reading() {
    assert_eq!(charged_to_the_second(true), (150_000, 0.0));
}

#[test]
fn a_job_is_never_charged_with_time_of_another_one_that_cannot_be_read() {
    assert_eq!(charged_to_the_second(false), (50_000, 0.5));
}

#[test]
fn a_job_that_came_after_the_snapshot_was_made_is_in_no_sum_until_it_is_exported() {
    let machine = Machine::new();
    let (jobs, scope) = three_jobs(&machine);
    let snapshot = |jobs: &[Job]| NodeSnapshot {
        scopes: vec![scope.clone()],
        ..snapshot_of(machine.roots(), jobs.to_vec())
    };
    let context =
        BuildContext::new(Arc::new(machine.roots()), Arc::new(Users::start(Box::new(|_| None)).unwrap()));
    let mut built = (ENTRY.build)(&context);
    let run = built.observer.clone().unwrap();
    let mut exported = |snapshot: &NodeSnapshot| {
        let mut section = Section::default();
        built.collector.collect(snapshot, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        let unattributed = value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total").unwrap();
        value(&text, "jobledger_node_slurm_cpu_seconds_total").unwrap() - unattributed
    };
    let first = snapshot(&jobs[..2]);
    assert!((exported(&first) - 0.35).abs() < 1e-9);
    // The second goes while the third, which the snapshot does not have, is there: so that one is read.
    let others = [Arc::new(jobs[0].clone()), Arc::new(jobs[2].clone())];
    let gone = RemovedCgroup { job: &jobs[1], others: Some(&others), scopes: &first.scopes, alone: true };
    run.before_end(&first.scopes, &mut Buffer::default());
    run.cgroup_removed(&gone, &mut Buffer::default());
    assert!((exported(&first) - 0.35).abs() < 1e-9, "{}", exported(&first));
    assert!((exported(&snapshot(&jobs)) - 0.363).abs() < 1e-9);
}

/// The collector with three jobs that were scraped once.
struct Three {
    machine: Machine,
    jobs: Vec<Job>,
    scope: Arc<SlurmCgroup>,
    bench: Bench,
}

impl Three {
    fn scraped() -> Self {
        let machine = Machine::new();
        let (jobs, scope) = three_jobs(&machine);
        let bench = Bench::new(&ENTRY, &snapshot_of(machine.roots(), jobs.clone()));
        let mut three = Self { machine, jobs, scope, bench };
        three.exported();
        three
    }

    fn snapshot(&self) -> NodeSnapshot {
        let jobs = self.jobs.clone();
        NodeSnapshot { scopes: vec![self.scope.clone()], ..snapshot_of(self.machine.roots(), jobs) }
    }

    /// A job used more than its last reading shows, and its directory is removed.
    fn ends(&self, id: u32, all_of_scope: u64) {
        self.machine.remove(&format!("cgroup/s/job_{id}")).write("cgroup/s/cpu.stat", stat(all_of_scope));
    }

    /// That is noticed. With `others` those that remain can be read.
    fn is_found_gone(&mut self, id: usize, others: Option<&[Arc<Job>]>) {
        let scopes = std::slice::from_ref(&self.scope);
        let mut job = self.jobs[id - 1].clone();
        job.ended = Some(clocks::Moment::now());
        let gone = RemovedCgroup { job: &job, others, scopes, alone: true };
        self.bench.run().before_end(scopes, &mut Buffer::default());
        self.bench.run().cgroup_removed(&gone, &mut Buffer::default());
        self.jobs[id - 1] = job;
    }

    fn others(&self, than: u32) -> Vec<Arc<Job>> {
        let rest =
            self.jobs.iter().filter(|job| job.is_running() && job.run != self.jobs[than as usize - 1].run);
        rest.map(|job| Arc::new(job.clone())).collect()
    }

    /// CPU seconds of the three, and those that no job is charged with.
    fn exported(&mut self) -> [Option<f64>; 4] {
        let snapshot = self.snapshot();
        self.bench.run().before_walk(&snapshot.scopes, &mut Buffer::default());
        let (outcome, text) = self.bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let of = |id: u32| {
            let mode = |mode: &str| {
                value(&text, &format!("jobledger_job_cpu_seconds_total{{jobid=\"{id}\",mode=\"{mode}\"}}"))
            };
            let modes = [mode("user"), mode("unsplit")];
            let sum: f64 = modes.iter().flatten().sum();
            modes.iter().any(Option::is_some).then_some((sum * 1e6).round() / 1e6)
        };
        [of(1), of(2), of(3), value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total")]
    }
}

#[test]
fn a_scrape_between_the_end_of_a_job_and_its_discovery_takes_nothing_from_it() {
    let mut three = Three::scraped();
    three.ends(2, 1_100_000);
    assert_eq!(three.exported(), [Some(0.3), Some(0.05), Some(0.013), Some(0.0)]);
    let others = three.others(2);
    three.is_found_gone(2, Some(&others));
    assert_eq!(three.exported(), [Some(0.3), Some(0.15), Some(0.013), Some(0.0)]);
}

#[test]
fn a_job_is_not_charged_with_time_of_one_whose_end_was_too_expensive_to_look_at() {
    let mut three = Three::scraped();
    three.ends(2, 1_100_000);
    three.is_found_gone(2, None);
    three.ends(3, 1_120_000);
    let others = three.others(3);
    three.is_found_gone(3, Some(&others));
    assert_eq!(three.exported(), [Some(0.3), Some(0.05), Some(0.013), Some(0.12)]);
}

#[test]
fn nothing_is_unattributed_because_a_job_ends_while_a_scrape_is_made() {
    let mut three = Three::scraped();
    // The scrape has read the first before a job ends and the others are too many to be read.
    let scopes = std::slice::from_ref(&three.scope);
    let source = three.bench.run();
    source.before_walk(scopes, &mut Buffer::default());
    three.machine.write("cgroup/s/cpu.stat", stat(1_400_000));
    source.before_end(scopes, &mut Buffer::default());
    let snapshot = three.snapshot();
    let text = three.bench.collect(&snapshot).1;
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0));
    three.machine.write("cgroup/s/job_1/cpu.stat", stat(700_000));
    assert_eq!(three.exported(), [Some(0.7), Some(0.05), Some(0.013), Some(0.0)]);
}

#[test]
fn the_first_job_that_ends_after_a_restart_is_not_charged_with_what_was_used_meanwhile() {
    let mut three = Three::scraped();
    let runs: Vec<JobRunId> = three.jobs.iter().map(|job| job.run).collect();
    let after = Bench::new(&ENTRY, &three.snapshot());
    crate::collector::testing::restore(&*three.bench.durable(), &*after.durable(), &runs);
    three.bench = after;
    three.ends(2, 1_100_000);
    let others = three.others(2);
    three.is_found_gone(2, Some(&others));
    assert_eq!(three.exported(), [Some(0.3), Some(0.05), Some(0.013), Some(0.1)]);
}

#[test]
fn a_directory_that_is_used_again_is_in_no_other_jobs_time() {
    let mut three = Three::scraped();
    let old = three.jobs[0].run;
    three.bench.run().job_removed(old, Disposition::Superseded);
    three.jobs[0].run = JobRunId(old.0 + 100);
    // Nothing of the new run was read when another one ends.
    three.ends(2, 1_100_000);
    let third = [Arc::new(three.jobs[2].clone())];
    three.is_found_gone(2, Some(&third));
    assert_eq!(three.exported(), [Some(0.3), Some(0.15), Some(0.013), Some(0.0)]);
    three.machine.write("cgroup/s/job_1/cpu.stat", stat(320_000)).write("cgroup/s/cpu.stat", stat(1_120_000));
    assert_eq!(three.exported(), [Some(0.32), Some(0.15), Some(0.013), Some(0.0)]);
}

#[test]
fn time_of_a_v1_root_that_is_made_anew_is_added_to_that_of_the_one_before() {
    let machine = Machine::new();
    let spent = |usec: u64| {
        machine.write("cgroup/cpuacct/s/cpuacct.usage", format!("{}\n", usec * 1000));
        machine.write("cgroup/cpuacct/s/cpuacct.stat", "user 0\nsystem 0\n");
    };
    spent(1_000_000);
    let snapshot = || {
        let cgroup = machine.v1(&[("cpuacct", "s")]);
        let scope = SlurmCgroup { paths: vec!["cpuacct/s".to_owned()], node: None, inode: 1, cgroup };
        NodeSnapshot { scopes: vec![Arc::new(scope)], ..snapshot_of(machine.roots(), Vec::new()) }
    };
    let mut bench = Bench::new(&ENTRY, &snapshot());
    let unattributed = |bench: &mut Bench| {
        let snapshot = snapshot();
        bench.run().before_walk(&snapshot.scopes, &mut Buffer::default());
        value(&bench.collect(&snapshot).1, "jobledger_node_slurm_cpu_unattributed_seconds_total")
    };
    assert_eq!(unattributed(&mut bench), Some(0.0));
    spent(1_200_000);
    assert_eq!(unattributed(&mut bench), Some(0.2));
    std::fs::rename(machine.path.join("cgroup/cpuacct/s"), machine.path.join("cgroup/gone")).unwrap();
    spent(100_000);
    assert_eq!(unattributed(&mut bench), Some(0.3));
}
