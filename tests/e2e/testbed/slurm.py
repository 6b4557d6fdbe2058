"""SLURM's client commands: submit, show, cancel."""

import re
import shlex

from .processes import Failure, wait_for

_OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "DEADLINE", "BOOT_FAIL"}


class Slurm:
    """The client commands, run in a bed."""

    def __init__(self, bed):
        self._bed = bed

    def submit(self, user, body, *options):
        """Submits a batch script; returns the job id (of arrays and heterogeneous jobs the first one)."""
        return self.submit_all([(user, body, options)])[0]

    def submit_all(self, requests):
        """`submit` for many (user, body, options) at once; returns the job ids in order."""
        script = ["cd /"]
        for user, body, options in requests:
            words = shlex.join(["sbatch", "--parsable", "--output=/dev/null", *options])
            script.append(f"{self.as_user(user)} {words} <<'BODY'\n#!/bin/bash\n{body}\nBODY")
            script.append("test $? = 0 || exit 1")
        return [int(line.split(";")[0]) for line in self._bed.run("\n".join(script), timeout=600).split()]

    def as_user(self, user):
        """The prefix that runs a command as the user."""
        return (f"env HOME=/ USER={user.name} LOGNAME={user.name} "
                f"setpriv --reuid={user.uid} --regid={user.uid} --clear-groups")

    def jobs(self, jobid=None):
        """slurmctld's {id: {key: value}} of one job (with array elements and components) or of all."""
        which = "" if jobid is None else str(jobid)
        found = {}
        for line in self._bed.run(f"scontrol -o show job {which}").splitlines():
            fields = dict(re.findall(r"(?:^| )([A-Z][A-Za-z/:]*)=(\S*)", line))
            if "JobId" in fields:
                found[int(fields["JobId"])] = fields
        return found

    def job(self, jobid):
        """slurmctld's {key: value} of one job id."""
        return self.jobs(jobid)[jobid]

    def cpus(self, jobid):
        """The numbers of the CPUs that a job has or had, on a machine without hardware threads."""
        listed = re.search(r"CPU_IDs=(\S+)", self._bed.run(f"scontrol -d -o show job {jobid}"))[1]
        ranges = (part.split("-") for part in listed.split(","))
        return {cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)}

    def started(self, jobid):
        """slurmctld's start time of a job, seconds since the epoch."""
        return int(self._bed.run(f"SLURM_TIME_FORMAT=%s squeue -h -j {jobid} -o %S").split()[0])

    def wait_running(self, count, timeout=180, **match):
        """Waits until `count` jobs run whose fields equal `match`; returns them."""
        def enough():
            running = {jobid: job for jobid, job in self.jobs().items() if job["JobState"] == "RUNNING"
                       and all(job.get(key) == value for key, value in match.items())}
            return running if len(running) >= count else None
        return wait_for(f"{count} running jobs {match or ''}", enough, timeout)

    def wait_over(self, jobids, timeout=600):
        """Waits until all these jobs have ended; returns slurmctld's fields of them."""
        wanted = set(jobids)

        def all_over():
            jobs = {jobid: job for jobid, job in self.jobs().items() if jobid in wanted}
            left = [jobid for jobid in wanted if jobid not in jobs or jobs[jobid]["JobState"] not in _OVER]
            if left:
                raise Failure(f"{len(left)} left, {jobs.get(left[0], {}).get('JobState')}: {sorted(left)[:5]}")
            return jobs
        return wait_for(f"{len(wanted)} jobs to end", all_over, timeout, interval=1)

    def cancel_all(self, timeout=180):
        """Cancels all jobs."""
        self._bed.run("scancel --state=PENDING; scancel --state=RUNNING; true")
        wait_for("the queue to be empty", lambda: not self._bed.run("squeue -h -o %i").split(), timeout)
