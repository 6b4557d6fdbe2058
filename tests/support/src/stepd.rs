//! A stand-in for slurmstepd: one process per step that makes the step's groups, runs its tasks as the job's user and
//! cleans up in the order of the real one, at native speed on real control groups.
//!
//! Order at the end (SLURM's `cgroup_v2.c`, `cgroup_v1.c`): the daemon moves itself out (v2: to `<scope>/system`, v1: to the
//! root), then removes leaf, step and, if it was the last step, job. On v1 it does so for one hierarchy after the other: first
//! those of jobacct_gather, then those of task/cgroup, and freezer last (`slurmstepd.c`, `proctrack_g_destroy`).

use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;
use std::{fs, io};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::wait::wait;

use crate::cgroups::{Site, attach, enable_controllers, make_group, make_groups};
use crate::tools::tool;

const SPEC: &str = "JOBLEDGER_FAKE_STEPD";
const TASK: &str = "JOBLEDGER_FAKE_TASK";

/// What a step does.
#[derive(Debug, Clone)]
pub struct Step {
    /// Name of the job's directory: `job_123` or a SLUID.
    pub job_dir: String,
    /// The numeric id, as in the process title.
    pub job_id: u32,
    /// `0`, `batch`, `extern`, …: as in `step_<S>` and in the process title.
    pub step: String,
    /// Who runs the tasks.
    pub uid: u32,
    /// How many tasks run the program at the same time.
    pub tasks: u32,
    /// How long the groups remain after the last task; the real one needs 133 to 407 ms.
    pub linger: Duration,
    /// Where the record is written, one file per step.
    pub records: PathBuf,
    /// Program and arguments of every task.
    pub program: Vec<String>,
}

impl Step {
    /// A step `0` with one task, run as user 1001.
    #[must_use]
    pub fn new(job_id: u32, records: &Path, program: &[&str]) -> Self {
        Self {
            job_dir: format!("job_{job_id}"),
            job_id,
            step: "0".to_owned(),
            uid: 1001,
            tasks: 1,
            linger: Duration::from_millis(150),
            records: records.to_path_buf(),
            program: program.iter().map(|&s| s.to_owned()).collect(),
        }
    }

    /// Starts it. The process is titled `slurmstepd: [<job>.<step>]` and dies with the thread that started it.
    ///
    /// # Panics
    /// If the helper program cannot be started.
    #[must_use]
    pub fn start(&self, site: &Site) -> RunningStep {
        let mut command = Command::new(tool("fake-slurmstepd"));
        command.arg0(format!("slurmstepd: [{}.{}]", self.job_id, self.step)).env(SPEC, self.encode(site));
        let child = command.spawn().unwrap_or_else(|e| panic!("fake-slurmstepd: {e}"));
        RunningStep { child, record: self.record_path() }
    }

    fn record_path(&self) -> PathBuf {
        self.records.join(format!("{}.{}", self.job_id, self.step))
    }

    fn encode(&self, site: &Site) -> String {
        let mut out = format!(
            "{}\n{}\n{}\n{}\n{}\n{}\n",
            self.job_dir,
            self.step,
            self.uid,
            self.tasks,
            self.linger.as_micros(),
            self.record_path().display()
        );
        match site {
            Site::V2 { scope, .. } => {
                let _ = writeln!(out, "v2={}", scope.display());
            }
            Site::V1 { roots, .. } => {
                for (controller, root) in roots {
                    let _ = writeln!(out, "{controller}={}", root.display());
                }
            }
        }
        out.push('\n');
        out.push_str(&self.program.join("\u{1f}"));
        out
    }
}

/// A started step.
#[derive(Debug)]
pub struct RunningStep {
    child: Child,
    record: PathBuf,
}

impl RunningStep {
    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the step and returns what it recorded.
    ///
    /// # Panics
    /// If the step failed.
    #[must_use]
    pub fn finish(mut self) -> Record {
        let status = self.child.wait().expect("wait");
        assert!(status.success(), "fake-slurmstepd: {status}");
        let text =
            fs::read_to_string(&self.record).unwrap_or_else(|e| panic!("{}: {e}", self.record.display()));
        Record::parse(&text).unwrap_or_else(|| panic!("record: {text:?}"))
    }
}

impl Drop for RunningStep {
    fn drop(&mut self) {
        // Its groups and tasks go with the site.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a step spent, by two measures that do not know of each other. Times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// The tasks and all they waited for, by getrusage.
    pub tasks_usec: u64,
    /// The daemon itself while it is in the job's group, by getrusage. What it spends before and after is no job's.
    pub daemon_usec: u64,
    /// What the job's group had counted when the daemon was about to remove it; `None` if other steps still ran.
    pub job_usec: Option<u64>,
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (tasks, daemon, job) = (words.next()?, words.next()?, words.next()?);
        Some(Self {
            tasks_usec: tasks.parse().ok()?,
            daemon_usec: daemon.parse().ok()?,
            job_usec: if job == "-" { None } else { Some(job.parse().ok()?) },
        })
    }
}

// === The helper program ===

/// `main` of `fake-slurmstepd`.
///
/// # Panics
/// On whatever goes wrong: the test sees the exit status.
#[must_use]
pub fn main() -> ExitCode {
    if let Ok(task) = std::env::var(TASK) {
        panic!("{}", run_task(&task));
    }
    let spec = std::env::var(SPEC).expect("started by a test");
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("prctl");
    // comm is that of the real daemon, whatever this program is called.
    rustix::thread::set_name(c"slurmstepd").expect("prctl");
    // Tasks that lose their parent are waited for here, so that their usage is on record.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("prctl");
    run_step(&spec);
    ExitCode::SUCCESS
}

/// The groups of one step in one hierarchy.
struct Place {
    /// Where the daemon goes at the end.
    exile: PathBuf,
    job: PathBuf,
    daemon: PathBuf,
    tasks: Vec<PathBuf>,
    /// In the order of removal, without the job.
    own: Vec<PathBuf>,
    accounts: bool,
    above: Vec<PathBuf>,
    /// When it is removed, the least first.
    removed: u8,
}

#[allow(clippy::zombie_processes, reason = "every child is waited for at once, adopted ones too")]
fn run_step(spec: &str) {
    let (head, program) = spec.split_once("\n\n").expect("spec");
    let mut lines = head.lines();
    let mut next = || lines.next().expect("spec line");
    let (job_dir, step, uid) = (next(), next(), next());
    let tasks: usize = next().parse().expect("tasks");
    let linger = Duration::from_micros(next().parse().expect("linger"));
    let record = PathBuf::from(next());
    let mut places: Vec<Place> = lines
        .map(|line| match line.split_once('=').expect("place") {
            ("v2", scope) => lay_out_v2(Path::new(scope), job_dir, step, tasks),
            (controller, root) => lay_out_v1(controller, Path::new(root), job_dir, step, tasks, uid),
        })
        .collect();
    places.sort_by_key(|place| place.removed);
    let me = std::process::id();
    let usage = |who| usec(&getrusage(who).expect("getrusage"));
    let mut entered = 0;
    for place in &places {
        attach(&place.daemon, me).unwrap_or_else(|e| panic!("{}: {e}", place.daemon.display()));
        if place.accounts {
            entered = usage(UsageWho::RUSAGE_SELF);
        }
    }
    for task in 0..tasks {
        let groups: Vec<String> =
            places.iter().filter_map(|p| p.tasks.get(task)).map(|p| p.display().to_string()).collect();
        let mut command = Command::new("/proc/self/exe");
        command.env_remove(SPEC).env(TASK, format!("{uid}\n{program}\n{}", groups.join("\n")));
        command.spawn().expect("task");
    }
    // Everybody, adopted orphans too.
    while wait().is_ok() {}
    std::thread::sleep(linger);
    let (mut job_usec, mut daemon) = (None, 0);
    for place in &places {
        attach(&place.exile, me).unwrap_or_else(|e| panic!("{}: {e}", place.exile.display()));
        if place.accounts {
            daemon = usage(UsageWho::RUSAGE_SELF) - entered;
        }
        for dir in &place.own {
            remove(dir);
        }
        let counted = place.accounts.then(|| job_usage(&place.job)).flatten();
        if fs::remove_dir(&place.job).is_ok() {
            job_usec = counted.or(job_usec);
            for dir in &place.above {
                let _ = fs::remove_dir(dir);
            }
        }
    }
    let job = job_usec.map_or_else(|| "-".to_owned(), |u| u.to_string());
    let text = format!("{} {daemon} {job}\n", usage(UsageWho::RUSAGE_CHILDREN));
    fs::write(&record, text).unwrap_or_else(|e| panic!("{}: {e}", record.display()));
}

fn usec(usage: &Usage) -> u64 {
    let (user, system) = (usage.user_time(), usage.system_time());
    let sum = (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec();
    u64::try_from(sum).unwrap_or_default()
}

fn lay_out_v2(scope: &Path, job_dir: &str, step: &str, tasks: usize) -> Place {
    let job = scope.join(job_dir);
    let step = job.join(format!("step_{step}"));
    let (daemon, user) = (step.join("slurm"), step.join("user"));
    let leaves: Vec<PathBuf> = (0..tasks).map(|t| user.join(format!("task_{t}"))).collect();
    make_groups(&[&job, &step, &user]);
    for dir in [&job, &step, &user] {
        enable_controllers(dir);
    }
    for dir in leaves.iter().chain([&daemon]) {
        make_group(dir);
    }
    let own = leaves.iter().cloned().chain([user, daemon.clone(), step]).collect();
    Place {
        exile: scope.join("system"),
        job,
        daemon,
        tasks: leaves,
        own,
        accounts: true,
        above: Vec::new(),
        removed: 0,
    }
}

fn lay_out_v1(controller: &str, root: &Path, job_dir: &str, step: &str, tasks: usize, uid: &str) -> Place {
    let user = root.join(format!("uid_{uid}"));
    let job = user.join(job_dir);
    let step = job.join(format!("step_{step}"));
    make_groups(&[&user, &job, &step]);
    let owner = uid.parse().ok();
    let _ = std::os::unix::fs::chown(&step, owner, owner);
    let flat = matches!(controller, "freezer" | "cpuset");
    let leaves: Vec<PathBuf> =
        (0..tasks).map(|t| if flat { step.clone() } else { step.join(format!("task_{t}")) }).collect();
    for dir in &leaves {
        make_group(dir);
    }
    let daemon = if controller == "freezer" { job.clone() } else { step.clone() };
    let own = leaves.iter().filter(|_| !flat).cloned().chain([step]).collect();
    let exile = root.parent().unwrap_or(root).to_path_buf();
    let removed = match controller {
        "cpuacct" | "cpu" | "memory" => 0,
        "freezer" => 2,
        _ => 1,
    };
    let accounts = controller == "cpuacct";
    Place { exile, job, daemon, tasks: leaves, own, accounts, above: vec![user], removed }
}

/// What the job's group counted, its removed steps included.
fn job_usage(job: &Path) -> Option<u64> {
    if let Ok(text) = fs::read_to_string(job.join("cpu.stat")).map(|t| format!("\n{t}"))
        && let Some((_, rest)) = text.split_once("\nusage_usec ")
    {
        return rest.lines().next()?.parse().ok();
    }
    let nanoseconds: u64 = fs::read_to_string(job.join("cpuacct.usage")).ok()?.trim().parse().ok()?;
    Some(nanoseconds / 1000)
}

/// A process that was waited for leaves its group a moment later.
fn remove(group: &Path) {
    for _ in 0..1000 {
        match fs::remove_dir(group) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(1)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => panic!("{}: {e}", group.display()),
            _ => return,
        }
    }
    panic!("{} remains busy", group.display());
}

/// Becomes a task: enters its groups as root, then runs the program as the user.
fn run_task(spec: &str) -> io::Error {
    let mut lines = spec.lines();
    let uid = lines.next().and_then(|u| u.parse().ok()).expect("uid");
    let program: Vec<&str> = lines.next().expect("program").split('\u{1f}').collect();
    for group in lines {
        attach(Path::new(group), std::process::id()).unwrap_or_else(|e| panic!("{group}: {e}"));
    }
    let (name, arguments) = program.split_first().expect("program");
    Command::new(name).args(arguments).env_remove(TASK).uid(uid).gid(uid).exec()
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;
    use crate::cgroups::{pids, skip_without_groups, v1_mount};
    use crate::eventually;
    use crate::scratch::Scratch;

    fn burn(cpu_ms: u32) -> Vec<String> {
        vec![tool("burn").display().to_string(), format!("--cpu-ms={cpu_ms}")]
    }

    #[test]
    fn a_step_looks_like_one_of_slurm_and_leaves_nothing() {
        if skip_without_groups() {
            return;
        }
        let (site, records) = (Site::v2("node1_slurmstepd.scope").unwrap(), Scratch::new("records"));
        let mut step = Step::new(123, records.path(), &[]);
        step.program = burn(150);
        step.tasks = 2;
        let running = step.start(&site);
        let job = site.job_dir("job_123", 1001);
        let leaf = job.join("step_0/user/task_1");
        eventually("a task", || pids(&leaf).len() == 1);
        // A task is the daemon's child in the daemon's group until it entered its own.
        eventually("the daemon alone", || pids(&job.join("step_0/slurm")) == [running.pid()]);
        let daemon = format!("/proc/{}", running.pid());
        assert_eq!(fs::read_to_string(format!("{daemon}/cmdline")).unwrap(), "slurmstepd: [123.0]\0");
        assert_eq!(fs::read_to_string(format!("{daemon}/comm")).unwrap(), "slurmstepd\n");
        let task = pids(&leaf)[0];
        eventually("the user's program", || {
            let status = fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default();
            status.contains("Name:\tburn\n") && status.contains("Uid:\t1001\t1001\t1001\t1001\n")
        });
        let record = running.finish();
        assert!(!job.exists());
        assert!((300_000..900_000).contains(&record.tasks_usec), "{record:?}");
        let job_usec = record.job_usec.unwrap();
        // The group misses only what the daemon did before it entered and after it left.
        assert!(job_usec <= record.tasks_usec + record.daemon_usec + 20_000, "{record:?}");
        assert!(job_usec + 20_000 >= record.tasks_usec, "{record:?}");
    }

    #[test]
    fn the_last_of_several_steps_removes_the_job() {
        if skip_without_groups() {
            return;
        }
        let (site, records) = (Site::v2("slurmstepd.scope").unwrap(), Scratch::new("records"));
        let mut long = Step::new(7, records.path(), &["sleep", "10000"]);
        long.step = "batch".to_owned();
        let long = long.start(&site);
        let batch = site.job_dir("job_7", 1001).join("step_batch/user/task_0");
        eventually("the first step", || !pids(&batch).is_empty());
        let mut short = Step::new(7, records.path(), &[]);
        short.program = burn(50);
        let short = short.start(&site).finish();
        assert_eq!(short.job_usec, None);
        assert!(site.job_dir("job_7", 1001).exists());
        // It runs until the short one is over, however long that takes.
        for pid in pids(&batch) {
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
        }
        let long = long.finish();
        assert!(long.job_usec.unwrap() >= short.tasks_usec * 9 / 10, "{short:?} {long:?}");
        assert!(!site.job_dir("job_7", 1001).exists());
    }

    #[test]
    fn many_short_jobs_at_once_are_all_on_record() {
        if skip_without_groups() {
            return;
        }
        let (site, records) = (Site::v2("slurmstepd.scope").unwrap(), Scratch::new("records"));
        let jobs: Vec<_> = (1..=40)
            .map(|id| {
                let mut step = Step::new(id, records.path(), &[]);
                step.program = burn(5 + id % 7 * 5);
                step.linger = Duration::from_millis(20);
                (id, step.start(&site))
            })
            .collect();
        for (id, job) in jobs {
            let (record, job_usec) = (job.finish(), u64::from(5 + id % 7 * 5) * 1000);
            assert!(record.tasks_usec >= job_usec, "{id} {record:?}");
            // The two clocks differ by what the daemon spends outside the group and a tick here and there.
            let by_rusage = record.tasks_usec + record.daemon_usec;
            assert!(record.job_usec.unwrap().abs_diff(by_rusage) < 30_000, "{id} {record:?}");
        }
    }

    #[test]
    fn v1_hierarchies_are_laid_out_and_removed() {
        if skip_without_groups() {
            return;
        }
        if v1_mount("freezer").is_none() {
            crate::skip("v1", "no cgroup v1 freezer is mounted");
            return;
        }
        let (site, records) = (Site::v1().unwrap(), Scratch::new("records"));
        let mut step = Step::new(9, records.path(), &[]);
        step.program = burn(100);
        let running = step.start(&site);
        let freezer = site.cgroupfs().join("freezer/slurm/uid_1001/job_9");
        eventually("a task", || pids(&freezer.join("step_0")).len() == 1);
        assert_eq!(pids(&freezer), [running.pid()]);
        let record = running.finish();
        assert!(record.job_usec.is_none_or(|u| u >= 100_000), "{record:?}");
        assert!(!freezer.exists());
        assert!(!site.cgroupfs().join("freezer/slurm/uid_1001").exists());
    }
}
