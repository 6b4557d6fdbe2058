use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use cgroups::Controller;
use kernel_files::ReadError;
use slurm_jobs::JobId;
use slurm_jobs::metadata::parse_metadata;
use slurm_jobs::testing::{ended, job};
use test_machine::Machine;

use super::super::testing::{gpu, mig};
use super::*;

/// A kernel: what is denied in a cgroup by the programs in force, by its inode.
type Cgroups = HashMap<u64, Result<(Vec<DeviceNode>, Vec<u32>), DeviceAccess>>;

/// Answers in place of the kernel, and counts the questions.
#[derive(Clone, Default)]
struct Kernel(Arc<Mutex<(Cgroups, usize, Option<SourceError>)>>);

impl Kernel {
    fn set(&self, cgroup: &Cgroup, answer: Result<(Vec<u32>, Vec<u32>), DeviceAccess>) {
        let inode = cgroup.dirs().next().unwrap().stat().unwrap().inode;
        let nodes =
            |minors: Vec<u32>| minors.iter().map(|minor| DeviceNode { major: 195, minor: *minor }).collect();
        self.0.lock().unwrap().0.insert(inode, answer.map(|(denied, programs)| (nodes(denied), programs)));
    }

    fn forget(&self, cgroup: &Cgroup) {
        let inode = cgroup.dirs().next().unwrap().stat().unwrap().inode;
        self.0.lock().unwrap().0.remove(&inode);
    }

    fn refuse(&self, error: Option<SourceError>) {
        self.0.lock().unwrap().2 = error;
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl DeviceAccessSource for Kernel {
    fn ask(
        &mut self,
        cgroups: &[BorrowedFd<'_>],
        nodes: &[DeviceNode],
    ) -> Result<Vec<Result<DeviceAccess, SourceError>>, SourceError> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        if let Some(error) = state.2.clone() {
            return Err(error);
        }
        let answer = |fd: &BorrowedFd<'_>| match state.0.get(&rustix::fs::fstat(fd).unwrap().st_ino) {
            Some(Ok((denied, programs))) => Ok(DeviceAccess::Allowed {
                nodes: nodes.iter().map(|node| !denied.contains(node)).collect(),
                programs: programs.clone(),
            }),
            Some(Err(device_access)) => Ok(device_access.clone()),
            None => Err(SourceError::Io { file: "cgroup", error: ReadError::Gone }),
        };
        Ok(cgroups.iter().map(answer).collect())
    }
}

/// A node: four GPUs, SLURM's scope, and a kernel that has no program there.
struct Node {
    machine: Machine,
    kernel: Kernel,
    scopes: Vec<Arc<SlurmCgroup>>,
    units: Vec<Arc<Unit>>,
    jobs: Vec<Arc<Job>>,
    options: BindOptions,
}

const SCOPE: &str = "system.slice/slurmstepd.scope";

impl Node {
    fn new(jobs: &[u32]) -> Self {
        let machine = Machine::new();
        let kernel = Kernel::default();
        let mut made = Vec::new();
        for id in jobs {
            machine.write(&format!("cgroup/{SCOPE}/job_{id}/step_0/user/task_0/cgroup.procs"), "");
            let cgroup = machine.v2(&format!("{SCOPE}/job_{id}"));
            kernel.set(&cgroup, Err(DeviceAccess::NoProgram));
            made.push(Arc::new(job(*id, cgroup, &[("0", &["0"])])));
        }
        machine.write(&format!("cgroup/{SCOPE}/cgroup.procs"), "");
        let cgroup = machine.v2(SCOPE);
        kernel.set(&cgroup, Err(DeviceAccess::NoProgram));
        let scope = SlurmCgroup { paths: vec![SCOPE.to_owned()], node: None, inode: 1, cgroup };
        Self {
            machine,
            kernel,
            scopes: vec![Arc::new(scope)],
            units: (0..4).map(|minor| Arc::new(gpu(minor))).collect(),
            jobs: made,
            options: BindOptions::default(),
        }
    }

    fn binder(&self) -> Binder {
        let roots = Arc::new(self.machine.roots());
        Binder::new(roots, self.options.clone(), Some(Box::new(self.kernel.clone())))
    }

    fn change(&mut self, number: usize, change: impl FnOnce(&mut Job)) {
        change(Arc::make_mut(&mut self.jobs[number]));
    }

    fn prolog(&mut self, number: usize, text: &str) {
        self.change(number, |job| job.metadata = Arc::new(parse_metadata(text.as_bytes())));
    }

    /// SLURM's program of a job denies these.
    fn denies(&self, number: usize, minors: &[u32], programs: &[u32]) {
        self.kernel.set(&self.jobs[number].cgroup, Ok((minors.to_vec(), programs.to_vec())));
    }

    fn bind(&self, binder: &mut Binder) -> Binding {
        binder.bind(&self.jobs, &self.scopes, &self.units, &ProcessesOnUnits::default())
    }

    fn file(&self, path: &str, content: &str) -> PathBuf {
        self.machine.write(path, content);
        let path = self.machine.path.join(path);
        let dir = path.parent().unwrap().to_owned();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }
}

/// What is known, as `job: source unit unit`.
fn bindings(binding: &Binding) -> Vec<String> {
    let one = |(run, finding): (&JobRunId, &JobBinding)| match finding {
        JobBinding::Known(bound) => {
            let words: Vec<_> =
                [bound.source.as_str()].into_iter().chain(bound.units.iter().map(|u| &**u)).collect();
            format!("{}: {}", run.0, words.join(" "))
        }
        JobBinding::Unknown => format!("{}: unknown", run.0),
    };
    binding.jobs.iter().map(one).collect()
}

#[test]
fn jobs_have_what_their_own_programs_allow() {
    let node = Node::new(&[1, 2, 3, 4]);
    let mut binder = node.binder();
    node.denies(0, &[2, 3], &[10]);
    node.denies(1, &[0, 1, 3], &[20]);
    node.denies(2, &[0, 1, 2, 3], &[30]);
    let binding = node.bind(&mut binder);
    let expected =
        ["1: device_program GPU-0 GPU-1", "2: device_program GPU-2", "3: device_program", "4: unknown"];
    assert_eq!(bindings(&binding), expected);
    assert_eq!((binding.shared.len(), binding.problems.len()), (0, 0));
    assert_eq!(node.kernel.asked(), 1, "one question for all");

    // Another step: another program of the same answer. A job that cannot be asked keeps what it has.
    node.denies(0, &[2, 3], &[11]);
    node.kernel.set(&node.jobs[1].cgroup, Err(DeviceAccess::NotFollowed));
    node.kernel.set(&node.jobs[2].cgroup, Err(DeviceAccess::NoProgram));
    assert_eq!(bindings(&node.bind(&mut binder)), expected);
    node.kernel.forget(&node.jobs[1].cgroup);
    assert_eq!(node.bind(&mut binder).problems.len(), 1, "it is there and nobody says why");
    let denied = SourceError::Denied { what: "bpf".to_owned() };
    node.kernel.refuse(Some(denied.clone()));
    let binding = node.bind(&mut binder);
    assert_eq!((bindings(&binding), binding.problems), (expected.map(str::to_owned).into(), vec![denied]));
}

#[test]
fn a_program_from_above_slurm_is_not_the_jobs() {
    let mut node = Node::new(&[1, 2]);
    let mut binder = node.binder();
    let scope = node.scopes[0].clone();
    node.kernel.set(&scope.cgroup, Ok((vec![3], vec![5])));
    node.denies(0, &[3], &[5]);
    node.denies(1, &[1, 2, 3], &[5, 20]);
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: unknown", "2: device_program GPU-0"]);

    // Two slurmd: of one of them SLURM's directory cannot be asked, of its jobs nothing is known.
    node.machine.write("cgroup/system.slice/n2_slurmstepd.scope/cgroup.procs", "");
    let cgroup = node.machine.v2("system.slice/n2_slurmstepd.scope");
    let second = SlurmCgroup { paths: Vec::new(), node: Some("n2".into()), inode: 2, cgroup };
    node.scopes.push(Arc::new(second));
    node.change(0, |job| job.slurm_node = Some("n2".into()));
    node.denies(0, &[0], &[6]);
    assert_eq!(bindings(&node.bind(&mut node.binder())), ["1: unknown", "2: device_program GPU-0"]);
    node.kernel.set(&node.scopes[1].cgroup, Err(DeviceAccess::NoProgram));
    let expected = ["1: device_program GPU-1 GPU-2 GPU-3", "2: device_program GPU-0"];
    assert_eq!(bindings(&node.bind(&mut node.binder())), expected);
    node.change(0, |job| job.slurm_node = Some("n3".into()));
    assert_eq!(
        bindings(&node.bind(&mut node.binder()))[0],
        "1: device_program GPU-1 GPU-2 GPU-3",
        "any may be above"
    );
    node.denies(0, &[3], &[5]);
    assert_eq!(bindings(&node.bind(&mut node.binder()))[0], "1: unknown");
    node.scopes.clear();
    assert_eq!(bindings(&node.bind(&mut node.binder())), ["1: unknown", "2: unknown"]);
}

#[test]
fn parts_on_a_mixed_node_and_jobs_that_share_a_gpu() {
    let mut node = Node::new(&[1, 2, 3]);
    let mut divided = gpu(0);
    divided.divided = true;
    node.units = [divided, mig(0, 1, 0), gpu(1)].map(Arc::new).into();
    let mut binder = node.binder();
    node.denies(0, &[1], &[10]);
    node.denies(1, &[0], &[20]);
    node.denies(2, &[0], &[30]);
    let binding = node.bind(&mut binder);
    let expected = ["1: device_program MIG-0-1-0", "2: device_program GPU-1", "3: device_program GPU-1"];
    assert_eq!(bindings(&binding), expected);
    assert_eq!(binding.shared, BTreeSet::from(["GPU-1".into()]), "shards");
    node.change(2, |job| *job = ended(job));
    let binding = node.bind(&mut binder);
    assert_eq!(bindings(&binding), expected, "an ended job keeps its binding");
    assert!(binding.shared.is_empty(), "it is shared no longer");
}

#[test]
fn without_units_nothing_is_learnt_and_nothing_forgotten() {
    let mut node = Node::new(&[1]);
    let mut binder = node.binder();
    node.denies(0, &[0, 1, 2], &[10]);
    let units = std::mem::take(&mut node.units);
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: unknown"], "no driver is no answer");
    assert_eq!(node.kernel.asked(), 0);
    node.units = units;
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: device_program GPU-3"]);
    node.units.clear();
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: device_program GPU-3"]);
}

#[test]
fn a_requeued_job_is_another_run() {
    let mut node = Node::new(&[1, 7]);
    let mut binder = node.binder();
    node.denies(0, &[0, 1, 2], &[10]);
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: device_program GPU-3", "7: unknown"]);
    node.change(0, |job| *job = ended(job));
    node.change(1, |job| job.id = Some(JobId(1)));
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: device_program GPU-3", "7: unknown"]);
    node.denies(1, &[1, 2, 3], &[20]);
    assert_eq!(bindings(&node.bind(&mut binder)), ["1: device_program GPU-3", "7: device_program GPU-0"]);
    node.jobs.remove(0);
    assert_eq!(bindings(&node.bind(&mut binder)), ["7: device_program GPU-0"]);
    assert_eq!(binder.known.len(), 1, "nothing is kept of jobs that are not exported any more");
}

#[test]
fn the_prologs_file_counts_where_the_kernel_says_nothing() {
    let mut node = Node::new(&[1, 2, 3, 4, 5]);
    node.prolog(0, "job_id=1\ngpus=0,2\n");
    node.prolog(1, "job_id=2\ngpus=7\ngpu_uuids=GPU-3\n");
    node.prolog(2, "job_id=3\nuser=alice\n");
    node.prolog(3, "job_id=4\ngpus=1\nnode=n2\n");
    node.change(3, |job| job.slurm_node = Some("n1".into()));
    node.prolog(4, "job_id=5\ngpus=3,4\n");
    let mut binder = node.binder();
    let expected = ["1: prolog GPU-0 GPU-2", "2: prolog GPU-3", "3: unknown", "4: unknown", "5: unknown"];
    assert_eq!(bindings(&node.bind(&mut binder)), expected);
    node.denies(0, &[0, 2, 3], &[10]);
    assert_eq!(bindings(&node.bind(&mut binder))[0], "1: device_program GPU-1", "the kernel knows better");
    node.kernel.set(&node.jobs[0].cgroup, Err(DeviceAccess::NoProgram));
    assert_eq!(bindings(&node.bind(&mut binder))[0], "1: device_program GPU-1", "and is remembered");

    // Where nobody is sure what an index is, ids are.
    Arc::make_mut(&mut node.units[0]).index = Some(1);
    Arc::make_mut(&mut node.units[1]).index = Some(0);
    let now = bindings(&node.bind(&mut node.binder()));
    assert_eq!(now[..2], ["1: unknown", "2: prolog GPU-3"]);
    node.options.gres_order = Some([1, 0, 3, 2].map(GresName::Minor).into());
    let now = bindings(&node.bind(&mut node.binder()));
    assert_eq!(now[..2], ["1: prolog GPU-1 GPU-3", "2: prolog GPU-3"]);
}

#[test]
fn files_of_other_prologs_name_the_job_and_its_owner() {
    let mut node = Node::new(&[1, 2, 3]);
    let dir = node.file("gpustat/GPU-0", "1 1001\n");
    node.file("gpustat/1", "1 1001\n");
    node.file("gpustat/GPU-2", "2 7\n");
    node.file("gpustat/GPU-3", "99 1001\n");
    node.options.gpustat_dir = Some(dir.clone());
    node.options.job_mapping_dir = Some(node.file("mapping/2", "2\n3\n"));
    let mut binder = node.binder();
    let binding = node.bind(&mut binder);
    let expected = ["1: gpustat GPU-0 GPU-1", "2: job_mapping GPU-2", "3: job_mapping GPU-2"];
    assert_eq!(bindings(&binding), expected, "a file of another user's job is from before");
    assert_eq!(binding.shared, BTreeSet::from(["GPU-2".into()]));

    // The epilog removes one file after the other; then another job gets a GPU of it.
    node.machine.remove("gpustat/1");
    assert_eq!(bindings(&node.bind(&mut binder)), expected);
    node.machine.remove("gpustat/GPU-0");
    assert_eq!(bindings(&node.bind(&mut binder)), expected);
    node.file("gpustat/GPU-1", "2 1001\n");
    let expected = ["1: gpustat GPU-0", "2: gpustat GPU-1", "3: job_mapping GPU-2"];
    assert_eq!(bindings(&node.bind(&mut binder)), expected);

    // Two slurmd on this host have parts of the same job.
    node.change(1, |job| job.id = Some(JobId(1)));
    assert_eq!(bindings(&node.bind(&mut node.binder()))[..2], ["1: unknown", "2: unknown"]);

    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let binding = node.bind(&mut node.binder());
    assert_eq!(binding.problems.iter().map(SourceError::reason).collect::<Vec<_>>(), ["denied"]);
}

#[test]
fn presence_is_worth_less_than_any_file() {
    let mut node = Node::new(&[1, 2, 3]);
    node.options.gpustat_dir = Some(node.file("gpustat/GPU-0", "1 1001\n"));
    let mut binder = node.binder();
    let run = |number: u64| JobRunId(number);
    let on = |pairs: &[(u64, u32)]| {
        use gpu_devices::{Process, ProcessKind, UnitSample};
        let owners =
            pairs.iter().map(|(job, _)| (u32::try_from(*job).unwrap(), super::super::Owner::Job(run(*job))));
        let samples = pairs.iter().map(|(job, minor)| {
            let mut sample = UnitSample::new(Arc::new(gpu(*minor)), 0);
            let pid = u32::try_from(*job).unwrap();
            sample.processes =
                Some(vec![Process { pid, kind: ProcessKind::Compute, memory: None, busy_ns: None }]);
            sample
        });
        let samples = samples.collect::<Vec<_>>();
        ProcessesOnUnits::new(&samples, &owners.collect())
    };
    let mut bind =
        |pairs: &[(u64, u32)]| bindings(&binder.bind(&node.jobs, &node.scopes, &node.units, &on(pairs)));
    assert_eq!(bind(&[(1, 3), (2, 1)]), ["1: gpustat GPU-0", "2: processes GPU-1", "3: unknown"]);
    assert_eq!(bind(&[(2, 2)])[1], "2: processes GPU-1 GPU-2", "it has what it was on");
    assert_eq!(bind(&[])[1], "2: processes GPU-1 GPU-2");
    node.denies(1, &[0, 1, 3], &[10]);
    assert_eq!(bind(&[(2, 1)])[1], "2: device_program GPU-2");
}

#[test]
fn the_environment_is_believed_only_when_allowed_and_last() {
    let mut node = Node::new(&[1, 2, 3, 4]);
    let task = |id: u32| {
        let step = if id == 1 { "batch" } else { "0" };
        format!("cgroup/{SCOPE}/job_{id}/step_{step}/user/task_0/cgroup.procs")
    };
    node.change(0, |one| *one = job(1, one.cgroup.open_below(".").unwrap(), &[("batch", &["0"])]));
    for (id, environ) in [
        (1, "SLURM_JOB_GPUS=0,1\0CUDA_VISIBLE_DEVICES=0\0"),
        (2, "SLURM_STEP_GPUS=2\0CUDA_VISIBLE_DEVICES=GPU-3\0"),
        (3, "CUDA_VISIBLE_DEVICES=0,1\0SLURM_GPUS_ON_NODE=2\0"),
        // The list of the node on which the batch script runs.
        (4, "SLURM_JOB_GPUS=1\0"),
    ] {
        node.machine.write(&task(id), format!("10{id}\n")).write(&format!("proc/10{id}/environ"), environ);
    }
    assert_eq!(
        bindings(&node.bind(&mut node.binder())),
        ["1: unknown", "2: unknown", "3: unknown", "4: unknown"]
    );
    node.options.environment_hints = true;
    let mut binder = node.binder();
    let expected = ["1: environment GPU-0 GPU-1", "2: environment GPU-2 GPU-3", "3: unknown", "4: unknown"];
    assert_eq!(bindings(&node.bind(&mut binder)), expected, "a process's own numbering is nothing");
    node.machine.remove("proc/101/environ").write("proc/101/environ/x", "");
    let binding = node.bind(&mut binder);
    assert_eq!((bindings(&binding), binding.problems.len()), (expected.map(str::to_owned).into(), 1));
    node.machine.remove("proc/101/environ");
    assert_eq!(bindings(&node.bind(&mut binder)), expected);
    node.prolog(0, "gpus=3\n");
    assert_eq!(bindings(&node.bind(&mut binder))[0], "1: prolog GPU-3");
}

#[test]
fn v1_lists_are_asked_of_jobs_and_of_what_is_above_them() {
    let node = Node::new(&[]);
    let machine = &node.machine;
    for (dir, list) in [
        ("slurm", "all"),
        ("slurm/uid_0/job_1", "0"),
        ("slurm/uid_0/job_2", "all"),
        ("slurm/uid_0/job_3", "x"),
    ] {
        machine.write(&format!("cgroup/devices/{dir}/devices.list"), list);
    }
    machine.write("cgroup/freezer/slurm/uid_0/job_4/cgroup.procs", "");
    let devices = |id: u32| job(id, machine.v1(&[("devices", &format!("slurm/uid_0/job_{id}"))]), &[]);
    let freezer = job(4, machine.v1(&[("freezer", "slurm/uid_0/job_4")]), &[]);
    let jobs: Vec<_> = [devices(1), devices(2), devices(3), freezer].map(Arc::new).into();
    let cgroup = machine.v1(&[("devices", "slurm")]);
    let scopes = [Arc::new(SlurmCgroup { paths: Vec::new(), node: None, inode: 1, cgroup })];
    let read: DevicesList = |cgroup, nodes, buffer| {
        let list = cgroup.dir(Controller::Devices).unwrap().read("devices.list", buffer).unwrap();
        match list {
            b"all" => Ok(DeviceAccess::NoProgram),
            b"0" => Ok(DeviceAccess::Allowed {
                nodes: nodes.iter().map(|node| node.minor == 0).collect(),
                programs: Vec::new(),
            }),
            _ => Err(SourceError::Io { file: "devices.list", error: ReadError::Io(5) }),
        }
    };
    let processes = ProcessesOnUnits::default();
    let mut binder = node.binder().with_devices_list(read);
    let binding = binder.bind(&jobs, &scopes, &node.units, &processes);
    assert_eq!(bindings(&binding), ["1: devices_list GPU-0", "2: unknown", "3: unknown", "4: unknown"]);
    assert_eq!(binding.problems.len(), 1);
    assert_eq!(node.kernel.asked(), 0, "there is nothing of v2 to ask about");
}
