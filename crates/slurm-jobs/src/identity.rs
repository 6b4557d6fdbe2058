//! The identity of a job, from sources that its user cannot write: the title of SLURM's own slurmstepd, the owner of
//! the processes it started, and the time it started.

use cgroups::{Controller, Version};
use clocks::{Boot, Moment};
use kernel_files::parse::{colon_keyed, fields, integer};
use kernel_files::{Buffer, Dir, Roots};

use super::environment::parse_hints;
use super::metadata::{ENDED, Metadata, read_metadata};
use super::names::stepd_title;
use super::{Job, JobId};

/// Most processes of a step whose owner is read.
const MOST_ASKED: usize = 8;

/// Parent and real user of a process (`/proc/PID/status`, proc(5)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessOwner {
    /// Parent's pid.
    pub parent: Option<u64>,
    /// Real uid. The owner of `/proc/PID` is no substitute: it is root for processes that may not be dumped.
    pub uid: Option<u32>,
}

/// Parses `/proc/PID/status` for [`ProcessOwner`].
pub fn parse_status(bytes: &[u8]) -> ProcessOwner {
    let mut owner = ProcessOwner::default();
    colon_keyed(bytes, |key, value| match key {
        b"PPid" => owner.parent = integer(value),
        b"Uid" => {
            owner.uid = fields(value).next().and_then(integer).and_then(|uid| u32::try_from(uid).ok());
        }
        _ => {}
    });
    owner
}

/// Start of a process in ticks since boot: field 22 of `/proc/PID/stat`. The name in parentheses may hold
/// anything, so fields are counted from its last closing one.
pub fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|b| *b == b')')?;
    fields(stat.get(after_name + 1..)?).nth(19).and_then(integer)
}

/// `btime` of `/proc/stat`: the boot, seconds since the epoch.
pub fn parse_boot_time(stat: &[u8]) -> Option<u64> {
    stat.split(|b| *b == b'\n').find_map(|line| integer(line.strip_prefix(b"btime ")?))
}

/// The pids of a `cgroup.procs`, at most `most`.
pub fn pids(procs: &[u8], most: usize) -> Vec<u64> {
    procs.split(|b| *b == b'\n').filter_map(integer).take(most).collect()
}

/// Reads identities from procfs and the prolog's directory.
#[derive(Debug)]
pub struct Identities {
    proc: Option<Dir>,
    boot: Option<Boot>,
    jobs_dir: Option<std::path::PathBuf>,
    /// Whether names may come from the environment of processes.
    hints: bool,
    /// The owner of trusted files: that of the cgroup tree.
    owner: u32,
}

/// What could be found out about a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Identity {
    /// Job id.
    pub id: Option<JobId>,
    /// Owner.
    pub uid: Option<u32>,
    /// The prolog's file.
    pub metadata: Option<Metadata>,
    /// Start of the oldest slurmstepd (or process, without one).
    pub started: Option<Moment>,
    /// By the ordinals of steps that are there, the starts of their slurmstepds, the earliest first: each makes its step's
    /// directory.
    pub steps: Vec<(u32, Moment)>,
}

/// A slurmstepd of a job.
#[derive(Debug, Clone, Copy)]
struct Stepd {
    pid: u64,
    /// The job's id in its title.
    id: Option<JobId>,
    /// The step in whose directory it is.
    step: Option<u32>,
}

impl Identities {
    /// Opens the sources; those that cannot be opened are left out.
    pub fn open(roots: &Roots, jobs_dir: Option<std::path::PathBuf>, hints: bool) -> Self {
        let mut buffer = Buffer::default();
        let proc = Dir::open(&roots.proc("")).ok();
        let btime = proc.as_ref().and_then(|p| parse_boot_time(p.read("stat", &mut buffer).ok()?));
        // Once: later a clock that was set would move the starts.
        let boot = btime.map(|btime| Boot::of(btime, Moment::now()));
        let owner = Dir::open(&roots.cgroup("")).and_then(|d| d.stat()).map_or(0, |s| s.uid);
        Self { proc, boot, jobs_dir, hints, owner }
    }

    /// `status` and `stat` are one record each (fs/proc/base.c `proc_single_show`). Of `cmdline` a title is enough.
    fn read_proc<'b>(&self, pid: u64, file: &str, buffer: &'b mut Buffer) -> Option<&'b [u8]> {
        self.proc.as_ref()?.read_record(&format!("{pid}/{file}"), buffer).ok()
    }

    fn read_environ<'b>(&self, pid: u64, buffer: &'b mut Buffer) -> Option<&'b [u8]> {
        self.proc.as_ref()?.read(&format!("{pid}/environ"), buffer).ok()
    }

    fn owner_of(&self, pid: u64, buffer: &mut Buffer) -> Option<ProcessOwner> {
        self.read_proc(pid, "status", buffer).map(parse_status)
    }

    /// The job's own slurmstepds with the id in their title. On v2 they are in `step_X/slurm`, where only root
    /// can put a process; on v1 in each hierarchy's directory of the step, but for the freezer's, where they are in the job's.
    /// A title counts only if the process is root's.
    fn stepds(&self, job: &Job, buffer: &mut Buffer) -> Vec<Stepd> {
        let v1 = job.cgroup.version() == Version::V1;
        let live = || job.steps.iter().filter(|step| step.ended.is_none());
        let freezer = job.cgroup.position(Controller::Freezer).filter(|_| v1);
        let (last, first): (Vec<_>, Vec<_>) =
            job.cgroup.dirs().enumerate().partition(|(place, _)| Some(*place) == freezer);
        let mut found: Vec<Stepd> = Vec::new();
        for (_, dir) in first.into_iter().chain(last) {
            let mut candidates: Vec<(u64, Option<u32>)> = Vec::new();
            let mut ask = |path: &str, step: Option<u32>, buffer: &mut Buffer| {
                if let Ok(procs) = dir.read_list(path, buffer) {
                    candidates.extend(pids(procs, MOST_ASKED).into_iter().map(|pid| (pid, step)));
                }
            };
            for step in live() {
                let below = if v1 { "cgroup.procs" } else { "slurm/cgroup.procs" };
                ask(&format!("{}/{below}", step.name), Some(step.ordinal), buffer);
            }
            if v1 {
                ask("cgroup.procs", None, buffer);
            }
            for (pid, step) in candidates {
                match found.iter_mut().find(|stepd| stepd.pid == pid) {
                    Some(known) => known.step = known.step.or(step),
                    None => found.extend(self.stepd(pid, step, buffer)),
                }
            }
            let has = |ordinal: u32| found.iter().any(|stepd| stepd.step == Some(ordinal));
            // What another hierarchy has is the same.
            if !found.is_empty() && live().all(|step| has(step.ordinal)) {
                break;
            }
        }
        found
    }

    /// The process, if it is a slurmstepd.
    fn stepd(&self, pid: u64, step: Option<u32>, buffer: &mut Buffer) -> Option<Stepd> {
        let owner = self.owner_of(pid, buffer)?.uid?;
        if owner != 0 && owner != self.owner {
            return None;
        }
        let cmdline = self.read_proc(pid, "cmdline", buffer)?;
        let id = stepd_title(cmdline).map(|(id, _)| id);
        cmdline.starts_with(b"slurmstepd").then_some(Stepd { pid, id, step })
    }

    /// A process that a slurmstepd started, and its owner. A child that is still slurmstepd (between fork and exec)
    /// may be root's yet, so root's word is taken only from a process that became something else.
    fn task(&self, job: &Job, stepds: &[Stepd], buffer: &mut Buffer) -> Option<(u64, u32)> {
        if stepds.is_empty() {
            return None;
        }
        for step in job.steps.iter().filter(|s| s.ended.is_none()) {
            let tasks = step.tasks.iter().filter_map(|task| step.task_view(job, task));
            for view in step.user_view(job).into_iter().chain(tasks) {
                let Ok(Some(procs)) = view.read_list("cgroup.procs", buffer) else { continue };
                for pid in pids(procs, MOST_ASKED) {
                    let Some(ProcessOwner { parent: Some(parent), uid: Some(uid) }) =
                        self.owner_of(pid, buffer)
                    else {
                        continue;
                    };
                    if !stepds.iter().any(|stepd| stepd.pid == parent) {
                        continue;
                    }
                    let still_stepd = self
                        .read_proc(pid, "cmdline", buffer)
                        .is_none_or(|cmdline| cmdline.is_empty() || cmdline.starts_with(b"slurmstepd"));
                    // Up to 24.11 the external step holds a `sleep` of root's.
                    let extern_step = step.id.kind == super::StepKind::Extern;
                    if uid != 0 || !(still_stepd || extern_step) {
                        return Some((pid, uid));
                    }
                }
            }
        }
        None
    }

    /// Some of the user's own processes, for a job whose slurmstepd died.
    fn task_pids(&self, job: &Job, buffer: &mut Buffer) -> Vec<u64> {
        let mut found = Vec::new();
        for step in job.steps.iter().filter(|s| s.ended.is_none()) {
            let tasks = step.tasks.iter().filter_map(|task| step.task_view(job, task));
            for view in step.user_view(job).into_iter().chain(tasks) {
                if let Ok(Some(procs)) = view.read_list("cgroup.procs", buffer) {
                    found.extend(pids(procs, MOST_ASKED));
                }
            }
        }
        found
    }

    fn start_of(&self, pid: u64, buffer: &mut Buffer) -> Option<Moment> {
        let ticks = parse_start_ticks(self.read_proc(pid, "stat", buffer)?)?;
        Some(self.boot?.at_ticks(ticks))
    }

    /// The prolog's file for a job id. Several slurmd on one host share it: values that differ between them are not
    /// read here.
    pub fn metadata(&self, id: JobId, buffer: &mut Buffer) -> Option<Metadata> {
        self.file_of(id, &id.to_string(), buffer)
    }

    /// What the epilog made of the prolog's file.
    pub fn ended_metadata(&self, id: JobId, buffer: &mut Buffer) -> Option<Metadata> {
        self.file_of(id, &format!("{id}{ENDED}"), buffer)
    }

    fn file_of(&self, id: JobId, name: &str, buffer: &mut Buffer) -> Option<Metadata> {
        let dir = Dir::open(self.jobs_dir.as_ref()?).ok()?;
        let metadata = read_metadata(&dir, name, self.owner, buffer).ok()?;
        (metadata.job_id.is_none_or(|said| said == id)).then_some(metadata)
    }

    /// The prolog's file that names a SLUID: the last resort when no slurmstepd could be asked.
    fn metadata_of_sluid(&self, sluid: super::Sluid, buffer: &mut Buffer) -> Option<Metadata> {
        let dir = Dir::open(self.jobs_dir.as_ref()?).ok()?;
        let names = dir.list().ok()?;
        // Not that of a run before this one.
        let running = names.iter().filter(|entry| JobId::parse(entry.name.as_bytes()).is_some());
        running.into_iter().find_map(|entry| {
            let metadata = read_metadata(&dir, &entry.name, self.owner, buffer).ok()?;
            (metadata.sluid == Some(sluid) && metadata.job_id.is_some()).then_some(metadata)
        })
    }

    /// Finds out what can be found out now. `last_chance` allows the dear ways; `wants_start` is for a job whose start was not
    /// seen.
    pub fn find(&self, job: &Job, last_chance: bool, wants_start: bool, buffer: &mut Buffer) -> Identity {
        let stepds = self.stepds(job, buffer);
        let mut starts: Vec<(Option<u32>, Moment)> = Vec::new();
        for stepd in &stepds {
            starts.extend(self.start_of(stepd.pid, buffer).map(|start| (stepd.step, start)));
        }
        if stepds.is_empty() && wants_start {
            for pid in self.task_pids(job, buffer) {
                starts.extend(self.start_of(pid, buffer).map(|start| (None, start)));
            }
        }
        starts.sort_unstable_by_key(|(_, start)| start.boottime);
        let started = starts.first().map(|(_, start)| *start);
        let steps = starts.iter().filter_map(|(step, start)| Some(((*step)?, *start))).collect();
        let mut id = job.id.or_else(|| stepds.iter().find_map(|stepd| stepd.id));
        let mut metadata = id.and_then(|id| self.metadata(id, buffer));
        if id.is_none() && last_chance {
            metadata = job.sluid.and_then(|sluid| self.metadata_of_sluid(sluid, buffer));
            id = metadata.as_ref().and_then(|m| m.job_id);
        }
        let wanted = job.uid.is_none() || (self.hints && metadata.is_none());
        let task = if wanted { self.task(job, &stepds, buffer) } else { None };
        let uid = job.uid.or(task.map(|(_, uid)| uid));
        if let (Some(uid), Some(said)) = (uid, metadata.as_ref().and_then(|m| m.uid))
            && uid != said
        {
            // Left over from another job of this id: nothing in it is this job's.
            metadata = None;
        }
        let uid = uid.or_else(|| metadata.as_ref().and_then(|m| m.uid));
        if let (true, None, Some((pid, _))) = (self.hints, &metadata, task) {
            metadata = self.read_environ(pid, buffer).map(parse_hints);
        }
        Identity { id, uid, metadata, started, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_move_the_fields() {
        let stat = b"253 (a) b) (c) S 1 252 252 0 -1 4194560 210 0 4 0 0 3 0 0 20 0 1 0 1053 8101888 533\n";
        assert_eq!(parse_start_ticks(stat), Some(1053));
        assert_eq!(parse_start_ticks(b"1 (x"), None);
        assert_eq!(parse_start_ticks(b""), None);
    }

    #[test]
    fn status_and_boot_time() {
        let owner = parse_status(b"Name:\tsleep\nPPid:\t349\nUid:\t1001\t0\t0\t0\nGid:\t5\n");
        assert_eq!(owner, ProcessOwner { parent: Some(349), uid: Some(1001) });
        assert_eq!(parse_status(b"Uid:\tx\n"), ProcessOwner::default());
        assert_eq!(parse_boot_time(b"cpu 1\nbtime 1700000000\nprocesses 1\n"), Some(1_700_000_000));
        assert_eq!(pids(b"1\n22\n333\n", 2), [1, 22]);
    }
}
