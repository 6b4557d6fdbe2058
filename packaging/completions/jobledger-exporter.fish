# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_jobledger_exporter_global_optspecs
    string join \n once check log.level= log.format= control.socket= state.file= state.descriptors= security.no-drop security.user= security.no-landlock security.no-seccomp web.listen-address= web.systemd-socket web.config.file= web.telemetry-path= web.max-requests= web.max-connections= web.scrapers= web.timeout-offset= path.procfs= path.sysfs= path.cgroupfs= path.dev= scrape.min-interval= scrape.timeout= jobs.retention= jobs.retention-max= jobs.readers= jobs.stale-after= jobs.descriptors= jobs.steps jobs.tasks jobs.metadata-dir= jobs.environment-hints metric.job-labels= metric.profile= metric.created metric.max-series= collector.disable-defaults collector.job= no-collector.job collector.cpu= no-collector.cpu collector.cpuset= no-collector.cpuset collector.memory= no-collector.memory collector.pressure= no-collector.pressure collector.io= no-collector.io collector.network= no-collector.network collector.processes= no-collector.processes collector.procio= no-collector.procio collector.procsum= no-collector.procsum collector.perf= no-collector.perf collector.perf.plan= collector.perf.groups= collector.perf.events-file= collector.perf.method= collector.perf.most-descriptors= collector.perf.mux-interval= collector.energy= no-collector.energy collector.energy.idle-watts= collector.energy.redfish-url= collector.energy.redfish-credentials= collector.energy.redfish-ca= collector.energy.redfish-certificate= collector.memory_traffic= no-collector.memory_traffic collector.memory-traffic.resctrl collector.gpu= no-collector.gpu collector.gpu.period= collector.gpu.processes collector.gpu.nvml-library= collector.gpu.peaks-file= collector.gpu.gpustat-dir= collector.gpu.job-mapping-dir= collector.gpu.gres-order= security.no-device-helper collector.owners= no-collector.owners owner.labels= owner.limit= owner.co2-grams-per-kwh= collector.counters= no-collector.counters counters.lock-file= collector.node_cpu= no-collector.node_cpu collector.node_memory= no-collector.node_memory collector.node_load= no-collector.node_load collector.node_network= no-collector.node_network collector.node_pressure= no-collector.node_pressure collector.node_cpufreq= no-collector.node_cpufreq collector.node_hardware= no-collector.node_hardware collector.node_validation= no-collector.node_validation counters.results-file= collector.infiniband= no-collector.infiniband collector.slingshot= no-collector.slingshot collector.node_disk= no-collector.node_disk collector.nfs= no-collector.nfs collector.lustre= no-collector.lustre collector.exporter= no-collector.exporter h/help V/version
end

function __fish_jobledger_exporter_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_jobledger_exporter_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_jobledger_exporter_using_subcommand
    set -l cmd (__fish_jobledger_exporter_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l log.level -d 'Least severe message that is logged' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l log.format -d 'Format of the log on standard error' -r -f -a "text\t''
json\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l control.socket -d 'Where orders of `jobledger-exporter gpu` and `counters` are taken, from root and the exporter\'s own user, if its directory is there' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l state.file -d 'Keep the accounts of jobs for a restart in this file of a temporary file system, unless systemd keeps them (FileDescriptorStoreMax=); in no other place' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l state.descriptors -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l security.user -d 'Started as root, become this user: NAME, UID or UID:GID of /etc/passwd; without it jobledger, else nobody. Files that are read later must be readable for it; root remains root' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.listen-address -d 'Address to listen on, as in :9810, 127.0.0.1:9810 or [::1]:9810; may be repeated' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.config.file -d 'TLS and basic authentication, in the format of the Prometheus exporter-toolkit; read again on SIGHUP' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.telemetry-path -d 'Path of the metrics' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.max-requests -d 'Most scrapes in flight; one more waits, and gets 503 at its deadline. 0 for no limit' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.max-connections -d 'Most open connections, and at most a quarter of the open files; beyond that one that is half open, idle or not read is closed' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.scrapers -d 'Address or network of the site\'s Prometheus, as in 10.0.0.5 or fd00::/64; it has places of its own, goes first and has no rate limit; may be repeated' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.timeout-offset -d 'How long before Prometheus\' own scrape timeout an answer is sent with what is complete by then' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l path.procfs -d 'Mount point of procfs' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l path.sysfs -d 'Mount point of sysfs' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l path.cgroupfs -d 'Mount point of the cgroup file systems, v1, v2 or both' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l path.dev -d 'Directory of device nodes' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l scrape.min-interval -d 'Least time between two collections, but for a tenth; scrapes within it are answered with the same one. 0s: each scrape has what is collected after it came' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l scrape.timeout -d 'Scrape timeout of the site\'s Prometheus: a collection lasts a little less at most, whatever a client sends; also for clients that send none' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.retention -d 'How long an ended job is still exported, at least until its readers have its end' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.retention-max -d 'How long an ended job is exported at most, while its readers are away or none is known' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.readers -d 'How many different readers are to have the end of a job before it is dropped; a pair of Prometheus servers is 2. A reader is a client that logs in or is in --web.scrapers; without either, one on another host that sends Prometheus\' header' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.stale-after -d 'How long a job directory without any process counts as a job and not as left behind' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.descriptors -d 'Most files of jobs\' cgroups that are held open from one scrape to the next, at some 4 KiB of the kernel\'s memory each; a scrape costs half as much where all fit. 0 opens them for each reading' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.metadata-dir -d 'Where the prolog leaves what it knows of a job' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l metric.job-labels -d 'Put these on every series of a job, for sites that do not want to join with jobledger_job_info, or whose proxy selects by user; the rules work with and without' -r -f -a "user\t''
account\t''
partition\t''
qos\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l metric.profile -d 'How much is exported: lean (accounting and reports of jobs), standard (what the rules, alerts and dashboards read), full (everything); docs/metrics.md lists them. By default a collector without a family in it does not run; one that is switched on by name has all of its families' -r -f -a "lean\t''
standard\t''
full\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l metric.max-series -d 'Most samples of an exposition; beyond that tasks go first, then steps, then the last jobs, and it is counted. 0 for no limit' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.job -d 'Identity, start and end of jobs, and job directories that SLURM left behind (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.cpu -d 'CPU time and throttling of jobs, and the CPU time of SLURM that no job can be charged with (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.cpuset -d 'CPUs and memory nodes that jobs may use (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.memory -d 'Memory and swap of jobs: used, by kind, limit, peak, out-of-memory kills, page faults (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.pressure -d 'Time that jobs waited for CPU, memory and I/O (pressure stall information) (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.io -d 'Block I/O of jobs by device, where SLURM turns the io controller on (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.network -d 'Bytes and packets of jobs, and those of SLURM that no job can be charged with (default: disabled). Two BPF programs that see every packet of SLURM\'s cgroups; needs Linux 5.8, cgroup v2, CAP_BPF and CAP_NET_ADMIN' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.processes -d 'Processes and threads of jobs (default: enabled). Two short reads per task' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.procio -d 'I/O of jobs as the sum over their processes (default: disabled). two reads per process; needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.procsum -d 'Open files, virtual and unshared memory of jobs as sums over their processes (default: disabled). three looks per process, one of which takes milliseconds per GiB of its memory; needs CAP_SYS_PTRACE and, before Linux 6.2, CAP_DAC_READ_SEARCH' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf -d 'FLOPs, cycles, instructions, branches, cache traffic and context switches of jobs, from the CPUs\' counters (default: disabled). 1 to 2 us more per switch between cgroups on jobs\' CPUs, an interrupt of each of them per group and scrape; needs CAP_PERFMON' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.plan -d 'essential: cycles, instructions, FLOPs, loads from memory and pipeline slots, as far as they fit the CPU\'s counters at once; full: all groups, in turns. jobledger-exporter perf shows both' -r -f -a "essential\t''
full\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.groups -d 'What is counted of jobs. cache and branches are in the full plan alone, where what does not fit a CPU\'s counters at once takes turns: that costs an interrupt every 4 ms on jobs\' CPUs, and accuracy' -r -f -a "flops\t''
memory\t''
topdown\t''
cache\t''
branches\t''
software\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.events-file -d 'The site\'s own events, before those that are built in (docs/counters.md)' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.method -d 'How jobs are counted: cgroup by counters of each job\'s cgroup, which the kernel switches; bpf by counters of CPUs, which a BPF program divides by cgroup (Linux 5.11 with BTF; CAP_BPF); auto by bpf where it can' -r -f -a "auto\t''
cgroup\t''
bpf\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.most-descriptors -d 'Descriptors of counters open at most, one per event and CPU of a job; without it enough for four jobs on every CPU' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.perf.mux-interval -d 'How long turns are that groups of counters take (perf_event_mux_interval_ms of the CPUs\' PMUs, for every user of perf on the node), set when the exporter starts as root; without it as the kernel has it, 4 ms by default' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy -d 'Energy of sockets, memory and node by every meter that there is, split over jobs (default: enabled). Two or three short reads per job, only where there is a meter' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy.idle-watts -d 'Power of an idle package (or of a socket\'s memory: dram, of the whole node: node, or of what its own meter counts beyond packages, memory and GPUs: overhead), to be shared by the CPUs that jobs hold; without it the least that was seen while idle, until then what follows from the power under load' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy.redfish-url -d 'Redfish resource with the node\'s energy or power, an EnvironmentMetrics, Power or Sensor of its BMC, as in https://169.254.0.17/redfish/v1/Chassis/1/Power; asked every ten seconds (docs/energy.md)' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy.redfish-credentials -d 'User and password for it, user:password or in two lines; not readable by all users, read again when it changes' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy.redfish-ca -d 'CA certificates, PEM, one of which issued the BMC\'s certificate for the host of the URL' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.energy.redfish-certificate -d 'sha256: and the SHA-256 of the BMC\'s certificate (openssl x509 -fingerprint -sha256), which is then accepted whatever it says, and no other' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.memory_traffic -d 'Bytes that the memory controllers moved, by socket, split over jobs that had the node or a socket for themselves (default: disabled). Keeps CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8); takes two hardware counters of each memory channel (four with Optane and on Granite Rapids and its like)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu -d 'GPUs of NVIDIA, AMD and Intel: which job has which, activity, memory and energy by job, and the hardware\'s health (default: enabled). A thread per vendor whose driver is there, which reads every --collector.gpu.period' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.period -d 'How often GPUs are read, beside when jobs come and go; 1s to 5m' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.nvml-library -d 'NVIDIA\'s management library, where it is not found as libnvidia-ml.so.1' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.peaks-file -d 'Peaks of GPUs for estimated operations, before those that are built in (docs/gpu.md)' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.gpustat-dir -d 'Where a prolog in the manner of jobstats leaves which job has which GPU' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.job-mapping-dir -d 'Where a prolog in the manner of dcgm-exporter\'s --hpc-job-mapping-dir does' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.gres-order -d 'The GPUs in the order of SLURM\'s list (SLURM_JOB_GPUS counts by it), where that is not the order of their minors; for prolog files and hints alone' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.owners -d 'What users and accounts used on the node, in counters that outlive their jobs (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l owner.labels -d 'Labels of the counters of owners, jobledger_owner_*: each combination is an owner. none switches them off' -r -f -a "user\t''
account\t''
partition\t''
qos\t''
none\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l owner.limit -d 'Most owners on this node. What further ones use is added up under an owner whose labels are all other; an owner keeps its series for as long as the exporter counts' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l owner.co2-grams-per-kwh -d 'Grams of CO2 equivalent for each kilowatt hour of this site: a positive decimal. With it jobledger_owner_co2_grams_total counts what jobs\' energy emits. Another value holds from the restart on' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.counters -d 'Whether the hardware\'s counters are held or given to a user\'s profiler, where anything that holds them is on (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l counters.lock-file -d 'LIKWID\'s lock: while this file is another user\'s than the exporter\'s own or root, no hardware counter is held here; it is never made or changed. Empty: none is watched' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_cpu -d 'CPU time of the whole node by mode, its CPUs online, boot time, context switches and forks (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_memory -d 'Memory of the node by use, swap and huge pages (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_load -d 'Load averages, running and existing threads of the node (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_network -d 'Traffic, errors, state and speed of the node\'s network devices (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_pressure -d 'Pressure stall times of the node (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_cpufreq -d 'Clock frequency of the node\'s CPUs (default: disabled). One file per CPU; before Linux 5.19 every scrape interrupts each CPU twice, which codes feel' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_hardware -d 'CPU model and microarchitecture, sockets, cores, NUMA nodes and kernel of the node (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_validation -d 'What known work showed of the node\'s counters, and what the node can do at most (jobledger-exporter perf --validate) (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l counters.results-file -d 'Results of `jobledger-exporter perf --validate` that are exported; root\'s file alone, and only of this processor, microcode and kernel. Empty: none are read' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.infiniband -d 'Traffic, errors and links of InfiniBand, RoCE and Omni-Path ports, split over jobs (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.slingshot -d 'Traffic, errors and links of HPE Slingshot devices, split over jobs (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.node_disk -d 'Bytes, operations and busy time of the node\'s disks, and of a job while it has the node for itself (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.nfs -d 'Bytes, operations and latencies of NFS mounts, and bytes and operations of a job while it has the node for itself (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.lustre -d 'Bytes, operations and requests of Lustre file systems, and bytes and operations of a job while it has the node for itself (default: enabled). one file per target (OST, MDT) and scrape where Lustre is mounted; from Lustre 2.12 on needs to read debugfs' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.exporter -d 'The exporter itself: its version, its use of CPU, memory and descriptors, its table of jobs (default: enabled)' -r -f -a "true\t''
false\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l once -d 'Print one exposition and exit'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l check -d 'Say of each collector whether it works here for who asks, why not, and what would change it, and exit'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l security.no-drop -d 'Keep the privileges that it was started with'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l security.no-landlock -d 'Do without Landlock, which lets the process write nowhere'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l security.no-seccomp -d 'Do without the filter of system calls'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l web.systemd-socket -d 'Use the sockets that systemd hands over instead of --web.listen-address'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.steps -d 'Also publish jobledger_step_*: about as many series again per step as per job. Hardware counters of steps are there where counters are divided in BPF (--collector.perf.method)'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.tasks -d 'Also publish jobledger_task_*: the same again per task'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l jobs.environment-hints -d 'Take a job\'s account, partition, QOS, name and array ids from the environment of its processes where nothing else knows them; users can forge it, so never for identity. Needs CAP_SYS_PTRACE'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l metric.created -d 'Say in OpenMetrics since when each counter counts, in a line _created of its own. Protobuf always does. A Prometheus that does not look for them (--enable-feature=created-timestamp-zero-ingestion) stores each as a series'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.disable-defaults -d 'Run only the collectors that are switched on by name'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.job -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.cpu -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.cpuset -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.memory -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.pressure -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.io -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.network -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.processes -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.procio -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.procsum -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.perf -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.energy -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.memory_traffic -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.memory-traffic.resctrl -d 'Charge jobs with what resctrl measures of each of them, on shared nodes too: makes a monitoring group (RMID) for every job below the control group that it is in, and removes it at the job\'s end. Needs resctrl mounted, and root or CAP_SETUID and CAP_SETGID at the start (docs/memory-traffic.md)'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.gpu -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l collector.gpu.processes -d 'Also publish the memory and the time of each process of a job on a GPU'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l security.no-device-helper -d 'Start no helper process that keeps CAP_SYS_ADMIN and CAP_NET_ADMIN to ask the kernel for jobs\' device programs (cgroup v2, GPUs)'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.owners -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.counters -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_cpu -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_memory -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_load -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_network -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_pressure -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_cpufreq -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_hardware -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_validation -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.infiniband -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.slingshot -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.node_disk -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.nfs -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.lustre -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -l no-collector.exporter -d 'Switch it off'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -s h -l help -d 'Print help'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -s V -l version -d 'Print version'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -f -a "gpu" -d 'Have the running exporter release the GPU drivers, so that a GPU can be reset or repartitioned, or open them again'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -f -a "perf" -d 'Print which hardware events are counted on this machine, or on one of another kind, in which groups, and what is not and why; with --validate, whether they count right'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -f -a "counters" -d 'Have the running exporter release the hardware counters for a profiler, take them up again, or report who has them'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -f -a "generate" -d 'Write a document that is made from the program itself to standard output'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand gpu" -l control.socket -d 'Where the running exporter takes orders' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand gpu" -s h -l help -d 'Print help'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l microarchitecture -d 'As on a machine of this kind, with SMT and the watchdog on unless said otherwise' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l plan -d 'Which plan, as --collector.perf.plan names them' -r -f -a "essential\t''
full\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l smt -d 'As if the firmware had SMT on or off' -r -f -a "on\t''
off\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l nmi-watchdog -d 'As if kernel.nmi_watchdog were 1 or 0' -r -f -a "on\t''
off\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l events-file -d 'The site\'s own events (docs/counters.md)' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l cpus -d 'Where loops run, as the kernel writes lists; unless set, the last CPU of each kind of core, and for peaks all CPUs' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l time -d 'How long each loop runs, 1ms to 1m; unless set 250ms. Counters that take turns need many turns of 4ms' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l output -d 'Where the results are left, for root, which the exporter reads at its start; unless set /var/lib/jobledger/counters.json. Empty: nowhere' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l counters.lock-file -d 'LIKWID\'s lock: while this file is another user\'s than the exporter\'s own or root, no hardware counter is held here; it is never made or changed. Empty: none is watched' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l format -d 'For people or for tools' -r -f -a "text\t''
json\t''"
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l path.procfs -d 'Mount point of procfs' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l path.sysfs -d 'Mount point of sysfs' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l path.cgroupfs -d 'Mount point of the cgroup file systems' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l list -d 'The names of what is in the catalogue'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l validate -d 'Run loops of known work, count them as a job is counted, and compare; then as --peaks. Needs root'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l peaks -d 'Measure what all CPUs together do at most: bytes from and to memory, floating-point operations. Needs no PMU'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -l although-busy -d 'Run also where other work is on these CPUs'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand perf" -s h -l help -d 'Print help'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand counters" -l for -d 'With yield: take them up again by itself after so long, 1s to 30d; without it only resume or a restart of the exporter does' -r
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand counters" -l control.socket -d 'Where the running exporter takes orders' -r -F
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand counters" -s h -l help -d 'Print help'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand generate" -s h -l help -d 'Print help'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand help; and not __fish_seen_subcommand_from gpu perf counters generate help" -f -a "gpu" -d 'Have the running exporter release the GPU drivers, so that a GPU can be reset or repartitioned, or open them again'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand help; and not __fish_seen_subcommand_from gpu perf counters generate help" -f -a "perf" -d 'Print which hardware events are counted on this machine, or on one of another kind, in which groups, and what is not and why; with --validate, whether they count right'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand help; and not __fish_seen_subcommand_from gpu perf counters generate help" -f -a "counters" -d 'Have the running exporter release the hardware counters for a profiler, take them up again, or report who has them'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand help; and not __fish_seen_subcommand_from gpu perf counters generate help" -f -a "generate" -d 'Write a document that is made from the program itself to standard output'
complete -c jobledger-exporter -n "__fish_jobledger_exporter_using_subcommand help; and not __fish_seen_subcommand_from gpu perf counters generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
