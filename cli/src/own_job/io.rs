//! What the job that this process is in read and wrote.
//!
//! By block device where its control group counts that (`io.stat`: `EnableExtraControllers=io`, SLURM 25.05), and the sum over those
//! of its processes that this one may read: `/proc/PID/io` is the user's alone, so slurmstepd's own I/O is not in it.

use io_accounting::{Account, Counters, Listed, Procs, parse_io_stat, parse_process_io};
use kernel_files::parse::{PidStat, parse_pid_stat};
use kernel_files::{Buffer, Dir, ReadError};

use super::Page;

/// The I/O of processes, over their ends.
#[derive(Debug, Default)]
pub(super) struct ProcessIo {
    account: Account,
}

struct Reader<'a> {
    proc: &'a Dir,
    buffer: &'a mut Buffer,
}

/// A process that is gone, or not this user's, is not there.
fn absent<T>(error: ReadError) -> Result<Option<T>, ReadError> {
    match error {
        ReadError::Gone | ReadError::Denied => Ok(None),
        error => Err(error),
    }
}

impl Procs for Reader<'_> {
    type Error = ReadError;

    fn stat(&mut self, pid: u32) -> Result<Option<PidStat>, ReadError> {
        match self.proc.read_record(&format!("{pid}/stat"), self.buffer) {
            Ok(bytes) => Ok(parse_pid_stat(bytes).ok()),
            Err(error) => absent(error),
        }
    }

    fn io(&mut self, pid: u32) -> Result<Option<Counters>, ReadError> {
        match self.proc.read(&format!("{pid}/io"), self.buffer) {
            Ok(bytes) => Ok(parse_process_io(bytes).ok().and_then(|io| io.counters())),
            Err(error) => absent(error),
        }
    }
}

impl ProcessIo {
    /// Looks at these processes, and writes what they and those before them did.
    pub(super) fn write(&mut self, mut pids: Vec<u32>, proc: &Dir, buffer: &mut Buffer, page: &mut Page) {
        pids.sort_unstable();
        pids.dedup();
        let mut reader = Reader { proc, buffer };
        // Those of others, slurmstepd's among them, would look like ones that end at each look.
        pids.retain(|pid| reader.io(*pid).is_ok_and(|io| io.is_some()));
        let listed: Vec<Listed> = pids.into_iter().map(|pid| Listed { pid, stepd: false }).collect();
        // After an error nothing has changed, and the next look has it.
        let _ = self.account.look(&listed, &mut reader);
        let Some(counters) = self.account.exported() else { return };
        let [rchar, wchar, syscr, syscw, read, written, cancelled] = counters.0;
        page.of_job("jobledger_job_process_read_bytes_total", "", read);
        page.of_job("jobledger_job_process_written_bytes_total", "", written);
        page.of_job("jobledger_job_process_cancelled_write_bytes_total", "", cancelled);
        page.of_job("jobledger_job_process_syscall_read_bytes_total", "", rchar);
        page.of_job("jobledger_job_process_syscall_written_bytes_total", "", wchar);
        page.of_job("jobledger_job_process_io_syscalls_total", ",direction=\"read\"", syscr);
        page.of_job("jobledger_job_process_io_syscalls_total", ",direction=\"write\"", syscw);
    }
}

/// Writes what `io.stat` has. `name` finds a device's by its number.
pub(super) fn write_devices(io_stat: &[u8], name: impl Fn(&str) -> Option<String>, page: &mut Page) {
    // A line that the kernel cut is another time's.
    let (devices, _) = parse_io_stat(io_stat);
    for (device, counters) in devices {
        let number = format!("{}:{}", device.major, device.minor);
        let label = format!(",device=\"{}\"", crate::recording::escaped(&name(&number).unwrap_or(number)));
        let mut write = |family, more: &str, count: Option<u64>| {
            if let Some(count) = count {
                page.of_job(family, &format!("{label}{more}"), count);
            }
        };
        write("jobledger_job_io_read_bytes_total", "", counters.rbytes);
        write("jobledger_job_io_written_bytes_total", "", counters.wbytes);
        write("jobledger_job_io_operations_total", ",direction=\"read\"", counters.rios);
        write("jobledger_job_io_operations_total", ",direction=\"write\"", counters.wios);
    }
}
