//! What the node's sources share: open roots, one read buffer, and errors that name the file.

use std::sync::Arc;

use super::SourceError;
use crate::{Buffer, Content, Dir, File, ReadError, Roots, Stat};

/// Most files that one reader holds open: what a source reads in each scrape, and not a file of each CPU.
const MOST_KEPT: usize = 32;

/// procfs and sysfs, each opened at its first use and then held. A file of the kernel that is read a second time is held
/// open, too, since opening and closing it costs more than most readings.
#[derive(Debug)]
pub struct NodeFiles {
    roots: Arc<Roots>,
    proc: Option<Root>,
    sys: Option<Root>,
    /// Files that were read; `None` for those that were read once.
    kept: Vec<(Box<str>, Option<File>)>,
    buffer: Buffer,
}

#[derive(Debug)]
struct Root {
    dir: Dir,
    /// Whether it is the kernel's own: an ordinary file may be replaced under its name.
    is_kernels: bool,
}

impl NodeFiles {
    /// Nothing is opened yet.
    pub fn new(roots: &Arc<Roots>) -> Self {
        Self { roots: roots.clone(), proc: None, sys: None, kept: Vec::new(), buffer: Buffer::default() }
    }

    /// A file as `proc/...` or `sys/...`, written by the kernel as one record.
    pub fn read(&mut self, file: &str) -> Result<&[u8], ReadError> {
        if self.is_denied(file)
            && let Some(held) = self.roots.held().file(file)
        {
            return self.buffer.fill_record_of(held);
        }
        self.read_as(Content::Record, file)
    }

    /// A file that the kernel writes line by line, a page at a time, to its end.
    pub fn read_lines(&mut self, file: &str) -> Result<&[u8], ReadError> {
        self.read_as(Content::Lines, file)
    }

    /// The beginning of a file that may be very large.
    pub fn read_start(&mut self, file: &str) -> Result<&[u8], ReadError> {
        let (root, relative, buffer) = self.find(file)?;
        root.dir.read_start(relative, buffer)
    }

    /// A file of many short lines, which may be longer than one record.
    pub fn read_list(&mut self, file: &str) -> Result<&[u8], ReadError> {
        self.read_as(Content::List, file)
    }

    fn read_as(&mut self, content: Content, file: &str) -> Result<&[u8], ReadError> {
        let place = self.kept.iter().position(|(name, _)| **name == *file);
        if let Some((_, Some(kept))) = place.and_then(|at| self.kept.get(at)) {
            match kept.read(content, &mut self.buffer) {
                Ok(len) => return self.buffer.filled(len).ok_or(ReadError::TooLarge),
                // A device that was removed, and may be there again under the same name.
                Err(ReadError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
        let (root, relative, _) = self.find(file)?;
        let opened = root.dir.open_file(relative)?;
        let is_kernels = root.is_kernels;
        let len = opened.read(content, &mut self.buffer)?;
        if let Some(at) = place {
            if let Some((_, kept)) = self.kept.get_mut(at) {
                *kept = Some(opened);
            }
        } else if is_kernels && self.kept.len() < MOST_KEPT {
            self.kept.push((file.into(), None));
        }
        self.buffer.filled(len).ok_or(ReadError::TooLarge)
    }

    /// A file of long records to its end or to `cap` bytes, and whether that was its end.
    pub fn read_long(&mut self, file: &str, cap: usize) -> Result<(&[u8], bool), ReadError> {
        if self.is_denied(file)
            && let Some(held) = self.roots.held().file(file)
        {
            return self.buffer.fill_long_of(held, cap);
        }
        let (root, relative, buffer) = self.find(file)?;
        root.dir.read_long(relative, buffer, cap)
    }

    /// Whether a file that is held cannot be opened by its path any more. A path that can be opened comes first: what was
    /// held may be gone, and another in its place.
    fn is_denied(&mut self, file: &str) -> bool {
        self.roots.held().file(file).is_some()
            && self.find(file).is_ok_and(|(root, relative, _)| root.dir.is_denied(relative))
    }

    /// What a file is, a link not followed.
    pub fn stat_of(&mut self, file: &str) -> Result<Stat, ReadError> {
        let (root, relative, _) = self.find(file)?;
        root.dir.stat_of(relative)
    }

    /// A directory, opened through links.
    pub fn open(&mut self, directory: &str) -> Result<Dir, ReadError> {
        let (root, relative, _) = self.find(directory)?;
        match root.dir.open_link(relative) {
            Err(ReadError::Denied) => {
                self.roots.held().directory(directory).unwrap_or(Err(ReadError::Denied))
            }
            opened => opened,
        }
    }

    fn find<'f>(&mut self, file: &'f str) -> Result<(&Root, &'f str, &mut Buffer), ReadError> {
        let (root, relative) = file.split_once('/').ok_or(ReadError::Gone)?;
        let (held, path) = match root {
            "proc" => (&mut self.proc, self.roots.proc("")),
            "sys" => (&mut self.sys, self.roots.sys("")),
            _ => return Err(ReadError::Gone),
        };
        let root = match held {
            Some(root) => root,
            None => {
                let dir = Dir::open(&path)?;
                held.insert(Root { is_kernels: dir.is_proc_or_sys(), dir })
            }
        };
        Ok((root, relative, &mut self.buffer))
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

#[cfg(test)]
mod tests {
    use rustix::fs::readlink;

    use super::*;

    /// How many descriptors of this process refer to a path.
    fn open(path: &str) -> usize {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        descriptors
            .filter(|fd| readlink(fd.path(), Vec::new()).is_ok_and(|link| link.to_bytes() == path.as_bytes()))
            .count()
    }

    #[test]
    fn a_kernels_file_is_held_from_its_second_reading_on_and_read_anew_each_time() {
        let mut files = NodeFiles::new(&Arc::new(Roots::default()));
        let uptime = |files: &mut NodeFiles| files.read("proc/uptime").unwrap().to_vec();
        let first = uptime(&mut files);
        assert_eq!(open("/proc/uptime"), 0);
        uptime(&mut files);
        assert_eq!(open("/proc/uptime"), 1);
        while uptime(&mut files) == first {
            std::thread::yield_now();
        }
        assert_eq!(open("/proc/uptime"), 1);
        assert_eq!(files.read("proc/not-there").map(<[u8]>::len), Err(ReadError::Gone));
        for _ in 0..3 {
            assert!(files.read_lines("proc/self/mountinfo").unwrap().ends_with(b"\n"));
            assert!(files.read_list("proc/diskstats").is_ok());
        }
        drop(files);
        assert_eq!(open("/proc/uptime"), 0);
    }

    #[test]
    fn an_ordinary_file_is_not_held_and_of_the_kernels_a_bounded_number() {
        let base = std::env::temp_dir().join(format!("jobledger-node-{}", std::process::id()));
        std::fs::create_dir_all(base.join("sys")).unwrap();
        let file = base.join("sys/value");
        let roots = Roots::new("/proc", base.join("sys"), base.join("cgroup"), base.join("dev"));
        let mut files = NodeFiles::new(&Arc::new(roots));
        for text in ["1\n", "2\n", "3\n"] {
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, text).unwrap();
            assert_eq!(files.read("sys/value"), Ok(text.as_bytes()), "replaced under its name");
        }
        std::fs::remove_dir_all(&base).unwrap();
        // Written with a dot more each time, it has many names.
        for _ in 0..2 {
            for number in 0..2 * MOST_KEPT {
                assert!(files.read(&format!("proc/{}loadavg", "./".repeat(number))).is_ok());
            }
        }
        assert_eq!(open("/proc/loadavg"), MOST_KEPT);
    }
}
