//! A node full of running jobs, of any number, for measurements: on real control groups, or on a recorded machine whose
//! job is there many times over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cgroups::{Site, attach, inherit_cpuset, make_group, remove_group};
use crate::machine::Machine;
use crate::scratch::Scratch;
use crate::servers::die_with_parent;

/// Steps of each job.
pub const STEPS: [&str; 4] = ["step_batch", "step_extern", "step_0", "step_1"];
/// What a job has unless it is said.
const FULL: Shape = Shape { steps: &STEPS, tasks: 1, owners: &OWNERS };
const OWNERS: [u32; 10] = [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010];
/// Id of the first job; the others follow.
pub const FIRST_ID: u32 = 200_000;

const FIXTURE: &str = "slurm26.05-v2-extra-controllers";
const SCOPE: &str = "cgroup/system.slice/node1_slurmstepd.scope";
const JOB_OF_FIXTURE: &str = "sDNHM7VZHTTA00";

/// What each job on real control groups is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Names of its steps.
    pub steps: &'static [&'static str],
    /// Tasks of each step, with a process each.
    pub tasks: u32,
    /// Users who own the jobs in turn.
    pub owners: &'static [u32],
}

/// Jobs with four steps, each with `slurm` and `user/task_0`, or of another shape; the prolog's files say whose they are.
#[derive(Debug)]
pub struct Crowd {
    jobs: u32,
    ended: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A process in every task.
    Real { sleepers: Vec<Child>, site: Site, shape: Shape, prolog: Scratch },
    /// Files on tmpfs.
    Recorded { machine: Machine, template: PathBuf },
}

impl Crowd {
    /// On real control groups, `None` where there is no cgroup2.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn real() -> Option<Self> {
        Some(Self::shaped(Site::v2("slurmstepd.scope")?, FULL))
    }

    /// On real control groups of v1, `None` where no freezer is mounted. `memory` is not among them.
    ///
    /// # Panics
    /// Without root.
    #[must_use]
    pub fn real_v1() -> Option<Self> {
        Some(Self::shaped(Site::v1()?, FULL))
    }

    /// Jobs of this shape at a site.
    #[must_use]
    pub fn shaped(site: Site, shape: Shape) -> Self {
        let prolog = Scratch::new("prolog");
        Self { jobs: 0, ended: 0, place: Place::Real { sleepers: Vec::new(), site, shape, prolog } }
    }

    /// On the files of a recorded machine with every controller on.
    #[must_use]
    pub fn recorded() -> Self {
        let machine = Machine::fixture(FIXTURE);
        let template = PathBuf::from("template");
        machine.rename(Path::new(SCOPE).join(JOB_OF_FIXTURE), &template);
        for entry in fs::read_dir(machine.path(SCOPE)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("sDN")) {
                machine.remove(Path::new(SCOPE).join(name));
            }
        }
        machine.remove(template.join("step_0/user/task_special"));
        machine.rename(template.join("step_0"), "step");
        for step in STEPS.iter().filter(|step| machine.path(template.join(step)).exists()) {
            machine.remove(template.join(step));
        }
        Self { jobs: 0, ended: 0, place: Place::Recorded { machine, template } }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn jobs(&self) -> u32 {
        self.jobs
    }

    /// Adds jobs until there are so many.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn grow_to(&mut self, jobs: u32) {
        for number in self.jobs..jobs {
            let id = FIRST_ID + number;
            let name = format!("job_{id}");
            let prolog = self.jobs_dir().join(id.to_string());
            let owner = self.owner(number);
            fs::write(
                &prolog,
                format!("job_id={id}\nuid={owner}\nuser=u{owner}\naccount=physics\nname=run\n"),
            )
            .unwrap_or_else(|e| panic!("{}: {e}", prolog.display()));
            match &mut self.place {
                Place::Real { sleepers, site, shape, .. } => {
                    start_job(&site.job_dirs(&name, owner), *shape, sleepers);
                }
                Place::Recorded { machine, template } => {
                    let job = Path::new(SCOPE).join(name);
                    machine.link_tree(&*template, &job);
                    STEPS.iter().for_each(|step| {
                        machine.link_tree("step", job.join(step));
                    });
                }
            }
        }
        self.jobs = self.jobs.max(jobs);
    }

    /// Ends all jobs: their directories go with what is in them. Those that are added later have other ids.
    ///
    /// # Panics
    /// If one cannot be removed.
    pub fn end_all(&mut self) {
        for number in std::mem::replace(&mut self.ended, self.jobs)..self.jobs {
            let (name, owner) = (format!("job_{}", FIRST_ID + number), 1001 + number % 10);
            match &mut self.place {
                Place::Real { site, .. } => {
                    site.job_dirs(&name, owner).iter().for_each(|(_, dir)| remove_group(dir));
                }
                Place::Recorded { machine, .. } => {
                    machine.remove(Path::new(SCOPE).join(name));
                }
            }
        }
        if let Place::Real { sleepers, .. } = &mut self.place {
            for mut sleeper in sleepers.drain(..) {
                let _ = sleeper.wait();
            }
        }
    }

    /// The control group of a job, where they are real.
    #[must_use]
    pub fn job_group(&self, id: u32) -> Option<PathBuf> {
        match &self.place {
            Place::Real { site, .. } => Some(site.job_dir(&format!("job_{id}"), self.owner(id - FIRST_ID))),
            Place::Recorded { .. } => None,
        }
    }

    fn owner(&self, number: u32) -> u32 {
        let owners = match &self.place {
            Place::Real { shape, .. } => shape.owners,
            Place::Recorded { .. } => FULL.owners,
        };
        owners.iter().copied().cycle().nth(number as usize).unwrap_or_default()
    }

    fn jobs_dir(&self) -> PathBuf {
        match &self.place {
            Place::Real { prolog, .. } => prolog.path().to_path_buf(),
            Place::Recorded { machine, .. } => machine.jobs_dir(),
        }
    }

    /// The file system of control groups that it is in, where they are real.
    #[must_use]
    pub fn cgroupfs(&self) -> Option<&Path> {
        match &self.place {
            Place::Real { site, .. } => Some(site.cgroupfs()),
            Place::Recorded { .. } => None,
        }
    }

    /// The flags that show this node to an exporter, with everything that it can export by default.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let mut flags = match &self.place {
            Place::Real { site, .. } => vec![format!("--path.cgroupfs={}", site.cgroupfs().display())],
            Place::Recorded { machine, .. } => machine.path_flags(),
        };
        flags.push(format!("--jobs.metadata-dir={}", self.jobs_dir().display()));
        flags.push("--metric.profile=full".to_owned());
        flags
    }

    /// Adds groups of other services beside SLURM's, on real control groups.
    pub fn add_other_groups(&self, count: u32) {
        if let Place::Real { site, .. } = &self.place {
            for number in 0..count {
                make_group(&site.cgroupfs().join(format!("system.slice/other-{number}.service")));
            }
        }
    }
}

/// Makes the groups of a job's steps in each hierarchy as SLURM does, with a process in each task.
fn start_job(hierarchies: &[(Option<&str>, PathBuf)], shape: Shape, sleepers: &mut Vec<Child>) {
    for (step, task) in shape.steps.iter().flat_map(|step| (0..shape.tasks).map(move |task| (step, task))) {
        let task = format!("task_{task}");
        let mut leaves = Vec::new();
        for (controller, job) in hierarchies {
            let step = job.join(step);
            let groups = match controller {
                None => vec![step.join("slurm"), step.join("user"), step.join("user").join(&task)],
                // Neither has groups of tasks (SLURM, proctrack_cgroup.c and task_cgroup_cpuset.c).
                Some("freezer" | "cpuset") => vec![step],
                Some(_) => vec![step.join(&task)],
            };
            for group in &groups {
                make_groups(group);
            }
            leaves.extend(groups.into_iter().next_back());
        }
        let mut command = Command::new("sleep");
        command.arg("100000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sleeper = die_with_parent(&mut command).spawn().unwrap_or_else(|e| panic!("sleep: {e}"));
        for leaf in leaves {
            attach(&leaf, sleeper.id()).unwrap_or_else(|e| panic!("{}: {e}", leaf.display()));
        }
        sleepers.push(sleeper);
    }
}

/// Makes a group and those above it that are missing. A v1 cpuset takes no process before it has CPUs.
fn make_groups(group: &Path) {
    if group.exists() {
        return;
    }
    if let Some(above) = group.parent() {
        make_groups(above);
    }
    make_group(group);
    inherit_cpuset(group);
}

impl Drop for Crowd {
    fn drop(&mut self) {
        if let Place::Real { sleepers, .. } = &mut self.place {
            for sleeper in &mut *sleepers {
                let _ = sleeper.kill();
            }
            for sleeper in sleepers {
                let _ = sleeper.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::{pids, skip_without_groups};
    use crate::skip;

    #[test]
    fn a_shape_says_the_steps_tasks_and_owners_of_jobs() {
        if skip_without_groups() {
            return;
        }
        let Some(site) = Site::v1_with_memory() else {
            return skip("v1", "no memory controller of cgroup v1");
        };
        let mut crowd = Crowd::shaped(site, Shape { steps: &["step_0"], tasks: 2, owners: &[65_534, 7] });
        crowd.grow_to(3);
        let cgroupfs = crowd.cgroupfs().unwrap().to_path_buf();
        for (number, owner) in [65_534, 7, 65_534].into_iter().enumerate() {
            let job = format!("slurm/uid_{owner}/job_{}", 200_000 + number);
            let of = |controller: &str, group: &str| pids(&cgroupfs.join(controller).join(&job).join(group));
            for task in ["step_0/task_0", "step_0/task_1"] {
                assert_eq!(of("memory", task).len(), 1, "{job} {task}");
                assert_eq!(of("memory", task), of("cpuacct", task));
            }
            assert_eq!(of("freezer", "step_0").len(), 2);
        }
        let top = fs::canonicalize(cgroupfs.join("memory")).unwrap();
        assert!(top.exists());
        drop(crowd);
        assert!(!top.exists());
    }
}
