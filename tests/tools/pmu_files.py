"""Small nodes with the PMUs of their cores, as the kernel shows them: arch/x86/events, drivers/perf/arm_pmuv3.c."""

from dataclasses import replace

import node_files
from archive import Archive
from node_files import Cpu, Node

INTEL_FORMAT = {"any": "config:21", "cmask": "config:24-31", "edge": "config:18", "event": "config:0-7", "inv": "config:23",
                "ldlat": "config1:0-15", "offcore_rsp": "config1:0-63", "pc": "config:19", "umask": "config:8-15"}
SKYLAKE_FORMAT = INTEL_FORMAT | {"frontend": "config1:0-23", "in_tx": "config:32", "in_tx_cp": "config:33"}
ATOM_FORMAT = {k: v for k, v in INTEL_FORMAT.items() if k != "any"}
INTEL_EVENTS = {"branch-instructions": "event=0xc4", "branch-misses": "event=0xc5", "bus-cycles": "event=0x3c,umask=0x01",
                "cache-misses": "event=0x2e,umask=0x41", "cache-references": "event=0x2e,umask=0x4f", "cpu-cycles": "event=0x3c",
                "instructions": "event=0xc0", "ref-cycles": "event=0x00,umask=0x03"}
PEBS_EVENTS = {"mem-loads": "event=0xcd,umask=0x1,ldlat=3", "mem-stores": "event=0xd0,umask=0x82"}
TOPDOWN_EVENTS = {"slots": "event=0x00,umask=0x4", "topdown-retiring": "event=0x00,umask=0x80",
                  "topdown-bad-spec": "event=0x00,umask=0x81", "topdown-fe-bound": "event=0x00,umask=0x82",
                  "topdown-be-bound": "event=0x00,umask=0x83"}
AMD_FORMAT = {"cmask": "config:24-31", "edge": "config:18", "event": "config:0-7,32-35", "inv": "config:23", "umask": "config:8-15"}
AMD_EVENTS = {"branch-instructions": "event=0xc2", "branch-misses": "event=0xc3", "cache-misses": "event=0x64,umask=0x09",
              "cache-references": "event=0x60,umask=0xff", "cpu-cycles": "event=0x76", "instructions": "event=0xc0",
              "stalled-cycles-frontend": "event=0xa9"}
ARM_FORMAT = {"event": "config:0-15", "long": "config1:0", "rdpmc": "config1:1"}
ARM_EVENTS = {"br_mis_pred": 0x10, "br_mis_pred_retired": 0x22, "br_retired": 0x21, "cpu_cycles": 0x11, "inst_retired": 0x08,
              "l1d_cache": 0x04, "l1d_cache_refill": 0x03, "l1d_cache_wb": 0x15, "l2d_cache": 0x16, "l2d_cache_refill": 0x17,
              "l2d_cache_wb": 0x18, "ll_cache_miss_rd": 0x37, "ll_cache_rd": 0x36, "mem_access": 0x13, "stall_backend": 0x24,
              "stall_frontend": 0x23, "op_retired": 0x3a, "op_spec": 0x3b, "stall_slot_backend": 0x3d, "stall_slot_frontend": 0x3e}
ARM_EVENTS = {name: "event=0x%04x" % code for name, code in ARM_EVENTS.items()}

XEON_E5_2690V4 = Cpu("GenuineIntel", 6, 79, "Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", 1, 2600.000, 35840)
XEON_8358 = Cpu("GenuineIntel", 6, 106, "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", 6, 2600.000, 49152)
XEON_8480 = Cpu("GenuineIntel", 6, 143, "Intel(R) Xeon(R) Platinum 8480+", 8, 2000.000, 107520)
CORE_12900 = Cpu("GenuineIntel", 6, 151, "12th Gen Intel(R) Core(TM) i9-12900K", 2, 3200.000, 30720)
EPYC_9654 = Cpu("AuthenticAMD", 25, 17, "AMD EPYC 9654 96-Core Processor", 1, 2400.000, 1024)


def pmu(archive, name, kind, formats=None, events=None, **files):
    """One of /sys/bus/event_source/devices; `files` are cpumask, cpus and the like."""
    at = "sys/devices/" + name
    archive.file(at + "/type", "%d\n" % kind)
    archive.file(at + "/perf_event_mux_interval_ms", "4\n")
    for field, bits in (formats or {}).items():
        archive.file("%s/format/%s" % (at, field), bits + "\n")
    for event, terms in (events or {}).items():
        archive.file("%s/events/%s" % (at, event), terms + "\n")
    for file, content in files.items():
        archive.file("%s/%s" % (at, file), content + "\n")
    archive.link("sys/bus/event_source/devices/" + name, "../../../devices/" + name)


class Small:
    """A node with little more than its CPUs."""

    def __init__(self, cpus, cpu=None, arm_part=None, control="on", watchdog=1):
        self.a = Archive()
        self.a.file("cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc\n")
        self.a.file("cgroup/cgroup.procs", "")
        for directory in ("cgroup/system.slice", "run/jobledger/jobs", "dev"):
            self.a.dir(directory)
        node = Node("node1", "6.12.0", "", cpus=cpus, mem_kb=0, btime=0, uptime=0, threads=2 if control == "on" else 1)
        node = replace(node, arch="aarch64") if arm_part else replace(node, cpu=cpu)
        info = node_files._cpuinfo(node)
        if arm_part:
            info = info.replace("CPU part\t: 0xd40", "CPU part\t: 0x%x" % arm_part)
        self.a.file("proc/cpuinfo", info)
        self.a.file("proc/sys/kernel/osrelease", "6.12.0\n")
        if watchdog is not None:
            self.a.file("proc/sys/kernel/nmi_watchdog", "%d\n" % watchdog)
        self.a.file("sys/devices/system/cpu/online", "0-%d\n" % (cpus - 1))
        self.a.file("sys/devices/system/cpu/smt/control", control + "\n")
        self.a.file("sys/devices/system/cpu/smt/active", "%d\n" % (control == "on"))
        pmu(self.a, "software", 1)
        pmu(self.a, "tracepoint", 2)
        pmu(self.a, "breakpoint", 5)

    def pmu(self, *given, **files):
        pmu(self.a, *given, **files)
        return self

    def text(self, name, shows):
        return self.a.text("%s\n%s\nMade by tests/tools/make_machines.py." % (name, shows))


def broadwell():
    return Small(4, XEON_E5_2690V4).pmu("cpu", 4, INTEL_FORMAT, INTEL_EVENTS | PEBS_EVENTS)


def icelake():
    return Small(4, XEON_8358).pmu("cpu", 4, SKYLAKE_FORMAT, INTEL_EVENTS | PEBS_EVENTS | TOPDOWN_EVENTS)


def sapphirerapids():
    events = INTEL_EVENTS | PEBS_EVENTS | TOPDOWN_EVENTS | {"topdown-mem-bound": "event=0x00,umask=0x87"}
    return Small(4, XEON_8480, control="off", watchdog=0).pmu("cpu", 4, SKYLAKE_FORMAT, events)


def genoa():
    return Small(4, EPYC_9654).pmu("cpu", 4, AMD_FORMAT, AMD_EVENTS)


def grace():
    return Small(4, arm_part=0xd4f, control="notsupported", watchdog=None).pmu(
        "armv8_pmuv3_0", 10, ARM_FORMAT, ARM_EVENTS, cpus="0-3").pmu(
        "arm_dsu_0", 12, {"event": "config:0-31"}, {"cycles": "event=0x11"}, cpumask="0", associated_cpus="0-3")


def alderlake():
    core = Small(6, CORE_12900).pmu("cpu_core", 4, SKYLAKE_FORMAT, INTEL_EVENTS | TOPDOWN_EVENTS, cpus="0-3")
    return core.pmu("cpu_atom", 10, ATOM_FORMAT, INTEL_EVENTS, cpus="4-5")
