//! Time in which a job's tasks waited for CPU, memory or I/O.
//!
//! v2: `cpu.pressure`, `memory.pressure`, `io.pressure` (Documentation/accounting/psi.rst; 4.20, `full` of the CPU
//! from 5.13). Three short reads per job. Off where the kernel was built so (`CONFIG_PSI_DEFAULT_DISABLED`, as in
//! EL8 and EL9) and not booted with `psi=1`, and for a cgroup whose `cgroup.pressure` is 0 (6.1). v1 has none.
//! Needs no privilege.

use cgroups::{Controller, Version};
use exposition::{Family, PerCgroup, Section, Value};
use kernel_files::Buffer;
use kernel_files::parse::{Pressure, parse_pressure};
use slurm_jobs::NodeSnapshot;

use crate::collector::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use crate::collector::{Entry, SourceError};

static PRESSURE: PerCgroup = Family::counter("jobledger_job_pressure_seconds_total")
    .labels(&["resource", "kind"])
    .help("Time in which some task (or all that were not idle: full) waited for the resource")
    .per_cgroup("jobledger_step_pressure_seconds_total", "jobledger_task_pressure_seconds_total");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "pressure",
    summary: "Time that jobs waited for CPU, memory and I/O (pressure stall information)",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || PRESSURE.rows().to_vec(),
    build: |_| build(Stalls),
};

const NEEDS_PSI: &str = "pressure stall information: boot with psi=1";
const FILES: [(&str, &str); 3] =
    [("cpu", "cpu.pressure"), ("memory", "memory.pressure"), ("io", "io.pressure")];

/// The source.
#[derive(Debug)]
pub struct Stalls;

impl CgroupSource for Stalls {
    /// In the order of [`FILES`].
    type Reading = [Pressure; 3];

    fn read(
        &self,
        Group { view, .. }: &Group<'_>,
        buffer: &mut Buffer,
    ) -> Result<[Pressure; 3], SourceError> {
        let mut reading = [Pressure::default(); 3];
        if view.version() == Version::V1 {
            return Ok(reading);
        }
        for (slot, (_, file)) in reading.iter_mut().zip(FILES) {
            // The files belong to no controller: the kernel hides all of them or none.
            let bytes = view.read(Controller::Cpu, file, buffer);
            let Some(bytes) = bytes.map_err(SourceError::reading(file, NEEDS_PSI))? else { break };
            *slot = parse_pressure(bytes).map_err(SourceError::parsing(file))?;
        }
        Ok(reading)
    }

    fn emit(&self, reading: &[Pressure; 3], out: &mut Emit<'_>) {
        for (pressure, (resource, _)) in reading.iter().zip(FILES) {
            for (kind, line) in [("some", pressure.some), ("full", pressure.full)] {
                let labels = [("resource", resource), ("kind", kind)];
                out.push(&PRESSURE, &labels, line.map(|line| Value::micro(line.total_usec)));
            }
        }
    }

    fn finish(
        &self,
        snapshot: &NodeSnapshot,
        readings: &mut Readings<[Pressure; 3]>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), SourceError> {
        if readings.none_has(snapshot, |r| r.iter().any(|p| p.some.is_some())) {
            let v1 = snapshot.jobs.iter().any(|job| job.cgroup.version() == Version::V1);
            let needs = if v1 { "cgroup v2" } else { NEEDS_PSI }.to_owned();
            return Err(SourceError::Unsupported { needs });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Bench, Machine, collect, ended, job, snapshot_of, value};

    const BOTH: &str = "some avg10=0.36 avg60=0.06 avg300=0.01 total=2500000\nfull avg10=0.36 avg60=0.06 avg300=0.01 total=500000\n";

    #[test]
    fn three_resources_and_a_kernel_without_full_of_the_cpu_has_none_not_zero() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
        machine.write("cgroup/job_7/memory.pressure", BOTH).write("cgroup/job_7/io.pressure", BOTH);
        let job = job(7, machine.v2("job_7"), &[]);
        let snapshot = snapshot_of(machine.roots(), vec![job.clone()]);
        let mut bench = Bench::new(&ENTRY, &snapshot);
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let series = |r: &str, k: &str| {
            format!("jobledger_job_pressure_seconds_total{{jobid=\"7\",resource=\"{r}\",kind=\"{k}\"}}")
        };
        assert_eq!(value(&text, &series("cpu", "some")), Some(1.0));
        assert_eq!(value(&text, &series("cpu", "full")), None);
        assert_eq!(value(&text, &series("memory", "some")), Some(2.5));
        assert_eq!(value(&text, &series("io", "full")), Some(0.5));
        machine.remove("cgroup/job_7");
        let text = bench.collect(&snapshot_of(machine.roots(), vec![ended(&job)])).1;
        assert_eq!(value(&text, &series("io", "full")), Some(0.5), "it outlives the job");
    }

    #[test]
    fn without_psi_and_on_v1_the_reason_is_reported() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.procs", "");
        machine.write("cgroup/memory/slurm/uid_0/job_8/cgroup.procs", "");
        let v2 = job(7, machine.v2("job_7"), &[]);
        let v1 = job(8, machine.v1(&[("memory", "slurm/uid_0/job_8")]), &[]);
        for (job, needs) in [(v2, NEEDS_PSI), (v1, "cgroup v2")] {
            let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job]));
            assert_eq!(outcome, Err(SourceError::Unsupported { needs: needs.to_owned() }));
            assert!(!text.contains("pressure_seconds_total{"));
        }
    }

    #[test]
    fn one_job_with_pressure_switched_off_has_none_and_a_torn_file_is_an_error() {
        let machine = Machine::new();
        for file in ["cpu.pressure", "memory.pressure", "io.pressure"] {
            machine.write(&format!("cgroup/job_7/{file}"), BOTH);
        }
        machine
            .write("cgroup/job_8/cgroup.procs", "")
            .write("cgroup/job_9/cpu.pressure", "some avg10=0.00 tot");
        let jobs = [7, 8].map(|id| job(id, machine.v2(&format!("job_{id}")), &[]));
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), jobs.to_vec()));
        assert_eq!(outcome, Ok(()));
        assert!(text.contains("jobid=\"7\"") && !text.contains("jobid=\"8\""));
        let torn = snapshot_of(machine.roots(), vec![job(9, machine.v2("job_9"), &[])]);
        let outcome = collect(&ENTRY, &torn).0;
        assert!(matches!(outcome, Err(SourceError::Malformed { file: "cpu.pressure", .. })), "{outcome:?}");
    }
}
