"""What was booked to each job, as Prometheus has it, and whether the ledger balances."""

import dataclasses
import math

# Queries by column; {over} is the time to look back on. A job's total is the largest value of its counters
# (rules/README.md): increase() would guess at the ends.
_QUERIES = {
    "start": "min by (jobid) (min_over_time(jobledger_job_start_time_seconds[{over}]))",
    "end": "max by (jobid) (max_over_time(jobledger_job_end_time_seconds[{over}]))",
    "had_seconds": "sum by (jobid) (max_over_time(jobledger_job_allocated_cpu_seconds_total[{over}]))",
    "cpu_seconds": "sum by (jobid) (max_over_time(jobledger_job_cpu_seconds_total[{over}]))",
    "peak_bytes": "sum by (jobid) (max_over_time(jobledger_job_memory_peak_bytes[{over}]))",
    "limit_bytes": "sum by (jobid) (max_over_time(jobledger_job_memory_limit_bytes[{over}]))",
    "read_bytes": "sum by (jobid) (max_over_time(jobledger_job_io_read_bytes_total[{over}]))",
    "written_bytes": "sum by (jobid) (max_over_time(jobledger_job_io_written_bytes_total[{over}]))",
    "oom_kills": "sum by (jobid) (max_over_time(jobledger_job_oom_kills_total[{over}]))",
}
_INFO = "last_over_time(jobledger_job_info[{over}])"
_TOTAL = "sum(jobledger_node_slurm_cpu_seconds_total)"
_NOBODYS = "sum(jobledger_node_slurm_cpu_unattributed_seconds_total)"
_BOOKED = "sum(max_over_time(jobledger_job_cpu_seconds_total[{over}]))"


@dataclasses.dataclass
class Row:
    """A job; what is not known of it is None. Seconds and bytes."""

    jobid: int
    user: str = ""
    name: str = ""
    start: float | None = None
    end: float | None = None
    had_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: float | None = None
    limit_bytes: float | None = None
    read_bytes: float | None = None
    written_bytes: float | None = None
    oom_kills: float | None = None

    @property
    def elapsed(self):
        """Seconds from its start to its end; None while it runs."""
        return None if None in (self.start, self.end) else max(0.0, self.end - self.start)

    @property
    def cpus(self):
        """The CPUs that it had, over its time a mean; None while it runs."""
        return self.had_seconds / self.elapsed if self.had_seconds and self.elapsed else None

    @property
    def cpu_ratio(self):
        """CPU time used of the CPU time that it had, 0 to 1; None while it runs."""
        if None in (self.elapsed, self.cpu_seconds) or not self.had_seconds:
            return None
        return self.cpu_seconds / self.had_seconds


@dataclasses.dataclass(frozen=True)
class Ledger:
    """CPU seconds in SLURM's cgroups since the exporter started."""

    booked: float
    nobodys: float
    total: float

    @property
    def rest(self):
        """What neither a job nor nobody has: zero, but for the rounding of sums."""
        return self.total - self.booked - self.nobodys

    @property
    def balances(self):
        return abs(self.rest) < 1e-4


def rows(query, over):
    """The jobs of the last `over` (as in PromQL), by id. `query` answers an expression: [(labels, value)]."""
    found = {}
    for labels, _ in query(_INFO.format(over=over)):
        jobid = int(labels["jobid"])
        # A name that comes late makes a second series of the same job.
        if jobid in found and not labels.get("name"):
            continue
        found[jobid] = Row(jobid, labels.get("user", ""), labels.get("name", ""))
    for column, expression in _QUERIES.items():
        for labels, value in query(expression.format(over=over)):
            row = found.get(int(labels["jobid"]))
            if row and not math.isnan(value):
                setattr(row, column, value)
    return [found[jobid] for jobid in sorted(found)]


def ledger(query, over):
    """The node's CPU ledger now; None while a part is missing. To be asked when no job is running."""
    parts = [query(expression.format(over=over)) for expression in (_BOOKED, _NOBODYS, _TOTAL)]
    return Ledger(*(part[0][1] for part in parts)) if all(parts) else None


def table(jobs):
    """The rows as text for people, 100 columns."""
    lines = [f"{'JOB':>7} {'USER':<8} {'NAME':<14} {'ELAPSED':>8} {'CPUS':>4} {'CPU TIME':>9} {'USED':>5} "
             f"{'MEMORY':>8} {'LIMIT':>8} {'READ':>8} {'WRITTEN':>8}"]
    for job in jobs:
        lines.append(
            f"{job.jobid:>7} {job.user[:8]:<8} {job.name[:14]:<14} {_or_dash(job.elapsed, _seconds):>8} "
            f"{_or_dash(job.cpus, '{:.0f}'.format):>4} {_or_dash(job.cpu_seconds, '{:.3f} s'.format):>9} "
            f"{_or_dash(job.cpu_ratio, '{:.0%}'.format):>5} {_or_dash(job.peak_bytes, _bytes):>8} "
            f"{_or_dash(job.limit_bytes, _bytes):>8} {_or_dash(job.read_bytes, _bytes):>8} "
            f"{_or_dash(job.written_bytes, _bytes):>8}{'  killed: out of memory' if job.oom_kills else ''}")
    return "\n".join(lines)


def account(booked):
    """The ledger as a line for people."""
    verdict = "it balances" if booked.balances else f"{booked.rest:+.6f} s are missing"
    return (f"{booked.booked:.3f} s booked to jobs + {booked.nobodys:.3f} s that no job can be charged with "
            f"= {booked.total:.3f} s: {verdict}")


def _or_dash(value, show):
    return "-" if value is None else show(value)


def _seconds(value):
    return f"{value:.1f} s" if value < 60 else f"{int(value) // 60}:{int(value) % 60:02} min"


def _bytes(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}"
        value /= 1024
    return None
