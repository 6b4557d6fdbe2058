mod growth;

use std::path::PathBuf;
use std::time::Duration;

use test_machine::Machine;

use super::*;
use crate::{Job, JobId, Reader, RemovedCgroup, Step};

/// A table of a machine that nobody looked at yet.
fn table(machine: &Machine) -> Table {
    table_of(machine, MOST_RETAINED, Vec::new())
}

fn table_of(machine: &Machine, most_retained: usize, hooks: Vec<Arc<dyn JobObserver>>) -> Table {
    let options = TableOptions {
        retention: Duration::ZERO,
        retention_max: Duration::from_secs(3600),
        readers: 1,
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

/// The event of its making is read after a walk that found it gone.
#[test]
fn a_job_whose_events_are_read_late_has_one_run() {
    let machine = idle();
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    machine.write(&format!("{SCOPE}/job_7/cgroup.procs"), "1\n");
    table.list(&scope, true);
    machine.remove(&format!("{SCOPE}/job_7"));
    table.list(&scope, true);
    table.end_gone();
    table.process_events();
    assert_eq!((table.stats.runs_total, table.running()), (1, 0));
    // Requeued, it is made again, and that is another run.
    machine.write(&format!("{SCOPE}/job_7/cgroup.procs"), "1\n");
    table.process_events();
    assert_eq!((table.stats.runs_total, table.running()), (2, 1));
}

/// Another job may go before the next walk: there are as many directories as before then.
#[test]
fn a_root_in_which_a_job_could_not_be_opened_is_listed_again() {
    let machine = idle();
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    // The kernel counts directories in cgroups alone.
    table.listed.insert(scope.inode, listing::Links::default());
    // A file cannot be opened as a directory.
    machine.write(&format!("{SCOPE}/job_8"), "");
    assert!(!table.adopt(&scope, "job_8".to_owned(), true));
    assert!(!table.listed.contains_key(&scope.inode));
}

#[test]
fn a_user_who_comes_and_goes_leaves_no_watch() {
    let machine = Machine::new();
    machine.write("cgroup/freezer/cgroup.procs", "").write("cgroup/freezer/slurm/cgroup.procs", "");
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    for _ in 0..20 {
        machine.write("cgroup/freezer/slurm/uid_1001/cgroup.procs", "");
        table.process_events();
        machine.remove("cgroup/freezer/slurm/uid_1001");
        table.process_events();
    }
    assert!(table.scope_watches[&scope.inode].len() <= 2, "{:?}", table.scope_watches);
}

/// Of a job that is read late each hierarchy reports that it was made, and its removal lies between.
#[test]
fn a_job_that_came_and_went_unseen_has_one_run() {
    let machine = idle();
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    for _ in 0..3 {
        assert!(table.adopt(&scope, "job_7".to_owned(), true));
    }
    table.process_events();
    assert!(table.adopt(&scope, "job_7".to_owned(), true), "made before it was seen to be gone");
    assert_eq!(table.stats.runs_total, 1);
    table.process_events();
    table.removed(scope.inode, "job_7".to_owned());
    assert!(table.adopt(&scope, "job_7".to_owned(), true), "made again after its removal");
    assert_eq!(table.stats.runs_total, 2);
    table.process_events();
    table.process_events();
    assert!(table.adopt(&scope, "job_7".to_owned(), true), "made since, its removal was never reported");
    assert_eq!(table.stats.runs_total, 3);
}

/// Read late, a job's first directory may be gone while one that was made later is still there.
#[test]
fn a_v1_job_goes_on_in_hierarchies_that_were_not_known() {
    let machine = Machine::new();
    for dir in ["freezer", "freezer/slurm", "cpuacct", "cpuacct/slurm"] {
        machine.write(&format!("cgroup/{dir}/cgroup.procs"), "").write(&format!("cgroup/{dir}/tasks"), "");
    }
    let dir = |hierarchy: &str| format!("cgroup/{hierarchy}/slurm/uid_1001/job_7");
    let make = |hierarchy| {
        machine.write(&format!("{}/cgroup.procs", dir(hierarchy)), "1\n");
    };
    make("freezer");
    let mut table = table(&machine);
    table.verify();
    let scope = table.scopes.first().cloned().unwrap();
    let job = "uid_1001/job_7".to_owned();
    assert_eq!((table.stats.runs_total, table.running()), (1, 1));
    // No cgroup gets the inode of another one. A file system of tests gives it away again, unless the directory is open.
    let open = |hierarchy: &str| std::fs::File::open(machine.path.join(dir(hierarchy))).unwrap();
    let _freezer = open("freezer");
    machine.remove(&dir("freezer"));
    make("cpuacct");
    let _cpuacct = open("cpuacct");
    assert!(table.adopt(&scope, job.clone(), true));
    table.end_gone();
    assert_eq!((table.stats.runs_total, table.running()), (1, 1), "the same run");
    // Both are made again: requeued.
    machine.remove(&dir("cpuacct"));
    make("freezer");
    make("cpuacct");
    assert!(table.adopt(&scope, job, true));
    table.end_gone();
    assert_eq!((table.stats.runs_total, table.running()), (2, 1), "another run");
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
    table.delivered(&reader(1), &snapshot.jobs);
    assert_eq!(table.snapshot().jobs.len(), 0, "exported, and the retention is over");
    assert_eq!((table.stats.dropped_total, table.retained.len()), (RUNS - most, 0));
}

/// Steps and tasks of an ended run, by what is exported.
fn kept_of_an_ended_run(levels: Levels) -> (usize, usize) {
    let machine = idle();
    let mut table = table(&machine);
    table.options.levels = levels;
    for task in 0..2 {
        machine.write(&format!("{SCOPE}/job_7/step_0/user/task_{task}/cgroup.procs"), "");
    }
    machine.write(&format!("{SCOPE}/job_7/cgroup.procs"), "");
    table.verify();
    let running = table.runs.values().next().unwrap();
    assert_eq!((running.job.steps.len(), running.job.steps[0].tasks.len()), (1, 2));
    machine.remove(&format!("{SCOPE}/job_7"));
    table.verify();
    let ended = table.runs.values().next().unwrap();
    assert!(ended.has_ended() && ended.dir.is_empty() && ended.path.is_empty());
    assert_eq!(ended.job.cgroup.dirs().count(), 0);
    let tasks = ended.job.steps.iter().map(|step| step.tasks.len()).sum();
    (ended.job.steps.len(), tasks)
}

#[test]
fn an_ended_run_keeps_the_steps_and_tasks_that_are_exported() {
    let levels = [(false, false), (true, false), (true, true)];
    let kept = levels.map(|(steps, tasks)| kept_of_an_ended_run(Levels { steps, tasks }));
    assert_eq!(kept, [(0, 0), (1, 0), (1, 2)]);
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
    table.delivered(&reader(1), &snapshot.jobs);
    ends(&mut table, 3);
    ends(&mut table, 4);
    assert_eq!(table.stats.dropped_total, 0, "exported, if not for as long as was asked for");
    ends(&mut table, 5);
    assert_eq!(table.stats.dropped_total, 1);
}

fn reader(number: u8) -> Reader {
    Reader::Address([10, 0, 0, number].into())
}

const LONG: Duration = Duration::from_secs(3600);

/// A table with one ended job run.
struct Ended {
    table: Table,
    _machine: Machine,
}

impl Ended {
    fn new(change: impl FnOnce(&mut TableOptions)) -> Self {
        let machine = idle();
        let mut table = table(&machine);
        table.options.retention_max = LONG;
        change(&mut table.options);
        table.verify();
        let mut ended = Self { table, _machine: machine };
        ended.run_ends();
        ended
    }

    /// The job runs and ends (again).
    fn run_ends(&mut self) {
        let scope = self.table.scopes.first().cloned().unwrap();
        assert!(self.table.adopt(&scope, "job_7".to_owned(), true));
        self.table.removed(scope.inode, "job_7".to_owned());
        self.table.end_gone();
    }

    /// The runs that a snapshot shows.
    fn shown(&mut self) -> Vec<u64> {
        let snapshot = self.table.snapshot();
        assert!(snapshot.jobs.iter().all(|job| !job.is_running()));
        snapshot.jobs.iter().map(|job| job.run.0).collect()
    }

    /// A reader gets what a snapshot shows.
    fn read_by(&mut self, number: u8) {
        let jobs = self.table.snapshot().jobs;
        self.table.delivered(&reader(number), &jobs);
    }

    /// What was shown last is no longer kept for the least or for the longest time.
    fn time_is_over(&mut self, change: impl FnOnce(&mut TableOptions)) {
        change(&mut self.table.options);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_end_is_kept_until_a_reader_has_it() {
    let mut ended = Ended::new(|_| ());
    let run = ended.shown();
    assert_eq!((run.len(), ended.shown()), (1, run), "however often it is collected");
    ended.read_by(1);
    ended.time_is_over(|_| ());
    assert_eq!(ended.shown(), Vec::<u64>::new());
    assert_eq!(ended.table.stats.dropped_total, 0);
}

#[test]
fn an_end_is_kept_for_its_retention_after_all_readers_have_it() {
    let mut ended = Ended::new(|options| options.retention = LONG);
    ended.read_by(1);
    assert_eq!(ended.shown().len(), 1);
    ended.time_is_over(|options| options.retention = Duration::ZERO);
    assert_eq!(ended.shown(), Vec::<u64>::new());
}

#[test]
fn with_two_readers_an_end_is_kept_until_both_have_it() {
    let mut ended = Ended::new(|options| options.readers = 2);
    for _ in 0..3 {
        ended.read_by(1);
        assert_eq!(ended.shown().len(), 1, "one reader is one, however often it comes");
    }
    ended.read_by(2);
    ended.time_is_over(|_| ());
    assert_eq!((ended.shown(), ended.table.stats.dropped_total), (Vec::new(), 0));
}

#[test]
fn an_end_that_nobody_reads_is_dropped_after_the_longest_retention_and_counted() {
    let mut ended = Ended::new(|options| options.readers = 2);
    ended.read_by(1);
    ended.time_is_over(|options| options.retention_max = Duration::ZERO);
    assert_eq!((ended.shown(), ended.table.stats.dropped_total), (Vec::new(), 1));
}

#[test]
fn a_reader_that_is_forgotten_for_others_has_not_read() {
    let mut ended = Ended::new(|options| options.readers = 2);
    ended.read_by(0);
    // More than are distinguished: the first one is forgotten for the last.
    for number in 1..=64 {
        ended.table.delivered(&reader(number), &[]);
    }
    ended.read_by(64);
    assert_eq!(ended.shown().len(), 1, "read by one that is still known");
    ended.read_by(63);
    ended.time_is_over(|_| ());
    assert_eq!(ended.shown(), Vec::<u64>::new());
}

#[test]
fn a_second_run_is_shown_when_the_end_of_the_first_is_read() {
    let mut ended = Ended::new(|options| options.retention = LONG);
    let first = ended.shown();
    ended.run_ends();
    assert_eq!(ended.shown(), first);
    assert_eq!(ended.shown(), first, "a collection is no reader");
    ended.read_by(1);
    let second = ended.shown();
    assert_eq!(second.len(), 1);
    assert!(second > first);
}

#[test]
fn without_readers_a_second_run_is_shown_after_the_retention() {
    let mut ended = Ended::new(|options| options.retention = LONG);
    ended.run_ends();
    let first = ended.shown();
    assert_eq!(ended.shown(), first);
    ended.time_is_over(|options| options.retention = Duration::ZERO);
    assert!(ended.shown() > first);
}

#[test]
fn a_second_run_waits_for_a_reader_that_was_there_lately_and_for_all_of_them_during_the_retention() {
    let mut ended = Ended::new(|options| (options.readers, options.retention) = (2, LONG));
    let first = ended.shown();
    ended.run_ends();
    ended.table.delivered(&reader(1), &[]);
    ended.time_is_over(|options| options.retention = Duration::ZERO);
    assert_eq!(ended.shown(), first, "it comes again");
    ended.time_is_over(|options| options.retention = LONG);
    ended.read_by(1);
    assert_eq!(ended.shown(), first, "the other one has not come yet");
    ended.time_is_over(|options| options.retention = Duration::ZERO);
    assert!(ended.shown() > first, "that it does not come must not hide the second run");
}

#[test]
fn a_second_run_that_is_shown_remains_when_the_first_reader_comes() {
    let mut ended = Ended::new(|options| options.retention = LONG);
    let first = ended.shown();
    ended.run_ends();
    ended.time_is_over(|options| options.retention = Duration::ZERO);
    let second = ended.shown();
    assert!(second > first, "{second:?} after {first:?}");
    ended.read_by(1);
    ended.table.options.retention = LONG;
    assert_eq!(ended.shown(), second, "its page had the second run");
    let saved = durable_state::encode(&ended.table.save());
    let machine = idle();
    let mut restarted = table(&machine);
    restarted.options.retention = LONG;
    restarted.restore(durable_state::decode(&saved).unwrap(), Instant::now());
    let shown: Vec<u64> = restarted.snapshot().jobs.iter().map(|job| job.run.0).collect();
    assert_eq!(shown, second, "after a restart, too");
}

#[test]
fn a_second_run_that_is_shown_remains_when_who_had_the_end_of_the_first_is_forgotten() {
    let mut ended = Ended::new(|options| options.retention = LONG);
    ended.read_by(0);
    let first = ended.shown();
    ended.run_ends();
    let second = ended.shown();
    assert!(second > first, "{second:?} after {first:?}");
    for number in 1..=64 {
        ended.table.delivered(&reader(number), &[]);
    }
    assert_eq!(ended.shown(), second);
}

#[test]
fn an_end_that_no_snapshot_had_is_shown_before_the_second_run() {
    let mut ended = Ended::new(|_| ());
    ended.run_ends();
    ended.time_is_over(|_| ());
    let first = ended.shown();
    assert!(ended.shown() > first);
}

/// Notes what ends, and whether it is alone. When the first run is about to end, another job comes and goes.
#[derive(Default)]
struct Ends {
    comes_and_goes: Option<PathBuf>,
    noted: parking_lot::Mutex<Vec<(Option<JobId>, bool)>>,
}

impl JobObserver for Ends {
    fn before_end(&self, _: &[Arc<SlurmCgroup>], _: &mut Buffer) {
        if let Some(dir) = self.comes_and_goes.as_ref().filter(|_| self.noted.lock().is_empty()) {
            std::fs::create_dir(dir).unwrap();
            std::fs::remove_dir(dir).unwrap();
        }
    }

    fn cgroup_removed(&self, gone: &RemovedCgroup<'_>, _: &mut Buffer) {
        self.noted.lock().push((gone.job.id, gone.alone));
    }
}

/// What is noted when these jobs end one after the other.
fn end_of(
    jobs: &[u32],
    machine: &Machine,
    comes_and_goes: Option<PathBuf>,
    lost: bool,
) -> Vec<(Option<JobId>, bool)> {
    let dir = |id: &u32| format!("{SCOPE}/job_{id}");
    for id in jobs {
        machine.write(&format!("{}/cgroup.procs", dir(id)), "1\n");
    }
    let ends = Arc::new(Ends { comes_and_goes, ..Ends::default() });
    let mut table = table_of(machine, MOST_RETAINED, vec![ends.clone()]);
    table.verify();
    table.missed_events = lost;
    for id in jobs {
        machine.remove(&dir(id));
        table.process_events();
    }
    ends.noted.lock().clone()
}

/// Its time is in the sum that was read before the end of the first, and in no list.
#[test]
fn a_run_is_not_alone_if_another_came_and_went_meanwhile() {
    let machine = idle();
    let other = machine.path.join(format!("{SCOPE}/job_8"));
    let noted = end_of(&[7], &machine, Some(other), false);
    assert_eq!(noted, [(Some(JobId(7)), false), (Some(JobId(8)), true)]);
}

#[test]
fn no_run_is_alone_after_events_were_lost() {
    let noted = end_of(&[7, 8], &idle(), None, true);
    assert_eq!(noted, [(Some(JobId(7)), false), (Some(JobId(8)), true)]);
}
