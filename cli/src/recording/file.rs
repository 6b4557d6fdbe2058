//! The file of a recording, to which batches are added.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::batch::Batch;
use crate::Failure;

/// The last line of OpenMetrics.
const EOF: &[u8] = b"# EOF\n";
/// How the names of all metrics begin.
const OURS: &[u8] = b"jobledger_";
/// A line is shorter: the longest has the labels of a job's name and user.
const LONGEST_LINE: u64 = 64 << 10;

/// A recording that is added to, by this process alone.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// Where the next batch begins.
    end: u64,
}

impl Recorder {
    /// Opens a file, or makes it. Of a recorder that was killed the last line may not be whole: it is written over.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::other(format!("{}: {error}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let says =
                    format!("{}: another process records into it: -o names another file", path.display());
                return Err(Failure::other(says));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let end = end_of_lines(&mut file).map_err(failed)?.ok_or_else(|| {
            Failure::usage(format!("{}: this is no recording: -o names another file", path.display()))
        })?;
        let recorder = Self { path: path.to_owned(), file, end };
        recorder.finish().map_err(failed)?;
        Ok(recorder)
    }

    /// Writes the last line, and nothing is after it.
    fn finish(&self) -> io::Result<()> {
        self.file.write_all_at(EOF, self.end)?;
        self.file.set_len(self.end + u64::try_from(EOF.len()).unwrap_or_default())
    }

    /// Adds a batch. What could not be written, such as on a full disk, is left out as a whole.
    pub fn add(&mut self, batch: &Batch) -> Result<(), Failure> {
        let mut bytes = batch.text.clone().into_bytes();
        bytes.extend_from_slice(EOF);
        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            // There was room for it before.
            let _ = self.finish();
            return Err(Failure::other(format!("{}: {error}", self.path.display())));
        }
        self.end += u64::try_from(batch.text.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

/// Where the lines of samples end; `None` if this is another kind of file.
fn end_of_lines(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.seek(SeekFrom::End(0))?;
    let from = size.saturating_sub(LONGEST_LINE);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail.strip_suffix(EOF).unwrap_or_else(|| {
        let lines = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        tail.get(..lines).unwrap_or_default()
    });
    let is_recording = match whole.split_last() {
        // Nothing yet, or killed at its first line.
        None => {
            from == 0
                && [OURS, EOF]
                    .iter()
                    .any(|begin| tail.starts_with(begin) || begin.starts_with(tail.as_slice()))
        }
        Some((last, _)) => *last == b'\n' && is_ours(whole),
    };
    Ok(is_recording.then(|| from + u64::try_from(whole.len()).unwrap_or(u64::MAX)))
}

/// Whether the last line is one of ours.
fn is_ours(lines: &[u8]) -> bool {
    let last = lines.split(|byte| *byte == b'\n').rev().nth(1).unwrap_or_default();
    last.starts_with(OURS)
}

/// The name of a file: of a pattern, `%j` is the job and `%N` the node, as in the names of SLURM's output files.
pub fn file_name(pattern: &str, job: &str, node: &str) -> PathBuf {
    // A node's name is a part of a name alone.
    let node = node.replace('/', "_");
    let (mut name, mut chars) = (String::new(), pattern.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            name.push(c);
            continue;
        }
        match chars.next() {
            Some('j') => name.push_str(job),
            Some('N') => name.push_str(&node),
            Some('%') | None => name.push('%'),
            Some(c) => name.extend(['%', c]),
        }
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use jobledger_testkit::scratch::Scratch;

    use super::*;

    fn batch(text: &str) -> Batch {
        Batch { text: text.to_owned(), ..Batch::default() }
    }

    #[test]
    fn batches_follow_each_other_and_the_file_always_ends() {
        let scratch = Scratch::new("recording");
        let path = scratch.path().join("a.om");
        let read = || std::fs::read_to_string(&path).unwrap();
        let mut recorder = Recorder::open(&path).unwrap();
        recorder.add(&batch("jobledger_a 1 1\n")).unwrap();
        assert_eq!(read(), "jobledger_a 1 1\n# EOF\n");
        assert!(Recorder::open(&path).unwrap_err().says.contains("another process records into it"));
        recorder.add(&batch("jobledger_a 2 2\n")).unwrap();
        drop(recorder);
        Recorder::open(&path).unwrap().add(&batch("jobledger_a 3 3\n")).unwrap();
        assert_eq!(read(), "jobledger_a 1 1\njobledger_a 2 2\njobledger_a 3 3\n# EOF\n");
    }

    #[test]
    fn a_torn_line_is_written_over() {
        let scratch = Scratch::new("recording");
        let path = scratch.path().join("a.om");
        let whole = "jobledger_a 1 1\njobledger_b{x=\"1\"} 2 2\n";
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            Recorder::open(&path).unwrap().add(&batch("jobledger_c 3 3\n")).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let kept = whole[..cut].rfind('\n').map_or("", |last| &whole[..=last]);
            assert_eq!(text, format!("{kept}jobledger_c 3 3\n# EOF\n"), "{cut}");
        }
        // The end alone is torn.
        std::fs::write(&path, "jobledger_a 1 1\n# E").unwrap();
        Recorder::open(&path).unwrap().add(&batch("jobledger_a 2 2\n")).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "jobledger_a 1 1\njobledger_a 2 2\n# EOF\n");
    }

    #[test]
    fn another_file_is_not_written_to() {
        let scratch = Scratch::new("recording");
        let path = scratch.path().join("a.om");
        for other in ["#!/bin/sh\necho\n", "#!/bin/sh\n# nothing\n", "binary", "up 1\n", "\n"] {
            std::fs::write(&path, other).unwrap();
            assert!(Recorder::open(&path).unwrap_err().says.contains("this is no recording"), "{other}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
    }

    #[test]
    fn names_have_the_job_and_the_node() {
        let name = |pattern| file_name(pattern, "7", "n1/x").display().to_string();
        assert_eq!(name("d/rec-%j-%N.om"), "d/rec-7-n1_x.om");
        assert_eq!([name("100%%"), name("%x%"), name("")], ["100%", "%x%", ""]);
    }
}
