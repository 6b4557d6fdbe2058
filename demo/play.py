"""Rounds of jobs on a bed with SLURM, and what is told of them."""

import contextlib
import math
import pathlib
import sys
import time

import jobs
import summary
from testbed.processes import Failure, wait_for

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
# Seconds from the last job's end until what there is to alert of has been told and mailed.
_ALERTS_TOLD = 45


@contextlib.contextmanager
def prologs(bed):
    """The prolog and epilog that tell the exporter a job's account, for the length of a with block. Where the bed has them in a
    directory of its own."""
    paths = {part: f"/etc/slurm/{part}.d/jobledger.sh" for part in ("prolog", "epilog")} if bed.emulated else {}
    for part, path in paths.items():
        bed.agent.put(path, (_REPOSITORY / f"slurm/{part}.d/jobledger.sh").read_bytes(), 0o755)
    try:
        yield
    finally:
        if paths:
            bed.run(f"rm -f {' '.join(paths.values())}; rm -rf /run/jobledger")


def where_to_look(exporter, servers):
    """Says where the servers are."""
    print(f"  exporter      http://{exporter}/metrics\n"
          f"  Prometheus    http://{servers.prometheus.address}/  (rules under Status, alerts under Alerts)\n"
          f"  Alertmanager  http://{servers.alertmanager}/", flush=True)


def rounds_of_jobs(bed, servers, rounds=0):
    """Rounds of jobs, each followed by what was booked; answers whether the ledger balanced after each of them."""
    begun, balanced, told = time.time(), True, 0
    for number in range(rounds or sys.maxsize):
        print(f"\nround {number + 1}:")
        for job in jobs.JOBS:
            print(f"  {job.name:<11} {bed.users[job.user].name:<7} {job.what}")
        first = jobs.submit(bed.slurm, bed.users)
        submitted = set(bed.slurm.jobs()) & set(range(min(first), max(first) + 11))
        bed.slurm.wait_over(submitted)
        servers.prometheus.wait_scraped()
        if bed.emulated:
            wait_for_names(servers.prometheus.query)
        time.sleep(_ALERTS_TOLD)
        over = f"{math.ceil(time.time() - begun) + 60}s"
        print(f"\nwhat was booked so far:\n{summary.table(summary.rows(servers.prometheus.query, over))}")
        booked = summary.ledger(servers.prometheus.query, over)
        if booked is None:
            print("this bed has no accounting of CPU time")
        else:
            print(f"CPU time in SLURM's cgroups: {summary.account(booked)}", flush=True)
            balanced &= booked.balances
        told = tell_alerts(servers, told)
    return balanced


def wait_for_names(query):
    """Waits until each job has its name. A controller that is busy when a job starts gives it later, while the job runs or soon after
    (slurm/prolog.d/jobledger.sh)."""
    def unnamed():
        nameless = [row.jobid for row in summary.rows(query, "15m") if not row.name]
        if nameless:
            raise Failure(f"jobs without a name: {nameless}")
        return True
    try:
        wait_for("the names of all jobs", unnamed, quiet=120, interval=1)
    except Failure as failure:
        print(f"{failure}: slurmctld did not answer the prologs", flush=True)


def tell_alerts(servers, told):
    """Says what fires and which mails came beyond the first `told`; answers how many mails there are now."""
    for labels in servers.alerts():
        of = " ".join(f"{key}={labels[key]}" for key in ("jobid", "user", "account", "gpu") if labels.get(key))
        print(f"alert: {labels['alertname']} ({labels.get('severity', '-')}) {of}")
    mails = list(servers.mailbox.mails)
    for to, mail in mails[told:]:
        print(f"mail to {', '.join(to)}: {mail['Subject']}", flush=True)
    return len(mails)
