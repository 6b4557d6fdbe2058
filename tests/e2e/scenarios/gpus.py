"""Attribution of GPUs with known activity, also when the driver fails, hangs or is released."""

import contextlib
import re
import time

from testbed import beds, devices
from testbed import gpus as testbed
from testbed.context import close, equal, expect, scenario
from testbed.processes import wait_for

from .bindings import bound, names

_WAIT = "sleep 600"
_HERE = "/tmp/gpus"
# The exposition has microseconds and microjoules, or better.
_ROUNDING = 2e-6
# Seconds between the driver's samples of activity.
_SAMPLES = 1 / 6
# A job that starts or ends within this many seconds of a reading has the GPU for the whole interval.
_GRACE = 1
_STATE = "jobledger_gpu_driver_state"
_LOST = 15
_BINARY = "/opt/testbed/jobledger-exporter"


# The ledger


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def gpu_ledger(context):
    """Busy seconds and joules: each job has exactly those of its GPUs while it had them; the rest is unattributed."""
    bed, slurm = context.bed, context.slurm
    with testbed.fake(bed) as gpus, context.exporter(*gpus.flags):
        jobs = _start(context, gpus, ("gpu:2", "gpu:1"))
        (busy, idle), (other,) = jobs.values()
        (free,) = (gpu for gpu in gpus.all if gpu not in (busy, idle, other))
        busy.busy, other.busy, free.busy = 0.75, 0.4, 0.2
        gpus.apply()
        first = _later(bed, _read(bed), 1)
        last = _later(bed, first)
        for gpu in gpus.all:
            _check_rates(gpu, first, last)
        for jobid, has in jobs.items():
            for gpu in has:
                _check_alone(jobid, gpu, first, last)
            others = [gpu.uuid for gpu in gpus.all if gpu not in has]
            wrong = [labels for name in ("allocated_seconds_total", "busy_seconds_total", "energy_joules_total")
                     for labels, _ in last.value.select(f"jobledger_job_gpu_{name}", jobid=jobid)
                     if labels["uuid"] in others]
            equal(f"job {jobid}: series of others' GPUs", wrong, [])
        equal("busy seconds on the GPU that nobody used", _job(idle, "busy_seconds_total", last), 0)
        equal("joules of the GPU that nobody had, by jobs", _job(free, "energy_joules_total", last), 0)
        _check_short_job(context, free, last)


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def gpu_shared(context):
    """Jobs that share a GPU (gres/shard) have the driver's counts of their processes; the rest is unattributed."""
    bed, slurm = context.bed, context.slurm
    with _shards(context), testbed.fake(bed) as gpus, context.exporter(*gpus.flags, "--collector.gpu.processes"):
        bed.run(f"rm -rf {_HERE}; install -d -m 1777 {_HERE}")
        place = f"{_HERE}/$SLURM_JOB_ID"
        body = f"sleep 600 &\necho $! > {place}.new\nmv {place}.new {place}\nwait"
        jobids = [slurm.submit(user, body, "--mem=100", "-n1", "--gres=shard:1") for user in bed.users]
        slurm.wait_running(len(jobids))

        def know(metrics):
            has = [bound(metrics, jobid) for jobid in jobids]
            expect(all(has), f"unknown: {has}")
            equal("the GPUs of both", has[0], has[1])
            equal("how many", len(has[0][1]), 1)

        metrics = context.eventually(know)
        ((index, uuid, minor),) = bound(metrics, jobids[0])[1]
        (gpu,) = gpus.of_minors({minor})
        infos = metrics.select("jobledger_job_gpu_info", uuid=uuid)
        equal("shared", [labels["shared"] for labels, _ in infos], ["true", "true"])
        pids = [int(wait_for("the job's process", lambda jobid=jobid: bed.run(f"cat {_HERE}/{jobid} || true"), 60))
                for jobid in jobids]
        other = int(bed.run("systemctl show -p MainPID --value slurmd"))
        sizes = (3 << 30, 5 << 30)
        gpu.busy, gpu.memory = 0.9, 9 << 30
        gpu.processes = ((pids[0], sizes[0], 0.5), (pids[1], sizes[1], 0.3), (other, 1 << 30, 0.1))
        gpus.apply()

        def seen(metrics):
            for jobid, pid, size in zip(jobids, pids, sizes, strict=True):
                equal(f"job {jobid}: memory", metrics.value("jobledger_job_gpu_memory_used_bytes", jobid=jobid), size)
                equal(f"job {jobid}: memory of {pid}",
                      metrics.value("jobledger_job_gpu_process_memory_bytes", jobid=jobid, pid=pid), size)
                equal(f"job {jobid}: processes", metrics.value("jobledger_job_gpu_processes", jobid=jobid), 1)

        context.eventually(seen)
        first = _later(bed, _read(bed), 1)
        last = _later(bed, first)
        _check_rates(gpu, first, last)
        node = _gain("jobledger_gpu_busy_seconds_total", first, last, uuid=uuid)
        for jobid, part in zip(jobids, (5, 3), strict=True):
            spent = _gain("jobledger_job_gpu_busy_seconds_total", first, last, jobid=jobid, method="processes")
            close(f"job {jobid}: busy seconds", spent, node * part / 9, 0.05 * node + 2 * _SAMPLES)


# What happens to drivers


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def gpu_driver(context):
    """A driver that is installed late, loses a GPU, hangs and is released: jobs keep their GPUs, and nothing is counted twice."""
    bed, slurm = context.bed, context.slurm
    # In the linker's search path.
    directory = "/usr/lib/x86_64-linux-gnu"
    with testbed.fake(bed, directory=directory, installed=False) as gpus, _control_directory(bed), \
            context.exporter("--collector.gpu.period=1s"):
        jobid = slurm.submit(bed.users[0], _WAIT, "--mem=100", "-n1", "--gres=gpu:2")
        slurm.wait_running(1)
        metrics = context.eventually(lambda metrics: _in_state(metrics, "failed"))
        equal("GPUs without a library", metrics.select("jobledger_gpu_info"), [])
        equal("the job's GPUs without a library", bound(metrics, jobid), None)
        gpus.install()
        has = gpus.of_minors(testbed.asked_for(bed, jobid))

        def know(metrics):
            _in_state(metrics, "running")
            equal(f"job {jobid}", bound(metrics, jobid), ("device_program", names(has)))

        context.eventually(know, timeout=180)
        _lose(context, gpus, has, know)
        _hang(context, gpus, know)
        _release(context, know, directory)


@contextlib.contextmanager
def _control_directory(bed):
    """Creates the directory of the exporter's control socket, for a with block."""
    bed.run("install -d -m 755 /run/jobledger")
    try:
        yield
    finally:
        bed.run("rm -rf /run/jobledger")


def _lose(context, gpus, has, know):
    lost, well = has
    before = _read(context.bed)
    lost.lost = _LOST
    gpus.apply()

    def gone(metrics):
        know(metrics)
        for gpu in gpus.all:
            equal(f"{gpu.uuid}: up", metrics.value("jobledger_gpu_up", uuid=gpu.uuid), 0 if gpu is lost else 1)
        equal("down", [(labels["uuid"], labels["reason"]) for labels, _ in metrics.select("jobledger_gpu_down_info")],
              [(lost.uuid, "lost")])
        equal("temperature of a lost GPU", metrics.select("jobledger_gpu_temperature_celsius", uuid=lost.uuid), [])

    context.eventually(gone)
    first = _read(context.bed)
    last = _later(context.bed, first, 3)
    equal("joules of a lost GPU", _gain("jobledger_gpu_energy_joules_total", first, last, uuid=lost.uuid), 0)
    expect(_gain("jobledger_gpu_energy_joules_total", first, last, uuid=well.uuid) > 0, "the other GPU counts nothing")
    had = _gain("jobledger_job_gpu_allocated_seconds_total", first, last, uuid=lost.uuid)
    least, most = first.until(last)
    expect(least <= had <= most, f"the lost GPU is allocated for {had} s, not {least} to {most}")
    lost.lost = 0
    gpus.apply()

    def back(metrics):
        know(metrics)
        equal("GPUs that are up", metrics.total("jobledger_gpu_up"), len(gpus.all))

    # The exporter looks for GPUs once a minute.
    context.eventually(back, timeout=150)
    _check_growth(before, _read(context.bed))


def _hang(context, gpus, know):
    before = _read(context.bed)
    gpus.hanging = ["nvmlDeviceGetTemperature"]
    gpus.apply()
    metrics = context.eventually(lambda metrics: _in_state(metrics, "hanging"), timeout=120)
    equal("GPUs that are up while the driver hangs", metrics.total("jobledger_gpu_up"), 0)
    slowest = 0
    for _ in range(5):
        started = time.monotonic()
        context.bed.scrape()
        slowest = max(slowest, time.monotonic() - started)
    print(f"note {context.bed.name} gpu_driver: the slowest of 5 scrapes while the driver hangs took {slowest:.2f} s",
          flush=True)
    expect(slowest < 10, f"a scrape took {slowest} s beside a driver that hangs")
    gpus.hanging = []
    gpus.apply()

    def back(metrics):
        know(metrics)
        equal("GPUs that are up", metrics.total("jobledger_gpu_up"), len(gpus.all))

    context.eventually(back, timeout=120)
    _check_growth(before, _read(context.bed))


def _release(context, know, directory):
    bed = context.bed
    # The counts from while the driver hung are exported with the second reading after that.
    before = _later(bed, _read(bed), 4)
    maps = f"grep -c {directory}/libnvidia-ml /proc/$(systemctl show -p MainPID --value jobledger-exporter)/maps || true"
    expect(int(bed.run(maps)) > 0, "the library is not loaded")
    bed.run(f"{_BINARY} gpu release")
    equal("mappings of the library in the exporter's memory", int(bed.run(maps)), 0)
    metrics = bed.scrape()
    _in_state(metrics, "released")
    equal("GPUs that are up after the release", metrics.total("jobledger_gpu_up"), 0)
    bed.run(f"{_BINARY} gpu resume")
    context.eventually(know)
    _check_growth(before, _read(bed))


def _in_state(metrics, state):
    states = {labels["state"]: value for labels, value in metrics.select(_STATE, vendor="nvidia") if value}
    equal("state of the driver", states, {state: 1})


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def gpu_privileges(context):
    """The exporter keeps no capability. Its helper has two and ends with it. Without it the GPUs of jobs are absent."""
    bed = context.bed
    sets = "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"
    with testbed.fake(bed) as gpus:
        with context.exporter(*gpus.flags):
            helper = _check_capabilities(context)
        wait_for("the helper to end", lambda: bed.agent.call(f"test -e /proc/{helper}")[0] != 0, 30)
        with context.exporter(*gpus.flags, "--security.no-device-helper"):
            # A reading after the job was found adds nothing.
            _later(bed, _read(bed), 1)
            metrics = bed.scrape()
            equal("running jobs", len(metrics.running()), 1)
            equal("GPUs", metrics.total("jobledger_gpu_up"), len(gpus.all))
            equal("GPUs of jobs without the helper", metrics.select("jobledger_job_gpus"), [])


def _check_capabilities(context):
    """Checks the exporter's and the helper's capabilities; returns the helper's pid."""
    bed = context.bed
    bed.slurm.submit(bed.users[0], _WAIT, "--mem=100", "-n1", "--gres=gpu:1")
    context.eventually(lambda metrics: equal("GPUs of jobs", metrics.total("jobledger_job_gpus"), 1))
    main = int(bed.run("systemctl show -p MainPID --value jobledger-exporter"))
    helpers = [int(word) for word in bed.run(f"cat /proc/{main}/task/*/children").split()]
    equal("children", len(helpers), 1)
    equal("its name", bed.run(f"cat /proc/{helpers[0]}/comm").strip(), "device-helper")

    def capabilities(pid):
        # All threads.
        status = bed.run(f"cat /proc/{pid}/task/*/status")
        return {name: set(re.findall(rf"Cap{name}:\s*(\w+)", status)) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}

    none, two = {f"{0:016x}"}, {f"{1 << 21 | 1 << 12:016x}"}
    equal("the exporter's capabilities", capabilities(main), dict.fromkeys(("Inh", "Prm", "Eff", "Bnd", "Amb"), none))
    equal("the helper's capabilities", capabilities(helpers[0]),
          {"Inh": none, "Prm": two, "Eff": two, "Bnd": two, "Amb": none})
    return helpers[0]


# Helpers


def _start(context, gpus, asked):
    """Starts a job per entry of `asked` (`gpu:2`) and waits until the GPUs are known: {job id: its GPUs}."""
    bed, slurm = context.bed, context.slurm
    jobids = slurm.submit_all([(user, _WAIT, ("--mem=100", "-n1", f"--gres={gres}"))
                               for user, gres in zip(bed.users, asked, strict=True)])
    slurm.wait_running(len(jobids))
    jobs = {jobid: gpus.of_minors(testbed.asked_for(bed, jobid)) for jobid in jobids}

    def know(metrics):
        for jobid, has in jobs.items():
            equal(f"job {jobid}", bound(metrics, jobid), ("device_program", names(has)))

    context.eventually(know)
    return jobs


def _read(bed):
    """A scrape with the times before and after it; jobs + unattributed = GPU is checked."""
    read = devices.timed(bed, bed.scrape)
    _check_sums(read.value)
    return read


def _later(bed, first, seconds=10):
    """Scrapes until the driver's reading is at least `seconds` after that of `first`. A reading takes long on an emulated
    machine, and the exporter then reads less often."""
    passed = 0
    while passed < seconds:
        time.sleep(1)
        last = _read(bed)
        expect(last.before - first.after < 180, f"no reading in {last.before - first.after} s")
        passed = _between_readings(first, last)[0]
    return last


def _check_sums(metrics):
    """For every counter of every GPU, jobs + unattributed = GPU."""
    prefix = "jobledger_gpu_unattributed_"
    counters = {name.removeprefix(prefix) for name, _, _ in metrics.samples if name.startswith(prefix)}
    expect({"busy_seconds_total", "energy_joules_total"} <= counters, f"counters: {counters}")
    for counter in counters:
        for labels, node in metrics.select(f"jobledger_gpu_{counter}"):
            unattributed = metrics.value(prefix + counter, **labels)
            close(f"{counter} {labels}: jobs + unattributed",
                  metrics.total(f"jobledger_job_gpu_{counter}", **labels) + unattributed, node, _ROUNDING)


def _gain(family, first, last, **labels):
    return last.value.total(family, **labels) - first.value.total(family, **labels)


def _job(gpu, counter, read, **labels):
    return read.value.total(f"jobledger_job_gpu_{counter}", uuid=gpu.uuid, **labels)


def _between_readings(first, last):
    """Bounds of the seconds between the readings of two scrapes, including the duration of the readings."""
    ages, took = ([read.value.value(f"jobledger_gpu_reading_{what}_seconds", vendor="nvidia") for read in (first, last)]
                  for what in ("age", "duration"))
    least, most = first.until(last)
    return least + ages[0] - ages[1] - sum(took), most + ages[0] - ages[1] + sum(took)


def _check_rates(gpu, first, last):
    """The GPU's counters grew at the simulated rates."""
    least, most = _between_readings(first, last)
    for counter, rate, slack in (("energy_joules_total", gpu.watts, 0), ("busy_seconds_total", gpu.busy, 2 * _SAMPLES),
                                 ("observed_seconds_total", 1, 0)):
        gained = _gain(f"jobledger_gpu_{counter}", first, last, uuid=gpu.uuid)
        expect(rate * (least - slack) <= gained <= rate * (most + slack),
               f"{gpu.uuid} {counter}: {gained}, not {rate} times {least} to {most}")


def _check_alone(jobid, gpu, first, last):
    """A job that had a GPU alone has all of its counts."""
    labels = {"jobid": jobid, "uuid": gpu.uuid}
    for counter in ("energy_joules_total", "busy_seconds_total"):
        close(f"{labels}: {counter}", _gain(f"jobledger_job_gpu_{counter}", first, last, method="alone", **labels),
              _gain(f"jobledger_gpu_{counter}", first, last, uuid=gpu.uuid), _ROUNDING)
    had, idle, busy = (_gain(f"jobledger_job_gpu_{counter}_seconds_total", first, last, **labels)
                       for counter in ("allocated", "idle", "busy"))
    least, most = first.until(last)
    expect(least <= had <= most, f"{labels}: allocated for {had} s, not {least} to {most}")
    observed = _gain("jobledger_gpu_observed_seconds_total", first, last, uuid=gpu.uuid)
    close(f"{labels}: busy + idle", busy + idle, observed, _ROUNDING)
    ratio = last.value.value("jobledger_job_gpu_utilization_ratio", **labels)
    expect(ratio is not None and 0 <= ratio <= 1, f"{labels}: utilization {ratio}")


def _check_short_job(context, free, first):
    """A job of one second on the free GPU. Readings may fall into it or not."""
    slurm = context.slurm
    jobid = slurm.submit(context.bed.users[1], "sleep 1", "--mem=100", "-n1", "--gres=gpu:1")
    slurm.wait_over([jobid])
    over = devices.uptime(context.bed)

    def exported(metrics):
        equal(f"job {jobid}", {labels["uuid"] for labels, _ in metrics.select("jobledger_job_gpu_info", jobid=jobid)},
              {free.uuid})
        # By one method or two: a reading may fall into its second.
        expect(metrics.total("jobledger_job_gpu_energy_joules_total", jobid=jobid), "no joules of the short job yet")

    context.eventually(exported)
    last = _read(context.bed)
    longest = over - first.before
    had = _job(free, "allocated_seconds_total", last, jobid=jobid)
    expect(1 <= had <= longest, f"job {jobid} of one second: had the GPU for {had} s, {longest} s at most")
    for counter, rate in (("energy_joules_total", free.watts), ("busy_seconds_total", free.busy)):
        spent = _job(free, counter, last, jobid=jobid)
        # In an interval that the job had only in part, it is unknown when the GPU was busy.
        least = 0 if counter.startswith("busy") else 0.5 * rate * had
        expect(least <= spent <= rate * (had + 2 * _GRACE + _SAMPLES), f"job {jobid}: {counter} {spent} in {had} s")
        close(f"{counter} of the free GPU: short job + unattributed",
              spent + _gain(f"jobledger_gpu_unattributed_{counter}", first, last, uuid=free.uuid),
              _gain(f"jobledger_gpu_{counter}", first, last, uuid=free.uuid), _ROUNDING)


def _check_growth(before, after):
    """No counter went back, and no time was counted twice: no counter of seconds grew by more than the time that passed."""
    seconds = before.until(after)[1] + before.value.value("jobledger_gpu_reading_age_seconds", vendor="nvidia")
    for name, labels, value in before.value.samples:
        if name.startswith(("jobledger_gpu_", "jobledger_job_gpu_")) and name.endswith("_total"):
            now = after.value.value(name, **labels)
            expect(now is not None and now >= value, f"{name} {labels} went from {value} to {now}")
            if name.endswith("_seconds_total"):
                expect(now - value <= seconds, f"{name} {labels} grew by {now - value} in {seconds} s")


class _shards:
    """Lets two jobs share each GPU, for a with block."""

    _FILES = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf"

    def __init__(self, context):
        self._bed = context.bed

    def __enter__(self):
        self._bed.run("\n".join(f"cp -p {file} {file}.kept" for file in self._FILES) + f"""
            sed -i 's/^GresTypes=gpu$/GresTypes=gpu,shard/; s/Gres=gpu:4/Gres=gpu:4,shard:8/' {self._FILES[0]}
            echo 'Name=shard Count=8' >> {self._FILES[1]}""")
        self._restart()

    def __exit__(self, *_):
        self._bed.slurm.cancel_all()
        self._bed.run("\n".join(f"mv {file}.kept {file}" for file in self._FILES))
        self._restart()

    def _restart(self):
        self._bed.run("systemctl restart slurmctld && systemctl restart slurmd")
        self._bed.wait_up(self._bed.nodes[0])

