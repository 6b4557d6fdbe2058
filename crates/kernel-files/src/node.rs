//! What the node's sources share: open roots, one read buffer, and errors that name the file.

use std::sync::Arc;

use super::SourceError;
use crate::{Buffer, Dir, ReadError, Roots, Stat};

/// procfs and sysfs, each opened at its first use and then held, so that a read is one `openat` and one `read`.
#[derive(Debug)]
pub struct NodeFiles {
    roots: Arc<Roots>,
    proc: Option<Dir>,
    sys: Option<Dir>,
    buffer: Buffer,
}

impl NodeFiles {
    /// Nothing is opened yet.
    pub fn new(roots: &Arc<Roots>) -> Self {
        Self { roots: roots.clone(), proc: None, sys: None, buffer: Buffer::default() }
    }

    /// A file as `proc/...` or `sys/...`, written by the kernel as one record.
    pub fn read(&mut self, file: &str) -> Result<&[u8], ReadError> {
        if self.is_denied(file)
            && let Some(held) = self.roots.held().file(file)
        {
            return self.buffer.fill_record_of(held);
        }
        let (dir, relative, buffer) = self.find(file)?;
        dir.read_record(relative, buffer)
    }

    /// A file that the kernel writes line by line, a page at a time, to its end.
    pub fn read_lines(&mut self, file: &str) -> Result<&[u8], ReadError> {
        let (dir, relative, buffer) = self.find(file)?;
        dir.read(relative, buffer)
    }

    /// The beginning of a file that may be very large.
    pub fn read_start(&mut self, file: &str) -> Result<&[u8], ReadError> {
        let (dir, relative, buffer) = self.find(file)?;
        dir.read_start(relative, buffer)
    }

    /// A file of many short lines, which may be longer than one record.
    pub fn read_list(&mut self, file: &str) -> Result<&[u8], ReadError> {
        let (dir, relative, buffer) = self.find(file)?;
        dir.read_list(relative, buffer)
    }

    /// A file of long records to its end or to `cap` bytes, and whether that was its end.
    pub fn read_long(&mut self, file: &str, cap: usize) -> Result<(&[u8], bool), ReadError> {
        if self.is_denied(file)
            && let Some(held) = self.roots.held().file(file)
        {
            return self.buffer.fill_long_of(held, cap);
        }
        let (dir, relative, buffer) = self.find(file)?;
        dir.read_long(relative, buffer, cap)
    }

    /// Whether a file that is held cannot be opened by its path any more. A path that can be opened comes first: what was
    /// held may be gone, and another in its place.
    fn is_denied(&mut self, file: &str) -> bool {
        self.roots.held().file(file).is_some()
            && self.find(file).is_ok_and(|(dir, relative, _)| dir.is_denied(relative))
    }

    /// What a file is, a link not followed.
    pub fn stat_of(&mut self, file: &str) -> Result<Stat, ReadError> {
        let (dir, relative, _) = self.find(file)?;
        dir.stat_of(relative)
    }

    /// A directory, opened through links.
    pub fn open(&mut self, directory: &str) -> Result<Dir, ReadError> {
        let (dir, relative, _) = self.find(directory)?;
        match dir.open_link(relative) {
            Err(ReadError::Denied) => {
                self.roots.held().directory(directory).unwrap_or(Err(ReadError::Denied))
            }
            opened => opened,
        }
    }

    fn find<'f>(&mut self, file: &'f str) -> Result<(&Dir, &'f str, &mut Buffer), ReadError> {
        let (root, relative) = file.split_once('/').ok_or(ReadError::Gone)?;
        let (held, path) = match root {
            "proc" => (&mut self.proc, self.roots.proc("")),
            "sys" => (&mut self.sys, self.roots.sys("")),
            _ => return Err(ReadError::Gone),
        };
        let dir = match held {
            Some(dir) => dir,
            None => held.insert(Dir::open(&path)?),
        };
        Ok((dir, relative, &mut self.buffer))
    }

    /// The same for a file that the collector cannot do without. Every file read this way is open to all users on an
    /// ordinary system, so a refusal comes from a sandbox or from hardening like `hidepid`.
    pub fn need(&mut self, file: &'static str, needs: &str) -> Result<&[u8], SourceError> {
        self.read(file).map_err(SourceError::reading(file, needs))
    }

    /// As [`NodeFiles::need`], for a file that the kernel writes line by line.
    pub fn need_lines(&mut self, file: &'static str, needs: &str) -> Result<&[u8], SourceError> {
        self.read_lines(file).map_err(SourceError::reading(file, needs))
    }
}
