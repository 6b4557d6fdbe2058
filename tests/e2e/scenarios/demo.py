"""The demo's round of jobs, with its Prometheus, rules, Alertmanager and mail (demo/)."""

import contextlib
import io
import sys

from testbed import beds, cache
from testbed.context import close, equal, expect, scenario
from testbed.processes import wait_for

sys.path.append(str(cache.REPOSITORY / "demo"))

import play  # noqa: E402
import stack  # noqa: E402
import summary  # noqa: E402

from .identity import asked_for_long  # noqa: E402


_SHORT = 4


def _once(bed):
    return None if bed.name == "vm-22.05-v2" else "the demo runs on vm-22.05-v2"


@scenario(beds.ONCE, unable=_once, seconds=250)
def demo(context):
    """Each job of the demo is reported with its usage, the sums are right in Prometheus, the owner of the killed job gets a mail."""
    bed, output = context.bed, io.StringIO()
    with play.prologs(bed), asked_for_long(bed), context.exporter(), stack.start([bed.exporter], context.options.prometheus) as servers:
        before = set(bed.slurm.jobs())
        with contextlib.redirect_stdout(output):
            balanced = play.rounds_of_jobs(bed, servers, context.options.cli, 1, _SHORT)
        expect(balanced and "it balances" in output.getvalue(), output.getvalue())
        rows = summary.rows(servers.prometheus.query, "15m")
        equal("jobs", {row.jobid for row in rows}, set(bed.slurm.jobs()) - before)
        names = {jobid: job["JobName"] for jobid, job in bed.slurm.jobs().items()}
        named = {name: [row for row in rows if names[row.jobid] == name] for name in ("busy", "idle", "memory-hog", "short")}
        equal("how many of each", {name: len(found) for name, found in named.items()},
              {"busy": 1, "idle": 1, "memory-hog": 1, "short": _SHORT})
        # What ends soon may be gone before a busy slurmctld answers its prolog.
        known = [row for row in rows if row.name or names[row.jobid] not in ("short", "memory-hog")]
        equal("names", {row.jobid: row.name for row in known}, {row.jobid: names[row.jobid] for row in known})
        expect(any(row.name == "short" for row in rows), f"names of short jobs: {[row.name for row in rows]}")
        (busy,), (idle,), (hog,) = (named[name] for name in ("busy", "idle", "memory-hog"))
        expect(f"$ jobledger report {busy.jobid} " in output.getvalue() and f"\nJob {busy.jobid}  {busy.name}" in output.getvalue(),
               output.getvalue())
        equal("reports", output.getvalue().count("\n  Data: 1 of 1 node"), 2)
        equal("owners", (busy.user, idle.user), tuple(user.name for user in bed.users))
        close("CPU time of the busy one", busy.cpu_seconds, 61, 15)
        expect(idle.cpu_ratio < 0.2, f"the idle one used {idle.cpu_ratio} of its CPUs")
        expect(hog.oom_kills and hog.peak_bytes <= hog.limit_bytes == 120 << 20, f"{hog}")
        for row in named["short"]:
            expect(row.cpu_seconds and row.cpu_seconds > 0.2, f"{row}")
        wait_for("the owner's mail", lambda: [mail for to, mail in servers.mailbox.mails
                                              if to == [f"{hog.user}@cluster.example"] and str(hog.jobid) in mail["Subject"]], 120)
