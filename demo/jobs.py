"""The jobs of the demo: cases that a support team sees every day. Each runs for about a minute."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Job:
    """A batch script, and its user: the first of the bed (0) or the second (1)."""

    name: str
    user: int
    what: str
    script: str
    options: tuple


_SPIN = "timeout {} sh -c 'while :; do :; done'"

JOBS = (
    Job("busy", 0, "uses its CPU", _SPIN.format(60) + "; true", ("-c1", "--mem=100")),
    Job("idle", 1, "holds two CPUs and sleeps", "sleep 70", ("-c2", "--mem=200")),
    Job("memory-hog", 0, "wants more memory than it asked for, and is killed", "tail /dev/zero", ("-c1", "--mem=120")),
    Job("writer", 1, "writes 64 MB, past the page cache where there is accounting of I/O",
        "f=/var/tmp/jobledger-demo-$SLURM_JOB_ID; trap 'rm -f $f' EXIT; dd if=/dev/zero of=$f bs=1M count=64 oflag=direct status=none",
        ("-c1", "--mem=100")),
    Job("short", 1, "jobs of half a second", _SPIN.format(0.5) + "; true", ("-c1", "--mem=64")),
)


def submit(slurm, users, short):
    """Submits all jobs, so many short ones; returns their ids (of these the first)."""
    def options(job):
        array = (f"--array=1-{short}",) if job.name == "short" else ()
        return (f"--job-name={job.name}", "--account=demo", "--no-requeue", *job.options, *array)
    requests = [(users[job.user], job.script, options(job)) for job in JOBS]
    return slurm.submit_all(requests)
