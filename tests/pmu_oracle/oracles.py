"""Who else knows how events are encoded: libpfm4's encoder, and the vendors' tables inside perf. Neither needs the hardware."""

import ctypes
import ctypes.util
import gzip
import json
import os
import pathlib
import re
import shutil
import sys

import perf_tables

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from testbed import cache, debian  # noqa: E402

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
    """The vendors' tables in the newest perf of Debian. It is not run: it is of other releases, and half of it of another architecture."""

    name = "perf"

    def __init__(self):
        def distill(into):
            found, formulas = {}, {}
            for architecture in ("amd64", "arm64"):
                debian.download("linux-perf", "sid", into / architecture, architecture)
                for cpus, pmus, metrics in perf_tables.read(into / architecture / "usr/bin/perf"):
                    found[cpus], formulas[cpus] = pmus, metrics
                changes = next((into / architecture).glob("usr/share/doc/linux-perf/changelog.Debian.gz"))
                with gzip.open(changes, "rt", encoding="utf-8") as file:
                    version = re.match(r"linux \((\d+\.\d+)", file.readline()).group(1)
                shutil.rmtree(into / architecture)
            (into / "tables.json").write_text(json.dumps({"version": version, "tables": found, "metrics": formulas}), encoding="utf-8")

        built = cache.built("perf-tables", cache.key(pathlib.Path(perf_tables.__file__), pathlib.Path(__file__)), distill)
        content = json.loads((built / "tables.json").read_text(encoding="utf-8"))
        self.version = content["version"]
        self.metrics = content["metrics"]
        # POSIX classes of perf's own regular expressions.
        self.tables = [(re.compile(cpus.replace("[[:xdigit:]]", "[0-9A-Fa-f]")), pmus) for cpus, pmus in content["tables"].items()]

    def _event(self, cpuid, pmu, event):
        # With a stepping where the pattern has one (tools/perf/arch/x86/util/header.c).
        ids = (cpuid, cpuid.rpartition("-")[0])
        table = next((pmus for cpus, pmus in self.tables if any(cpus.fullmatch(each) for each in ids)), {})
        return table.get(pmu, {}).get(event)

    def encode(self, cpuid, pmu, event, fields):
        """An event of a CPU's PMU as (config, config1), None when it is not known."""
        found = self._event(cpuid, pmu, event)
        return place(fields, found[0]) if found else None

    def metric(self, cpuid, revision, name, values):
        """A metric of an ARM core by the vendor's formula, in which the values are those of events and of SLOTS."""
        formulas, core = self.metrics[cpuid], int(cpuid, 0)

        class Names(dict):
            def __missing__(self, name):
                # An event whichever way it is written, or another metric.
                return values[name.upper()] if name.upper() in values else evaluate(name)

        def is_core(asked):
            """Of the same part, and not before the revision that is asked for (tools/perf/arch/arm64/util/header.c)."""
            return int(asked >> 4 == core >> 4 and revision >= asked & 0xF)

        def evaluate(name):
            # Its operators are Python's (tools/perf/util/expr.y).
            return eval(formulas[name].replace("#slots", "SLOTS"), {"__builtins__": {}}, names)  # pylint: disable=eval-used

        names = Names(values, strcmp_cpuid_str=is_core)
        return evaluate(name)

    def errata(self, cpuid, pmu, event):
        """The errata that the vendor lists for it."""
        found = self._event(cpuid, pmu, event)
        return re.findall(r"\w+", found[1].partition("Spec update:")[2].partition("(")[0]) if found else []


# Fields of the PMUs as the kernel's sources have them (arch/x86/events/intel/core.c, amd/core.c, drivers/perf/arm_pmuv3.c).
INTEL = {"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "any": "config:21", "inv": "config:23", "cmask": "config:24-31",
         "in_tx": "config:32", "in_tx_cp": "config:33", "offcore_rsp": "config1:0-63", "ldlat": "config1:0-15", "frontend": "config1:0-23"}
AMD = {"event": "config:0-7,32-35", "umask": "config:8-15", "edge": "config:18", "inv": "config:23", "cmask": "config:24-31"}
ARM = {"event": "config:0-15"}

# Boxes of memory controllers (arch/x86/events/intel/uncore_snbep.c, amd/uncore.c).
BOX = {"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "inv": "config:23", "thresh": "config:24-31"}
FABRIC = {"event": "config:0-7,32-35,59-60", "umask": "config:8-15"}
FABRIC_ZEN4 = {"event": "config:0-7,32-37", "umask": "config:8-15,24-27"}
UMC = {"event": "config:0-7", "rdwrmask": "config:8-9"}


def place(fields, terms):
    """`event=0x03,umask=0x0f` as (config, config1), None where a field is of no such PMU."""
    words = {"config": 0, "config1": 0}
    for term in terms.split(","):
        name, value = term.split("=")
        if name in ("period", "perpkg"):
            continue
        if name not in fields:
            return None
        word, ranges = fields[name].split(":")
        value = int(value, 0)
        for bits in ranges.split(","):
            first, last = (int(end) for end in (bits + "-" + bits).split("-")[:2])
            words[word] |= (value & ((1 << (last - first + 1)) - 1)) << first
            value >>= last - first + 1
        if value:
            return None
    return words["config"], words["config1"]
