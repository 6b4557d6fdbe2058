#!/usr/bin/env python3
"""Makes a fixture of what run.py recorded: for each kind of work some samples from its middle, and what was really done.

    fixture.py OUT > tests/fixtures/nvml/NAME.txt

A line is SECONDS FUNCTION INPUTS -> CODE OUTPUTS, as recorded-nvml.c reads it; what did not change is not repeated. A line
"# phase NAME | first=N last=N KEY=VALUE..." says which samples are of it, and the work of a second: operations, bytes, time in
which kernels ran.
"""

import gzip
import json
import pathlib
import re
import sys

ENDS = {"nvmlEventSetFree", "nvmlGpmSampleFree", "nvmlShutdown"}
# Of these more samples, since the driver's are of one process each.
MORE = {"two at once": 6, "a tenth beside one third": 8, "MPS: two at once": 4}


def samples_of(log):
    """Lines of each sample; what comes before the first one is in it."""
    found, waits = [[]], False
    for line in log.splitlines():
        if match := re.fullmatch(r"nvml (\d+\.\d+) \d+ ((\w+).*)", line):
            waiting = match[3] == "nvmlEventSetWait_v2"
            if waiting and not waits and found[-1] and any("nvmlEventSetWait" in text for _, text in found[-1]):
                found.append([])
            waits = waiting
            if match[3] not in ENDS:
                found[-1].append((float(match[1]), match[2]))
    return found


class Writer:
    """Writes what is new."""

    def __init__(self):
        self.known, self.number = {}, 0

    def line(self, at, text):
        key, _, answer = text.partition(" -> ")
        if key.startswith(("nvmlDeviceGetFieldValues", "nvmlGpmMetricsGet")):
            code, *each = answer.split()
            length = 2 if key.startswith("nvmlDevice") else 1
            each = [one for one in each if self.is_new((key, *one.split(":")[:length]), one)]
            if each:
                print(f"{at:.3f} {key} -> {code} {' '.join(each)}")
        elif key == "nvmlEventSetWait_v2" or self.is_new(key, answer):
            print(f"{at:.3f} {key} -> {answer}")

    def is_new(self, key, value):
        is_new = self.known.get(key) != value
        self.known[key] = value
        return is_new

    def sample(self, lines):
        self.number += 1
        for at, text in lines:
            self.line(at, text)
        return self.number


def work(done):
    """Of a second, by all processes together; of each where there are several."""
    found = {}
    for each in done.values():
        long = each["ended"] - each["began"]
        for key in ("flops", "bytes", "vector", "tensor"):
            if key in each:
                found.setdefault(key, []).append(each[key] / long)
        if "busy" in each and len(done) == 1:
            found["busy"] = [each["busy"] / long]
    return {key: ",".join(f"{value:.6g}" for value in values) for key, values in found.items()}


def main():
    out = pathlib.Path(sys.argv[1])
    samples = samples_of(gzip.decompress((out / "nvml.log.gz").read_bytes()).decode(errors="replace"))
    phases, writer = json.loads((out / "phases.json").read_text()), Writer()
    print("# What NVIDIA's library answered while a GPU did known work: tests/gpu/run.py, tests/gpu/fixture.py.")
    writer.sample(samples[0])
    for phase in phases:
        done = phase["done"]
        if any("error" in each for each in done.values()) or phase["phase"].startswith(("everything", "released", "memory", "latency")):
            continue
        began = max([each["began"] for each in done.values()], default=phase["began"])
        ended = min([each["ended"] for each in done.values()], default=phase["ended"])
        if "write" in phase["phase"]:
            # The event comes seconds later.
            chosen = [each for each in samples if any(text.startswith("nvmlEventSetWait_v2 -> 0 ") for _, text in each)]
        else:
            # The first sample after the beginning is of the time before, too.
            chosen = [each for each in samples if began + 1.1 < each[0][0] < ended - 0.1][: MORE.get(phase["phase"], 3)]
        numbers = [writer.sample(each) for each in chosen]
        told = " ".join(f"{key}={value}" for key, value in work(done).items())
        print(f"# phase {phase['phase']} | first={numbers[0]} last={numbers[-1]} {told}".rstrip())


if __name__ == "__main__":
    main()
