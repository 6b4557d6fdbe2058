//! The jobs of a simulated node: their kinds, their users, and what each uses while it runs.

use super::gpu::Ask;
use super::profile::Profile;
use super::random::{Random, real, whole};

/// A kind of job. Times are in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) profile: Profile,
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) partition: &'static str,
    pub(super) qos: &'static str,
    /// Jobs that start together.
    pub(super) together: u32,
    pub(super) cpus: usize,
    pub(super) memory: u64,
    pub(super) gpus: Ask,
    pub(super) tasks: u32,
    pub(super) threads: u64,
    pub(super) run: (f64, f64),
    pub(super) pause: (f64, f64),
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Steps of a job whose batch script runs one `srun` after the other.
pub(super) const SRUNS: u32 = 4;

const COMMON: Workload = Workload {
    profile: Profile::Busy,
    name: "cfd-solver",
    program: "simpleFoam",
    partition: "main",
    qos: "normal",
    together: 1,
    cpus: 1,
    memory: 4 * GIB,
    gpus: Ask::Nothing,
    tasks: 1,
    threads: 1,
    run: (240.0, 480.0),
    pause: (5.0, 20.0),
};

/// All kinds of jobs. The last one needs the whole node; all others together need exactly its CPUs.
/// Of the seven GPUs without MIG, `Training` has four. `ShortGpu` gets one while another job pauses.
#[rustfmt::skip]
pub(super) const WORKLOADS: [Workload; 22] = [
    Workload { cpus: 4, memory: 16 * GIB, tasks: 4, threads: 2, ..COMMON },
    Workload { profile: Profile::Idle, name: "notebook", program: "python3", cpus: 8, memory: 32 * GIB, threads: 12, run: (500.0, 900.0), ..COMMON },
    Workload { profile: Profile::Serial, name: "postprocess", program: "Rscript", cpus: 4, memory: 8 * GIB, threads: 4, ..COMMON },
    Workload { profile: Profile::Leaking, name: "train-loader", program: "python3", threads: 3, run: (900.0, 900.0), pause: (30.0, 60.0), ..COMMON },
    Workload { profile: Profile::IoHeavy, name: "stage-in", program: "rsync", cpus: 2, memory: 8 * GIB, tasks: 2, ..COMMON },
    Workload { profile: Profile::Throttled, name: "preview", program: "blender", qos: "low", threads: 4, ..COMMON },
    Workload { profile: Profile::Pressured, name: "mesh-refine", program: "snappyHexMesh", cpus: 2, threads: 8, ..COMMON },
    Workload { profile: Profile::Short, name: "unit-test", program: "pytest", partition: "short", qos: "high", memory: GIB, run: (0.3, 3.0), pause: (3.0, 8.0), ..COMMON },
    Workload { profile: Profile::MultiStep, name: "workflow", program: "gmx_mpi", cpus: 2, memory: 8 * GIB, tasks: 2, run: (160.0, 240.0), ..COMMON },
    Workload { profile: Profile::Array, name: "sweep", program: "sweep.x", qos: "low", together: 2, memory: 2 * GIB, run: (60.0, 150.0), ..COMMON },
    Workload { profile: Profile::Heterogeneous, name: "ocean+ice", program: "nemo.exe", together: 2, run: (120.0, 240.0), ..COMMON },
    Workload { profile: Profile::Interactive, name: "interactive", program: "bash", partition: "interactive", qos: "high", run: (200.0, 400.0), ..COMMON },
    Workload { profile: Profile::LeftBehind, name: "viewer", program: "pvserver", partition: "interactive", run: (60.0, 90.0), ..COMMON },
    Workload { profile: Profile::Requeued, name: "monte-carlo", program: "mc.x", qos: "scavenger", run: (60.0, 120.0), pause: (6.0, 12.0), ..COMMON },
    Workload { profile: Profile::Training, name: "llm-train", program: "torchrun", partition: "gpu", cpus: 8, memory: 48 * GIB, gpus: Ask::Whole(4), tasks: 4, threads: 8, pause: (40.0, 80.0), ..COMMON },
    Workload { profile: Profile::IdleGpu, name: "gpu-notebook", program: "jupyter-lab", partition: "gpu", cpus: 2, memory: 8 * GIB, gpus: Ask::Whole(1), threads: 12, run: (500.0, 900.0), ..COMMON },
    Workload { profile: Profile::Finished, name: "fine-tune", program: "python3", partition: "gpu", memory: 8 * GIB, gpus: Ask::Part("2g.20gb"), threads: 6, run: (300.0, 480.0), ..COMMON },
    Workload { profile: Profile::LowUse, name: "embed", program: "python3", partition: "gpu", memory: 8 * GIB, gpus: Ask::Whole(1), threads: 4, run: (120.0, 240.0), pause: (60.0, 120.0), ..COMMON },
    Workload { profile: Profile::Sharing, name: "serving", program: "vllm", partition: "gpu", together: 2, memory: 8 * GIB, gpus: Ask::Shard, threads: 6, ..COMMON },
    Workload { profile: Profile::OnPart, name: "docking", program: "autodock_gpu", partition: "gpu", memory: 4 * GIB, gpus: Ask::Part("3g.40gb"), threads: 2, run: (180.0, 360.0), ..COMMON },
    Workload { profile: Profile::ShortGpu, name: "gpu-test", program: "pytest", partition: "gpu", qos: "high", memory: 2 * GIB, gpus: Ask::Whole(1), run: (1.0, 2.0), pause: (5.0, 12.0), ..COMMON },
    Workload { profile: Profile::Exclusive, name: "lattice", program: "chroma", partition: "large", cpus: 48, memory: 192 * GIB, tasks: 8, threads: 4, run: (150.0, 200.0), ..COMMON },
];

/// Name, uid and account of the users.
pub(super) const USERS: [(&str, u32, &str); 6] = [
    ("alice", 4001, "physics"),
    ("bob", 4002, "chemistry"),
    ("carol", 4003, "biology"),
    ("dave", 4004, "physics"),
    ("erin", 4005, "climate"),
    ("frank", 4006, "ml-lab"),
];

/// What a job uses at one moment. CPU fields are numbers of CPUs, rates are per second.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Work {
    pub(super) user: f64,
    pub(super) system: f64,
    /// CPUs in iowait.
    pub(super) waiting: f64,
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) shmem: u64,
    /// Bytes read and written per device, in the order of `layout::DISKS`.
    pub(super) io: [[f64; 2]; 2],
    /// Bytes received and sent over InfiniBand, and over the network without NFS.
    pub(super) fabric: [f64; 2],
    pub(super) network: [f64; 2],
    /// Bytes read from and written to the home directories, and requests without data.
    pub(super) nfs: [f64; 2],
    pub(super) nfs_metadata: f64,
    /// PSI: fractions of the time in which some tasks and all tasks stall, in the order of `counters::RESOURCES`.
    pub(super) stalls: [[f64; 2]; 3],
    /// Page faults beyond those of growing memory, and the major ones among them.
    pub(super) faults: [f64; 2],
    /// Fraction of its CPU bandwidth periods that are throttled.
    pub(super) throttled: f64,
}

impl Workload {
    /// What a job of this kind uses at an age in seconds.
    pub(super) fn work(&self, age: f64, chance: &mut Random) -> Work {
        let jitter = chance.between(0.97, 1.0);
        let memory = real(self.memory);
        // Programs allocate their memory within the first minute.
        let share = |of: f64| whole(memory * of * (0.2 + 0.8 * (age / 60.0).min(1.0)));
        #[expect(clippy::cast_precision_loss, reason = "a node has few CPUs")]
        let all = 0.96 * self.cpus as f64 * jitter;
        let idle =
            Work { user: 0.0004, system: 0.0002, anon: share(0.05), file: 40 * MIB, ..Work::default() };
        let cpu = |used: f64, system: f64, anon: f64| Work {
            user: used * (1.0 - system),
            system: used * system,
            anon: share(anon),
            file: 150 * MIB,
            ..Work::default()
        };
        match self.profile {
            Profile::Busy => Work {
                shmem: 64 * MIB,
                stalls: [[0.01 * jitter, 0.0], [0.0; 2], [0.0; 2]],
                fabric: [420e6 * jitter, 400e6 * jitter],
                nfs: [0.0, 2e6],
                nfs_metadata: 2.0,
                ..cpu(all, 0.02, 0.6)
            },
            Profile::Idle => Work { anon: share(0.1), network: [800.0, 2_000.0], ..idle },
            Profile::Serial => {
                Work { nfs: [30e6 * jitter, 1e6], nfs_metadata: 15.0, ..cpu(0.95 * jitter, 0.03, 0.4) }
            }
            Profile::Leaking => Work {
                anon: whole(memory * (0.05 + age / 180.0)),
                nfs: [60e6 * jitter, 0.0],
                nfs_metadata: 80.0,
                ..cpu(0.6 * jitter, 0.2, 0.0)
            },
            Profile::IoHeavy => Work {
                waiting: 0.8 * jitter,
                file: whole(memory * (age / 120.0).min(0.8)),
                io: [[0.0, 180e6 * jitter], [120e6 * jitter, 0.0]],
                stalls: [[0.01, 0.0], [0.45 * jitter, 0.3 * jitter], [0.02, 0.01]],
                ..cpu(0.7 * jitter, 0.6, 0.05)
            },
            Profile::Throttled => Work {
                stalls: [[0.5 * jitter, 0.4 * jitter], [0.0; 2], [0.0; 2]],
                throttled: 0.95,
                ..cpu(0.499, 0.05, 0.3)
            },
            Profile::Pressured => Work {
                stalls: [[0.7 * jitter, 0.0], [0.02, 0.01], [0.15 * jitter, 0.05 * jitter]],
                io: [[4e6 * jitter, 1e6], [0.0; 2]],
                faults: [9000.0 * jitter, 300.0 * jitter],
                ..cpu(all, 0.1, 0.85)
            },
            // The user types for six seconds of every twenty.
            Profile::Interactive if age % 20.0 > 6.0 => idle,
            Profile::Interactive => {
                Work { network: [600.0, 4_000.0], nfs_metadata: 5.0, ..cpu(0.7 * jitter, 0.1, 0.1) }
            }
            Profile::Short => cpu(0.9 * jitter, 0.1, 0.2),
            // Reads its input, computes, and writes a checkpoint every half a minute.
            Profile::Exclusive => {
                let saves = age % 30.0 > 25.0;
                Work {
                    shmem: 512 * MIB,
                    file: 8 * GIB,
                    fabric: [3.2e9 * jitter, 3.1e9 * jitter],
                    network: [20e3, 60e3],
                    nfs: [if age < 20.0 { 250e6 } else { 0.0 }, if saves { 300e6 } else { 0.0 }],
                    nfs_metadata: 10.0,
                    io: [[0.0, if saves { 800e6 } else { 40e6 }], [0.0; 2]],
                    stalls: [[0.02 * jitter, 0.0], [0.01, 0.0], [0.0; 2]],
                    ..cpu(all, 0.02, 0.5)
                }
            }
            Profile::Heterogeneous => {
                Work { fabric: [180e6 * jitter, 180e6 * jitter], ..cpu(all, 0.03, 0.35) }
            }
            Profile::MultiStep => Work {
                fabric: [90e6 * jitter, 95e6 * jitter],
                nfs: [0.0, 8e6],
                nfs_metadata: 1.0,
                ..cpu(all, 0.03, 0.35)
            },
            Profile::LeftBehind => Work { network: [10e3, 900e3], ..cpu(all, 0.03, 0.35) },
            Profile::Array | Profile::Requeued => cpu(all, 0.03, 0.35),
            // Its processes load data from the home directories and feed the GPUs.
            Profile::Training => Work {
                fabric: [60e6 * jitter, 60e6 * jitter],
                nfs: [80e6 * jitter, 1e6],
                nfs_metadata: 30.0,
                shmem: 256 * MIB,
                ..cpu(0.8 * all, 0.1, 0.4)
            },
            Profile::IdleGpu => Work { anon: share(0.2), network: [800.0, 2_000.0], ..idle },
            Profile::Finished if age > 120.0 => Work { anon: share(0.4), ..idle },
            Profile::Sharing => Work { network: [40e3, 200e3], ..cpu(0.5 * jitter, 0.15, 0.4) },
            Profile::Finished | Profile::LowUse | Profile::OnPart | Profile::ShortGpu => {
                cpu(0.95 * jitter, 0.08, 0.4)
            }
        }
    }

    /// `cpu.max`: microseconds per period of 100 000.
    pub(super) fn quota(&self) -> Option<u64> {
        (self.profile == Profile::Throttled).then_some(50_000)
    }
}
