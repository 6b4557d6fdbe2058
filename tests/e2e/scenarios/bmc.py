"""The node's power from its BMC: the kernel's own driver, an emulated BMC (testbed/bmc.py)."""

import pathlib
import time

from testbed import bmc as controllers
from testbed import beds, devices
from testbed.context import close, equal, expect, scenario

_ENERGY = "jobledger_node_energy_joules_total"
_WATTS = "jobledger_node_power_watts"
_ZONE = "jobledger_node_energy_zone_info"
_STATUS = "jobledger_exporter_collector_status_info"
_IPMI = {"domain": "node", "source": "ipmi"}
# The BMC is asked at most so often. The bed's clock and this machine's differ a little.
_PAUSE, _CLOCKS = 5, 0.2
# Seconds that an answer may be old in a scrape, and what a node draws in them is not known to either side.
_OLD = 12
_SECONDS = 25
_ROUNDING = 1e-6


@scenario(beds.ONCE, unable=devices.no_devices, seconds=300)
def bmc(context):
    """The node's power is the BMC's and its joules are watts * seconds; what is no reading is absent, with the reason; the BMC is
    asked at most every 5 s; Lenovo's count of energy is exact. The helper alone has the device, and no other question passes it."""
    bed = context.bed
    with controllers.emulated(bed) as controller, devices.rapl(bed):
        with context.exporter():
            _check_holders(context.bed, "jobledger-exporter")
            _power(context, controller)
            _silence(context, controller)
            _no_readings(context, controller)
            _check_pauses(controller)
        _attack(bed, controller)
        controller.manufacturer, controller.millijoules = controllers.LENOVO, 5_000_000_250
        with context.exporter():
            _energy(context, controller)
            _helper_ends(context)
        _drop_in(bed)


def _zone(metrics, estimated):
    zones = [labels for labels, _ in metrics.select(_ZONE, source="ipmi")]
    equal("zones of the BMC", [(zone["domain"], zone["estimated"]) for zone in zones], [("node", estimated), ("overhead", estimated)])
    equal("what the BMC is", zones[0]["standing"], "node_total")


def _measures(watts):
    def check(metrics):
        equal("watts", metrics.value(_WATTS, **_IPMI), watts)
        equal("the collector's success", metrics.value("jobledger_exporter_collector_success", collector="energy"), 1)
    return check


def _measures_nothing(reason):
    def check(metrics):
        for family in (_WATTS, _ENERGY):
            equal(f"{family} of the BMC", metrics.select(family, **_IPMI), [])
        details = [labels["detail"] for labels, _ in metrics.select(_STATUS, collector="energy")]
        expect(any(reason in detail for detail in details), f"not {reason!r} but {details}")
        # RAPL is not late for it.
        equal("packages", len(metrics.select(_ENERGY, source="powercap", domain="package")), 2)
    return check


def _joules(context):
    def read():
        joules = context.bed.scrape().value(_ENERGY, **_IPMI)
        expect(joules is not None, "no energy of the BMC")
        return joules
    return devices.timed(context.bed, read)


def _check_overhead(context, first, last, watts):
    """What the BMC counts is packages, memory and overhead, but for the time since all were read together."""
    def parts(metrics):
        joules = [value for domain in ("package", "dram", "overhead") for _, value in metrics.select(_ENERGY, domain=domain)]
        return sum(joules) - metrics.value("jobledger_node_energy_overhead_deficit_joules")
    gained = parts(last) - parts(first)
    node = last.value(_ENERGY, **_IPMI) - first.value(_ENERGY, **_IPMI)
    expect(abs(gained - node) <= watts * 2 * _OLD, f"packages, memory and overhead have {gained} J of {node}")


def _check_gain(what, first, last, watts):
    joules = last.value - first.value
    least, most = first.until(last)
    least, most = watts * (least - _OLD), watts * (most + _OLD)
    expect(least <= joules <= most, f"{what}: {joules} J, not {least} to {most}")


def _power(context, controller):
    context.eventually(_measures(300))
    _zone(context.bed.scrape(), "true")
    for watts in (300, 65):
        controller.watts = watts
        context.eventually(_measures(watts))
        before = context.bed.scrape()
        first = last = _joules(context)
        while first.until(last)[0] < _SECONDS:
            time.sleep(_PAUSE)
            last = _joules(context)
        _check_gain(f"{watts} W", first, last, watts)
        _check_overhead(context, before, context.bed.scrape(), max(watts, 300))


def _silence(context, controller):
    before = _joules(context)
    controller.silent = True
    context.eventually(_measures_nothing("no answer within 2 s"))
    silence = devices.uptime(context.bed)
    while devices.uptime(context.bed) < silence + _SECONDS:
        _measures_nothing("DCMI Get Power Reading")(context.bed.scrape())
        time.sleep(_PAUSE)
    controller.silent = False
    context.eventually(_measures(controller.watts))
    gained = _joules(context).value - before.value
    expect(0 <= gained <= controller.watts * 2 * _OLD, f"{gained} J for a time without readings")


def _no_readings(context, controller):
    for wrong, right, reason in (
            ({"watts": 0}, {"watts": 65}, "0 W"),
            ({"watts": 65535}, {"watts": 65}, "65535 W"),
            ({"refuses": controllers.INVALID_COMMAND}, {"refuses": 0}, "completion code 0xc1"),
            ({"delay": 3}, {"delay": 0}, "no answer within 2 s"),
            ({"behind": 3600}, {"behind": 0}, "the time stamp went back")):
        vars(controller).update(wrong)
        context.eventually(_measures_nothing(reason))
        vars(controller).update(right)
        context.eventually(_measures(65))


def _check_pauses(controller):
    times = controller.times(controllers.POWER_READING)
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    expect(len(pauses) >= 10, f"the BMC was asked {len(times)} times")
    expect(min(pauses) >= _PAUSE - _CLOCKS, f"the BMC was asked after {min(pauses)} s")


def _energy(context, controller):
    def counted(joules):
        return lambda metrics: close("joules", metrics.value(_ENERGY, **_IPMI), joules, _ROUNDING)
    context.eventually(counted(0))
    _zone(context.bed.scrape(), "false")
    for millijoules in (1, 1_000_000):
        before = context.bed.scrape().value(_ENERGY, **_IPMI)
        controller.millijoules += millijoules
        context.eventually(counted(before + millijoules / 1000))
    equal("watts of a counter", context.bed.scrape().select(_WATTS, **_IPMI), [])


def _holders(bed, unit):
    """The unit's exporter and its children: {pid: whether it has the device open}."""
    main = int(bed.run(f"systemctl show -p MainPID --value {unit}"))
    pids = [main, *(int(word) for word in bed.run(f"cat /proc/{main}/task/*/children").split())]
    return main, {pid: "/dev/ipmi0" in bed.run(f"readlink /proc/{pid}/fd/* || true").split() for pid in pids}


def _check_holders(bed, unit):
    """The helper has the device and is confined, the exporter has it not; the helper's pid."""
    main, holders = _holders(bed, unit)
    helpers = [pid for pid in holders if bed.run(f"cat /proc/{pid}/comm").strip() == "bmc-helper"]
    equal("who has the device open", holders, {pid: pid in helpers for pid in holders})
    equal("helpers", (len(helpers), main in helpers), (1, False))
    status = dict(line.split(":", 1) for line in bed.run(f"cat /proc/{helpers[0]}/status").splitlines())
    equal("the helper's filter and capabilities", [status[key].strip() for key in ("Seccomp", "CapPrm", "CapEff", "CapBnd")],
          ["2", *[f"{0:016x}"] * 3])
    expect("0" not in status["Uid"].split(), f"the helper is root: {status['Uid']}")
    equal("descriptors of the helper", len(bed.run(f"ls /proc/{helpers[0]}/fd").split()), 2)
    return helpers[0]


def _attack(bed, controller):
    """Somebody who took the exporter over can neither flood the BMC nor send it anything else."""
    script, seconds = f"{bed.inside}/bmc_attack.py", 12
    bed.agent.put(script, pathlib.Path(controllers.__file__).with_name("bmc_attack.py").read_bytes(), 0o755)
    # The driver's own questions at the start of the module are no part of it.
    before = len(controller.asked)
    words = bed.run(f"python3 -B {script} /opt/testbed/jobledger-exporter {seconds}").split()
    asked = [question for _, question in list(controller.asked)[before:]]
    ids, anew_ids, powers, anew_powers, energies, _ = map(int, words)
    most = seconds // _PAUSE + 1
    expect(min(ids, powers) > 10 * most, f"no flood: {ids} and {powers} questions")
    expect(1 <= anew_ids <= most and 1 <= anew_powers <= most, f"asked {anew_ids} and {anew_powers} times in {seconds} s")
    equal("answers to Lenovo's question", energies, 0)
    equal("questions at the BMC", (asked.count(controllers.DEVICE_ID), asked.count(controllers.POWER_READING)), (anew_ids, anew_powers))
    equal("other questions at the BMC", set(asked) - {controllers.DEVICE_ID, controllers.POWER_READING}, set())


def _helper_ends(context):
    """Without its helper the exporter serves on, and says why there is no power."""
    _, holders = _holders(context.bed, "jobledger-exporter")
    context.bed.run(f"kill -KILL {next(pid for pid, has in holders.items() if has)}")
    context.eventually(_measures_nothing("the BMC helper ended"))


_UNIT = """[Service]
Type=notify
User=jobledger
Group=jobledger
CapabilityBoundingSet=
ExecStart=/opt/testbed/jobledger-exporter --web.listen-address=127.0.0.1:9999
"""


def _drop_in(bed):
    """By the packages' drop-in the device belongs to the exporter's group until the helper has it, and root alone has it then."""
    name, units = "testbed-bmc", "/run/systemd/system"
    drop_in = pathlib.Path(__file__).resolve().parents[3] / "packaging/systemd/drop-ins/bmc.conf"
    bed.run(f"getent passwd jobledger || useradd --system --user-group jobledger; mkdir -p {units}/{name}.service.d")
    bed.agent.put(f"{units}/{name}.service", _UNIT.encode(), 0o644)
    bed.agent.put(f"{units}/{name}.service.d/bmc.conf", drop_in.read_bytes(), 0o644)
    try:
        bed.run(f"systemctl daemon-reload && systemctl start {name}")
        _check_holders(bed, name)
        equal("the device", bed.run("stat -c '%U:%G %a' /dev/ipmi0").strip(), "root:root 600")
        expect(bed.agent.call("setpriv --reuid=jobledger --regid=jobledger --init-groups cat /dev/ipmi0")[0] != 0, "it can be opened")
    finally:
        bed.run(f"systemctl stop {name}; rm -r {units}/{name}.service {units}/{name}.service.d; systemctl daemon-reload")
