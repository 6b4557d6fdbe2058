"""Rounds of jobs on a bed with SLURM, and a report of each round."""

import contextlib
import math
import pathlib
import sys
import time

import jobs
import reports
import summary
from testbed.processes import Failure, wait_for

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
# Seconds from the last job's end until all alerts fire and are mailed.
_ALERTS_SENT = 45


@contextlib.contextmanager
def prologs(bed):
    """Installs the prolog and epilog that write a job's account, for a with block. Does nothing on a bed without its own
    /etc/slurm."""
    paths = {part: f"/etc/slurm/{part}.d/jobledger.sh" for part in ("prolog", "epilog")} if bed.emulated else {}
    for part, path in paths.items():
        bed.agent.put(path, (_REPOSITORY / f"slurm/{part}.d/jobledger.sh").read_bytes(), 0o755)
    try:
        yield
    finally:
        if paths:
            bed.run(f"rm -f {' '.join(paths.values())}; rm -rf /run/jobledger")


def print_addresses(exporter, servers):
    print(f"  exporter      http://{exporter}/metrics\n"
          f"  Prometheus    http://{servers.prometheus.address}/  (rules under Status, alerts under Alerts)\n"
          f"  Alertmanager  http://{servers.alertmanager}/", flush=True)


def rounds_of_jobs(bed, servers, cli, rounds=0, short=10):
    """Runs rounds of jobs, with so many short ones, and reports what each job used; returns whether the sums were right after each round."""
    begun, balanced, mails, all_jobs = time.time(), True, 0, jobs.of_a_round(short)
    for number in range(rounds or sys.maxsize):
        this = time.time()
        print(f"\nround {number + 1}:")
        for job in all_jobs:
            print(f"  {job.name:<11} {bed.users[job.user].name:<7} {job.what}")
        first = jobs.submit(bed.slurm, bed.users, all_jobs)
        submitted = set(bed.slurm.jobs()) & set(range(min(first), max(first) + short + 1))
        bed.slurm.wait_over(submitted)
        servers.prometheus.wait_scraped()
        if bed.emulated:
            wait_for_names(servers.prometheus.query)
        time.sleep(_ALERTS_SENT)
        over = f"{math.ceil(time.time() - begun) + 60}s"
        print(f"\nwhat the jobs used so far:\n{summary.table(summary.rows(servers.prometheus.query, over))}")
        ledger = summary.ledger(servers.prometheus.query, over)
        if ledger is None:
            print("this bed has no accounting of CPU time")
        else:
            print(f"CPU time in SLURM's cgroups: {summary.account(ledger)}", flush=True)
            balanced &= ledger.balances
        mails = print_alerts(servers, mails)
        reports.show(cli, servers.prometheus, this)
    return balanced


def wait_for_names(query):
    """Waits until each job has its name. If slurmctld is busy when a job starts, the prolog gets the name later
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


def print_alerts(servers, seen):
    """Prints the firing alerts and the mails after the first `seen`; returns the number of mails."""
    for labels in servers.alerts():
        of = " ".join(f"{key}={labels[key]}" for key in ("jobid", "user", "account", "gpu") if labels.get(key))
        print(f"alert: {labels['alertname']} ({labels.get('severity', '-')}) {of}")
    mails = list(servers.mailbox.mails)
    for to, mail in mails[seen:]:
        print(f"mail to {', '.join(to)}: {mail['Subject']}", flush=True)
    return len(mails)
