"""`jobledger report` of some jobs, as a user sees it."""

from testbed.processes import Failure
from testbed.reports import Ran


def chosen(rows, since):
    """The names of the job that used the most CPU time of those that ended after `since`, and of another that has advice.

    `rows` are those of `jobledger list --format=json`.
    """
    seen = (row for row in rows if row["state"] != "not seen" and row["start"] + row["numbers"]["elapsed_seconds"] > since)
    ended = sorted(seen, key=_cpu_seconds, reverse=True)
    advised = [row for row in ended[1:] if row["advice"]]
    return [_name(row) for row in ended[:1] + advised[:1]]


def _cpu_seconds(row):
    return (row["numbers"]["cores_used"] or 0) * row["numbers"]["elapsed_seconds"]


def _name(row):
    """As SLURM shows it: the number of an array's last element is that of the array, too."""
    who = row["identity"]
    return f"{who['array_job_id']}_{who['array_task_id']}" if who["array_job_id"] else str(row["job"])


def show(program, prometheus, since):
    """Prints the reports of such jobs, each with the command before it."""
    # The host's sacct knows other jobs.
    common = (f"--url=http://{prometheus.address}", "--no-sacct")
    listed = Ran(program, None, "list", "--user=all", "--state=ended", "--since=1h", "--format=json", *common)
    if listed.status:
        raise Failure(listed.err)
    for name in chosen(listed.json(), since):
        ran = Ran(program, None, "report", name, *common)
        print(f"\n$ jobledger report {name} {' '.join(common)}\n{ran.out}{ran.err}", end="", flush=True)
