//! The exporter's end.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gpu_devices::DeviceNode;
use kernel_files::{ReadError, SourceError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::confine::CAPABILITIES;
use super::protocol::{Answer, LONGEST_ANSWER, MOST_CGROUPS, Question, Ready, number_of, parse_answer};
use crate::device_access::{place, too_many_nodes};
use crate::{DeviceAccess, DeviceAccessSource, MOST_NODES};

/// How long the helper may take to answer; a question of a hundred cgroups takes some hundred microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long it may take to come up, on a node that is just booting.
const BIRTH: Duration = Duration::from_secs(5);

/// Why there is no helper.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be started.
    #[error("the device helper cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// It said nothing, or something else.
    #[error("the device helper does not come up")]
    Silent,
    /// It could not confine itself, and does not serve.
    #[error("the device helper gave up: {0}")]
    Refused(String),
}

/// The running helper.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
    child: Child,
    /// Whether the kernel had Landlock for it.
    pub landlock: bool,
    message: Vec<u8>,
    last: u32,
    /// The question that was not answered in time.
    unanswered: Option<u32>,
    /// It is not there any more.
    gone: bool,
    logged: bool,
}

/// Starts the helper. To be called before capabilities are dropped and before any thread is started.
pub fn start() -> Result<Helper, StartError> {
    start_from(Path::new("/proc/self/exe"))
}

/// As [`start`], of a given binary.
#[expect(
    clippy::disallowed_methods,
    reason = "the one process that the exporter starts, once, before it serves"
)]
pub fn start_from(binary: &Path) -> Result<Helper, StartError> {
    let flags = SocketFlags::CLOEXEC;
    let (socket, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(std::io::Error::from)?;
    let before = hand_down();
    let child = std::process::Command::new(binary)
        .arg0("jobledger-exporter")
        .arg(super::SUBCOMMAND)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    take_back(before);
    let mut helper = Helper {
        socket,
        child: child?,
        landlock: false,
        message: vec![0; LONGEST_ANSWER],
        last: 0,
        unanswered: None,
        gone: false,
        logged: false,
    };
    match helper.receive(Instant::now() + BIRTH).map(Ready::parse) {
        Ok(Ok(Ready::Confined { landlock })) => {
            helper.landlock = landlock;
            Ok(helper)
        }
        Ok(Ok(Ready::Refused(why))) => Err(StartError::Refused(why)),
        _ => Err(StartError::Silent),
    }
}

/// What this thread's capabilities were before some were handed down.
struct Before {
    sets: CapabilitySets,
    raised: CapabilitySet,
}

/// A user other than root loses its capabilities at execve unless they are ambient (capabilities(7)).
fn hand_down() -> Option<Before> {
    let sets = rustix::thread::capabilities(None).ok()?;
    let handed = sets.permitted & CAPABILITIES;
    let handing = CapabilitySets { inheritable: sets.inheritable | handed, ..sets };
    rustix::thread::set_capabilities(None, handing).ok()?;
    let mut raised = CapabilitySet::empty();
    for capability in handed.iter() {
        // Refused where the security bits of the process say so; root's helper has them nevertheless.
        if rustix::thread::capability_is_in_ambient_set(capability) == Ok(false)
            && rustix::thread::configure_capability_in_ambient_set(capability, true).is_ok()
        {
            raised |= capability;
        }
    }
    Some(Before { sets, raised })
}

fn take_back(before: Option<Before>) {
    let Some(before) = before else { return };
    for capability in before.raised.iter() {
        let _ = rustix::thread::configure_capability_in_ambient_set(capability, false);
    }
    let _ = rustix::thread::set_capabilities(None, before.sets);
}

/// Why there is no answer.
enum Silence {
    Ended,
    Late,
    Failed(Errno),
}

impl Helper {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next message, until a deadline.
    fn receive(&mut self, deadline: Instant) -> Result<&[u8], Silence> {
        loop {
            match recv(&self.socket, self.message.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(Silence::Ended),
                Ok((_, length)) => return self.message.get(..length).ok_or(Silence::Ended),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Silence::Late);
                    }
                    let left = Timespec::try_from(left).map_err(|_| Silence::Late)?;
                    match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(Silence::Failed(errno)),
                    }
                }
                Err(errno) => return Err(Silence::Failed(errno)),
            }
        }
    }

    fn send(&self, message: &[u8], cgroups: &[BorrowedFd<'_>]) -> Result<(), Silence> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_CGROUPS))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !cgroups.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(cgroups)) {
            return Err(Silence::Failed(Errno::TOOBIG));
        }
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(message)], &mut beside, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED) => return Err(Silence::Ended),
                Err(Errno::AGAIN) => return Err(Silence::Late),
                Err(errno) => return Err(Silence::Failed(errno)),
            }
        }
    }

    fn exchange(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
        deadline: Instant,
    ) -> Result<Vec<Answer>, Silence> {
        // One question at a time: while an old one is not answered, no other is asked.
        while let Some(number) = self.unanswered {
            let old = self.receive(Instant::now())?;
            if number_of(old) == Some(number) {
                self.unanswered = None;
            }
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let question = Question { number, cgroups: cgroups.len(), nodes: nodes.to_vec() };
        self.send(&question.write().ok_or(Silence::Failed(Errno::TOOBIG))?, cgroups)?;
        self.unanswered = Some(number);
        let answer = self.receive(deadline)?;
        match parse_answer(answer, cgroups.len(), nodes.len()) {
            Ok((answered, results)) if answered == number => {
                self.unanswered = None;
                Ok(results)
            }
            // Nothing that it says from here on can be believed.
            _ => Err(Silence::Ended),
        }
    }

    fn error(&mut self, silence: Silence) -> SourceError {
        match silence {
            Silence::Ended => {
                self.end();
                if !std::mem::replace(&mut self.logged, true) {
                    tracing::warn!("the device helper ended: which GPUs jobs may open is not known any more");
                }
                let what = "the device helper ended: the programs that guard the devices of jobs".to_owned();
                SourceError::Denied { what }
            }
            Silence::Late => {
                if !std::mem::replace(&mut self.logged, true) {
                    tracing::warn!("the device helper does not answer");
                }
                let error = ReadError::Io(Errno::TIMEDOUT.raw_os_error());
                SourceError::Io { file: "answer of the device helper", error }
            }
            Silence::Failed(errno) => {
                SourceError::Io { file: "socket of the device helper", error: ReadError::from_errno(errno) }
            }
        }
    }

    /// Makes sure that it has ended, and leaves nothing of it.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.gone, true) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}

impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl DeviceAccessSource for Helper {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        if self.gone {
            return Err(self.error(Silence::Ended));
        }
        if nodes.len() > MOST_NODES {
            return Err(too_many_nodes());
        }
        let deadline = Instant::now() + PATIENCE;
        let mut all = Vec::with_capacity(cgroups.len());
        for cgroups in cgroups.chunks(MOST_CGROUPS) {
            let results = self.exchange(cgroups, nodes, deadline).map_err(|silence| self.error(silence))?;
            for results in results {
                all.push(place(results)?);
            }
        }
        self.logged = false;
        Ok(all)
    }
}
