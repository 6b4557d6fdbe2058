#!/usr/bin/env python3
"""Runs the exporter with real SLURM: tests/e2e/README.md."""

import argparse
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True

from scenarios import all_scenarios  # noqa: E402
from testbed import beds, built, cache  # noqa: E402
from testbed.context import Context  # noqa: E402
from testbed.processes import Failure, Lost, die_with_parent, exit_on_signals  # noqa: E402


# Characters of a failure's text.
_MOST_PRINTED = 2000
# A machine takes about as many seconds to boot and to end.
_BOOT_SECONDS = 60


def main():
    options = _options()
    scenarios = all_scenarios()
    unknown = [name for name in options.scenario if name not in scenarios]
    if unknown:
        sys.exit(f"no such scenario: {', '.join(unknown)} (there are: {', '.join(scenarios)})")
    if options.list:
        print("beds:      " + " ".join(beds.ALL))
        print("scenarios: " + " ".join(scenarios))
        return 0
    exit_on_signals()
    usual = [name for name, function in scenarios.items() if not function.by_name]
    chosen = {name: scenarios[name] for name in options.scenario or usual}
    exporter = pathlib.Path(options.exporter).resolve() if options.exporter else built.program("jobledger-exporter")
    if {"report", "accounts", "interrupted_runs", "numbers_again", "record", "demo"} & set(chosen):
        options.cli = pathlib.Path(options.cli).resolve() if options.cli else built.program("jobledger")
    passed, failed, ran = _run_beds(_distributed(chosen, options), exporter, options)
    for title in sorted(set(chosen) - ran):
        # Beds may skip a scenario, but not all of them.
        print(f"FAIL {title}: no bed ran it", flush=True)
        failed += 1
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bed", action="append", choices=list(beds.ALL), help="where to run; repeatable "
                        f"(default: {' '.join(beds.STANDARD)})")
    parser.add_argument("--exporter", metavar="PATH", help="the binary under test (default: built by cargo)")
    parser.add_argument("--cli", metavar="PATH", help="the program jobledger under test (default: built by cargo)")
    parser.add_argument("--each", action="store_true", help="run each scenario on each bed that can, not only where it would differ")
    parser.add_argument("--jobs", type=int, help="how many jobs short_jobs runs (default: 30, 8 on an emulated machine)")
    parser.add_argument("--prometheus", choices=["2", "3"], default="2", help="which Prometheus scrapes")
    parser.add_argument("--parallel", type=int, default=3, help="machines at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only list beds and scenarios")
    parser.add_argument("scenario", nargs="*", help="which scenarios to run (default: all but those that take long)")
    options = parser.parse_args()
    options.bed = options.bed or list(beds.STANDARD)
    return options


class Waiting:
    """The scenarios of a bed that its machines take one by one, those that take long first."""

    def __init__(self, scenarios):
        # (title, function)
        self._all = sorted(scenarios.items(), key=lambda item: -item[1].seconds)
        self._taken = multiprocessing.Value("i", 0)

    def take(self):
        """The next (title, function), or None."""
        with self._taken.get_lock():
            taken = self._taken.value
            self._taken.value = min(taken + 1, len(self._all))
        return self._all[taken] if taken < len(self._all) else None

    def give_up(self):
        """Leaves the rest."""
        with self._taken.get_lock():
            self._taken.value = len(self._all)

    def seconds(self):
        """About what they take."""
        return sum(function.seconds for _, function in self._all[self._taken.value:])


def _distributed(chosen, options):
    """The scenarios of each bed: {name: Waiting}."""
    everywhere = options.scenario or options.each or options.bed != list(beds.STANDARD)
    return {name: Waiting({title: function for title, function in chosen.items() if everywhere or name in function.beds})
            for name in options.bed}


def _next_bed(waiting, machines):
    """The bed that gets the next machine, or None: one without first. `machines` are the names of the beds that have one, each once
    for each."""
    def gain(name):
        """(Whether it is its first, the seconds that it saves.)"""
        running, seconds = machines.count(name), waiting[name].seconds()
        if not running:
            return True, seconds
        return False, 0 if name in beds.ALONE else seconds / running - _BOOT_SECONDS
    return max((name for name in waiting if gain(name)[1] > 0), key=gain, default=None)


def _run_beds(waiting, exporter, options):
    """Runs the scenarios of all beds on some machines at a time; returns (passed, failed, names of those that ran)."""
    active, tally, parent = {}, [], os.getpid()

    def run(name, first, result):
        die_with_parent(parent, signal.SIGTERM)
        result.send(_run_machine(name, first, waiting[name], exporter, options))

    def start(name):
        result, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=run, args=(name, waiting[name].take(), theirs))
        process.start()
        theirs.close()
        active[result] = (name, process)

    try:
        while True:
            while len(active) < options.parallel and (name := _next_bed(waiting, [bed for bed, _ in active.values()])):
                start(name)
            if not active:
                break
            for result in multiprocessing.connection.wait(list(active)):
                try:
                    tally.append(result.recv())
                except EOFError:
                    tally.append((0, 1, set()))
                active.pop(result)[1].join()
    finally:
        for _, process in active.values():
            process.terminate()
        for _, process in active.values():
            process.join()
    return sum(each[0] for each in tally), sum(each[1] for each in tally), set().union(*(each[2] for each in tally))


def _run_machine(name, current, waiting, exporter, options):
    """Runs a scenario of a bed and what else waits for it on one machine; returns (passed, failed, names of those that ran).

    A machine that stops or does not start is replaced once, with a message.
    """
    tally = [0, 0, set()]
    for machine in ("the first", "the second"):
        started = time.monotonic()
        try:
            with beds.ALL[name]() as bed:
                print(f"up   {name} ({time.monotonic() - started:.0f} s)", flush=True)
                while current:
                    _run_next(bed, *current, tally, exporter, options)
                    current = waiting.take()
                break
        except (Lost, Failure, subprocess.CalledProcessError) as error:
            word = "LOST" if isinstance(error, Lost) else "FAIL"
            print(f"{word} {name}, {machine} machine: {error}", flush=True)
            if machine == "the second" or not current:
                tally[1] += 1
                waiting.give_up()
                break
    return tuple(tally)


def _run_next(bed, title, function, tally, exporter, options):
    """Runs a scenario, a second time if it failed."""
    reason = function.unable(bed)
    if reason:
        print(f"skip {bed.name} {title}: {reason}", flush=True)
        return
    tally[2].add(title)
    if _run_scenario(bed, title, function, Context(bed, exporter, options)):
        tally[0] += 1
    # A busy or emulated machine can be too slow for anything: a second attempt, and both are printed.
    elif _run_scenario(bed, title, function, Context(bed, exporter, options)):
        print(f"note {bed.name} {title}: passed at the second attempt", flush=True)
        tally[0] += 1
    else:
        tally[1] += 1


def _run_scenario(bed, title, function, context):
    started = time.monotonic()
    try:
        function(context)
        verdict, why = "ok  ", ""
    except Failure as error:
        verdict, why = "FAIL", str(error)
    except Lost:
        raise
    except Exception:
        verdict, why = "FAIL", traceback.format_exc().rstrip()
    print(f"{verdict} {bed.name} {title} ({time.monotonic() - started:.0f} s)", flush=True)
    if why:
        print("     " + why[:_MOST_PRINTED].replace("\n", "\n     "), flush=True)
        if not _answers(bed):
            raise Lost(f"the machine does not respond\n{bed.console()}")
        print(f"     logs: {_keep_logs(bed, title)}", flush=True)
    bed.slurm.cancel_all()
    return not why


def _answers(bed):
    try:
        return bed.agent.call("true", timeout=60)[0] == 0
    except (OSError, Failure):
        return False


def _keep_logs(bed, title):
    directory = cache.root() / "logs" / bed.name / title
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in bed.logs():
        (directory / name).write_text(text)
    return directory


if __name__ == "__main__":
    sys.exit(main())
