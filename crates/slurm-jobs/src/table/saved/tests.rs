use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use test_machine::Machine;

use super::*;
use crate::table::TableOptions;
use crate::{Disposition, JobObserver, Levels, Reader, Users};

/// Where the prolog writes.
const JOBS: &str = "run/jobledger/jobs";
const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";

/// A machine with these jobs, each with a step.
fn node(jobs: &[u32]) -> Machine {
    let machine = Machine::new();
    machine.write("cgroup/cgroup.controllers", "cpu\n").write(&format!("{SCOPE}/cgroup.procs"), "");
    machine.write(&format!("{SCOPE}/system/cgroup.procs"), "");
    jobs.iter().for_each(|job| add(&machine, *job));
    machine
}

fn add(machine: &Machine, job: u32) {
    for dir in ["", "/step_0", "/step_0/user", "/step_0/user/task_0"] {
        machine
            .write(&format!("{SCOPE}/job_{job}{dir}/cgroup.procs"), "")
            .write(&format!("{SCOPE}/job_{job}{dir}/cgroup.events"), "populated 1\n");
    }
}

fn remove(machine: &Machine, job: u32) {
    let dir = machine.path.join(format!("{SCOPE}/job_{job}"));
    std::fs::remove_file(dir.join("cgroup.procs")).unwrap();
    std::fs::remove_dir_all(dir).unwrap();
}

/// What the observers are called with.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<String>>);

impl JobObserver for Seen {
    fn initial_scan_done(&self) {
        self.0.lock().push("looked".to_owned());
    }

    fn job_started(&self, job: &Job) {
        self.0.lock().push(format!("started {}", job.run.0));
    }

    fn job_left_node(&self, run: JobRunId) {
        self.0.lock().push(format!("left {}", run.0));
    }

    fn cgroup_removed(&self, gone: &crate::RemovedCgroup<'_>, _buffer: &mut kernel_files::Buffer) {
        self.0.lock().push(format!("gone {} alone={}", gone.job.run.0, gone.alone));
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.0.lock().push(format!("removed {}", run.0));
    }
}

fn table(machine: &Machine, seen: &Arc<Seen>) -> Table {
    let options = TableOptions {
        retention: Duration::ZERO,
        retention_max: Duration::from_secs(3600),
        readers: 1,
        most_retained: 100,
        stale_after: Duration::from_secs(60),
        levels: Levels::default(),
        job_labels: Vec::new(),
        jobs_dir: Some(machine.path.join(JOBS)),
        environment_hints: false,
    };
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    Table::new(Arc::new(machine.roots()), options, users, vec![seen.clone()])
}

fn reader() -> Reader {
    Reader::User("prometheus".to_owned())
}

/// Saves a table as a process does, and gives the one of the next process.
fn restarted(machine: &Machine, before: Table, seen: &Arc<Seen>) -> Table {
    let bytes = durable_state::encode(&before.save());
    let at = Instant::now();
    drop(before);
    let mut after = table(machine, seen);
    after.restore(durable_state::decode(&bytes).unwrap(), at);
    after
}

/// By job id: its run and whether it has ended.
fn shown(table: &mut Table) -> BTreeMap<u32, (u64, bool)> {
    let snapshot = table.snapshot();
    snapshot.jobs.iter().map(|job| (job.id.unwrap().0, (job.run.0, !job.is_running()))).collect()
}

#[test]
fn a_job_that_is_still_there_is_the_same_run_with_its_start_steps_and_metadata() {
    let machine = node(&[7]);
    let seen = Arc::new(Seen::default());
    let mut first = table(&machine, &seen);
    first.verify();
    add(&machine, 8);
    first.verify();
    let before: Vec<Arc<Job>> = first.snapshot().jobs;
    let mut second = restarted(&machine, first, &Arc::default());
    second.verify();
    let after = second.snapshot();
    assert_eq!(after.jobs.len(), 2);
    for (before, after) in before.iter().zip(&after.jobs) {
        assert_eq!((before.run, before.started, before.since), (after.run, after.started, after.since));
        assert_eq!((&before.steps, &before.labels), (&after.steps, &after.labels));
        assert!(after.is_running() && !after.cgroup.is_gone());
    }
    assert_eq!(after.table.runs_total, 0, "none of them is new");
}

#[test]
fn what_the_epilog_wrote_while_no_exporter_ran_is_read_of_jobs_that_were_running_and_that_had_ended() {
    let machine = node(&[7, 8]);
    let prolog = |id: u32| format!("job_id={id}\nstart_time=1000\nrestarts=0\n");
    for id in [7, 8] {
        machine.write(&format!("{JOBS}/{id}"), prolog(id));
    }
    let mut first = table(&machine, &Arc::default());
    first.verify();
    remove(&machine, 7);
    first.verify();
    let mut second = restarted(&machine, first, &Arc::default());
    remove(&machine, 8);
    for id in [7, 8] {
        machine.write(&format!("{JOBS}/{id}.ended"), format!("{}exit_code={id}\nsignal=0\n", prolog(id)));
    }
    let codes: Vec<_> = second.snapshot().jobs.iter().map(|job| job.metadata.ending.exit_code).collect();
    assert_eq!(codes, [Some(7), Some(8)]);
}

#[test]
fn steps_of_before_are_followed_on() {
    let machine = node(&[7]);
    let mut first = table(&machine, &Arc::default());
    first.verify();
    let mut second = restarted(&machine, first, &Arc::default());
    second.verify();
    machine.write(&format!("{SCOPE}/job_7/step_1/user/task_0/cgroup.procs"), "");
    machine.write(&format!("{SCOPE}/job_7/step_0/user/task_1/cgroup.procs"), "");
    second.process_events();
    let jobs = second.snapshot().jobs;
    let mut ordinals: Vec<u32> = jobs[0]
        .steps
        .iter()
        .flat_map(|s| s.tasks.iter().map(|task| task.ordinal).chain([s.ordinal]))
        .collect();
    ordinals.sort_unstable();
    assert_eq!((jobs[0].steps.len(), ordinals.len()), (2, 5));
    ordinals.dedup();
    assert_eq!(ordinals.len(), 5, "numbers are not used twice");
    std::fs::remove_dir_all(machine.path.join(format!("{SCOPE}/job_7/step_0"))).unwrap();
    second.process_events();
    assert!(
        second.snapshot().jobs[0].steps.iter().any(|step| &*step.name == "step_0" && step.ended.is_some())
    );
}

#[test]
fn a_job_that_went_meanwhile_ended_when_it_was_seen_last_and_is_shown_until_that_was_exported() {
    let machine = node(&[7, 8]);
    let mut first = table(&machine, &Arc::default());
    first.verify();
    let runs = shown(&mut first);
    remove(&machine, 8);
    let seen = Arc::new(Seen::default());
    let last = clocks::unix_now();
    let mut second = restarted(&machine, first, &seen);
    std::thread::sleep(Duration::from_millis(300));
    second.verify();
    let (run7, run8) = (runs[&7].0, runs[&8].0);
    assert_eq!(
        *seen.0.lock(),
        [
            format!("started {run7}"),
            format!("gone {run8} alone=false"),
            format!("left {run8}"),
            "looked".to_owned()
        ]
    );
    assert_eq!(shown(&mut second), BTreeMap::from([(7, (run7, false)), (8, (run8, true))]));
    let snapshot = second.snapshot();
    let ended = snapshot.jobs.iter().find_map(|job| job.ended).unwrap();
    assert!((ended.unix - last).abs() < 0.2, "{ended:?} and not the time of the restart, {last}");
    second.delivered(&reader(), &snapshot.jobs);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(shown(&mut second), BTreeMap::from([(7, (run7, false))]));
}

#[test]
fn an_ended_job_that_no_scrape_had_is_in_the_next_one_and_one_that_it_had_is_not() {
    let machine = node(&[7, 8]);
    let mut first = table(&machine, &Arc::default());
    first.options.retention = Duration::from_secs(3600);
    first.verify();
    remove(&machine, 7);
    first.verify();
    let jobs = first.snapshot().jobs;
    first.delivered(&reader(), &jobs);
    remove(&machine, 8);
    first.verify();
    let end = first.snapshot().jobs.iter().find(|job| job.id == Some(JobId(8))).unwrap().ended;
    let mut second = restarted(&machine, first, &Arc::default());
    second.verify();
    let snapshot = second.snapshot();
    assert_eq!(
        snapshot.jobs.iter().map(|job| (job.id.unwrap().0, job.ended)).collect::<Vec<_>>(),
        [(8, end)]
    );
}

#[test]
fn a_directory_made_again_is_another_run_and_no_number_is_used_twice() {
    let machine = node(&[7]);
    let mut first = table(&machine, &Arc::default());
    first.verify();
    let before = shown(&mut first)[&7].0;
    // The old directory is kept elsewhere, so that its inode is not given to the new one.
    std::fs::rename(machine.path.join(format!("{SCOPE}/job_7")), machine.path.join("kept")).unwrap();
    add(&machine, 7);
    add(&machine, 9);
    let mut second = restarted(&machine, first, &Arc::default());
    second.verify();
    let jobs = second.snapshot().jobs;
    let seven = jobs.iter().find(|job| job.id == Some(JobId(7))).unwrap();
    assert_eq!((seven.run.0, seven.is_running()), (before, false), "the end comes first");
    second.delivered(&reader(), &jobs);
    let after = shown(&mut second);
    assert!(after[&7].0 > before && after[&9].0 > before && after[&7].0 != after[&9].0, "{after:?}");
    let mut third = restarted(&machine, second, &Arc::default());
    third.verify();
    assert_eq!(shown(&mut third), after);
}

#[test]
fn a_state_from_before_the_scope_was_there_again_ends_its_jobs() {
    let machine = node(&[7]);
    let mut first = table(&machine, &Arc::default());
    first.verify();
    std::fs::remove_dir_all(machine.path.join("cgroup/system.slice")).unwrap();
    let mut second = restarted(&machine, first, &Arc::default());
    second.verify();
    let runs = shown(&mut second);
    assert!(runs[&7].1, "{runs:?}");
}
