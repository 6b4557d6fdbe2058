"""Job report: I/O, network, energy, imbalance, steps, and how good the data are."""

from . import style
from .panels import Column, Query, heatmap, series, stat, states, table
from .queries import CLUSTER, RAN, STARTED, hours, job, last, most, rate

ALONE = "Counted by the node, and attributed only while the job is alone on it (docs/attribution.md)."


def _pair(level, first, second):
    return [(job(f"jobid:jobledger_job_{level}_{first[0]}_bytes:rate2m"), first[1]), (job(f"jobid:jobledger_job_{level}_{second[0]}_bytes:rate2m"), second[1])]


READ_WRITE = (("read", "Read"), ("written", "Written"))
RECEIVED_SENT = (("received", "Received"), ("transmitted", "Sent"))
READ_COLOURS = {"Read": style.BLUE, "Written": style.ORANGE}
NET_COLOURS = {"Received": style.BLUE, "Sent": style.ORANGE}


def io_and_network(board_):
    board_.row("I/O", collapsed=True)
    board_.add(series("Block devices", "By the job's cgroup, where SLURM turns the io controller on. What the page cache answered is not in it; writes are counted when "
                                       "they are written back.", style.BYTES_PER_SECOND, _pair("io", *READ_WRITE), colours=READ_COLOURS), 8, 8)
    board_.add(series("What processes asked for", "Bytes of read and write calls, network file systems and page cache included (--collector.procio).",
                      style.BYTES_PER_SECOND, _pair("process_syscall", *READ_WRITE), colours=READ_COLOURS), 8, 8)
    board_.add(series("Local disks", ALONE + " Whole disks.", style.BYTES_PER_SECOND, _pair("disk", *READ_WRITE), colours=READ_COLOURS), 8, 8)
    board_.add(series("NFS", ALONE, style.BYTES_PER_SECOND, _pair("nfs", *READ_WRITE), colours=READ_COLOURS), 8, 8)
    board_.add(series("Lustre", ALONE + " What the page cache had is in it.", style.BYTES_PER_SECOND, _pair("lustre", *READ_WRITE), colours=READ_COLOURS), 8, 8)
    board_.add(series("Operations", "On block devices (by cgroup), and to NFS and Lustre (alone only).", style.OPS,
                      [(job("jobid:jobledger_job_io_operations:rate2m"), "Block {{direction}}"), (job("jobid:jobledger_job_nfs_operations:rate2m"), "NFS {{operation}}"),
                       (job("jobid:jobledger_job_lustre_operations:rate2m"), "Lustre {{operation}}")]), 8, 8)
    board_.add(series("I/O pressure", "Part of the time in which tasks waited for storage (cgroup v2).", style.RATIO,
                      (job("jobid_instance:jobledger_job_pressure_seconds:rate2m", 'resource="io"'), "{{instance}} {{kind}}"), high=1), 24, 7)
    board_.row("Network", collapsed=True)
    board_.add(series("InfiniBand, RoCE, Omni-Path", ALONE, style.BYTES_PER_SECOND, _pair("infiniband", *RECEIVED_SENT), colours=NET_COLOURS), 8, 8)
    board_.add(series("Slingshot", ALONE, style.BYTES_PER_SECOND, _pair("slingshot", *RECEIVED_SENT), colours=NET_COLOURS), 8, 8)
    board_.add(series("IP packets", "Of the job's sockets (--collector.network), without RDMA and loopback.", style.BYTES_PER_SECOND,
                      _pair("network", *RECEIVED_SENT), colours=NET_COLOURS), 8, 8)


def energy(board_):
    board_.row("Energy and waiting")
    board_.add(series("Power", "Attributed to the job on all of its nodes: CPUs and memory by the sockets' meters, GPUs by their boards'.", style.WATTS,
                      [(job("jobid:jobledger_job_energy_joules:rate2m"), "CPUs and memory"), (job("jobid:jobledger_job_gpu_energy_joules:rate2m"), "GPUs")],
                      stack=True, colours={"CPUs and memory": style.BLUE, "GPUs": style.GREEN}), 8, 8)
    board_.add(table("Energy by meter", "Totals over the job by domain and by how the meter's reading was split (method; docs/attribution.md).",
                     [Column("domain", "Domain"), Column("method", "How it was split"), Column("Value #A", "Energy", style.JOULES, 1)],
                     f"sum by (domain, method) ({most(job('jobledger_job_energy_joules_total'))})"
                     f" or sum by (domain, method) (label_replace({most(job('jobledger_job_gpu_energy_joules_total'))}, \"domain\", \"gpu\", \"\", \"\"))",
                     sort="Energy"), 8, 8)
    board_.add(series("Waiting (pressure)", "Part of the time in which some task waited, on the node where it is highest (cgroup v2).", style.RATIO,
                      (job("jobid:jobledger_job_pressure_seconds:max_rate2m", 'kind="some"'), "{{resource}}"), high=1,
                      colours={"cpu": style.BLUE, "memory": style.PINK, "io": style.ORANGE}), 8, 8)


def imbalance(board_):
    board_.row("Imbalance", collapsed=True)
    ratio = job("jobid_instance:jobledger_job_cpu_seconds_per_cpu:ratio_rate2m")
    board_.add(heatmap("CPU use by node and time", "Each node of the job a row. Rows that differ are work that is not shared evenly; a dark row is a node that does nothing.",
                       style.RATIO, (ratio, "{{instance}}")), 16, 9)
    board_.add(series("Busiest and idlest node", "CPU use of the job's nodes. The further apart, the longer the busy ones are waited for.", style.RATIO,
                      [(f"max({ratio})", "Busiest"), (f"avg({ratio})", "Mean"), (f"min({ratio})", "Idlest")], high=1,
                      colours={"Busiest": style.BLUE, "Mean": style.GREY, "Idlest": style.ORANGE}), 8, 9)
    board_.add(series("Memory held by node", "What the kernel cannot drop, on each node.", style.BYTES,
                      (job("jobid_instance:jobledger_job_memory_held_bytes:sum"), "{{instance}}")), 12, 7)
    board_.add(series("Power by node", "CPUs, memory and GPUs.", style.WATTS,
                      (job("jobid_instance:jobledger_job_total_energy_joules:rate2m"), "{{instance}}")), 12, 7)


def steps(board_):
    board_.row("Steps", collapsed=True)
    board_.add(table("Steps of the job", "Exported with --jobs.steps: about as many series per step as per job. Totals over nodes.",
                     [Column("step", "Step"), Column("Value #A", "CPU-hours", style.COUNT, 3), Column("Value #B", "Peak memory", style.BYTES, 1),
                      Column("Value #C", "OOM kills", style.COUNT, 0, style.NONE_IS_GOOD)],
                     [hours(f"sum by (step) ({most(job('jobledger_step_cpu_seconds_total'))})"), f"max by (step) ({most(job('jobledger_step_memory_peak_bytes'))})",
                      f"sum by (step) ({most(job('jobledger_step_oom_kills_total'))})"], sort="CPU-hours"), 10, 8)
    board_.add(series("CPUs used by step", "Exported with --jobs.steps.", style.NUMBER,
                      (f"sum by (step) ({rate(job('jobledger_step_cpu_seconds_total'))})", "{{step}}"), stack=True), 14, 8)


def quality(board_):
    board_.row("How good are these data?")
    told = f"count_over_time({job('jobledger_job_start_time_seconds')}[$__range])"
    up = f"avg_over_time(up{{{CLUSTER}}}[$__range])"
    here = f"and on (cluster, job, instance) {STARTED}"
    board_.add(table(
        "Nodes", "Of each node: how much of the scrapes succeeded, how many scrapes had the job, the longest counters coverage and how counters were counted. A "
                 "failed scrape is a gap in rates; totals are exact over it.",
        [Column("instance", "Node"), Column("Value #A", "Scrapes ok", style.RATIO, 1, style.COVERAGE),
         Column("Value #B", "Times exported", style.COUNT, 0), Column("Value #C", "CPU time counted", style.RATIO, 1, style.COVERAGE),
         Column("mode", "Counters are of"), Column("reason", "What is lacking"),
         Column("Value #E", "Counters given away", style.SECONDS, None, [(None, style.GOOD), (1, style.WARN)])],
        [f"max by (instance) ({up} {here})", f"max by (instance) ({told})", f"min by (instance) ({last(job('jobledger_job_counters_coverage_ratio'))})",
         f"max by (instance, mode, reason) ({last(job('jobledger_job_counters_info'))})",
         f"max by (instance) ((max_over_time(jobledger_node_counters_yielded_seconds_total{{{CLUSTER}}}[$__range])"
         f" - min_over_time(jobledger_node_counters_yielded_seconds_total{{{CLUSTER}}}[$__range])) {here})"]), 14, 8)
    # The distance of scrapes, from those that failed, too, of the targets that had the job: others can have one job and instance twice, as
    # the kubelet with its several paths. And scrapes that had the job while it ran (this gauge is gone when it ends).
    ours = f"and on (cluster, job, instance) last_over_time({job('jobledger_job_start_time_seconds')}[$__range] @ end())"
    ups = f"(timestamp(up{{{CLUSTER}}}) {ours})[$__range:]"
    distance = f"((max_over_time({ups}) - min_over_time({ups})) / (count_over_time(up{{{CLUSTER}}}[$__range]) - 1 {ours}))"
    each = "on (cluster, job, instance) group_left ()"
    board_.add(stat("Time covered", "Part of the job's time that is covered by scrapes that had it. What is missing are failed scrapes, or an exporter or Prometheus that was down.",
                    style.RATIO, f"clamp_max(sum(count_over_time({job('jobledger_job_cpus')}[$__range]) * {each} {distance}) / (sum({RAN}) > 0), 1)",
                    style.COVERAGE, decimals=0), 3, 8)
    board_.add(table("Attribution", "By what each of the job's numbers was split from what the node measured, with the part of it.",
                     [Column("what", "What"), Column("method", "Method"), Column("Value #A", "Part", style.RATIO, 0)],
                     _methods(), filterable=False), 7, 8)
    board_.add(states(
        "Collectors on the job's nodes", "What each collector yielded. «Failed» is trouble, «not on this node» is not: the hardware, the kernel or the permission is missing.",
        [Query(f"min by (collector) ((jobledger_exporter_collector_success{{{CLUSTER}}} + (jobledger_exporter_collector_available{{{CLUSTER}}} == bool 0) * 2)"
               f" and on (cluster, job, instance) {job('jobledger_job_start_time_seconds')})", "{{collector}}")],
        {0: ("failed", style.RED), 1: ("ok", style.BLUE), 2: ("not on this node", style.GREY), 3: ("not on this node", style.GREY)}, show_value=False), 24, 12)


def _methods():
    parts = []
    for what, metric in (("Energy", "jobledger_job_energy_joules_total"), ("GPU busy time", "jobledger_job_gpu_busy_seconds_total"),
                         ("GPU energy", "jobledger_job_gpu_energy_joules_total"), ("Memory traffic", "jobledger_job_memory_traffic_bytes_total")):
        amount = most(job(metric))
        parts.append(f'label_replace(sum by (method) ({amount}) / on () group_left () (sum({amount}) > 0), "what", "{what}", "", "")')
    return " or ".join(parts)
