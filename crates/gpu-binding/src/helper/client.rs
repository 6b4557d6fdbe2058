//! The exporter's end.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use gpu_devices::DeviceNode;
use kernel_files::{ReadError, SourceError};
use privileges::User;
use privileges::helper::{Connection, Dialogue, Silence, StartError, user_argument};
use rustix::io::Errno;

use super::KIND;
use super::protocol::{Answer, LONGEST_ANSWER, MOST_CGROUPS, Question, parse_answer};
use crate::device_access::{place, too_many_nodes};
use crate::{DeviceAccess, DeviceAccessSource, MOST_NODES};

/// How long the helper may take to answer; a question of a hundred cgroups takes some hundred microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The running helper.
#[derive(Debug)]
pub struct Helper(Dialogue);

/// Starts the helper, as `user` if one is given. To be called before privileges are dropped and before any thread is started.
pub fn start(user: Option<&User>) -> Result<Helper, StartError> {
    start_from(Path::new("/proc/self/exe"), user)
}

/// As [`start`], of a given binary.
pub fn start_from(binary: &Path, user: Option<&User>) -> Result<Helper, StartError> {
    let connection = Connection::start(binary, &KIND, user.map(user_argument), LONGEST_ANSWER)?;
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

    fn exchange(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
        deadline: Instant,
    ) -> Result<Vec<Answer>, Silence> {
        let write = |number| {
            let question = Question { number, cgroups: cgroups.len(), nodes: nodes.to_vec() };
            question.write().ok_or(Silence::Failed(Errno::TOOBIG))
        };
        let parse = |answer: &[u8]| {
            parse_answer(answer, cgroups.len(), nodes.len()).map(|(_number, results)| results)
        };
        self.0.ask(write, cgroups, deadline, parse)
    }

    fn error(&mut self, silence: Silence) -> SourceError {
        match silence {
            Silence::Ended => {
                if self.0.is_news() {
                    tracing::warn!("the device helper ended: which GPUs jobs may open is not known any more");
                }
                let what = "the device helper ended: the programs that guard the devices of jobs".to_owned();
                SourceError::Denied { what }
            }
            Silence::Late => {
                if self.0.is_news() {
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
}

impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DeviceAccessSource for Helper {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
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
        Ok(all)
    }
}
