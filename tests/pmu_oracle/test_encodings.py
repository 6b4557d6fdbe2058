"""Every event of the catalogue (tests/fixtures/pmu/encodings.txt, which a test of the program holds) against oracles.

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
KNOWN = os.path.join(HERE, "known.txt")
HEAD = """# What the oracles of Debian do not know of the catalogue's events, and where they differ and why.
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
                # Numbers of the kernel's own are nobody's codes.
                if int(kind) != 0:
                    current.append((pmu, event, int(config, 16), int(config1, 16)))
    return rows


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


def compare(oracle, microarchitecture, rows, encode):
    """What is not agreement."""
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
    # One line where nothing is known.
    if len(found) == len(told) and set(found.values()) == {"unknown"}:
        return {(oracle, microarchitecture, "*"): "unknown"}
    return found


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
            self.skipTest("libpfm4 is not installed: %s" % error)
        found, agreed = {}, 0
        for microarchitecture, rows in self.rows.items():
            differing = compare(oracle.name, microarchitecture, rows, lambda _, event, m=microarchitecture: (
                oracle.encode(name) if (name := names.libpfm_name(m, event)) else None))
            agreed += len({row[:2] for row in rows}) - (len(rows) if (oracle.name, microarchitecture, "*") in differing else len(differing))
            found.update(differing)
        self.check(oracle, found)
        self.assertGreater(agreed, 200)

    def test_perf(self):
        with tempfile.TemporaryDirectory() as directory:
            trees = {}
            for tree, pmus in {
                "intel": [("cpu", 4, oracles.INTEL, None)],
                "amd": [("cpu", 4, oracles.AMD, None)],
                "hybrid": [("cpu_core", 4, oracles.INTEL, "0-3"), ("cpu_atom", 10, oracles.INTEL, "4-5")],
            }.items():
                oracles.lay_out(os.path.join(directory, tree), pmus)
                try:
                    trees[tree] = oracles.Perf(os.path.join(directory, tree))
                except OSError as error:
                    self.skipTest("perf is not installed: %s" % error)
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
                    if None in codes:
                        return None
                    return tuple(functools.reduce(operator.or_, words) for words in zip(*codes))

                differing = compare(tree.name, microarchitecture, rows, encode)
                agreed += len({row[:2] for row in rows}) - (len(rows) if (tree.name, microarchitecture, "*") in differing else len(differing))
                found.update(differing)
            self.check(tree, found)
            self.assertGreater(agreed, 200)


if __name__ == "__main__":
    unittest.main()
