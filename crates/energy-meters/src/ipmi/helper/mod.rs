//! A process of its own that alone holds the BMC's device, and asks it three questions.
//!
//! Who holds `/dev/ipmi0` can switch the node off and change the BMC's users and firmware: the driver knows no right that only
//! reads. So the exporter opens the device at the start, hands it to its helper, and closes it. The helper has no capability, no
//! file, two descriptors and some twenty system calls; of ioctl(2) the two commands that send and receive, on the device alone.
//! Whoever takes the exporter over can ask for the power and the BMC's maker, each at most once in five seconds.

mod confine;
mod serve;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use kernel_files::{ReadError, SourceError};
use parking_lot::Mutex;
use privileges::User;
use privileges::helper::{
    Connection, Dialogue, Kind, Malformed, Silence, StartError, user_argument, user_of,
};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
#[cfg(test)]
pub(super) use serve::{Desk, PAUSE};

use super::Ask;
use super::protocol::{ANSWER_LENGTH, Answer, DEVICE, LIMIT, Question};

/// The device is open, so it needs nothing.
pub const KIND: Kind = Kind {
    word: c"bmc-helper",
    name: "BMC helper",
    handed: CapabilitySet::empty(),
    kept: CapabilitySet::empty(),
    required: CapabilitySet::empty(),
};

/// The whole run of the process, which has its socket as standard input. Called before anything else is done in it.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Ok(user) = user_of(arguments) else { return ExitCode::FAILURE };
    KIND.run(user, confine::confinement(), serve::serve)
}

/// The running helper.
#[derive(Debug)]
pub struct Helper(Dialogue);

/// Starts the helper of a binary, as `user` if one is given, and gives it the device. To be called before privileges are dropped
/// and before any thread is started.
pub fn start_from(binary: &Path, user: Option<&User>, device: impl AsFd) -> Result<Helper, StartError> {
    let connection = Connection::start(binary, &KIND, user.map(user_argument), ANSWER_LENGTH)?;
    connection.send(&DEVICE, &[device.as_fd()]).map_err(|_| StartError::Silent(KIND.name))?;
    Ok(Helper(Dialogue::new(connection)))
}

impl Helper {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Whether the kernel had Landlock for it.
    pub fn landlock(&self) -> bool {
        self.0.landlock()
    }

    /// Asks the BMC. `now` is the present time.
    pub fn ask(&mut self, question: Question, now: Instant) -> Result<Answer, SourceError> {
        let parse = |answer: &[u8]| match Answer::parse(answer) {
            Ok(answer) if answer.question == question => Ok(answer),
            _ => Err(Malformed),
        };
        let write = |number| Ok(question.write(number).to_vec());
        self.0.ask(write, &[], now + LIMIT * 2, parse).map_err(|silence| self.error(silence))
    }

    fn error(&mut self, silence: Silence) -> SourceError {
        match silence {
            Silence::Ended => {
                if self.0.is_news() {
                    tracing::warn!("the BMC helper ended: the BMC is not asked any more until a restart");
                }
                SourceError::Denied { what: "the BMC helper ended: the BMC's power".to_owned() }
            }
            Silence::Late => {
                if self.0.is_news() {
                    tracing::warn!("the BMC helper does not answer");
                }
                let error = ReadError::Io(Errno::TIMEDOUT.raw_os_error());
                SourceError::Io { file: "answer of the BMC helper", error }
            }
            Silence::Failed(errno) => {
                SourceError::Io { file: "socket of the BMC helper", error: ReadError::from_errno(errno) }
            }
        }
    }
}

/// The helper as meters share it that are found one after the other.
pub(super) type Shared = Arc<Mutex<Helper>>;

impl Ask for Shared {
    fn ask(&mut self, question: Question, now: Instant) -> Result<Answer, SourceError> {
        self.lock().ask(question, now)
    }
}

#[cfg(test)]
mod tests;
