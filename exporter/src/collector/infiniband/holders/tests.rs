use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use attribution::SETTLE;
use cgroups::Cgroup;
use exposition::{Section, encode_openmetrics};
use jobledger_testkit::cgroups::{Site, make_group, skip_without_groups};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use slurm_jobs::{LifeHook, Users};

use super::super::ENTRY;
use super::super::kernel::parse_flags;
use super::*;
use crate::collector::attendance::Ear;
use crate::collector::testing::{Machine, built, job, snapshot_of, value};
use crate::collector::{BuildContext, Built};

/// `/dev/full`: a device that hardly anybody opens stands for the HCA.
const NUMBER: (u32, u32) = (1, 7);
const PORT: &str = "device=\"mlx5_0\",port=\"1\"";

fn lay_out(machine: &Machine) {
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    machine.write(&format!("{port}/counters/port_rcv_data"), "1000\n");
    machine.write(&format!("{port}/counters/unicast_rcv_packets"), "1\n");
    machine.write(&format!("{port}/link_layer"), "InfiniBand\n");
    machine.write("sys/class/infiniband/mlx5_0/device/sriov_numvfs", "0\n");
    let driver = machine.path.join("sys/class/infiniband/mlx5_0/device/driver");
    std::os::unix::fs::symlink("../../../../bus/pci/drivers/mlx5_core", driver).unwrap();
    machine.write("sys/class/infiniband_verbs/abi_version", "6\n");
    machine.write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
    machine.write("sys/class/infiniband_verbs/uverbs0/dev", format!("{}:{}\n", NUMBER.0, NUMBER.1));
    for module in ["mlx5_ib", "ib_uverbs", "ib_cm", "rdma_cm"] {
        machine.write(&format!("sys/module/ib_core/holders/{module}"), "");
    }
    std::fs::create_dir_all(machine.path.join("proc/1/ns")).unwrap();
    std::os::unix::fs::symlink("pid:[4026531836]", machine.path.join("proc/1/ns/pid")).unwrap();
}

fn node_of(machine: &Machine, file: &str) -> PathBuf {
    let path = machine.path.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(NUMBER.0, NUMBER.1))
        .unwrap();
    path
}

/// A process that opens and closes files when it is told to.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(group: &Path) -> Self {
        let script = "echo 0 > $0/cgroup.procs; while read order file; do case $order in \
            open) exec 5< $file;; close) exec 5<&-;; esac; echo done; done";
        let mut child = Command::new("sh")
            .args(["-c", script, group.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Self { child, orders, answers };
        process.order("started");
        process
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        self.answers.read_line(&mut String::new()).unwrap();
    }

    fn open(&mut self, path: &Path) {
        self.order(&format!("open {}", path.display()));
    }

    fn close(&mut self) {
        self.order("close");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node with two jobs, each with a process in a cgroup of its own, and a process of no job.
struct Node {
    machine: Machine,
    built: Built,
    jobs: Vec<Job>,
    processes: Vec<Process>,
    device: PathBuf,
    words: u64,
    _site: Site,
}

impl Node {
    fn new() -> Self {
        let machine = Machine::new();
        lay_out(&machine);
        let device = node_of(&machine, "dev/infiniband/uverbs0");
        let site = Site::v2("slurmstepd.scope").unwrap();
        let at = |dir: &str| machine.path.join(dir);
        let roots = Roots::new(at("proc"), at("sys"), "/sys/fs/cgroup", at("dev"));
        let users = Users::start(Box::new(|_| None)).unwrap();
        let mut context = BuildContext::new(Arc::new(roots), Arc::new(users));
        context.port_holders = true;
        let built = built(&ENTRY, &context);
        let ear = Ear(context.attendance.clone());
        ear.looked();
        let (mut jobs, mut processes) = (Vec::new(), Vec::new());
        for id in 1..=3 {
            let path =
                if id == 3 { site.job_dir("system", 0) } else { site.job_dir(&format!("job_{id}"), 0) };
            let task = path.join("step_0/user/task_0");
            [path.clone(), path.join("step_0"), path.join("step_0/user"), task.clone()]
                .iter()
                .for_each(|g| make_group(g));
            let process = Process::start(&task);
            let pid = process.child.id();
            std::os::unix::fs::symlink(format!("/proc/{pid}"), at("proc").join(pid.to_string())).unwrap();
            processes.push(process);
            if id < 3 {
                let job = job(id, Cgroup::v2(Dir::open(&path).unwrap()), &[]);
                ear.appeared(&job);
                built.life.as_ref().unwrap().appeared(&job);
                jobs.push(job);
            }
        }
        Self { machine, built, jobs, processes, device, words: 1000, _site: site }
    }

    fn collect(&mut self) -> (Result<(), CollectError>, String) {
        let mut section = Section::default();
        let scene = snapshot_of(self.machine.roots(), self.jobs.clone());
        let outcome = self.built.collector.collect(&scene, &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        (outcome, text)
    }

    fn process(&mut self, at: usize) -> &mut Process {
        self.processes.get_mut(at).unwrap()
    }

    /// What the jobs and nobody are charged with when the port has received 4000 bytes more: how many thousands each.
    fn spend(&mut self) -> [f64; 3] {
        self.spend_and(|_| ())
    }

    /// The same with something that happens after the first of the two readings.
    fn spend_and(&mut self, happens: impl FnOnce(&mut Self)) -> [f64; 3] {
        let charged = |text: &str| {
            let family = "infiniband_received_bytes_total{";
            let of = |id: u32| {
                value(text, &format!("jobledger_job_{family}jobid=\"{id}\",{PORT}}}")).unwrap_or(0.0)
            };
            let nobody = value(
                text,
                &format!("jobledger_node_infiniband_unattributed_received_bytes_total{{{PORT}}}"),
            );
            let total = value(text, &format!("jobledger_node_{family}{PORT}}}")).unwrap();
            let charged = [of(1), of(2), nobody.unwrap()];
            assert!((charged.iter().sum::<f64>() - total).abs() < 0.5, "{text}");
            charged
        };
        let before = charged(&self.collect().1);
        happens(self);
        self.words += 1000;
        let file = "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data";
        self.machine.write(file, format!("{}\n", self.words));
        let after = charged(&self.collect().1);
        std::array::from_fn(|i| (after.get(i).unwrap() - before.get(i).unwrap()) / 1000.0)
    }
}

/// Until looks that are made by themselves are certain.
fn settle() {
    std::thread::sleep(SETTLE * 5 / 2);
}

const FIRST: [f64; 3] = [4.0, 0.0, 0.0];
const SECOND: [f64; 3] = [0.0, 4.0, 0.0];
const NOBODY: [f64; 3] = [0.0, 0.0, 4.0];

#[test]
fn a_port_is_the_jobs_whose_processes_alone_have_it_open() {
    if skip_without_groups() {
        return;
    }
    let mut node = Node::new();
    let device = node.device.clone();
    assert_eq!(node.collect().0, Ok(()));
    node.process(0).open(&device);
    assert_eq!(node.spend(), NOBODY, "just opened");
    settle();
    assert_eq!(node.spend(), FIRST);
    // Another job opens it and closes it again between two readings.
    let briefly = |node: &mut Node| {
        node.process(1).open(&device);
        node.process(1).close();
    };
    assert_eq!(node.spend_and(briefly), NOBODY);
    assert_eq!(node.spend(), NOBODY, "not certain yet");
    settle();
    assert_eq!(node.spend(), FIRST);
    node.process(1).open(&device);
    settle();
    assert_eq!(node.spend(), NOBODY, "both have it");
    node.process(0).close();
    settle();
    assert_eq!(node.spend(), SECOND);
    // A process of no job.
    node.process(2).open(&device);
    settle();
    assert_eq!(node.spend(), NOBODY);
    node.process(2).close();
    settle();
    // The job's last process ends.
    let ends = |node: &mut Node| node.process(1).close();
    assert_eq!(node.spend_and(ends), SECOND, "nobody else had it open until then");
    assert_eq!(node.spend(), NOBODY);
    let (outcome, text) = node.collect();
    assert_eq!(outcome, Ok(()));
    let counted = |name: &str| value(&text, &format!("jobledger_{name}")).unwrap();
    let jobs =
        [1, 2].map(|id| counted(&format!("job_infiniband_counted_seconds_total{{jobid=\"{id}\",{PORT}}}")));
    let nobody = counted(&format!("node_infiniband_unattributed_counted_seconds_total{{{PORT}}}"));
    let total = counted(&format!("node_infiniband_counted_seconds_total{{{PORT}}}"));
    assert!(jobs.iter().all(|seconds| *seconds > 0.3) && nobody > 5.0, "{jobs:?} {nobody}");
    assert!((jobs.iter().sum::<f64>() + nobody - total).abs() < 1e-6);
}

#[test]
fn other_nodes_of_the_same_device_count() {
    if skip_without_groups() {
        return;
    }
    let mut node = Node::new();
    let device = node.device.clone();
    // The same inode elsewhere, as where a container has the node bound into it.
    let bound = node.machine.path.join("bound");
    std::fs::hard_link(&device, &bound).unwrap();
    let own = node_of(&node.machine, "own");
    drop(node.collect());
    node.process(0).open(&bound);
    settle();
    assert_eq!(node.spend(), FIRST);
    let briefly = |node: &mut Node| {
        node.process(1).open(&bound);
        node.process(1).close();
    };
    assert_eq!(node.spend_and(briefly), NOBODY, "it was heard");
    settle();
    // A node of its own is not heard of, but seen: also if it is the same job's, since who else opens it would not be.
    for other in [1, 0] {
        assert_eq!(node.spend(), FIRST);
        assert_eq!(node.spend_and(|node| node.process(other).open(&own)), NOBODY);
        node.process(other).close();
        drop(node.collect());
        settle();
    }
}

#[test]
fn what_the_kernel_uses_is_no_jobs() {
    if skip_without_groups() {
        return;
    }
    let mut node = Node::new();
    let device = node.device.clone();
    drop(node.collect());
    node.process(0).open(&device);
    settle();
    assert_eq!(node.spend(), FIRST);
    node.machine.write("sys/module/rdma_cm/holders/ib_iser", "");
    assert_eq!(node.spend(), NOBODY);
    node.machine.remove("sys/module/rdma_cm/holders/ib_iser");
    drop(node.collect());
    settle();
    assert_eq!(node.spend(), FIRST);
}

/// Who uses a device of this machine, with one InfiniBand port.
fn user(machine: &Machine) -> Option<String> {
    let (sys, mut buffer) = (Dir::open(&machine.path.join("sys")).unwrap(), Buffer::default());
    let class = Dir::open(&machine.path.join("sys/class/infiniband")).unwrap();
    let device = Device::survey(&class, "mlx5_0".to_owned(), 1, &mut buffer);
    let modules = modules(&sys, &mut buffer).unwrap();
    device.user(&sys, &modules, &mut buffer)
}

#[test]
fn who_in_the_kernel_uses_a_port() {
    let machine = Machine::new();
    lay_out(&machine);
    assert_eq!(user(&machine), None);
    for (module, refcnt, uses) in [
        ("nvidia_peermem", "0", false),
        ("rpcrdma", "0", false),
        ("rpcrdma", "1", true),
        ("ko2iblnd", "0", true),
        ("smc", "0", true),
        ("nvme_rdma", "0", true),
        ("something_new", "0", true),
    ] {
        machine.write(&format!("sys/module/ib_core/holders/{module}"), "");
        machine.write(&format!("sys/module/{module}/refcnt"), format!("{refcnt}\n"));
        assert_eq!(user(&machine), uses.then(|| module.to_owned()), "{module} {refcnt}");
        machine.remove(&format!("sys/module/ib_core/holders/{module}"));
    }
    // IP over InfiniBand.
    machine.write("sys/module/ib_core/holders/ib_ipoib", "");
    assert!(user(&machine).unwrap().contains("another network namespace"), "not here");
    let net = |flags: &str| {
        machine.write("sys/class/net/eth0/type", "1\n").write("sys/class/net/eth0/flags", "0x1003\n");
        machine.write("sys/class/net/ib0/type", "32\n").write("sys/class/net/ib0/flags", flags);
    };
    net("0x1002\n");
    std::os::unix::fs::symlink(
        "../../infiniband/mlx5_0/device",
        machine.path.join("sys/class/net/ib0/device"),
    )
    .unwrap();
    assert_eq!(user(&machine), None, "it is down");
    net("0x1003\n");
    assert_eq!(user(&machine).as_deref(), Some("ib0"));
    net("down\n");
    assert_eq!(user(&machine).as_deref(), Some("ib0"), "what cannot be read may be up");
    net("0x1002\n");
    machine.write("sys/class/infiniband/mlx5_0/device/sriov_numvfs", "2\n");
    assert_eq!(user(&machine).as_deref(), Some("virtual functions"));
    machine.write("sys/class/infiniband/mlx5_0/device/sriov_numvfs", "0\n");
    machine.remove("sys/module/ib_core");
    assert!(user(&machine).unwrap().contains("built into it"));
}

#[test]
fn ports_that_count_more_than_verbs_are_never_held() {
    for (driver, layer, ports, held) in [
        ("mlx5_core", "InfiniBand", 1, true),
        ("mlx4_core", "InfiniBand", 2, true),
        ("mlx5_core", "Ethernet", 1, true),
        ("mlx5_core", "Ethernet", 2, false),
        ("mlx4_core", "Ethernet", 1, false),
        ("bnxt_en", "Ethernet", 1, false),
        ("hfi1", "InfiniBand", 1, false),
        ("mlx5_core", "Unspecified", 1, false),
    ] {
        let machine = Machine::new();
        lay_out(&machine);
        machine.remove("sys/class/infiniband/mlx5_0/device/driver");
        let link = machine.path.join("sys/class/infiniband/mlx5_0/device/driver");
        std::os::unix::fs::symlink(format!("../drivers/{driver}"), link).unwrap();
        for port in 1..=ports {
            let at = format!("sys/class/infiniband/mlx5_0/ports/{port}");
            machine.write(&format!("{at}/counters/port_rcv_data"), "1\n");
            machine.write(&format!("{at}/link_layer"), format!("{layer}\n"));
        }
        assert_eq!(user(&machine).is_none(), held, "{driver} {layer} {ports}");
    }
}

#[test]
fn without_the_right_to_see_every_process_nothing_is_known() {
    if skip_without_groups() {
        return;
    }
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let mut node = Node::new();
    let device = node.device.clone();
    node.process(0).open(&device);
    let at = |dir: &str| node.machine.path.join(dir);
    let roots = Roots::new(at("proc"), at("sys"), at("cgroup"), at("dev"));
    let number = [makedev(NUMBER.0, NUMBER.1)];
    assert_eq!(scan(&roots, &number, &mut Buffer::default()).unwrap().len(), 1);
    let denied = std::thread::scope(|scope| {
        let work = || {
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .unwrap();
            scan(&roots, &number, &mut Buffer::default()).map(|found| found.len())
        };
        scope.spawn(work).join().unwrap()
    });
    let error = denied.unwrap_err();
    assert_eq!(error.reason(), "denied");
    assert!(error.to_string().contains("CAP_SYS_PTRACE"), "{error}");
    // In another PID namespace others' processes are not to be seen.
    node.machine.remove("proc/1/ns/pid");
    std::os::unix::fs::symlink("pid:[4026532000]", at("proc/1/ns/pid")).unwrap();
    let other = scan(&roots, &number, &mut Buffer::default()).map(|found| found.len()).unwrap_err();
    assert_eq!(other.to_string(), "unsupported: needs the host's PID namespace");
    node.machine.remove("proc/1");
    let hidden = scan(&roots, &number, &mut Buffer::default()).map(|found| found.len()).unwrap_err();
    assert!(hidden.to_string().contains("hidepid"), "{hidden}");
}

#[test]
fn numbers_and_flags_as_the_kernel_writes_them() {
    assert_eq!(parse_device_number(b"231:192\n"), Ok(makedev(231, 192)));
    for bad in
        [&b""[..], b"231\n", b"231:\n", b":1\n", b"231:192:3\n", b"x:1\n", b"-1:1\n", b"4294967296:0\n"]
    {
        assert!(parse_device_number(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
    assert_eq!((parse_flags(b"0x1003\n"), parse_flags(b"0x0\n")), (Ok(0x1003), Ok(0)));
    for bad in [&b""[..], b"1003\n", b"0x\n", b"0x+1\n", b"0xg\n", b"0x11111111111111111\n"] {
        assert!(parse_flags(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}
