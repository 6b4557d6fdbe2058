"""Writes a cluster's past to a Prometheus' data directory, for rules that look back.

It has all families for the last minutes. For longer it has only series that some rule uses with a longer window or offset. promtool
makes the blocks.
"""

import multiprocessing
import os
import re
import subprocess

JOB = "jobledger"
BLOCK = 7200
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LOOKS_BACK = re.compile(r"\b([a-zA-Z_][\w:]*)(?:\{[^}]*\})?\s*(?:\[(\d+)([smhd])\]|offset (\d+)([smhd]))")


def windows(rule_files):
    """How far back rules look, {metric: seconds}."""
    found = {}
    for path in rule_files:
        for name, window, unit, offset, offset_unit in LOOKS_BACK.findall(re.sub(r"^\s*#.*", "", path.read_text(), flags=re.MULTILINE)):
            seconds = int(window or offset) * UNITS[unit or offset_unit]
            found[name] = max(seconds, found.get(name, 0))
    return found


class Backfill:
    """The past of a cluster until `until`: everything for `all_for` seconds, and series that rules look back at for their ranges."""

    def __init__(self, cluster, until, interval, all_for, rule_files=()):
        self.cluster, self.until, self.interval, self.all_for = cluster, until, interval, all_for
        self.looked_at = {name: seconds for name, seconds in windows(rule_files).items()
                          if seconds > all_for and ":" not in name}

    def write(self, promtool, directory, processes=2):
        """Makes the blocks in `directory`; returns the number of samples."""
        oldest = self.until - max([self.all_for, *self.looked_at.values()])
        first = int(oldest // BLOCK) * BLOCK
        spans = [(max(oldest, begin), min(self.until, begin + BLOCK)) for begin in range(first, int(self.until) + 1, BLOCK)]
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            work = [pool.apply_async(self._block, (promtool, directory, *span)) for span in reversed(spans) if span[0] < span[1]]
            return sum(each.get() for each in work)

    def _block(self, promtool, directory, begin, end):
        path = directory / f"past-{int(begin)}.om"
        count = 0
        with path.open("w") as file:
            for node in range(self.cluster.count):
                for lines in self.lines(node, begin, end):
                    count += len(lines)
                    file.writelines(lines)
            file.write("# EOF\n")
        if count:
            command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(path), str(directory)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{path}: {done.stdout[-2000:]}")
        os.unlink(path)
        return count

    def lines(self, node, begin, end):
        """The lines of a node, a list for each scrape."""
        cluster = self.cluster
        target = f'cluster="scale",instance="{cluster.instance(node)}",job="{JOB}"'
        labelled = {}
        at = begin + (node * 7.3) % self.interval
        while at < end:
            names = self._names(at)
            lines = []
            if names is None or names:
                for _, series, value in cluster.samples(node, at, names):
                    text = labelled.get(series)
                    if text is None:
                        text = labelled[series] = with_labels(series, target)
                    lines.append(f"{text} {value} {at:.3f}\n")
            yield lines
            at += self.interval

    def _names(self, at):
        """The families that are written for a time; None for all."""
        if at >= self.until - self.all_for:
            return None
        return frozenset(name for name, seconds in self.looked_at.items() if at >= self.until - seconds)


def with_labels(series, labels):
    return f"{series[:-1]},{labels}}}" if series.endswith("}") else f"{series}{{{labels}}}"
