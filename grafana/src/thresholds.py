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
        "The kernel killed processes of the job: out of memory",
        "Ask for more: --mem or --mem-per-cpu, at least a quarter above the limit that it hit; or fewer tasks per node",
        "any kill",
    ),
    "gpu_never_used": (
        "GPUs were never used",
        "Leave out --gres, --gpus; or find out why the program does not see them (CUDA_VISIBLE_DEVICES, a build without GPU support)",
        "busy for 0.1% of the time at most, seen for nine tenths of the time",
    ),
    "gpu_low_use": (
        "GPUs were hardly used",
        "Ask for fewer GPUs or for a part of one (MIG, --gres=shard); feed them: more loader workers, bigger batches, data on local disks",
        "below 15% of the time seen",
    ),
    "gpu_uneven": (
        "Some GPUs were busier than others",
        "Give each GPU the same work. Where they have it, one that is always the busiest is slow and holds back the others: report its node to support (heat map below)",
        "the mean GPU 10% less busy than the busiest",
    ),
    "serial": (
        "One core worked, the others waited",
        "Ask for one CPU, or start the program in parallel: srun, OMP_NUM_THREADS as --cpus-per-task says",
        "0.85 to 1.1 cores used of 4 or more",
    ),
    "cpu_low": (
        "Few of the cores worked",
        "Ask for fewer: -n, --cpus-per-task; or look for what they wait for (pressure, I/O, imbalance)",
        "below 20% of the cores' time, no GPU",
    ),
    "node_idle": (
        "A node of the job did nothing",
        "Ask for fewer nodes, or start the program on all of them: srun, not the first node's mpirun without a host list",
        "0.01 cores used on one node, 0.5 on another",
    ),
    "nodes_uneven": (
        "Some nodes worked more than others",
        "Give each node the same share of the work (domain decomposition, --ntasks-per-node, --distribution), or ask for fewer nodes",
        "the mean node 20% less busy than the busiest, no GPU",
    ),
    "cpus_idle": (
        "Some of its cores did nothing",
        "Ask for as many as it uses: -n, --cpus-per-task; or start threads on all of them. Threads that are bound to the same cores leave others idle: --cpu-bind, OMP_PLACES=cores. If all of them work at times, look at what one does in between",
        "above 25% of the cores, no GPU",
    ),
    "imbalance": (
        "Some CPUs of a node did more than others",
        "Give each rank and thread the same work: domain decomposition, OMP_SCHEDULE=dynamic; one to a core: --cpu-bind=cores, OMP_PROC_BIND. Who waits for others does little",
        "the mean CPU 20% fewer instructions than the busiest, of those that worked, no GPU",
    ),
    "cpu_throttled": (
        "CPUs were held back by a bandwidth limit",
        "Ask for as many CPUs as the program has threads: --cpus-per-task",
        "above 10% of the CPU time wanted",
    ),
    "memory_over_asked": (
        "Much more memory was asked for than used",
        "Ask for less: --mem, with a fifth above the peak; others can use the rest, and the job may start sooner",
        "peak below 35% of 8 GiB or more",
    ),
    "waited_memory": (
        "Tasks waited for memory",
        "Ask for more: --mem; pages are being reclaimed and read again",
        "above 10% of the job's time",
    ),
    "waited_io": (
        "Tasks waited for storage",
        "Stage data to a local disk (TMPDIR), write less often and in bigger pieces",
        "above 20% of the job's time",
    ),
    "stalled_io": (
        "For some minutes tasks did little but wait for storage",
        "See the curves for when. The file system was slow (ask support), or all tasks wrote a checkpoint at once: spread it, or write to a local disk (TMPDIR) first",
        "waited above 50% of the time, for 10 minutes or more in all",
    ),
    "waited_cpu": (
        "More threads were ready than there were CPUs",
        "Start as many threads as CPUs: OMP_NUM_THREADS as --cpus-per-task says; or ask for more CPUs",
        "waited above 30% of the time at full CPUs",
    ),
    "slots_memory": (
        "Its cores waited for memory: fewer ranks per node, or better locality",
        "Fewer ranks per node leave more bandwidth to each: --ntasks-per-node, spread over the sockets (--distribution=block:cyclic). In the program: smaller blocks that fit the caches, data placed by the thread that uses it (first touch, --mem-bind=local)",
        "above 50% of the pipeline's slots",
    ),
    "slots_backend": (
        "Its cores waited for data or for their own units",
        "Most often it is memory: see the bytes from memory, try fewer ranks per node (--ntasks-per-node), keep data in the caches. Else divisions, square roots and long chains of operations do it",
        "above 60% of the pipeline's slots, which this CPU does not divide",
    ),
    "vectors_low": (
        "Hardly any of its arithmetic was in vectors",
        "Compile for the node's CPU (-O3 -march=native, -xHost) and read what the compiler could not vectorise (-fopt-info-vec-missed, -qopt-report); or use a library that does (BLAS, FFTW)",
        "below 30% of the operations, 0.1 or more of them a cycle",
    ),
}
