//! Members of SLURM's tables, in their order, and the metrics that they are computed from.

use job_report::metric::{self, Metric};

/// How a member follows from metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// The sum of the metrics at that time, times a factor.
    Level(f64),
    /// What their sum grew by since the sample before, times a factor.
    Increase(f64),
    /// What their sum grew by since the start, times a factor.
    Total(f64),
    /// The first by the second, times a factor.
    Quotient(f64),
    /// GPUs that were busy at once, times a factor.
    GpusBusy(f64),
}

/// A member of a table.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    /// It is an integer.
    pub(super) whole: bool,
    pub(super) form: Form,
    /// Choices, the best first, of metrics that are all needed. None: nobody measures it.
    pub(super) from: &'static [&'static [&'static Metric]],
}

const MIB: f64 = 1024.0 * 1024.0;

macro_rules! members {
    ($($(#[$about:meta])* $table:ident { $($name:literal $whole:ident $form:ident($scale:expr) [$([$($metric:ident),*])*];)* })*) => {
        $($(#[$about])* static $table: &[Member] = &[$(Member {
            name: $name,
            whole: members!(@$whole),
            form: Form::$form($scale),
            from: &[$(&[$(&metric::$metric),*]),*],
        },)*];)*
    };
    (@whole) => { true };
    (@real) => { false };
}

members! {
    /// `acct_gather_profile_g_create_dataset` in common_jag.c. `GPUUtilization` is the sum over GPUs there, too.
    TASK {
        "CPUFrequency" whole Quotient(1e-3) [[CYCLES, COUNTED_CPU_SECONDS]];
        "CPUTime" real Increase(1.0) [[CPU_SECONDS]];
        "CPUUtilization" real Level(100.0) [[CPU_SECONDS]];
        "GPUMemMB" whole Level(1.0 / MIB) [[GPU_MEMORY_USED_BYTES]];
        "GPUUtilization" real GpusBusy(100.0) [[GPU_BUSY_SECONDS, GPU_IDLE_SECONDS] [GPU_IDLE_SECONDS]];
        "RSS" whole Level(1.0 / 1024.0) [[MEMORY_ANON_BYTES, MEMORY_SHMEM_BYTES]];
        "VMSize" whole Level(1.0 / 1024.0) [];
        "Pages" whole Total(1.0) [[PAGE_FAULTS_MAJOR]];
        "ReadMB" real Increase(1.0 / MIB) [[SYSCALL_READ_BYTES] [IO_READ_BYTES]];
        "WriteMB" real Increase(1.0 / MIB) [[SYSCALL_WRITTEN_BYTES] [IO_WRITTEN_BYTES]];
    }
    /// acct_gather_energy_rapl.c.
    POWER {
        "Power" whole Level(1.0) [[ENERGY_JOULES]];
    }
    /// acct_gather_energy_gpu.c, whose members are `GPU0Power`, `GPU1Power` and so on.
    GPU {
        "Power" whole Level(1.0) [[GPU_ENERGY_JOULES]];
    }
    /// acct_gather_filesystem_lustre.c, which counts from the mount on.
    FILE_SYSTEM {
        "Reads" whole Total(1.0) [];
        "ReadMB" real Total(1.0 / MIB) [[LUSTRE_READ_BYTES, NFS_READ_BYTES] [LUSTRE_READ_BYTES] [NFS_READ_BYTES]];
        "Writes" whole Total(1.0) [];
        "WriteMB" real Total(1.0 / MIB) [[LUSTRE_WRITTEN_BYTES, NFS_WRITTEN_BYTES] [LUSTRE_WRITTEN_BYTES] [NFS_WRITTEN_BYTES]];
    }
    /// acct_gather_interconnect_ofed.c, which counts from the step's start on.
    NETWORK {
        "PacketsIn" whole Total(1.0) [];
        "PacketsOut" whole Total(1.0) [];
        "InMB" real Total(1.0 / MIB) [[INFINIBAND_RECEIVED_BYTES] [NETWORK_RECEIVED_BYTES]];
        "OutMB" real Total(1.0 / MIB) [[INFINIBAND_TRANSMITTED_BYTES] [NETWORK_TRANSMITTED_BYTES]];
    }
}

/// A series of SLURM's.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) members: &'static [Member],
    /// Members of each GPU of a node, after the others.
    pub(super) of_gpus: &'static [Member],
    /// A table for each task, in a group. It is written even if nobody measured anything of it.
    pub(super) of_tasks: bool,
}

/// All that sh5util accepts.
pub(super) static ALL: [Series; 4] = [
    Series { name: "Tasks", members: TASK, of_gpus: &[], of_tasks: true },
    Series { name: "Energy", members: POWER, of_gpus: GPU, of_tasks: false },
    Series { name: "Filesystem", members: FILE_SYSTEM, of_gpus: &[], of_tasks: false },
    Series { name: "Network", members: NETWORK, of_gpus: &[], of_tasks: false },
];
