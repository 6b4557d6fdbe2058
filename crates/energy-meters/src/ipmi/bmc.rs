//! One question to the BMC at a time.

use std::ffi::c_long;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::device::Carry;
use super::protocol::{Failure, LIMIT, Question};

/// The driver answers for a BMC that does not (`IPMI_TIMEOUT_COMPLETION_CODE`), within seconds. After this time an answer
/// is lost.
const LOST: Duration = Duration::from_secs(60);

/// The node's BMC.
pub(super) struct Bmc {
    device: Box<dyn Carry>,
    /// Number of the last question.
    number: c_long,
    /// When it was sent, if its answer did not come yet.
    unanswered: Option<Instant>,
}

impl Bmc {
    pub(super) fn new(device: Box<dyn Carry>) -> Self {
        Self { device, number: 0, unanswered: None }
    }

    /// Asks, and waits for the answer for [`LIMIT`] at most. While an earlier question is unanswered nothing is sent, so
    /// that no questions pile up in the driver.
    pub(super) fn ask(&mut self, question: Question, now: Instant) -> Result<Vec<u8>, Failure> {
        // An answer that came too late is of an old moment.
        self.answer()?;
        if self.unanswered.is_some_and(|sent| now.saturating_duration_since(sent) < LOST) {
            return Err(Failure::Late);
        }
        self.number = self.number.wrapping_add(1);
        self.device.send(self.number, question)?;
        self.unanswered = Some(now);
        let sent = Instant::now();
        loop {
            if let Some(answer) = self.answer()? {
                return Ok(answer);
            }
            let left = LIMIT.saturating_sub(sent.elapsed());
            if left.is_zero() || !self.device.wait(left)? {
                return Err(Failure::Late);
            }
        }
    }

    /// The answer to the last question, if it is there. Those to older questions are dropped.
    fn answer(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        while let Some((number, answer)) = self.device.receive()? {
            if number == self.number {
                self.unanswered = None;
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }
}
