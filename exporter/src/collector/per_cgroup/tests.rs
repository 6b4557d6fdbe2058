use std::time::Duration;

use slurm_jobs::Users;
use slurm_jobs::table::{Table, TableOptions};
use test_machine::Machine;

use super::*;

/// Reads nothing.
struct Nothing;

impl CgroupSource for Nothing {
    type Reading = ();

    fn read(&self, _: &Group<'_>, _: &mut Buffer) -> Result<(), SourceError> {
        Ok(())
    }

    fn emit(&self, _: &(), _: &mut Emit<'_>) {}
}

/// How many runs have readings.
fn kept(source: &Built) -> usize {
    let saved = source.durable.as_ref().unwrap().save().unwrap();
    durable_state::decode::<Saved<'_>>(&saved).unwrap().readings.len()
}

#[test]
fn what_collectors_keep_of_ended_runs_is_bounded_without_scrapes() {
    const MOST: usize = 16;
    const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
    let machine = Machine::new();
    machine.write("cgroup/cgroup.controllers", "cpu\n").write(&format!("{SCOPE}/cgroup.procs"), "");
    let source = build(Nothing);
    let options = TableOptions {
        retention: Duration::ZERO,
        retention_max: Duration::from_secs(3600),
        readers: 1,
        most_retained: MOST,
        stale_after: Duration::from_secs(60),
        levels: Levels::default(),
        job_labels: Vec::new(),
        jobs_dir: None,
        environment_hints: false,
    };
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    let hooks = source.observer.iter().cloned().collect();
    let mut table = Table::new(Arc::new(machine.roots()), options, users, hooks);
    table.verify();
    for run in 1..=200 {
        machine.write(&format!("{SCOPE}/job_{run}/step_0/cgroup.procs"), "");
        table.process_events();
        // The end of the step is when a job is read without a scrape.
        machine.remove(&format!("{SCOPE}/job_{run}/step_0"));
        table.process_events();
        machine.remove(&format!("{SCOPE}/job_{run}"));
        table.process_events();
        assert_eq!(kept(&source), run.min(MOST), "one of each retained run");
    }
}
