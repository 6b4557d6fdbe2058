//! Packets of jobs, counted by the exporter's programs in the kernel: real control groups, real sockets, a wire between
//! two network namespaces, and every byte known.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bpf::assemble::Assembler;
use bpf::program::{Kind, Program};
use bpf::{Attached, Direction, Link, Register};
use jobledger_testkit::cgroups::{Site, make_group, skip_without_groups};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::networks::{FAR, NEAR, Wire, skip_without_networks};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::stepd::Step;
use jobledger_testkit::wait::QUIET;
use jobledger_testkit::{eventually, http};

const WHAT: [&str; 6] = [
    "received_bytes_total",
    "received_packets_total",
    "transmitted_bytes_total",
    "transmitted_packets_total",
    "loopback_bytes_total",
    "loopback_packets_total",
];
/// IPv4 and UDP headers.
const HEADERS: u64 = 28;

fn skip() -> bool {
    skip_without_groups() || skip_without_networks()
}

fn flags(site: &Site) -> Vec<String> {
    vec![
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        "--jobs.metadata-dir=/nonexistent".to_owned(),
        "--jobs.retention=1h".to_owned(),
        "--jobs.steps".to_owned(),
        "--collector.network".to_owned(),
    ]
}

fn start(site: &Site) -> Exporter {
    let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags(site));
    // The first scrape attaches.
    succeeds(&scrape(&exporter));
    exporter
}

fn scrape(exporter: &Exporter) -> Exposition {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &header, QUIET).unwrap();
    assert_eq!(answer.status, 200);
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

fn success(now: &Exposition) -> Option<f64> {
    now.value("jobledger_exporter_collector_success", &[("collector", "network")])
}

fn succeeds(now: &Exposition) {
    assert_eq!(success(now), Some(1.0));
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers below 2^53")]
fn six(now: &Exposition, prefix: &str, labels: &[(&str, &str)]) -> Option<[u64; 6]> {
    let value = |what: &str| now.value(&format!("{prefix}_{what}"), labels).map(|value| value as u64);
    let all: Vec<u64> = WHAT.iter().filter_map(|what| value(what)).collect();
    all.try_into().ok()
}

fn of_job(now: &Exposition, id: u32) -> Option<[u64; 6]> {
    six(now, "jobledger_job_network", &[("jobid", &id.to_string())])
}

fn of_step(now: &Exposition, id: u32, step: &str) -> Option<[u64; 6]> {
    six(now, "jobledger_step_network", &[("jobid", &id.to_string()), ("step", step)])
}

fn unattributed(now: &Exposition) -> [u64; 6] {
    six(now, "jobledger_node_slurm_network_unattributed", &[]).unwrap()
}

/// Σ jobs + unattributed == total, in whole numbers.
fn balances(now: &Exposition, jobs: &[u32]) {
    let total = six(now, "jobledger_node_slurm_network", &[]).unwrap();
    let mut sum = unattributed(now);
    for id in jobs {
        let job = of_job(now, *id).unwrap();
        (0..6).for_each(|i| sum[i] += job[i]);
    }
    assert_eq!(sum, total);
}

/// A process in a group, at an end of the wire. It executes commands line by line and confirms each.
struct Actor {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Commands: `send ADDRESS COUNT SIZE`, `bind`, `receive COUNT`, `listen`, `accept BYTES`, `tcp ADDRESS BYTES`, `quit`.
const ACTOR: &str = r"
import socket, sys
receiver = None
for line in sys.stdin:
    order, *words = line.split()
    if order == 'send':
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(int(words[1])):
            s.sendto(b'x' * int(words[2]), (words[0], 7007))
    elif order == 'bind':
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind(('0.0.0.0', 7007))
    elif order == 'receive':
        for _ in range(int(words[0])):
            receiver.recv(65536)
    elif order == 'listen':
        listener = socket.create_server(('0.0.0.0', 7008))
    elif order == 'accept':
        c, _ = listener.accept()
        left = int(words[0])
        while left > 0:
            left -= len(c.recv(1 << 20))
        c.sendall(b'k')
        c.close()
    elif order == 'tcp':
        c = socket.create_connection((words[0], 7008))
        c.sendall(b'x' * int(words[1]))
        assert c.recv(1) == b'k' and c.recv(1) == b''
        c.close()
    elif order == 'quit':
        break
    print('done', flush=True)
";

impl Actor {
    fn start(words: &[String], group: Option<&Path>) -> Self {
        let mut command = Command::new("sh");
        let enter = group.map(|group| format!("echo 0 > {}/cgroup.procs; ", group.display()));
        let script = enter.unwrap_or_default() + r#"exec "$@""#;
        command.args(["-c", &script, "sh"]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, answers: BufReader::new(answers) }
    }

    fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn end(&mut self) {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }

    fn act(&mut self, order: &str) {
        self.begin(order);
        self.end();
    }

    fn quit(mut self) {
        self.begin("quit");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job's groups with one step, and in its task such a process at the near end.
fn job(site: &Site, wire: &Wire, id: u32, step: &str) -> (PathBuf, Actor) {
    let dir = site.job_dir(&format!("job_{id}"), 0);
    let task = dir.join(format!("step_{step}/user/task_0"));
    for group in task.ancestors().take(4).collect::<Vec<_>>().into_iter().rev() {
        make_group(group);
    }
    (dir, Actor::start(&wire.near(ACTOR), Some(&task)))
}

fn remove(dir: &Path) {
    for below in
        ["step_0/user/task_0", "step_0/user", "step_1/user/task_0", "step_1/user", "step_0", "step_1", ""]
    {
        let group = dir.join(below);
        if group.exists() {
            fs::remove_dir(&group).unwrap();
        }
    }
}

fn far(wire: &Wire) -> Actor {
    let mut far = Actor::start(&wire.far(ACTOR), None);
    far.act("bind");
    far
}

fn scope(site: &Site) -> PathBuf {
    site.job_dir("", 0)
}

fn attached(site: &Site) -> [Vec<u32>; 2] {
    let dir = File::open(scope(site)).unwrap();
    [Direction::Ingress, Direction::Egress].map(|direction| Attached::of(&dir, direction).unwrap().ids)
}

#[test]
fn every_byte_of_two_simultaneous_jobs_is_counted_once_and_for_the_right_job() {
    if skip() {
        return;
    }
    let (site, wire) = (Site::v2("slurmstepd.scope").unwrap(), Wire::new());
    let exporter = start(&site);
    let (_, mut one) = job(&site, &wire, 901, "0");
    let (_, mut two) = job(&site, &wire, 902, "batch");
    let mut own = Actor::start(&wire.near(ACTOR), Some(&scope(&site).join("system")));
    let mut far = far(&wire);

    one.begin(&format!("send {FAR} 100 1000"));
    two.begin(&format!("send {FAR} 40 333"));
    one.end();
    two.end();
    far.act("receive 140");
    one.act("bind");
    far.act(&format!("send {NEAR} 30 700"));
    one.act("receive 30");
    // To the loopback's address and to the node's own, which the kernel also routes over loopback.
    two.act("send 127.0.0.1 50 500");
    two.act(&format!("send {NEAR} 7 100"));
    one.act("receive 57");
    own.act(&format!("send {FAR} 11 64"));

    let now = scrape(&exporter);
    succeeds(&now);
    let sent = |count: u64, size: u64| [count * (size + HEADERS), count];
    let expected = [sent(30, 700), sent(100, 1000), [0, 0]].concat();
    assert_eq!(of_job(&now, 901).unwrap().to_vec(), expected);
    assert_eq!(of_step(&now, 901, "0").unwrap().to_vec(), expected);
    let looped = [50 * (500 + HEADERS) + 7 * (100 + HEADERS), 57];
    let expected = [[0, 0], sent(40, 333), looped].concat();
    assert_eq!(of_job(&now, 902).unwrap().to_vec(), expected);
    assert_eq!(of_step(&now, 902, "batch").unwrap().to_vec(), expected);
    balances(&now, &[901, 902]);
    // SLURM's own group was unknown at the first scrape and withheld; now it is exported.
    let now = scrape(&exporter);
    let expected = [[0, 0], sent(11, 64), [0, 0]].concat();
    assert_eq!(unattributed(&now).to_vec(), expected);
    balances(&now, &[901, 902]);
    assert_eq!(now.value("jobledger_node_slurm_network_overflow_packets_total", &[]), Some(0.0));
    // The exporter kept only the needed capabilities.
    let status = fs::read_to_string(format!("/proc/{}/status", exporter.pid())).unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(held, 16).unwrap(), 1 << 39 | 1 << 12, "CAP_BPF and CAP_NET_ADMIN");
}

/// TCP with large sends and merged receives: as the device counts, without Ethernet headers.
#[test]
fn a_stream_is_counted_as_the_device_counts_it() {
    if skip() {
        return;
    }
    let (site, wire) = (Site::v2("slurmstepd.scope").unwrap(), Wire::new());
    let exporter = start(&site);
    let (_, mut one) = job(&site, &wire, 911, "0");
    let mut far = far(&wire);
    let before = wire.near_counters();
    far.act("listen");
    far.begin("accept 50000000");
    one.act(&format!("tcp {FAR} 50000000"));
    far.end();
    let (now, after) = (scrape(&exporter), wire.near_counters());
    let device: Vec<u64> = (0..4).map(|i| after[i] - before[i]).collect();
    let [received, received_packets, sent, sent_packets, ..] = of_job(&now, 911).unwrap();
    let less_ethernet = |bytes: u64, packets: u64| bytes - 14 * packets;
    // The last acknowledgements have no socket of the job's any more (TIME_WAIT).
    assert!(less_ethernet(device[0], device[1]).abs_diff(received) <= 200, "{device:?}, {received}");
    assert!(less_ethernet(device[2], device[3]).abs_diff(sent) <= 200, "{device:?}, {sent}");
    assert!(device[1].abs_diff(received_packets) <= 3 && device[3].abs_diff(sent_packets) <= 3);
    assert!(sent > 50_000_000, "{sent}");
}

#[test]
fn a_job_shorter_than_a_scrape_and_its_next_run_are_exported_completely() {
    if skip() {
        return;
    }
    let (site, wire) = (Site::v2("slurmstepd.scope").unwrap(), Wire::new());
    let (exporter, records) = (start(&site), Scratch::new("records"));
    let mut far = far(&wire);
    let script = |count: u32| {
        let socket = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)";
        format!("import socket; {socket}; [s.sendto(b'x' * 100, ('{FAR}', 7007)) for _ in range({count})]")
    };
    let run = |count: u32| {
        let words = wire.near(&script(count));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _ = Step { uid: 0, ..Step::new(921, records.path(), &words) }.start(&site).finish();
    };
    let sent = |count: u64| [0, 0, count * (100 + HEADERS), count, 0, 0];
    run(25);
    eventually("the job is gone", || !site.job_dir("job_921", 0).exists());
    let now = scrape(&exporter);
    assert_eq!(of_job(&now, 921), Some(sent(25)));
    assert_eq!(of_step(&now, 921, "0"), Some(sent(25)));
    balances(&now, &[921]);
    // Requeued: the same id, a new group, counters from 0; the total keeps both.
    run(5);
    let now = scrape(&exporter);
    assert_eq!(of_job(&now, 921), Some(sent(5)));
    assert_eq!(six(&now, "jobledger_node_slurm_network", &[]), Some(sent(30)));
    assert_eq!(unattributed(&now), [0; 6]);
    far.act("receive 30");
}

#[test]
fn an_ended_job_keeps_its_counts_and_a_new_scope_is_counted_too() {
    if skip() {
        return;
    }
    let (site, wire) = (Site::v2("slurmstepd.scope").unwrap(), Wire::new());
    let exporter = start(&site);
    let mut far = far(&wire);
    let (dir, mut one) = job(&site, &wire, 931, "0");
    one.act(&format!("send {FAR} 10 100"));
    let sent = |count: u64| [0, 0, count * (100 + HEADERS), count, 0, 0];
    assert_eq!(of_job(&scrape(&exporter), 931), Some(sent(10)));
    one.act(&format!("send {FAR} 3 100"));
    one.quit();
    remove(&dir);
    for _ in 0..3 {
        let now = scrape(&exporter);
        assert_eq!(of_job(&now, 931), Some(sent(13)));
        balances(&now, &[931]);
    }
    // slurmd restarts and creates its scope again.
    let scope = scope(&site);
    fs::remove_dir(scope.join("system")).unwrap();
    fs::remove_dir(&scope).unwrap();
    let now = scrape(&exporter);
    assert_eq!(of_job(&now, 931), Some(sent(13)), "without a scope the counts are kept");
    make_group(&scope);
    make_group(&scope.join("system"));
    eventually("attached to the new scope", || {
        scrape(&exporter);
        attached(&site).iter().all(|ids| ids.len() == 1)
    });
    let (_, mut two) = job(&site, &wire, 932, "0");
    two.act(&format!("send {FAR} 4 100"));
    let now = scrape(&exporter);
    assert_eq!((of_job(&now, 931), of_job(&now, 932)), (Some(sent(13)), Some(sent(4))));
    balances(&now, &[931, 932]);
    far.act("receive 17");
}

fn pass(direction: Direction) -> Program {
    let mut asm = Assembler::default();
    asm.set(Register::R0, 1).exit();
    Program::load(Kind::CgroupPacket(direction), "other", &asm.finish().unwrap()).unwrap()
}

#[test]
fn after_a_crash_nothing_is_left_and_programs_of_others_are_unchanged() {
    if skip() {
        return;
    }
    let (site, wire) = (Site::v2("slurmstepd.scope").unwrap(), Wire::new());
    let dir = File::open(scope(&site)).unwrap();
    let both = [Direction::Ingress, Direction::Egress];
    let first = both.map(|direction| Link::new(&pass(direction), &dir, direction).unwrap());
    let before = attached(&site);
    assert!(before.iter().all(|ids| ids.len() == 1));
    let exporter = start(&site);
    let second = both.map(|direction| Link::new(&pass(direction), &dir, direction).unwrap());
    let now = attached(&site);
    for (ids, before) in now.iter().zip(&before) {
        assert_eq!((ids.len(), ids[0]), (3, before[0]), "theirs, ours, theirs");
    }
    let (_, mut one) = job(&site, &wire, 941, "0");
    let mut far = far(&wire);
    one.act(&format!("send {FAR} 10 100"));
    far.act("receive 10");
    assert_eq!(of_job(&scrape(&exporter), 941).unwrap()[3], 10);

    rustix::process::kill_process(
        rustix::process::Pid::from_raw(exporter.pid().cast_signed()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let theirs = now.map(|ids| vec![ids[0], ids[2]]);
    eventually("ours are gone", || attached(&site) == theirs);
    drop(exporter);
    one.act(&format!("send {FAR} 5 100"));
    far.act("receive 5");

    // The next exporter starts from zero, after them, and leaves nothing when it exits.
    let exporter = start(&site);
    one.act(&format!("send {FAR} 6 100"));
    assert_eq!(of_job(&scrape(&exporter), 941).unwrap()[3], 6);
    assert!(attached(&site).iter().all(|ids| ids.len() == 3));
    assert_eq!(exporter.terminate(), Some(0));
    eventually("ours are gone", || attached(&site) == theirs);
    drop((first, second));
}

#[test]
fn without_privilege_it_is_denied_and_the_fix_is_named() {
    if skip() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let binary = env!("CARGO_BIN_EXE_jobledger-exporter");
    let scratch = Scratch::new("binary");
    // Other users may not be able to enter the target directory.
    let copy = scratch.path().join("exporter");
    jobledger_testkit::tools::install(Path::new(binary), &copy);
    let exporter = Exporter::prepared(copy.to_str().unwrap(), &flags(&site), |command| {
        command.uid(65_534).gid(65_534);
    });
    let now = scrape(&exporter);
    assert_eq!(success(&now), Some(0.0));
    let text = exporter.metrics();
    assert!(text.contains("CAP_BPF and CAP_NET_ADMIN"), "{text}");
    assert_eq!(now.named("jobledger_node_slurm_network_received_bytes_total").count(), 0, "absent, not 0");
    assert_eq!(success(&now), Some(0.0));
    assert_eq!(now.value("jobledger_exporter_collector_success", &[("collector", "cpu")]), Some(1.0));
}

#[test]
fn on_v1_it_is_unsupported() {
    if skip_without_groups() {
        return;
    }
    let Some(site) = Site::v1() else {
        jobledger_testkit::skip("v1", "no cgroup v1 freezer is mounted");
        return;
    };
    let exporter = Exporter::start(env!("CARGO_BIN_EXE_jobledger-exporter"), &flags(&site));
    assert_eq!(success(&scrape(&exporter)), Some(0.0));
    assert!(exporter.metrics().contains("cgroup v2 for SLURM's cgroups"));
}

/// If the exporter sees only a part of the hierarchy, the depth of SLURM's scope is unknown.
#[test]
fn in_a_cgroup_namespace_it_is_unsupported() {
    if skip_without_groups() {
        return;
    }
    let site = Site::v2("slurmstepd.scope").unwrap();
    let scratch = Scratch::new("cgroupfs");
    let (binary, mount) = (env!("CARGO_BIN_EXE_jobledger-exporter"), scratch.path().display());
    let once = format!("{binary} --once --collector.network --path.cgroupfs={mount} --log.level=error");
    let inside = format!("mount -t cgroup2 none {mount} && exec {once}");
    let enter = format!("echo 0 > {}/cgroup.procs", site.cgroupfs().display());
    let output = Command::new("sh")
        .args(["-c", &format!("{enter} || exit 99; exec unshare --cgroup --mount sh -c '{inside}'")])
        .output()
        .unwrap();
    if output.status.code() == Some(99) {
        jobledger_testkit::skip("threaded-parent", "a group that hands down controllers takes no process");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the whole cgroup hierarchy: not a cgroup namespace"), "{text}");
    assert!(!text.contains("jobledger_node_slurm_network_"), "{text}");
}
