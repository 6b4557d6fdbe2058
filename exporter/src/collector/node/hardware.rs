//! What the node is made of: CPU, microarchitecture, sockets, cores, NUMA nodes, kernel.
//!
//! `/proc/cpuinfo` (its first record: it can be megabytes long), `sys/devices/system/cpu/cpu*/topology`
//! (Documentation/admin-guide/cputopology.rst), `regs/identification/midr_el1` of ARM (4.8),
//! `sys/devices/system/node/online`, `/proc/sys/kernel/{osrelease,arch}` (`arch` 6.1). No privilege. All of it is
//! read once and again when the set of online CPUs changes, which costs one read per scrape to see; kernels before
//! 5.19 interrupt every CPU when cpuinfo is opened (`arch_freq_prepare_all`), so that one is not for every scrape.
//!
//! The host's name is `/proc/sys/kernel/hostname`. SLURM's name of the node may be another, and no file of the kernel has it:
//! it is in the name of SLURM's cgroup where slurmd was built for several on one host, else the prolog leaves it with each
//! job. It is kept once it is known.

use std::collections::BTreeSet;

use cpu_topology::microarchitecture::{CpuInfo, Microarchitectures, parse_cpuinfo, parse_midr};
use cpu_topology::{CpuSet, count_cores, count_packages, numa_nodes, online};
use exposition::{Family, Profile, Section, SubjectId};
use kernel_files::{NodeFiles, ReadError, label_text};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static INFO: Family = Family::info("jobledger_node_info")
    .labels(&["cpu_model", "microarchitecture", "vendor", "architecture", "kernel", "hostname", "slurm_node"])
    .help(
        "What the node is; a label is empty when it is not known, slurm_node (SLURM's NodeName) \
         also while several slurmd share the host",
    );
static SOCKETS: Family = Family::gauge("jobledger_node_sockets").help("CPU packages with a CPU online");
static CORES: Family = Family::gauge("jobledger_node_cores")
    .profile(Profile::Lean)
    .help("Physical cores with a CPU online; jobledger_node_cpus counts their hardware threads");
static NUMA_NODES: Family = Family::gauge("jobledger_node_numa_nodes").help("NUMA nodes online");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_hardware",
    summary: "CPU model and microarchitecture, sockets, cores, NUMA nodes and kernel of the node",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&INFO, &SOCKETS, &CORES, &NUMA_NODES],
    build: |context| {
        Built::plain(NodeHardware {
            files: NodeFiles::new(&context.roots),
            table: Microarchitectures::built_in(),
            known: None,
            slurm_node: String::new(),
        })
    },
};

/// The hardware that was found, and the CPUs that were online then.
#[derive(Debug)]
struct Hardware {
    online: CpuSet,
    cpu_model: String,
    microarchitecture: String,
    vendor: String,
    architecture: String,
    kernel: String,
    hostname: String,
    sockets: Option<u64>,
    cores: Option<u64>,
    numa_nodes: Option<u64>,
}

/// The source.
#[derive(Debug)]
struct NodeHardware {
    files: NodeFiles,
    table: Microarchitectures,
    known: Option<Hardware>,
    /// SLURM's name of the node; empty while it is not known.
    slurm_node: String,
}

/// SLURM's name of the node, if it is known and the only one: from SLURM's cgroups, else from what root's prolog left.
fn slurm_node(snapshot: &NodeSnapshot) -> Option<&str> {
    let scopes: BTreeSet<&str> = snapshot.scopes.iter().filter_map(|scope| scope.node.as_deref()).collect();
    let prologs = || snapshot.jobs.iter().filter_map(|job| job.metadata.node.as_deref()).collect();
    let mut names = if scopes.is_empty() { prologs() } else { scopes };
    names.pop_first().filter(|_| names.is_empty())
}

/// A file that this machine may not have.
fn optional<T>(read: Result<T, ReadError>, file: &'static str) -> Result<Option<T>, SourceError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(ReadError::Gone | ReadError::Unsupported) => Ok(None),
        Err(error) => Err(SourceError::reading(file, "")(error)),
    }
}

fn line(files: &mut NodeFiles, file: &'static str) -> Result<Option<String>, SourceError> {
    Ok(optional(files.read(file), file)?.map(|bytes| label_text(bytes.trim_ascii())))
}

/// Whether every CPU is of the same kind as the first. x86 gives all its CPUs, hybrid ones too, one model number.
fn uniform(files: &mut NodeFiles, cpus: &CpuSet, first: &CpuInfo) -> Result<bool, SourceError> {
    let (Some(implementer), Some(part)) = (first.implementer, first.part) else { return Ok(true) };
    for cpu in cpus.iter() {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/regs/identification/midr_el1");
        let midr = optional(files.read(&file), "midr_el1")?.and_then(parse_midr);
        if midr.is_some_and(|other| other != (implementer, part)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn survey(
    files: &mut NodeFiles,
    table: &Microarchitectures,
    online: CpuSet,
) -> Result<Hardware, SourceError> {
    const CPUINFO: &str = "proc/cpuinfo";
    let needs = SourceError::reading(CPUINFO, "a procfs with /proc/cpuinfo");
    let cpu = parse_cpuinfo(files.read_start(CPUINFO).map_err(needs)?);
    let name = if uniform(files, &online, &cpu)? { table.name(&cpu) } else { None };
    // Before 6.1 only uname(2) names the architecture, and that is of the running kernel, not of the roots.
    let by_form = match (&cpu.vendor, cpu.implementer) {
        (Some(_), _) => "x86_64",
        (None, Some(_)) => "aarch64",
        (None, None) => "",
    };
    Ok(Hardware {
        sockets: count_packages(files, &online)?,
        cores: count_cores(files, &online)?,
        numa_nodes: numa_nodes(files)?.map(|nodes| nodes.len()),
        kernel: line(files, "proc/sys/kernel/osrelease")?.unwrap_or_default(),
        hostname: line(files, "proc/sys/kernel/hostname")?.unwrap_or_default(),
        architecture: line(files, "proc/sys/kernel/arch")?.unwrap_or_else(|| by_form.to_owned()),
        microarchitecture: name.unwrap_or_default().to_owned(),
        vendor: label_text(table.vendor(&cpu).unwrap_or_default().as_bytes()),
        cpu_model: label_text(cpu.model_name.as_deref().unwrap_or_default().as_bytes()),
        online,
    })
}

impl NodeHardware {
    /// The prolog's name is with a job. Without one, the name that was known is kept.
    fn note_slurm_node(&mut self, snapshot: &NodeSnapshot) {
        let named = |node: Option<&str>| node.is_some();
        let any = snapshot.scopes.iter().any(|scope| named(scope.node.as_deref()))
            || snapshot.jobs.iter().any(|job| named(job.metadata.node.as_deref()));
        if any {
            self.slurm_node = label_text(slurm_node(snapshot).unwrap_or_default().as_bytes());
        }
    }
}

impl Collector for NodeHardware {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let online = online(&mut self.files)?.unwrap_or_default();
        let known = match self.known.take() {
            Some(known) if known.online == online => known,
            _ => survey(&mut self.files, &self.table, online)?,
        };
        self.note_slurm_node(snapshot);
        let labels = [
            ("cpu_model", known.cpu_model.as_str()),
            ("microarchitecture", &known.microarchitecture),
            ("vendor", &known.vendor),
            ("architecture", &known.architecture),
            ("kernel", &known.kernel),
            ("hostname", &known.hostname),
            ("slurm_node", &self.slurm_node),
        ];
        out.push(&INFO, SubjectId::NODE, &labels, 1);
        let counts = [(&SOCKETS, known.sockets), (&CORES, known.cores), (&NUMA_NODES, known.numa_nodes)];
        for (family, count) in counts {
            if let Some(count) = count {
                out.push(family, SubjectId::NODE, &[], count);
            }
        }
        self.known = Some(known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use exposition::encode_openmetrics;
    use slurm_jobs::metadata::Metadata;
    use slurm_jobs::{Job, SlurmCgroup};

    use super::*;
    use crate::collector::testing::{Bench, Machine, collect, job, snapshot_of};

    const CPU: &str = "sys/devices/system/cpu";

    /// Sockets of cores of threads, numbered as x86 does: all first threads, then all second ones.
    fn topology(machine: &Machine, sockets: u32, cores: u32, threads: u32) {
        let all = sockets * cores;
        for cpu in 0..all * threads {
            let core = cpu % all;
            let socket = core / cores;
            let siblings: Vec<_> = (0..threads).map(|t| (core + t * all).to_string()).collect();
            let range = |t| format!("{}-{}", socket * cores + t * all, (socket + 1) * cores + t * all - 1);
            let package: Vec<_> = (0..threads).map(range).collect();
            let at = format!("{CPU}/cpu{cpu}/topology");
            machine.write(&format!("{at}/thread_siblings_list"), siblings.join(",") + "\n");
            machine.write(&format!("{at}/core_siblings_list"), package.join(",") + "\n");
        }
        machine.write(&format!("{CPU}/online"), format!("0-{}\n", all * threads - 1));
    }

    fn samples(text: &str) -> Vec<&str> {
        text.lines().filter(|l| !l.starts_with('#')).collect()
    }

    #[test]
    fn a_node_of_two_sockets_with_two_threads_per_core() {
        let machine = Machine::new();
        topology(&machine, 2, 4, 2);
        machine.write("sys/devices/system/node/online", "0-3\n");
        machine.write("proc/sys/kernel/osrelease", "5.14.0-427.13.1.el9_4.x86_64\n");
        machine.write("proc/sys/kernel/hostname", "node17.cluster\n");
        machine.write(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
             model name\t: Intel(R) Xeon(R) Platinum 8480+\nstepping\t: 8\n\n",
        );
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            samples(&text),
            [
                "jobledger_node_info{cpu_model=\"Intel(R) Xeon(R) Platinum 8480+\",microarchitecture=\"Sapphire Rapids\",\
                 vendor=\"GenuineIntel\",architecture=\"x86_64\",kernel=\"5.14.0-427.13.1.el9_4.x86_64\",\
                 hostname=\"node17.cluster\",slurm_node=\"\"} 1",
                "jobledger_node_sockets 2",
                "jobledger_node_cores 8",
                "jobledger_node_numa_nodes 4",
            ]
        );
    }

    #[test]
    fn an_arm_node_has_no_model_name_and_mixed_cores_have_no_single_name() {
        let machine = Machine::new();
        topology(&machine, 1, 2, 1);
        machine.write("proc/sys/kernel/osrelease", "6.8.0-1010-nvidia-64k\n");
        machine.write("proc/sys/kernel/arch", "aarch64\n");
        machine.write(
            "proc/cpuinfo",
            "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n\n",
        );
        for cpu in 0..2 {
            machine.write(&format!("{CPU}/cpu{cpu}/regs/identification/midr_el1"), "0x00000000410fd4f0\n");
        }
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
        assert_eq!(
            samples(&text),
            [
                "jobledger_node_info{cpu_model=\"\",microarchitecture=\"Neoverse V2\",vendor=\"ARM\",\
                 architecture=\"aarch64\",kernel=\"6.8.0-1010-nvidia-64k\",hostname=\"\",slurm_node=\"\"} 1",
                "jobledger_node_sockets 1",
                "jobledger_node_cores 2",
            ],
            "without NUMA there is no number of its nodes"
        );
        machine.write(&format!("{CPU}/cpu1/regs/identification/midr_el1"), "0x00000000410fd8e0\n");
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
        assert!(text.contains("microarchitecture=\"\""), "{text}");
    }

    #[test]
    fn absent_topology_is_no_count_and_absent_cpuinfo_is_unsupported() {
        let machine = Machine::new();
        machine.write(&format!("{CPU}/online"), "0-1\n");
        let (outcome, _) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome.unwrap_err().to_string(), "unsupported: needs a procfs with /proc/cpuinfo");
        machine.write("proc/cpuinfo", "processor\t: 0\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert_eq!(samples(&text).len(), 1, "{text}");
        machine.write(&format!("{CPU}/online"), "0-\n");
        assert_eq!(
            collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).0.unwrap_err().reason(),
            "malformed"
        );
    }

    #[test]
    fn a_cpu_taken_offline_is_seen_and_without_that_nothing_is_read_again() {
        let machine = Machine::new();
        topology(&machine, 1, 4, 1);
        machine.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 1\n\n");
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let context = crate::collector::BuildContext::new(
            snapshot.roots.clone(),
            std::sync::Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap()),
        );
        let mut built = (ENTRY.build)(&context);
        let mut run = || {
            let mut section = Section::default();
            built.collector.collect(&snapshot, &mut section).unwrap();
            let mut text = String::new();
            encode_openmetrics(&[std::sync::Arc::new(section)], &mut text).unwrap();
            text
        };
        assert!(run().contains("jobledger_node_cores 4\n"));
        machine.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t: 17\n\n");
        assert!(run().contains("microarchitecture=\"Zen 3\""), "not read again");
        std::fs::remove_dir_all(machine.path.join(format!("{CPU}/cpu3/topology"))).unwrap();
        machine.write(&format!("{CPU}/online"), "0-2\n");
        let text = run();
        assert!(text.contains("jobledger_node_cores 3\n") && text.contains("Zen 4"), "{text}");
    }

    #[test]
    fn the_name_of_the_node_is_slurms_own_or_none() {
        let machine = Machine::new();
        machine.write("proc/cpuinfo", "processor\t: 0\n");
        machine.write("proc/sys/kernel/hostname", "gpu-0-17.cluster\n");
        machine.write("cgroup/job_1/x", "").write("cgroup/job_2/x", "");
        let named = |id: u32, node: Option<&str>| {
            let metadata = Metadata { node: node.map(str::to_owned), ..Metadata::default() };
            Job { metadata: Arc::new(metadata), ..job(id, machine.v2(&format!("job_{id}")), &[]) }
        };
        let scope = |node: Option<&str>| {
            Arc::new(SlurmCgroup {
                paths: Vec::new(),
                node: node.map(Arc::from),
                inode: 1,
                cgroup: machine.v2("job_1"),
            })
        };
        let snapshot = |jobs: Vec<Job>, scopes: &[Option<&str>]| NodeSnapshot {
            scopes: scopes.iter().map(|node| scope(*node)).collect(),
            ..snapshot_of(machine.roots(), jobs)
        };
        let mut bench = Bench::new(&ENTRY, &snapshot(Vec::new(), &[]));
        let mut shown = |jobs, scopes: &[Option<&str>]| {
            let text = bench.collect(&snapshot(jobs, scopes)).1;
            assert!(text.contains("hostname=\"gpu-0-17.cluster\""), "{text}");
            text.split("slurm_node=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        assert_eq!(shown(vec![named(1, None)], &[None]), "", "it is not the host's name");
        assert_eq!(shown(vec![named(1, Some("gpu17")), named(2, None)], &[None]), "gpu17", "by the prolog");
        assert_eq!(shown(Vec::new(), &[None]), "gpu17", "kept while there is no job");
        assert_eq!(
            shown(vec![named(1, Some("gpu17"))], &[Some("n1")]),
            "n1",
            "the cgroup's name is slurmd's own"
        );
        assert_eq!(
            shown(vec![named(1, Some("n1"))], &[Some("n1"), Some("n2")]),
            "",
            "several share the host"
        );
        assert_eq!(shown(vec![named(1, Some("a")), named(2, Some("b"))], &[]), "", "two prologs, two names");
    }

    #[test]
    fn the_live_host_agrees_with_lscpu_and_uname() {
        let machine = Machine::new();
        let mut snapshot = snapshot_of(machine.roots(), Vec::new());
        snapshot.roots = std::sync::Arc::default();
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Ok(()));
        let uname = rustix::system::uname();
        assert!(text.contains(&format!("kernel=\"{}\"", uname.release().to_str().unwrap())), "{text}");
        let hostname = uname.nodename().to_str().unwrap();
        assert!(text.contains(&format!("hostname=\"{hostname}\"")), "{text}");
        assert!(text.contains(&format!("architecture=\"{}\"", uname.machine().to_str().unwrap())), "{text}");
        let lscpu = std::process::Command::new("lscpu").arg("-p=CORE,SOCKET").env("LC_ALL", "C").output();
        let lscpu = String::from_utf8(lscpu.expect("lscpu: apt-get install util-linux").stdout).unwrap();
        let rows: std::collections::BTreeSet<_> = lscpu.lines().filter(|l| !l.starts_with('#')).collect();
        let sockets: std::collections::BTreeSet<_> =
            rows.iter().filter_map(|r| r.split(',').nth(1)).collect();
        assert!(text.contains(&format!("jobledger_node_cores {}\n", rows.len())), "{text}{lscpu}");
        assert!(text.contains(&format!("jobledger_node_sockets {}\n", sockets.len())), "{text}{lscpu}");
    }
}
