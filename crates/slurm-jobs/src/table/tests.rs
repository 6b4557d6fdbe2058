use std::time::Duration;

use test_machine::Machine;

use super::*;
use crate::JobId;

/// A table of a machine that nobody looked at yet.
fn table(machine: &Machine) -> Table {
    table_of(machine, MOST_RETAINED, Vec::new())
}

fn table_of(machine: &Machine, most_retained: usize, hooks: Vec<Arc<dyn JobObserver>>) -> Table {
    let options = TableOptions {
        retention: Duration::ZERO,
        most_retained,
        stale_after: Duration::from_secs(60),
        levels: Levels::default(),
        job_labels: Vec::new(),
        jobs_dir: None,
        environment_hints: false,
    };
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    Table::new(Arc::new(machine.roots()), options, users, hooks)
}

const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";

/// A machine with a root of SLURM's and no job.
fn idle() -> Machine {
    let machine = Machine::new();
    machine.write("cgroup/cgroup.controllers", "cpu\n").write(&format!("{SCOPE}/cgroup.procs"), "");
    machine.write(&format!("{SCOPE}/system/cgroup.procs"), "");
    machine
}

/// What a scrape shows after a directory was listed and was gone when it was opened.
fn observed_one_that_is_gone(fresh: bool) -> Vec<Option<clocks::Moment>> {
    let machine = idle();
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    assert!(table.adopt(&scope, "job_9".to_owned(), fresh));
    let snapshot = table.snapshot();
    snapshot
        .jobs
        .iter()
        .chain(&snapshot.pending)
        .filter(|job| job.id == Some(JobId(9)))
        .map(|job| job.ended)
        .collect()
}

#[test]
fn one_that_came_and_went_is_exported_and_one_of_which_not_even_the_start_is_known_is_not() {
    assert!(matches!(observed_one_that_is_gone(true)[..], [Some(_)]));
    assert_eq!(observed_one_that_is_gone(false), []);
}

/// No kernel shows that: each cgroup has `cgroup.procs` as long as it is listed.
#[test]
fn a_directory_that_looks_gone_and_remains_does_not_stop_the_table() {
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
    let runs = table.stats.runs_total;
    assert!((1..100).contains(&runs), "{runs}");
}

/// Job runs that come and go so quickly that nothing but their names is seen of them.
#[test]
fn ended_runs_are_bounded_without_scrapes() {
    const RUNS: u64 = 20_000;
    let machine = idle();
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    for run in 1..=RUNS {
        assert!(table.adopt(&scope, format!("job_{run}"), true));
        table.end_gone();
        assert!(table.runs.len() <= MOST_RETAINED);
    }
    let most = u64::try_from(MOST_RETAINED).unwrap();
    assert_eq!((table.runs.len(), table.stats.dropped_total), (MOST_RETAINED, RUNS - most));
    assert_eq!((table.retained.len(), table.due(), table.running()), (MOST_RETAINED, None, 0));
    let snapshot = table.snapshot();
    let ids: BTreeSet<_> = snapshot.jobs.iter().filter_map(|job| job.id).map(|id| u64::from(id.0)).collect();
    assert_eq!(ids, (RUNS - most + 1..=RUNS).collect(), "the latest are retained");
    table.exported(&snapshot.jobs);
    assert_eq!(table.snapshot().jobs.len(), 0, "exported, and the retention is over");
    assert_eq!((table.stats.dropped_total, table.retained.len()), (RUNS - most, 0));
}

#[test]
fn of_too_many_ended_runs_only_those_count_as_dropped_whose_end_no_scrape_showed() {
    let machine = idle();
    let mut table = table_of(&machine, 2, Vec::new());
    table.options.retention = Duration::from_secs(3600);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    let ends = |table: &mut Table, run: u32| {
        assert!(table.adopt(&scope, format!("job_{run}"), true));
        table.end_gone();
    };
    ends(&mut table, 1);
    ends(&mut table, 2);
    let snapshot = table.snapshot();
    table.exported(&snapshot.jobs);
    ends(&mut table, 3);
    ends(&mut table, 4);
    assert_eq!(table.stats.dropped_total, 0, "exported, if not for as long as was asked for");
    ends(&mut table, 5);
    assert_eq!(table.stats.dropped_total, 1);
}
