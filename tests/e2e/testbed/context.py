"""The context of a scenario, and its assertions."""

import contextlib
import subprocess

from . import exposition, prometheus
from .processes import QUIET, Failure, wait_for


def scenario(beds, unable=lambda bed: None, by_name=False, seconds=60):
    """Marks a function `f(context)` as a scenario. `beds` are the names of those where it usually runs (beds.py). `unable(bed)`
    returns why a bed cannot run it, or None. With `by_name` it runs only if it is named. `seconds` is about what it takes on an
    emulated machine: those that take long begin first."""
    def mark(function):
        function.beds = beds
        function.unable = unable
        function.by_name = by_name
        function.seconds = seconds
        return function
    return mark


def expect(condition, what):
    """Fails with `what` unless `condition`."""
    if not condition:
        raise Failure(what)


def equal(what, got, wanted):
    """Fails unless both are the same."""
    if got != wanted:
        raise Failure(f"{what}: {got!r}, not {wanted!r}")


def close(what, got, wanted, tolerance):
    """Fails unless two numbers differ by no more than `tolerance`."""
    if got is None or abs(got - wanted) > tolerance:
        raise Failure(f"{what}: {got!r}, not {wanted!r} (within {tolerance})")


class Context:
    """A bed in a known state, and the options of the command line."""

    def __init__(self, bed, exporter, options):
        self.bed = bed
        self.slurm = bed.slurm
        self.options = options
        # The exporter under test, on the host.
        self.binary = exporter

    def _start(self, flags):
        self.bed.exporter = self.bed.start_exporter(self.binary, ("--log.level=debug", *flags))
        wait_for("the exporter to answer", lambda: self.bed.scrape().samples, 60)

    @contextlib.contextmanager
    def exporter(self, *flags):
        """Runs the exporter under test for a with block."""
        try:
            self._start(flags)
            yield
        finally:
            self.bed.stop_exporter()
            self.bed.exporter = None

    def restart(self, *flags, kill=False):
        """Replaces the exporter by a new one, within such a block."""
        if kill:
            self.bed.kill_exporter()
        else:
            self.bed.stop_exporter()
        self._start(flags)

    def prometheus(self, interval=15, **more):
        """Runs a Prometheus that scrapes the exporter, for a with block (prometheus.py says what more there is)."""
        return prometheus.start(self.bed.exporter, interval, self.options.prometheus, **more)

    def lint(self):
        """The output of promtool check metrics, in the version of `prometheus`; empty if all is right."""
        _, promtool = prometheus.programs(self.options.prometheus)
        text = exposition.text(self.bed.exporter)
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def eventually(self, check, timeout=QUIET):
        """Scrapes until `check(metrics)` passes, and returns these metrics."""
        def attempt():
            metrics = self.bed.scrape()
            check(metrics)
            return metrics
        return wait_for("the metrics to be right", attempt, timeout, interval=0.5)
