//! The helper's end: reads questions, checks them, and answers them one by one.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use privileges::helper::user_of;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};

use super::KIND;
use super::confine::confinement;
use super::protocol::{Answer, LONGEST_QUESTION, MOST_CGROUPS, Question, write_answer};
use crate::KernelDeviceAccess;

/// Magic number of the cgroup v2 file system (include/uapi/linux/magic.h, `CGROUP2_SUPER_MAGIC`).
const CGROUP2: u64 = 0x6367_7270;

/// The whole run of the process, which has its socket as standard input. Called before anything else is done in it.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Ok(user) = user_of(arguments) else { return ExitCode::FAILURE };
    KIND.run(user, confinement(), serve)
}

/// Answers until the client is gone. Malformed questions are not answered.
pub(super) fn serve(socket: BorrowedFd<'_>) {
    let mut access_source = KernelDeviceAccess::default();
    let mut message = vec![0; LONGEST_QUESTION];
    loop {
        let incoming = match receive(socket, &mut message) {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return,
            Err(Errno::INTR | Errno::NOMEM | Errno::NOBUFS) => continue,
            Err(_) => return,
        };
        let ReceivedMessage::Question(question, cgroups) = incoming else { continue };
        let sent: Vec<Answer> = match access_source.begin(&question.nodes) {
            Ok(()) => cgroups.iter().map(|cgroup| answer(&mut access_source, cgroup.as_fd())).collect(),
            Err(errno) => cgroups.iter().map(|_| Err(errno)).collect(),
        };
        drop(cgroups);
        let answer = write_answer(question.number, &sent);
        loop {
            match send(socket, &answer, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
    }
}

enum ReceivedMessage {
    Question(Question, Vec<OwnedFd>),
    Noise,
}

/// The next message; `None` at the end. Descriptors that come with a malformed one are closed.
fn receive(socket: BorrowedFd<'_>, message: &mut [u8]) -> Result<Option<ReceivedMessage>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_CGROUPS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(message)];
    let received = recvmsg(socket, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors: Vec<OwnedFd> = beside
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let torn = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let bytes = message.get(..received.bytes).filter(|_| !torn).unwrap_or_default();
    Ok(Some(match Question::parse(bytes, descriptors.len()) {
        Ok(question) => ReceivedMessage::Question(question, descriptors),
        Err(_) => ReceivedMessage::Noise,
    }))
}

/// What a descriptor is is not believed: whoever asks may send any.
fn answer(access_source: &mut KernelDeviceAccess, cgroup: BorrowedFd<'_>) -> Answer {
    let kind = rustix::fs::fstatfs(cgroup)?.f_type;
    if u64::try_from(kind) != Ok(CGROUP2) {
        return Err(Errno::BADF);
    }
    access_source.device_access(cgroup)
}
