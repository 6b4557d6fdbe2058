"""Jobs: those that run and those that ended, the most waste first. From here to the report of each."""

from . import board, job_tables, style
from .board import Board
from .job_tables import BY, ENDED, ON, OWNER, RAN, RUNNING, ended_row
from .panels import Query, series, stat
from .queries import OWNED, cluster, owners


def ours(recorded):
    """A series of running jobs, of the users, accounts and partitions chosen."""
    return f"{cluster(recorded)} and {ON} {OWNER}"


def summary(board_):
    killed = f"(sum {BY} ({cluster('jobledger_job_oom_kills_total')}) and {ON} {OWNER} or sum {BY} ({ended_row('oom_kills:sum')}))"
    stats = [
        ("Jobs running", "Jobs that run now.", style.COUNT, f"count({RUNNING}) or vector(0)", None, None),
        ("Ended", "Jobs that ended in this time range.", style.COUNT, f"count({ENDED}) or vector(0)", None, None),
        ("Too short to sample", "Of those, shorter than two minutes: exact totals, no rates.", style.COUNT, f"count({RAN} < 120) or vector(0)", None, None),
        ("CPUs held", "CPUs that running jobs may use.", style.COUNT, f"sum({ours('jobid:jobledger_job_cpus:sum')})", None, 0),
        ("CPU efficiency", "Part of the cores that jobs had in the last four minutes that they kept busy: the sums divided.", style.RATIO,
         job_tables.cpu_efficiency(OWNED), style.EFFICIENCY_CPU, 1),
        ("Cores idle", "Cores that running jobs hold and do not use.", style.COUNT, f"sum({ours('jobid:jobledger_job_idle_cores:rate2m')})", None, 1),
        ("GPUs held", "GPUs, and parts of divided ones, that running jobs have.", style.COUNT, f"sum({ours('jobid:jobledger_job_gpus:sum')})", None, 0),
        ("GPU busy", "Part of the last four minutes in which kernels ran on the GPUs that jobs had: the sums divided.", style.RATIO,
         job_tables.gpu_efficiency(OWNED), style.EFFICIENCY_GPU, 1),
        ("GPUs idle", "GPUs that running jobs have and do not use; without shared ones.", style.COUNT,
         f"sum({ours('jobid:jobledger_job_idle_gpus:rate2m')})", None, 1),
        ("Power of jobs", "CPUs, memory, GPUs and overhead, as charged to jobs of any length in the last four minutes, as far as nodes have meters.", style.WATTS,
         f"sum({owners('energy_joules', OWNED)}) / 240", None, None),
        ("Near memory limit", "Running jobs that hold more than 95 % of their limit on a node: the kernel is about to kill.", style.COUNT,
         f"count({cluster('jobid:jobledger_job_memory_held_bytes_per_limit_byte:max_ratio')} > {style.MEMORY_NEAR_LIMIT} and {ON} {OWNER}) or vector(0)",
         style.NONE_IS_GOOD, None),
        ("Killed for memory", "Jobs that run or ended in this time range with a process that the kernel killed.", style.COUNT,
         f"count({killed} > 0) or vector(0)", style.NONE_IS_GOOD, None)]
    for title, description, unit, expr, steps, decimals in stats:
        board_.add(stat(title, description, unit, expr, steps, decimals=decimals), 4, 3)


def course(board_):
    board_.row("Course")
    job_tables.held_and_used(board_, OWNED)
    owned = f"({cluster('jobid:jobledger_job_nodes:count')} ^ 0) * {ON} group_left (partition) max by (cluster, jobid, partition) ({OWNER})"
    board_.add(series("Running jobs by partition", "Jobs without the prolog's file have no partition.", style.NUMBER,
                      Query(f"sum by (partition) ({owned})", "{{partition}}", interval="5m"), stack=True), 8, 8)


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
