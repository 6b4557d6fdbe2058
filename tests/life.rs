//! Lives of jobs, as the table follows them: on ordinary files laid out as SLURM's cgroups, with the kernel's real
//! events.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests lay out files, wait, and fail by panicking"
)]

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jobledger_exporter::collector::{BuildContext, Built, Levels, LifeHook, REGISTRY, Scene};
use jobledger_exporter::metric::{Section, encode_openmetrics};
use jobledger_exporter::roots::Roots;
use jobledger_exporter::slurm::table::{JobLabel, Table, TableOptions};
use jobledger_exporter::slurm::{Job, LifeId, Users};
use jobledger_testkit::machine::Machine;

const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";

/// Writes down who comes and goes.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, entry: String) {
        self.0.lock().unwrap().push(entry);
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl LifeHook for Diary {
    fn looked(&self) {
        self.note("looked".to_owned());
    }

    fn appeared(&self, job: &Job) {
        self.note(format!("appeared {}", job.life.0));
    }

    fn left(&self, life: LifeId) {
        self.note(format!("left {}", life.0));
    }
}

/// A node whose SLURM has no job yet, and a table and a CPU collector that watch it.
struct Node {
    machine: Machine,
    table: Table,
    cpu: Built,
    diary: Arc<Diary>,
}

fn options(machine: &Machine) -> TableOptions {
    TableOptions {
        retention: Duration::ZERO,
        stale_after: Duration::from_secs(60),
        levels: Levels { steps: true, tasks: true },
        job_labels: Vec::new(),
        jobs_dir: Some(machine.jobs_dir()),
        environment_hints: false,
    }
}

fn empty_machine() -> Machine {
    let machine = Machine::empty();
    machine.write("cgroup/cgroup.controllers", "cpuset cpu io memory pids\n").mkdir("cgroup/system.slice");
    machine.write("cgroup/cgroup.procs", "").write("proc/stat", "cpu 1 1 1 1\nbtime 1700000000\n");
    machine
}

impl Node {
    fn new() -> Self {
        let machine = empty_machine();
        let mut node = Self::over(machine, |_| {});
        node.make_scope();
        node.table.verify();
        node
    }

    fn over(machine: Machine, change: impl FnOnce(&mut TableOptions)) -> Self {
        let at = |dir: &str| machine.path(dir);
        let roots = Arc::new(Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev")));
        let users =
            Arc::new(Users::start(Box::new(|uid| (uid == 1001).then(|| "alice".to_owned()))).unwrap());
        let context = BuildContext::new(roots.clone(), users.clone());
        let entry = REGISTRY.iter().find(|entry| entry.name == "cpu").unwrap();
        let cpu = (entry.build)(&context);
        let mut options = options(&machine);
        change(&mut options);
        let diary = Arc::new(Diary::default());
        let hooks = vec![cpu.life.clone().unwrap(), diary.clone()];
        let table = Table::new(roots, options, users, hooks).unwrap();
        Self { machine, table, cpu, diary }
    }

    fn make_scope(&self) {
        self.machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
        self.machine.mkdir(format!("{SCOPE}/system"));
    }

    /// Lays out a job with one step, as slurmstepd does, and one task if `pid` is given.
    fn make_job(&self, name: &str, step: &str, pids: Option<(u32, u32)>) {
        let job = format!("{SCOPE}/{name}");
        let populated = if pids.is_some() { "populated 1\n" } else { "populated 0\n" };
        let list = |pid: Option<u32>| pid.map(|pid| format!("{pid}\n")).unwrap_or_default();
        for (dir, procs) in [
            (job.clone(), None),
            (format!("{job}/step_{step}"), None),
            (format!("{job}/step_{step}/slurm"), pids.map(|p| p.0)),
            (format!("{job}/step_{step}/user"), None),
            (format!("{job}/step_{step}/user/task_0"), pids.map(|p| p.1)),
        ] {
            self.machine.write(format!("{dir}/cgroup.procs"), list(procs));
            self.machine
                .write(format!("{dir}/cgroup.events"), populated)
                .write(format!("{dir}/cpu.stat"), stat(0));
        }
    }

    fn process(&self, pid: u32, parent: u32, uid: u32, cmdline: &str) {
        let proc = format!("proc/{pid}");
        self.machine.write(format!("{proc}/cmdline"), format!("{cmdline}\0"));
        self.machine.write(
            format!("{proc}/status"),
            format!("Name:\tx\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"),
        );
        self.machine.write(
            format!("{proc}/stat"),
            format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5000 0 0\n"),
        );
    }

    fn spend(&self, name: &str, job: u64, scope: u64) {
        if !name.is_empty() {
            self.machine.write(format!("{SCOPE}/{name}/cpu.stat"), stat(job));
        }
        self.machine.write(format!("{SCOPE}/cpu.stat"), stat(scope));
    }

    /// Lets the table take in what happened.
    fn settle(&mut self) {
        self.table.process_events();
        self.table.attend();
    }

    fn scrape(&mut self) -> (Scene, String) {
        let scene = self.table.scene();
        let mut section = Section::default();
        self.cpu.collector.collect(&scene, &mut section).unwrap();
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        self.table.told(&scene.jobs);
        (scene, text)
    }
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

fn ids(scene: &Scene) -> Vec<u32> {
    scene.jobs.iter().filter_map(|job| Some(job.id?.0)).collect()
}

fn only(scene: &Scene) -> Arc<Job> {
    assert_eq!(scene.jobs.len(), 1, "{:?}", scene.jobs);
    scene.jobs[0].clone()
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn slurmd_may_come_after_the_exporter() {
    let mut node = Node::over(empty_machine(), |_| {});
    let (scene, _) = node.scrape();
    assert!(scene.unavailable.as_ref().unwrap().contains("slurmd"), "{:?}", scene.unavailable);
    node.make_scope();
    node.make_job("job_7", "batch", None);
    // The event of the slice, not the pause between searches, is what finds it.
    node.settle();
    let (scene, _) = node.scrape();
    assert_eq!((ids(&scene), scene.unavailable.is_none()), (vec![7], true));
}

#[test]
fn a_job_that_ends_between_two_scrapes_is_told_with_its_last_reading() {
    let mut node = Node::new();
    node.scrape();
    node.make_job("job_7", "0", Some((50, 51)));
    node.settle();
    node.spend("job_7", 1_500_000, 1_500_000);
    // The last process of the step leaves: the kernel changes the file in place.
    node.machine.write(format!("{SCOPE}/job_7/step_0/user/cgroup.events"), "populated 0\n");
    node.settle();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    let (scene, text) = node.scrape();
    assert!(!only(&scene).is_running());
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}"), Some(1.5));
    assert_eq!(
        value(&text, "jobledger_step_cpu_seconds_total{jobid=\"7\",step=\"0\",mode=\"user\"}"),
        Some(0.0)
    );
    sleep(Duration::from_millis(5));
    let (scene, text) = node.scrape();
    assert_eq!(ids(&scene), Vec::<u32>::new(), "told once and retention over");
    assert_eq!(
        value(&text, "jobledger_node_slurm_cpu_seconds_total"),
        Some(1.5),
        "the node's total remembers it"
    );
}

#[test]
fn what_is_spent_after_the_last_reading_goes_to_the_one_job_that_vanished() {
    let mut node = Node::new();
    node.make_job("job_7", "0", None);
    node.spend("job_7", 1_000_000, 1_000_000);
    node.scrape();
    node.spend("", 0, 1_250_000);
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"unsplit\"}"), Some(0.25));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(1.25));
}

#[test]
fn what_two_vanished_jobs_spent_last_is_nobodys() {
    let mut node = Node::new();
    for name in ["job_7", "job_8"] {
        node.make_job(name, "0", None);
        node.spend(name, 1_000_000, 2_000_000);
    }
    node.scrape();
    node.spend("", 0, 2_500_000);
    node.machine.remove(format!("{SCOPE}/job_7")).remove(format!("{SCOPE}/job_8"));
    node.settle();
    let (_, text) = node.scrape();
    assert!(!text.contains("mode=\"unsplit\""), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.5));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(2.5));
}

#[test]
fn a_requeued_job_is_a_new_life_and_both_are_told() {
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
    assert_ne!(only(&first).life, only(&second).life);
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"7\",mode=\"user\"}"), Some(0.0));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(3.0));
}

#[test]
fn a_job_that_is_gone_before_it_could_be_opened_is_told_by_name() {
    let mut node = Node::new();
    node.scrape();
    node.machine.write("run/jobledger/jobs/9", "job_id=9\nuid=1001\naccount=physics\n");
    node.make_job("job_9", "0", None);
    node.machine.remove(format!("{SCOPE}/job_9"));
    node.spend("", 0, 10_000);
    node.settle();
    let (scene, text) = node.scrape();
    let job = only(&scene);
    assert_eq!((job.uid, job.metadata.account.as_deref()), (Some(1001), Some("physics")));
    assert_eq!(value(&text, "jobledger_job_cpu_seconds_total{jobid=\"9\",mode=\"unsplit\"}"), Some(0.01));
}

#[test]
fn a_sluid_is_resolved_by_the_title_of_roots_slurmstepd_alone() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.make_job("sEKNKTV3WPV500", "batch", Some((50, 51)));
    node.process(50, 1, 1001, "slurmstepd: [666.batch]");
    node.settle();
    let (scene, _) = node.scrape();
    assert_eq!((scene.jobs.len(), scene.pending.len()), (0, 1), "a title that a user wrote is no title");
    node.process(50, 1, me, "slurmstepd: [123.batch]");
    node.process(51, 50, 1001, "/bin/bash script");
    let (scene, _) = node.scrape();
    let job = only(&scene);
    assert_eq!(
        (job.id.unwrap().0, job.uid, job.sluid.unwrap().to_string()),
        (123, Some(1001), "sEKNKTV3WPV500".to_owned())
    );
    assert_eq!(job.labels[0], ("jobid", "123".to_owned()));
}

#[test]
fn a_sluid_that_nobody_resolves_is_in_the_residual_and_is_counted() {
    let mut node = Node::new();
    node.scrape();
    node.make_job("sEKNKTV3WPV500", "batch", None);
    node.spend("sEKNKTV3WPV500", 700_000, 700_000);
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0), "not yet");
    node.machine.remove(format!("{SCOPE}/sEKNKTV3WPV500"));
    node.settle();
    let (scene, text) = node.scrape();
    assert_eq!((scene.jobs.len(), scene.table.lost_total), (0, 1));
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.7));
}

#[test]
fn the_prologs_file_resolves_a_sluid_at_the_last_moment() {
    let mut node = Node::new();
    node.make_job("sEKNKTV3WPV500", "batch", None);
    node.settle();
    node.machine.write("run/jobledger/jobs/55", "job_id=55\nsluid=sEKNKTV3WPV500\nuid=1002\n");
    node.machine.remove(format!("{SCOPE}/sEKNKTV3WPV500"));
    node.settle();
    let (scene, _) = node.scrape();
    assert_eq!((ids(&scene), only(&scene).uid), (vec![55], Some(1002)));
}

#[test]
fn a_task_that_is_still_slurmstepd_is_not_roots() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.make_job("job_7", "0", Some((50, 51)));
    node.process(50, 1, me, "slurmstepd: [7.0]");
    node.process(51, 50, 0, "slurmstepd: [7.0]");
    node.settle();
    assert_eq!(only(&node.scrape().0).uid, None);
    node.process(51, 50, 1001, "./a.out");
    assert_eq!(only(&node.scrape().0).uid, Some(1001));
}

#[test]
fn a_file_left_from_another_users_job_of_this_id_says_nothing() {
    let mut node = Node::new();
    let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
    node.machine.write("run/jobledger/jobs/7", "job_id=7\nuid=1002\naccount=theirs\n");
    node.make_job("job_7", "0", Some((50, 51)));
    node.process(50, 1, me, "slurmstepd: [7.0]");
    node.process(51, 50, 1001, "./a.out");
    let job = only(&node.scrape().0);
    assert_eq!((job.uid, job.metadata.account.as_deref()), (Some(1001), None));
}

#[test]
fn the_environment_gives_names_only_when_allowed_and_never_identity() {
    for allowed in [false, true] {
        let mut node = Node::over(empty_machine(), |options| options.environment_hints = allowed);
        let me = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(node.machine.root()).unwrap());
        node.make_scope();
        node.table.verify();
        node.process(50, 1, me, "slurmstepd: [7.0]");
        node.process(51, 50, 1001, "./a.out");
        node.machine.write("proc/51/environ", "SLURM_JOB_ID=666\0SLURM_JOB_UID=0\0SLURM_JOB_NAME=mine\0");
        node.make_job("job_7", "0", Some((50, 51)));
        let job = only(&node.scrape().0);
        assert_eq!((job.id.unwrap().0, job.uid), (7, Some(1001)));
        assert_eq!(job.metadata.name.as_deref(), allowed.then_some("mine"));
    }
}

#[test]
fn a_directory_left_from_before_is_stale_and_no_job_until_it_lives() {
    let machine = empty_machine();
    let mut node = Node::over(machine, |options| options.stale_after = Duration::ZERO);
    node.make_scope();
    node.make_job("job_7", "0", None);
    let (scene, _) = node.scrape();
    assert_eq!((scene.jobs.len(), scene.stale.len()), (0, 1));
    assert!(!node.diary.read().iter().any(|entry| entry.starts_with("appeared")), "nobody is there");
    // SLURM uses it again.
    node.machine.write(format!("{SCOPE}/job_7/cgroup.events"), "populated 1\n");
    let begun = Instant::now();
    let scene = loop {
        let (scene, _) = node.scrape();
        if !scene.jobs.is_empty() || begun.elapsed() > Duration::from_secs(5) {
            break scene;
        }
    };
    assert_eq!((ids(&scene), scene.stale.len()), (vec![7], 0));
    assert_eq!(node.diary.read().iter().filter(|entry| entry.starts_with("appeared")).count(), 1);
}

#[test]
fn who_comes_and_goes_is_told_once_and_in_order() {
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
fn chosen_labels_are_on_every_series_of_a_job() {
    let mut node =
        Node::over(empty_machine(), |options| options.job_labels = vec![JobLabel::User, JobLabel::Account]);
    node.make_scope();
    node.table.verify();
    node.machine.write("run/jobledger/jobs/7", "job_id=7\nuid=1001\nuser=alice\naccount=physics\n");
    node.make_job("job_7", "0", None);
    let (_, text) = node.scrape();
    let series =
        "jobledger_job_cpu_seconds_total{jobid=\"7\",user=\"alice\",account=\"physics\",mode=\"user\"}";
    assert_eq!(value(&text, series), Some(0.0), "{text}");
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
    let steps = |scene: &Scene| -> Vec<(String, usize, bool)> {
        let job = only(scene);
        let mut steps: Vec<_> =
            job.steps.iter().map(|s| (s.id.to_string(), s.tasks.len(), s.ended.is_none())).collect();
        steps.sort();
        steps
    };
    let (scene, _) = node.scrape();
    assert_eq!(steps(&scene), [("0".into(), 0, true), ("1".into(), 2, true), ("batch".into(), 1, true)]);
    node.machine.remove(format!("{SCOPE}/job_7/step_1"));
    node.settle();
    let (scene, _) = node.scrape();
    assert_eq!(steps(&scene)[1], ("1".into(), 2, false));
}

#[test]
fn a_job_that_appears_between_the_walk_and_the_reading_is_not_taken_for_unexplained_time() {
    let mut node = Node::new();
    node.scrape();
    let scene = node.table.scene();
    // It is not in the scene, but what it spent is in the scope when the collector comes to read it.
    node.make_job("job_7", "0", None);
    node.spend("job_7", 75_000, 75_000);
    let mut section = Section::default();
    node.cpu.collector.collect(&scene, &mut section).unwrap();
    let (_, text) = node.scrape();
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_unattributed_seconds_total"), Some(0.0), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(0.075));
}

#[test]
fn a_job_that_appears_while_another_vanishes_is_not_booked_to_it() {
    let mut node = Node::new();
    node.make_job("job_7", "0", None);
    node.spend("job_7", 1_000_000, 1_000_000);
    node.scrape();
    node.machine.remove(format!("{SCOPE}/job_7"));
    node.settle();
    // Both happen before the table looks again, and the event of the new one is not read yet.
    node.make_job("job_8", "0", None);
    node.spend("job_8", 400_000, 1_400_000);
    let (_, text) = node.scrape();
    assert!(!text.contains("mode=\"unsplit\""), "{text}");
    assert_eq!(value(&text, "jobledger_node_slurm_cpu_seconds_total"), Some(1.4));
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
    let mut table = Table::new(roots, options(&machine), users, Vec::new()).unwrap();
    table.verify();
    group("freezer", "uid_1001/job_7/");
    table.process_events();
    let first = only(&table.scene());
    assert_eq!(first.cgroup.dirs().count(), 1);
    // The first job of the boot: SLURM makes its root in the other hierarchy only now.
    group("cpuacct", "");
    group("cpuacct", "uid_1001/job_7/");
    table.process_events();
    let scene = table.scene();
    let job = only(&scene);
    assert_eq!((job.life, job.uid, job.cgroup.dirs().count()), (first.life, Some(1001), 2));
    assert_eq!(scene.scopes.len(), 1);
    // A step that ends removes the job's directory in one hierarchy, and the next step makes it again.
    machine.remove("cgroup/cpuacct/slurm/uid_1001/job_7");
    table.process_events();
    group("cpuacct", "uid_1001/job_7/");
    table.process_events();
    let job = only(&table.scene());
    assert_eq!((job.life, job.is_running()), (first.life, true));
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
    table.attend();
    let scene = table.scene();
    assert!(!only(&scene).is_running());
    assert_eq!((table.running(), scene.table.running), (0, 0));
    machine.remove("cgroup/freezer/slurm/uid_1001/job_7");
    table.process_events();
    assert_eq!((only(&table.scene()).life, table.running()), (first.life, 0), "no second life");
    // Another one, whose last process leaves after SLURM began to remove its directories, which no event tells.
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
        table.attend();
    }
    assert_eq!(table.due(), None);
}
