"""Jobs: those that run and those that ended, the most waste first. From here to the report of each."""

from . import board, job_tables, style
from .board import Board
from .job_tables import ENDED, ON, OWNER, OWNER_OF_RANGE, RUNNING, STARTED
from .panels import series, stat
from .queries import cluster, most


def ours(recorded):
    """A series of running jobs, of the users, accounts and partitions chosen."""
    return f"{cluster(recorded)} and {ON} {OWNER}"


def summary(board_):
    stats = [
        ("Jobs running", "Jobs that run now.", style.COUNT, f"count({RUNNING}) or vector(0)", None, None),
        ("Ended", "Jobs that ended in this time range.", style.COUNT, f"count({ENDED}) or vector(0)", None, None),
        ("Too short to sample", "Of those, shorter than two minutes: exact totals, no rates.", style.COUNT,
         f"count(({ENDED} - {STARTED}) < 120) or vector(0)", None, None),
        ("CPUs held", "CPUs that running jobs may use.", style.COUNT, f"sum({ours('jobid:jobledger_job_cpus:sum')})", None, 0),
        ("CPU efficiency", "Part of those CPUs that they keep busy: the sums divided.", style.RATIO,
         f"sum({ours('jobid:jobledger_job_cpu_seconds:rate2m')}) / (sum({ours('jobid:jobledger_job_measured_cpus:sum')}) > 0)", style.EFFICIENCY_CPU, 1),
        ("CPUs idle", "CPUs that running jobs hold and do not use.", style.COUNT, f"sum({ours('jobid:jobledger_job_idle_cpus:rate2m')})", None, 1),
        ("GPUs held", "GPUs, and parts of divided ones, that running jobs have.", style.COUNT, f"sum({ours('jobid:jobledger_job_gpus:sum')})", None, 0),
        ("GPU busy", "Part of the time, of what was seen, in which their kernels ran: the sums divided.", style.RATIO,
         f"sum({ours('jobid:jobledger_job_gpu_busy_seconds:rate2m')}) / (sum({ours('jobid:jobledger_job_gpu_seen_seconds:rate2m')}) > 0)",
         style.EFFICIENCY_GPU, 1),
        ("GPUs idle", "GPUs that running jobs have and do not use; without shared ones.", style.COUNT,
         f"sum({ours('jobid:jobledger_job_idle_gpus:rate2m')})", None, 1),
        ("Power of jobs", "CPUs, memory and GPUs, as attributed to running jobs.", style.WATTS, f"sum({ours('jobid:jobledger_job_total_energy_joules:rate2m')})",
         None, None),
        ("Near memory limit", "Running jobs that hold more than 95 % of their limit on a node: the kernel is about to kill.", style.COUNT,
         f"count({cluster('jobid:jobledger_job_memory_held_bytes_per_limit_byte:max_ratio')} > {style.MEMORY_NEAR_LIMIT} and {ON} {OWNER}) or vector(0)",
         style.NONE_IS_GOOD, None),
        ("Killed for memory", "Jobs of this time range with a process that the kernel killed.", style.COUNT,
         f"count(sum by (cluster, jobid) ({most(cluster('jobledger_job_oom_kills_total'))}) > 0 and {ON} {OWNER_OF_RANGE}) or vector(0)",
         style.NONE_IS_GOOD, None)]
    for title, description, unit, expr, steps, decimals in stats:
        board_.add(stat(title, description, unit, expr, steps, decimals=decimals), 4, 3)


def course(board_):
    board_.row("Course")
    board_.add(series("CPUs held and used", "Of running jobs. Between the lines is what nobody uses and nobody else gets.", style.NUMBER,
                      [(f"sum({ours('jobid:jobledger_job_cpus:sum')})", "Held"), (f"sum({ours('jobid:jobledger_job_cpu_seconds:rate2m')})", "Used")],
                      limits=["Held"], colours={"Used": style.BLUE}, fill=30), 8, 8)
    board_.add(series("GPUs held and busy", "Of running jobs.", style.NUMBER,
                      [(f"sum({ours('jobid:jobledger_job_gpus:sum')})", "Held"), (f"sum({ours('jobid:jobledger_job_gpu_busy_seconds:rate2m')})", "Busy")],
                      limits=["Held"], colours={"Busy": style.GREEN}, fill=30), 8, 8)
    owned = f"({cluster('jobid:jobledger_job_nodes:count')} ^ 0) * {ON} group_left (partition) max by (cluster, jobid, partition) ({OWNER})"
    board_.add(series("Running jobs by partition", "Jobs without the prolog's file have no partition.", style.NUMBER,
                      (f"sum by (partition) ({owned})", "{{partition}}"), stack=True), 8, 8)


def build():
    board_ = Board(board.JOBS, "Jobledger / Jobs", "Running and ended jobs, the most waste first. A job's number leads to its report.", since="now-3h")
    job_tables.owners(board_)
    job_tables.weight(board_)
    job_tables.limit(board_)
    summary(board_)
    board_.row("Running jobs")
    job_tables.running(board_, 12)
    board_.row("Ended jobs")
    job_tables.ended(board_, 12)
    course(board_)
    return board_
