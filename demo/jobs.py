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


def of_a_round(short):
    """The jobs of a round, so many short ones."""
    return (
        Job("busy", 0, "uses its CPU", _SPIN.format(60) + "; true", ("-c1", "--mem=100")),
        Job("idle", 1, "holds two CPUs and sleeps", "sleep 70", ("-c2", "--mem=200")),
        Job("memory-hog", 0, "wants more memory than it asked for, and is killed", "tail /dev/zero", ("-c1", "--mem=120")),
        Job("writer", 1, "writes 64 MB, past the page cache where there is accounting of I/O",
            "f=/var/tmp/jobledger-demo-$SLURM_JOB_ID; trap 'rm -f $f' EXIT; dd if=/dev/zero of=$f bs=1M count=64 oflag=direct status=none",
            ("-c1", "--mem=100")),
        Job("short", 1, f"{short} jobs of half a second", _SPIN.format(0.5) + "; true", ("-c1", "--mem=64", f"--array=1-{short}")),
    )


def submit(slurm, users, jobs):
    """Submits the jobs; returns their ids (of an array its first)."""
    requests = [(users[job.user], job.script, (f"--job-name={job.name}", "--account=demo", "--no-requeue", *job.options)) for job in jobs]
    return slurm.submit_all(requests)
