//! Block I/O of jobs by device.
//!
//! v2: `io.stat` (Documentation/admin-guide/cgroup-v2.rst, "IO"; discards from 4.18), where the io controller is on
//! for jobs: `EnableExtraControllers=io` (SLURM 25.05). Reads are charged to the process that waits for them.
//! Buffered writes are charged to the one that dirtied the page, where the file system supports it (ext4, xfs, btrfs,
//! f2fs). Network file systems have no block device here. v1: SLURM makes no blkio directories. One read per job; no
//! privilege.

use std::collections::HashMap;
use std::sync::Arc;

use cgroups::{Controller, Version};
use exposition::{Family, PerCgroup, Profile, Section};
use io_accounting::{Device, IoCounters, parse_io_stat};
use kernel_files::parse::ParseError;
use kernel_files::{Buffer, Dir, Roots};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use slurm_jobs::NodeSnapshot;

use crate::collector::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use crate::collector::{Entry, SourceError};

static READ: PerCgroup = Family::counter("jobledger_job_io_read_bytes_total")
    .labels(&["device"])
    .help("Bytes read from a block device; what the page cache answered is not among them")
    .per_cgroup("jobledger_step_io_read_bytes_total", "jobledger_task_io_read_bytes_total");
static WRITTEN: PerCgroup = Family::counter("jobledger_job_io_written_bytes_total")
    .labels(&["device"])
    .help("Bytes written to a block device, when they are written back")
    .per_cgroup("jobledger_step_io_written_bytes_total", "jobledger_task_io_written_bytes_total");
static DISCARDED: PerCgroup = Family::counter("jobledger_job_io_discarded_bytes_total")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Bytes of block devices that were discarded")
    .per_cgroup("jobledger_step_io_discarded_bytes_total", "jobledger_task_io_discarded_bytes_total");
static OPERATIONS: PerCgroup = Family::counter("jobledger_job_io_operations_total")
    .labels(&["device", "direction"])
    .help("Operations on a block device: read, write or discard")
    .per_cgroup("jobledger_step_io_operations_total", "jobledger_task_io_operations_total");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "io",
    summary: "Block I/O of jobs by device, where SLURM turns the io controller on",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || [&READ, &WRITTEN, &DISCARDED, &OPERATIONS].into_iter().flat_map(PerCgroup::rows).collect(),
    build: |context| build(Io::new(&context.roots)),
};

/// What one cgroup yields.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct IoReading {
    /// By name of the device; `None` without the controller.
    devices: Option<Vec<(Arc<str>, IoCounters)>>,
    #[serde(skip)]
    error: Option<ParseError>,
}

/// The source.
#[derive(Debug)]
pub struct Io {
    /// `dev/block` of sysfs, links from device numbers to devices.
    numbers: Option<Dir>,
    /// Names found in this scrape: numbers are given to other devices.
    names: Mutex<HashMap<Device, Arc<str>>>,
}

impl Io {
    fn new(roots: &Roots) -> Self {
        Self { numbers: Dir::open(&roots.sys("dev/block")).ok(), names: Mutex::default() }
    }

    fn names(&self) -> parking_lot::MutexGuard<'_, HashMap<Device, Arc<str>>> {
        self.names.lock()
    }

    fn name(&self, device: Device) -> Arc<str> {
        let mut names = self.names();
        let name = names.entry(device).or_insert_with(|| {
            let number = format!("{}:{}", device.major, device.minor);
            let target = self.numbers.as_ref().and_then(|dir| dir.read_link(&number).ok());
            let name = target.as_deref().and_then(|t| t.rsplit('/').next()).filter(|name| !name.is_empty());
            Arc::from(name.unwrap_or(&number))
        });
        name.clone()
    }
}

impl CgroupSource for Io {
    type Reading = IoReading;

    fn read(&self, Group { view, .. }: &Group<'_>, buffer: &mut Buffer) -> Result<IoReading, SourceError> {
        if view.version() == Version::V1 {
            return Ok(IoReading::default());
        }
        let bytes = view.read(Controller::Io, "io.stat", buffer);
        let Some(bytes) = bytes.map_err(SourceError::reading("io.stat", ""))? else {
            return Ok(IoReading::default());
        };
        let (devices, error) = parse_io_stat(bytes);
        let named = devices.into_iter().map(|(device, counters)| (self.name(device), counters));
        Ok(IoReading { devices: Some(named.collect()), error })
    }

    fn emit(&self, reading: &IoReading, out: &mut Emit<'_>) {
        for (name, c) in reading.devices.iter().flatten() {
            let device = ("device", &**name);
            out.push(&READ, &[device], c.rbytes);
            out.push(&WRITTEN, &[device], c.wbytes);
            out.push(&DISCARDED, &[device], c.dbytes);
            for (direction, count) in [("read", c.rios), ("write", c.wios), ("discard", c.dios)] {
                out.push(&OPERATIONS, &[device, ("direction", direction)], count);
            }
        }
    }

    fn begin(&self, _snapshot: &NodeSnapshot, _buffer: &mut Buffer) -> Result<(), SourceError> {
        self.names().clear();
        Ok(())
    }

    fn finish(
        &self,
        snapshot: &NodeSnapshot,
        readings: &mut Readings<IoReading>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), SourceError> {
        if readings.none_has(snapshot, |r| r.devices.is_some()) {
            let v1 = snapshot.jobs.iter().any(|job| job.cgroup.version() == Version::V1);
            let needs = if v1 {
                "cgroup v2, since SLURM makes no blkio cgroups; --collector.procio asks the processes"
            } else {
                "EnableExtraControllers=io in cgroup.conf (SLURM 25.05); --collector.procio asks the processes"
            };
            return Err(SourceError::Unsupported { needs: needs.to_owned() });
        }
        let running = snapshot.jobs.iter().filter(|job| job.is_running());
        let errors: Vec<_> =
            running.filter_map(|job| Some(readings.job(job.run)?.error.map(|error| (job, error)))).collect();
        let failed = errors.iter().flatten().count();
        match errors.iter().flatten().next() {
            None => Ok(()),
            Some((_, error)) => {
                let first = Box::new(SourceError::Malformed { file: "io.stat", error: *error });
                Err(SourceError::Partial { ok: errors.len() - failed, failed, first })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Bench, Machine, collect, ended, job, snapshot_of, value};

    /// SLURM 22.05's scope on 6.1.
    const STAT: &str = "254:0 rbytes=462848 wbytes=25296896 rios=11 wios=53 dbytes=4096 dios=1\n8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n";

    fn machine() -> Machine {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path.join("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink("../../block/vda", machine.path.join("sys/dev/block/254:0")).unwrap();
        machine.write("cgroup/job_7/io.stat", STAT);
        machine
    }

    #[test]
    fn devices_have_their_names_and_counters_outlive_the_job() {
        let machine = machine();
        let job = job(7, machine.v2("job_7"), &[]);
        let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
        let mut bench = Bench::new(&ENTRY, &snapshot);
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let read = "jobledger_job_io_read_bytes_total{jobid=\"7\",device=\"vda\"}";
        assert_eq!(value(&text, read), Some(462_848.0));
        assert_eq!(
            value(
                &text,
                "jobledger_job_io_operations_total{jobid=\"7\",device=\"8:16\",direction=\"discard\"}"
            ),
            Some(6.0),
            "a device without a name has its number"
        );
        machine.remove("cgroup/job_7");
        assert_eq!(value(&bench.collect(&snapshot).1, read), Some(462_848.0), "gone, and not known yet");
        assert_eq!(
            value(&bench.collect(&snapshot_of(machine.roots(), vec![ended(&job)])).1, read),
            Some(462_848.0)
        );
    }

    #[test]
    fn a_file_cut_by_the_kernel_is_partial() {
        let machine = machine();
        machine.write("cgroup/job_8/io.stat", "254:0 rbytes=5 wbytes=6\n8:0 rby");
        let jobs = [7, 8].map(|id| job(id, machine.v2(&format!("job_{id}")), &[]));
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), jobs.to_vec()));
        assert!(matches!(outcome, Err(SourceError::Partial { ok: 1, failed: 1, .. })), "{outcome:?}");
        assert_eq!(value(&text, "jobledger_job_io_read_bytes_total{jobid=\"8\",device=\"vda\"}"), Some(5.0));
    }

    #[test]
    fn without_the_controller_and_on_v1_the_way_out_is_named() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        machine.write("cgroup/freezer/slurm/uid_0/job_8/cgroup.procs", "");
        let v2 = job(7, machine.v2("job_7"), &[]);
        let v1 = job(8, machine.v1(&[("freezer", "slurm/uid_0/job_8")]), &[]);
        for (job, word) in [(v2, "EnableExtraControllers=io"), (v1, "cgroup v2")] {
            let outcome = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job])).0;
            assert!(
                matches!(&outcome, Err(SourceError::Unsupported { needs }) if needs.contains(word) && needs.contains("procio")),
                "{outcome:?}"
            );
        }
    }
}
