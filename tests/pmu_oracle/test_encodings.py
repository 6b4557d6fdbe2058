"""Every event of the catalogue and of the memory controllers (tests/fixtures/pmu/encodings.txt and memory_controllers.txt, which tests
of the program hold) against oracles.

Agreement is silent. What an oracle does not know, and where it differs and why, stands in known.txt: the test fails when that is not so
any more. JOBLEDGER_BLESS=1 rewrites the file; a reason is then to be written to each new difference.
"""

import functools
import operator
import os
import re
import unittest

import names
import oracles
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ENCODINGS = os.path.join(HERE, "..", "fixtures", "pmu", "encodings.txt")
DATA = os.path.join(HERE, "..", "..", "crates", "perf-counters", "data", "pmu_events.yaml")
SLOTS = os.path.join(HERE, "..", "fixtures", "pmu", "arm_slots.txt")
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


def arm_slots():
    """microarchitecture -> (slots of a cycle, counts of events, slots of categories)"""
    cores = {}
    with open(SLOTS, encoding="utf-8") as file:
        for block in file.read().split("\n\n")[1:]:
            microarchitecture, slots, *rows = block.strip().split("\n")
            rows = [row.split() for row in rows]
            events, categories = ({name: int(count) for kind, name, count in rows if kind == wanted} for wanted in ("event", "category"))
            cores[microarchitecture] = (int(slots.split()[1]), events, categories)
    return cores


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
        self.assertGreaterEqual(len(self.rows), 57)
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
        oracle = oracles.Perf()
        found, agreed = {}, 0
        for microarchitecture, rows in self.rows.items():
            cpuid = names.PERF_CPUIDS.get(microarchitecture)

            def encode(pmu, event, cpuid=cpuid, microarchitecture=microarchitecture):
                if not cpuid:
                    return None
                table, fields = names.perf_core(microarchitecture, pmu)
                return together([oracle.encode(cpuid, table, part, fields) for part in names.perf_names(microarchitecture, event)])

            differing, equal = compare(oracle.name, microarchitecture, rows, encode)
            agreed += equal
            found.update(differing)

        def box(microarchitecture, pmu, event):
            cpuid = names.PERF_CPUIDS.get(microarchitecture)
            table, fields = names.perf_box(microarchitecture, pmu)
            return oracle.encode(cpuid, table, event.lower(), fields) if cpuid and table else None

        differing, boxes = compare_controllers(oracle.name, box)
        self.check(oracle, {**found, **differing})
        self.assertGreater(agreed, 700)
        self.assertGreaterEqual(boxes, 140)

    def test_slots_of_arms_cores_are_those_of_the_vendors_formulas(self):
        oracle, cores = oracles.Perf(), arm_slots()
        self.assertGreaterEqual(len(cores), 7)
        for microarchitecture, (slots, events, categories) in cores.items():
            # What is empty is so for one of the ends (ARM DDI 0487, STALL_SLOT). What was sent is what had a slot, where it is not counted.
            stalled = events.get("STALL_SLOT_FRONTEND", events.get("STALL_SLOT_FRONTEND_WITHOUT_MISPRED")) + events["STALL_SLOT_BACKEND"]
            all_slots = events.get("CPU_SLOT", slots * events["CPU_CYCLES"])
            values = {"OP_SPEC": all_slots - stalled, **events, "SLOTS": slots, "STALL_SLOT": stalled}
            self.assertEqual(sum(categories.values()), all_slots)
            for category, metric in names.SLOTS.items():
                with self.subTest(microarchitecture, category=category):
                    theirs = oracle.metric(names.PERF_CPUIDS[microarchitecture], names.REVISIONS.get(microarchitecture, 0), metric, values)
                    self.assertAlmostEqual(categories[category] / all_slots * 100, theirs, 5)

    def test_notes_have_the_errata_that_vendors_list_for_what_is_counted(self):
        oracle, seen = oracles.Perf(), set()
        with open(DATA, encoding="utf-8") as file:
            cores = {(name, core["pmu"]): core for row in yaml.safe_load(file)["microarchitectures"]
                     for name in row["names"] for core in row["cores"]}
        for microarchitecture, rows in self.rows.items():
            for pmu, event, _, _ in rows:
                table, _ = names.perf_core(microarchitecture, pmu)
                core = cores[microarchitecture, "armv8" if pmu.startswith("armv8") else pmu]
                for part in names.perf_names(microarchitecture, event):
                    for erratum in oracle.errata(names.PERF_CPUIDS.get(microarchitecture, ""), table, part):
                        self.assertIn(erratum, " ".join(core.get("notes", [])), "%s, %s" % (microarchitecture, event))
                        seen.add(erratum)
        self.assertGreaterEqual(len(seen), 9)


if __name__ == "__main__":
    unittest.main()
