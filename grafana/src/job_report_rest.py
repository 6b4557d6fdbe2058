"""Job report: nodes, CPU and memory, I/O and network, energy, steps, and how good the data are."""

from . import style
from .board import NODE, href
from .job_numbers import (BY_NODE, CPU_HAD, CPU_USE_BY_NODE, CPU_USE_NOW, CPU_USED, ENERGY, FEW, FEW_NODES, GPU_HAD, GPU_IDLE, GPUS, HELD, MEMORY_USE_BY_NODE, NOT_ENDED, PEAK_OR_HELD, RAN,
                          RUNNING, STARTED, by_node, counted, known, running, running_by, use, waited)
from .panels import Column, Query, rows_of_labels, series, stat, states, table
from .queries import CLUSTER, grams, hours, job, label, last, most, of, rate

_GPU_ENERGY = "jobledger_job_gpu_energy_joules_total"
OVERHEAD, NO_OVERHEAD = 'domain="overhead"', 'domain!="overhead"'
NOT_HERE = "Nothing in this time range: the job ran at another time, or was too short"
ALONE = "NFS, Lustre, disks, InfiniBand and Slingshot are counted by the node, and attributed only while the job is alone on it (docs/attribution.md)."


def extremes(expr, high="Highest", low="Lowest"):
    """Of a series per node: the highest, the mean and the lowest, however many nodes there are."""
    return [(f"max({expr})", high), (f"avg({expr})", "Mean"), (f"min({expr})", low)]


EXTREMES = {"Highest": style.BLUE, "Mean": style.GREY, "Lowest": style.ORANGE}


def nodes(board_):
    board_.count("nodes", f"count(count by (cluster, instance, slurm_node) ({STARTED}))")
    board_.row("Nodes: $nodes", collapsed=True)
    by = "max by (cluster, instance)"
    busy, idle = by_node("jobledger_job_gpu_busy_seconds_total"), by_node("jobledger_job_gpu_idle_seconds_total")
    energy = f"({by_node('jobledger_job_energy_joules_total')} + {by_node('jobledger_job_gpu_energy_joules_total')} or {by_node('jobledger_job_energy_joules_total')} unless {_gpus_by_node()})"
    board_.add(table(
        "Nodes of the job", "Totals of each node over the job. A node that stands out is where to look. "
                            f"Of more than {FEW_NODES} nodes those that used their CPUs least.",
        [Column("instance", "Node", links=[("Node dashboard", href(NODE, instance='${__data.fields["Node"]}'))], width=150),
         Column("Value #A", "CPUs", style.COUNT, 0), Column("Value #B", "CPU use", style.RATIO, 1, style.EFFICIENCY_CPU, gauge=1),
         Column("Value #C", "Peak memory", style.BYTES, 1), Column("Value #D", "Peak of limit", style.RATIO, 1, style.NEAR_LIMIT, gauge=1),
         Column("Value #E", "OOM kills", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #F", "GPUs", style.COUNT, 0),
         Column("Value #G", "GPU busy", style.RATIO, 1, style.EFFICIENCY_GPU, gauge=1), Column("Value #H", "Energy", style.JOULES, 1),
         Column("Value #I", "I/O pressure", style.RATIO, 1, style.PRESSURE), Column("Value #J", "Memory pressure", style.RATIO, 1, style.PRESSURE)],
        [f"{by} ({expr}) {FEW}" for expr in (
            f"sum {BY_NODE} ({known(last(job('jobledger_job_cpus')))})", CPU_USE_BY_NODE, PEAK_OR_HELD, MEMORY_USE_BY_NODE, by_node("jobledger_job_oom_kills_total"), _gpus_by_node(),
            use(busy, idle), energy, waited("io"), waited("memory"))],
        sort="CPU use", descending=False, nothing=NOT_HERE), 24, 7)
    board_.add(series("CPU use of nodes", "The further apart, the longer the busy ones are waited for.", style.RATIO, extremes(CPU_USE_NOW), high=1, colours=EXTREMES, calcs=("mean",), nothing=NOT_HERE), 8, 8)
    board_.add(series("Memory held of nodes", "What the kernel cannot drop.", style.BYTES, extremes(f"{HELD} {NOT_ENDED}"), colours=EXTREMES, calcs=("max",), nothing=NOT_HERE), 8, 8)
    power = running_by("cluster, instance", "jobledger_job_energy_joules_total", NO_OVERHEAD)
    board_.add(series("Power of CPUs and memory of nodes", "By the sockets' meters.", style.WATTS, extremes(power), colours=EXTREMES, calcs=("mean",),
                      nothing="The nodes have no meter of their sockets"), 8, 8)


def _gpus_by_node():
    return f"count {BY_NODE} (count by (cluster, job, instance, jobid, gpu, uuid) ({last(job('jobledger_job_gpu_info'))}))"


def cpu_and_memory(board_):
    board_.row("CPU and memory in detail", collapsed=True)
    board_.add(series("CPU time by mode", "User code, the kernel on its behalf, and time that only the node's sum shows (unsplit).", style.NUMBER,
                      (f"sum by (mode) ({running('jobledger_job_cpu_seconds_total')})", "{{mode}}"), stack=True,
                      colours={"user": style.BLUE, "system": style.ORANGE, "unsplit": style.GREY}, nothing=NOT_HERE), 8, 8)
    board_.add(series("Processes and threads", "Of the user, without slurmstepd.", style.NUMBER,
                      [(f"sum({job('jobledger_job_processes')})", "Processes"), (f"sum({job('jobledger_job_threads')})", "Threads"),
                       (f"sum({job('jobledger_job_cpus')})", "CPUs")], limits=["CPUs"], colours={"Processes": style.GREEN, "Threads": style.BLUE}, calcs=("max",), nothing=NOT_HERE), 8, 8)
    kinds = {"anon": "Heaps and stacks", "file": "Page cache", "kernel": "Kernel"}
    board_.add(series("Memory by kind", "Page cache includes shared memory. Kernel memory is known from Linux 5.18 on.", style.BYTES,
                      [(f"sum({job(f'jobledger_job_memory_{kind}_bytes')})", title) for kind, title in kinds.items()], stack=True,
                      colours={"Heaps and stacks": style.ORANGE, "Page cache": style.BLUE, "Kernel": style.PINK}, nothing=NOT_HERE), 8, 8)
    pressures = [(f"max by (resource, kind) ({running('jobledger_job_pressure_seconds_total')})", "{{resource}} ({{kind}})")]
    throttled = f"sum({running('jobledger_job_cpu_throttled_seconds_total')})"
    used = f"sum({running('jobledger_job_cpu_seconds_total')})"
    board_.add(series("Waiting", "Part of the time in which some tasks, or all, waited for a CPU, memory or storage, on the node where that was most (cgroup v2); and the part of the CPU time wanted that a bandwidth limit kept back.",
                      style.RATIO, [*pressures, (f"{throttled} / ({throttled} + {used} > 0)", "kept back by a CPU limit")], high=1, calcs=("mean", "max"), nothing=NOT_HERE), 12, 8)
    board_.add(rows_of_labels(
        "Totals and events", "Of the whole job: what it held and used, times that its usage ran into a limit, processes killed, page faults that had to read from a device, and the most that was swapped out. On cgroup v1 "
                             "kills are not known.",
        [Column("what", "What"), Column("Value", "How often, how much", style.COUNT)],
        [label(expr, what=what) for what, expr in (
            ("CPU-hours held", hours(CPU_HAD)), ("CPU-hours used", hours(CPU_USED)), ("GPU-hours held", hours(GPU_HAD)), ("GPU-hours without a kernel", hours(GPU_IDLE)),
            ("Ran into the limit of memory", f"sum({known(most(job('jobledger_job_memory_limit_hits_total')))})"), ("Processes killed for memory", counted("jobledger_job_oom_kills_total")),
            ("Major page faults", f"sum({known(most(job('jobledger_job_page_faults_total', 'type=' + chr(34) + 'major' + chr(34))))})"),
            ("Bytes swapped out at most", f"sum({known(most(job('jobledger_job_swap_used_bytes')))})"))], "The kernel counts none of them"), 12, 8)


SOURCES = {"io": ("Block devices", "read", "written"), "process_syscall": ("Asked for by processes", "read", "written"), "disk": ("Local disks", "read", "written"), "nfs": ("NFS", "read", "written"),
           "lustre": ("Lustre", "read", "written"), "infiniband": ("InfiniBand, RoCE, Omni-Path", "received", "transmitted"), "slingshot": ("Slingshot", "received", "transmitted"),
           "network": ("IP packets", "received", "transmitted")}


def io_and_network(board_):
    there = " or ".join(label(f"count({last(job(f'jobledger_job_{name}_{into}_bytes_total'))})", of=name) for name, (_, into, _) in SOURCES.items())
    board_.count("io", f"count({there})")
    board_.row("I/O and network, sources: $io", collapsed=True)
    nothing = "None is attributed to the job: its cgroup has no io controller, and it was not alone on a node"
    for title, way in (("Read and received", 1), ("Written and sent", 2)):
        board_.add(series(title, "By source. Block devices: by the job's cgroup, where SLURM turns the io controller on. Asked for: by read and write calls (--collector.procio). IP packets: --collector.network. " + ALONE,
                          style.BYTES_PER_SECOND, [(f"sum({running(f'jobledger_job_{name}_{of_source[way]}_bytes_total')})", of_source[0]) for name, of_source in SOURCES.items()], calcs=("mean", "max"), nothing=nothing), 8, 9)
    board_.add(series("Operations", "On block devices (by cgroup), and to NFS and Lustre while the job is alone on a node.", style.OPS,
                      [(f"sum by (direction) ({running('jobledger_job_io_operations_total')})", "Block {{direction}}"), (f"sum by (operation) ({running('jobledger_job_nfs_operations_total')})", "NFS {{operation}}"),
                       (f"sum by (operation) ({running('jobledger_job_lustre_operations_total')})", "Lustre {{operation}}")], nothing=nothing), 8, 9)


def energy(board_):
    domains = (f"count by (domain) ({last(job('jobledger_job_energy_joules_total'))}) or {label(f'count({last(job(_GPU_ENERGY))})', domain='gpu')}")
    board_.count("meters", f"count({domains})")
    board_.row("Energy, meters: $meters", collapsed=True)
    without = "No meter of its nodes can be read"
    board_.add(stat("Energy", "CPUs, memory, GPUs, and the overhead of nodes that have a meter of their own, as attributed to the job. Of a job with GPUs it is known only with theirs.", style.JOULES, ENERGY, decimals=2, nothing=without), 4, 4)
    board_.add(series("Power", "Attributed to the job on all of its nodes: CPUs and memory by the sockets' meters, GPUs by their boards', overhead (fans, supplies, network) by the nodes' own.", style.WATTS,
                      [(f"sum({running('jobledger_job_energy_joules_total', NO_OVERHEAD)})", "CPUs and memory"), (f"sum({running(_GPU_ENERGY)})", "GPUs"),
                       (f"sum({running('jobledger_job_energy_joules_total', OVERHEAD)})", "Overhead")],
                      stack=True, colours={"CPUs and memory": style.BLUE, "GPUs": style.GREEN, "Overhead": style.GREY}, nothing=without), 12, 8)
    board_.add(table("Energy by meter", "Totals over the job by domain and by how the meter's reading was split (method; docs/attribution.md). Some CPUs count what cores spend for a job: that is a part of their package's energy.",
                     [Column("domain", "Domain"), Column("method", "How it was split"), Column("Value #A", "Energy", style.JOULES, 1)],
                     f"sum by (domain, method) ({known(most(job('jobledger_job_energy_joules_total')))})"
                     f" or sum by (domain, method) (label_replace({known(most(job(_GPU_ENERGY)))}, \"domain\", \"gpu\", \"\", \"\"))"
                     f" or sum by (domain, method) ({label(known(most(job('jobledger_job_core_energy_joules_total'))), domain='cores, part of package', method='counted by the CPU')})",
                     sort="Energy", nothing=without), 8, 8)


def steps(board_):
    step = job("jobledger_step_cpu_seconds_total")
    board_.count("steps", f"count(count by (step) ({last(step)}))")
    board_.row("Steps: $steps", collapsed=True)
    most_steps = f"and on (step) topk({FEW_NODES}, sum by (step) ({known(most(step))}))"

    def of_steps(what):
        return f"sum by (step) ({known(most(job(f'jobledger_step_{what}_total')))})"
    without = "Steps are exported with --jobs.steps"
    board_.add(table("Steps of the job", f"Exported with --jobs.steps: about as many series per step as per job. Totals over nodes, of at most {FEW_NODES} steps with the most CPU time. IPC: instructions per cycle, where counters are divided in BPF (docs/counters.md).",
                     [Column("step", "Step"), Column("Value #A", "CPU-hours", style.COUNT, 3), Column("Value #B", "Peak memory", style.BYTES, 1),
                      Column("Value #C", "OOM kills", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #D", "IPC", style.COUNT, 2),
                      Column("Value #E", "FLOP/s of a busy CPU", style.FLOPS, 1)],
                     [f"{hours(f'sum by (step) ({known(most(step))})')} {most_steps}", f"max by (step) ({most(job('jobledger_step_memory_peak_bytes'))}) {most_steps}",
                      f"sum by (step) ({known(most(job('jobledger_step_oom_kills_total')))}) {most_steps}",
                      f"{of_steps('instructions')} / ({of_steps('cycles')} > 0) {most_steps}",
                      f"{of_steps('flops')} / ({of_steps('counted_cpu_seconds')} > 0) {most_steps}"], sort="CPU-hours", nothing=without), 10, 8)
    board_.add(series("CPUs used by step", "Exported with --jobs.steps. The ten that used most.", style.NUMBER,
                      (f"topk(10, sum by (step) ({rate(step)}))", "{{step}}"), stack=True, nothing=without), 14, 8)


def quality(board_):
    board_.row("How good are these data? (For staff: a label proxy hides what is the node's)", collapsed=True)
    scraped = f"count_over_time({RUNNING}[$__range])"
    # Targets that had the job: others can have one job and instance twice, as the kubelet with its several paths.
    ours = f"and on (cluster, job, instance) last_over_time({RUNNING}[$__range] @ end())"
    up = f"avg_over_time(up{{{CLUSTER}}}[$__range])"
    yielded = of("jobledger_node_counters_yielded_seconds_total", CLUSTER)
    by = "(cluster, instance)"
    board_.add(table(
        "Nodes", "Of each node: how much of the scrapes succeeded, how many scrapes had the job, how much of its CPU time counters were on for, and what lacks. A failed scrape is a gap in rates; totals are exact over it. "
                 f"Of more than {FEW_NODES} nodes those that used their CPUs least.",
        [Column("instance", "Node"), Column("Value #A", "Scrapes ok", style.RATIO, 1, style.COVERAGE),
         Column("Value #B", "Times exported", style.COUNT, 0), Column("Value #C", "CPU time counted", style.RATIO, 1, style.COVERAGE),
         Column("mode", "Counters are of"), Column("reason", "What is lacking"),
         Column("Value #E", "Counters given away", style.SECONDS, None, [(None, style.GOOD), (1, style.WARN)])],
        [f"max by {by} ({up} {ours}) {FEW}", f"max by {by} ({scraped}) {FEW}", f"min by {by} ({last(job('jobledger_job_counters_coverage_ratio'))}) {FEW}",
         f"max by (cluster, instance, mode, reason) ({last(job('jobledger_job_counters_info'))}) {FEW}",
         f"max by {by} ((max_over_time({yielded}[$__range]) - min_over_time({yielded}[$__range])) {ours}) {FEW}"], nothing=NOT_HERE), 14, 8)
    # The distance of scrapes, from those that failed, too. And scrapes that had the job while it ran (this gauge is gone when it ends).
    ups = f"(timestamp(up{{{CLUSTER}}}) {ours})[$__range:]"
    distance = f"((max_over_time({ups}) - min_over_time({ups})) / (count_over_time(up{{{CLUSTER}}}[$__range]) - 1 {ours}))"
    each = "on (cluster, job, instance) group_left ()"
    covered = f"clamp_max(sum(count_over_time({job('jobledger_job_cpus')}[$__range]) * {each} {distance}) / (sum({RAN}) > 0), 1)"
    alone = f"clamp_max(sum({known(last(job('jobledger_job_alone_seconds_total')))}) / (sum({RAN}) > 0), 1)"
    joules = f"sum by (cluster) ({known(most(job('jobledger_job_energy_joules_total')))})"
    joules_gpu = f"sum by (cluster) ({known(most(job(_GPU_ENERGY)))})"
    board_.add(stat("Time covered", "Part of the job's time that is covered by scrapes that had it. What is missing are failed scrapes, or an exporter or Prometheus that was down.",
                    style.RATIO, covered, style.COVERAGE, decimals=0, nothing="Not known"), 3, 4)
    board_.add(stat("Time alone", "Part of its time for which the job had its nodes for itself: what disks, file systems and ports moved then is attributed to it.", style.RATIO, alone, decimals=0, nothing="Not known"), 3, 4)
    board_.add(stat("CO₂ equivalent", "Energy times the grams per kilowatt hour, and the PUE, that rules/site.yaml sets.", style.GRAMS,
                    f"sum({grams(f'({joules} + {joules_gpu} or {joules} unless on () {GPUS})')})", decimals=1, nothing="Not known"), 4, 4)
    board_.add(table("Attribution", "By what each of the job's numbers was split from what the node measured, with the part of it.",
                     [Column("what", "What"), Column("method", "Method"), Column("Value #A", "Part", style.RATIO, 0)],
                     _methods(), filterable=False, nothing="Nothing was split: no energy, GPU time or memory traffic"), 10, 8)
    board_.add(states(
        "What happened on each node", "When the job was there, alone on the node, ended but still exported, and when the hardware counters were yielded to a profiler. A gap is a scrape that failed.",
        [Query(f"(max by (cluster, instance) ({RUNNING} {NOT_ENDED}) ^ 0"
               f" + ((max by (cluster, instance) ({rate(job('jobledger_job_alone_seconds_total'))}) >= bool 0.9) or max by (cluster, instance) ({RUNNING}) * 0)"
               f" or max by (cluster, instance) ({job('jobledger_job_end_time_seconds')}) * 0 + 3) {FEW}", "{{instance}}"),
         Query(f"max by (cluster, instance) ({job('jobledger_job_counters_yielded')}) * 4 > 0 {FEW}", "{{instance}}: counters")],
        {1: ("Running, node shared", style.BLUE), 2: ("Running, node for itself", style.DEEP), 3: ("Ended, still exported", style.GREY),
         4: ("Counters given away", style.ORANGE)}, nothing=NOT_HERE), 14, 10)
    board_.add(states(
        "Collectors on the job's nodes", "What each collector yielded. «Failed» is trouble, «not on this node» is not: the hardware, the kernel or the permission is missing.",
        [Query(f"min by (collector) (({of('jobledger_exporter_collector_success', CLUSTER)} + ({of('jobledger_exporter_collector_available', CLUSTER)} == bool 0) * 2)"
               f" and on (cluster, job, instance) {RUNNING})", "{{collector}}")],
        {0: ("failed", style.RED), 1: ("ok", style.BLUE), 2: ("not on this node", style.GREY), 3: ("not on this node", style.GREY)}, show_value=False, nothing=NOT_HERE), 24, 12)


def _methods():
    parts = []
    for what, metric in (("Energy", "jobledger_job_energy_joules_total"), ("GPU busy time", "jobledger_job_gpu_busy_seconds_total"),
                         ("GPU energy", _GPU_ENERGY), ("Memory traffic", "jobledger_job_memory_traffic_bytes_total")):
        amount = known(most(job(metric)))
        parts.append(f'label_replace(sum by (method) ({amount}) / on () group_left () (sum({amount}) > 0), "what", "{what}", "", "")')
    return " or ".join(parts)
