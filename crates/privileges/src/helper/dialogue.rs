//! Questions to a helper and their answers, one at a time.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::{Connection, Malformed, Silence};

/// A running helper whose messages have the number of their question in bytes 4 to 8, little endian.
#[derive(Debug)]
pub struct Dialogue {
    connection: Connection,
    last: u32,
    /// The question that was not answered in time.
    unanswered: Option<u32>,
    logged: bool,
}

impl Dialogue {
    /// With a helper that was just started.
    pub fn new(connection: Connection) -> Self {
        Self { connection, last: 0, unanswered: None, logged: false }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.connection.pid()
    }

    /// Whether the kernel had Landlock for it.
    pub fn landlock(&self) -> bool {
        self.connection.landlock
    }

    /// Asks: `write` makes the message of a number, `parse` takes the answer apart. While an old question is not answered, no other
    /// is asked: that is [`Silence::Late`]. A helper that says what it was not asked is ended, and so is one that ended.
    pub fn ask<T>(
        &mut self,
        write: impl FnOnce(u32) -> Result<Vec<u8>, Silence>,
        beside: &[BorrowedFd<'_>],
        deadline: Instant,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Silence> {
        if self.connection.is_gone() {
            return Err(Silence::Ended);
        }
        let answer = self.exchange(write, beside, deadline, parse);
        match answer {
            Ok(_) => self.logged = false,
            Err(Silence::Ended) => self.connection.end(),
            Err(_) => {}
        }
        answer
    }

    fn exchange<T>(
        &mut self,
        write: impl FnOnce(u32) -> Result<Vec<u8>, Silence>,
        beside: &[BorrowedFd<'_>],
        deadline: Instant,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Silence> {
        while let Some(old) = self.unanswered {
            let number = number_of(self.connection.receive(Instant::now())?).ok_or(Silence::Ended)?;
            self.unanswered = Some(old).filter(|old| *old != number);
        }
        self.last = self.last.wrapping_add(1);
        let message = write(self.last)?;
        self.connection.send(&message, beside)?;
        self.unanswered = Some(self.last);
        let answer = self.connection.receive(deadline)?;
        if number_of(answer) != Some(self.last) {
            return Err(Silence::Ended);
        }
        self.unanswered = None;
        parse(answer).map_err(|Malformed| Silence::Ended)
    }

    /// Whether a silence is the first since an answer, and worth a line in the log.
    pub fn is_news(&mut self) -> bool {
        !std::mem::replace(&mut self.logged, true)
    }
}

impl AsFd for Dialogue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

fn number_of(message: &[u8]) -> Option<u32> {
    message.get(4..8)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_behind_the_head() {
        assert_eq!(number_of(&[0xd1, 2, 0, 0, 1, 2, 3, 4, 9]), Some(0x0403_0201));
        assert_eq!(number_of(&[0xd1, 2, 0, 0, 1, 2, 3]), None);
    }
}
