//! The exporter's end.

use std::ffi::OsString;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags,
    SocketType, recv, sendmsg, shutdown, socketpair,
};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Kind, Ready, StartError};

/// How long it may take to come up, on a node that is just booting.
const BIRTH: Duration = Duration::from_secs(5);

/// How long its end may take once its socket is closed, before it is left to itself.
const END: Duration = Duration::from_secs(1);

/// Descriptors that a message can carry, at most.
const MOST_DESCRIPTORS: usize = 64;

/// A helper that runs.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    child: Child,
    message: Vec<u8>,
    gone: bool,
    /// Whether the kernel had Landlock for it.
    pub landlock: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The helper is not there any more, or nothing that it says can be believed.
    Ended,
    /// It does not answer in time.
    Late,
    /// The socket failed.
    Failed(Errno),
}

impl Connection {
    /// Starts a helper from a binary, with `argument` behind its word if there is one. To be called before privileges are dropped and before any
    /// thread is started. `longest` is how long its answers may be, in bytes.
    #[expect(
        clippy::disallowed_methods,
        reason = "the helpers are the only processes that the exporter starts, once, before it serves"
    )]
    pub fn start(
        binary: &Path,
        kind: &Kind,
        argument: Option<OsString>,
        longest: usize,
    ) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::Start(kind.name, error);
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| failed(errno.into()))?;
        let before = hand_down(kind.handed);
        let child = std::process::Command::new(binary)
            .arg0("jobledger-exporter")
            .arg(kind.word())
            .args(argument)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        take_back(before);
        let child = child.map_err(failed)?;
        let mut helper =
            Self { socket, child, message: vec![0; longest.max(512)], gone: false, landlock: false };
        match helper.receive(Instant::now() + BIRTH).map(Ready::parse) {
            Ok(Ok(Ready::Confined { landlock })) => {
                helper.landlock = landlock;
                Ok(helper)
            }
            Ok(Ok(Ready::Refused(why))) => Err(StartError::Refused(kind.name, why)),
            _ => Err(StartError::Silent(kind.name)),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it was ended.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The next message, until a deadline.
    pub fn receive(&mut self, deadline: Instant) -> Result<&[u8], Silence> {
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

    /// Sends a message, with descriptors beside it; it does not wait.
    pub fn send(&self, message: &[u8], beside: &[BorrowedFd<'_>]) -> Result<(), Silence> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !beside.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(beside)) {
            return Err(Silence::Failed(Errno::TOOBIG));
        }
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(message)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED) => return Err(Silence::Ended),
                Err(Errno::AGAIN) => return Err(Silence::Late),
                Err(errno) => return Err(Silence::Failed(errno)),
            }
        }
    }

    /// Ends it, and waits for it. By then the exporter may not signal any process (seccomp, Landlock), so its socket is closed
    /// first, at which it ends by itself. One that is stopped ends when it goes on.
    pub fn end(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        let _ = shutdown(&self.socket, Shutdown::Both);
        if self.child.kill().is_ok() {
            let _ = self.child.wait();
            return;
        }
        let deadline = Instant::now() + END;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What this thread's capabilities were before some were handed down.
struct Before {
    sets: CapabilitySets,
    raised: CapabilitySet,
}

/// A user other than root loses its capabilities at execve unless they are ambient (capabilities(7)).
fn hand_down(capabilities: CapabilitySet) -> Option<Before> {
    let sets = rustix::thread::capabilities(None).ok()?;
    let handed = sets.permitted & capabilities;
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
