//! The processes of a job below procfs: what the collectors that ask every process share.

use std::fmt::Write;

use kernel_files::parse::{PidStat, parse_pid_stat};
use kernel_files::processes::parse_pids;
use kernel_files::{Buffer, Dir, ReadError};
use rustix::thread::CapabilitySet;
use slurm_jobs::Job;
use slurm_jobs::leaves::{List, job_lists, stepd_lists};

use crate::collector::SourceError;

/// `io` and `environ` are mode 0400: reading those of other users needs CAP_DAC_READ_SEARCH. They and `smaps_rollup`
/// also pass a ptrace access check: CAP_SYS_PTRACE.
pub(super) const CAPABILITIES: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::SYS_PTRACE);

const PROCS: &str = "cgroup.procs";

/// Parses list after list and keeps the first thing that is wrong.
struct Pids<F> {
    f: F,
    wrong: Option<SourceError>,
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
        let needs = || SourceError::Unsupported { needs: "the host's PID namespace".to_owned() };
        let wrong = parsed.map_err(SourceError::parsing(PROCS)).err().or(outside.then(needs));
        self.wrong = self.wrong.take().or(wrong);
    }

    fn result<T>(self, listed: Result<T, ReadError>) -> Result<T, SourceError> {
        let listed = listed.map_err(SourceError::reading(PROCS, PROCS))?;
        self.wrong.map_or(Ok(listed), Err)
    }
}

/// Calls `f` with every user process of a job. `false` when there is no way to know them.
pub(super) fn users(job: &Job, buffer: &mut Buffer, f: impl FnMut(u32)) -> Result<bool, SourceError> {
    let mut pids = Pids::new(f);
    let listed = job_lists(job, List::Processes, buffer, |bytes| pids.note(bytes));
    pids.result(listed)
}

/// Calls `f` with every slurmstepd of a job.
pub(super) fn stepds(job: &Job, buffer: &mut Buffer, f: impl FnMut(u32)) -> Result<(), SourceError> {
    let mut pids = Pids::new(f);
    let listed = stepd_lists(job, buffer, |bytes| pids.note(bytes));
    pids.result(listed)
}

/// The root of procfs, or why there is none.
pub(super) fn open(proc: &Result<Dir, ReadError>) -> Result<&Dir, SourceError> {
    proc.as_ref().map_err(|error| SourceError::reading("/proc", "procfs")(*error))
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
    pub(super) fn read(&mut self, pid: u32, file: &'static str) -> Result<Option<&[u8]>, SourceError> {
        self.path(pid, file);
        match self.proc.read_record(&self.path, self.buffer) {
            // A process that ends while it is read may leave nothing to read.
            Ok([]) | Err(ReadError::Gone) => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => Err(SourceError::reading(file, file)(error)),
        }
    }

    /// Reads and parses `/proc/PID/stat`.
    pub(super) fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, SourceError> {
        const STAT: &str = "/proc/PID/stat";
        let bytes = self.read(pid, STAT)?;
        bytes.map(parse_pid_stat).transpose().map_err(SourceError::parsing(STAT))
    }
}
