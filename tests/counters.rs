//! Counters of jobs with the kernel's own events: real control groups, real processes, and every switch and fault known from
//! the processes themselves. No hardware PMU is needed: what differs with one is which events are in the plan.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use jobledger_testkit::cgroups::{Site, accounting_v1, make_group, skip_without_groups};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::Step;
use jobledger_testkit::wait::QUIET;
use jobledger_testkit::{eventually, http, kernel_types};

fn flags(site: &Site, more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.metadata-dir=/nonexistent".to_owned(),
        "--jobs.retention=1h".to_owned(),
        "--collector.perf".to_owned(),
        // RAPL's are perf events, too.
        "--no-collector.energy".to_owned(),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    flags
}

fn start(site: &Site, more: &[&str]) -> Exporter {
    Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags(site, more))
}

fn scrape(exporter: &Exporter) -> Exposition {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &header, QUIET).unwrap();
    assert_eq!(answer.status, 200);
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

fn success(now: &Exposition) -> Option<f64> {
    now.value("jobledger_exporter_collector_success", &[("collector", "perf")])
}

fn of(now: &Exposition, id: u32, name: &str, more: &[(&str, &str)]) -> Option<f64> {
    let id = id.to_string();
    let labels: Vec<_> = std::iter::once(("jobid", id.as_str())).chain(more.iter().copied()).collect();
    now.value(&format!("jobledger_job_{name}"), &labels)
}

/// Descriptors of perf events that a process holds.
fn events_of(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    links
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:[perf_event]"))
        .count()
}

/// A process in a job that runs the commands it reads, line by line, and then prints what the kernel counted.
struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Reads orders: `rest N` (N switches), `fault N` (N pages touched), `burn SECONDS`, `fork N`, `quit`. Answers with the voluntary and
/// involuntary switches, the minor faults and the CPU seconds of itself and of its children until now.
const WORKER: &str = r"
import mmap, os, resource, sys, time
for line in sys.stdin:
    order, *words = line.split()
    if order == 'rest':
        for _ in range(int(words[0])):
            time.sleep(0.0001)
    elif order == 'fault':
        size = int(words[0]) * mmap.PAGESIZE
        area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(area, 'madvise'):
            area.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(0, size, mmap.PAGESIZE):
            area[page] = 1
        area.close()
    elif order == 'burn':
        end = time.process_time() + float(words[0])
        while time.process_time() < end:
            pass
    elif order == 'fork':
        for _ in range(int(words[0])):
            if os.fork() == 0:
                os._exit(0)
            os.wait()
    elif order == 'quit':
        break
    switches, faults, seconds = 0, 0, 0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        switches += used.ru_nvcsw + used.ru_nivcsw
        faults += used.ru_minflt
        seconds += used.ru_utime + used.ru_stime
    print(switches, faults, seconds, flush=True)
";

impl Worker {
    fn start(groups: &[PathBuf]) -> Self {
        let enter = |group: &PathBuf| format!("echo 0 > {}/cgroup.procs; ", group.display());
        let script = format!(r#"{}exec "$@""#, groups.iter().map(enter).collect::<String>());
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, "sh", "python3", "-c", WORKER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, answers: BufReader::new(answers) }
    }

    /// Switches, faults and CPU seconds so far.
    fn act(&mut self, order: &str) -> [f64; 3] {
        writeln!(self.orders, "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let numbers: Vec<f64> = answer.split_whitespace().map(|word| word.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    fn quit(mut self) {
        writeln!(self.orders, "quit").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job's groups, with a worker in its task.
fn job(site: &Site, id: u32) -> (Vec<PathBuf>, Worker) {
    let dirs: Vec<PathBuf> = site.job_dirs(&format!("job_{id}"), 0).into_iter().map(|(_, dir)| dir).collect();
    let tasks: Vec<PathBuf> = dirs.iter().map(|dir| dir.join(task_of(site))).collect();
    for task in &tasks {
        // On v1 the user's directory, too.
        for group in task.ancestors().take(4).collect::<Vec<_>>().into_iter().rev() {
            make_group(group);
        }
    }
    let worker = Worker::start(&tasks);
    (dirs, worker)
}

fn task_of(site: &Site) -> &'static Path {
    match site {
        Site::V2 { .. } => Path::new("step_0/user/task_0"),
        Site::V1 { .. } => Path::new("step_0/task_0"),
    }
}

fn remove(site: &Site, dirs: &[PathBuf]) {
    for dir in dirs {
        task_of(site).ancestors().for_each(|below| fs::remove_dir(dir.join(below)).unwrap());
    }
}

fn is_close(exported: f64, known: f64, slack: f64) -> bool {
    (exported - known).abs() <= slack
}

#[test]
fn what_jobs_do_at_once_is_counted_as_the_kernel_counts_it_of_their_processes() {
    if skip_without_groups() {
        return;
    }
    // CAP_PERFMON alone.
    counts_what_jobs_do(&Site::v2("slurmstepd.scope").unwrap(), "cgroup", 1 << 38);
}

/// The same with counters of CPUs that a program divides. CAP_BPF is kept, too.
#[test]
fn what_jobs_do_at_once_is_counted_by_divided_counters_as_well() {
    if skip_without_groups() || kernel_types().is_none() {
        return;
    }
    counts_what_jobs_do(&Site::v2("slurmstepd.scope").unwrap(), "bpf", 1 << 38 | 1 << 39);
}

/// And on v1, where jobs that share all CPUs are counted in no other way.
#[test]
fn what_jobs_of_v1_do_is_counted_by_divided_counters() {
    if let (Some(site), Some(_)) = (accounting_v1(), kernel_types()) {
        counts_what_jobs_do(&site, "bpf", 1 << 38 | 1 << 39);
    }
}

fn counts_what_jobs_do(site: &Site, method: &str, capabilities: u64) {
    let exporter = start(site, &[&format!("--collector.perf.method={method}")]);
    let ((one_dirs, mut one), (_, mut two)) = (job(site, 951), job(site, 952));
    // Counted from when the exporter saw it, a moment after it began.
    eventually("both are counted", || {
        let now = scrape(&exporter);
        [951, 952]
            .iter()
            .all(|id| of(&now, *id, "counters_info", &[("mode", "cgroup"), ("reason", "")]) == Some(1.0))
    });
    let (one_before, two_before) = (one.act("rest 0"), two.act("rest 0"));
    let before = scrape(&exporter);
    assert_eq!(success(&before), Some(1.0));
    one.act("rest 3000");
    one.act("fork 20");
    let one_after = one.act("burn 0.3");
    let two_after = two.act("fault 20000");
    let now = scrape(&exporter);
    for (id, before_of, after) in [(951, one_before, one_after), (952, two_before, two_after)] {
        let grew = |name: &str, labels: &[(&str, &str)]| {
            of(&now, id, name, labels).unwrap() - of(&before, id, name, labels).unwrap()
        };
        let known: Vec<f64> = after.iter().zip(before_of).map(|(after, before)| after - before).collect();
        let switches = grew("context_switches_total", &[]);
        assert!(is_close(switches, known[0], 60.0 + known[0] * 0.02), "{id}: {switches}, known {}", known[0]);
        let faults = grew("cpu_page_faults_total", &[("type", "minor")]);
        assert!(is_close(faults, known[1], 60.0 + known[1] * 0.02), "{id}: {faults}, known {}", known[1]);
        let counted = grew("counted_cpu_seconds_total", &[]);
        assert!(is_close(counted, known[2], 0.02 + known[2] * 0.1), "{id}: {counted} s, known {}", known[2]);
        assert_eq!(of(&now, id, "counters_running_ratio", &[("group", "software")]), Some(1.0));
    }
    assert!(
        of(&now, 951, "counters_coverage_ratio", &[]).unwrap() > 0.7,
        "{:?}",
        of(&now, 951, "counters_coverage_ratio", &[])
    );
    // The end: what was done after the last scrape is exported as well, and nothing remains open.
    let last = one.act("rest 500");
    one.quit();
    remove(site, &one_dirs);
    let mut exported = 0.0;
    eventually("the end is exported", || {
        let now = scrape(&exporter);
        exported = of(&now, 951, "context_switches_total", &[]).unwrap();
        now.value("jobledger_job_end_time_seconds", &[("jobid", "951")]).is_some()
    });
    let grown = exported - of(&before, 951, "context_switches_total", &[]).unwrap();
    let known = last[0] - one_before[0];
    assert!(is_close(grown, known, 80.0 + known * 0.02), "{grown}, known {known}");
    let left = events_of(exporter.pid());
    assert_eq!(scrape(&exporter).value("jobledger_exporter_counters_descriptors", &[]), Some(left as f64));
    // The exporter gave up all but what it needs, and that was enough.
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.pid())).unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(held, 16).unwrap(), capabilities);
    let methods = now.named("jobledger_node_counters_method_info").map(|sample| sample.label("method"));
    assert_eq!(methods.collect::<Vec<_>>(), [Some(method)]);
}

/// Nothing is opened for a job: what it does in its first 50 ms is counted, whether it is bound to CPUs yet or not, and there are
/// as many descriptors as before.
#[test]
fn jobs_of_50_ms_are_counted_by_divided_counters() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let (exporter, records) = (start(&site, &[]), Scratch::new("records"));
    eventually("counters are open, without a job or a scrape", || events_of(exporter.pid()) > 0);
    // Test machines have cgroups of v1, too. That SLURM's are of v2 shows with a scrape.
    scrape(&exporter);
    let open = events_of(exporter.pid());
    assert!(open > 0, "{}", exporter.log());
    for id in 971..979 {
        // A program is started when the job is 20 ms old.
        let _ = Step { uid: 0, ..Step::new(id, records.path(), &["sh", "-c", "sleep 0.02; sleep 0.03; :"]) }
            .start(&site)
            .finish();
    }
    eventually("the last is gone", || !site.job_dir("job_978", 0).exists());
    let now = scrape(&exporter);
    let counted = |id: u32| {
        of(&now, id, "cpu_page_faults_total", &[("type", "minor")]).is_some_and(|faults| faults > 50.0)
    };
    let all = (971..979).filter(|id| counted(*id)).count();
    // A machine that builds at the same time may let the exporter see one only when it is over.
    assert!(all >= 6, "{all} of 8");
    assert_eq!(events_of(exporter.pid()), open);
    assert_eq!(now.value("jobledger_exporter_counters_descriptors", &[]), Some(open as f64));
}

/// Each interval of a CPU goes to the job, the step and the task alike.
#[test]
fn counted_time_of_steps_adds_up_to_the_job_and_that_of_tasks_to_the_step() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let exporter = start(&site, &["--collector.perf.method=bpf", "--jobs.steps", "--jobs.tasks"]);
    let (dirs, mut one) = job(&site, 955);
    let dir = &dirs[0];
    for group in ["step_0/user/task_1", "step_1", "step_1/user", "step_1/user/task_0"] {
        make_group(&dir.join(group));
    }
    let mut others =
        ["step_0/user/task_1", "step_1/user/task_0"].map(|task| Worker::start(&[dir.join(task)]));
    let parts = [
        ("step", vec![("step", "0")]),
        ("step", vec![("step", "1")]),
        ("task", vec![("step", "0"), ("task", "0")]),
        ("task", vec![("step", "0"), ("task", "1")]),
        ("task", vec![("step", "1"), ("task", "0")]),
    ];
    let read = || {
        let now = scrape(&exporter);
        let seconds = |level: &str, labels: &[(&str, &str)]| {
            let labels: Vec<_> = std::iter::once(("jobid", "955")).chain(labels.iter().copied()).collect();
            now.value(&format!("jobledger_{level}_counted_cpu_seconds_total"), &labels)
        };
        let mut all = vec![seconds("job", &[])];
        all.extend(parts.iter().map(|(level, labels)| seconds(level, labels)));
        all.into_iter().collect::<Option<Vec<f64>>>()
    };
    let mut before = Vec::new();
    eventually("all are counted", || {
        before = read().unwrap_or_default();
        !before.is_empty()
    });
    one.act("burn 0.1");
    others[0].act("burn 0.2");
    others[1].act("burn 0.1");
    let after = read().unwrap();
    let grew: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let [job, first, second, tasks @ ..] = &grew[..] else { panic!("{grew:?}") };
    assert!(*first > 0.05 && *second > 0.02, "{grew:?}");
    assert!(is_close(first + second, *job, 2e-3), "{grew:?}");
    assert!(is_close(tasks[0] + tasks[1], *first, 2e-3) && is_close(tasks[2], *second, 2e-3), "{grew:?}");
}

#[test]
fn jobs_shorter_than_a_scrape_are_counted_and_leave_nothing_open() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let (exporter, records) = (start(&site, &["--collector.perf.method=cgroup"]), Scratch::new("records"));
    scrape(&exporter);
    for id in 961..969 {
        let _ = Step {
            uid: 0,
            ..Step::new(id, records.path(), &["sh", "-c", "sleep 1; sleep 0.01; sleep 0.01"])
        }
        .start(&site)
        .finish();
    }
    eventually("the last is gone", || !site.job_dir("job_968", 0).exists());
    let now = scrape(&exporter);
    for id in 961..969 {
        // Two programs were started after the exporter had a second to see the job; each takes a hundred faults or so.
        let faults = of(&now, id, "cpu_page_faults_total", &[("type", "minor")]);
        assert!(faults.is_some_and(|faults| faults > 100.0), "{id}: {faults:?}");
    }
    eventually("nothing is open", || events_of(exporter.pid()) == 0);
}

#[test]
fn descriptors_are_bounded_and_what_is_left_out_is_reported() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let most = cpus * 6;
    let exporter = start(
        &site,
        &[
            "--collector.perf.method=cgroup",
            &format!("--collector.perf.most-descriptors={most}"),
            "--collector.perf.groups=software",
        ],
    );
    let jobs: Vec<_> = (0..4).map(|n| job(&site, 991 + n)).collect();
    eventually("all four are known", || scrape(&exporter).named("jobledger_job_counters_info").count() == 4);
    let now = scrape(&exporter);
    let counted = now.named("jobledger_job_context_switches_total").count();
    let reasons: Vec<_> = now
        .named("jobledger_job_counters_info")
        .filter(|s| s.label("reason") == Some("descriptors"))
        .collect();
    assert!(counted >= 1 && counted + reasons.len() == 4, "{counted}, {reasons:?}");
    assert!(events_of(exporter.pid()) <= most);
    assert_eq!(now.value("jobledger_exporter_counters_descriptors_limit", &[]), Some(most as f64));
    assert_eq!(success(&now), Some(0.0));
    drop(jobs);
}

#[test]
fn without_the_capability_it_says_what_would_help() {
    if skip_without_groups() {
        return;
    }
    let paranoid: i32 =
        fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim().parse().unwrap();
    if paranoid < 1 {
        jobledger_testkit::skip(
            "perf-paranoid",
            format!("kernel.perf_event_paranoid is {paranoid}: everybody may count"),
        );
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let exporter =
        Exporter::prepared(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags(&site, &[]), |command| {
            use std::os::unix::process::CommandExt;
            command.uid(65534).gid(65534);
        });
    let (_, _worker) = job(&site, 999);
    eventually("it was refused", || {
        let now = scrape(&exporter);
        let refused = now.named("jobledger_exporter_collector_errors_total").any(|sample| {
            sample.label("collector") == Some("perf")
                && sample.label("reason") == Some("denied")
                && sample.value > 0.0
        });
        refused && success(&now) == Some(0.0)
    });
    eventually("it says so", || exporter.log().contains("CAP_PERFMON"));
}
