#!/usr/bin/env python3
"""Measures this exporter beside others on the same jobs and prints tables (`make bench-peers`, docs/performance.md). As root.

All see the same control groups at /sys/fs/cgroup and are scraped in turn, in the text format and without compression. A cost is the CPU
time from the beginning of a scrape to the beginning of the next one of the same exporter, so what it does afterwards is in it.
"""

import argparse
import contextlib
import http.client
import os
import pathlib
import platform
import re
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import exporters  # noqa: E402
import pages  # noqa: E402
import tables  # noqa: E402
from cost import cpu_seconds, resident_mib  # noqa: E402
from crowd import crowd, of_this_host  # noqa: E402
from keeper import keeper  # noqa: E402
from testbed.processes import Failure, connects, exit_on_signals, free_ports, running, scratch, wait_for  # noqa: E402

FEWEST_ROUNDS, WARM_UP, PATIENCE = 20, 5, 60
# What an exporter may do instead of answering.
UNWELL = (Failure, OSError, http.client.HTTPException)


class Ended(Exception):
    """A program is over before it answers."""


class Running:
    """A started exporter with a connection that is kept, as Prometheus keeps it."""

    def __init__(self, exporter, process, port):
        self.exporter, self.pid = exporter, process.pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.marks = []

    def scrape(self):
        self._connection.request("GET", "/metrics", headers={"Accept": "text/plain;version=0.0.4"})
        answer = self._connection.getresponse()
        page = answer.read().decode()
        if answer.status != 200:
            raise Failure(f"answers with {answer.status}")
        return page

    def mark(self):
        self.marks.append(cpu_seconds(self.pid))

    def costs(self):
        return [after - before for before, after in zip(self.marks, self.marks[1:])]

    def close(self):
        self._connection.close()


@contextlib.contextmanager
def started(exporter, program, version, jobs, work, keep):
    """Runs an exporter for a with block."""
    (port,) = free_ports(1)
    place = work / re.sub(r"\W+", "-", exporter.name)
    place.mkdir(exist_ok=True)
    own = jobs.flags if exporter.module is None else []
    command = [HERE / "view.sh", version, jobs.cgroupfs, place, program, f"--web.listen-address=127.0.0.1:{port}",
               *(flag for flag in own if not flag.startswith("--path.")), *exporter.flags]
    log = work / f"{place.name}.log"

    def answers():
        if process.poll() is not None:
            raise Ended
        return connects(port)

    with running(command, log) as process:
        keep(process.pid)
        try:
            wait_for(f"{exporter.name} listens", answers)
        except Ended:
            raise Failure(f"ends at once: {exporters.reason(log.read_text())}") from None
        with contextlib.closing(Running(exporter, process, port)) as it:
            yield it


def measure(wanted, programs, version, jobs, count, rounds, work):
    """One number of jobs: its `Size`, and why by name of those that could not be measured."""
    files, why = jobs.order(f"jobs {count}")["files"], {}
    held, opened, last = [], [], {}
    with contextlib.ExitStack() as stack:
        keep, measured = stack.enter_context(keeper()), []
        for exporter in wanted:
            try:
                it = stack.enter_context(started(exporter, programs[exporter.name], version, jobs, work, keep))
                for _ in range(WARM_UP):
                    page = it.scrape()
                if text := pages.problem(page, exporter, count):
                    raise Failure(text)
                measured.append(it)
            except UNWELL as error:
                why[exporter.name] = f"with {count} jobs: {error}"
        for _ in range(rounds):
            floor = jobs.order("floor")
            held.append(floor["held"] / 1e6)
            opened.append(floor["opened"] / 1e6)
            for it in list(measured):
                try:
                    it.mark()
                    last[it.exporter.name] = it.scrape()
                except UNWELL as error:
                    why[it.exporter.name] = f"with {count} jobs, in the middle: {error!r}"
                    measured.remove(it)
        # What is left to do of the last ones.
        time.sleep(1)
        for it in measured:
            it.mark()
        found = {it.exporter.name: (pages.series_per_job(page := last[it.exporter.name], it.exporter.job), len(pages.samples(page)), len(page.encode()),
                                    resident_mib(it.pid)) for it in measured}
        return tables.Size(count, files, held, opened, {it.exporter.name: it.costs() for it in measured}, found), why


def compare(options, version, work):
    wanted = exporters.OURS + exporters.PEERS
    load = os.getloadavg()
    with crowd(version, options.profile, exporters.collectors(exporters.SAME)) as jobs:
        programs, missing = exporters.programs(wanted, pathlib.Path(jobs.exporter), options.program)
        there = [exporter for exporter in wanted if exporter.name in programs]
        sizes, why = [], {**missing, **exporters.ABSENT}
        for count in sorted(options.jobs):
            size, problems = measure(there, programs, version, jobs, count, options.rounds, work)
            sizes.append(size)
            why |= problems
    names = [exporter.name for exporter in wanted if any(exporter.name in size.costs for size in sizes)]
    print(f"\n## cgroup {version}\n\n{machine()}; load {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after; {options.rounds} scrapes each\n")
    print("Median CPU time of a scrape, milliseconds:\n", *tables.costs(sizes, names), "\nWhat it gave:\n", *tables.pages(sizes, names), sep="\n")
    peers = [f"{peer.name} {'as given' if peer.name in options.program else peer.module}" for peer in exporters.PEERS if peer.name in names]
    print("\nOther exporters:", "; ".join(peers) or "none")
    if why:
        print("\nNot measured:\n", *tables.reasons(why), sep="\n")
    return all(exporter.name in size.costs for exporter in exporters.OURS for size in sizes)


def machine():
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{os.cpu_count()} CPUs, {model[1] if model else platform.machine()}, Linux {platform.release()}"


def _program(text):
    name, _, path = text.partition("=")
    if name not in {peer.name for peer in exporters.PEERS} or not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE with one of {', '.join(peer.name for peer in exporters.PEERS)}")
    return name, pathlib.Path(path).resolve()


def _rounds(text):
    if int(text) < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"a median of fewer than {FEWEST_ROUNDS} says little")
    return int(text)


def _options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 100, 500], help="numbers of jobs (default: %(default)s)")
    parser.add_argument("--rounds", type=_rounds, default=40, help=f"scrapes of each exporter, at least {FEWEST_ROUNDS} (default: %(default)s)")
    parser.add_argument("--hierarchy", choices=["v1", "v2"], help="default: where this host has the memory controller")
    parser.add_argument("--program", type=_program, action="append", default=[], metavar="NAME=FILE", help="a peer that is installed already")
    parser.add_argument("--profile", default="bench", help="Cargo's profile; another one than %(default)s only tries the driver")
    options = parser.parse_args(arguments)
    options.program = dict(options.program)
    return options


def main():
    options = _options(sys.argv[1:])
    if os.geteuid() != 0:
        raise SystemExit("real control groups need root")
    exit_on_signals()
    versions = [options.hierarchy] if options.hierarchy else of_this_host()
    if not versions:
        raise SystemExit("neither cgroup v1 nor v2 has the memory controller here")
    with scratch("jobledger-peers") as work:
        whole = [compare(options, version, work) for version in versions]
    return 0 if all(whole) else 1


if __name__ == "__main__":
    sys.exit(main())
