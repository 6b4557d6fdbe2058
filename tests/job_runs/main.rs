//! Runs of jobs, as the table follows them: on ordinary files laid out as SLURM's cgroups, with the kernel's real
//! events.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests lay out files, wait, and fail by panicking"
)]

mod coming_and_going;
mod identity;
mod spending;

use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use exposition::{Section, encode_openmetrics};
use jobledger_exporter::collector::{BuildContext, Built, REGISTRY};
use jobledger_testkit::machine::Machine;
use jobledger_testkit::wait::until;
use kernel_files::Roots;
use slurm_jobs::table::{JobLabel, MOST_RETAINED, Table, TableOptions};
use slurm_jobs::{Job, JobObserver, JobRunId, Levels, NodeSnapshot, Reader, Users};

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

impl JobObserver for Diary {
    fn initial_scan_done(&self) {
        self.note("looked".to_owned());
    }

    fn job_started(&self, job: &Job) {
        self.note(format!("appeared {}", job.run.0));
    }

    fn job_left_node(&self, run: JobRunId) {
        self.note(format!("left {}", run.0));
    }
}

/// A node whose SLURM has no job yet, and a table and collectors of CPU time and CPUs that watch it.
struct Node {
    machine: Machine,
    table: Table,
    cpu: Built,
    cpuset: Built,
    diary: Arc<Diary>,
}

fn options(machine: &Machine) -> TableOptions {
    TableOptions {
        retention: Duration::ZERO,
        retention_max: Duration::from_secs(3600),
        readers: 1,
        most_retained: MOST_RETAINED,
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
        let built = |name: &str| -> Built {
            let entry = REGISTRY.iter().find(|entry| entry.name == name).unwrap();
            (entry.build)(&context)
        };
        let (cpu, cpuset) = (built("cpu"), built("cpuset"));
        let mut options = options(&machine);
        change(&mut options);
        let diary = Arc::new(Diary::default());
        let hooks = vec![cpu.observer.clone().unwrap(), cpuset.observer.clone().unwrap(), diary.clone()];
        let table = Table::new(roots, options, users, hooks);
        Self { machine, table, cpu, cpuset, diary }
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

    /// Lays out a job with a batch step that SLURM has not bound to CPUs yet.
    fn make_unbound(&self, id: u32) {
        let job = format!("{SCOPE}/job_{id}");
        self.machine.write(format!("{job}/cgroup.controllers"), "cpuset cpu memory\n");
        for dir in [job.clone(), format!("{job}/step_batch/slurm"), format!("{job}/step_batch/user")] {
            self.machine.write(format!("{dir}/cgroup.procs"), "").write(format!("{dir}/cpuset.cpus"), "\n");
            self.machine.write(format!("{dir}/cpuset.cpus.effective"), "0-63\n");
            self.machine.write(format!("{dir}/cgroup.events"), "populated 1\n");
        }
    }

    /// SLURM binds a job.
    fn bind(&self, id: u32, cpus: &str) {
        for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
            self.machine.write(format!("{SCOPE}/job_{id}/{file}"), cpus);
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
        self.table.run_due();
    }

    fn scrape(&mut self) -> (NodeSnapshot, String) {
        let snapshot = self.table.snapshot();
        let text = exported_by(&mut self.cpu, &snapshot);
        self.table.delivered(&Reader::User("prometheus".to_owned()), &snapshot.jobs);
        (snapshot, text)
    }

    /// A scrape of the CPUs alone.
    fn scrape_cpus(&mut self) -> (NodeSnapshot, String) {
        let snapshot = self.table.snapshot();
        let text = exported_by(&mut self.cpuset, &snapshot);
        self.table.delivered(&Reader::User("prometheus".to_owned()), &snapshot.jobs);
        (snapshot, text)
    }
}

fn exported_by(built: &mut Built, snapshot: &NodeSnapshot) -> String {
    let mut section = Section::default();
    built.collector.collect(snapshot, &mut section).unwrap();
    let mut text = String::new();
    encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
    text
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

fn ids(snapshot: &NodeSnapshot) -> Vec<u32> {
    snapshot.jobs.iter().filter_map(|job| Some(job.id?.0)).collect()
}

fn only(snapshot: &NodeSnapshot) -> Arc<Job> {
    assert_eq!(snapshot.jobs.len(), 1, "{:?}", snapshot.jobs);
    snapshot.jobs[0].clone()
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}
