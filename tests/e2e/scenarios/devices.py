"""Devices with known counts: jobs + unattributed = node, to the byte and to the microjoule."""

import contextlib
import dataclasses
import time

from testbed import beds, devices
from testbed.context import close, equal, expect, scenario
from testbed.processes import wait_for

_MIB = 1 << 20
_WAIT = "sleep 600"
_BUSY = "while :; do :; done"
# The exposition's text has microjoules.
_ROUNDING = 1e-6

# The names under test.
_CPU = "jobledger_job_cpu_seconds_total"
_NODE_ENERGY = "jobledger_node_energy_joules_total"
_UNATTRIBUTED_ENERGY = "jobledger_node_energy_unattributed_joules_total"
_JOB_ENERGY = "jobledger_job_energy_joules_total"
_IDLE_WATTS = 40
_ENERGY_MEGABYTES = 100
# Seconds that a job may run before SLURM sets its cpuset.
_UNBOUND_SECONDS = 0.05
_ENERGY_FLAGS = (f"--collector.energy.idle-watts=package={_IDLE_WATTS}",)


@dataclasses.dataclass(frozen=True, eq=False)
class Attributed:
    """A counter of the node that is attributed to a job while the job is alone on the node."""

    subject: str
    quantity: str
    labels: dict = dataclasses.field(default_factory=dict)

    def read(self, metrics):
        """(unattributed, {job id: charged}); together they are the node's total."""
        node = metrics.total(f"jobledger_node_{self.subject}_{self.quantity}", **self.labels)
        unattributed = metrics.total(f"jobledger_node_{self.subject}_unattributed_{self.quantity}", **self.labels)
        jobs = {}
        for labels, value in metrics.select(f"jobledger_job_{self.subject}_{self.quantity}", **self.labels):
            jobs[int(labels["jobid"])] = jobs.get(int(labels["jobid"]), 0) + value
        equal(f"{self}: jobs + unattributed", unattributed + sum(jobs.values()), node)
        return unattributed, {jobid: value for jobid, value in jobs.items() if value}


_INFINIBAND = (Attributed("infiniband", "received_bytes_total", {"device": "mlx5_0", "port": "1"}),
               Attributed("infiniband", "transmitted_bytes_total", {"device": "mlx5_0", "port": "1"}))
_NFS = (Attributed("nfs", "read_bytes_total"), Attributed("nfs", "written_bytes_total"))
_DISK = (Attributed("disk", "read_bytes_total", {"device": "vdb"}),
         Attributed("disk", "written_bytes_total", {"device": "vdb"}))
_NETWORK_FLAGS = ("--collector.network",)


# Energy


@scenario(beds.ONCE, unable=devices.no_devices)
def energy(context):
    """Joules: the node's are watts * seconds, also over a wrap; each job's follow from the CPUs it held and used."""
    bed, slurm = context.bed, context.slurm
    wrap_at = devices.uptime(bed) + 40
    # The counter of package-0, with 100 W, wraps in 40 seconds.
    with devices.rapl(bed, package=(100, 90), range_uj=int(wrap_at * 100e6)) as rapl, \
            context.exporter(*_ENERGY_FLAGS):
        jobids = slurm.submit_all([
            (bed.users[0], f"{_BUSY} &\n{_BUSY}", (f"--mem={_ENERGY_MEGABYTES}", "-n1", "-c2")),
            (bed.users[1], _BUSY, (f"--mem={_ENERGY_MEGABYTES}", "-n1"))])
        slurm.wait_running(2)
        context.eventually(lambda metrics: equal("jobs", metrics.running(), set(jobids)))
        # Energy is read at most once a second: an earlier scrape would get the joules of the one before.
        time.sleep(1.2)
        first = devices.timed(bed, bed.scrape)
        _check_energy_sums(first.value, rapl)
        short = devices.timed(bed, lambda: _short_job(context))
        last = first
        while last is first or devices.uptime(bed) < wrap_at + 2:
            time.sleep(3)
            last = devices.timed(bed, bed.scrape)
            _check_energy_sums(last.value, rapl)
        cpus, sockets = {jobid: slurm.cpus(jobid) for jobid in (*jobids, short.value)}, _sockets(bed)
        for (domain, socket), watts in rapl.watts.items():
            labels = {"domain": domain, "socket": socket}
            joules = _gain(_NODE_ENERGY, first, last, source="powercap", **labels)
            least, most = rapl.joules(domain, socket, first, last)
            expect(least <= joules <= most, f"node {labels}: {joules} J, while {watts} W make {least} to {most}")
            charged = {jobid: _gain(_JOB_ENERGY, first, last, jobid=jobid, **labels) for jobid in cpus}
            visit = watts * (short.after - short.before + 0.01)
            expect(0 <= charged[short.value] <= visit,
                   f"short job {labels}: {charged[short.value]} J, while it was there for {visit} J at most")
            unattributed = _gain(_UNATTRIBUTED_ENERGY, first, last, **labels)
            if domain == "package":
                for jobid in jobids:
                    spent = _gain(_CPU, first, last, jobid=jobid)
                    _check_package(f"job {jobid} {labels}", charged[jobid], first.until(last), watts,
                                   cpus[jobid], sockets[socket], spent)
                if not cpus[short.value] & sockets[socket]:
                    # SLURM sets a job's cpuset some milliseconds after it made the cgroup: until then it may run on any CPU.
                    expect(charged[short.value] <= watts * _UNBOUND_SECONDS,
                           f"short job {labels}, where it had no CPU: {charged[short.value]} J")
                # The idle power of CPUs that no job held is unattributed.
                free = sockets[socket] - set().union(*cpus.values())
                least = _IDLE_WATTS * len(free) / len(sockets[socket]) * first.until(last)[0]
            else:
                # A job cannot hold more memory than it may.
                held = _ENERGY_MEGABYTES / _megabytes(bed, socket)
                for jobid in jobids:
                    expect(0 <= charged[jobid] <= held * most,
                           f"job {jobid} {labels}: {charged[jobid]} J of {joules}, while it held {held} at most")
                least *= 1 - len(cpus) * held
            expect(unattributed >= least - _ROUNDING, f"unattributed {labels}: {unattributed} J, not at least {least}")
        for jobid in jobids:
            expect(_gain(_JOB_ENERGY, first, last, jobid=jobid, domain="dram") > 0, f"job {jobid}: no joule of memory")


def _short_job(context):
    """Runs a job to its end."""
    jobid = context.slurm.submit(context.bed.users[1], f"timeout 2 sh -c '{_BUSY}'", "-n1",
                                 f"--mem={_ENERGY_MEGABYTES}")
    context.slurm.wait_over([jobid])
    return jobid


def _gain(family, first, last, **labels):
    return last.value.total(family, **labels) - first.value.total(family, **labels)


def _check_energy_sums(metrics, rapl):
    """For every domain of every socket, jobs + unattributed = node. A domain within another one is not attributed."""
    for domain, socket in rapl.watts:
        labels = {"domain": domain, "socket": socket}
        node = metrics.value(_NODE_ENERGY, source="powercap", **labels)
        expect(node is not None, f"no energy of {labels}")
        unattributed, jobs = (metrics.total(family, **labels) for family in (_UNATTRIBUTED_ENERGY, _JOB_ENERGY))
        close(f"{labels}: jobs + unattributed", jobs + unattributed, node, _ROUNDING)
    for family in (_UNATTRIBUTED_ENERGY, _JOB_ENERGY):
        equal(f"{family} of cores, which the package includes", metrics.select(family, domain="core"), [])


def _check_package(what, charged, seconds, watts, cpus, of_socket, spent):
    """A job has the idle power of its CPUs, and of the remaining power at least its part of the socket's CPU time."""
    held = cpus & of_socket
    if not held:
        equal(f"{what}, where it has no CPU", charged, 0)
        return
    least, most = (_IDLE_WATTS * len(held) / len(of_socket) * limit for limit in seconds)
    if held == cpus:
        # CPU time and energy are not read at the same moment.
        least += (watts - _IDLE_WATTS) * (0.9 * spent / len(of_socket) - 1)
    most += (watts - _IDLE_WATTS) * seconds[1]
    expect(least <= charged <= most, f"{what}: {charged} J, not {least} to {most}")


def _megabytes(bed, node):
    """The memory of a NUMA node, which is the socket of the same number, in MiB."""
    return int(bed.run(f"grep MemTotal /sys/devices/system/node/node{node}/meminfo").split()[3]) >> 10


def _sockets(bed):
    """{socket: its CPUs}."""
    found = {}
    for line in bed.run("grep . /sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id").splitlines():
        path, socket = line.split(":")
        found.setdefault(int(socket), set()).add(int(path.split("/")[5].removeprefix("cpu")))
    return found


# Jobs that are alone on the node


class _Ledger:
    """The expected attribution, step by step. `move(mebibytes)` makes the device count them in each direction."""

    def __init__(self, context, quantities, move):
        self._context = context
        self._quantities = quantities
        self._move = move
        self._start = {quantity: quantity.read(context.bed.scrape())[0] for quantity in quantities}
        # Possible attributions: (unattributed bytes, {job id: bytes}).
        self._states = [(0, {})]

    def move(self, mebibytes, jobid=None, or_unattributed=False):
        """Moves data that is to be attributed to a job, or unattributed if None, or either of both. Does not scrape."""
        self._move(mebibytes)
        amount = mebibytes * _MIB
        owners = {jobid, None} if or_unattributed else {jobid}
        self._states = [(rest + amount, jobs) if owner is None else
                        (rest, jobs | {owner: jobs.get(owner, 0) + amount})
                        for rest, jobs in self._states for owner in owners]

    def check(self, jobs=None):
        """A scrape has all that was moved. With `jobs`, waits for a scrape with exactly these running jobs."""
        def right(metrics):
            if jobs is not None:
                equal("running jobs", metrics.running(), set(jobs))

        metrics = self._context.eventually(right)
        for quantity in self._quantities:
            unattributed, of_jobs = quantity.read(metrics)
            found = (unattributed - self._start[quantity], of_jobs)
            expect(found in self._states, f"{quantity}: unattributed and by job: {found}, not one of {self._states}")
            self._states = [found]


def _alone_and_together(context, quantities, move):
    """A job is alone on the node, shares it with a second job, then with a short job between two scrapes, and ends."""
    bed, slurm = context.bed, context.slurm
    ledger = _Ledger(context, quantities, move)
    ledger.move(1)
    ledger.check([])
    first = slurm.submit(bed.users[0], _WAIT, "--mem=100")
    slurm.wait_running(1)
    ledger.check([first])
    ledger.move(2, first)
    ledger.check()
    second = slurm.submit(bed.users[1], _WAIT, "--mem=100")
    slurm.wait_running(2)
    ledger.check([first, second])
    ledger.move(3)
    ledger.check()
    bed.run(f"scancel {second}")
    ledger.check([first])
    # Unattributed if the exporter reads late after the short job's start: part of it could be the short job's.
    ledger.move(1, first, or_unattributed=True)
    with _short_guest(context):
        ledger.move(2)
    ledger.move(1, first)
    ledger.check([first])
    slurm.cancel_all()
    ledger.check([])
    ledger.move(1)
    ledger.check([])
    return ledger


@contextlib.contextmanager
def _short_guest(context):
    """A job that runs for a with block. There is no scrape meanwhile: the exporter has to notice it by itself."""
    jobid = context.slurm.submit(context.bed.users[1], _WAIT, "--mem=100")
    wait_for("the short job", lambda: context.slurm.job(jobid)["JobState"] == "RUNNING", 180)
    # The exporter is notified at once, and reads when it gets a CPU.
    time.sleep(3)
    yield
    context.bed.run(f"scancel {jobid}")
    context.slurm.wait_over([jobid])
    wait_for("the short job's processes to end", lambda: not context.bed.run("squeue -h -t CG -o %i").split(), 180)
    time.sleep(3)


@scenario(beds.ONCE, unable=devices.no_devices)
def infiniband(context):
    """A port's bytes are attributed to a job that is alone on the node; the port may disappear and come back."""
    with devices.infiniband(context.bed) as adapters, context.exporter():
        ledger = _alone_and_together(context, _INFINIBAND, lambda mebibytes: adapters.move(
            received=mebibytes * _MIB, transmitted=mebibytes * _MIB))
        adapters.unplug()
        context.bed.scrape()
        adapters.plug()
        ledger.check()
        ledger.move(1)
        ledger.check()


@scenario(beds.ONCE, unable=devices.no_devices)
def nfs(context):
    """Bytes written to and read from an NFS server."""
    bed = context.bed
    with devices.nfs(bed) as mount, context.exporter():
        _alone_and_together(context, _NFS, lambda mebibytes: bed.run(
            f"{devices.write_file(f'{mount}/file', mebibytes)}; {devices.read_file(f'{mount}/file', mebibytes)}"))


@scenario(beds.ONCE, unable=devices.no_devices)
def disk(context):
    """Bytes written to and read from a disk."""
    bed = context.bed
    path = f"/dev/{bed.spare_disk}"
    with context.exporter():
        _alone_and_together(context, _DISK, lambda mebibytes: bed.run(
            f"{devices.write_file(path, mebibytes)}; {devices.read_file(path, mebibytes)}"))


# Network


def _no_job_network(bed):
    if bed.cgroup == "v1":
        return "the kernel runs programs on packets only for cgroup v2"
    return devices.no_devices(bed)


@scenario(beds.ONCE, unable=_no_job_network)
def network(context):
    """Each job has the bytes that it sent and received, loopback separately, however short it is."""
    bed, slurm = context.bed, context.slurm
    sent, answered, to_itself = 1000, 300, 500
    counts = {}
    with devices.veth(bed) as cable, context.exporter(*_NETWORK_FLAGS):
        for user, count, after in ((0, 100, _WAIT), (1, 250, _WAIT), (1, 70, "")):
            away = cable.ask(count, sent, answered)
            near = cable.ask(count, to_itself, to_itself, address=cable.loopback)
            counts[slurm.submit(bed.users[user], f"{away}\n{near}\n{after}", "--mem=100", "-n1")] = count
        slurm.wait_over([max(counts)])

        def check(metrics):
            for kind in ("received", "transmitted", "loopback"):
                node, unattributed, jobs = (metrics.total(f"jobledger_{of}_{kind}_bytes_total") for of in (
                    "node_slurm_network", "node_slurm_network_unattributed", "job_network"))
                equal(f"{kind}: jobs + unattributed", jobs + unattributed, node)
            for jobid, count in counts.items():
                _check_datagrams(metrics, "received", jobid, count, answered)
                _check_datagrams(metrics, "transmitted", jobid, count, sent)
                # Loopback is counted once. slurmstepd also uses it to talk to slurmctld for the job.
                _check_datagrams(metrics, "loopback", jobid, count, to_itself, besides=_MIB)

        context.eventually(check, timeout=120)


def _check_datagrams(metrics, kind, jobid, count, size, besides=0):
    """`count` datagrams were counted, with their IP and UDP headers."""
    counted = metrics.value(f"jobledger_job_network_{kind}_bytes_total", jobid=jobid)
    wanted = count * (size + 28)
    expect(counted is not None and wanted <= counted <= wanted + besides,
           f"job {jobid}: {counted} bytes {kind}, while {count} datagrams of {size} went, {wanted} bytes with headers")
