"""The node's power from its BMC: the kernel's own driver, an emulated BMC (testbed/bmc.py)."""

import time

from testbed import bmc as controllers
from testbed import devices
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
_SECONDS = 40
_ROUNDING = 1e-6


@scenario(unable=devices.no_devices)
def bmc(context):
    """The node's power is the BMC's and its joules are watts * seconds; what is no reading is absent, with the reason; the BMC is
    asked at most every 5 s; Lenovo's count of energy is exact."""
    bed = context.bed
    with controllers.emulated(bed) as controller, devices.rapl(bed):
        with context.exporter():
            _power(context, controller)
            _silence(context, controller)
            _no_readings(context, controller)
            _check_pauses(controller)
        controller.manufacturer, controller.millijoules = controllers.LENOVO, 5_000_000_250
        with context.exporter():
            _energy(context, controller)


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
            time.sleep(1)
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
        time.sleep(1)
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
    expect(len(pauses) > 20, f"the BMC was asked {len(times)} times")
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
