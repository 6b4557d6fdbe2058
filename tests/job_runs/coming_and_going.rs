//! Jobs, steps and slurmd itself come, go, and are left behind.

use super::*;

#[test]
fn the_start_of_a_step_is_known_if_it_was_seen() {
    let machine = empty_machine();
    let job = format!("{SCOPE}/job_7");
    machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
    machine.write(format!("{job}/cgroup.procs"), "").write(format!("{job}/cgroup.events"), "populated 1\n");
    machine.mkdir(format!("{job}/step_0/user/task_0"));
    let from = clocks::unix_now();
    let mut node = Node::over(machine, |_| {});
    let (snapshot, _) = node.scrape();
    let found = only(&snapshot);
    assert_eq!(
        (found.steps[0].began, found.steps[0].tasks[0].began),
        (None, None),
        "no slurmstepd says when it began"
    );
    assert_eq!(found.counters_began(), Some(found.started.unix), "when its directory was looked at first");
    assert!((from..=clocks::unix_now()).contains(&snapshot.following_since));
    assert_eq!(found.followed_from(&snapshot), Some(snapshot.following_since), "nothing was counted before");
    node.make_job("job_8", "1", None);
    node.settle();
    let (snapshot, _) = node.scrape();
    let seen = snapshot.jobs.iter().find(|job| job.id == Some(slurm_jobs::JobId(8))).unwrap();
    let until = clocks::unix_now();
    for began in [Some(seen.started.unix), seen.steps[0].began, seen.steps[0].tasks[0].began] {
        assert!(began.is_some_and(|began| (from..=until).contains(&began)), "{began:?} of {from} to {until}");
    }
    assert_eq!(seen.followed_from(&snapshot), Some(seen.started.unix));
    let again = Job { first_run: JobRunId(0), ..(**seen).clone() };
    assert_eq!(again.counters_began(), None, "its directory counted for another run before");
}

/// A slurmstepd makes its step's directory. Its start is in ticks after the boot.
#[test]
fn a_step_that_was_there_before_began_with_its_slurmstepd_and_not_when_its_directory_was_touched() {
    let machine = empty_machine();
    let mut node = Node::over(machine, |_| {});
    node.make_scope();
    node.make_job("job_7", "1", None);
    for (step, stepd, task, ticks) in [("batch", 100, 101, 5000), ("0", 200, 201, 9000)] {
        node.make_job("job_7", step, Some((stepd, task)));
        node.process(stepd, 1, 0, &format!("slurmstepd: [7.{step}]"));
        node.process(task, stepd, 1001, "a.out");
        let stat = format!("{stepd} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
        node.machine.write(format!("proc/{stepd}/stat"), stat);
    }
    let (snapshot, _) = node.scrape();
    let found = only(&snapshot);
    let began = |name: &str| {
        let step = found.steps.iter().find(|step| &*step.name == name).unwrap();
        assert!(step.tasks.iter().all(|task| task.began == step.began), "{step:?}");
        step.began
    };
    let boot = 1_700_000_000.0;
    assert_eq!(began("step_batch"), Some(boot + 50.0));
    assert_eq!(began("step_0"), Some(boot + 90.0));
    assert_eq!(began("step_1"), None, "it has none");
    assert_eq!(found.started.unix, boot + 50.0);
}

/// The counters of its steps go on where they were.
#[test]
fn a_step_in_a_directory_that_is_used_again_has_no_start() {
    let mut node = Node::over(empty_machine(), |options| options.stale_after = Duration::from_nanos(1));
    node.make_scope();
    node.table.verify();
    node.make_job("job_7", "0", None);
    for _ in 0..2 {
        node.settle();
        node.scrape();
    }
    node.process(100, 1, 0, "slurmstepd: [7.0]");
    node.machine.write(format!("{SCOPE}/job_7/step_0/slurm/cgroup.procs"), "100\n");
    node.machine.write(format!("{SCOPE}/job_7/cgroup.events"), "populated 1\n");
    node.scrape();
    let (snapshot, _) = node.scrape();
    let again = only(&snapshot);
    assert!(again.is_running() && again.run != again.first_run, "{again:?}");
    assert_eq!((again.steps[0].began, again.counters_began()), (None, None));
}

#[test]
fn slurmd_may_come_after_the_exporter() {
    let mut node = Node::over(empty_machine(), |_| {});
    let (snapshot, _) = node.scrape();
    assert!(snapshot.unavailable.as_ref().unwrap().contains("slurmd"), "{:?}", snapshot.unavailable);
    node.make_scope();
    node.make_job("job_7", "batch", None);
    // The event of the slice, not the pause between searches, is what finds it.
    node.settle();
    let (snapshot, _) = node.scrape();
    assert_eq!((ids(&snapshot), snapshot.unavailable.is_none()), (vec![7], true));
}

#[test]
fn a_requeued_job_is_a_new_run_and_both_are_exported() {
    let mut node = Node::new();
    node.scrape();
    node.make_job("job_7", "0", None);
    node.settle();
    node.spend("job_7", 3_000_000, 3_000_000);
    node.machine.write(format!("{SCOPE}/job_7/step_0/user/cgroup.events"), "populated 0\n");
    node.settle();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.make_job("job_7", "0", None);
    node.settle();
    let (first, text) = node.scrape();
    assert!(!only(&first).is_running());
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}"), Some(3.0));
    let (second, text) = node.scrape();
    assert!(only(&second).is_running());
    assert_ne!(only(&first).run, only(&second).run);
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}"), Some(0.0));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(3.0));
}

#[test]
fn a_job_that_is_gone_before_it_could_be_opened_is_exported_by_name() {
    let mut node = Node::new();
    node.scrape();
    node.machine.write("run/jobledger/jobs/9", "job_id=9\nuid=1001\naccount=physics\n");
    node.make_job("job_9", "0", None);
    node.machine.remove(format!("{SCOPE}/job_9"));
    node.spend("", 0, 10_000);
    node.settle();
    let (snapshot, text) = node.scrape();
    let job = only(&snapshot);
    assert_eq!((job.uid, job.metadata.account.as_deref()), (Some(1001), Some("physics")));
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"9\",mode=\"unsplit\"}"), Some(0.01));
}

#[test]
fn a_directory_left_from_before_is_stale_and_no_job_until_it_has_processes() {
    let machine = empty_machine();
    let mut node = Node::over(machine, |options| options.stale_after = Duration::ZERO);
    node.make_scope();
    node.make_job("job_7", "0", None);
    let (snapshot, _) = node.scrape();
    assert_eq!((snapshot.jobs.len(), snapshot.stale.len()), (0, 1));
    assert!(!node.diary.read().iter().any(|entry| entry.starts_with("appeared")), "nobody is there");
    // SLURM uses it again.
    node.machine.write(format!("{SCOPE}/job_7/cgroup.events"), "populated 1\n");
    let snapshot = until("the job is back", || {
        let (snapshot, _) = node.scrape();
        if snapshot.jobs.is_empty() { Err(format!("{:?}", snapshot.stale)) } else { Ok(snapshot) }
    });
    assert_eq!((ids(&snapshot), snapshot.stale.len()), (vec![7], 0));
    assert_eq!(node.diary.read().iter().filter(|entry| entry.starts_with("appeared")).count(), 1);
}

#[test]
fn jobs_that_come_and_go_are_reported_once_and_in_order() {
    let machine = empty_machine();
    let mut node = Node::over(machine, |options| options.stale_after = Duration::ZERO);
    node.make_scope();
    node.make_job("job_7", "0", Some((71, 72)));
    node.table.verify();
    assert_eq!(node.diary.read(), ["appeared 1", "looked"], "it was there before");
    node.make_job("job_8", "0", Some((81, 82)));
    node.settle();
    assert_eq!(node.diary.read(), ["appeared 2"]);
    node.machine.remove(format!("{SCOPE}/job_8"));
    node.settle();
    assert_eq!(node.diary.read(), ["left 2"]);
    // SLURM leaves a directory without any process: the job has ended.
    node.machine.write(format!("{SCOPE}/job_7/cgroup.events"), "populated 0\n");
    sleep(Duration::from_millis(2));
    node.table.verify();
    assert_eq!(node.diary.read(), Vec::<String>::new(), "asked once a minute");
    let mut stale = Node::over(empty_machine(), |options| options.stale_after = Duration::ZERO);
    stale.make_scope();
    stale.table.verify();
    stale.make_job("job_9", "0", None);
    stale.settle();
    stale.table.verify();
    assert_eq!(stale.diary.read(), ["looked", "appeared 1", "left 1"]);
}

#[test]
fn steps_and_tasks_come_and_go_within_a_job() {
    let mut node = Node::new();
    node.make_job("job_7", "batch", None);
    node.settle();
    node.make_job("job_7/step_0", "x", None);
    node.machine
        .mkdir(format!("{SCOPE}/job_7/step_1/user/task_0"))
        .mkdir(format!("{SCOPE}/job_7/step_1/user/task_1"));
    node.settle();
    let steps = |snapshot: &NodeSnapshot| -> Vec<(String, usize, bool)> {
        let job = only(snapshot);
        let mut steps: Vec<_> =
            job.steps.iter().map(|s| (s.id.to_string(), s.tasks.len(), s.ended.is_none())).collect();
        steps.sort();
        steps
    };
    let (snapshot, _) = node.scrape();
    assert_eq!(steps(&snapshot), [("0".into(), 0, true), ("1".into(), 2, true), ("batch".into(), 1, true)]);
    node.machine.remove(format!("{SCOPE}/job_7/step_1"));
    node.settle();
    let (snapshot, _) = node.scrape();
    assert_eq!(steps(&snapshot)[1], ("1".into(), 2, false));
}

#[test]
fn a_v1_job_has_the_hierarchies_that_slurm_begins_to_use_for_it() {
    let machine = Machine::empty();
    machine.write("proc/stat", "cpu 1 1 1 1\nbtime 1700000000\n");
    for hierarchy in ["freezer", "cpuacct"] {
        machine.write(format!("cgroup/{hierarchy}/cgroup.procs"), "");
    }
    let group = |hierarchy: &str, below: &str| {
        machine.write(format!("cgroup/{hierarchy}/slurm/{below}cgroup.procs"), "50\n");
    };
    group("freezer", "");
    let at = |dir: &str| machine.path(dir);
    let roots = Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")));
    let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
    let mut table = Table::new(roots, options(&machine), users, Vec::new());
    table.verify();
    group("freezer", "uid_1001/job_7/");
    table.process_events();
    let first = only(&table.snapshot());
    assert_eq!(first.cgroup.dirs().count(), 1);
    // The first job of the boot: SLURM makes its root in the other hierarchy only now.
    group("cpuacct", "");
    group("cpuacct", "uid_1001/job_7/");
    table.process_events();
    let snapshot = table.snapshot();
    let job = only(&snapshot);
    assert_eq!((job.run, job.uid, job.cgroup.dirs().count()), (first.run, Some(1001), 2));
    assert_eq!(snapshot.scopes.len(), 1);
    // A step that ends removes the job's directory in one hierarchy, and the next step makes it again.
    machine.remove("cgroup/cpuacct/slurm/uid_1001/job_7");
    table.process_events();
    group("cpuacct", "uid_1001/job_7/");
    table.process_events();
    let job = only(&table.snapshot());
    assert_eq!((job.run, job.is_running()), (first.run, true));
    assert!(job.cgroup.dirs().all(|dir| dir.has("cgroup.procs")), "the one that is there is read");
    // Its steps end at once, and SLURM leaves the directory in one hierarchy.
    for hierarchy in ["freezer", "cpuacct"] {
        machine.write(format!("cgroup/{hierarchy}/slurm/uid_1001/job_7/cgroup.procs"), "");
    }
    machine.remove("cgroup/cpuacct/slurm/uid_1001/job_7");
    table.process_events();
    assert_eq!(table.running(), 1, "between two steps there may be no process for a moment");
    let due = table.due().expect("it is looked at again");
    sleep(due.saturating_duration_since(Instant::now()));
    table.run_due();
    let snapshot = table.snapshot();
    assert!(!only(&snapshot).is_running());
    assert_eq!((table.running(), snapshot.table.running), (0, 0));
    machine.remove("cgroup/freezer/slurm/uid_1001/job_7");
    table.process_events();
    assert_eq!((only(&table.snapshot()).run, table.running()), (first.run, 0), "no second run");
    // Another one, whose last process leaves after SLURM began to remove its directories: no event reports that.
    for hierarchy in ["freezer", "cpuacct"] {
        group(hierarchy, "uid_1001/job_8/");
    }
    table.process_events();
    machine.remove("cgroup/cpuacct/slurm/uid_1001/job_8");
    table.process_events();
    assert_eq!(table.running(), 1);
    machine.write("cgroup/freezer/slurm/uid_1001/job_8/cgroup.procs", "");
    while table.running() > 0 {
        let due = table.due().expect("it is looked at again");
        sleep(due.saturating_duration_since(Instant::now()));
        table.run_due();
    }
    assert_eq!(table.due(), None);
}

/// slurmstepd makes its directories, writes the CPUs later, and then starts the first task; without ConstrainCores it writes none.
#[test]
fn a_jobs_cpus_are_exported_when_it_is_bound_or_works_unbound_and_never_before() {
    let mut node = Node::over(empty_machine(), |options| options.levels = Levels::default());
    node.make_scope();
    node.scrape();
    let cpus = |node: &mut Node| {
        node.settle();
        let (_, text) = node.scrape_cpus();
        [7, 8].map(|id| value(&text, &format!("jobledger_job_cpus{{jobid=\"{id}\"}}")))
    };
    for id in [7, 8] {
        node.make_unbound(id);
    }
    assert_eq!(cpus(&mut node), [None, None]);
    node.bind(7, "4-5\n");
    assert_eq!(cpus(&mut node), [Some(2.0), None]);
    node.machine.mkdir(format!("{SCOPE}/job_8/step_batch/user/task_special"));
    assert_eq!(cpus(&mut node), [Some(2.0), None]);
    node.machine.mkdir(format!("{SCOPE}/job_8/step_batch/user/task_0"));
    assert_eq!(cpus(&mut node), [Some(2.0), Some(64.0)]);
}

/// Shorter than the time between two scrapes: the reading at the end of its step has its usage. Requeued, it starts
/// again.
#[test]
fn a_job_that_came_and_went_between_two_scrapes_had_its_cpus_for_its_run() {
    const HAD: &str = "jobledger_job_allocated_cpu_seconds_total{jobid=\"7\"}";
    let mut node = Node::new();
    node.scrape_cpus();
    for cpus in ["4-5\n", "0-2\n"] {
        node.make_unbound(7);
        node.settle();
        node.bind(7, cpus);
        node.machine.mkdir(format!("{SCOPE}/job_7/step_batch/user/task_0"));
        node.settle();
        sleep(Duration::from_millis(20));
        node.machine.write(format!("{SCOPE}/job_7/step_batch/user/cgroup.events"), "populated 0\n");
        node.settle();
        node.machine.remove(format!("{SCOPE}/job_7"));
        node.settle();
    }
    for number in [2.0, 3.0] {
        let (snapshot, text) = node.scrape_cpus();
        let job = only(&snapshot);
        let run = job.ended.unwrap().boottime.since(job.started.boottime).as_secs_f64();
        let had = value(&text, HAD).unwrap_or_else(|| panic!("{text}"));
        assert!(run >= 0.02 && (had - number * run).abs() < 1e-5, "{had} in {run}");
    }
    // One that nobody bound and that no task ran in: what it had is not guessed at.
    node.make_unbound(7);
    node.settle();
    node.machine.write(format!("{SCOPE}/job_7/step_batch/user/cgroup.events"), "populated 0\n");
    node.settle();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    let (snapshot, text) = node.scrape_cpus();
    assert_eq!((ids(&snapshot), value(&text, HAD)), (vec![7], None));
}

/// v1 with the freezer and the cpuset alone: no directory shows a task, and the hierarchies go one after the other.
#[test]
fn on_v1_a_job_that_came_and_went_had_the_cpus_that_were_written_for_it() {
    const HAD: &str = "jobledger_job_allocated_cpu_seconds_total{jobid=\"7\"}";
    let machine = Machine::empty();
    machine.write("proc/stat", "cpu 1 1 1 1\nbtime 1700000000\n");
    let job = "slurm/uid_1001/job_7";
    let group = |machine: &Machine, path: &str| {
        machine.write(format!("cgroup/{path}/cgroup.procs"), "").write(format!("cgroup/{path}/tasks"), "");
    };
    for hierarchy in ["cpuset", "freezer"] {
        group(&machine, hierarchy);
        group(&machine, &format!("{hierarchy}/slurm"));
    }
    let mut node = Node::over(machine, |_| {});
    node.table.verify();
    let places = |cpus: &str| [("cpuset.cpus", cpus.to_owned()), ("cpuset.effective_cpus", cpus.to_owned())];
    // Written while it is followed, before anybody looked, and never.
    for (early, late) in [("\n", "0-2\n"), ("4-5\n", "4-5\n"), ("\n", "\n")] {
        group(&node.machine, &format!("freezer/{job}"));
        group(&node.machine, &format!("freezer/{job}/step_0"));
        node.settle();
        group(&node.machine, &format!("cpuset/{job}"));
        group(&node.machine, &format!("cpuset/{job}/step_0"));
        for (file, cpus) in places(early) {
            node.machine.write(format!("cgroup/cpuset/{job}/{file}"), cpus);
        }
        node.settle();
        if late != early {
            // The file that is watched comes last.
            for (file, cpus) in places(late).into_iter().rev() {
                node.machine.write(format!("cgroup/cpuset/{job}/{file}"), cpus);
            }
            node.settle();
        }
        sleep(Duration::from_millis(20));
        for hierarchy in ["cpuset", "freezer"] {
            node.machine.remove(format!("cgroup/{hierarchy}/slurm/uid_1001"));
        }
        node.settle();
    }
    for number in [Some(3.0), Some(2.0), None] {
        let (snapshot, text) = node.scrape_cpus();
        let job = only(&snapshot);
        let run = job.ended.unwrap().boottime.since(job.started.boottime).as_secs_f64();
        let had = value(&text, HAD);
        assert!(run >= 0.02 && had.is_some() == number.is_some(), "{had:?} in {run}");
        if let (Some(had), Some(number)) = (had, number) {
            assert!((had - number * run).abs() < 1e-5, "{had} in {run}");
        }
    }
}
