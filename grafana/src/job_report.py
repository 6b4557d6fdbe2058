"""Job report: all that is known of one job. Its time range is to be the job's; links of the other dashboards carry it."""

from . import advice, board, job_report_counters, job_report_gpu, job_report_rest, style
from .board import Board, href
from .panels import Column, Query, rows_of_labels, series, stat, states, table
from .queries import CLUSTER, ELAPSED, ENDED, ENDED_OR_LAST_TOLD, RAN, STARTED, hours, job, last, most, of, rate, total

ZOOM = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["Zoom from"].numeric}', '${__data.fields["Zoom to"].numeric}'))
OWNER = href(board.OWNER, user='${__data.fields["User"]}')


def identity(board_):
    who = ("cluster", "jobid", "user", "account", "partition", "qos", "name", "array_job_id", "array_task_id", "het_job_id", "sluid")
    board_.add(table(
        "Job", "Whose the job is and when it ran, as its nodes report it. Two lines are jobs of two clusters: choose one, above. Account, partition, QOS and name come from the prolog's file; "
               "without it they are empty. A requeued job is shown with its last start; its totals are of its longest run within the time range. Zoom sets the time range to the job's.",
        [Column("jobid", "Job"), Column("name", "Name"), Column("user", "User", links=[("User dashboard", OWNER)]), Column("account", "Account"),
         Column("partition", "Partition"), Column("qos", "QOS"), Column("Value #B", "Started", style.MILLISECONDS_DATE, width=150),
         Column("Value #C", "Ended, or last seen", style.MILLISECONDS_DATE, width=150), Column("Value #D", "Nodes", style.COUNT, 0),
         Column("Value #E", "CPUs", style.COUNT, 0), Column("Value #F", "GPUs", style.COUNT, 0),
         Column("array_job_id", "Array"), Column("array_task_id", "Element"), Column("het_job_id", "Het job"), Column("sluid", "SLUID"),
         Column("Value #G", "Time range", links=[("Zoom to this job", ZOOM)], texts={1: ("Zoom to this job", style.BLUE)}, width=130),
         Column("Value #H", "Zoom from", style.NONE, 0, hide=True), Column("Value #I", "Zoom to", style.NONE, 0, hide=True)],
        [f"max by ({', '.join(who)}) ({last(job('jobledger_job_info'))})",
         f"max by (cluster, jobid) ({STARTED}) * 1000",
         f"max by (cluster, jobid) ({ENDED_OR_LAST_TOLD}) * 1000",
         f"count by (cluster, jobid) ({STARTED})",
         f"sum by (cluster, jobid) ({last(job('jobledger_job_cpus'))})",
         f"sum by (cluster, jobid) (max without (source) ({last(job('jobledger_job_gpus'))}))",
         f"count by (cluster, jobid) ({STARTED}) ^ 0",
         f"(floor(max by (cluster, jobid) ({STARTED})) - 60) * 1000",
         f"(ceil(max by (cluster, jobid) ({ENDED_OR_LAST_TOLD})) + 120) * 1000"],
        filterable=False), 24, 4)


NO_GPUS = {-1: ("No GPUs", style.GREY)}
# -1 for a job that is known to have none, and for one without a GPU driver on any of its nodes.
KNOWN_WITHOUT = (f"((max({last(job('jobid_instance:jobledger_job_gpus:sum'))}) == 0) - 1 or (max({STARTED}) * 0 - 1"
                 f" unless max({last(of('jobledger_gpu_driver_state', CLUSTER))} and on (cluster, instance) {STARTED})))")


def summary(board_):
    texts = {0: ("Not in this range", style.ORANGE), 1: ("Running", style.BLUE), 2: ("Ended", style.GREY), 3: ("No longer exported", style.ORANGE),
             4: ("In several clusters", style.RED)}
    state = (f"{advice.SEVERAL} * 0 + 4 or max({job('jobledger_job_start_time_seconds')} unless {job('jobledger_job_end_time_seconds')}) * 0 + 1"
             f" or max({ENDED}) * 0 + 2 or max({STARTED}) * 0 + 3 or vector(0)")
    sampled = {2: ("Yes", style.BLUE), 1: ("Scrapes failed", style.RED), 0: ("Too short to sample", style.ORANGE), -1: ("Not in this range", style.ORANGE)}
    enough = {-1: ("As asked", style.BLUE)}
    for title, description, unit, expr, steps, decimals, words in (
            ("State", "Running, or ended within the time range. «No longer exported» is a job whose exporter stopped answering before its end was seen. «In several clusters»: "
             "each has a job of this number, and every number below is of all of them; choose one, above.",
             style.NONE, state, None, None, texts),
            ("Elapsed", "From the last start to the end, or to when it was last seen.", style.SECONDS, ELAPSED, None, 1, None),
            ("Sampled", "Whether the job ran, and was scraped, for the two minutes that rates need. A shorter one has exact totals, and its rates are absent: that is "
                        "not 0. «Scrapes failed»: it was long enough, and too few scrapes had it.", style.NONE,
             f"({advice.SETTLED} > 0) * 0 + 2 or ({ELAPSED} >= bool 120) or vector(-1)", None, None, sampled),
            ("Time alone", "Part of its time for which the job had its nodes for itself: what disks, file systems and ports moved then is attributed to it.", style.RATIO,
             f"sum({last(job('jobledger_job_alone_seconds_total'))}) / (sum({RAN}) > 0)", None, 0, None),
            ("Energy", "CPUs, memory and GPUs, as attributed to the job on all of its nodes.", style.JOULES,
             total("jobid_instance:jobledger_job_total_energy_joules:sum"), None, 2, None),
            ("CO₂ equivalent", "Energy times the grams per kilowatt hour that rules/site.yaml sets.", style.GRAMS,
             total("jobid_instance:jobledger_job_carbon_grams:sum"), None, 1, None),
            ("CPU efficiency", "CPU time used of the CPU time that the job had, over all of its nodes and its whole run; exact also for short jobs.", style.RATIO,
             advice.CPU_RATIO, style.EFFICIENCY_CPU, 1, None),
            ("CPU-hours used", "CPU time over all nodes; slurmstepd included, which sacct leaves out.", style.COUNT, hours(advice.CPU_USED), None, 3, None),
            ("CPU-hours not used", "CPU time that the job had and did not use.", style.COUNT, hours(total("jobid_instance:jobledger_job_unused_cpu_seconds:sum")), None, 3, None),
            ("GPU busy", "Time in which kernels of the job ran, of the time in which it is known whether they did. No data: it is not known which GPUs "
                         "the job had, or the driver does not report it.", style.RATIO, f"{advice.GPU_BUSY_RATIO} or {KNOWN_WITHOUT}", style.EFFICIENCY_GPU, 1, NO_GPUS),
            ("GPU-hours not used", "GPU time that the job had and did not use; without GPUs that it shared.", style.COUNT,
             f"{hours(f'{advice.GPU_IDLE} unless {KNOWN_WITHOUT}')} or {KNOWN_WITHOUT}", None, 3, NO_GPUS),
            ("CPU operations", "Floating-point operations of CPUs, as counted (--collector.perf): of the time in which counters were on.", style.FLOP,
             total("jobid_instance:jobledger_job_flops:sum"), None, 2, None),
            ("Memory peak of limit", "Highest memory charged to the job on a node, page cache included, of what it may use there; on the node where it is highest. "
                                     "Absent without a limit.", style.RATIO, advice.PEAK_RATIO, style.NEAR_LIMIT, 1, None),
            ("Memory peak", "Sum of the peaks on the job's nodes.", style.BYTES, f"sum({advice.PEAK_OR_HELD})", None, 1, None),
            ("Memory limit", "What the job may use on all of its nodes: what it asked for, where SLURM constrains memory.", style.BYTES, f"sum({advice.LIMIT})", None, 1, None),
            ("Out-of-memory kills", "Processes of the job that the kernel killed. On cgroup v1 it is absent instead of 0.", style.COUNT, advice.OOM_KILLS,
             style.NONE_IS_GOOD, 0, None),
            ("CPUs that would do", "CPUs used on average over the job, a tenth more, rounded up; shown when less than two thirds of the CPU time was used. Programs with "
                                   "serial parts need more.", style.COUNT, f"{advice.cpus_to_ask()} or ({advice.CPU_RATIO} >= 0) * 0 - 1", None, 0, enough),
            ("Memory that would do", "Per node: highest peak on a node and a fifth more, for --mem; shown when less than 70 % of the limit was used.", style.BYTES,
             f"{advice.memory_to_ask()} or ({advice.PEAK_RATIO} >= 0) * 0 - 1", None, 1, enough)):
        board_.add(stat(title, description, unit, expr, steps, words, decimals), 4, 3)


def advise(board_):
    board_.row("Advice: what to change")
    board_.add(rows_of_labels(
        "Advice", "From totals over the job, by the thresholds shown. «Measured» is the part that the advice is about.",
        [Column("what", "What was seen", width=330), Column("change", "What to change", wrap=True), Column("Value", "Measured", style.RATIO, 1, width=100),
         Column("threshold", "Threshold", width=330, wrap=True)],
        advice.rows()), 24, 6)


def time_line(board_):
    board_.row("Time line")
    board_.add(states(
        "What happened on each node", "When the job was there, alone on the node, ended but still exported, and when the hardware counters were yielded "
        "to a profiler. A gap is a scrape that failed.",
        [Query(f"max by (instance) ({job('jobledger_job_start_time_seconds')} unless {job('jobledger_job_end_time_seconds')}) ^ 0"
               f" + ((max by (instance) ({rate(job('jobledger_job_alone_seconds_total'))}) >= bool 0.9)"
               f" or max by (instance) ({job('jobledger_job_start_time_seconds')}) * 0)"
               f" or max by (instance) ({job('jobledger_job_end_time_seconds')}) * 0 + 3", "{{instance}}"),
         Query(f"max by (instance) ({job('jobledger_job_counters_yielded')}) * 4 > 0", "{{instance}}: counters")],
        {1: ("Running, node shared", style.BLUE), 2: ("Running, node for itself", style.DEEP), 3: ("Ended, still exported", style.GREY),
         4: ("Counters given away", style.ORANGE)}), 16, 7)
    board_.add(series("Processes and threads", "Of the user, without slurmstepd.", style.NUMBER,
                      [(f"sum({job('jobledger_job_processes')})", "Processes"), (f"sum({job('jobledger_job_threads')})", "Threads"),
                       (f"sum({job('jobledger_job_cpus')})", "CPUs")], limits=["CPUs"],
                      colours={"Processes": style.GREEN, "Threads": style.BLUE}, calcs=("max",)), 8, 8)


def nodes(board_):
    board_.row("Nodes")
    by_node = "max by (cluster, instance)"
    board_.add(table(
        "Nodes of the job", "Totals of each node over the job; efficiency, memory and GPU columns are coloured by the thresholds of the advice. A node that "
                            "stands out is where to look.",
        [Column("instance", "Node", links=[("Node dashboard", href(board.NODE, instance='${__data.fields["Node"]}'))], width=150),
         Column("Value #A", "CPUs", style.COUNT, 0), Column("Value #B", "CPU efficiency", style.RATIO, 1, style.EFFICIENCY_CPU, gauge=1),
         Column("Value #C", "Peak memory", style.BYTES, 1), Column("Value #D", "Peak of limit", style.RATIO, 1, style.NEAR_LIMIT, gauge=1),
         Column("Value #E", "OOM kills", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #F", "GPUs", style.COUNT, 0),
         Column("Value #G", "GPU busy", style.RATIO, 1, style.EFFICIENCY_GPU, gauge=1), Column("Value #H", "Energy", style.JOULES, 1),
         Column("Value #I", "I/O pressure", style.RATIO, 1, style.PRESSURE), Column("Value #J", "Memory pressure", style.RATIO, 1, style.PRESSURE)],
        [f"{by_node} ({last(job('jobid_instance:jobledger_job_cpus:sum'))})",
         f"{by_node} ({most(job('jobid_instance:jobledger_job_cpu_seconds:sum'))})"
         f" / ({by_node} ({most(job('jobid_instance:jobledger_job_allocated_cpu_seconds:sum'))}) > 0)",
         f"{by_node} ({advice.PEAK_OR_HELD})", f"{by_node} ({advice.PEAK_OR_HELD} / ({advice.LIMIT} > 0))",
         f"{by_node} ({most(job('jobledger_job_oom_kills_total'))})", f"{by_node} ({last(job('jobid_instance:jobledger_job_gpus:sum'))})",
         f"{by_node} ({most(job('jobid_instance:jobledger_job_gpu_busy_seconds:sum'))}) / ({by_node} "
         f"({most(job('jobid_instance:jobledger_job_gpu_busy_seconds:sum'))}) + {by_node} ({most(job('jobid_instance:jobledger_job_gpu_idle_seconds:sum'))}) > 0)",
         f"{by_node} ({most(job('jobid_instance:jobledger_job_total_energy_joules:sum'))})",
         *(f"{by_node} ({last(job('jobledger_job_pressure_seconds_total', 'kind=' + chr(34) + 'some' + chr(34), f'resource={chr(34)}{resource}{chr(34)}'))})"
           f" / ({by_node} ({RAN}) > 0)" for resource in ("io", "memory"))],
        sort="CPU efficiency", descending=False), 24, 7)


def cpu(board_):
    board_.row("CPU")
    board_.add(series("CPUs used", "CPUs that the job keeps busy, and CPUs that it may use, on all of its nodes.", style.NUMBER,
                      [(job("jobid:jobledger_job_cpu_seconds:rate2m"), "Used"), (job("jobid:jobledger_job_cpus:sum"), "Held")],
                      limits=["Held"], colours={"Used": style.BLUE}, fill=30), 8, 8)
    board_.add(series("CPU time by mode", "User code, the kernel on its behalf, and time that only the node's sum shows (unsplit).", style.NUMBER,
                      (f"sum by (mode) ({rate(job('jobledger_job_cpu_seconds_total'))})", "{{mode}}"), stack=True,
                      colours={"user": style.BLUE, "system": style.ORANGE, "unsplit": style.GREY}), 8, 8)
    board_.add(series("CPU efficiency by node", "Part of its CPUs that the job keeps busy on each node.", style.RATIO,
                      (job("jobid_instance:jobledger_job_cpu_seconds_per_cpu:ratio_rate2m"), "{{instance}}"), high=1, calcs=()), 8, 8)
    board_.add(series("CPUs kept back by a bandwidth limit", "CPUs that tasks wanted and a limit below them did not give.", style.NUMBER,
                      (job("jobid_instance:jobledger_job_cpu_throttled_seconds:rate2m"), "{{instance}}")), 8, 8)
    board_.add(series("CPU pressure", "Part of the time in which tasks were ready and had no CPU (cgroup v2).", style.RATIO,
                      (job("jobid_instance:jobledger_job_pressure_seconds:rate2m", 'resource="cpu"'), "{{instance}} {{kind}}"), high=1), 8, 8)
    board_.add(series("Page faults", "Major ones had to read from a device.", style.OPS,
                      (f"sum by (type) ({job('jobid_instance:jobledger_job_page_faults:rate2m')})", "{{type}}"),
                      colours={"major": style.RED, "minor": style.BLUE}), 8, 8)


def memory(board_):
    board_.row("Memory")
    board_.add(series("Memory against its limit", "Used is all that is charged, page cache included; held is what the kernel cannot drop. At the limit it reclaims "
                                                  "page cache first and kills when held comes near it.", style.BYTES,
                      [(job("jobid:jobledger_job_memory_used_bytes:sum"), "Used"), (job("jobid:jobledger_job_memory_held_bytes:sum"), "Held"),
                       (job("jobid:jobledger_job_memory_peak_bytes:sum"), "Peak so far"), (job("jobid:jobledger_job_memory_limit_bytes:sum"), "Limit")],
                      limits=["Limit"], colours={"Used": style.BLUE, "Held": style.ORANGE, "Peak so far": style.PINK}), 8, 8)
    kinds = {"anon": "Heaps and stacks", "file": "Page cache", "kernel": "Kernel"}
    board_.add(series("Memory by kind", "Page cache includes shared memory. Kernel memory is known from Linux 5.18 on.", style.BYTES,
                      [(f"sum({job(f'jobledger_job_memory_{kind}_bytes')})", title) for kind, title in kinds.items()], stack=True,
                      colours={"Heaps and stacks": style.ORANGE, "Page cache": style.BLUE, "Kernel": style.PINK}), 8, 8)
    board_.add(series("Held of limit by node", "Near 100 % the kernel kills. A job dies on one node first.", style.RATIO,
                      (job("jobid_instance:jobledger_job_memory_held_bytes_per_limit_byte:ratio"), "{{instance}}"), high=1,
                      steps=[(None, "transparent"), (style.MEMORY_NEAR_LIMIT, style.RED)]), 8, 8)
    board_.add(series("Memory pressure", "Part of the time in which tasks waited for memory (cgroup v2).", style.RATIO,
                      (job("jobid_instance:jobledger_job_pressure_seconds:rate2m", 'resource="memory"'), "{{instance}} {{kind}}"), high=1), 8, 8)
    board_.add(series("Swap", "Swap space that the job's memory is in.", style.BYTES,
                      (job("jobid_instance:jobledger_job_swap_used_bytes:sum"), "{{instance}}")), 8, 8)
    board_.add(series("Limit hits and kills", "Times that usage ran into a limit, and processes killed, since the job's start.", style.NUMBER,
                      [(f"sum by (limit) ({job('jobledger_job_memory_limit_hits_total')})", "Limit hits ({{limit}})"),
                       (f"sum({job('jobledger_job_oom_kills_total')})", "Processes killed")],
                      colours={"Processes killed": style.RED}, calcs=("lastNotNull",)), 8, 8)


def annotations(board_):
    where = job("jobledger_job_start_time_seconds")
    kills, xids = job("jobledger_job_oom_kills_total"), f"jobledger_gpu_xid_errors_total{{{CLUSTER}}}"
    board_.annotation("Start", f"{where} * 1000", style.GREEN, "Job started on {{instance}}", value_is_time=True)
    board_.annotation("End", f"{job('jobledger_job_end_time_seconds')} * 1000", style.GREY, "Job ended on {{instance}}", value_is_time=True)
    board_.annotation("Out of memory", f"{kills} > 0 unless {kills} == ({kills} offset 1m)", style.RED, "Out-of-memory kill on {{instance}}")
    board_.annotation("Xid", f"({xids} > 0 unless {xids} == ({xids} offset 1m)) and on (cluster, instance, gpu) {job('jobledger_job_gpu_info')}",
                      style.PINK, "Xid {{code}} on GPU {{gpu}} of {{instance}}")


def build():
    board_ = Board(board.REPORT, "Jobledger / Job report", "One SLURM job: what it had, what it used, what to change, and how far the numbers can be trusted. "
                                                        "Set the time range to the job's: links of the other dashboards do.", since="now-1h")
    board_.lookup("jobid", "Job", f"label_values(jobledger_job_start_time_seconds{{{CLUSTER}}}, jobid)", newest_first=True,
                  description="The job's number. The list has the jobs of the time range; any number can be typed.")
    board_.variable(job_report_counters.bandwidth())
    annotations(board_)
    identity(board_)
    summary(board_)
    advise(board_)
    time_line(board_)
    nodes(board_)
    cpu(board_)
    memory(board_)
    job_report_gpu.add(board_)
    job_report_rest.io_and_network(board_)
    job_report_rest.energy(board_)
    job_report_counters.counters(board_)
    job_report_counters.roofline(board_)
    job_report_rest.imbalance(board_)
    job_report_rest.steps(board_)
    job_report_rest.quality(board_)
    return board_
