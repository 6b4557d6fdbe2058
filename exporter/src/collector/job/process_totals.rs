//! Open files, virtual memory and unshared memory of a job, as sums over its processes, without slurmstepd.
//!
//! Open files: the size of `/proc/PID/fd` (6.2), else its entries. Virtual memory: `/proc/PID/stat`. Unshared
//! memory: `Private_*` of `/proc/PID/smaps_rollup` (4.14; Documentation/filesystems/proc.rst).
//!
//! Needs CAP_SYS_PTRACE for `smaps_rollup` and, before 6.2, CAP_DAC_READ_SEARCH for `fd`; a denial costs its own sum
//! alone. Three reads per process. `smaps_rollup` makes the kernel walk the page tables, holding the process's memory
//! map meanwhile: some milliseconds per GiB.

use exposition::{Family, Section};
use kernel_files::parse::{ParseError, fields, integer, lines};
use kernel_files::{Buffer, Dir, ReadError, Roots};
use slurm_jobs::{Job, NodeSnapshot};

use crate::collector::proc_pid::{self, ProcReader};
use crate::collector::{Built, Collector, Entry, SourceError, Tally};

static OPEN_FILES: Family = Family::gauge("jobledger_job_open_files")
    .help("File descriptors that the job's processes hold open; one that processes share counts for each");
static VIRTUAL: Family = Family::gauge("jobledger_job_virtual_memory_bytes")
    .help("Address space that the job's processes have mapped, used or not; shared memory counts for each");
static UNIQUE: Family = Family::gauge("jobledger_job_unique_memory_bytes")
    .help("Resident memory that each process of the job has to itself, huge pages included");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "procsum",
    summary: "Open files, virtual and unshared memory of jobs as sums over their processes",
    default_on: false,
    cost: Some(
        "three looks per process, one of which takes milliseconds per GiB of its memory; needs CAP_SYS_PTRACE and, before Linux 6.2, CAP_DAC_READ_SEARCH",
    ),
    capabilities: proc_pid::CAPABILITIES,
    families: || vec![&OPEN_FILES, &VIRTUAL, &UNIQUE],
    build: |context| Built::plain(ProcessTotals::new(&context.roots)),
};

/// The values of `/proc/PID/smaps_rollup` that are used, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SmapsRollup {
    /// Unmodified pages of this process alone.
    pub private_clean: Option<u64>,
    /// Modified ones.
    pub private_dirty: Option<u64>,
    /// Huge pages of hugetlbfs.
    pub private_hugetlb: Option<u64>,
}

/// Parses `/proc/PID/smaps_rollup`: a line of addresses, then `Key:  value kB`.
pub fn parse_smaps_rollup(bytes: &[u8]) -> Result<SmapsRollup, ParseError> {
    let mut rollup = SmapsRollup::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut words = fields(line);
        let slot = match words.next() {
            Some(b"Private_Clean:") => &mut rollup.private_clean,
            Some(b"Private_Dirty:") => &mut rollup.private_dirty,
            Some(b"Private_Hugetlb:") => &mut rollup.private_hugetlb,
            _ => continue,
        };
        let kib = words.next().and_then(integer).filter(|_| words.next() == Some(b"kB"));
        let bytes = kib.and_then(|kib| kib.checked_mul(1024));
        *slot = Some(bytes.ok_or(ParseError::new(number, "no kB"))?);
    }
    Ok(rollup)
}

struct ProcessTotals {
    proc: Result<Dir, ReadError>,
    /// `/proc/PID/fd` has the number of descriptors for its size.
    sized: bool,
    buffer: Buffer,
}

/// One process's part of a sum; `None` when it is gone.
type Part = fn(&ProcessTotals, &mut ProcReader<'_>, u32) -> Result<Option<u64>, SourceError>;

const SUMS: [(&Family, Part); 3] =
    [(&OPEN_FILES, open_files), (&VIRTUAL, virtual_memory), (&UNIQUE, unique_memory)];

fn open_files(
    sum: &ProcessTotals,
    reader: &mut ProcReader<'_>,
    pid: u32,
) -> Result<Option<u64>, SourceError> {
    const FD: &str = "/proc/PID/fd";
    let proc = reader.proc;
    let path = reader.path(pid, FD);
    let count = || -> Result<u64, ReadError> {
        if sum.sized {
            return proc.stat_of(path).map(|stat| stat.size);
        }
        let mut entries = 0;
        proc.open_dir(path)?.for_each(|_, _, _| entries += 1)?;
        Ok(entries)
    };
    match count() {
        Ok(count) => Ok(Some(count)),
        Err(ReadError::Gone) => Ok(None),
        Err(error) => Err(SourceError::reading(FD, FD)(error)),
    }
}

fn virtual_memory(
    _: &ProcessTotals,
    reader: &mut ProcReader<'_>,
    pid: u32,
) -> Result<Option<u64>, SourceError> {
    Ok(reader.stat(pid)?.map(|stat| stat.vsize))
}

fn unique_memory(
    _: &ProcessTotals,
    reader: &mut ProcReader<'_>,
    pid: u32,
) -> Result<Option<u64>, SourceError> {
    const ROLLUP: &str = "/proc/PID/smaps_rollup";
    let Some(bytes) = reader.read(pid, ROLLUP)? else { return Ok(None) };
    let rollup = parse_smaps_rollup(bytes).map_err(SourceError::parsing(ROLLUP))?;
    let private = rollup.private_clean.zip(rollup.private_dirty);
    let (clean, dirty) =
        private.ok_or(ParseError::new(1, "no private memory")).map_err(SourceError::parsing(ROLLUP))?;
    Ok(Some(clean.saturating_add(dirty).saturating_add(rollup.private_hugetlb.unwrap_or(0))))
}

impl ProcessTotals {
    fn new(roots: &Roots) -> Self {
        let proc = Dir::open(&roots.proc(""));
        // A kernel before 6.2 says 0, and this process has at least one file open.
        let own = proc.as_ref().ok().and_then(|proc| proc.open_link("self").ok());
        let sized = own.and_then(|own| own.stat_of("fd").ok()).is_some_and(|fd| fd.size > 0);
        Self { proc, sized, buffer: Buffer::default() }
    }

    fn job(
        &self,
        job: &Job,
        buffer: &mut Buffer,
        tally: &mut Tally,
        out: &mut Section,
    ) -> Result<(), SourceError> {
        let proc = proc_pid::open(&self.proc)?;
        let mut pids = Vec::new();
        let known = proc_pid::users(job, buffer, |pid| pids.push(pid))?;
        if !known || (pids.is_empty() && job.cgroup.is_gone()) {
            return Ok(());
        }
        let subject = out.subject(job.labels());
        let mut reader = ProcReader::new(proc, buffer);
        for (family, part) in SUMS {
            // What cannot be read of one process cannot be summed up over all.
            let parts = pids.iter().map(|pid| part(self, &mut reader, *pid));
            let parts: Result<Vec<u64>, _> = parts.filter_map(Result::transpose).collect();
            let hidden = |parts: Vec<u64>| match parts.is_empty() && !pids.is_empty() {
                true => kernel_files::processes::check_hidden(proc).map(|()| None),
                false => Ok(Some(parts.into_iter().fold(0, u64::saturating_add))),
            };
            if let Some(Some(sum)) = tally.note(parts.and_then(hidden)) {
                out.push(family, subject, &[], sum);
            }
        }
        Ok(())
    }
}

impl Collector for ProcessTotals {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        let mut buffer = std::mem::take(&mut self.buffer);
        for job in snapshot.jobs.iter().filter(|job| job.is_running()) {
            if let Err(error) = self.job(job, &mut buffer, &mut tally, out) {
                tally.note::<()>(Err(error));
            }
        }
        self.buffer = buffer;
        tally.result()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::collector::testing::{Machine, collect, collect_many, ended, job, snapshot_of, value};

    fn rollup(clean: u32) -> String {
        format!(
            "560d99e2c000-7ffd4c5cc000 ---p 00000000 00:00 0                          [rollup]\nRss:  1636 kB\n\
             Private_Clean:      {clean} kB\nPrivate_Dirty:       108 kB\nPrivate_Hugetlb:       2048 kB\nLocked:  0 kB\n"
        )
    }

    #[test]
    fn private_memory_is_in_bytes_and_absent_is_none_not_zero() {
        let parsed = parse_smaps_rollup(rollup(44).as_bytes()).unwrap();
        assert_eq!(parsed.private_clean, Some(44 << 10));
        assert_eq!(parsed.private_hugetlb, Some(2 << 20));
        assert_eq!(parse_smaps_rollup(b"Rss: 1 kB\n"), Ok(SmapsRollup::default()));
    }

    #[test]
    fn malformed_torn_and_huge_are_errors() {
        for bad in [
            &b"Private_Clean: 1"[..],
            b"Private_Clean: 1\n",
            b"Private_Clean: 1 MB\n",
            b"Private_Clean: x kB\n",
            b"Private_Clean: 18446744073709551615 kB\n",
            b"Private_Clean:\n",
        ] {
            assert!(parse_smaps_rollup(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    fn machine() -> (Machine, Job) {
        let machine = Machine::new();
        machine.write("proc/1/stat", "");
        for pid in [418, 429] {
            let stat = format!("{pid} (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 4096 1 0\n");
            machine.write(&format!("proc/{pid}/stat"), stat);
            machine.write(&format!("proc/{pid}/smaps_rollup"), rollup(44));
            machine.write(&format!("proc/{pid}/fd/0"), "").write(&format!("proc/{pid}/fd/1"), "");
        }
        machine.write("cgroup/job_7/step_0/slurm/cgroup.procs", "387\n");
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", "418\n429\n");
        let job = job(7, machine.v2("job_7"), &[("0", &["0"])]);
        (machine, job)
    }

    const FILES_SERIES: &str = "jobledger_job_open_files{jobid=\"7\"}";
    const VIRTUAL_SERIES: &str = "jobledger_job_virtual_memory_bytes{jobid=\"7\"}";
    const UNIQUE_SERIES: &str = "jobledger_job_unique_memory_bytes{jobid=\"7\"}";

    #[test]
    fn processes_are_summed_and_one_that_is_gone_is_passed_over() {
        let (machine, job) = machine();
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", "418\n429\n430\n");
        let scenes = [
            snapshot_of(machine.roots(), vec![job.clone()]),
            snapshot_of(machine.roots(), vec![ended(&job)]),
        ];
        let collected = collect_many(&ENTRY, &[&scenes[0], &scenes[1]]);
        assert_eq!(collected[0].0, Ok(()));
        assert_eq!(value(&collected[0].1, FILES_SERIES), Some(4.0));
        assert_eq!(value(&collected[0].1, VIRTUAL_SERIES), Some(8192.0));
        assert_eq!(value(&collected[0].1, UNIQUE_SERIES), Some(f64::from(2 * (44 + 108 + 2048) * 1024)));
        assert!(!collected[1].1.contains("jobledger_job_"), "an ended job has none");
    }

    #[test]
    fn what_fails_costs_its_own_sum_alone() {
        let (machine, job) = machine();
        machine.write("proc/429/smaps_rollup", "Private_Clean: 1");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job]));
        assert!(matches!(outcome, Err(SourceError::Partial { ok: 2, failed: 1, .. })), "{outcome:?}");
        assert_eq!(value(&text, UNIQUE_SERIES), None, "half a sum is no sum");
        assert_eq!(value(&text, FILES_SERIES), Some(4.0));
        assert_eq!(value(&text, VIRTUAL_SERIES), Some(8192.0));
    }

    #[test]
    fn v1_is_summed_by_the_freezer_and_an_idle_job_has_zero() {
        let (machine, _) = machine();
        machine.write("cgroup/freezer/slurm/uid_0/job_7/step_0/cgroup.procs", "418\n");
        machine.write("cgroup/freezer/slurm/uid_0/job_8/step_0/cgroup.procs", "");
        let jobs = [7, 8]
            .map(|id| job(id, machine.v1(&[("freezer", &format!("slurm/uid_0/job_{id}"))]), &[("0", &[])]));
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), jobs.to_vec())).1;
        assert_eq!(value(&text, VIRTUAL_SERIES), Some(4096.0));
        assert_eq!(value(&text, "jobledger_job_virtual_memory_bytes{jobid=\"8\"}"), Some(0.0));
    }

    #[test]
    fn hidden_processes_are_denied() {
        let (machine, job) = machine();
        machine.remove("proc/1").remove("proc/418").remove("proc/429");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job]));
        assert!(matches!(outcome, Err(SourceError::Denied { .. })), "{outcome:?}");
        assert!(!text.contains("{jobid"));
    }

    #[test]
    fn a_real_process_has_all_three() {
        let (machine, job) = machine();
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.procs", format!("{}\n", std::process::id()));
        let mut snapshot = snapshot_of(machine.roots(), vec![job]);
        snapshot.roots = Arc::new(Roots::new("/proc", "/sys", machine.path.join("cgroup"), "/dev"));
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Ok(()));
        assert!((3.0..10_000.0).contains(&value(&text, FILES_SERIES).unwrap()), "{text}");
        assert!(value(&text, VIRTUAL_SERIES).unwrap() > value(&text, UNIQUE_SERIES).unwrap());
        assert!(value(&text, UNIQUE_SERIES).unwrap() > 0.0);
    }
}
