"""Recorded machines (tests/fixtures), and two invented ones (machines/), as targets for Prometheus, with growing counters and running jobs.

What the fixtures expect is one exposition each. Here each counter begins at what was recorded and grows by a hundredth of it, and by one,
each second, unless "# STILL" stands before it; jobs started ten minutes ago with their CPUs; gauges are constant.
"""

import http.server
import re
import threading
import time

from tools import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
MADE_UP = ROOT / "tests" / "grafana" / "machines"
SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)\Z")
AGE_SECONDS = 600


class Machine:
    """One machine, from its exposition."""

    def __init__(self, name):
        self.types, self.samples = {}, []
        path = MADE_UP / f"{name}.prom"
        still = False
        for line in (path if path.exists() else FIXTURES / name / "expected.prom").read_text().splitlines():
            if line == "# STILL":
                still = True
            elif line.startswith("# TYPE "):
                _, _, family, kind = line.split()
                self.types[family] = kind
            elif line and not line.startswith("#"):
                family, labels, value = SAMPLE.match(line).groups()
                # COUNTED stands for a number that differs between runs.
                self.samples.append((family, labels or "", 1000.0 if value == "COUNTED" else float(value), still))
                still = False
        self.cpus = {labels: value for family, labels, value, _ in self.samples if family == "jobledger_job_cpus"}
        self.started = time.time()

    def exposition(self):
        elapsed = time.time() - self.started
        lines, last = [], None
        for family, labels, value, still in sorted(self.samples, key=lambda sample: sample[0]):
            if family != last:
                lines.append(f"# TYPE {family} {self.types.get(family, 'gauge')}")
                last = family
            if self.types.get(family) == "counter" and not still:
                value += elapsed * (1 + value / 100)
            if family == "jobledger_job_start_time_seconds":
                value = self.started - AGE_SECONDS
            elif family == "jobledger_job_allocated_cpu_seconds_total":
                value = self.cpus[labels] * (AGE_SECONDS + elapsed)
            lines.append(f"{family}{labels} {value}")
        return "\n".join(lines) + "\n"


class Server:
    """Serves machines at /NAME, on a free port of the loopback address, until closed."""

    def __init__(self, machines):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                machine = machines.get(self.path.strip("/"))
                text = machine.exposition().encode() if machine else b""
                self.send_response(200 if machine else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "%s:%d" % self.server.server_address
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
