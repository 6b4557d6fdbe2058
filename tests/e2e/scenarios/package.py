"""The Debian package under real systemd beside real SLURM: installed, scraped, upgraded, run with its drop-ins, removed."""

import time

from testbed import beds, devices
from testbed import gpus as testbed
from testbed.context import equal, expect, scenario
from testbed.package import DROP_INS, NAME, SETTINGS, SHARE, UNIT, installed, no_package
from testbed.processes import Failure, wait_for

from .bindings import bound, names

_BUSY = "while :; do :; done"
_REST = "while :; do sleep 0.05; done"
_SUCCESS = "jobledger_exporter_collector_success"
_CAP = {"net_admin": 1 << 12, "sys_ptrace": 1 << 19, "sys_admin": 1 << 21, "dac_read_search": 1 << 2, "perfmon": 1 << 38,
        "bpf": 1 << 39}
_NONE = {"Prm": 0, "Eff": 0, "Bnd": 0, "Amb": 0}
_JOULES, _HELD = "jobledger_job_energy_joules_total", "jobledger_job_allocated_cpu_seconds_total"
_NODE_JOULES = "jobledger_node_energy_joules_total"
_UNATTRIBUTED_JOULES = "jobledger_node_energy_unattributed_joules_total"
_LEVEL = "/proc/sys/kernel/perf_event_paranoid"


def _metered_packages(bed):
    return no_package(bed) or devices.no_devices(bed)


@scenario(beds.ONCE, unable=_metered_packages, seconds=400)
def package(context):
    """The installed service has no capability and exports a job's CPU time and owner; orders and settings work; accounts go on over an
    upgrade; purge removes it."""
    bed = context.bed
    with installed(context) as service:
        equal("state", (service.property("ActiveState"), service.property("UnitFileState")), ("active", "enabled"))
        user = bed.run(f"ps -o user= -p {service.property('MainPID')}").strip()
        equal("its user", user, "jobledger")
        equal("its capabilities", service.capabilities(), _NONE)
        _check_check(bed)
        files = service.files()
        expect(f"{SHARE}/systemd/perf.conf" in files, f"files: {files}")
        _check_job(context)
        _check_orders(bed)
        _check_settings(bed, service)
        _check_upgrade(context, service)
        _check_removal(bed, service, files)


def _check_check(bed):
    """docs/install.md: --check reports for the user who runs it."""
    for command, capabilities in ((f"runuser -u jobledger -- {NAME}", "without capabilities"), (NAME, "with all capabilities")):
        last = bed.run(f"PATH=$PATH:/usr/sbin:/sbin; {command} --check 2>/dev/null || true").splitlines()[-1]
        user = "jobledger" if "runuser" in command else "root"
        expect(last.startswith(f"Looked as {user} (uid ") and capabilities in last, f"last line: {last!r}")


def _check_job(context):
    """With links to the package's prolog and epilog."""
    bed, slurm = context.bed, context.slurm
    for part in ("prolog", "epilog"):
        bed.run(f"ln -s {SHARE}/slurm/{part}.d/jobledger.sh /etc/slurm/{part}.d/50-jobledger")
    try:
        jobid = slurm.submit(bed.users[0], _BUSY, "--mem=100", "-n1", "--account=physics")
        slurm.wait_running(1)

        def check(metrics):
            infos = [labels for labels, _ in metrics.select("jobledger_job_info", jobid=jobid)]
            equal("series of the job", len(infos), 1)
            info = infos[0]
            equal("the job's owner and account", (info["uid"], info["user"], info["account"]),
                  (str(bed.users[0].uid), bed.users[0].name, "physics"))
            spent = metrics.total("jobledger_job_cpu_seconds_total", jobid=jobid)
            expect(spent > 1, f"{spent} CPU seconds of a busy job")

        metrics = context.eventually(check, timeout=120)
        denied = {labels["collector"] for labels, count in metrics.select(
            "jobledger_exporter_collector_errors_total", reason="denied") if count}
        # On cgroup v2 the jobs of GPUs are unknown without gpu-binding.conf.
        equal("denied collectors, except gpu", denied - {"gpu"}, set())
        slurm.cancel_all()
        output = bed.run(f"sh /var/lib/dpkg/info/{NAME}.prerm remove 2>&1; systemctl start {UNIT}")
        expect("/etc/slurm/prolog.d still names" in output, f"no warning of the prolog: {output!r}")
    finally:
        slurm.cancel_all()
        bed.run("rm -f /etc/slurm/*.d/50-jobledger")


def _check_orders(bed):
    """Root can give orders, other users cannot."""
    wait_for("the service", lambda: bed.scrape().samples, 60)
    status = bed.run(f"{NAME} counters status")
    expect(status.startswith("held"), f"counters status: {status!r}")
    refused = bed.agent.call(bed.slurm.as_user(bed.users[0]) + f" {NAME} counters status")
    expect(refused[0] != 0, f"a user may give orders: {refused}")


def _check_settings(bed, service):
    bed.run(f"echo 'ARGS=\"--web.telemetry-path=/metrics --jobs.steps\"' > {SETTINGS}")
    service.restart()
    line = bed.run(f"tr '\\0' ' ' < /proc/{service.property('MainPID')}/cmdline")
    expect("--jobs.steps" in line, f"command line: {line}")
    bed.run(f"systemctl reload {UNIT}")
    equal("state after a reload", service.property("ActiveState"), "active")
    bed.run(f"echo ARGS=--nonsense > {SETTINGS}; systemctl restart {UNIT} || true")
    equal("after a wrong flag", [service.property(name) for name in ("ActiveState", "ExecMainStatus", "NRestarts")],
          ["failed", "64", "0"])
    bed.run(f"echo 'ARGS=\"--jobs.steps\"' > {SETTINGS}")
    service.restart()


def _check_upgrade(context, service):
    """The accounts go on: the joules and the CPU time of a running job, and the end of another one."""
    bed, slurm = context.bed, context.slurm
    with devices.rapl(bed) as rapl, service.linked("energy-powercap", flags=("--jobs.retention=1h",)):
        running = slurm.submit(bed.users[0], _BUSY, "--mem=100", "-n1")
        slurm.wait_running(1)

        def counted(metrics):
            for name in (_JOULES, _HELD):
                expect(metrics.total(name, jobid=running) > 0, f"{name}: nothing")

        context.eventually(counted, timeout=120)
        # Energy is read at most once a second: an earlier scrape would get the joules of the one before.
        time.sleep(1.2)
        before = devices.timed(bed, bed.scrape)
        ended = slurm.submit(bed.users[1], "sleep 1", "--mem=100", "-n1")
        slurm.wait_over([ended])
        pid = service.property("MainPID")
        service.upgrade()
        expect(service.version().endswith("+later"), f"version {service.version()}")
        expect(service.property("MainPID") != pid, "an upgrade leaves the old exporter running")
        expect("--jobs.retention" in bed.run(f"cat {SETTINGS}"), "an upgrade undoes the admin's settings")
        context.eventually(lambda metrics: counted(metrics) or expect(
            metrics.value("jobledger_job_end_time_seconds", jobid=ended) is not None, f"the end of job {ended} is lost"))
        time.sleep(1.2)
        after = devices.timed(bed, bed.scrape)
        _check_accounts(before, after, running, rapl)
        slurm.cancel_all()


def _check_accounts(before, after, running, rapl):
    """Two scrapes with an upgrade between them."""
    old, new = before.value, after.value
    states = [labels["outcome"] for labels, _ in new.select("jobledger_exporter_state_info")]
    equal("what was found of the state", states, ["restored"])
    for name, labels in (("jobledger_job_start_time_seconds", {"jobid": running}),
                         ("jobledger_exporter_counting_start_time_seconds", {})):
        equal(name, new.value(name, **labels), old.value(name, **labels))
    # The time of the upgrade is in it, too.
    least, most = before.until(after)
    held = new.total(_HELD, jobid=running) - old.total(_HELD, jobid=running)
    cpus = new.value("jobledger_job_cpus", jobid=running)
    expect(least * cpus - 1 <= held <= most * cpus + 1, f"the job had {held} CPU seconds in {least} to {most} s with {cpus} CPUs")
    for (domain, socket), _ in rapl.watts.items():
        place = {"domain": domain, "socket": socket}
        gains = [new.total(name, **place) - old.total(name, **place) for name in (_NODE_JOULES, _UNATTRIBUTED_JOULES, _JOULES)]
        least, most = rapl.joules(domain, socket, before, after)
        expect(least <= gains[0] <= most, f"node {place}: {gains[0]} J of {least} to {most}")
        expect(abs(gains[0] - gains[1] - gains[2]) < 0.01, f"{place}: {gains} J of the node, unattributed, of jobs")
    joules = new.total(_JOULES, jobid=running) - old.total(_JOULES, jobid=running)
    expect(joules > 0, f"the job had {joules} J")


def _check_removal(bed, service, files):
    bed.run(f"mkdir -p {DROP_INS}; ln -s {SHARE}/systemd/no-devices.conf {DROP_INS}/")
    service.remove()
    equal("state", service.property("ActiveState"), "inactive")
    there = set(bed.run(f"ls -d {' '.join(files)} 2>/dev/null || true").split())
    equal("what is left when it is removed", there, {SETTINGS})
    service.remove(purge=True)
    places = f"{' '.join(files)} {DROP_INS} /run/jobledger /run/jobledger-exporter"
    equal("what is left when it is purged", bed.run(
        f"ls -d {places} 2>/dev/null; find /etc /var/lib/systemd -name '*jobledger*'"), "")


def _v2_only(bed):
    return no_package(bed) or devices.no_devices(bed) or (
        None if bed.cgroup == "v2" else "networks and GPUs of jobs are exported on cgroup v2 only")


@scenario(beds.ONCE, unable=_v2_only, by_name=True, seconds=400)
def package_drop_ins(context):
    """Each collector works with its drop-in and is denied without it; the exporter keeps only the documented capabilities."""
    with installed(context) as service:
        for check in (_energy, _network, _counters, _gpus, _processes, _debugfs):
            check(context, service)
            context.slurm.cancel_all()


def _succeeds(metrics, collector):
    equal(f"{collector} succeeds", metrics.value(_SUCCESS, collector=collector), 1)


def _energy(context, service):
    bed = context.bed
    node = "jobledger_node_energy_joules_total"
    with devices.rapl(bed):
        with service.linked():
            metrics = context.eventually(lambda metrics: equal("energy succeeds", metrics.value(
                _SUCCESS, collector="energy"), 0))
            equal("joules without the drop-in", metrics.select(node, source="powercap"), [])
        with service.linked("energy-powercap"):
            context.eventually(lambda metrics: expect(metrics.total(node, source="powercap", domain="package") > 0,
                                                      "no joules"))
            equal("capabilities that are kept", service.capabilities(), _NONE)
        # The running exporter keeps the module's files open.
        bed.run(f"systemctl stop {UNIT}")


def _network(context, service):
    bed, slurm = context.bed, context.slurm
    with service.linked("network"):
        jobid = slurm.submit(bed.users[0], "for i in $(seq 50); do echo x > /dev/udp/127.0.0.1/9; done; sleep 600",
                             "--mem=100", "-n1")
        slurm.wait_running(1)

        def check(metrics):
            _succeeds(metrics, "network")
            sent = metrics.total("jobledger_job_network_loopback_packets_total", jobid=jobid)
            expect(sent >= 50, f"{sent} packets of 50")

        context.eventually(check, timeout=120)
        kept = _CAP["bpf"] | _CAP["net_admin"]
        equal("capabilities", service.capabilities(), {"Prm": kept, "Eff": kept, "Bnd": kept, "Amb": 0})


def _counters(context, service):
    bed, slurm = context.bed, context.slurm
    before = bed.run(f"cat {_LEVEL}").strip()
    bed.run(f"echo 2 > {_LEVEL}")
    try:
        with service.linked("perf"):
            jobid = slurm.submit(bed.users[0], _REST, "--mem=100", "-n1")
            slurm.wait_running(1)
            context.eventually(lambda metrics: expect(metrics.total(
                "jobledger_job_context_switches_total", jobid=jobid) > 10, "no switches"), timeout=120)
            equal("capabilities", service.capabilities()["Prm"], _CAP["perfmon"])
            # As the prolog of hwperf does.
            bed.run(f"{NAME} counters yield")
            status = bed.run(f"{NAME} counters status")
            expect(status.startswith("yielded"), f"counters status: {status!r}")
    finally:
        bed.run(f"echo {before} > {_LEVEL}")


def _gpus(context, service):
    bed, slurm = context.bed, context.slurm
    with testbed.fake(bed) as gpus:
        with service.linked(flags=gpus.flags):
            jobid = slurm.submit(bed.users[0], "sleep 600", "--mem=100", "-n1", "--gres=gpu:1")
            slurm.wait_running(1)
            metrics = context.eventually(lambda metrics: equal(
                "GPUs", metrics.total("jobledger_gpu_up"), len(gpus.all)), timeout=120)
            equal("the job's GPUs without the drop-in", bound(metrics, jobid), None)
        with service.linked("gpu-binding", flags=gpus.flags):
            has = gpus.of_minors(testbed.asked_for(bed, jobid))
            context.eventually(lambda metrics: equal(f"job {jobid}", bound(metrics, jobid),
                                                     ("device_program", names(has))), timeout=120)
            # Emptying the bounding set needs CAP_SETPCAP, so it is the drop-in's; with no_new_privs it has no effect.
            equal("capabilities of the exporter", service.capabilities(),
                  _NONE | {"Bnd": _CAP["sys_admin"] | _CAP["net_admin"]})


def _processes(context, service):
    bed, slurm = context.bed, context.slurm
    with service.linked("procio"):
        jobid = slurm.submit(bed.users[1], "dd if=/dev/zero of=/dev/null bs=1M count=50; sleep 600", "--mem=100", "-n1")
        slurm.wait_running(1)

        def check(metrics):
            _succeeds(metrics, "procio")
            read = metrics.total("jobledger_job_process_syscall_read_bytes_total", jobid=jobid)
            expect(read >= 50 << 20, f"{read} bytes read of 50 MiB")

        context.eventually(check, timeout=120)
        kept = _CAP["sys_ptrace"] | _CAP["dac_read_search"]
        equal("capabilities", service.capabilities(), {"Prm": kept, "Eff": kept, "Bnd": kept, "Amb": 0})
        hidden = bed.agent.call(f"nsenter -m -t {service.property('MainPID')} cat /etc/shadow")
        expect(not hidden[1], "/etc/shadow is readable to the service")


def _debugfs(context, service):
    """Lustre itself is missing, but its statistics would be in debugfs."""
    bed = context.bed
    look = "setpriv --reuid=jobledger --regid=jobledger --clear-groups ls /sys/kernel/debug"
    bed.run("mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")
    expect(bed.agent.call(look)[0] != 0, "debugfs is open to the exporter without the drop-in")
    try:
        with service.linked("lustre"):
            expect(bed.agent.call(look)[0] == 0, "debugfs is closed with the drop-in")
            other = bed.agent.call(bed.slurm.as_user(bed.users[0]) + " ls /sys/kernel/debug")
            expect(other[0] != 0, "debugfs is open to everybody with the drop-in")
    finally:
        bed.run("mount -o remount,mode=0700,gid=0 /sys/kernel/debug; umount /sys/kernel/debug || true")


@scenario(beds.ONCE, unable=lambda bed: no_package(bed) or devices.no_devices(bed), by_name=True)
def package_dead_server(context):
    """The unit starts while an NFS server hangs, also for /home, and does not hold an unmounted file system."""
    bed = context.bed
    with devices.nfs(bed) as mount, installed(context) as service:
        # A site's /home is mounted before the service starts.
        bed.run(f"mkdir -p /home; mount --bind {mount} /home")
        try:
            service.restart()
            bed.run("umount /home")
            mounts = bed.run(f"cat /proc/{service.property('MainPID')}/mounts")
            expect(" /home " not in mounts, f"/home is held: {mounts}")
            bed.run(f"mount --bind {mount} /home; rpc.nfsd 0")
            # Until the kernel's cached attributes of the directory expire.
            bed.run("sleep 65", timeout=120)
            answer = bed.agent.call(f"timeout -s KILL 5 stat {mount}/.", timeout=60)
            if answer[0] == 0:
                raise Failure("the NFS server does not hang")
            service.restart()
            bed.scrape()
        finally:
            bed.run("rpc.nfsd --grace-time 1 --lease-time 10 2; umount -l /home")
