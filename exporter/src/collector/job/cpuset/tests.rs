use std::sync::Arc;
use std::time::Duration;

use clocks::Moment;
use slurm_jobs::{Job, Levels};

use super::*;
use crate::collector::testing::{
    Bench, Machine, aged, collect, collect_many, ended, job, snapshot_of, value,
};

#[test]
fn v2_counts_the_effective_sets_and_a_steps_are_on_its_user_directory() {
    let machine = Machine::new();
    machine.write("cgroup/job_7/cpuset.cpus.effective", "0-3,8\n");
    machine.write("cgroup/job_7/cpuset.mems.effective", "0-1\n");
    machine.write("cgroup/job_7/step_0/cpuset.cpus.effective", "0-3,8\n");
    machine.write("cgroup/job_7/step_0/user/cpuset.cpus.effective", "0-1\n");
    machine.write("cgroup/job_7/step_0/user/task_0/cpuset.cpus.effective", "1\n");
    let mut snapshot = snapshot_of(machine.roots(), vec![job(7, machine.v2("job_7"), &[("0", &["0"])])]);
    snapshot.levels = Levels { steps: true, tasks: true };
    let (outcome, text) = collect(&ENTRY, &snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"7\"}"), Some(5.0));
    assert_eq!(value(&text, "jobledger_job_memory_nodes{jobid=\"7\"}"), Some(2.0));
    assert_eq!(value(&text, "jobledger_step_cpus{jobid=\"7\",step=\"0\"}"), Some(2.0));
    assert_eq!(value(&text, "jobledger_task_cpus{jobid=\"7\",step=\"0\",task=\"0\"}"), Some(1.0));
}

#[test]
fn v1_counts_the_cpuset_hierarchy_and_an_empty_set_is_none_not_zero() {
    let machine = Machine::new();
    let at = |job: u32| format!("slurm/uid_0/job_{job}");
    machine.write("cgroup/cpuset/slurm/uid_0/job_2/cpuset.effective_cpus", "0\n");
    machine.write("cgroup/cpuset/slurm/uid_0/job_2/cpuset.effective_mems", "0\n");
    machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.effective_cpus", "\n");
    let jobs = [2, 3].map(|id| job(id, machine.v1(&[("cpuset", &at(id))]), &[]));
    let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), jobs.to_vec()));
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"2\"}"), Some(1.0));
    assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"3\"}"), None);
}

/// slurmstepd makes a job's directory some moments before it writes its CPUs: until then the node's show.
#[test]
fn a_job_is_not_said_to_have_the_node_before_it_is_bound() {
    let machine = Machine::new();
    let set = |file: &str, cpus: &str| machine.write(&format!("cgroup/job_7/{file}"), format!("{cpus}\n"));
    let young = || job(7, machine.v2("job_7"), &[("0", &[])]);
    set("cpuset.cpus", "");
    set("cpuset.cpus.effective", "0-63");
    set("cpuset.mems.effective", "0-1");
    set("step_0/user/cpuset.cpus", "");
    set("step_0/user/cpuset.cpus.effective", "0-63");
    let snapshot = |job: Job| NodeSnapshot {
        levels: Levels { steps: true, tasks: true },
        ..snapshot_of(machine.roots(), vec![job])
    };
    let mut bench = Bench::new(&ENTRY, &snapshot(young()));
    let mut exported = |job: Job| {
        let (outcome, text) = bench.collect(&snapshot(job));
        assert_eq!(outcome, Ok(()), "that it is not known yet is no failure");
        assert_eq!(value(&text, "jobledger_job_memory_nodes{jobid=\"7\"}"), Some(2.0));
        let step = value(&text, "jobledger_step_cpus{jobid=\"7\",step=\"0\"}");
        let task = value(&text, "jobledger_task_cpus{jobid=\"7\",step=\"0\",task=\"0\"}");
        (value(&text, "jobledger_job_cpus{jobid=\"7\"}"), step, task)
    };
    assert_eq!(exported(young()), (None, None, None));
    // Nothing constrains it: it is old, or a task runs and nobody has bound it.
    let old = aged(&young(), Duration::from_secs(60));
    assert_eq!(exported(old), (Some(64.0), Some(64.0), None));
    set("step_0/user/task_0/cpuset.cpus", "");
    set("step_0/user/task_0/cpuset.cpus.effective", "0-63");
    let works = job(7, machine.v2("job_7"), &[("0", &["0"])]);
    assert_eq!(exported(works), (Some(64.0), Some(64.0), Some(64.0)));
    // Bound, and then its step, too.
    set("cpuset.cpus", "0-3");
    set("cpuset.cpus.effective", "0-3");
    set("step_0/user/cpuset.cpus.effective", "0-3");
    assert_eq!(exported(young()), (Some(4.0), None, None));
    set("step_0/user/cpuset.cpus", "1");
    set("step_0/user/cpuset.cpus.effective", "1");
    assert_eq!(exported(young()), (Some(4.0), Some(1.0), None));
}

/// One that went before it was bound never had the node.
#[test]
fn a_job_that_was_only_seen_unbound_has_no_cpus() {
    let machine = Machine::new();
    machine.write("cgroup/job_7/cpuset.cpus", "\n");
    machine.write("cgroup/job_7/cpuset.cpus.effective", "0-63\n");
    let brief = job(7, machine.v2("job_7"), &[]);
    let scenes = [
        snapshot_of(machine.roots(), vec![brief.clone()]),
        snapshot_of(machine.roots(), vec![ended(&brief)]),
    ];
    let mut bench = Bench::new(&ENTRY, &scenes[0]);
    for snapshot in &scenes {
        bench.checkpoint(&brief);
        let (outcome, text) = bench.collect(snapshot);
        assert_eq!((outcome, text.contains("cpu")), (Ok(()), false), "{text}");
    }
}

#[test]
fn v1_just_made_waits_without_being_called_unsupported() {
    let machine = Machine::new();
    for file in ["cpuset.cpus", "cpuset.effective_cpus", "cpuset.effective_mems"] {
        machine.write(&format!("cgroup/cpuset/slurm/uid_0/job_3/{file}"), "\n");
    }
    let job = job(3, machine.v1(&[("cpuset", "slurm/uid_0/job_3")]), &[]);
    let mut bench = Bench::new(&ENTRY, &snapshot_of(machine.roots(), vec![job.clone()]));
    let mut exported = |job: &Job| {
        let (outcome, text) = bench.collect(&snapshot_of(machine.roots(), vec![job.clone()]));
        (outcome.is_ok(), value(&text, "jobledger_job_cpus{jobid=\"3\"}"))
    };
    assert_eq!(exported(&job), (true, None));
    machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.cpus", "2-3\n");
    machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.effective_cpus", "2-3\n");
    assert_eq!(exported(&job), (true, Some(2.0)));
    assert_eq!(exported(&aged(&job, Duration::from_secs(60))), (true, Some(2.0)));
}

#[test]
fn no_cpuset_anywhere_is_unsupported_and_no_job_is_no_complaint() {
    let machine = Machine::new();
    machine.write("cgroup/freezer/slurm/uid_0/job_2/cgroup.procs", "");
    let only_freezer = job(2, machine.v1(&[("freezer", "slurm/uid_0/job_2")]), &[]);
    let outcomes = collect_many(
        &ENTRY,
        &[&snapshot_of(machine.roots(), vec![only_freezer]), &snapshot_of(machine.roots(), Vec::new())],
    );
    assert!(matches!(outcomes[0].0, Err(SourceError::Unsupported { .. })));
    assert!(!outcomes[0].1.contains("jobledger_job_cpus{"));
    assert_eq!(outcomes[1].0, Ok(()));
}

#[test]
fn a_malformed_set_costs_its_job_alone_and_an_ended_job_has_no_cpus() {
    let machine = Machine::new();
    machine.write("cgroup/job_7/cpuset.cpus.effective", "0-3\n");
    machine.write("cgroup/job_8/cpuset.cpus.effective", "3-0\n");
    let (good, bad) = (job(7, machine.v2("job_7"), &[]), job(8, machine.v2("job_8"), &[]));
    let scenes = [
        snapshot_of(machine.roots(), vec![good.clone(), bad]),
        snapshot_of(machine.roots(), vec![ended(&good)]),
    ];
    let exported = collect_many(&ENTRY, &[&scenes[0], &scenes[1]]);
    assert!(
        matches!(&exported[0].0, Err(SourceError::Partial { ok: 1, failed: 1, .. })),
        "{:?}",
        exported[0].0
    );
    assert_eq!(value(&exported[0].1, "jobledger_job_cpus{jobid=\"7\"}"), Some(4.0));
    assert!(!exported[1].1.contains("jobledger_job_cpus{"));
}

const HAD: &str = "jobledger_job_allocated_cpu_seconds_total{jobid=\"7\"}";

/// The job as if it had started so many seconds ago.
fn begun(job: Job, ago: f64) -> Job {
    let now = Moment::now();
    Job { started: Moment::of_unix(now.unix - ago, now), ..job }
}

/// The job after so many seconds.
fn ended_after(job: &Job, seconds: f64) -> Job {
    let end = job.started.boottime + Duration::from_secs_f64(seconds);
    Job { ended: Some(job.started.at(end)), ..job.clone() }
}

/// How long it has been running.
fn age(job: &Job) -> f64 {
    Boottime::now().since(job.started.boottime).as_secs_f64()
}

fn near(exported: Option<f64>, expected: f64) -> bool {
    exported.is_some_and(|exported| (exported - expected).abs() < 1e-3)
}

#[test]
fn what_a_job_had_is_its_cpus_since_its_start_as_they_are_read_and_stands_still_after_its_end() {
    let machine = Machine::new();
    let set = |cpus: &str| machine.write("cgroup/job_7/cpuset.cpus.effective", cpus);
    machine.write("cgroup/job_7/step_0/user/cpuset.cpus.effective", "0-1\n");
    machine.write("cgroup/job_7/step_0/user/task_0/cpuset.cpus.effective", "0\n");
    set("0-3\n");
    let job = begun(job(7, machine.v2("job_7"), &[("0", &["0"])]), 5000.0);
    let levels = Levels { steps: true, tasks: true };
    let snapshot = NodeSnapshot { levels, ..snapshot_of(machine.roots(), vec![job.clone()]) };
    let mut bench = Bench::new(&ENTRY, &snapshot);
    // It had run for long when it was read first: the exporter was started anew. Then it is read again.
    let mut last = 0.0;
    for _ in 0..2 {
        let from = age(&job);
        let (_, text) = bench.collect(&snapshot);
        let had = value(&text, HAD).unwrap();
        let (least, most) = (4.0 * from, 4.0 * age(&job));
        assert!(least <= had && had <= most && last < had, "{least}, {had}, {most}");
        assert_eq!(text.matches("allocated_cpu_seconds_total{").count(), 1, "of the job alone: {text}");
        last = had;
    }
    // From then on it has one.
    set("2\n");
    let changed = age(&job);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    let end = snapshot_of(machine.roots(), vec![ended_after(&job, 6000.0)]);
    let expected = 4.0 * changed + (6000.0 - changed);
    let (_, text) = bench.collect(&end);
    // As much as there may be between the time before the reading and that of the reading.
    assert!(value(&text, HAD).is_some_and(|had| (had - expected).abs() < 60.0), "{expected}: {text}");
    assert!(!text.contains("jobledger_job_cpus{"));
    let exported = value(&text, HAD);
    assert_eq!(value(&bench.collect(&end).1, HAD), exported);
    bench.run().job_removed(job.run, Disposition::Exported);
    assert_eq!(value(&bench.collect(&end).1, HAD), None);
}

/// On both versions no scrape saw the job: what was read while it ran, or when its step ended, is exported.
#[test]
fn a_job_that_no_scrape_saw_had_the_cpus_that_are_read_beside_scrapes_and_they_are_read_once() {
    let machine = Machine::new();
    let v1 = "slurm/uid_0/job_7";
    let dirs = ["cgroup/job_7".to_owned(), format!("cgroup/cpuset/{v1}")];
    let set = |cpus: &str| {
        for (dir, file) in dirs.iter().zip(["cpuset.cpus.effective", "cpuset.effective_cpus"]) {
            machine.write(&format!("{dir}/cpuset.cpus"), cpus).write(&format!("{dir}/{file}"), cpus);
        }
    };
    set("4-6\n");
    for (v2, at_work) in [(true, true), (true, false), (false, true), (false, false)] {
        let cgroup = if v2 { machine.v2("job_7") } else { machine.v1(&[("cpuset", v1)]) };
        let job = begun(job(7, cgroup, &[("0", &[])]), 3.0);
        let none = snapshot_of(machine.roots(), Vec::new());
        let mut bench = Bench::new(&ENTRY, &none);
        assert_eq!(bench.collect(&none).0, Ok(()));
        if at_work {
            bench.bound(&job);
        } else {
            bench.checkpoint(&job);
        }
        set("0-63\n");
        bench.bound(&job);
        bench.checkpoint(&job);
        let gone = ended_after(&job, 10.0);
        bench.vanished(&gone);
        let (outcome, text) = bench.collect(&snapshot_of(machine.roots(), vec![gone]));
        assert_eq!(outcome, Ok(()));
        assert!(near(value(&text, HAD), 30.0), "{text}");
        assert!(!text.contains("jobledger_job_cpus{") && !text.contains("memory_nodes{"), "{text}");
        set("4-6\n");
    }
}

#[test]
fn nothing_is_read_beside_scrapes_of_a_job_that_one_of_them_saw() {
    let machine = Machine::new();
    let set = |cpus: &str| machine.write("cgroup/job_7/cpuset.cpus.effective", cpus);
    set("0-3\n");
    let job = begun(job(7, machine.v2("job_7"), &[("0", &["0"])]), 10.0);
    let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    set("0-63\n");
    bench.bound(&job);
    bench.checkpoint(&job);
    let (_, text) = bench.collect(&snapshot_of(machine.roots(), vec![ended_after(&job, 100.0)]));
    assert!(near(value(&text, HAD), 400.0), "{text}");
    // One that was not exported yet is read by scrapes, too.
    set("0-1\n");
    let waits = Job { run: JobRunId(8), ..job };
    assert_eq!(
        bench
            .collect(&NodeSnapshot {
                pending: vec![Arc::new(waits.clone())],
                ..snapshot_of(machine.roots(), Vec::new())
            })
            .0,
        Ok(())
    );
    set("0-63\n");
    bench.checkpoint(&waits);
    let (_, text) = bench.collect(&snapshot_of(machine.roots(), vec![ended_after(&waits, 100.0)]));
    assert!(near(value(&text, HAD), 200.0), "{text}");
}

#[test]
fn what_a_job_had_is_not_exported_of_a_reading_that_failed_and_goes_on_after_it() {
    let machine = Machine::new();
    let set = |cpus: &str| machine.write("cgroup/job_7/cpuset.cpus.effective", cpus);
    set("3-0\n");
    let job = begun(job(7, machine.v2("job_7"), &[("0", &["0"])]), 10.0);
    let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let mut exported = |cpus: &str| {
        set(cpus);
        value(&bench.collect(&snapshot).1, HAD)
    };
    assert_eq!(exported("3-0\n"), None);
    let first = exported("0-1\n").unwrap();
    assert!(first >= 20.0);
    assert_eq!(exported("3-0\n"), None);
    assert!(exported("0-1\n").unwrap() > first);
    assert!(exported("\n").unwrap() > first, "v1 has an empty set for a moment: it has what it had");
    let (_, text) = bench.collect(&snapshot_of(machine.roots(), vec![ended_after(&job, 100.0)]));
    assert!(near(value(&text, HAD), 200.0), "{text}");
}
