"""Who else knows how events are encoded: libpfm4's encoder, and the vendors' tables inside perf. Neither needs the hardware."""

import ctypes
import ctypes.util
import os
import re
import shutil
import subprocess

# EN, INT, USR and OS of the register, which the kernel sets itself.
REGISTER_BITS = 0x730000


class Libpfm:
    """libpfm4 through its C interface (perfmon/pfmlib.h)."""

    name = "libpfm4"

    class Encoding(ctypes.Structure):
        _fields_ = [("codes", ctypes.POINTER(ctypes.c_uint64)), ("fstr", ctypes.POINTER(ctypes.c_char_p)), ("size", ctypes.c_size_t),
                    ("count", ctypes.c_int), ("idx", ctypes.c_int)]

    def __init__(self):
        # Set in this process's own environment, where the library looks at its start.
        os.environ["LIBPFM_ENCODE_INACTIVE"] = "1"
        self.lib = ctypes.CDLL("libpfm.so.4")
        if self.lib.pfm_initialize() != 0:
            raise OSError("pfm_initialize failed")
        # What it says itself is its interface's version.
        with open("/proc/self/maps", encoding="utf-8") as maps:
            self.version = re.search(r"libpfm\.so\.(\d+\.\d+)", maps.read()).group(1)

    def encode(self, event):
        """`pmu::EVENT:UMASK...` as (config, config1), None when it is not known."""
        out = self.Encoding(size=ctypes.sizeof(self.Encoding))
        # For no operating system: the register's own value, and after it that of the register for requests.
        if self.lib.pfm_get_os_event_encoding(event.encode(), 3, 0, ctypes.byref(out)) != 0:
            return None
        codes = [out.codes[i] for i in range(out.count)]
        return codes[0] & ~REGISTER_BITS, codes[1] if len(codes) > 1 else 0


class Perf:
    """perf, with the CPU and the sysfs of a fixture: it prints what it would open."""

    name = "perf"

    def __init__(self, sysfs):
        self.sysfs = sysfs
        self.path = shutil.which("perf")
        if not self.path:
            raise OSError("no perf")
        said = subprocess.run([self.path, "--version"], capture_output=True, text=True, check=True).stdout
        self.version = ".".join(re.search(r"(\d+)\.(\d+)", said).groups())

    def encode(self, cpuid, event):
        env = dict(os.environ, SYSFS_PATH=self.sysfs, PERF_CPUID=cpuid)
        # Opening fails, since there is no such PMU; perf prints the attributes nevertheless.
        said = subprocess.run([self.path, "stat", "-vv", "-e", event, "true"], capture_output=True, text=True, env=env, check=False).stderr
        found = set()
        for attr in said.split("perf_event_attr:")[1:]:
            attr = attr.split("-----")[0]
            config = re.search(r"^  config +(\S+)", attr, re.M)
            config1 = re.search(r"config1 }? *(\S+)", attr)
            found.add((int(config.group(1), 16) if config else 0, int(config1.group(1), 16) if config1 else 0))
        return found.pop() if len(found) == 1 else None


# Fields of the PMU as the kernel's sources have them (arch/x86/events/intel/core.c, amd/core.c).
INTEL = {"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "any": "config:21", "inv": "config:23", "cmask": "config:24-31",
         "in_tx": "config:32", "in_tx_cp": "config:33", "offcore_rsp": "config1:0-63", "ldlat": "config1:0-15", "frontend": "config1:0-23"}
AMD = {"event": "config:0-7,32-35", "umask": "config:8-15", "edge": "config:18", "inv": "config:23", "cmask": "config:24-31"}

# Boxes of memory controllers (arch/x86/events/intel/uncore_snbep.c, amd/uncore.c).
BOX = {"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "inv": "config:23", "thresh": "config:24-31"}
FABRIC = {"event": "config:0-7,32-35,59-60", "umask": "config:8-15"}
FABRIC_ZEN4 = {"event": "config:0-7,32-37", "umask": "config:8-15,24-27"}
UMC = {"event": "config:0-7", "rdwrmask": "config:8-9"}


def lay_out(directory, pmus):
    """A sysfs with these PMUs: name, type, fields, CPUs (of a box: those that it is opened on)."""
    for name, kind, fields, cpus in pmus:
        at = os.path.join(directory, "bus/event_source/devices", name)
        os.makedirs(at + "/format")
        files = {"type": str(kind), **{"format/" + field: bits for field, bits in fields.items()}}
        if cpus:
            files["cpus" if name.startswith("cpu") else "cpumask"] = cpus
        for file, content in files.items():
            with open(os.path.join(at, file), "w", encoding="ascii") as out:
                out.write(content + "\n")
