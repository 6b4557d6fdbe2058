"""Each drop-in grants exactly the capabilities that the program keeps for its collectors.

As root, since the program is started with every capability there is and looked at once it has given up what it does not need.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import DROP_INS, EXPORTER, ROOT, environment, flags, values

sys.path.append(str(ROOT / "tests/e2e"))
from testbed.processes import wait_for  # noqa: E402

# linux/capability.h
NUMBERS = {"CAP_DAC_READ_SEARCH": 2, "CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}
# Used before capabilities are dropped, or by a helper: not kept.
AT_THE_START = {"energy", "gpu-binding"}


def kept(variables):
    """The capabilities of the listening exporter, with these environment variables."""
    with tempfile.TemporaryDirectory() as directory:
        given = {"JOBLEDGER_WEB_LISTEN_ADDRESS": "127.0.0.1:0", "JOBLEDGER_COLLECTOR_DISABLE_DEFAULTS": "true",
                 "JOBLEDGER_CONTROL_SOCKET": f"{directory}/socket"}
        log = Path(directory) / "log"
        with open(log, "w") as handle:
            process = subprocess.Popen([EXPORTER], env=given | variables, stderr=handle, stdin=subprocess.DEVNULL)
        try:
            listens = lambda: "listening" in log.read_text() or process.poll() is not None  # noqa: E731
            wait_for("the exporter", listens, interval=0.02)
            assert process.poll() is None, f"{variables}: {log.read_text()}"
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.kill()
            process.wait()
    mask = int(re.search(r"^CapPrm:\s*(\w+)$", status, re.MULTILINE)[1], 16)
    left = {name for name, number in NUMBERS.items() if mask >> number & 1}
    assert mask == sum(1 << NUMBERS[name] for name in left), f"{variables} keeps others: {mask:x}"
    return left


def held():
    """The capabilities of this process."""
    mask = int(re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)[1], 16)
    return {name for name, number in NUMBERS.items() if mask >> number & 1}


@unittest.skipUnless(os.geteuid() == 0 and held() == set(NUMBERS), "root: all capabilities are looked for")
class Capabilities(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs"

    def test_each_drop_in_grants_only_what_the_program_keeps(self):
        for path in DROP_INS:
            with self.subTest(path.name):
                variables = environment(path)
                if path.stem == "memory-traffic-resctrl":
                    # It is used with memory-traffic.conf, which enables the collector.
                    variables |= {"JOBLEDGER_COLLECTOR_MEMORY_TRAFFIC": "true"}
                    granted = {"CAP_PERFMON"}
                else:
                    granted = set(values(path, "AmbientCapabilities"))
                # With perf-bpf.conf's, counters are divided in BPF: it is kept where it is granted.
                more = {"CAP_BPF"} if path.stem == "perf" else set()
                self.assertEqual(kept(variables), set() if path.stem in AT_THE_START else granted | more)

    def test_every_collector_that_keeps_a_capability_has_a_drop_in(self):
        switched = {variable for path in DROP_INS for variable in environment(path)}
        collectors = [variable for variable, flag in flags().items()
                      if re.fullmatch(r"--collector\.\w+", flag) and not flag.startswith("--collector.disable")]
        self.assertGreater(len(collectors), 20)
        keeping = {variable: needed for variable in collectors if (needed := kept({variable: "true"}))}
        self.assertEqual({variable: needed for variable, needed in keeping.items() if variable not in switched}, {})
        self.assertIn("JOBLEDGER_COLLECTOR_PERF", keeping)


if __name__ == "__main__":
    unittest.main()
