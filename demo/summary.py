"""What each job used, from Prometheus, and whether jobs + unattributed = node."""

import dataclasses
import math

# Queries by column; {over} is the range to look back. A job's total is the largest value of its counters
# (rules/README.md): increase() would extrapolate at the ends.
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
_UNATTRIBUTED = "sum(jobledger_node_slurm_cpu_unattributed_seconds_total)"
_JOBS = "sum(max_over_time(jobledger_job_cpu_seconds_total[{over}]))"


@dataclasses.dataclass
class Row:
    """A job. Unknown values are None. Units are seconds and bytes."""

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
        """The mean number of its CPUs; None while it runs."""
        return self.had_seconds / self.elapsed if self.had_seconds and self.elapsed else None

    @property
    def cpu_ratio(self):
        """CPU time used, as a fraction of the allocated CPU time; None while it runs."""
        if None in (self.elapsed, self.cpu_seconds) or not self.had_seconds:
            return None
        return self.cpu_seconds / self.had_seconds


@dataclasses.dataclass(frozen=True)
class Ledger:
    """CPU seconds in SLURM's cgroups since the exporter started."""

    jobs: float
    unattributed: float
    total: float

    @property
    def rest(self):
        """Total minus jobs and unattributed: zero, except for rounding."""
        return self.total - self.jobs - self.unattributed

    @property
    def balances(self):
        return abs(self.rest) < 1e-4


def rows(query, over):
    """The jobs of the last `over` (as in PromQL), by id. `query` evaluates an expression: [(labels, value)]."""
    found = {}
    for labels, _ in query(_INFO.format(over=over)):
        jobid = int(labels["jobid"])
        # A late name makes a second series of the same job.
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
    """The node's CPU time, or None while a part is missing. Only right when no job is running."""
    parts = [query(expression.format(over=over)) for expression in (_JOBS, _UNATTRIBUTED, _TOTAL)]
    return Ledger(*(part[0][1] for part in parts)) if all(parts) else None


def table(jobs):
    """The rows as a text table, 100 columns wide."""
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


def account(ledger):
    """The ledger as a line of text."""
    verdict = "it balances" if ledger.balances else f"{ledger.rest:+.6f} s are missing"
    return (f"{ledger.jobs:.3f} s of jobs + {ledger.unattributed:.3f} s unattributed "
            f"= {ledger.total:.3f} s: {verdict}")


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
