"""The files of a node's energy meters: powercap, hwmon, Cray's pm_counters."""

# The range of Intel's servers: 2^32 units of 2^-14 J, as the kernel prints it.
INTEL_RANGE = 262143328850
# 2^32 units of 2^-16 J.
AMD_RANGE = 65532610987


def powercap(archive, zones, control="intel-rapl", mode=0o400):
    """`zones`: (directory, name, microjoules, range). Only root can read energy_uj since Linux 5.10."""
    for directory, name, energy, size in zones:
        at = "sys/class/powercap/" + directory
        archive.file(at + "/name", name + "\n")
        archive.file(at + "/enabled", "1\n")
        archive.file(at + "/energy_uj", "%d\n" % energy, mode=mode)
        archive.file(at + "/max_energy_range_uj", "%d\n" % size)
    archive.file("sys/class/powercap/%s/enabled" % control, "1\n")


def intel_two_sockets(archive):
    powercap(archive, [zone for s in (0, 1) for zone in (
        ("intel-rapl:%d" % s, "package-%d" % s, 2025286500 + s * 1000003, INTEL_RANGE),
        ("intel-rapl:%d:0" % s, "dram", 405300900 + s * 70001, INTEL_RANGE))])


def amd(archive):
    """No dram domain; core is a domain of the package."""
    powercap(archive, [("intel-rapl:0", "package-0", 51234567890, AMD_RANGE), ("intel-rapl:0:0", "core", 1234567890, AMD_RANGE)])


def mi300a(archive):
    """Packages of two sockets that are GPUs, too, and the node's own meter."""
    powercap(archive, [("intel-rapl:%d" % s, "package-%d" % s, 51234567890 - s * 4000000007, AMD_RANGE) for s in (0, 1)])
    counters(archive, (("power", "705 W"), ("energy", "88312402 J")))


def hwmon(archive, number, name, sensors):
    at = "sys/class/hwmon/hwmon%d/" % number
    archive.file(at + "name", name + "\n")
    for file, content in sensors.items():
        archive.file(at + file, "%s\n" % content)


def grace(archive):
    """ACPI power meters, one for each rail, named only by the firmware's text; microwatts."""
    for number, (text, watts) in enumerate((("Module Power Socket 0", 210), ("Grace Power Socket 0", 142), ("CPU Power Socket 0", 96),
                                            ("SysIO Power Socket 0", 31))):
        hwmon(archive, number, "power_meter", {"power1_average": watts * 1000000, "power1_average_interval": 50, "power1_oem_info": text})


def cray(archive):
    counters(archive, (("power", "418 W"), ("energy", "88312402 J"), ("cpu_power", "121 W"), ("cpu_energy", "21904211 J"),
                       ("memory_power", "60 W"), ("memory_energy", "9031477 J"), ("accel0_power", "101 W"), ("accel0_energy", "18304188 J")))


def counters(archive, measured):
    stamp = "1795161413111111 us"
    for file, value in measured:
        archive.file("sys/cray/pm_counters/" + file, "%s %s\n" % (value, stamp))
    for file, value in (("freshness", "8841220"), ("generation", "22"), ("raw_scan_hz", "10"), ("startup", "1795075231000000"), ("version", "2")):
        archive.file("sys/cray/pm_counters/" + file, value + "\n")
