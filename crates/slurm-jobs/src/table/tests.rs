use std::time::Duration;

use test_machine::Machine;

use super::*;
use crate::JobId;

/// A table of a machine that nobody looked at yet.
fn table(machine: &Machine) -> Table {
    let options = TableOptions {
        retention: Duration::ZERO,
        stale_after: Duration::from_secs(60),
        levels: Levels::default(),
        job_labels: Vec::new(),
        jobs_dir: None,
        environment_hints: false,
    };
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    Table::new(Arc::new(machine.roots()), options, users, Vec::new()).unwrap()
}

/// What a scrape tells after a directory was listed and had gone when it was opened.
fn told_of_one_that_is_gone(fresh: bool) -> Vec<Option<f64>> {
    let machine = Machine::new();
    let scope = "cgroup/system.slice/slurmstepd.scope";
    machine.write("cgroup/cgroup.controllers", "cpu\n").write(&format!("{scope}/cgroup.procs"), "");
    machine.write(&format!("{scope}/system/cgroup.procs"), "");
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    assert!(table.adopt(&scope, "job_9".to_owned(), fresh));
    let scene = table.scene();
    scene
        .jobs
        .iter()
        .chain(&scene.pending)
        .filter(|job| job.id == Some(JobId(9)))
        .map(|job| job.ended)
        .collect()
}

#[test]
fn one_that_came_and_went_is_told_and_one_of_which_not_even_the_start_is_known_is_not() {
    assert!(matches!(told_of_one_that_is_gone(true)[..], [Some(_)]));
    assert_eq!(told_of_one_that_is_gone(false), []);
}

/// No kernel shows that: each cgroup has `cgroup.procs` as long as it is listed.
#[test]
fn a_directory_that_looks_gone_and_stays_does_not_stop_the_table() {
    let machine = Machine::new();
    for dir in ["", "slurm/"] {
        machine
            .write(&format!("cgroup/freezer/{dir}cgroup.procs"), "")
            .write(&format!("cgroup/freezer/{dir}tasks"), "");
    }
    machine.write("cgroup/freezer/slurm/uid_1001/job_7/step_0/cgroup.procs", "");
    let mut table = table(&machine);
    for _ in 0..3 {
        table.verify();
    }
    assert_eq!(table.scopes.len(), 1);
    let lives = table.stats.lives_total;
    assert!((1..100).contains(&lives), "{lives}");
}
