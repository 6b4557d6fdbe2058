//! The helper process that alone holds the BMC's device: the real binary, with another device in the place of the BMC's, which
//! knows none of its commands. What it says to a BMC is in the crate's tests and in the scenario `bmc` of tests/e2e.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use energy_meters::bmc_helper::{Helper, start_from};
use energy_meters::bmc_protocol::{Answer, Failure, Question};
use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::machine::Machine;
use jobledger_testkit::skip::skip_without_root;
use jobledger_testkit::tools::for_everybody;
use jobledger_testkit::wait::{LONGEST, quiet_time};
use privileges::User;
use privileges::helper::Ready;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");

fn device() -> File {
    File::open("/dev/null").unwrap()
}

fn helper() -> Helper {
    start_from(Path::new(BINARY), None, device()).unwrap()
}

fn status(pid: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{key}: {text}")).trim().replace('\t', " ")
}

/// What its descriptors lead to, by their numbers.
fn descriptors(pid: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let open = |entry: fs::DirEntry| {
        let number = entry.file_name().to_string_lossy().parse().ok()?;
        Some((number, fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
    };
    let mut open: Vec<_> = entries.filter_map(open).collect();
    open.sort();
    open
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

fn holds_two_descriptors(pid: u32, device: &str) {
    let open = descriptors(pid);
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(open[0].0 == 0 && open[0].1.starts_with("socket:"), "{open:?}");
    assert_eq!(open[1], (1, device.to_owned()));
}

#[test]
fn it_holds_the_device_and_nothing_else() {
    let mut helper = helper();
    // ENOTTY is the device's own answer: the command passed the filter.
    let answer = helper.ask(Question::PowerReading, Instant::now()).unwrap();
    assert_eq!(answer.outcome, Err(Failure::Device(Errno::NOTTY)));
    let again = helper.ask(Question::PowerReading, Instant::now()).unwrap();
    assert!(again.age_ms > 0 && again.outcome == answer.outcome, "{again:?}");
    let pid = helper.pid();
    holds_two_descriptors(pid, "/dev/null");
    for set in ["CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"] {
        // Who is no root and has no capability to give up keeps its bounding set, of which nothing can come.
        if set != "CapBnd" || rustix::process::geteuid().is_root() {
            assert_eq!(status(pid, set).trim_start_matches('0'), "", "{set}");
        }
    }
    let one = |key: &str| status(pid, key);
    assert_eq!([one("Seccomp"), one("NoNewPrivs"), one("Threads")], ["2", "1", "1"]);
    assert_eq!(one("Name"), "bmc-helper");
    let own: u64 = one("RssAnon").split(' ').next().unwrap().parse().unwrap();
    assert!(own < 2048, "{own} KiB");
    for all in [Signal::TERM, Signal::HUP, Signal::INT] {
        signal(pid, all);
    }
    assert!(helper.ask(Question::DeviceId, Instant::now()).is_ok(), "signals to the service do not end it");
    drop(helper);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "ended and waited for");
}

#[test]
fn it_becomes_the_exporters_user() {
    if skip_without_root("becoming another user") {
        return;
    }
    let user = User { name: None, uid: 4321, gid: 4322, groups: Vec::new() };
    let mut helper = start_from(&for_everybody(Path::new(BINARY)), Some(&user), device()).unwrap();
    assert!(helper.ask(Question::DeviceId, Instant::now()).is_ok());
    let status = |key| status(helper.pid(), key);
    assert_eq!([status("Uid"), status("Gid")], ["4321 4321 4321 4321", "4322 4322 4322 4322"]);
    assert_eq!(status("Groups"), "");
}

#[test]
fn one_that_ends_or_hangs_is_an_error_and_no_hang() {
    let mut helper = helper();
    let pid = helper.pid();
    signal(pid, Signal::STOP);
    let mut ask = |limit: Duration| {
        let (slept, answer) = quiet_time(|| helper.ask(Question::PowerReading, Instant::now()));
        assert!(slept < limit, "{slept:?}");
        answer
    };
    let error = ask(Duration::from_secs(6)).unwrap_err();
    assert!(error.to_string().contains("answer of the BMC helper"), "{error}");
    for _ in 0..100 {
        assert_eq!(ask(Duration::from_millis(500)).unwrap_err(), error, "nobody waits twice");
    }
    signal(pid, Signal::CONT);
    eventually("it answers", || ask(Duration::from_secs(6)).is_ok());
    signal(pid, Signal::KILL);
    let error = ask(Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.to_string(), "denied: the BMC helper ended: the BMC's power");
    assert_eq!(ask(Duration::from_millis(100)).unwrap_err(), error);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "no zombie");
}

#[test]
fn by_hand_it_is_refused_and_no_help_has_it() {
    let by_hand = Command::new(BINARY).arg("bmc-helper").stdin(Stdio::null()).output().unwrap();
    assert_eq!(by_hand.status.code(), Some(64));
    let help = Command::new(BINARY).arg("--help").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("bmc-helper"));
}

/// Whoever took the exporter over.
struct Attacker {
    socket: OwnedFd,
    child: Child,
}

impl Attacker {
    fn new() -> Self {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let child = Command::new(BINARY).arg("bmc-helper").stdin(Stdio::from(theirs)).spawn().unwrap();
        let attacker = Self { socket, child };
        let ready = attacker.receive(LONGEST).unwrap();
        assert!(matches!(Ready::parse(&ready), Ok(Ready::Confined { .. })));
        attacker
    }

    fn say(&self, message: &[u8], beside: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(beside.is_empty() || control.push(SendAncillaryMessage::ScmRights(beside)));
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)
    }

    fn receive(&self, patience: Duration) -> Option<Vec<u8>> {
        let patience = Timespec::try_from(patience).unwrap();
        let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&patience)).unwrap();
        let mut message = vec![0; 4096];
        let length =
            (ready > 0).then(|| recv(&self.socket, &mut message[..], RecvFlags::empty()).unwrap().1)?;
        message.truncate(length);
        Some(message)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_no_question_is_not_answered_and_no_second_device_taken() {
    let attacker = Attacker::new();
    let (null, zero) = (device(), File::open("/dev/zero").unwrap());
    attacker.say(&[0xd8], &[null.as_fd()]).unwrap();
    let valid = Question::PowerReading.write(1);
    let longer = [&valid[..], &[0]].concat();
    let huge = vec![0xd6; 100_000];
    // A request of the driver's: chassis control, power down.
    let raw = [0x0c, 0, 0, 0, 0x0f, 0, 0, 0, 0x00, 0x02, 0x01, 0x00, 0x00];
    let messages: [&[u8]; 9] = [
        b"x",
        &valid[..7],
        &longer,
        &huge,
        &[0xd6, 4, 0, 0, 0, 0, 0, 0],
        &[0xd7; 24],
        &[0xd8],
        &[0xd3, 0, 1],
        &raw,
    ];
    for message in messages {
        attacker.say(message, &[zero.as_fd()]).unwrap();
    }
    // Lenovo's command, before the BMC said that it is Lenovo's.
    attacker.say(&Question::XccEnergy.write(2), &[]).unwrap();
    attacker.say(&Question::PowerReading.write(3), &vec![zero.as_fd(); 253]).unwrap();
    let answer = Answer::parse(&attacker.receive(LONGEST).unwrap()).unwrap();
    assert_eq!((answer.number, answer.outcome), (3, Err(Failure::Device(Errno::NOTTY))), "the first answer");
    holds_two_descriptors(attacker.child.id(), "/dev/null");
}

#[test]
fn without_a_device_it_ends() {
    let null = device();
    for (message, beside) in
        [(&[0xd8][..], &[][..]), (&[0xd9], &[null.as_fd()]), (&[0xd8, 0], &[null.as_fd()])]
    {
        let mut attacker = Attacker::new();
        attacker.say(message, beside).unwrap();
        assert_eq!(attacker.child.wait().unwrap().code(), Some(0));
    }
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn start(machine: &Machine, flags: &[&str]) -> Exporter {
    let mut all = machine.path_flags();
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Exporter::start(BINARY, &all)
}

#[test]
fn the_exporter_does_not_keep_the_device_and_goes_on_without_its_helper() {
    let machine = Machine::fixture("v2-idle");
    machine.write("dev/ipmi0", "");
    let device = machine.path("dev/ipmi0").to_string_lossy().into_owned();
    let exporter = start(&machine, &[]);
    let helpers = children(exporter.pid());
    assert_eq!(helpers.len(), 1, "{}", exporter.log());
    holds_two_descriptors(helpers[0], &device);
    let own = descriptors(exporter.pid());
    assert!(own.iter().all(|(_, path)| *path != device), "{own:?}");
    // A file that is no device answers ENOTTY.
    eventually("the device's answer is reported", || exporter.metrics().contains("/dev/ipmi0"));
    signal(helpers[0], Signal::KILL);
    for _ in 0..3 {
        assert!(exporter.metrics().contains("jobledger_exporter_build_info"));
    }
    assert_eq!(exporter.terminate(), Some(0));
}

#[test]
fn it_ends_with_the_exporter_however_that_ends() {
    let machine = Machine::empty();
    machine.write("dev/ipmi0", "");
    let exporter = start(&machine, &[]);
    let helpers = children(exporter.pid());
    signal(exporter.pid(), Signal::KILL);
    let runs = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !matches!(rest.split_whitespace().next(), None | Some("Z")))
    };
    eventually("the helper's end", || !runs(helpers[0]));
}

#[test]
fn where_it_cannot_matter_no_process_is_started() {
    let (none, other) = (Machine::empty(), Machine::empty());
    other.write("dev/ipmi0", "");
    let no_energy = ["--no-collector.energy"];
    for (machine, flags) in [(&none, &[][..]), (&other, &no_energy)] {
        let exporter = start(machine, flags);
        assert!(children(exporter.pid()).is_empty(), "{}", exporter.log());
    }
}
