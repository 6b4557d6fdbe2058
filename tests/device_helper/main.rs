//! The helper process that alone may ask the kernel which devices jobs may open: the real binary, real control groups, real
//! programs; and whoever took the exporter over, who says what he likes to it.

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
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpu_binding::helper::{Helper, start_from};
use gpu_binding::{DeviceAccess, DeviceAccessSource, KernelDeviceAccess};
use gpu_devices::DeviceNode;
use jobledger_testkit::cgroups::{OwnedGroup, Site, cgroup2_mount, make_group, skip_without_groups};
use jobledger_testkit::device_programs::{ALLOW_OVERRIDE, Rule, attach, attached, load, slurm};
use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::wait::{LONGEST, quiet_time};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, CapabilitySets};

mod attacked;
mod cost;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const PATIENCE: Duration = LONGEST;
/// CAP_NET_ADMIN and CAP_SYS_ADMIN.
const TWO: u64 = 1 << 12 | 1 << 21;

fn helper() -> Helper {
    start_from(Path::new(BINARY), None).unwrap()
}

fn gpus(count: u32) -> Vec<DeviceNode> {
    (0..count).map(|minor| DeviceNode { major: 195, minor }).collect()
}

/// A job's group with a program of SLURM's that lets it have these GPUs.
fn job(top: &OwnedGroup, name: &str, allowed: &str) -> PathBuf {
    let group = top.path().join(name);
    make_group(&group);
    give(&group, allowed);
    group
}

fn give(group: &Path, allowed: &str) {
    let rule = |(minor, allowed)| Rule { allowed: allowed == '1', major: 195, minor };
    let rules: Vec<Rule> = (0..).zip(allowed.chars()).map(rule).collect();
    attach(group, &load(&slurm(&rules)).unwrap(), ALLOW_OVERRIDE).unwrap();
}

fn bits(device_access: &DeviceAccess) -> String {
    match device_access {
        DeviceAccess::Allowed { nodes, .. } => {
            nodes.iter().map(|node| if *node { '1' } else { '0' }).collect()
        }
        other => format!("{other:?}"),
    }
}

fn status(pid: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{key}: {text}")).trim().to_owned()
}

fn capabilities(pid: u32, set: &str) -> u64 {
    u64::from_str_radix(&status(pid, set), 16).unwrap()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Whether a process is there and no zombie.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !matches!(rest.split_whitespace().next(), None | Some("Z" | "X")))
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn it_answers_as_the_kernel_does_and_asking_changes_nothing() {
    if skip_without_groups() {
        return;
    }
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "helper");
    let mut groups: Vec<PathBuf> =
        (0..150).map(|n| job(&top, &format!("job_{n}"), &format!("{n:08b}"))).collect();
    let step = groups[5].join("step_0");
    make_group(&step);
    let bare = top.path().join("bare");
    make_group(&bare);
    groups.extend([step, bare]);
    let before: Vec<_> = groups.iter().map(|group| attached(group)).collect();
    // As the exporter holds them.
    let open = |group: &PathBuf| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        rustix::fs::open(group, flags, rustix::fs::Mode::empty()).unwrap()
    };
    let dirs: Vec<OwnedFd> = groups.iter().map(open).collect();
    let dirs: Vec<BorrowedFd<'_>> = dirs.iter().map(AsFd::as_fd).collect();
    let (mut helper, mut kernel) = (helper(), KernelDeviceAccess::default());
    for nodes in [gpus(8), gpus(3), gpus(8)] {
        let answers = helper.ask(&dirs, &nodes).unwrap();
        assert_eq!(answers, kernel.ask(&dirs, &nodes).unwrap());
        for (n, answers) in answers.iter().take(150).enumerate() {
            assert_eq!(bits(answers.as_ref().unwrap()), format!("{n:08b}")[..nodes.len()]);
        }
        assert_eq!(answers[150], answers[5], "inherited by the step");
        assert_eq!(answers[151], Ok(DeviceAccess::NoProgram));
    }
    assert_eq!(helper.ask(&[], &gpus(2)), Ok(Vec::new()));
    give(&groups[7], "11");
    assert_eq!(bits(helper.ask(&dirs[7..8], &gpus(2)).unwrap()[0].as_ref().unwrap()), "11");
    give(&groups[7], "00000111");
    let after: Vec<_> = groups.iter().map(|group| attached(group)).collect();
    let flags = |all: &[(Vec<u32>, u32, Vec<u32>)]| all.iter().map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(flags(&before), flags(&after));
    assert!(before.iter().zip(&after).enumerate().all(|(n, (a, b))| n == 7 || a == b));
}

#[test]
fn it_has_two_capabilities_one_descriptor_and_no_way_to_more() {
    if skip_without_groups() {
        return;
    }
    let mut helper = helper();
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "helper-confined");
    let group = job(&top, "job", "01");
    let dir = File::open(&group).unwrap();
    for _ in 0..3 {
        assert_eq!(bits(helper.ask(&[dir.as_fd()], &gpus(2)).unwrap()[0].as_ref().unwrap()), "01");
    }
    let pid = helper.pid();
    for (set, expected) in [("CapEff", TWO), ("CapPrm", TWO), ("CapBnd", TWO), ("CapInh", 0), ("CapAmb", 0)] {
        assert_eq!(capabilities(pid, set), expected, "{set}");
    }
    assert_eq!(status(pid, "Seccomp"), "2", "a filter");
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Threads"), "1");
    assert_eq!(status(pid, "Name"), "device-helper");
    let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert_eq!(title, b"jobledger-exporter\0device-helper\0");
    assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), b"");
    assert_eq!(descriptors(pid), 1, "the socket");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let kib: u64 = status(pid, "VmRSS").split(' ').next().unwrap().parse().unwrap();
    let own: u64 = status(pid, "RssAnon").split(' ').next().unwrap().parse().unwrap();
    eprintln!("memory of the helper: {kib} KiB, of which its own {own} KiB");
    assert!(own < 2048, "{own} KiB");
}

#[test]
fn signals_to_the_service_do_not_end_it_and_the_end_of_the_exporter_does() {
    if skip_without_groups() {
        return;
    }
    let mut helper = helper();
    let pid = helper.pid();
    for all in [Signal::TERM, Signal::HUP, Signal::INT] {
        signal(pid, all);
    }
    let dir = File::open(cgroup2_mount().unwrap()).unwrap();
    assert!(helper.ask(&[dir.as_fd()], &gpus(1)).is_ok());
    drop(helper);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "ended and waited for");

    // Another that dies without a word.
    let script = "
import socket, subprocess, sys, time
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
helper = subprocess.Popen([sys.argv[1], 'device-helper'], stdin=theirs, stdout=subprocess.DEVNULL)
theirs.close()
assert ours.recv(100)[1] == 0
print(helper.pid, flush=True)
time.sleep(600)
";
    let mut parent =
        Command::new("python3").args(["-c", script, BINARY]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = line.trim().parse().unwrap();
    assert!(runs(pid));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the helper ends with its exporter", || !runs(pid));
}

#[test]
fn one_that_ends_or_hangs_is_an_error_at_once_and_no_hang() {
    if skip_without_groups() {
        return;
    }
    let dir = File::open(cgroup2_mount().unwrap()).unwrap();
    let mut helper = helper();
    let pid = helper.pid();
    signal(pid, Signal::STOP);
    let mut ask = |limit: Duration| {
        let (slept, answer) = quiet_time(|| helper.ask(&[dir.as_fd()], &gpus(1)));
        assert!(slept < limit, "{slept:?}");
        answer
    };
    let error = ask(Duration::from_secs(3)).unwrap_err();
    assert!(error.to_string().contains("answer of the device helper"), "{error}");
    for _ in 0..100 {
        assert_eq!(ask(Duration::from_millis(500)).unwrap_err(), error, "nobody waits twice");
    }
    signal(pid, Signal::CONT);
    eventually("it answers again", || {
        let dir = File::open(cgroup2_mount().unwrap()).unwrap();
        dir.metadata().is_ok() && !status(pid, "State").starts_with('T')
    });
    eventually("it answers", || ask(Duration::from_secs(3)).is_ok());
    signal(pid, Signal::KILL);
    let error = ask(Duration::from_secs(1)).unwrap_err();
    assert!(error.to_string().starts_with("denied: the device helper ended"), "{error}");
    assert_eq!(ask(Duration::from_millis(100)).unwrap_err(), error);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "no zombie");
}

#[test]
fn by_hand_it_is_refused_and_no_help_has_it() {
    let by_hand = Command::new(BINARY).arg("device-helper").stdin(Stdio::null()).output().unwrap();
    assert_eq!(by_hand.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&by_hand.stderr).contains("not by hand"));
    for document in [&["--help"][..], &["generate", "man"], &["generate", "bash"], &["generate", "flags"]] {
        let help = Command::new(BINARY).args(document).output().unwrap();
        // But the flag that does without it.
        let answers = String::from_utf8_lossy(&help.stdout).replace("no-device-helper", "");
        assert!(help.status.success() && !answers.contains("device-helper"), "{answers}");
    }
}

/// As under systemd with `User=` and `AmbientCapabilities=`, and as with capabilities that are only permitted.
#[test]
fn a_user_of_its_own_hands_its_capabilities_down() {
    if skip_without_groups() {
        return;
    }
    let scratch = Scratch::new("helper-binary");
    // The target directory may be closed to others.
    let copy = scratch.path().join("exporter");
    jobledger_testkit::tools::install(Path::new(BINARY), &copy);
    let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "helper-user");
    let group = job(&top, "job", "10");
    let two = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    for (held, inheritable) in [(two, two), (two, CapabilitySet::empty()), (CapabilitySet::NET_ADMIN, two)] {
        let (copy, dir) = (copy.clone(), File::open(&group).unwrap());
        std::thread::spawn(move || {
            let inheritable = inheritable & held;
            rustix::thread::set_keep_capabilities(true).unwrap();
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            let sets = CapabilitySets { effective: held, permitted: held, inheritable };
            rustix::thread::set_capabilities(None, sets).unwrap();
            let started = start_from(&copy, None);
            assert_eq!(rustix::thread::capabilities(None).unwrap(), sets, "as before");
            for capability in two.iter() {
                assert_eq!(rustix::thread::capability_is_in_ambient_set(capability), Ok(false));
            }
            if held != two {
                assert!(started.unwrap_err().to_string().contains("CAP_SYS_ADMIN"));
                return;
            }
            let mut helper = started.unwrap();
            // What the exporter does then.
            privileges::drop_capabilities(CapabilitySet::empty()).unwrap();
            assert_eq!(bits(helper.ask(&[dir.as_fd()], &gpus(2)).unwrap()[0].as_ref().unwrap()), "10");
            assert_eq!(status(helper.pid(), "Uid").split_whitespace().next(), Some("65534"));
            assert_eq!(capabilities(helper.pid(), "CapEff"), TWO);
        })
        .join()
        .unwrap();
    }
}

/// An exporter on a node with a GPU's node, where SLURM has its groups.
fn exporter(site: &Site, dev: &Path) -> Exporter {
    fs::write(dev.join("nvidia0"), "").unwrap();
    let flags = [
        format!("--path.cgroupfs={}", site.cgroupfs().display()),
        format!("--path.dev={}", dev.display()),
        "--jobs.metadata-dir=/nonexistent".to_owned(),
        "--collector.gpu".to_owned(),
    ];
    Exporter::start(BINARY, &flags)
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn the_exporter_keeps_no_capability_serves_without_its_helper_and_takes_it_along() {
    if skip_without_groups() {
        return;
    }
    let (site, dev) = (Site::v2("slurmstepd.scope").unwrap(), Scratch::new("helper-dev"));
    let first = exporter(&site, dev.path());
    let helpers = children(first.pid());
    assert_eq!(helpers.len(), 1);
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
        assert_eq!(capabilities(first.pid(), set), 0, "{set}");
    }
    assert_eq!(capabilities(helpers[0], "CapEff"), TWO);
    assert_eq!(status(helpers[0], "Seccomp"), "2");
    assert_eq!(descriptors(helpers[0]), 1);
    signal(helpers[0], Signal::KILL);
    for _ in 0..3 {
        assert!(first.metrics().contains("jobledger_exporter_build_info"));
    }
    assert_eq!(first.terminate(), Some(0));

    let second = exporter(&site, dev.path());
    let helpers = children(second.pid());
    signal(second.pid(), Signal::KILL);
    eventually("the helper ends with its exporter", || !runs(helpers[0]));
}
