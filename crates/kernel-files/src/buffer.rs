//! A reused read buffer, and how it is known that a file is at its end.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread, read};

#[cfg(doc)]
use crate::Dir;
use crate::ReadError;

/// Largest file that is read, in bytes: `cgroup.procs` of 100 000 processes fits.
pub const SIZE_CAP: usize = 1 << 20;

/// A reused read buffer. It grows to the largest file seen and never beyond [`SIZE_CAP`].
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Self {
        // A memory.stat is about 2 KiB; a page makes one read enough for every record file.
        Self(vec![0; 8192])
    }
}

/// Which read was the last one: one with room left in the buffer and fewer bytes than this.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last(usize);

impl Last {
    /// Only one that gives nothing.
    pub(crate) const EMPTY: Self = Self(0);
    /// The first: the file is one record.
    pub(crate) const FIRST: Self = Self(usize::MAX);
    /// The kernel fills at least a page with lines of some bytes; a half-full page is the end.
    pub(crate) const HALF_PAGE: Self = Self(2048);
}

impl Buffer {
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>, last: Last) -> Result<&[u8], ReadError> {
        match self.fill_to(last, SIZE_CAP, |free, _| read(fd, free))? {
            (len, true) => self.filled(len).ok_or(ReadError::TooLarge),
            (_, false) => Err(ReadError::TooLarge),
        }
    }

    /// A file that is held open and is one record, from its start whoever else reads it.
    pub(crate) fn fill_record_of(&mut self, held: BorrowedFd<'_>) -> Result<&[u8], ReadError> {
        match self.fill_to(Last::FIRST, SIZE_CAP, from_start(held))? {
            (len, true) => self.filled(len).ok_or(ReadError::TooLarge),
            (_, false) => Err(ReadError::TooLarge),
        }
    }

    /// As [`Dir::read_long`], of a file that is held open.
    pub(crate) fn fill_long_of(
        &mut self,
        held: BorrowedFd<'_>,
        cap: usize,
    ) -> Result<(&[u8], bool), ReadError> {
        let (len, whole) = self.fill_to(Last::EMPTY, cap, from_start(held))?;
        self.whole_lines(len, whole)
    }

    pub(crate) fn whole_lines(&self, len: usize, whole: bool) -> Result<(&[u8], bool), ReadError> {
        let bytes = self.filled(len).ok_or(ReadError::TooLarge)?;
        if whole {
            return Ok((bytes, true));
        }
        let lines = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        Ok((bytes.get(..lines).unwrap_or_default(), false))
    }

    /// How much was read, and whether that is all of it. `more` reads into free room what follows so many bytes.
    pub(crate) fn fill_to(
        &mut self,
        last: Last,
        cap: usize,
        mut more: impl FnMut(&mut [u8], usize) -> rustix::io::Result<usize>,
    ) -> Result<(usize, bool), ReadError> {
        let mut len = 0;
        loop {
            if len >= self.0.len() {
                if len >= cap {
                    return Ok((len, false));
                }
                self.0.resize((len * 2).min(cap), 0);
            }
            let Some(free) = self.0.get_mut(len..) else { return Err(ReadError::TooLarge) };
            let space = free.len();
            match more(free, len) {
                Ok(0) => break,
                Ok(n) => {
                    len += n;
                    if n < space && n < last.0 {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ReadError::from_errno(errno)),
            }
        }
        Ok((len, true))
    }

    /// All of it, to be read into.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// The first bytes of what was read last; `None` if it was less.
    pub fn filled(&self, len: usize) -> Option<&[u8]> {
        self.0.get(..len)
    }
}

/// Reads of a file that is held open what follows so many bytes.
pub(crate) fn from_start(held: BorrowedFd<'_>) -> impl FnMut(&mut [u8], usize) -> rustix::io::Result<usize> {
    move |free, len| pread(held, free, u64::try_from(len).unwrap_or(u64::MAX))
}

/// How the kernel writes a file, and so how many `read` it takes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// As [`Dir::read_record`] reads it.
    Record,
    /// As [`Dir::read_list`] reads it.
    List,
    /// As [`Dir::read`] reads it: to an empty reading.
    Lines,
}

impl Content {
    pub(crate) fn last(self) -> Last {
        match self {
            Self::Record => Last::FIRST,
            Self::List => Last::HALF_PAGE,
            Self::Lines => Last::EMPTY,
        }
    }
}
