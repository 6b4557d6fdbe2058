//! What somebody who took the exporter over can make of the helper: nothing but questions.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpu_binding::DeviceAccess;
use gpu_binding::helper::protocol::{LONGEST_ANSWER, MOST_CGROUPS, Question, Ready, parse_answer};
use jobledger_testkit::cgroups::{cgroup2_mount, skip_without_groups};
use jobledger_testkit::device_programs::{load, slurm};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};

use super::{BINARY, PATIENCE, descriptors, gpus, status};

/// Whoever took the exporter over.
struct Attacker {
    socket: OwnedFd,
    child: Child,
    number: u32,
}

impl Attacker {
    fn new() -> Self {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let child = Command::new(BINARY).arg("device-helper").stdin(Stdio::from(theirs)).spawn().unwrap();
        let mut attacker = Self { socket, child, number: 0 };
        let ready = attacker.receive(PATIENCE).unwrap();
        assert!(matches!(Ready::parse(&ready), Ok(Ready::Confined { .. })));
        attacker
    }

    fn say(&self, message: &[u8], beside: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !beside.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(beside)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut control, flags)
    }

    fn receive(&mut self, patience: Duration) -> Option<Vec<u8>> {
        let patience = Timespec::try_from(patience).unwrap();
        let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&patience)).unwrap();
        let mut message = vec![0; 2 * LONGEST_ANSWER];
        let length =
            (ready > 0).then(|| recv(&self.socket, &mut message[..], RecvFlags::empty()).unwrap().1)?;
        message.truncate(length);
        Some(message)
    }

    /// A question as an honest exporter asks it, and what comes back for each descriptor.
    fn ask(&mut self, cgroups: &[BorrowedFd<'_>]) -> Vec<Result<DeviceAccess, rustix::io::Errno>> {
        self.number += 1;
        let question = Question { number: self.number, cgroups: cgroups.len(), nodes: gpus(2) };
        self.say(&question.write().unwrap(), cgroups).unwrap();
        let (number, answers) = parse_answer(&self.receive(PATIENCE).unwrap(), cgroups.len(), 2).unwrap();
        assert_eq!(number, self.number);
        answers
    }

    /// It is as it was: it serves, and holds nothing.
    fn is_unharmed(&mut self) {
        let dir = File::open(cgroup2_mount().unwrap()).unwrap();
        assert!(self.ask(&[dir.as_fd()])[0].is_ok());
        assert_eq!(descriptors(self.child.id()), 1);
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_no_question_is_not_answered_and_leaves_nothing_behind() {
    if skip_without_groups() {
        return;
    }
    let mut attacker = Attacker::new();
    let dir = File::open(cgroup2_mount().unwrap()).unwrap();
    let valid = Question { number: 1, cgroups: 1, nodes: gpus(2) }.write().unwrap();
    let huge = vec![0xd1; 100_000];
    let mut many_nodes = valid.clone();
    many_nodes[2..4].fill(0xff);
    let messages: [&[u8]; 8] = [
        b"x",
        &valid[..7],
        &valid[..valid.len() - 1],
        &huge,
        &many_nodes,
        &[0xd1; 8],
        &[0xd2; 24],
        &[0xd3, 0, 1],
    ];
    for message in messages {
        attacker.say(message, &[dir.as_fd()]).unwrap();
    }
    // More or fewer descriptors than the question says, and more than are taken.
    attacker.say(&valid, &[]).unwrap();
    for count in [2, MOST_CGROUPS, MOST_CGROUPS + 1, 200, 253] {
        attacker.say(&valid, &vec![dir.as_fd(); count]).unwrap();
    }
    attacker.is_unharmed();
}

#[test]
fn only_directories_of_cgroup_v2_are_asked_about() {
    if skip_without_groups() {
        return;
    }
    let mut attacker = Attacker::new();
    let mount = cgroup2_mount().unwrap();
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let files: Vec<OwnedFd> = ["/", "/proc", "/dev/null", "/etc/passwd", "/sys/fs/cgroup", "/proc/self/mem"]
        .iter()
        .map(|path| File::open(path).unwrap().into())
        .chain([File::open(mount.join("cgroup.procs")).unwrap().into(), pipe])
        .chain(load(&slurm(&[])))
        .collect();
    let wrong: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    for answers in attacker.ask(&wrong) {
        assert_eq!(answers, Err(rustix::io::Errno::BADF));
    }
    attacker.is_unharmed();
}

#[test]
fn a_flood_is_held_up_and_then_answered_in_turn() {
    if skip_without_groups() {
        return;
    }
    let mut attacker = Attacker::new();
    let dir = File::open(cgroup2_mount().unwrap()).unwrap();
    let full = vec![dir.as_fd(); MOST_CGROUPS];
    let question = Question { number: 7, cgroups: MOST_CGROUPS, nodes: gpus(1000) }.write().unwrap();
    // Its answers are not read, so after a while it reads no more.
    let mut sent = 0_u32;
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && sent < 100_000 {
        match attacker.say(&question, &full) {
            Ok(_) => sent += 1,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let own: u64 = status(attacker.child.id(), "RssAnon").split(' ').next().unwrap().parse().unwrap();
    assert!(own < 4096, "{own} KiB");
    for _ in 0..sent {
        let answer = attacker.receive(PATIENCE).expect("every question is answered");
        assert_eq!(parse_answer(&answer, MOST_CGROUPS, 1000).unwrap().0, 7);
    }
    attacker.is_unharmed();
}
