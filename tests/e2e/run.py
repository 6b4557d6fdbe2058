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
from testbed import beds, cache  # noqa: E402
from testbed.context import Context  # noqa: E402
from testbed.processes import Failure, Lost, die_with_parent, exit_on_signals  # noqa: E402


# Characters of a failure's text.
_MOST_PRINTED = 2000
# The bed of the device scenarios, unless scenarios are named.
_DEVICE_BED = "vm-22.05-v2"


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
    exporter = pathlib.Path(options.exporter).resolve() if options.exporter else _build("jobledger-exporter")
    if {"report", "demo"} & set(chosen):
        options.cli = pathlib.Path(options.cli).resolve() if options.cli else _build("jobledger")
    passed, failed, ran = _run_beds(_shifts(chosen, options), exporter, options)
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
    parser.add_argument("--jobs", type=int, default=30, help="how many jobs short_jobs runs (default: %(default)s)")
    parser.add_argument("--prometheus", choices=["2", "3"], default="2", help="which Prometheus scrapes")
    parser.add_argument("--parallel", type=int, default=3, help="machines at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only list beds and scenarios")
    parser.add_argument("scenario", nargs="*", help="which scenarios to run (default: all but those that take long)")
    options = parser.parse_args()
    options.bed = options.bed or list(beds.STANDARD)
    return options


def _build(package):
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--package", package], cwd=cache.REPOSITORY, check=True)
    target = os.environ.get("CARGO_TARGET_DIR") or cache.REPOSITORY / "target"
    return pathlib.Path(target).resolve() / "debug" / package


def _shifts(chosen, options):
    """(bed, its scenarios) for each machine. The bed of the devices gets a second machine for them."""
    shifts = []
    for name in options.bed:
        parts = [chosen]
        if name == _DEVICE_BED and not options.scenario:
            parts = [{title: function for title, function in chosen.items() if _is_of_devices(function) == devices}
                     for devices in (True, False)]
        shifts += [(name, part) for part in parts]
    return shifts


def _run_beds(shifts, exporter, options):
    """Runs each shift in its own process, some at a time; returns (passed, failed, names of those that ran)."""
    waiting, active, tally, parent = list(shifts), {}, [], os.getpid()

    def run(name, scenarios, result):
        die_with_parent(parent, signal.SIGTERM)
        result.send(_run_bed(name, scenarios, exporter, options))

    try:
        while waiting or active:
            while waiting and len(active) < options.parallel:
                name, scenarios = waiting.pop(0)
                result, theirs = multiprocessing.Pipe(duplex=False)
                process = multiprocessing.Process(target=run, args=(name, scenarios, theirs))
                process.start()
                theirs.close()
                active[result] = process
            for result in multiprocessing.connection.wait(list(active)):
                try:
                    tally.append(result.recv())
                except EOFError:
                    tally.append((0, 1, set()))
                active.pop(result).join()
    finally:
        for process in active.values():
            process.terminate()
        for process in active.values():
            process.join()
    return sum(each[0] for each in tally), sum(each[1] for each in tally), set().union(*(each[2] for each in tally))


def _run_bed(name, scenarios, exporter, options):
    """Runs all scenarios in one bed; returns (passed, failed, names of those that ran).

    A machine that stops or does not start is replaced once, with a message.
    """
    waiting, tally = list(scenarios.items()), [0, 0, set()]
    for machine in ("the first", "the second"):
        started = time.monotonic()
        try:
            with beds.ALL[name]() as bed:
                print(f"up   {name} ({time.monotonic() - started:.0f} s)", flush=True)
                while waiting:
                    _run_next(bed, waiting, tally, exporter, options)
                break
        except (Lost, Failure, subprocess.CalledProcessError) as error:
            word = "LOST" if isinstance(error, Lost) else "FAIL"
            print(f"{word} {name}, {machine} machine: {error}", flush=True)
            if machine == "the second" or not waiting:
                tally[1] += 1
                break
    return tuple(tally)


def _run_next(bed, waiting, tally, exporter, options):
    """Runs the first waiting scenario and removes it from the list."""
    title, function = waiting[0]
    reason = function.unable(bed)
    if not reason and _is_enough_elsewhere(bed.name, function, options):
        reason = f"the devices are the same on {_DEVICE_BED}; name it to run it here"
    if reason:
        print(f"skip {bed.name} {title}: {reason}", flush=True)
        waiting.pop(0)
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
    waiting.pop(0)


def _is_of_devices(function):
    """Whether a scenario is about devices, the package or the demo, which do not depend on SLURM's version."""
    modules = ("bed", "devices", "bmc", "gpus", "demo", "package")
    return function.__module__ in [f"scenarios.{name}" for name in modules]


def _is_enough_elsewhere(name, function, options):
    """Whether it is enough that such a scenario runs on another bed."""
    return _is_of_devices(function) and not options.scenario and _DEVICE_BED in options.bed and name != _DEVICE_BED


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
