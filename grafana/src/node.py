"""Node: one node, its jobs, and what it spends on them and on itself."""

from . import board, job_tables, style
from .board import Board, href
from .panels import Column, Query, series, stat, states, table
from .queries import CLUSTER, NODE, node, rate

COLLECTOR_STATE = ("({success} + ({available} == bool 0) * 2)")
COLLECTOR_TEXTS = {0: ("failed", style.RED), 1: ("ok", style.BLUE), 2: ("not on this node", style.GREY), 3: ("not on this node", style.GREY)}
DISKS = f"and on (cluster, job, instance, device) jobledger_node_disk_info{{{NODE},kind=\"disk\"}}"


def collector_state():
    """0 failed, 1 ok, 2 and 3 not on this node."""
    return COLLECTOR_STATE.format(success=node("jobledger_exporter_collector_success"), available=node("jobledger_exporter_collector_available"))


# Of one node, so nothing need be recorded: rates are of the panel's own step.
CPUS = node("jobledger_node_cpus")
STANDING = 'standing="booked"'
HELD = f"(sum by (cluster, job, instance) ({node('jobledger_job_cpus')}) or {CPUS} * 0)"
CPU_BUSY = f"sum by (cluster, job, instance) ({rate(node('jobledger_node_cpu_seconds_total', 'mode!~' + chr(34) + 'idle|iowait|guest|guest_nice' + chr(34)))})"
# A node's energy is that of the meters that are attributed to jobs: they do not overlap.
ATTRIBUTED = f"and on (cluster, job, instance, domain, socket, source) {node('jobledger_node_energy_zone_info', STANDING)}"
ENERGY = f"sum by (cluster, job, instance) ({rate(node('jobledger_node_energy_joules_total'))} {ATTRIBUTED})"
NOBODYS = f"sum by (cluster, job, instance) ({rate(node('jobledger_node_energy_unattributed_joules_total'))})"
GPU_ENERGY = f"sum by (cluster, job, instance) ({rate(node('jobledger_gpu_energy_joules_total'))})"
OBSERVED = f"sum by (cluster, job, instance) ({rate(node('jobledger_gpu_observed_seconds_total'))})"


def summary(board_):
    for title, description, unit, expr, steps, texts, decimals in (
            ("Exporter", "Whether the last scrape of the node succeeded.", style.NONE, f"min(up{{{NODE}}} and on (cluster, job, instance) "
             f"last_over_time(jobledger_exporter_build_info{{{NODE}}}[$__range]))", None, {0: ("down", style.RED), 1: ("up", style.BLUE)}, None),
            ("Jobs", "Jobs that run now.", style.COUNT, f"sum({node('jobledger_exporter_jobs', 'state=' + chr(34) + 'running' + chr(34))})", None, None, 0),
            ("CPUs held", "Part of its CPUs that jobs may use.", style.RATIO, f"avg(clamp_max({HELD} / on (cluster, job, instance) ({CPUS} > 0), 1))", None, None, 0),
            ("CPUs busy", "Part of its CPUs that work, whoever for.", style.RATIO, f"avg(clamp_max({CPU_BUSY} / on (cluster, job, instance) ({CPUS} > 0), 1))", None, None, 0),
            ("Memory used", "What new programs cannot have without swapping.", style.RATIO, f"max(1 - {node('jobledger_node_memory_available_bytes')} / ({node('jobledger_node_memory_total_bytes')} > 0))",
             style.NEAR_LIMIT, None, 0),
            ("Load per CPU", "Mean of one minute, of threads that run, are ready or wait in the kernel.", style.COUNT, f"max({node('jobledger_node_load1')} / ({CPUS} > 0))",
             [(None, style.GOOD), (1.2, style.WARN), (2, style.BAD)], None, 2),
            ("Power", "CPUs, memory, GPUs, and the overhead of a node with a meter of its own.", style.WATTS, f"sum({ENERGY} + {GPU_ENERGY} or {ENERGY} unless on (cluster, job, instance) {node('jobledger_gpu_info')} or {GPU_ENERGY} unless on (cluster, job, instance) {node('jobledger_node_energy_zone_info', STANDING)})", None, None, 1),
            ("GPUs", "GPUs, and parts of divided ones.", style.COUNT, f"count({node('jobledger_gpu_info', 'divided!=' + chr(34) + 'true' + chr(34))})", None, None, 0),
            ("GPUs held", "Part of the GPUs' time in which a job had them.", style.RATIO,
             f"clamp_min(1 - sum({rate(node('jobledger_gpu_unallocated_seconds_total'))}) / (sum({OBSERVED}) > 0), 0)", None, None, 0),
            ("GPUs busy", "Part of the time in which they worked.", style.RATIO, f"clamp_max(sum({rate(node('jobledger_gpu_busy_seconds_total'))}) / (sum({rate(node('jobledger_gpu_observed_seconds_total'))} and {node('jobledger_gpu_busy_seconds_total')}) > 0), 1)", None, None, 0),
            ("Collectors that fail", "Collectors that should yield and do not, or not all. Those that the node has nothing for are not in it.", style.COUNT,
             f"count({collector_state()} == 0) or sum(up{{{NODE}}}) * 0", style.NONE_IS_GOOD, None, 0),
            ("Up for", "Since it was booted.", style.SECONDS, f"time() - min({node('jobledger_node_boot_time_seconds')})", None, None, 1)):
        board_.add(stat(title, description, unit, expr, steps, texts, decimals), 4, 3)
    board_.add(table("What it is", "Processor and kernel.", [Column("instance", "Node", width=200), Column("cpu_model", "Processor", width=400), Column("microarchitecture", "Microarchitecture"),
                                                             Column("kernel", "Kernel"), Column("Value #B", "Sockets", style.COUNT, 0), Column("Value #C", "Cores", style.COUNT, 0),
                                                             Column("Value #D", "CPUs", style.COUNT, 0), Column("Value #E", "NUMA nodes", style.COUNT, 0)],
                     [f"max by (instance, cpu_model, microarchitecture, kernel) ({node('jobledger_node_info')})",
                      *(f"max by (instance) ({node(f'jobledger_node_{what}')})" for what in ("sockets", "cores", "cpus", "numa_nodes"))], filterable=False), 24, 3)



RUN = f"unless on (cluster, job, instance, slurm_node, jobid) {node('jobledger_job_end_time_seconds')}"
BY_JOB = "by (cluster, instance, jobid)"


def of_job(gauge):
    return f"sum {BY_JOB} ({node(f'jobledger_job_{gauge}')} {RUN})"


def rate_of_job(counter):
    return f"sum {BY_JOB} ({rate(node(f'jobledger_job_{counter}_total'))} {RUN})"


# By cores: with SMT a job of whole cores uses all that it has with a thread on each.
CORES = f"({of_job('cpus')} * on (cluster, instance) group_left () (max by (cluster, instance) ({node('jobledger_node_cores')}) / max by (cluster, instance) ({CPUS} > 0)))"
CPU_USE = f"clamp_max({rate_of_job('cpu_seconds')} / ({CORES} > 0), 1)"
GPU_IDLE, GPU_BUSY = rate_of_job("gpu_idle_seconds"), rate_of_job("gpu_busy_seconds")
GPU_USE = f"(({GPU_BUSY} or {GPU_IDLE} * 0) / (({GPU_BUSY} or {GPU_IDLE} * 0) + {GPU_IDLE} > 0))"
JOB_POWER = f"{rate_of_job('energy_joules')} + {rate_of_job('gpu_energy_joules')} or {rate_of_job('energy_joules')} unless on (cluster, instance, jobid) {node('jobledger_job_gpu_info')}"


def jobs(board_):
    board_.row("Jobs on the node")
    by = "max by (cluster, instance, jobid)"
    board_.add(table(
        "Running jobs", "What each job holds and uses on this node. Its number leads to its report.",
        [Column("jobid", "Job", links=[("Job report", job_tables.REPORT_RUNNING)]), Column("name", "Name"), Column("user", "User", links=[("User dashboard", job_tables.OWNER_LINK)]),
         Column("account", "Account"), Column("partition", "Partition"), Column("instance", "Node", width=130), Column("Value #B", "Running for", style.SECONDS),
         Column("Value #C", "CPUs", style.COUNT, 0), Column("Value #D", "CPU used", style.RATIO, 0, style.EFFICIENCY_CPU),
         Column("Value #E", "Memory used", style.BYTES, 1), Column("Value #F", "Held of limit", style.RATIO, 0, style.NEAR_LIMIT), Column("Value #G", "GPUs", style.COUNT, 0),
         Column("Value #H", "GPU used", style.RATIO, 0, style.EFFICIENCY_GPU), Column("Value #I", "Power", style.WATTS, 1),
         Column("Value #J", "From", style.NONE, 0, hide=True)],
        [f"max by (cluster, instance, jobid, user, account, partition, name) ({node('jobledger_job_info')} unless on (cluster, job, instance, slurm_node, jobid) "
         f"{node('jobledger_job_end_time_seconds')})",
         f"{by} (time() - ({node('jobledger_job_start_time_seconds')} unless {node('jobledger_job_end_time_seconds')}))", f"{by} ({of_job('cpus')})",
         f"{by} ({CPU_USE})", f"{by} ({of_job('memory_used_bytes')})",
         f"{by} (({of_job('memory_anon_bytes')} + {of_job('memory_shmem_bytes')}) / ({of_job('memory_limit_bytes')} > 0))", f"{by} (count by (cluster, instance, jobid) (count by (cluster, instance, jobid, uuid) ({node('jobledger_job_gpu_info')} {RUN})))",
         f"{by} ({GPU_USE})",
         f"{by} ({JOB_POWER})",
         f"(floor({by} ({node('jobledger_job_start_time_seconds')} unless {node('jobledger_job_end_time_seconds')})) - 60) * 1000"],
        sort="CPUs"), 24, 9)
    board_.add(series("CPUs by job", "CPUs that each job keeps busy, and what the node has.", style.NUMBER,
                      [(f"sum by (jobid) ({rate_of_job('cpu_seconds')})", "{{jobid}}"), (f"sum({node('jobledger_node_cpus')})", "CPUs of the node")],
                      stack=True, limits=["CPUs of the node"], calcs=()), 8, 8)
    board_.add(series("Memory by job", "Charged to each job, page cache included, and what the node has.", style.BYTES,
                      [(f"sum by (jobid) ({of_job('memory_used_bytes')})", "{{jobid}}"),
                       (f"sum({node('jobledger_node_memory_total_bytes')})", "Memory of the node")], stack=True, limits=["Memory of the node"], calcs=()), 8, 8)
    board_.add(states("Stale jobs and counters", "Job directories that SLURM did not remove, and when the hardware counters were yielded to a profiler.",
                      [Query(f"max by (instance, jobid) ({node('jobledger_node_stale_job_info')})", "{{instance}}: job {{jobid}} left behind"),
                       Query(f"max by (instance) ({node('jobledger_node_counters_yielded')}) + 2", "{{instance}}: counters")],
                      {1: ("left behind", style.ORANGE), 2: ("held", style.BLUE), 3: ("given away", style.ORANGE)}), 8, 8)


def machine(board_):
    board_.row("CPU and memory")
    board_.add(series("CPU time by mode", "CPUs' worth of time in each mode.", style.NUMBER,
                      (f"sum by (mode) ({rate(node('jobledger_node_cpu_seconds_total', 'mode!~' + chr(34) + 'idle|guest|guest_nice' + chr(34)))})", "{{mode}}"), stack=True,
                      colours={"user": style.BLUE, "system": style.ORANGE, "iowait": style.PINK, "nice": style.DEEP, "irq": style.GREY, "softirq": style.YELLOW}), 8, 8)
    uses = {"anon": "Anonymous", "cached": "Page cache", "slab": "Kernel objects", "page_tables": "Page tables", "free": "Free"}
    board_.add(series("Memory by use", "What the kernel manages.", style.BYTES,
                      [(f"sum({node(f'jobledger_node_memory_{use}_bytes')})", title) for use, title in uses.items()], stack=True,
                      colours={"Anonymous": style.ORANGE, "Page cache": style.BLUE, "Kernel objects": style.PINK, "Page tables": style.DEEP, "Free": style.GREY}), 8, 8)
    board_.add(series("Pressure", "Part of the time in which some (or all) tasks waited.", style.RATIO,
                      (f"clamp_max(max by (resource, kind) ({rate(node('jobledger_node_pressure_seconds_total'))}), 1)", "{{resource}} {{kind}}"), high=1), 8, 8)
    board_.add(series("Load", "Threads that run, are ready or wait in the kernel, damped over 1, 5 and 15 minutes.", style.NUMBER,
                      [(f"sum({node('jobledger_node_load1')})", "1 minute"), (f"sum({node('jobledger_node_load5')})", "5 minutes"), (f"sum({node('jobledger_node_load15')})", "15 minutes"),
                       (f"sum({node('jobledger_node_cpus')})", "CPUs")], limits=["CPUs"]), 8, 7)
    board_.add(series("Context switches and forks", "Per second.", style.OPS,
                      [(f"sum({rate(node('jobledger_node_context_switches_total'))})", "Context switches"), (f"sum({rate(node('jobledger_node_forks_total'))})", "Forks")],
                      right={"/Forks/": style.OPS}), 8, 7)
    board_.add(series("Swap and dirty pages", "Swap used, and page cache that waits to be written or is being written.", style.BYTES,
                      [(f"sum({node('jobledger_node_memory_swap_total_bytes')} - {node('jobledger_node_memory_swap_free_bytes')})", "Swap used"),
                       (f"sum({node('jobledger_node_memory_dirty_bytes')})", "Dirty"), (f"sum({node('jobledger_node_memory_writeback_bytes')})", "Being written")]), 8, 7)
    board_.add(series("Clock", "Lowest, mean and highest clock of the CPUs (--collector.node_cpufreq).", style.HERTZ,
                      (f"max by (stat) ({node('jobledger_node_cpu_frequency_hertz')})", "{{stat}}"), nothing="Off: --collector.node_cpufreq"), 12, 7)
    board_.add(series("Memory traffic", "By the memory controllers (--collector.memory_traffic).", style.BYTES_PER_SECOND,
                      (f"sum by (kind, direction) ({rate(node('jobledger_node_memory_traffic_bytes_total'))})", "{{kind}} {{direction}}"), nothing="Off, or not counted here: --collector.memory_traffic"), 12, 7)


def network(board_):
    def pair(metric, by="device", more=""):
        return [(f"sum by ({by}) ({rate(node(f'jobledger_node_{metric}_received_bytes_total', *more))})", "{{device}} received"),
                (f"sum by ({by}) ({rate(node(f'jobledger_node_{metric}_transmitted_bytes_total', *more))})", "{{device}} sent")]

    board_.row("Network and interconnect", collapsed=True)
    board_.add(series("Network devices", "Bytes per second; a bond, bridge or VLAN counts what its members count, too.", style.BYTES_PER_SECOND, pair("network", more=['device!="lo"'])), 8, 8)
    board_.add(series("InfiniBand, RoCE, Omni-Path", "Bytes per second of each device.", style.BYTES_PER_SECOND, pair("infiniband")), 8, 8)
    board_.add(series("Slingshot", "Bytes per second of each device.", style.BYTES_PER_SECOND, pair("slingshot")), 8, 8)
    board_.add(series("Errors and drops", "Per second, of network devices.", style.PACKETS,
                      [(f"sum by (device) ({rate(node('jobledger_node_network_received_errors_total'))} + {rate(node('jobledger_node_network_transmitted_errors_total'))})", "{{device}} errors"),
                       (f"sum by (device) ({rate(node('jobledger_node_network_received_drops_total'))} + {rate(node('jobledger_node_network_transmitted_drops_total'))})", "{{device}} drops")]), 8, 7)
    board_.add(series("InfiniBand errors", "Per second, by type; above 0 a cable or a port is bad.", style.OPS,
                      (f"sum by (device, port, type) ({rate(node('jobledger_node_infiniband_errors_total'))}) > 0", "{{device}}/{{port}} {{type}}")), 8, 7)
    board_.add(states("Links", "State of InfiniBand ports, Slingshot links and network devices.",
                      [Query(f"(max by (instance, device, port) ({node('jobledger_node_infiniband_state')}) >= bool 4) ", "{{device}}/{{port}}"),
                       Query(f"max by (instance, device) ({node('jobledger_node_slingshot_link_up')})", "{{device}}"),
                       Query(f"max by (instance, device) ({node('jobledger_node_network_up')})", "{{device}} (network)")],
                      {0: ("down", style.RED), 1: ("up", style.BLUE)}, show_value=False), 8, 7)


def storage(board_):
    board_.row("Disks and file systems", collapsed=True)
    board_.add(series("Disks", "Whole disks, bytes per second.", style.BYTES_PER_SECOND,
                      [(f"sum by (device) ({rate(node('jobledger_node_disk_read_bytes_total'))} {DISKS})", "{{device}} read"),
                       (f"sum by (device) ({rate(node('jobledger_node_disk_written_bytes_total'))} {DISKS})", "{{device}} written")]), 8, 8)
    board_.add(series("Disks busy", "Part of the time in which the disk had at least one request.", style.RATIO,
                      (f"max by (device) ({rate(node('jobledger_node_disk_busy_seconds_total'))} {DISKS})", "{{device}}"), high=1), 8, 8)
    board_.add(series("Time per operation", "From queueing to completion, of whole disks.", style.SECONDS,
                      (f"sum by (device, operation) ({rate(node('jobledger_node_disk_operation_seconds_total'))} {DISKS}) / "
                       f"(sum by (device, operation) ({rate(node('jobledger_node_disk_operations_total'))} {DISKS}) > 0)", "{{device}} {{operation}}")), 8, 8)
    board_.add(series("NFS", "Bytes per second of each mount.", style.BYTES_PER_SECOND,
                      [(f"sum by (mountpoint) ({rate(node('jobledger_node_nfs_read_bytes_total'))})", "{{mountpoint}} read"),
                       (f"sum by (mountpoint) ({rate(node('jobledger_node_nfs_written_bytes_total'))})", "{{mountpoint}} written")]), 8, 8)
    board_.add(series("NFS round trip", "Mean time from a request to its answer.", style.SECONDS,
                      (f"sum by (mountpoint, operation) ({rate(node('jobledger_node_nfs_request_round_trip_seconds_total'))}) / "
                       f"(sum by (mountpoint, operation) ({rate(node('jobledger_node_nfs_requests_total'))}) > 0)", "{{mountpoint}} {{operation}}"), calcs=()), 8, 8)
    board_.add(series("NFS trouble", "Requests sent again, not answered in time, or ended with an error, per second.", style.OPS,
                      [(f"sum by (mountpoint) ({rate(node(f'jobledger_node_nfs_{what}_total'))})", "{{mountpoint}} " + title)
                       for what, title in (("retransmissions", "sent again"), ("timeouts", "timed out"), ("request_errors", "errors"))]), 8, 8)
    board_.add(series("Lustre", "Bytes per second that processes read and wrote.", style.BYTES_PER_SECOND,
                      [(f"sum by (filesystem) ({rate(node('jobledger_node_lustre_read_bytes_total'))})", "{{filesystem}} read"),
                       (f"sum by (filesystem) ({rate(node('jobledger_node_lustre_written_bytes_total'))})", "{{filesystem}} written")]), 12, 8)
    board_.add(series("Lustre wait", "Mean time that a request waited for its answer.", style.SECONDS,
                      (f"sum by (filesystem, service) ({rate(node('jobledger_node_lustre_rpc_wait_seconds_total'))}) / "
                       f"(sum by (filesystem, service) ({rate(node('jobledger_node_lustre_rpcs_total'))}) > 0)", "{{filesystem}} {{service}}")), 12, 8)


# What no job was charged with, and all of it: counters, with a matcher where only a part of them is shared out.
RESIDUALS = {
    "CPU time": ("jobledger_node_slurm_cpu_unattributed_seconds_total", "jobledger_node_slurm_cpu_seconds_total"),
    "GPU busy time": ("jobledger_gpu_unattributed_busy_seconds_total", "jobledger_gpu_busy_seconds_total"),
    "Energy of GPUs": ("jobledger_gpu_unattributed_energy_joules_total", "jobledger_gpu_energy_joules_total"),
    **{f"{title} {way}": (f"jobledger_node_{name}_unattributed_{verb}_bytes_total", f"jobledger_node_{name}_{verb}_bytes_total") for name, title, verb, way in (
        ("infiniband", "InfiniBand", "received", "received"), ("slingshot", "Slingshot", "received", "received"), ("slurm_network", "IP packets", "received", "received"),
        ("nfs", "NFS", "read", "read"), ("nfs", "NFS", "written", "written"), ("lustre", "Lustre", "read", "read"), ("lustre", "Lustre", "written", "written"))},
    "Memory traffic": ("jobledger_node_memory_traffic_unattributed_bytes_total", "jobledger_node_memory_traffic_bytes_total")}


def ledger(board_):
    board_.row("The ledger: what no job is charged with")
    parts = [(f"clamp_max(sum({rate(node(nobodys))}) / (sum({rate(node(all_))}) > 0), 1)", title) for title, (nobodys, all_) in RESIDUALS.items()]
    parts.append((f"clamp_max(sum({NOBODYS}) / (sum({ENERGY}) > 0), 1)", "Energy but for GPUs"))
    for verb in ("read", "written"):
        parts.append((f"clamp_max(sum({rate(node(f'jobledger_node_disk_unattributed_{verb}_bytes_total'))} {DISKS}) / (sum({rate(node(f'jobledger_node_disk_{verb}_bytes_total'))} {DISKS}) > 0), 1)", f"Disks {verb}"))
    board_.add(series("No job's part", "Of CPU time it is a sign that jobs are not followed. Of energy it is idle hardware and the system; of disks, file systems and the network it is "
                                       "what moved while jobs shared the node.", style.RATIO, parts, high=1, calcs=("lastNotNull", "mean"), legend_right=True), 14, 10)
    board_.add(series("Power: jobs and nobody", "What was measured but for GPUs: CPUs, memory, and overhead.", style.WATTS,
                      [(f"sum({ENERGY}) - sum({NOBODYS})", "Jobs"), (f"sum({NOBODYS})", "Nobody")], stack=True, colours={"Jobs": style.BLUE, "Nobody": style.GREY},
                      nothing="No meter of CPUs and memory can be read"), 10, 10)


def gpus(board_):
    board_.row("GPUs")
    link = href(board.GPU, instance='${__data.fields["Node"]}', uuid='${__data.fields["UUID"]}')
    board_.add(table(
        "GPUs", "As they are now. GPU health shows more.",
        [Column("instance", "Node", width=130), Column("gpu", "GPU", links=[("GPU health", link)]), Column("model", "Model", width=180), Column("profile", "Part"),
         Column("Value #B", "State", texts={0: ("cannot be read", style.RED), 1: ("ok", style.BLUE)}), Column("Value #C", "Jobs", style.COUNT, 0),
         Column("Value #D", "Busy", style.RATIO, 0), Column("Value #E", "Memory used", style.RATIO, 0), Column("Value #F", "Power", style.WATTS, 1),
         Column("Value #G", "Temperature", style.CELSIUS, 0, [(None, style.GOOD), (80, style.WARN), (90, style.BAD)]), Column("uuid", "UUID", width=300)],
        [f"max by (cluster, instance, gpu, uuid, model, profile) ({node('jobledger_gpu_info')})", f"max by (cluster, instance, gpu, uuid) ({node('jobledger_gpu_up')})",
         f"max by (cluster, instance, gpu, uuid) ({node('jobledger_gpu_jobs')})",
         f"max by (cluster, instance, gpu, uuid) ({rate(node('jobledger_gpu_busy_seconds_total'))} / ({rate(node('jobledger_gpu_observed_seconds_total'))} > 0))",
         f"sum by (cluster, instance, gpu, uuid) ({node('jobledger_gpu_memory_bytes', 'state=' + chr(34) + 'used' + chr(34))}) / (max by (cluster, instance, gpu, uuid) "
         f"({node('jobledger_gpu_memory_size_bytes')}) > 0)",
         f"max by (cluster, instance, gpu, uuid) ({node('jobledger_gpu_power_watts')})", f"max by (cluster, instance, gpu, uuid) ({node('jobledger_gpu_temperature_celsius')})"],
        sort="GPU", descending=False), 24, 8)


def collectors(board_):
    board_.row("What is measured here")
    board_.add(states("Collectors", "What each collector yielded. «Failed» is trouble; «not on this node» is not: the hardware, the kernel or the permission is missing.",
                      [Query(f"min by (collector) ({collector_state()})", "{{collector}}")], COLLECTOR_TEXTS, show_value=False), 12, 12)
    board_.add(table("Why collectors yield nothing or less", "In the exporter's own words.",
                     [Column("instance", "Node", width=130), Column("collector", "Collector", width=130), Column("reason", "Reason", width=120), Column("detail", "Detail")],
                     f"max by (instance, collector, reason, detail) ({node('jobledger_exporter_collector_status_info')})"), 12, 12)


def build():
    board_ = Board(board.NODE, "Jobledger / Node", "A node, its jobs, and what it spends on them and on itself.", since="now-1h")
    board_.lookup("instance", "Node", f"label_values(jobledger_exporter_build_info{{{CLUSTER}}}, instance)")
    board_.annotation("Job starts", f"{node('jobledger_job_start_time_seconds')} * 1000", style.GREEN, "Job {{jobid}} started", value_is_time=True)
    board_.annotation("Reboots", f"{node('jobledger_node_boot_time_seconds')} * 1000", style.GREY, "{{instance}} was booted", value_is_time=True)
    board_.annotation("Down", f"up{{{NODE}}} == 0 and on (cluster, job, instance) last_over_time(jobledger_exporter_build_info{{{NODE}}}[1d])", style.RED, "The exporter does not answer")
    board_.alerts("Jobledger.*", 'instance=~"$instance"')
    summary(board_)
    jobs(board_)
    gpus(board_)
    machine(board_)
    network(board_)
    storage(board_)
    ledger(board_)
    collectors(board_)
    return board_
