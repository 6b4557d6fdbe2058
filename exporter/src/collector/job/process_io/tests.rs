use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use jobledger_testkit::eventually;
use kernel_files::parse::{integer, parse_pid_stat};

use super::*;
use crate::collector::testing::{Bench, Machine, collect, ended, job, snapshot_of, value};

fn io(bytes: u64) -> String {
    format!(
        "rchar: {bytes}\nwchar: {bytes}\nsyscr: 7\nsyscw: 8\nread_bytes: {bytes}\nwrite_bytes: 4096\ncancelled_write_bytes: 512\n"
    )
}

fn stat(pid: u32, ppid: u32) -> String {
    format!("{pid} (a) b) S {ppid} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {pid}00 4096 1 0\n")
}

fn machine() -> (Machine, Job) {
    let machine = Machine::new();
    for (pid, ppid, bytes) in [(1, 0, 0), (387, 1, 100), (418, 387, 1000), (429, 418, 20_000)] {
        machine.write(&format!("proc/{pid}/stat"), stat(pid, ppid));
        machine.write(&format!("proc/{pid}/io"), io(bytes));
    }
    machine.write("cgroup/job_7/step_0/slurm/cgroup.procs", "387\n");
    machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", "418\n429\n");
    let job = job(7, machine.v2("job_7"), &[("0", &["0"])]);
    (machine, job)
}

const READ_SERIES: &str = "jobledger_job_process_read_bytes_total{jobid=\"7\"}";

#[test]
fn all_processes_of_a_job_are_summed_and_slurmstepd_is_read_after_its_end() {
    let (machine, job) = machine();
    let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, READ_SERIES), Some(21_100.0));
    assert_eq!(
        value(&text, "jobledger_job_process_cancelled_write_bytes_total{jobid=\"7\"}"),
        Some(2048.0 - 512.0)
    );
    assert_eq!(
        value(&text, "jobledger_job_process_io_syscalls_total{jobid=\"7\",direction=\"write\"}"),
        Some(24.0)
    );
    // The tasks are reaped, slurmstepd has their numbers and more, and has moved out.
    machine.remove("cgroup/job_7").remove("proc/418").remove("proc/429");
    machine.write("proc/387/io", io(25_000));
    bench.vanished(&job);
    machine.remove("proc/387");
    let (outcome, text) = bench.collect(&snapshot_of(machine.roots(), vec![ended(&job)]));
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, READ_SERIES), Some(25_000.0));
}

#[test]
fn v1_finds_slurmstepd_at_the_job_in_the_freezer() {
    let (machine, _) = machine();
    machine.write("cgroup/freezer/slurm/uid_0/job_7/cgroup.procs", "387\n");
    machine.write("cgroup/freezer/slurm/uid_0/job_7/step_0/cgroup.procs", "418\n429\n");
    let job = job(7, machine.v1(&[("freezer", "slurm/uid_0/job_7")]), &[("0", &[])]);
    let text = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job])).1;
    assert_eq!(value(&text, READ_SERIES), Some(21_100.0));
}

#[test]
fn a_malformed_process_gives_no_sum_of_the_others() {
    let (machine, job) = machine();
    machine.write("proc/418/io", "rchar: 1\nwch");
    let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job]));
    assert!(matches!(outcome, Err(SourceError::Malformed { file: IO, .. })), "{outcome:?}");
    assert!(!text.contains("process_read_bytes_total{"));
}

#[test]
fn hidden_processes_are_denied_and_those_of_another_namespace_unsupported() {
    let (machine, job) = machine();
    for pid in ["1", "387", "418", "429"] {
        machine.remove(&format!("proc/{pid}"));
    }
    let outcome = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job.clone()])).0;
    assert!(matches!(outcome, Err(SourceError::Denied { .. })), "{outcome:?}");
    machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", "0\n0\n");
    let outcome = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job])).0;
    assert!(matches!(outcome, Err(SourceError::Unsupported { .. })), "{outcome:?}");
}

/// A shell that runs the commands it gets, in the place of slurmstepd.
struct Shell {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    fn new() -> Self {
        let mut child = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// Runs a command that writes one line.
    fn say(&mut self, command: &str) -> String {
        writeln!(self.to, "{command}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn state(pid: u32) -> Option<u8> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    Some(parse_pid_stat(&stat).unwrap().state)
}

/// The real kernel: a task that slurmstepd waits for, one that it has not waited for yet, and an orphan.
#[test]
fn real_processes_that_are_waited_for_or_orphaned_are_counted_once() {
    if std::fs::read("/proc/self/io").is_err() {
        jobledger_testkit::skip("proc-io", "this kernel has no /proc/PID/io");
        return;
    }
    const MB: f64 = 1e6;
    // Writes so much, then stops until it gets a line.
    let work = |mb: u32| format!("head -c {mb}000000 /dev/zero >/dev/null; kill -STOP $$");
    let mut shell = Shell::new();
    let task: u32 = shell.say(&format!("sh -c '{}' & echo $!", work(3))).parse().unwrap();
    let orphan = format!("sh -c 'sh -c \"{}\" >/dev/null & echo $!'", work(5).replace('$', "\\$"));
    let orphan: u32 = shell.say(&orphan).parse().unwrap();
    for pid in [task, orphan] {
        eventually("stopped", || state(pid) == Some(b'T'));
    }

    let machine = Machine::new();
    let list = |pids: &[u32]| {
        let lines: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", lines);
    };
    machine.write("cgroup/job_7/step_0/slurm/cgroup.procs", format!("{}\n", shell.pid()));
    list(&[task, orphan]);
    let job = job(7, machine.v2("job_7"), &[("0", &["0"])]);
    let mut snapshot = snapshot_of(machine.roots(), vec![job]);
    snapshot.roots = Arc::new(Roots::new("/proc", "/sys", machine.path.join("cgroup"), "/dev"));
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let mut written = || {
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        value(&text, "jobledger_job_process_syscall_written_bytes_total{jobid=\"7\"}").unwrap() / MB
    };
    let near = |exported: f64, expected: f64| {
        assert!((expected..expected + 0.2).contains(&exported), "{exported} of {expected}")
    };

    near(written(), 8.0);
    near(written(), 8.0);
    // The orphan ends unseen by the job, while somebody else writes as much.
    shell.say(&format!("kill -KILL {orphan}; head -c 5000000 /dev/zero >/dev/null; echo done"));
    eventually("gone or a zombie", || matches!(state(orphan), None | Some(b'Z')));
    list(&[task]);
    near(written(), 13.0);
    // The task goes on to write, ends, and is waited for.
    shell.say(&format!("kill -CONT {task}; wait {task}; echo done"));
    list(&[]);
    near(written(), 13.0);
    // A child that nobody lists, born and waited for between two looks.
    shell.say("sh -c 'head -c 2000000 /dev/zero >/dev/null'; echo done");
    near(written(), 15.0);
    near(written(), 15.0);
}

/// Many processes that come and go while they are looked at: never more than the truth, which is the sum in the
/// end, when all were waited for.
#[test]
fn real_processes_are_never_counted_twice_while_they_come_and_go() {
    if std::fs::read("/proc/self/io").is_err() {
        jobledger_testkit::skip("proc-io", "this kernel has no /proc/PID/io");
        return;
    }
    let machine = Machine::new();
    let mut shell = Shell::new();
    let me = shell.pid();
    shell.say("(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (head -c 100000 /dev/zero; sh -c 'head -c 100000 /dev/zero') >/dev/null; done) & echo started");
    machine.write("cgroup/job_7/step_0/slurm/cgroup.procs", format!("{me}\n"));
    machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", "");
    let job = job(7, machine.v2("job_7"), &[("0", &["0"])]);
    let mut snapshot = snapshot_of(machine.roots(), vec![job]);
    snapshot.roots = Arc::new(Roots::new("/proc", "/sys", machine.path.join("cgroup"), "/dev"));
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let mut last = 0.0;
    let mut exported = Vec::new();
    loop {
        let tree = descendants(me);
        let lines: String = tree.iter().map(|pid| format!("{pid}\n")).collect();
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", lines);
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let now = value(&text, "jobledger_job_process_syscall_written_bytes_total{jobid=\"7\"}").unwrap();
        assert!(now >= last, "fell from {last} to {now}");
        last = now;
        exported.push(now);
        if tree.is_empty() {
            break;
        }
    }
    shell.say("wait; echo done");
    let all = bench.collect(&snapshot).1;
    let all = value(&all, "jobledger_job_process_syscall_written_bytes_total{jobid=\"7\"}").unwrap();
    assert!((2_400_000.0..2_410_000.0).contains(&all), "{all} after {exported:?}");
}

/// Processes below one that the kernel would list: zombies are not.
fn descendants(root: u32) -> Vec<u32> {
    let mut stats = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Some(pid) = integer(entry.file_name().as_encoded_bytes()).and_then(|v| u32::try_from(v).ok())
            && let Ok(stat) = std::fs::read(entry.path().join("stat"))
            && let Ok(stat) = parse_pid_stat(&stat)
        {
            stats.push((pid, stat));
        }
    }
    let mut below = vec![root];
    let mut next = 0;
    while let Some(parent) = below.get(next).copied() {
        below.extend(stats.iter().filter(|(_, s)| s.ppid == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    let listed = |pid: &u32| *pid != root && stats.iter().any(|(p, s)| p == pid && s.state != b'Z');
    below.into_iter().filter(listed).collect()
}
