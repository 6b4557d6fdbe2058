#!/usr/bin/env python3
"""Compares the results of Prometheus and VictoriaMetrics for the same samples, rule by rule: tests/scale/README.md, rules/README.md.

Two comparisons. `expressions`: one Prometheus scrapes, evaluates all rules and writes to VictoriaMetrics; then each rule's expression is
evaluated by both at the same moment. `chain`: VictoriaMetrics scrapes by itself and vmalert evaluates the rules; then each recorded
series is compared with that of Prometheus.
"""

import argparse
import contextlib
import json
import math
import pathlib
import re
import sys
import time
import urllib.parse
import urllib.request

import yaml

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import bed  # noqa: E402
from backfill import Backfill  # noqa: E402
from cluster import DAY, Cluster, is_complete, recorded  # noqa: E402
from recording import record  # noqa: E402
from serve import serving  # noqa: E402
from testbed import cache, debian  # noqa: E402
from testbed import prometheus as servers  # noqa: E402
from testbed.processes import exit_on_signals, free_ports, running, scratch, wait_for  # noqa: E402
from testbed.prometheus import Prometheus  # noqa: E402

SCRAPE, EVALUATE = 10, 5
# Values that differ by less are equal: VictoriaMetrics keeps samples with some twelve digits.
EQUAL = 1e-9


def main():
    options = _options()
    exit_on_signals()
    program, promtool = servers.programs("2")
    victoria = options.victoria or programs("sid")
    with scratch("jobledger-victoria") as directory, contextlib.ExitStack() as stack:
        tracks = recorded(record(options.demo, options.record, directory, is_complete))
        cluster = Cluster(options.nodes, tracks, time.time() - 7 * DAY)
        (directory / "data").mkdir()
        rules = bed.copy_rules(bed.RULES, directory / "rules", EVALUATE)
        followed, scraping = (_single(stack, victoria, directory, name) for name in ("followed", "scraping"))
        began = time.time()
        past = Backfill(cluster, began, SCRAPE, 420)
        past.write(promtool, directory / "data")
        for address in (followed, scraping):
            _import(address, past)
        address, _ = stack.enter_context(serving(cluster))
        prometheus, _ = stack.enter_context(bed.prometheus(program, directory, address, rules, SCRAPE, EVALUATE, f"http://{followed}/api/v1/write"))
        config = directory / "scrape.yml"
        config.write_text(bed.SCRAPE.format(address=address, scrape=SCRAPE))
        _ask(scraping, "/-/reload")
        log = directory / "vmalert.log"
        (port,) = free_ports(1)
        command = [str(victoria / "vmalert"), f"-rule={rules}/*.yaml", f"-datasource.url=http://{scraping}", f"-remoteWrite.url=http://{scraping}",
                   f"-remoteRead.url=http://{scraping}", "-notifier.blackhole", f"-evaluationInterval={EVALUATE}s", f"-httpListenAddr=127.0.0.1:{port}",
                   "-remoteWrite.flushInterval=200ms", "-disableAlertgroupLabel"]
        stack.enter_context(running(command, log))
        time.sleep(options.wait)
        moment = time.time() - 15
        groups = [group for path in bed.RULES for group in yaml.safe_load(path.read_text())["groups"]]
        result = {
            "expressions": [_compare(rule, rule["expr"], prometheus, Prometheus(followed), moment) for group in groups for rule in group["rules"]],
            "chain": [_compare(rule, rule["record"], prometheus, Prometheus(scraping), moment)
                      for group in groups for rule in group["rules"] if "record" in rule],
            "vmalert": _unhealthy(port),
        }
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    _print_differences(result)


def _print_differences(result):
    """Prints the differences, for rules with and without rate() or increase()."""
    exprs = {rule.get("record") or rule["alert"]: rule["expr"] for path in bed.RULES
             for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]}
    for comparison in ("expressions", "chain"):
        for kind in ("with", "without"):
            rules = [each for each in result[comparison] if bool(re.search(r"(rate|increase)\(", exprs[each["rule"]])) == (kind == "with")]
            failed = [each for each in rules if "error" in each]
            results = [each for each in rules if each.get("series")]
            other = [each for each in results if each["missing"] or each["extra"]]
            differ = sorted((each["worst"], each["rule"]) for each in results if each["differ"])
            print(f"{comparison}: {len(rules)} rules {kind} rate() or increase() of their own, {len(results)} with series, {len(failed)} failed, "
                  f"{len(other)} with other series, {len(differ)} with other values; the largest differences: {differ[-3:]}")
    print(f"vmalert: {result['vmalert']['rules']} rules, failing: {result['vmalert']['bad']}")


def programs(suite):
    """The directory of VictoriaMetrics' programs of a Debian suite."""
    def unpack(into):
        debian.download("victoria-metrics", suite, into)

    return cache.built(f"victoria-metrics-{suite}", cache.key(suite), unpack) / "usr/bin"


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=pathlib.Path, required=True, help="the jobledger-demo that is recorded")
    parser.add_argument("--victoria", type=pathlib.Path, metavar="DIRECTORY", help="with victoria-metrics and vmalert (default: Debian sid's)")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--record", type=float, default=40)
    parser.add_argument("--wait", type=float, default=180, help="seconds until the comparison (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path)
    return parser.parse_args()


def _single(stack, victoria, directory, name):
    """Starts a VictoriaMetrics; returns its address."""
    (port,) = free_ports(1)
    (directory / "scrape.yml").touch()
    command = [str(victoria / "victoria-metrics"), f"-storageDataPath={directory}/{name}", f"-httpListenAddr=127.0.0.1:{port}",
               "-search.latencyOffset=0s", "-search.disableCache", "-retentionPeriod=1y", "-memory.allowedPercent=20"]
    if name == "scraping":
        command.append(f"-promscrape.config={directory}/scrape.yml")
    stack.enter_context(running(command, directory / f"{name}.log"))
    wait_for(name, lambda: _ask(f"127.0.0.1:{port}", "/health"), 60)
    return f"127.0.0.1:{port}"


def _ask(address, path, body=None):
    with urllib.request.urlopen(f"http://{address}{path}", data=body, timeout=120) as answer:
        return answer.read() or b"ok"


def _import(address, past):
    """Imports the past data that Prometheus has, in the text format with milliseconds."""
    for node in range(past.cluster.count):
        lines = []
        for scrape in past.lines(node, past.until - past.all_for, past.until):
            for line in scrape:
                head, at = line.rsplit(" ", 1)
                lines.append(f"{head} {round(float(at) * 1000)}")
        _ask(address, "/api/v1/import/prometheus", "\n".join(lines).encode())


def _compare(rule, expression, prometheus, victoria, moment):
    """Compares two servers' results of an expression: the numbers of series, and the largest relative difference."""
    name = rule.get("record") or rule["alert"]
    try:
        ours = _vector(prometheus, expression, moment)
        theirs = _vector(victoria, expression, moment, nocache=1)
    except Exception as error:  # any error is a result
        return {"rule": name, "error": str(error)[:300]}
    both = ours.keys() & theirs.keys()
    worst = max((_difference(ours[key], theirs[key]) for key in both), default=0.0)
    return {"rule": name, "series": len(ours), "missing": len(ours.keys() - theirs.keys()), "extra": len(theirs.keys() - ours.keys()),
            "differ": sum(_difference(ours[key], theirs[key]) > EQUAL for key in both), "worst": float(f"{worst:.3g}")}


def _vector(server, expression, moment, **more):
    data = server.get("query", query=expression, time=f"{moment:.3f}", **more)
    if data["resultType"] == "scalar":
        return {(): float(data["result"][1])}
    return {tuple(sorted((key, value) for key, value in sample["metric"].items() if key != "__name__")): float(sample["value"][1])
            for sample in data["result"]}


def _difference(one, other):
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) / max(abs(one), abs(other))


def _unhealthy(port):
    """The number of vmalert's rules, and those that it could not evaluate."""
    groups = json.loads(_ask(f"127.0.0.1:{port}", "/api/v1/rules"))["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return {"rules": len(rules), "bad": [(rule["name"], rule.get("lastError")) for rule in rules if rule.get("lastError")]}


if __name__ == "__main__":
    sys.exit(main())
