//! The exporter's end.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use gpu_devices::DeviceNode;
use kernel_files::{ReadError, SourceError};
use privileges::User;
use privileges::helper::{Connection, Silence, StartError};
use rustix::io::Errno;

use super::KIND;
use super::protocol::{Answer, LONGEST_ANSWER, MOST_CGROUPS, Question, number_of, parse_answer};
use crate::device_access::{place, too_many_nodes};
use crate::{DeviceAccess, DeviceAccessSource, MOST_NODES};

/// How long the helper may take to answer; a question of a hundred cgroups takes some hundred microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The running helper.
#[derive(Debug)]
pub struct Helper {
    connection: Connection,
    last: u32,
    /// The question that was not answered in time.
    unanswered: Option<u32>,
    logged: bool,
}

/// Starts the helper, as `user` if one is given. To be called before privileges are dropped and before any thread is started.
pub fn start(user: Option<&User>) -> Result<Helper, StartError> {
    start_from(Path::new("/proc/self/exe"), user)
}

/// As [`start`], of a given binary.
pub fn start_from(binary: &Path, user: Option<&User>) -> Result<Helper, StartError> {
    let ids = user.map(|user| format!("{}:{}", user.uid, user.gid).into());
    let connection = Connection::start(binary, &KIND, ids, LONGEST_ANSWER)?;
    Ok(Helper { connection, last: 0, unanswered: None, logged: false })
}

impl Helper {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.connection.pid()
    }

    /// Whether the kernel had Landlock for it.
    pub fn landlock(&self) -> bool {
        self.connection.landlock
    }

    fn exchange(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
        deadline: Instant,
    ) -> Result<Vec<Answer>, Silence> {
        // One question at a time: while an old one is not answered, no other is asked.
        while let Some(number) = self.unanswered {
            let old = self.connection.receive(Instant::now())?;
            if number_of(old) == Some(number) {
                self.unanswered = None;
            }
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let question = Question { number, cgroups: cgroups.len(), nodes: nodes.to_vec() };
        self.connection.send(&question.write().ok_or(Silence::Failed(Errno::TOOBIG))?, cgroups)?;
        self.unanswered = Some(number);
        let answer = self.connection.receive(deadline)?;
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
                self.connection.end();
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
}

impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl DeviceAccessSource for Helper {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        if self.connection.is_gone() {
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
