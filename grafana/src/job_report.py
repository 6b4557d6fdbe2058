"""Job report: all that is known of one job. The first screen says whether it was good and what to change; closed rows have the rest."""

from . import advice, board, job_report_counters, job_report_gpu, job_report_rest, style, verdict
from .board import Board, href
from .job_numbers import (ALIKE_LIMITS, CORES_NOW, CORES_TO_ASK, CPU_USE, CPU_USE_NOW, CPUS_NOW, FEW, FEW_NODES, GPU_USE, GPU_USE_MEAN_NOW, GPU_USE_NOW, GPUS, HELD,
                          MEMORY_TO_ASK, MEMORY_USE, NOT_ENDED, ON_NODE, RUNNING, SM_ACTIVE, CPU_USE_BY_NODE, ever, gpu_now, known, running, waited, waiting_now, with_profile)
from .panels import Column, Query, gauges, heatmap, rows_of_labels, series, table
from .queries import CLUSTER, ROWS_OF_GPUS, job, of, rows_of_gpus

ZOOM = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["Zoom from"].numeric}', '${__data.fields["Zoom to"].numeric}'))
OWNER = href(board.OWNER, user='${__data.fields["User"]}')
THIS = href(board.REPORT, jobid='${__data.fields["Job"]}')
TOO_SHORT = "Nothing in this time range: the job ran at another time, or was too short for rates"
NEWEST = 10

WHO = "cluster, jobid, user, account, partition, qos, name, array_job_id"
ON_JOB = "on (cluster, jobid)"
# Start and end at any time. Its end of an earlier run is no end; of a job whose end nobody saw it is when it was last in a scrape.
EVER_STARTED = f"max by (cluster, jobid) ({ever(RUNNING)})"
EVER_ENDED = f"(max by (cluster, jobid) ({ever(job('jobledger_job_end_time_seconds'))}) >= {EVER_STARTED})"
# Its CPU time held says how long it was seen, without a look at every moment of two months.
SEEN_NOW = f"max by (cluster, jobid) (timestamp({RUNNING}))"
_SEEN = f"max by (cluster, jobid) ({known(ever(RUNNING))} + {known(ever(job('jobledger_job_allocated_cpu_seconds_total')))} / ({known(ever(job('jobledger_job_cpus')))} > 0))"
LAST_SEEN = f"({SEEN_NOW} > {_SEEN} or {_SEEN} or {SEEN_NOW})"
UNTIL = f"({EVER_ENDED} or {LAST_SEEN})"
# Several clusters can have a job of this number.
SEVERAL = f"(count(count by (cluster) ({ever(RUNNING)})) > 1)"
RUNNING_STATE, ENDED_STATE, UNSEEN_STATE, SEVERAL_STATE = 1, 2, 3, 4
STATES = {RUNNING_STATE: ("Running", style.BLUE), ENDED_STATE: ("Ended", style.GREY), UNSEEN_STATE: ("No longer exported", style.ORANGE),
          SEVERAL_STATE: ("In several clusters", style.RED)}
OUTSIDE = f"({EVER_STARTED} * 1000 > bool $__to) + ({UNTIL} * 1000 < bool $__from) > bool 0"


def _who():
    """Whose it is: of several nodes one that has the prolog's file, and a time at which the user's name was known."""
    nodes = [f"max by ({WHO}) ({ever(job('jobledger_job_info', *matcher))})" for matcher in (['account!=""'], ['account="",user!=""'], ['account="",user=""'])]
    newest = f"topk({NEWEST}, max by (cluster, jobid) ({of('jobledger_job_start_time_seconds', CLUSTER)} unless {of('jobledger_job_end_time_seconds', CLUSTER)}))"
    none_given = 'on (given) label_replace(vector(1), "given", "$jobid", "", "")'
    return f"{f' or {ON_JOB} '.join(nodes)} or (max by ({WHO}) ({of('jobledger_job_info', CLUSTER)}) and {ON_JOB} {newest} and {none_given})"


AS_HELD = {-1: ("As held", style.BLUE)}


def _of_the_job(expr):
    """A number without labels as one of the job in the table, as long as only one cluster has such a job."""
    return f"{EVER_STARTED} * 0 + on () group_left () ({expr}) unless on () {SEVERAL}"


def header(board_):
    nodes = f"count by (cluster, jobid) (count by (cluster, jobid, instance, slurm_node) ({ever(RUNNING)}))"
    state = (f"{EVER_STARTED} * 0 + {SEVERAL_STATE} and on () {SEVERAL} or {EVER_ENDED} * 0 + {ENDED_STATE}"
             f" or {SEEN_NOW} * 0 + {RUNNING_STATE} or {EVER_STARTED} * 0 + {UNSEEN_STATE}")
    board_.add(table(
        "Job", "Whose the job is and when it ran, as its nodes report it, also if that is outside the time range: «Go to its time» sets it. Two lines are jobs of two clusters; every "
               "number below is of both until one is chosen, above. Account, partition, QOS and name come from the prolog's file. Of a requeued job the times are of its last run, totals of its "
               f"longest. Enough cores, and memory per node, is what would have done where much less was used. Without a number: the {NEWEST} newest jobs.",
        [Column("jobid", "Job", links=[("Its report", THIS)]), Column("array_job_id", "Array"), Column("name", "Name", width=130), Column("user", "User", links=[("User dashboard", OWNER)]), Column("account", "Account"),
         Column("partition", "Partition"), Column("qos", "QOS"), Column("Value #B", "State", texts=STATES, width=130), Column("Value #C", "Run time", style.SECONDS, 1),
         Column("Value #D", "Nodes", style.COUNT, 0), Column("Value #E", "CPUs", style.COUNT, 0), Column("Value #F", "GPUs", style.COUNT, 0),
         Column("Value #G", "Started", style.MILLISECONDS_DATE, width=150), Column("Value #H", "Ended, or last seen", style.MILLISECONDS_DATE, width=150),
         Column("Value #L", "Enough cores", style.COUNT, 0, style.PLAIN, texts=AS_HELD, width=105), Column("Value #M", "Enough memory", style.BYTES, 0, style.PLAIN, texts=AS_HELD, width=125),
         Column("Value #I", "Time range", links=[("Zoom to this job", ZOOM)], texts={0: ("Zoom to this job", style.BLUE), 1: ("Go to its time", style.ORANGE)}, width=130),
         Column("Value #J", "Zoom from", style.NONE, 0, hide=True), Column("Value #K", "Zoom to", style.NONE, 0, hide=True)],
        [_who(), state, f"{UNTIL} - {EVER_STARTED}", nodes, f"sum by (cluster, jobid) ({known(ever(job('jobledger_job_cpus')))})",
         f"sum by (cluster, jobid) (max without (source) ({known(ever(job('jobledger_job_gpus')))}))", f"{EVER_STARTED} * 1000", f"{UNTIL} * 1000", OUTSIDE,
         f"(floor({EVER_STARTED}) - 60) * 1000", f"(ceil({UNTIL}) + 120) * 1000", _of_the_job(f"{CORES_TO_ASK} or {CPU_USE} * 0 - 1"), _of_the_job(f"({MEMORY_TO_ASK} or {MEMORY_USE} * 0 - 1) and {ALIKE_LIMITS}")],
        filterable=False, nothing="No job of this number within a month"), 24, 4)


def use(board_):
    alike = f"(avg({CPU_USE_BY_NODE}) / (max({CPU_USE_BY_NODE}) > 0) and on () (count({CPU_USE_BY_NODE}) > 1))"
    not_waiting = f"1 - max({waited('io')})"
    board_.add(gauges(
        "How well it used what it held", "Over the whole job; the ring has the target bands. CPU: time used of its cores (with SMT a core is several CPUs, and one thread on it is full use). Memory: highest peak of the limit, "
        "on the node where it is highest. GPU busy: time in which a kernel ran; SM active: how much of the GPU worked then. A job without GPUs: Nodes alike, the mean node's CPU use of the busiest node's, and Not waiting, "
        "the time in which no task waited for storage. What is not known has no gauge.",
        {"CPU": (CPU_USE, style.EFFICIENCY_CPU), "Memory": (MEMORY_USE, style.NEAR_LIMIT), "GPU busy": (GPU_USE, style.EFFICIENCY_GPU), "SM active": (SM_ACTIVE, style.EFFICIENCY_GPU),
         "Nodes alike": (f"{alike} unless on () {GPUS}", style.BALANCE), "Not waiting": (f"{not_waiting} unless on () {GPUS}", style.COVERAGE)},
        TOO_SHORT), 9, 6)


def advise(board_):
    board_.add(rows_of_labels(
        "Advice: what to change", "From totals over the job, by the thresholds shown. «Measured» is the part that the advice is about.",
        [Column("what", "What was seen", width=230, wrap=True), Column("change", "What to change", wrap=True), Column("Value", "Measured", style.RATIO, 0, width=80),
         Column("threshold", "Threshold", width=180, wrap=True)],
        advice.rows()), 15, 6)


def curves(board_):
    board_.add(series("CPUs used and held", "CPUs that the job keeps busy on all of its nodes, and the CPUs that it may use. Where a core is several CPUs, the cores too.", style.NUMBER,
                      [(f"sum({running('jobledger_job_cpu_seconds_total')})", "Used"), (f"sum({CPUS_NOW})", "CPUs held"), (f"sum({CORES_NOW}) < sum({CPUS_NOW} and {ON_NODE} {CORES_NOW})", "Cores held")],
                      limits=["CPUs held", "Cores held"], colours={"Used": style.BLUE}, fill=30, calcs=(), nothing=TOO_SHORT), 8, 7)
    board_.add(series("Memory against its limit", "Held is what the kernel cannot drop; page cache is charged, too, and dropped when needed. Near the limit the kernel kills. Sums over the job's nodes.", style.BYTES,
                      [(f"sum({HELD} {NOT_ENDED})", "Held"), (f"sum({job('jobledger_job_memory_used_bytes')} {NOT_ENDED})", "With page cache"),
                       (f"sum({job('jobledger_job_memory_limit_bytes')} {NOT_ENDED})", "Limit")],
                      limits=["Limit"], colours={"Held": style.ORANGE, "With page cache": style.BLUE}, calcs=(), nothing=TOO_SHORT), 8, 7)
    board_.add(series("GPUs, and what the job waited for", "GPU busy: a kernel ran; SM active: part of the GPU that worked (Hopper and later); means over its GPUs. Waiting: part of the time in which some task did, on the node "
                      "where that was most (cgroup v2). In the kernel: its part of the CPU time, high for small files and many processes.", style.RATIO,
                      [(GPU_USE_MEAN_NOW, "GPU busy"), (gpu_now("jobledger_job_gpu_sm_active_seconds_total"), "SM active"),
                       *((waiting_now(resource), f"Waiting for {what}") for resource, what in (("io", "storage"), ("memory", "memory"), ("cpu", "a CPU"))),
                       (f"sum({running('jobledger_job_cpu_seconds_total', 'mode=' + chr(34) + 'system' + chr(34))}) / (sum({running('jobledger_job_cpu_seconds_total')}) > 0)", "In the kernel")],
                      high=1, colours={"GPU busy": style.GREEN, "SM active": style.DEEP, "Waiting for storage": style.ORANGE, "Waiting for memory": style.PINK, "Waiting for a CPU": style.BLUE,
                                       "In the kernel": style.GREY}, calcs=(), nothing=TOO_SHORT), 8, 7)


def where(board_):
    """The GPUs of a job that has some, or its nodes."""
    gpus = rows_of_gpus(with_profile(GPU_USE_NOW), f"{GPU_USE_NOW} {FEW}", job("jobledger_job_gpu_info"))
    cpus = f'label_join(max by (cluster, instance) ({CPU_USE_NOW}) {FEW}, "row", "", "instance")'
    none = f"unless on () count(last_over_time({job('jobledger_job_gpu_info')}[$__range] @ end()))"
    board_.add(heatmap(
        "Where and when it was busy", f"Rows are GPUs, or nodes where there are more than {ROWS_OF_GPUS} GPUs or none; a column is a moment. Rows that differ are work that is not shared evenly, a dark row is one that does "
        f"nothing, a dark column a time in which all waited. Of more than {FEW_NODES} nodes the idlest.", style.RATIO, Query(f"max by (row) ({gpus} or {cpus} {none})", "{{row}}"), nothing=TOO_SHORT), 24, 5)


def annotations(board_):
    kills, xids = job("jobledger_job_oom_kills_total"), of("jobledger_gpu_xid_errors_total", CLUSTER)
    board_.annotation("Start", f"{RUNNING} * 1000", style.GREEN, "Job started on {{instance}}", value_is_time=True)
    board_.annotation("End", f"{job('jobledger_job_end_time_seconds')} * 1000", style.GREY, "Job ended on {{instance}}", value_is_time=True)
    board_.annotation("Out of memory", f"{kills} > 0 unless {kills} == ({kills} offset 1m)", style.RED, "Out-of-memory kill on {{instance}}")
    board_.annotation("Xid", f"({xids} > 0 unless {xids} == ({xids} offset 1m)) and on (cluster, instance, gpu) {job('jobledger_job_gpu_info')}",
                      style.PINK, "Xid {{code}} on GPU {{gpu}} of {{instance}}")
    board_.annotation("Alerts", f'max by (cluster, alertname) (ALERTS{{{CLUSTER},jobid="$jobid",alertstate="firing"}})', style.ORANGE, "{{alertname}}")


def build():
    board_ = Board(board.REPORT, "Jobledger / Job report", "One SLURM job: whether it was good, what to change, and how far the numbers can be trusted. "
                                                        "Type its number, or follow a link of another dashboard, which sets the time range too.", since="now-6h")
    board_.text("jobid", "Job number", "", "Any job of the last month, also one outside the time range: the table then leads to its time.")
    annotations(board_)
    header(board_)
    verdict.add(board_)
    use(board_)
    advise(board_)
    curves(board_)
    where(board_)
    job_report_rest.nodes(board_)
    job_report_rest.cpu_and_memory(board_)
    job_report_gpu.add(board_)
    job_report_rest.io_and_network(board_)
    job_report_rest.energy(board_)
    job_report_counters.counters(board_)
    job_report_rest.steps(board_)
    job_report_rest.quality(board_)
    return board_
