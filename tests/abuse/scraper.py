"""The victim: it scrapes as Prometheus does, with a limit of 10 seconds of a machine that does nothing else."""

import collections
import contextlib
import http.client
import re
import time

import attacks


def busy():
    """How many times longer than alone this program needs now, because of what else runs; 1 on a quiet machine."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.process_time() - cpu < 0.3:
        pass
    return max(1, round((time.monotonic() - wall) / 0.3))


LIMIT = 10 * busy()
INTERVAL = 1
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"

# Collectors that yield less than they should, and those that have nothing to read on this machine.
FAILED = re.compile(rb'^jobledger_exporter_collector_success\{collector="(\w+)"\} 0', re.M)
UNAVAILABLE = re.compile(rb'^jobledger_exporter_collector_available\{collector="(\w+)"\} 0', re.M)


class Scraper:
    """Scrapes over one connection that it keeps, and over a new one each time, in turn."""

    def __init__(self, port, tls=None, login=None):
        self.port, self.tls = port, tls
        self.headers = {"Accept": ACCEPT, "X-Prometheus-Scrape-Timeout-Seconds": str(LIMIT)}
        if login:
            self.headers["Authorization"] = attacks.basic(*login)
        self.kept = None
        self.outcomes, self.worst = collections.Counter(), 0.0

    def close(self):
        if self.kept:
            self.kept.close()
        self.kept = None

    def run(self, seconds):
        """Scrapes each second; counts the outcomes and notes the longest time that one took."""
        until = time.monotonic() + seconds
        while (started := time.monotonic()) < until:
            for kept in (True, False):
                before = time.monotonic()
                self.outcomes[self.scrape(kept)] += 1
                self.worst = max(self.worst, time.monotonic() - before)
            time.sleep(max(0, INTERVAL - (time.monotonic() - started)))

    def scrape(self, kept):
        if not kept:
            return self.judged(*self.exchange(None))
        connection, reused = self.kept or attacks.connect(self.port, self.tls, LIMIT), self.kept is not None
        outcome, page = self.exchange(connection)
        # Go's client asks again when the connection that it kept is closed before a byte of the answer.
        if reused and outcome in ("RemoteDisconnected", "ConnectionResetError", "BrokenPipeError"):
            connection = attacks.connect(self.port, self.tls, LIMIT)
            outcome, page = self.exchange(connection)
        self.kept = connection if outcome == 200 and connection.sock else None
        return self.judged(outcome, page)

    def exchange(self, connection):
        """One request: its status or the name of an exception, and the page."""
        with contextlib.ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(contextlib.closing(attacks.connect(self.port, self.tls, LIMIT)))
            try:
                connection.request("GET", "/metrics", headers=self.headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return type(error).__name__, b""

    def judged(self, outcome, page):
        if outcome != 200:
            return str(outcome)
        if b"jobledger_" in page and not page.endswith(b"# EOF\n"):
            return "torn"
        late = set(FAILED.findall(page)) - set(UNAVAILABLE.findall(page))
        if late:
            return "without " + ", ".join(sorted(name.decode() for name in late))
        return "200" if page else "empty"
