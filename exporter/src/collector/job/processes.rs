//! How many processes and threads a job has.
//!
//! v2: `cgroup.procs` and `cgroup.threads` (Documentation/admin-guide/cgroup-v2.rst). v1: `cgroup.procs` and
//! `tasks`. Counted are the users' processes, without slurmstepd, so `pids.current` of the job, which has its
//! threads in it and is there only with `EnableExtraControllers=pids`, is of no use. Zombies are not listed by the
//! kernel. Two reads per task and step; no privilege.

use exposition::{Family, Level, PerCgroup, Section, SubjectId};
use kernel_files::{Buffer, ReadError};
use slurm_jobs::leaves::{List, job_lists, step_lists, task_list};
use slurm_jobs::{Job, Levels, NodeSnapshot, Step};

use crate::collector::{Built, Collector, Entry, SourceError, Tally};

static PROCESSES: PerCgroup = Family::gauge("jobledger_job_processes")
    .help("Users' processes, without slurmstepd")
    .per_cgroup("jobledger_step_processes", "jobledger_task_processes");
static THREADS: PerCgroup = Family::gauge("jobledger_job_threads")
    .help("Threads of the users' processes, without slurmstepd")
    .per_cgroup("jobledger_step_threads", "jobledger_task_threads");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "processes",
    summary: "Processes and threads of jobs",
    default_on: true,
    cost: Some("Two short reads per task"),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || [&PROCESSES, &THREADS].into_iter().flat_map(PerCgroup::rows).collect(),
    build: |_| Built::plain(Processes { buffer: Buffer::default() }),
};

/// How many ids a list has: one per line.
pub fn count_ids(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.iter().filter(|b| **b == b'\n').count()).unwrap_or(u64::MAX)
}

struct Processes {
    buffer: Buffer,
}

const LISTS: [(List, &PerCgroup); 2] = [(List::Processes, &PROCESSES), (List::Threads, &THREADS)];

fn failed(error: ReadError) -> SourceError {
    SourceError::reading("cgroup.procs", "cgroup.procs")(error)
}

/// Counts with `read` (a sum over lists, or nothing) and pushes.
fn emit(
    out: &mut Section,
    (subject, level): (SubjectId, Level),
    mut read: impl FnMut(List) -> Result<Option<u64>, ReadError>,
) -> Result<(), SourceError> {
    for (list, family) in LISTS {
        if let Some(count) = read(list).map_err(failed)? {
            out.push(family.at(level), subject, &[], count);
        }
    }
    Ok(())
}

impl Processes {
    fn job(&mut self, job: &Job, levels: Levels, out: &mut Section) -> Result<(), SourceError> {
        let subject = out.subject(job.labels());
        emit(out, (subject, Level::Job), |list| {
            let mut count = 0;
            let known = job_lists(job, list, &mut self.buffer, |bytes| count += count_ids(bytes))?;
            Ok((known && (count > 0 || !job.cgroup.is_gone())).then_some(count))
        })?;
        if levels.steps {
            for step in job.exported_steps().filter(|step| step.ended.is_none()) {
                self.step(job, step, levels, out)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, job: &Job, step: &Step, levels: Levels, out: &mut Section) -> Result<(), SourceError> {
        let name = step.id.to_string();
        let subject = out.subject(job.labels().chain([("step", name.as_str())]));
        emit(out, (subject, Level::Step), |list| {
            let mut count = 0;
            let any = step_lists(job, step, list, &mut self.buffer, |bytes| count += count_ids(bytes))?;
            Ok(any.then_some(count))
        })?;
        for task in step.tasks.iter().filter(|_| levels.tasks) {
            let id = task.id.to_string();
            let subject = out.subject(job.labels().chain([("step", name.as_str()), ("task", id.as_str())]));
            emit(out, (subject, Level::Task), |list| {
                Ok(task_list(job, step, task, list, &mut self.buffer)?.map(count_ids))
            })?;
        }
        Ok(())
    }
}

impl Collector for Processes {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        for job in snapshot.jobs.iter().filter(|job| job.is_running()) {
            tally.note(self.job(job, snapshot.levels, out));
        }
        tally.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, collect_many, ended, job, snapshot_of, value};

    #[test]
    fn lines_are_counted() {
        assert_eq!(count_ids(b""), 0);
        assert_eq!(count_ids(b"419\n423\n"), 2);
    }

    #[test]
    fn v2_counts_the_tasks_and_not_slurmstepd() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/step_batch/slurm/cgroup.procs", "387\n");
        machine.write("cgroup/job_7/step_batch/slurm/cgroup.threads", "387\n388\n389\n");
        machine.write("cgroup/job_7/step_batch/user/cgroup.threads", "");
        machine.write("cgroup/job_7/step_batch/user/task_0/cgroup.procs", "418\n429\n");
        machine.write("cgroup/job_7/step_batch/user/task_0/cgroup.threads", "418\n429\n430\n");
        machine.write("cgroup/job_7/step_0/user/task_special/cgroup.procs", "557\n");
        machine.write("cgroup/job_7/step_0/user/task_special/cgroup.threads", "557\n");
        let steps: [(&str, &[&str]); 2] = [("batch", &["0", "1"]), ("0", &["special"])];
        let mut snapshot = snapshot_of(machine.roots(), vec![job(7, machine.v2("job_7"), &steps)]);
        snapshot.levels = Levels { steps: true, tasks: true };
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Ok(()));
        for (series, expected) in [
            ("jobledger_job_processes{jobid=\"7\"}", Some(3.0)),
            ("jobledger_job_threads{jobid=\"7\"}", Some(4.0)),
            ("jobledger_step_processes{jobid=\"7\",step=\"batch\"}", Some(2.0)),
            ("jobledger_step_threads{jobid=\"7\",step=\"0\"}", Some(1.0)),
            ("jobledger_task_threads{jobid=\"7\",step=\"batch\",task=\"0\"}", Some(3.0)),
            ("jobledger_task_processes{jobid=\"7\",step=\"batch\",task=\"1\"}", None),
        ] {
            assert_eq!(value(&text, series), expected, "{series} in {text}");
        }
    }

    /// As recorded of SLURM 22.05: the freezer has slurmstepd at the job and no tasks' directories.
    fn v1(machine: &Machine, hierarchies: &[&str]) -> Job {
        for (file, content) in [
            ("freezer/JOB/cgroup.procs", "19137\n19209\n"),
            ("freezer/JOB/step_0/cgroup.procs", "19260\n19262\n"),
            ("freezer/JOB/step_0/tasks", "19260\n19262\n19263\n"),
            ("devices/JOB/step_0/cgroup.procs", "19209\n"),
            ("devices/JOB/step_0/task_0/cgroup.procs", "19260\n19262\n"),
            ("devices/JOB/step_0/task_0/tasks", "19260\n19262\n19263\n"),
            ("cpuset/JOB/step_0/cgroup.procs", "19209\n19260\n19262\n"),
        ] {
            machine.write(&format!("cgroup/{}", file.replace("JOB", "slurm/uid_0/job_2")), content);
        }
        let dirs: Vec<_> = hierarchies.iter().map(|name| (*name, "slurm/uid_0/job_2")).collect();
        job(2, machine.v1(&dirs), &[("0", &["0"])])
    }

    #[test]
    fn v1_counts_the_freezer_or_the_tasks_directories() {
        let machine = Machine::new();
        for hierarchies in [&["devices", "freezer", "cpuset"][..], &["cpuset", "devices"]] {
            let mut snapshot = snapshot_of(machine.roots(), vec![v1(&machine, hierarchies)]);
            snapshot.levels = Levels { steps: true, tasks: true };
            let text = collect(&ENTRY, &snapshot).1;
            assert_eq!(value(&text, "jobledger_job_processes{jobid=\"2\"}"), Some(2.0), "{hierarchies:?}");
            assert_eq!(value(&text, "jobledger_step_threads{jobid=\"2\",step=\"0\"}"), Some(3.0));
            assert_eq!(
                value(&text, "jobledger_task_processes{jobid=\"2\",step=\"0\",task=\"0\"}"),
                Some(2.0)
            );
        }
    }

    #[test]
    fn v1_that_mixes_tasks_with_slurmstepd_has_no_number() {
        let machine = Machine::new();
        let mut job = v1(&machine, &["cpuset"]);
        job.steps[0].tasks.clear();
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), vec![job]));
        assert_eq!(outcome, Ok(()));
        assert!(!text.contains("processes{"), "{text}");
    }

    #[test]
    fn an_idle_job_has_zero_and_one_that_is_gone_or_ended_has_none() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/step_0/user/cgroup.procs", "");
        let job = job(7, machine.v2("job_7"), &[("0", &["0"])]);
        let scenes = [
            snapshot_of(machine.roots(), vec![job.clone()]),
            snapshot_of(machine.roots(), vec![ended(&job)]),
        ];
        let collected = collect_many(&ENTRY, &[&scenes[0], &scenes[1]]);
        assert_eq!(value(&collected[0].1, "jobledger_job_processes{jobid=\"7\"}"), Some(0.0));
        assert!(!collected[1].1.contains("processes{"));
        machine.remove("cgroup/job_7");
        let (outcome, text) = collect(&ENTRY, &scenes[0]);
        assert_eq!(outcome, Ok(()));
        assert!(!text.contains("processes{"), "{text}");
    }
}
