"""Thresholds and texts of advice. Written by rules/generate.py from rules/thresholds.yaml: change them there, `make thresholds`."""

GPU_IDLE_WARNING_SECONDS = 3600
GPU_IDLE_LONG_SECONDS = 7200
GPU_IDLE_AGAIN_SECONDS = 10800
GPU_IDLE_AGAIN_LONG_SECONDS = 18000
GPU_IDLE_BUSY_RATIO = 0.001
GPU_LOW_USE_RATIO = 0.15
GPU_LOW_USE_AGE_SECONDS = 3600
GPU_STUCK_BUSY_RATIO = 0.95
GPU_STUCK_SM_RATIO = 0.25
GPU_STUCK_DRAM_RATIO = 0.01
GPU_STUCK_POWER_RATIO = 0.35
GPU_STUCK_BYTES_PER_SECOND = 100000
GPU_CORES_SHARE = 2
OWNER_GPU_IDLE_HOURS = 12
OWNER_GPU_IDLE_RATIO = 0.5
CPU_LOW_RATIO = 0.2
CPU_LOW_MEMORY_RATIO = 0.8
CPU_SERIAL_LEAST_CORES = 0.85
CPU_SERIAL_MOST_CORES = 1.1
CPU_SERIAL_LEAST_HELD = 4
NODE_IDLE_CORES = 0.01
NODE_BUSY_CORES = 0.5
INTERACTIVE_SECONDS = 28800
MEMORY_NEAR_LIMIT_RATIO = 0.95
MEMORY_OVER_ASKED_RATIO = 0.35
MEMORY_OVER_ASKED_LEAST_BYTES = 8589934592
MEMORY_OVER_ASKED_LEAST_SECONDS = 3600
GPU_THROTTLED_RATIO = 0.5
INFINIBAND_ERRORS_PER_HOUR = 100
HARDWARE_REMEMBERED_SECONDS = 1209600
EXPORTERS_DOWN_RATIO = 0.5
TARGETS_MISSING_RATIO = 0.2
SCRAPE_SLOW_SECONDS = 5
CERTIFICATE_EXPIRES_SECONDS = 1209600
RESIDUAL_RATIO = 0.1
RESIDUAL_LEAST_SECONDS = 600
INTERVALS_DROPPED_PER_HOUR = 10
CPU_FAIR = 0.65
GPU_FAIR = 0.5
GPU_SEEN = 0.9
MEMORY_FAIR = 0.7
CPU_THROTTLED = 0.1
WAITED_MEMORY = 0.1
WAITED_IO = 0.2
WAITED_CPU = 0.3
WAITED_CPU_USE = 0.8
SLOTS_MEMORY = 0.5
SLOTS_BACKEND = 0.6
VECTORS_LOW = 0.3
VECTORS_LEAST_FLOPS = 0.1
GPU_UNEVEN = 0.1
NODES_UNEVEN = 0.2
IMBALANCE = 0.2
CPUS_IDLE = 0.25
STALL_WAITING = 0.5
STALL_MINUTES = 10
GPU_STOPPED_SECONDS = 1800
GPU_STOPPED_RATIO = 0.25
TIME_OVER_ASKED_RATIO = 0.6
TIME_OVER_ASKED_LEAST_SECONDS = 3600

# By name: what is wrong, what to change, the threshold.
ADVICE = {
    "oom_killed": (
        "The job ran out of memory",
        "Ask for at least a quarter more memory than the limit (--mem or --mem-per-cpu), or run fewer tasks per node",
        "any process killed by the kernel for lack of memory",
    ),
    "gpu_never_used": (
        "GPUs were never used",
        "Ask only for GPUs that the program uses (--gres, --gpus), or find out why the program does not see them (CUDA_VISIBLE_DEVICES, a build without GPU support)",
        "busy for at most 0.1% of the time, and seen for at least nine tenths of it",
    ),
    "gpu_low_use": (
        "GPUs were hardly used",
        "Ask for fewer GPUs, or for a part of one (MIG, --gres=shard). Or keep them busy: more data loader workers, bigger batches, data on local disks",
        "busy for less than 15% of the time seen",
    ),
    "gpu_uneven": (
        "Some GPUs were busier than others",
        "Give each GPU the same work. If the work is equal, a GPU that is always the busiest is slow and holds back the others: report its node to support",
        "the mean GPU more than 10% less busy than the busiest",
    ),
    "serial": (
        "About one core was used, the others were idle",
        "Ask for one core, or run the program in parallel: start it with srun, and set OMP_NUM_THREADS to the value of --cpus-per-task",
        "0.85 to 1.1 cores used of 4 or more",
    ),
    "cpu_low": (
        "Few of the cores were used",
        "Ask for fewer cores: fewer tasks (--ntasks) for an MPI program, fewer CPUs per task (--cpus-per-task) for a program with threads. Or find out what the cores wait for: storage, memory, other processes",
        "less than 20% of the core time used, no GPU",
    ),
    "node_idle": (
        "A node of the job was idle",
        "Ask for fewer nodes (--nodes), or start the program on all of them with srun: mpirun without a host list uses only the first node",
        "0.01 cores used on one node, 0.5 on another",
    ),
    "nodes_uneven": (
        "Some nodes worked more than others",
        "Give each node the same share of the work (domain decomposition, --ntasks-per-node, --distribution), or ask for fewer nodes",
        "the mean node more than 20% less busy than the busiest, no GPU",
    ),
    "cpus_idle": (
        "Some of the cores were idle",
        "Ask for as many cores as the job uses (--ntasks, --cpus-per-task), or run threads on all of them. Threads that are bound to the same cores leave others idle: check --cpu-bind and OMP_PLACES=cores. If every core works at times, look for serial phases",
        "more than 25% of the cores, no GPU",
    ),
    "imbalance": (
        "Some CPUs of a node did more work than others",
        "Give each rank and thread the same work (domain decomposition, OMP_SCHEDULE=dynamic), one per core (--cpu-bind=cores, OMP_PROC_BIND). A CPU that waits for others does little",
        "the mean CPU more than 20% fewer instructions than the busiest, of those that worked, no GPU",
    ),
    "cpu_throttled": (
        "A CPU limit slowed the job down",
        "Ask for as many CPUs as the program has threads (--cpus-per-task)",
        "held back for more than 10% of the CPU time that it wanted",
    ),
    "memory_over_asked": (
        "Much more memory was asked for than used",
        "Ask for the peak and a fifth more (--mem). Others can use the rest, and the job may start sooner",
        "peak below 35% of 8 GiB or more, on nodes that the job shares",
    ),
    "waited_memory": (
        "Tasks waited for memory",
        "Ask for more memory (--mem): the kernel takes pages from the job, and the job reads them again",
        "waited for more than 10% of the time",
    ),
    "waited_io": (
        "Tasks waited for storage",
        "Copy data to a local disk first (TMPDIR). Write less often, in bigger pieces",
        "waited for more than 20% of the time",
    ),
    "stalled_io": (
        "For some minutes, tasks mostly waited for storage",
        "See the curves for when. Either the file system was slow (ask support), or all tasks wrote at the same time: spread checkpoints over time, or write to a local disk first (TMPDIR)",
        "waited for more than 50% of the time, for 10 minutes or more in total",
    ),
    "waited_cpu": (
        "More threads wanted to run than there were CPUs",
        "Start as many threads as there are CPUs (OMP_NUM_THREADS as --cpus-per-task), or ask for more CPUs",
        "waited for more than 30% of the time, with busy CPUs",
    ),
    "slots_memory": (
        "The cores mostly waited for memory",
        "Fewer ranks per node leave more memory bandwidth to each (--ntasks-per-node), spread over the sockets (--distribution=block:cyclic). In the program: blocks that fit into the caches, data placed by the thread that uses it (first touch, --mem-bind=local)",
        "more than 50% of what the cores could have done",
    ),
    "slots_backend": (
        "The cores mostly waited for data or arithmetic units",
        "Usually it is memory: look at the bytes from memory, try fewer ranks per node (--ntasks-per-node), keep data in the caches. Otherwise it is divisions, square roots or long chains of operations",
        "more than 60% of what the cores could have done",
    ),
    "vectors_low": (
        "Hardly any of the arithmetic was vectorised",
        "Compile for the node's CPU (-O3 -march=native, -xHost) and read what the compiler could not vectorise (-fopt-info-vec-missed, -qopt-report). Or use a library that is vectorised (BLAS, FFTW)",
        "less than 30% of the operations, at 0.1 or more per cycle",
    ),
}
