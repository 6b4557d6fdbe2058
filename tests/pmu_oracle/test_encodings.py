"""Every event of the catalogue and of the memory controllers (tests/fixtures/pmu/encodings.txt and memory_controllers.txt, which tests
of the program hold) against oracles.

Agreement is silent. What an oracle does not know, and where it differs and why, stands in known.txt: the test fails when that is not so
any more. JOBLEDGER_BLESS=1 rewrites the file; a reason is then to be written to each new difference.
"""

import functools
import operator
import os
import re
import tempfile
import unittest

import names
import oracles

HERE = os.path.dirname(os.path.abspath(__file__))
ENCODINGS = os.path.join(HERE, "..", "fixtures", "pmu", "encodings.txt")
CONTROLLERS = os.path.join(HERE, "..", "fixtures", "pmu", "memory_controllers.txt")
KNOWN = os.path.join(HERE, "known.txt")
HEAD = """# What the oracles of Debian do not know of the events of cores and memory controllers, and where they differ and why.
# Read by test_encodings.py; JOBLEDGER_BLESS=1 rewrites it, with the reasons kept.
# versions: %s
"""


def catalogue():
    """microarchitecture -> [(pmu, event, config, config1)]"""
    rows, current = {}, None
    with open(ENCODINGS, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            same = re.fullmatch(r"(.+): as (.+)", line)
            if line.startswith("#") or not line:
                current = current if line else None
            elif same:
                rows[same.group(1)] = rows[same.group(2)]
            elif current is None:
                current = rows.setdefault(line, [])
            else:
                pmu, event, kind, config, config1 = line.split()[:5]
                # Generic numbers of the kernel are no codes of a CPU.
                if int(kind) != 0:
                    current.append((pmu, event, int(config, 16), int(config1, 16)))
    return rows


def controllers():
    """microarchitecture -> [(pmu, "memory direction ordinal", config, 0)]; not what only the kernel has names and codes for."""
    rows, current = {}, None
    with open(CONTROLLERS, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            fields = re.match(r"(\S+) (\S+) (\S+) \d+ bytes alias=\S+ config=(\S+) ", line)
            if line.startswith("#") or not line:
                continue
            if not fields:
                current = rows.setdefault(line, [])
            elif fields.group(4) != "-":
                pmu, memory, direction, config = fields.groups()
                ordinal = sum(row[0] == pmu and row[1].startswith("%s %s " % (memory, direction)) for row in current)
                current.append((pmu, "%s %s %d" % (memory, direction, ordinal), int(config, 16), 0))
    return {microarchitecture: found for microarchitecture, found in rows.items() if found}


def known():
    """(oracle, microarchitecture, event) -> what is said of it, and the versions it was said of."""
    said, versions = {}, {}
    with open(KNOWN, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("# versions: "):
                versions = dict(word.split("=") for word in line.split(": ", 1)[1].split())
            elif line and not line.startswith("#"):
                oracle, microarchitecture, event, what = line.split("\t")
                said[oracle, microarchitecture, event] = what
    return said, versions


def compare(oracle, microarchitecture, rows, encode, everything="*"):
    """What is not agreement, and how many events are."""
    found, told = {}, set()
    for pmu, event, config, config1 in rows:
        if (pmu, event) in told:
            continue
        told.add((pmu, event))
        theirs = encode(pmu, event)
        if theirs is None:
            found[oracle, microarchitecture, "%s/%s" % (pmu, event)] = "unknown"
        elif theirs != (config, config1):
            found[oracle, microarchitecture, "%s/%s" % (pmu, event)] = "differs %#x %#x" % theirs
    agreed = len(told) - len(found)
    # One line where nothing is known.
    if not agreed and set(found.values()) == {"unknown"}:
        return {(oracle, microarchitecture, everything): "unknown"}, 0
    return found, agreed


def compare_controllers(oracle, encode):
    """The same of all memory controllers. `encode` takes a microarchitecture, a PMU and a name."""
    found, agreed = {}, 0
    for microarchitecture, rows in controllers().items():
        def code(pmu, event, microarchitecture=microarchitecture):
            memory, direction, ordinal = event.split()
            parts = names.box_names(microarchitecture, pmu, memory, direction, int(ordinal))
            return together([encode(microarchitecture, pmu, part) for part in parts]) if parts else None

        differing, equal = compare(oracle, microarchitecture, rows, code, "memory controllers")
        found.update(differing)
        agreed += equal
    return found, agreed


def together(codes):
    """Events of one number, which are bits or parts of it; None when one is not known."""
    return None if None in codes else tuple(functools.reduce(operator.or_, words) for words in zip(*codes))


class Encodings(unittest.TestCase):
    def setUp(self):
        self.rows = catalogue()
        self.assertGreaterEqual(len(self.rows), 47)
        self.assertGreater(sum(map(len, self.rows.values())), 600)

    def check(self, oracle, found):
        said, versions = known()
        if os.environ.get("JOBLEDGER_BLESS"):
            return self.bless(oracle, found, said, versions)
        mine = {key: what for key, what in said.items() if key[0] == oracle.name}
        if versions[oracle.name] != oracle.version:
            # Another version knows more or less; what it knows has to agree all the same.
            differs = {key for key, what in mine.items() if what.startswith("differs")}
            found = {key: what for key, what in found.items() if what != "unknown" and key not in differs}
            self.assertEqual(found, {})
            return None
        plain = {key: what.split(": ")[0] for key, what in mine.items()}
        self.assertEqual(found, plain)
        for key, what in mine.items():
            if what.startswith("differs"):
                self.assertIn(": ", what, "%s: no reason is given" % (key,))
        return None

    def bless(self, oracle, found, said, versions):
        versions[oracle.name] = oracle.version
        for key in [key for key in said if key[0] == oracle.name]:
            if key not in found:
                del said[key]
        for key, what in found.items():
            if said.get(key, "").split(": ")[0] != what:
                said[key] = what
        with open(KNOWN, "w", encoding="utf-8") as file:
            file.write(HEAD % " ".join("%s=%s" % pair for pair in sorted(versions.items())))
            for key, what in sorted(said.items()):
                file.write("\t".join((*key, what)) + "\n")

    def test_libpfm4(self):
        try:
            oracle = oracles.Libpfm()
        except OSError as error:
            self.skipTest("counters: libpfm4 is not installed: %s" % error)
        found, agreed = {}, 0
        for microarchitecture, rows in self.rows.items():
            differing, equal = compare(oracle.name, microarchitecture, rows, lambda _, event, m=microarchitecture: (
                oracle.encode(name) if (name := names.libpfm_name(m, event)) else None))
            agreed += equal
            found.update(differing)
        differing, boxes = compare_controllers(oracle.name, lambda microarchitecture, pmu, event: (
            oracle.encode(name) if (name := names.libpfm_box(microarchitecture, pmu, event)) else None))
        self.check(oracle, {**found, **differing})
        self.assertGreater(agreed, 200)
        self.assertGreaterEqual(boxes, 18)

    def test_perf(self):
        with tempfile.TemporaryDirectory() as directory:
            trees = {}
            for tree, pmus in {
                "intel": [("cpu", 4, oracles.INTEL, None)],
                "amd": [("cpu", 4, oracles.AMD, None)],
                "hybrid": [("cpu_core", 4, oracles.INTEL, "0-3"), ("cpu_atom", 10, oracles.INTEL, "4-5")],
                "intel boxes": [("cpu", 4, oracles.INTEL, None), ("uncore_imc_0", 20, oracles.BOX, "0"),
                                ("uncore_hbm_0", 21, oracles.BOX, "0"), ("uncore_edc_eclk_0", 22, oracles.BOX, "0")],
                "amd boxes": [("cpu", 4, oracles.AMD, None), ("amd_df", 20, oracles.FABRIC, "0")],
                "zen 4 boxes": [("cpu", 4, oracles.AMD, None), ("amd_df", 20, oracles.FABRIC_ZEN4, "0"), ("amd_umc_0", 21, oracles.UMC, "0")],
            }.items():
                oracles.lay_out(os.path.join(directory, tree), pmus)
                try:
                    trees[tree] = oracles.Perf(os.path.join(directory, tree))
                except OSError as error:
                    self.skipTest("counters: perf is not installed: %s" % error)
            found, agreed = {}, 0
            for microarchitecture, rows in self.rows.items():
                cpuid = names.PERF_CPUIDS.get(microarchitecture)
                hybrid = any(row[0] != "cpu" for row in rows)
                tree = trees["hybrid" if hybrid else "amd" if microarchitecture.startswith("Zen") else "intel"]

                def encode(pmu, event, cpuid=cpuid, hybrid=hybrid, tree=tree):
                    if not cpuid:
                        return None
                    parts = names.PERF_NAMES.get(event, [event.lower()])
                    codes = [tree.encode(cpuid, "%s/%s/" % (pmu, part) if hybrid else part) for part in parts]
                    return together(codes)

                differing, equal = compare(tree.name, microarchitecture, rows, encode)
                agreed += equal
                found.update(differing)

            def box(microarchitecture, _, event):
                cpuid = names.PERF_CPUIDS.get(microarchitecture)
                kind = ("zen 4" if microarchitecture in ("Zen 4", "Zen 5") else "amd") if microarchitecture.startswith("Zen") else "intel"
                return trees[kind + " boxes"].encode(cpuid, event.lower()) if cpuid else None

            differing, boxes = compare_controllers(tree.name, box)
            self.check(tree, {**found, **differing})
            self.assertGreater(agreed, 200)
            self.assertGreaterEqual(boxes, 50)


if __name__ == "__main__":
    unittest.main()
