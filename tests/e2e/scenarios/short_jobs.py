"""Short jobs: many jobs of 0.1 to 3 s with a scrape every 15 seconds."""

import random

from testbed import beds
from testbed.context import close, equal, expect, scenario

from .ledger import check_gain, no_cpu_accounting, read_around

_WINDOW = "[2h]"
_INTERVAL = 15


def _bodies(count):
    """Scripts of serial jobs and jobs with several steps, 0.1 to 3 s each. The same in every run."""
    source = random.Random(22)
    for index in range(count):
        seconds = source.choice([0.1, 0.2, 0.5, 1, 2, 3])
        work = f"timeout {seconds} sh -c 'while :; do :; done'"
        yield [f"sleep {seconds}", work, f"srun sleep {seconds}", f"srun true\nsrun true\n{work}", "true"][index % 5]


def _last(family):
    return f"last_over_time({family}{_WINDOW})"


def check_allocated(server, cpus):
    """Each job's allocated CPU time is its number of CPUs times its duration. `cpus` is {job id: number}."""
    durations = {}
    for family, sign in (("jobledger_job_end_time_seconds", 1), ("jobledger_job_start_time_seconds", -1)):
        for labels, value in server.query(_last(family)):
            durations[int(labels["jobid"])] = durations.get(int(labels["jobid"]), 0) + sign * value
    allocated = {int(labels["jobid"]): value for labels, value in server.query(_last("jobledger_job_allocated_cpu_seconds_total"))}
    equal("jobs without allocated CPU time", sorted(set(cpus) - set(allocated)), [])
    for jobid, number in cpus.items():
        close(f"job {jobid}: allocated CPU time", allocated[jobid], number * durations[jobid], 0.001)


@scenario(beds.EACH_CGROUP, seconds=200)
def short_jobs(context):
    """Every job is in Prometheus with its owner, and the CPU times add up to the kernel's."""
    bed, slurm = context.bed, context.slurm
    owners = [bed.users[index % 2] for index in range(context.options.jobs or (8 if bed.emulated else 30))]
    requests = [(owner, body, ("--mem=100", "-n1")) for owner, body in zip(owners, _bodies(len(owners)), strict=True)]
    counted = no_cpu_accounting(bed) is None
    ledger = f"sum({_last('jobledger_job_cpu_seconds_total')} or vector(0)) + " \
             f"sum({_last('jobledger_node_slurm_cpu_unattributed_seconds_total')})"
    with context.exporter(), context.prometheus(_INTERVAL) as server:
        def scraped_sum():
            server.wait_scraped()
            return server.value(ledger)

        server.wait_scraped()
        if counted:
            before, around_before = read_around(bed, scraped_sum)
            own = bed.slurm_own_cpu_seconds(bed.nodes[0])
        jobids = slurm.submit_all(requests)
        slurm.wait_over(jobids, timeout=120 + 15 * len(jobids))
        allocated = {jobid: int(job["NumCPUs"]) for jobid, job in slurm.jobs().items()}
        server.wait_scraped()
        wanted = {jobid: str(owner.uid) for jobid, owner in zip(jobids, owners, strict=True)}
        owners_found = {}
        for labels, _ in server.query(_last("jobledger_job_info")):
            owners_found.setdefault(int(labels["jobid"]), set()).add(labels.get("uid"))
        missing = sorted(set(wanted) - set(owners_found))
        expect(not missing, f"{len(missing)} of {len(wanted)} jobs are not in Prometheus: {missing[:20]}")
        # The owner of a job is unknown before its first process, and the label is empty.
        wrong = {jobid: uids for jobid, uids in owners_found.items() if uids - {None} != {wanted.get(jobid)}}
        expect(not wrong, f"jobs with wrong owners, or unknown to SLURM: {wrong}")
        for family in ("jobledger_job_start_time_seconds", "jobledger_job_end_time_seconds"):
            have = {int(labels["jobid"]) for labels, _ in server.query(_last(family))}
            equal(f"jobs without {family}", sorted(set(wanted) - have), [])
        check_allocated(server, {jobid: cpus for jobid, cpus in allocated.items() if jobid in wanted})
        if bed.emulated:
            # slurm.conf on the host does not constrain memory.
            limits = {int(labels["jobid"]): value for labels, value in server.query(_last("jobledger_job_memory_limit_bytes"))}
            equal("memory limits", limits, dict.fromkeys(wanted, 100 << 20))
        if counted:
            charged = {int(labels["jobid"]): value for labels, value in server.query(
                f"sum by (jobid) ({_last('jobledger_job_cpu_seconds_total')})")}
            idle = [jobid for jobid in wanted if not charged.get(jobid)]
            expect(not idle, f"jobs that are charged with no CPU time: {idle}")
            after, around_after = read_around(bed, scraped_sum)
            check_gain("jobs + residual in Prometheus", after - before, around_before, around_after,
                       "the scope's cpu.stat")
            residual = server.value(f"sum({_last('jobledger_node_slurm_cpu_unattributed_seconds_total')})")
            print(f"note {bed.name} short_jobs: {len(wanted)} jobs, {sum(charged.values()):.3f} s attributed to them, {residual:.3f} s "
                  f"unattributed ({bed.slurm_own_cpu_seconds(bed.nodes[0]) - own:.3f} s of that in SLURM's own cgroup), of "
                  f"{around_after[0] - around_before[1]:.3f} s in SLURM's cgroups", flush=True)
