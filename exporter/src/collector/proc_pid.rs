//! The processes of a job below procfs: what the collectors that ask every process share.

use std::fmt::Write;

use rustix::thread::CapabilitySet;

use super::CollectError;
use crate::kernel_file::{Buffer, Dir, ReadError};
use crate::parse::{ParseError, PidStat, integer, lines, parse_pid_stat};
use crate::slurm::Job;
use crate::slurm::leaves::{List, job_lists, stepd_lists};

/// Some files of processes are their users' alone (`io`, `environ`), which takes the one, and for what they tell of
/// another's process (these and `smaps_rollup`), which takes the other.
pub(super) const CAPABILITIES: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::SYS_PTRACE);

/// What lets the exporter read the files of other users' processes.
pub(crate) const FIX: &str = "give the exporter CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

const PROCS: &str = "cgroup.procs";

/// Parses a list of processes, an id per line.
pub fn parse_pids(bytes: &[u8], mut f: impl FnMut(u32)) -> Result<(), ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        let pid = integer(line).and_then(|v| u32::try_from(v).ok());
        f(pid.ok_or(ParseError::new(number, "no process id"))?);
    }
    Ok(())
}

/// Parses list after list and keeps the first thing that is wrong.
struct Pids<F> {
    f: F,
    wrong: Option<CollectError>,
}

impl<F: FnMut(u32)> Pids<F> {
    fn new(f: F) -> Self {
        Self { f, wrong: None }
    }

    fn note(&mut self, bytes: &[u8]) {
        let mut outside = false;
        let parsed = parse_pids(bytes, |pid| match pid {
            // A process outside the PID namespace of the reader.
            0 => outside = true,
            pid => (self.f)(pid),
        });
        let needs = || CollectError::Unsupported { needs: "the host's PID namespace".to_owned() };
        let wrong = parsed.map_err(CollectError::parsing(PROCS)).err().or(outside.then(needs));
        self.wrong = self.wrong.take().or(wrong);
    }

    fn result<T>(self, listed: Result<T, ReadError>) -> Result<T, CollectError> {
        let listed = listed.map_err(CollectError::reading(PROCS, PROCS, "run as root"))?;
        self.wrong.map_or(Ok(listed), Err)
    }
}

/// Calls `f` with every user process of a job. `false` when there is no way to know them.
pub(super) fn users(job: &Job, buffer: &mut Buffer, f: impl FnMut(u32)) -> Result<bool, CollectError> {
    let mut pids = Pids::new(f);
    let listed = job_lists(job, List::Processes, buffer, |bytes| pids.note(bytes));
    pids.result(listed)
}

/// Calls `f` with every slurmstepd of a job.
pub(super) fn stepds(job: &Job, buffer: &mut Buffer, f: impl FnMut(u32)) -> Result<(), CollectError> {
    let mut pids = Pids::new(f);
    let listed = stepd_lists(job, buffer, |bytes| pids.note(bytes));
    pids.result(listed)
}

/// The root of procfs, or why there is none.
pub(super) fn open(proc: &Result<Dir, ReadError>) -> Result<&Dir, CollectError> {
    proc.as_ref().map_err(|error| CollectError::reading("/proc", "procfs", FIX)(*error))
}

/// When no process of several was there: with hidepid=2 every process of others looks like one that is gone.
pub(crate) fn check_hidden(proc: &Dir) -> Result<(), CollectError> {
    if proc.has("1") {
        return Ok(());
    }
    Err(CollectError::Denied { what: "/proc (hidepid)".to_owned(), fix: FIX })
}

/// Reads files of processes.
pub(super) struct ProcReader<'a> {
    /// Root of procfs.
    pub(super) proc: &'a Dir,
    buffer: &'a mut Buffer,
    path: String,
}

impl<'a> ProcReader<'a> {
    pub(super) fn new(proc: &'a Dir, buffer: &'a mut Buffer) -> Self {
        Self { proc, buffer, path: String::with_capacity(32) }
    }

    /// The path of a process's file below procfs; `file` is its name in messages, `/proc/PID/...`.
    pub(super) fn path(&mut self, pid: u32, file: &'static str) -> &str {
        let name = file.rsplit('/').next().unwrap_or_default();
        self.path.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{pid}/{name}");
        &self.path
    }

    /// Reads a file; `None` when the process is gone.
    pub(super) fn read(&mut self, pid: u32, file: &'static str) -> Result<Option<&[u8]>, CollectError> {
        self.path(pid, file);
        match self.proc.read_record(&self.path, self.buffer) {
            // A process that ends while it is read may leave nothing to read.
            Ok([]) | Err(ReadError::Gone) => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(CollectError::reading(file, file, FIX)(error)),
        }
    }

    /// Reads and parses `/proc/PID/stat`.
    pub(super) fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, CollectError> {
        const STAT: &str = "/proc/PID/stat";
        let bytes = self.read(pid, STAT)?;
        bytes.map(parse_pid_stat).transpose().map_err(CollectError::parsing(STAT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_are_whole_lines_of_digits() {
        let mut pids = Vec::new();
        parse_pids(b"0\n12\n4194304\n", |pid| pids.push(pid)).unwrap();
        assert_eq!(pids, [0, 12, 4_194_304]);
        for bad in [&b"12\n13"[..], b"x\n", b"-1\n", b"\n", b"99999999999\n"] {
            assert!(parse_pids(bad, |_| ()).is_err());
        }
    }
}
