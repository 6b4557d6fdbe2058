//! The owner of a process on a GPU.
//!
//! Reads `/proc/PID/stat` and `/proc/PID/cgroup`, which everybody may read (unless procfs is mounted with `hidepid`). Drivers
//! name processes as the host counts, so it must be the host's `/proc`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpu_devices::UnitSample;
use kernel_files::parse::parse_pid_stat;
use kernel_files::processes::check_hidden;
use kernel_files::{Buffer, Dir, Roots, SourceError};
use slurm_jobs::process::{Groups, PIDS_OF_THE_HOST, Place, places};
use slurm_jobs::{Job, JobRunId};

/// Processes that are remembered at most.
const MOST: usize = 65_536;

/// The owner of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A job's.
    Job(JobRunId),
    /// An MPS server: its work on the GPU is its clients'.
    Mps,
    /// Of no job that is known; or it is gone.
    NoJob,
}

/// The name in `/proc/PID/stat`, which is cut after 15 bytes and has the user's own parentheses in it.
fn name(stat: &[u8]) -> Option<&[u8]> {
    let from = stat.iter().position(|byte| *byte == b'(')? + 1;
    let to = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(from..to)
}

/// Finds the jobs of processes, and remembers them by the process's id and start.
#[derive(Debug)]
pub struct Owners {
    roots: Arc<Roots>,
    known: HashMap<(u32, u64), Owner>,
    buffer: Buffer,
}

impl Owners {
    /// Nothing is known yet.
    pub fn new(roots: Arc<Roots>) -> Self {
        Self { roots, known: HashMap::new(), buffer: Buffer::default() }
    }

    /// The owners of these processes among these jobs. An error where they cannot be looked up.
    pub fn find(
        &mut self,
        jobs: &[Arc<Job>],
        pids: impl IntoIterator<Item = u32>,
    ) -> Result<BTreeMap<u32, Owner>, SourceError> {
        let mut found = BTreeMap::new();
        let mut pids = pids.into_iter().peekable();
        if pids.peek().is_none() {
            self.known.clear();
            return Ok(found);
        }
        let proc = Dir::open(&self.roots.proc("")).map_err(SourceError::reading("/proc", "procfs"))?;
        check_hidden(&proc)?;
        // Whether `1` is the host's init may be read only with CAP_SYS_PTRACE; otherwise the exporter's own namespace
        // decides.
        let of_the_host =
            |process: &str| proc.read_link(process).is_ok_and(|namespace| namespace == PIDS_OF_THE_HOST);
        if !of_the_host("1/ns/pid") && !of_the_host("self/ns/pid") {
            return Err(SourceError::Unsupported { needs: "the host's PID namespace".to_owned() });
        }
        let mut remembered = HashMap::new();
        let mut groups = None;
        for pid in pids.take(MOST) {
            // Through a descriptor of the directory: another process of the same id would not answer.
            let Ok(process) = proc.open_link(&pid.to_string()) else { continue };
            let Ok(stat) = process.read_record("stat", &mut self.buffer) else { continue };
            let Ok(start) = parse_pid_stat(stat).map(|stat| stat.start_ticks) else { continue };
            let mps = name(stat).is_some_and(|name| name.starts_with(b"nvidia-cuda-mps"));
            let owner = match self.known.get(&(pid, start)) {
                Some(owner) => *owner,
                None if mps => Owner::Mps,
                None => {
                    let (groups, runs) =
                        groups.get_or_insert_with(|| (Groups::open(&self.roots), runs(jobs)));
                    let cgroup = process.read("cgroup", &mut self.buffer).unwrap_or_default();
                    let run = groups.find(cgroup, |place| runs.get(&place).copied())?;
                    run.map_or(Owner::NoJob, Owner::Job)
                }
            };
            // A job may yet adopt a process that is in no job; a process in a job cannot leave it.
            if owner != Owner::NoJob {
                remembered.insert((pid, start), owner);
            }
            found.insert(pid, owner);
        }
        self.known = remembered;
        Ok(found)
    }
}

/// The directories of running jobs.
fn runs(jobs: &[Arc<Job>]) -> HashMap<Place, JobRunId> {
    let running = jobs.iter().filter(|job| job.is_running());
    running.flat_map(|job| places(&job.cgroup).into_iter().map(|place| (place, job.run))).collect()
}

/// Which jobs have processes on which units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessesOnUnits(BTreeMap<JobRunId, Vec<Arc<str>>>);

impl ProcessesOnUnits {
    /// From the readings of the units and the owners of their processes. A divided GPU's own list does not cover its
    /// parts.
    pub fn new<'a>(samples: impl IntoIterator<Item = &'a UnitSample>, owners: &BTreeMap<u32, Owner>) -> Self {
        let mut units: BTreeMap<JobRunId, Vec<Arc<str>>> = BTreeMap::new();
        for sample in samples.into_iter().filter(|sample| !sample.unit.divided) {
            for process in sample.processes.iter().flatten() {
                let Some(Owner::Job(run)) = owners.get(&process.pid) else { continue };
                let of_job = units.entry(*run).or_default();
                if !of_job.contains(&sample.unit.uuid) {
                    of_job.push(sample.unit.uuid.clone());
                }
            }
        }
        Self(units)
    }

    /// The units on which a job has processes.
    pub fn of(&self, run: JobRunId) -> &[Arc<str>] {
        self.0.get(&run).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use gpu_devices::{Process, ProcessKind};
    use slurm_jobs::testing::{ended, job};
    use test_machine::Machine;

    use super::super::testing::gpu;
    use super::*;

    fn start(machine: &Machine, pid: u32, name: &str, start: u64, cgroup: &str) {
        let zeros = "0 ".repeat(17);
        machine.write(&format!("proc/{pid}/stat"), format!("{pid} ({name}) S 1 {zeros}{start} 0 0\n"));
        machine.write(&format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n"));
    }

    fn host(machine: &Machine) {
        std::fs::create_dir_all(machine.path.join("proc/1/ns")).unwrap();
        symlink(PIDS_OF_THE_HOST, machine.path.join("proc/1/ns/pid")).unwrap();
        machine.write("cgroup/cgroup.controllers", "cpu\n");
    }

    const JOB_1: &str = "/system.slice/slurmstepd.scope/job_1/step_0/user/task_0";

    #[test]
    fn a_process_is_its_jobs_until_it_is_another_process() {
        let machine = Machine::new();
        host(&machine);
        for dir in ["job_1/step_0/user/task_0", "job_2"] {
            machine.write(&format!("cgroup/system.slice/slurmstepd.scope/{dir}/cgroup.procs"), "");
        }
        machine.write("cgroup/system.slice/dcgm.service/cgroup.procs", "");
        let one = Arc::new(job(1, machine.v2("system.slice/slurmstepd.scope/job_1"), &[]));
        let two = Arc::new(job(2, machine.v2("system.slice/slurmstepd.scope/job_2"), &[]));
        let jobs = [one.clone(), two];
        start(&machine, 10, "python", 100, JOB_1);
        start(&machine, 11, "nvidia-cuda-mps", 100, JOB_1);
        start(&machine, 12, "dcgm", 100, "/system.slice/dcgm.service");
        start(&machine, 13, "a) S 1 (b", 100, "/system.slice/slurmstepd.scope/job_2");
        let mut owners = Owners::new(Arc::new(machine.roots()));
        let mut find = |pids: &[u32]| owners.find(&jobs, pids.iter().copied()).unwrap();
        let found = find(&[10, 11, 12, 13, 14]);
        let expected =
            [(10, Owner::Job(one.run)), (11, Owner::Mps), (12, Owner::NoJob), (13, Owner::Job(JobRunId(2)))];
        assert_eq!(found, BTreeMap::from(expected), "14 is gone");

        machine.remove("proc/10/cgroup");
        assert_eq!(find(&[10])[&10], Owner::Job(one.run), "remembered");
        start(&machine, 12, "dcgm", 100, JOB_1);
        assert_eq!(find(&[10, 12])[&12], Owner::Job(one.run), "adopted");
        start(&machine, 10, "python", 101, "/system.slice/slurmstepd.scope/job_2");
        assert_eq!(find(&[10])[&10], Owner::Job(JobRunId(2)), "the same id, another process");
        machine.remove("proc/10/cgroup");
        start(&machine, 10, "python", 102, "/system.slice/slurmstepd.scope/job_3");
        assert_eq!(find(&[10])[&10], Owner::NoJob, "a job that is not known");
        assert!(find(&[]).is_empty());
        assert!(owners.known.is_empty(), "nothing is remembered of what is no longer asked for");

        let after = [Arc::new(ended(&one))];
        assert_eq!(owners.find(&after, [12]).unwrap()[&12], Owner::NoJob, "it ended");
    }

    #[test]
    fn in_a_container_nothing_is_said_of_processes() {
        let machine = Machine::new();
        machine.write("cgroup/cgroup.controllers", "cpu\n");
        let mut owners = Owners::new(Arc::new(machine.roots()));
        assert_eq!(owners.find(&[], []), Ok(BTreeMap::new()), "nobody asks");
        let error = owners.find(&[], [10]).unwrap_err();
        assert!(error.to_string().contains("hidepid") && error.reason() == "denied", "{error}");
        std::fs::create_dir_all(machine.path.join("proc/1")).unwrap();
        let error = owners.find(&[], [10]).unwrap_err();
        assert!(error.to_string().contains("PID namespace"), "{error}");
        std::fs::create_dir_all(machine.path.join("proc/self/ns")).unwrap();
        symlink("pid:[4026532000]", machine.path.join("proc/self/ns/pid")).unwrap();
        assert!(owners.find(&[], [10]).is_err());
        machine.remove("proc/self/ns/pid");
        symlink(PIDS_OF_THE_HOST, machine.path.join("proc/self/ns/pid")).unwrap();
        assert_eq!(owners.find(&[], [10]), Ok(BTreeMap::new()), "no such process");
        start(&machine, 10, "python3", 77, "/../slurmstepd.scope/job_1");
        let error = owners.find(&[], [10]).unwrap_err();
        assert!(error.to_string().contains("cgroup namespace"), "{error}");
    }

    #[test]
    fn a_real_process_of_no_job_is_unattributed() {
        let me = std::process::id();
        match Owners::new(Arc::new(Roots::default())).find(&[], [me, u32::MAX]) {
            Ok(found) => assert_eq!(found, BTreeMap::from([(me, Owner::NoJob)])),
            Err(error) => {
                assert_eq!(error.reason(), "unsupported", "{error}: these tests run in a container")
            }
        }
    }

    #[test]
    fn presence_is_of_jobs_and_not_of_a_server_for_them() {
        let process = |pid| Process { pid, kind: ProcessKind::Compute, memory: None, busy_ns: None };
        let sample = |minor: u32, divided: bool, pids: &[u32]| {
            let mut unit = gpu(minor);
            unit.divided = divided;
            let mut sample = UnitSample::new(Arc::new(unit), 0);
            sample.processes = Some(pids.iter().copied().map(process).collect());
            sample
        };
        let samples =
            [sample(0, false, &[10, 11, 10]), sample(1, true, &[10]), sample(2, false, &[12, 13, 14])];
        let (one, two) = (JobRunId(1), JobRunId(2));
        let owners = [(10, Owner::Job(one)), (11, Owner::Job(two)), (12, Owner::Mps), (13, Owner::NoJob)];
        let found = ProcessesOnUnits::new(&samples, &owners.into());
        assert_eq!((found.of(one), found.of(two)), (&["GPU-0".into()][..], &["GPU-0".into()][..]));
        assert_eq!(found.of(JobRunId(3)), &[] as &[Arc<str>]);
    }
}
