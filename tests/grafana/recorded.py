"""Recorded machines (tests/fixtures) as targets for Prometheus, alive: their counters grow and their jobs run on.

What the fixtures expect is one exposition each. Here each counter begins at what was recorded and grows by a hundredth of it, and by one,
each second; jobs began ten minutes ago; gauges stay. Lines of `MORE` are things that neither a recorded machine nor the demo shows,
mostly because something has to break first; tests/grafana holds their names and labels to the exporter's own list.
"""

import http.server
import re
import threading
import time

from tools import ROOT

FIXTURES = ROOT / "tests" / "fixtures"
SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)\Z")
AGE_SECONDS = 600


class Machine:
    """One recorded machine, from its expected.prom and lines of the same form."""

    def __init__(self, name, more=()):
        self.types, self.samples = {}, []
        for line in [*(FIXTURES / name / "expected.prom").read_text().splitlines(), *more]:
            if line.startswith("# TYPE "):
                _, _, family, kind = line.split()
                self.types[family] = kind
            elif line and not line.startswith("#"):
                family, labels, value = SAMPLE.match(line).groups()
                # COUNTED stands for a number that no two runs agree on.
                self.samples.append((family, labels or "", 1000.0 if value == "COUNTED" else float(value)))
        self.started = time.time()

    def exposition(self):
        elapsed = time.time() - self.started
        lines, told = [], None
        for family, labels, value in sorted(self.samples, key=lambda sample: sample[0]):
            if family != told:
                lines.append(f"# TYPE {family} {self.types.get(family, 'gauge')}")
                told = family
            if self.types.get(family) == "counter":
                value += elapsed * (1 + value / 100)
            if family == "jobledger_job_start_time_seconds":
                value = self.started - AGE_SECONDS
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
