"""A cluster of N nodes as a function of time: which job is where, and each node's exposition.

A fifth of the nodes has GPUs, a fifth runs one exclusive job at a time, the others are shared by eight jobs. A slot is a place on a
block of nodes for one job after the other; each job has all nodes of the block. There is no state between scrapes, so a node's past
can be computed like its present.
"""

import re
import zlib

from exposition import header
from tracks import END, INFO, MARK, START, Recorded

DAY = 86_400.0
# Seconds for which an ended job is exported (--jobs.retention).
RETENTION = 120.0
USERS, ACCOUNTS = 200, 40
GPU = re.compile(r"(GPU|MIG)-[0-9a-f]{4}")

# Jobs by kind of node: nodes of a job, its duration in seconds, its name in the demo (docs/demo.md).
SHARED = [(64, 21_600, "cfd-solver"), (16, 14_400, "cfd-solver"), (4, 7200, "workflow"), (2, 3600, "ocean+ice"),
          (1, 14_400, "notebook"), (1, 7200, "postprocess"), (1, 3600, "stage-in"), (1, 1200, "sweep")]
EXCLUSIVE = [(16, 10_800, "lattice")]
GPUS = [(8, 21_600, "llm-train"), (1, 14_400, "gpu-notebook"), (1, 3600, "embed"), (1, 7200, "serving"),
        (1, 7200, "notebook"), (1, 3600, "fine-tune"), (1, 7200, "docking"), (1, 1200, "sweep")]


def fraction(*of):
    """A number from 0 to 1, a hash of the arguments."""
    return zlib.crc32(repr(of).encode()) / 2**32


PLANS = {"cpu": SHARED, "whole": EXCLUSIVE, "gpu": GPUS}


def recorded(pages):
    """The tracks of recorded nodes, {kind: Recorded}, from the pages of `recording.record`."""
    return {kind: Recorded(pages[kind], {name for _, _, name in plan}) for kind, plan in PLANS.items()}


def is_complete(pages):
    """Whether the pages have all that `Cluster` needs."""
    return all({name for _, _, name in PLANS[kind]} <= set(each.jobs) for kind, each in recorded(pages).items())


class Slot:
    """A place on a block of nodes for one job after the other, all replaying one recorded job."""

    def __init__(self, number, nodes, duration, track, epoch):
        self.number, self.nodes, self.duration, self.track = number, nodes, duration, track
        self.begin = epoch - fraction("begin", number) * duration
        self.prefixes = {}

    def jobs(self, time):
        """(generation, start, end) of the current job, and of the one before while it is exported."""
        now = int((time - self.begin) // self.duration)
        for generation in (now - 1, now):
            start = self.begin + generation * self.duration
            end = start + self.duration - 2 - 58 * fraction("pause", self.number, generation)
            if start <= time < end + RETENTION:
                yield generation, start, end


class Cluster:
    """All nodes. `recorded` has the recorded node of each kind (recording.NODES); `epoch` is the start time, long ago."""

    def __init__(self, count, recorded, epoch, faster=1):
        self.recorded, self.count, self.epoch = recorded, count, epoch
        self.families = {}
        for each in recorded.values():
            self.families.update({name: family for name, family in each.families.items() if name not in self.families})
        self.kept = set().union(*(each.kept_after_end for each in recorded.values()))
        self.slots, self.of_node, self.kind_of = [], [[] for _ in range(count)], []
        gpu, whole = max(1, round(count / 5)), max(1, round(count / 5))
        for kind, nodes in (("cpu", count - whole - gpu), ("whole", whole), ("gpu", gpu)):
            self._lay_out(kind, nodes, PLANS[kind], faster)
        self.own_series = {}

    def _lay_out(self, kind, count, plan, faster):
        """Appends `count` nodes of a kind, and the slots on them."""
        nodes = range(len(self.kind_of), len(self.kind_of) + count)
        self.kind_of += [kind] * count
        for wide, duration, name in plan:
            track = self.recorded[kind].jobs.get(name)
            if not track:
                raise ValueError(f"the recording has no job {name} on nodes {kind}: {sorted(self.recorded[kind].jobs)}")
            for begin in range(0, count, wide):
                slot = Slot(len(self.slots), nodes[begin:begin + wide], duration / faster, track, self.epoch)
                self.slots.append(slot)
                for node in slot.nodes:
                    self.of_node[node].append(slot)

    def instance(self, node):
        return f"node{node + 1:05}:9810"

    def jobid(self, slot, generation):
        """The unique id of a job; ids grow with time."""
        return 1 + slot.number + len(self.slots) * generation

    def owner(self, jobid):
        user = int(fraction("user", jobid) * USERS)
        return f"user{user:03}", f"account{user % ACCOUNTS:02}", 20_000 + user

    def job_series(self, node, slot, generation):
        """The names and labels of a job's series, cached until the slot has another job."""
        track = slot.track
        key = node if any("uuid=" in text for _, text, *_ in track.series) else None
        known = slot.prefixes.setdefault(key, {})
        if generation not in known:
            if len(known) > 1:
                known.clear()
            jobid = self.jobid(slot, generation)
            user, account, uid = self.owner(jobid)
            texts = [text.replace(MARK, str(jobid)) for _, text, *_ in track.series]
            if key is not None:
                texts = [self._own_gpus(node, text) for text in texts]
            for number, (name, *_) in enumerate(track.series):
                if name == INFO:
                    for label, value in (("user", user), ("account", account), ("uid", uid)):
                        texts[number] = re.sub(rf'\b{label}="[^"]*"', f'{label}="{value}"', texts[number])
            known[generation] = texts
        return known[generation]

    @staticmethod
    def _own_gpus(node, text):
        return GPU.sub(rf"\g<1>-{node:04x}", text)

    def samples(self, node, time, names=None):
        """The (family, series, value) of a node at a time, of all families or some (a frozenset), in no order."""
        track = self.recorded[self.kind_of[node]].node
        texts = self.own_series.get(node)
        if texts is None:
            texts = self.own_series[node] = [self._own_gpus(node, text) for _, text, *_ in track.series]
        values = track.values(time - self.epoch, int(fraction("phase", node) * track.steps), names)
        for (name, *_), text, value in self._of(track, texts, values, names):
            # The exporter started before any job.
            yield name, text, repr(self.epoch - DAY) if name == "process_start_time_seconds" else value
        for slot in self.of_node[node]:
            yield from self._job_samples(node, slot, time, names)

    def _job_samples(self, node, slot, time, names):
        track = slot.track
        for generation, start, end in slot.jobs(time):
            texts = self.job_series(node, slot, generation)
            values = track.values(min(time, end) - start, self.shift(node, slot), names)
            for (name, *_), text, value in self._of(track, texts, values, names):
                if time < end or name in self.kept:
                    yield name, text, repr(round(start, 3)) if name == START else value
            if time >= end and (names is None or END in names):
                yield END, f'{END}{{jobid="{self.jobid(slot, generation)}"}}', repr(round(end, 3))

    @staticmethod
    def shift(node, slot):
        """The step of the recording at which a job starts on a node, so that its nodes differ."""
        return int(fraction("shift", node, slot.number) * slot.track.steps)

    @staticmethod
    def _of(track, texts, values, names):
        if names is None:
            return zip(track.series, texts, values)
        numbers, series = track.only(names)
        return zip(series, [texts[number] for number in numbers], values)

    def page(self, node, time, openmetrics=False):
        """The exposition of a node at a time."""
        lines = {name: [] for name in self.families}
        for name, series, value in self.samples(node, time):
            lines[name].append(f"{series} {value}\n")
        text = "".join(header(name, self.families[name], openmetrics) + "".join(samples) for name, samples in lines.items() if samples)
        return text + "# EOF\n" if openmetrics else text

    def targets(self, address):
        """The nodes for Prometheus' HTTP service discovery."""
        return [{"targets": [address], "labels": {"__metrics_path__": f"/node/{node}/metrics", "cluster": "scale",
                                                  "instance": self.instance(node)}} for node in range(self.count)]

    def spanning(self, time, most=64):
        """The running jobs with more than one node: {jobid: nodes}, those with most nodes first."""
        found = {}
        for slot in self.slots:
            for generation, _, end in slot.jobs(time):
                if 1 < len(slot.nodes) <= most and time < end:
                    found[self.jobid(slot, generation)] = list(slot.nodes)
        return dict(sorted(found.items(), key=lambda each: -len(each[1])))
