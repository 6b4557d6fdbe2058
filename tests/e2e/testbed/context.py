"""What a scenario is given, and the words it tests with."""

import contextlib
import subprocess

from . import exposition, prometheus
from .processes import QUIET, Failure, wait_for


def scenario(unable=lambda bed: None, by_name=False):
    """Marks a function `f(context)` as a scenario. `unable(bed)` says why a bed cannot run it, if so; one that takes long may run only
    when it is asked for by name."""
    def mark(function):
        function.unable = unable
        function.by_name = by_name
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
    """A bed in a known state and what the command line asked for."""

    def __init__(self, bed, exporter, options):
        self.bed = bed
        self.slurm = bed.slurm
        self.options = options
        # The exporter under test, a file on this machine.
        self.binary = exporter

    def _start(self, flags):
        self.bed.exporter = self.bed.start_exporter(self.binary, ("--log.level=debug", *flags))
        wait_for("the exporter to answer", lambda: self.bed.scrape().samples, 60)

    @contextlib.contextmanager
    def exporter(self, *flags):
        """The exporter under test, answering, for the length of a with block."""
        try:
            self._start(flags)
            yield
        finally:
            self.bed.stop_exporter()
            self.bed.exporter = None

    def restart(self, *flags):
        """Another exporter in its place, within such a block."""
        self.bed.stop_exporter()
        self._start(flags)

    def prometheus(self, interval=15):
        """A Prometheus that scrapes the exporter, for the length of a with block."""
        return prometheus.start(self.bed.exporter, interval, self.options.prometheus)

    def lint(self):
        """What promtool finds wrong with the exporter's metrics, of the same version as `prometheus`."""
        _, promtool = prometheus.programs(self.options.prometheus)
        told = exposition.text(self.bed.exporter)
        done = subprocess.run([promtool, "check", "metrics"], input=told, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def eventually(self, check, timeout=QUIET):
        """Scrapes until `check(metrics)` does not fail any more, and returns those metrics."""
        def attempt():
            metrics = self.bed.scrape()
            check(metrics)
            return metrics
        return wait_for("the metrics to be right", attempt, timeout, interval=0.5)
