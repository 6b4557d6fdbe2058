#!/usr/bin/env python3
"""Measures the cost of N nodes for a Prometheus with all rules: tests/scale/README.md, docs/scale.md."""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import bed  # noqa: E402
from backfill import Backfill  # noqa: E402
from cluster import DAY, Cluster, is_complete, recorded  # noqa: E402
from recording import record  # noqa: E402
from rule_costs import rule_costs  # noqa: E402
from serve import serving  # noqa: E402
from testbed import prometheus as servers  # noqa: E402
from testbed.processes import exit_on_signals, scratch  # noqa: E402

INTERVAL, EVALUATION = 30, 60
# Seconds of past data with all families: rates need two minutes of scrapes before the first evaluation.
ALL_FOR = 360
GROUP = "prometheus_rule_group_last_duration_seconds{"


def main():
    options = _options()
    exit_on_signals()
    program, promtool = servers.programs(options.prometheus)
    if options.binary:
        program = options.binary
    with scratch("jobledger-scale") as directory:
        pages = record(options.demo, options.record, directory, is_complete)
        results = []
        for nodes in options.nodes:
            work = directory / str(nodes)
            work.mkdir()
            results.append(_measure(nodes, recorded(pages), program, promtool, work, options))
            print(json.dumps(results[-1], indent=1), flush=True)
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="+", help="how many nodes, one measurement each")
    parser.add_argument("--demo", type=pathlib.Path, required=True, help="the jobledger-demo that is recorded")
    parser.add_argument("--record", type=float, default=120, metavar="SECONDS", help="how long (default: %(default)s)")
    parser.add_argument("--duration", type=float, default=310, metavar="SECONDS", help="how long to measure after it has settled (default: %(default)s)")
    parser.add_argument("--prometheus", choices=["2", "3"], default="2", help="Debian 12's or Debian's newest")
    parser.add_argument("--binary", type=pathlib.Path, help="another Prometheus instead")
    parser.add_argument("--compat", action="store_true", help="with the names of dcgm-exporter and jobstats, too")
    parser.add_argument("--together", action="store_true", help="start all groups of rules at the same moment (otherwise it depends on the path of a new "
                        "directory)")
    parser.add_argument("--no-rules", action="store_true", help="scrape only")
    parser.add_argument("--each-rule", action="store_true", help="also what each rule costs by itself")
    parser.add_argument("--past", choices=["live", "minutes", "day"], default="day", help="past data: none, six minutes of "
                        "everything, or also the exporter's series that rules look back at, up to a day (default: %(default)s)")
    parser.add_argument("--faster", type=float, default=1, help="jobs start and end this many times faster (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="also writes all figures as JSON")
    return parser.parse_args()


def _measure(nodes, tracks, program, promtool, work, options):
    rules = [] if options.no_rules else [*bed.RULES, *(bed.COMPAT if options.compat else [])]
    cluster = Cluster(nodes, tracks, time.time() - 7 * DAY, options.faster)
    data = work / "data"
    data.mkdir()
    written = 0 if options.past == "live" else _write_past(cluster, rules, promtool, data, options.past)
    copies = bed.copy_rules(rules, work / "rules")
    if options.together:
        bed.start_together(program, copies, EVALUATION)
    with serving(cluster) as (address, _), bed.prometheus(program, work, address, copies, INTERVAL, EVALUATION) as (server, process):
        time.sleep(ALL_FOR if options.past == "live" else 120)
        begun = time.monotonic()
        figures = _watch(server, begun + options.duration)
        figures |= _sizes(server, work)
        if options.each_rule:
            figures["rules"] = rule_costs(server, process, work / "prometheus.yml")
    load = os.getloadavg()
    return {"nodes": nodes, "version": bed.version(program), "past": options.past, "past_samples": written, "load": [round(x, 1) for x in load], **figures}


def _write_past(cluster, rules, promtool, data, kind):
    """Writes the past data; returns the number of samples."""
    begun = time.time()
    past = Backfill(cluster, begun, INTERVAL, ALL_FOR, rules if kind != "minutes" else [])
    written = past.write(promtool, data, os.cpu_count())
    # Also the time that writing took: rates would see a gap.
    while (gap := time.time() - begun) > INTERVAL:
        begun = time.time()
        written += Backfill(cluster, begun, INTERVAL, gap).write(promtool, data, os.cpu_count())
    print(f"{cluster.count} nodes: {written} samples of the past", flush=True)
    return written


def _watch(server, until):
    """The figures from now to `until`."""
    groups, intervals, begins, resident, heap = {}, {}, {}, [], []
    first, began = bed.own_metrics(server), time.monotonic()
    seen = {}
    while True:
        now = bed.own_metrics(server)
        resident.append(now["process_resident_memory_bytes"])
        heap.append(now["go_memstats_heap_inuse_bytes"])
        for series, value in now.items():
            if series.startswith(GROUP):
                name = series.rpartition(";")[2].removesuffix('"}')
                stamp = now[series.replace("last_duration_seconds", "last_evaluation_timestamp_seconds")]
                if stamp > 0 and seen.get(name) != stamp:
                    seen[name] = stamp
                    groups.setdefault(name, []).append(value)
                    intervals[name] = now[series.replace("last_duration_seconds", "interval_seconds")]
                    begins[name] = round(stamp % intervals[name], 2)
        if time.monotonic() >= until:
            break
        time.sleep(5)
    seconds = time.monotonic() - began

    def rate(prefix):
        return sum(value - first.get(series, 0) for series, value in now.items() if series.startswith(prefix)) / seconds

    table = {name: {"interval": intervals[name], "begins": begins[name], "median": statistics.median(values), "most": max(values),
                    "share": round(statistics.median(values) / intervals[name], 4)} for name, values in groups.items()}
    rules = [(rule["evaluationTime"], rule["name"]) for group in server.get("rules")["groups"] for rule in group["rules"]]
    bad = [(rule["name"], rule.get("lastError")) for group in server.get("rules")["groups"] for rule in group["rules"]
           if rule["health"] != "ok"]
    scraped = server.query("sum(scrape_samples_scraped)")[0][1]
    recorded_series = server.query('count({__name__=~".+:.+"})')
    return {
        "scraped_series": scraped,
        "recorded_series": recorded_series[0][1] if recorded_series else 0,
        "head_series": now["prometheus_tsdb_head_series"],
        "up": server.query("sum(up)")[0][1],
        "slowest_scrape_seconds": server.query("max(scrape_duration_seconds)")[0][1],
        "samples_per_second": rate("prometheus_tsdb_head_samples_appended_total"),
        "cpu": rate("process_cpu_seconds_total"),
        "resident_bytes": max(resident),
        "heap_bytes": statistics.median(heap),
        "rules_busy": sum(each["median"] / each["interval"] for each in table.values()),
        "failures": rate("prometheus_rule_evaluation_failures_total"),
        "missed": rate("prometheus_rule_group_iterations_missed_total"),
        "not_ok": bad,
        "groups": dict(sorted(table.items(), key=lambda each: -each[1]["share"])),
        "dearest_rules": sorted(rules, reverse=True)[:20],
    }


def _sizes(server, work):
    """Bytes per sample on disk: of a snapshot of what is still in memory."""
    request = urllib.request.Request(f"http://{server.address}/api/v1/admin/tsdb/snapshot", method="POST")
    with urllib.request.urlopen(request, timeout=1800) as answer:
        name = json.load(answer)["data"]["name"]
    samples = chunks = index = 0
    known = {path.name for path in (work / "data").iterdir()}
    for block in (work / "data/snapshots" / name).iterdir():
        if block.name in known:
            continue
        samples += json.loads((block / "meta.json").read_text())["stats"]["numSamples"]
        chunks += sum(path.stat().st_size for path in (block / "chunks").iterdir())
        index += (block / "index").stat().st_size
    return {"disk_samples": samples, "chunk_bytes_per_sample": round(chunks / samples, 3), "index_bytes": index}


if __name__ == "__main__":
    sys.exit(main())
