//! What a job's processes read and wrote, summed over `/proc/PID/io` and carried over the ends of processes.
//!
//! For nodes where the io controller is off for jobs, and for network file systems, whose traffic no cgroup counts.
//! `/proc/PID/io` (Documentation/filesystems/proc.rst, 3.3; `CONFIG_TASK_IO_ACCOUNTING`) and `/proc/PID/stat`.
//! [`io_accounting::Account`] explains how the sum remains right while processes come and go, and what it misses. A slurmstepd's own
//! I/O is in it, and so is that of an ssh session before `pam_slurm_adopt` put it into the job. A restart of the
//! exporter loses the I/O of processes that have ended.
//!
//! Needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (the file is the user's alone). Costs two reads per process.

use std::collections::HashMap;
use std::sync::Arc;

use exposition::{Family, Section, SubjectId};
use io_accounting::{Account, Counters, Listed, Procs, parse_process_io};
use kernel_files::parse::{ParseError, PidStat};
use kernel_files::{Buffer, Dir, ReadError, Roots};
use parking_lot::Mutex;
use slurm_jobs::leaves::excludes_stepd;
use slurm_jobs::{Disposition, Job, JobObserver, JobRunId, Levels, NodeSnapshot, RemovedCgroup};

use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::proc_pid::{self, ProcReader};
use crate::collector::{Built, Collector, Entry, SourceError, Tally};

static READ: Family = Family::counter("jobledger_job_process_read_bytes_total").help(
    "Bytes that the job's processes made the kernel fetch from \
     storage; of network file systems in part (read_bytes)",
);
static WRITTEN: Family = Family::counter("jobledger_job_process_written_bytes_total")
    .help("Bytes that the job's processes dirtied in the page cache or wrote past it (write_bytes)");
static CANCELLED: Family = Family::counter("jobledger_job_process_cancelled_write_bytes_total")
    .help("Bytes counted as written that were truncated before they reached storage (cancelled_write_bytes)");
static SYSCALL_READ: Family = Family::counter("jobledger_job_process_syscall_read_bytes_total").help(
    "Bytes that read calls of the job's processes returned, from \
     any file, pipe or cache, network file systems included (rchar)",
);
static SYSCALL_WRITTEN: Family = Family::counter("jobledger_job_process_syscall_written_bytes_total").help(
    "Bytes that write calls of the job's processes took, to any \
     file or pipe, network file systems included (wchar)",
);
static SYSCALLS: Family = Family::counter("jobledger_job_process_io_syscalls_total")
    .labels(&["direction"])
    .help("Read and write calls of the job's processes (syscr, syscw)");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "procio",
    summary: "I/O of jobs as the sum over their processes",
    default_on: false,
    cost: Some("two reads per process; needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"),
    capabilities: proc_pid::CAPABILITIES,
    families: || -> Vec<&'static Family> {
        vec![&READ, &WRITTEN, &CANCELLED, &SYSCALL_READ, &SYSCALL_WRITTEN, &SYSCALLS]
    },
    build: |context| {
        let shared = Arc::new(Shared::new(&context.roots));
        let collector = ProcessIoCollector { shared: shared.clone(), buffer: Buffer::default() };
        Built::with_accounts(collector, shared)
    },
};

const IO: &str = "/proc/PID/io";

impl Procs for ProcReader<'_> {
    type Error = SourceError;

    fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, SourceError> {
        ProcReader::stat(self, pid)
    }

    fn io(&mut self, pid: u32) -> Result<Option<Counters>, SourceError> {
        let Some(bytes) = self.read(pid, IO)? else { return Ok(None) };
        let io = parse_process_io(bytes).map_err(SourceError::parsing(IO))?;
        let missing = ParseError::new(1, "a counter is missing");
        io.counters().map(Some).ok_or(missing).map_err(SourceError::parsing(IO))
    }
}

struct Shared {
    proc: Result<Dir, ReadError>,
    /// Each run's by itself, since both the scrape and the end of a job look at it.
    accounts: Mutex<HashMap<JobRunId, Arc<Mutex<Account>>>>,
}

impl Shared {
    fn new(roots: &Roots) -> Self {
        Self { proc: Dir::open(&roots.proc("")), accounts: Mutex::default() }
    }

    fn account(&self, run: JobRunId) -> Arc<Mutex<Account>> {
        self.accounts.lock().entry(run).or_default().clone()
    }

    /// Every process of the job, by pid.
    fn list(job: &Job, buffer: &mut Buffer) -> Result<Vec<Listed>, SourceError> {
        let mut listed: Vec<Listed> = Vec::new();
        let stepd = excludes_stepd(job);
        proc_pid::stepds(job, buffer, |pid| listed.push(Listed { pid, stepd }))?;
        proc_pid::users(job, buffer, |pid| listed.push(Listed { pid, stepd: false }))?;
        listed.sort_by_key(|l| (l.pid, !l.stepd));
        listed.dedup_by_key(|l| l.pid);
        Ok(listed)
    }

    /// Looks at a job's processes and says what they did so far.
    fn look(&self, job: &Job, buffer: &mut Buffer) -> Result<Option<Counters>, SourceError> {
        let proc = proc_pid::open(&self.proc)?;
        let account = self.account(job.run);
        let mut account = account.lock();
        let listed = Self::list(job, buffer)?;
        account.look(&listed, &mut ProcReader::new(proc, buffer))?;
        // With hidepid=2 every process of others looks like one that is gone.
        if !listed.is_empty() && account.processes() == 0 {
            kernel_files::processes::check_hidden(proc)?;
        }
        Ok(account.exported())
    }
}

impl JobObserver for Shared {
    fn checkpoint(&self, job: &Job, _step: Option<u32>, _levels: Levels, buffer: &mut Buffer) {
        // The next scrape finds a failure here again, and reports it.
        drop(self.look(job, buffer));
    }

    fn cgroup_removed(&self, gone: &RemovedCgroup<'_>, buffer: &mut Buffer) {
        // The lists are gone, but slurmstepd is about for a while and has all that it waited for. The second look
        // decides what changed under the first.
        for _ in 0..2 {
            drop(self.look(gone.job, buffer));
        }
        self.account(gone.job.run).lock().close();
    }

    fn job_removed(&self, run: JobRunId, _disposition: Disposition) {
        self.accounts.lock().remove(&run);
    }
}

/// Processes are known again by their id and start.
impl Durable for Shared {
    fn save(&self) -> Option<Vec<u8>> {
        let accounts: Vec<_> =
            self.accounts.lock().iter().map(|(run, account)| (*run, account.clone())).collect();
        // A look at processes may have one.
        let saved: Option<Vec<Vec<u8>>> = accounts
            .iter()
            .map(|(run, account)| Some(durable_state::encode(&(run, &*account.try_lock()?))))
            .collect();
        saved.map(|saved| durable_state::encode(&saved))
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let saved: Vec<Vec<u8>> = durable_state::decode(section)?;
        let mut accounts = HashMap::new();
        for saved in saved {
            let (run, account): (JobRunId, Account) = durable_state::decode(&saved)?;
            accounts.insert(run, Arc::new(Mutex::new(account)));
        }
        accounts.retain(|run, _| before.knows(*run));
        *self.accounts.lock() = accounts;
        Ok(())
    }
}

struct ProcessIoCollector {
    shared: Arc<Shared>,
    buffer: Buffer,
}

fn emit(counters: &Counters, subject: SubjectId, out: &mut Section) {
    let [rchar, wchar, syscr, syscw, read, written, cancelled] = counters.0;
    out.push(&READ, subject, &[], read);
    out.push(&WRITTEN, subject, &[], written);
    out.push(&CANCELLED, subject, &[], cancelled);
    out.push(&SYSCALL_READ, subject, &[], rchar);
    out.push(&SYSCALL_WRITTEN, subject, &[], wchar);
    out.push(&SYSCALLS, subject, &[("direction", "read")], syscr);
    out.push(&SYSCALLS, subject, &[("direction", "write")], syscw);
}

/// When a job's counters were 0. Of a job that ran before the exporter did, what its processes had counted is in them, and
/// that of processes that had ended is not.
fn counted_from(job: &Job, snapshot: &NodeSnapshot) -> Option<f64> {
    Some(job.started.unix).filter(|started| *started >= snapshot.following_since)
}

impl Collector for ProcessIoCollector {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        for job in &snapshot.jobs {
            let total = if job.is_running() {
                tally.note(self.shared.look(job, &mut self.buffer)).flatten()
            } else {
                self.shared.account(job.run).lock().exported()
            };
            if let Some(counters) = total {
                let subject = out.subject_since(job.labels(), counted_from(job, snapshot));
                emit(&counters, subject, out);
            }
        }
        for job in snapshot.pending.iter().filter(|job| job.is_running()) {
            tally.note(self.shared.look(job, &mut self.buffer));
        }
        tally.result()
    }
}

#[cfg(test)]
mod tests;
