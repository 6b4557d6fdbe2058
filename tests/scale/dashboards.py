#!/usr/bin/env python3
"""Opens every dashboard as Grafana does, over the past of N nodes, and prints what that costs Prometheus: tests/scale/README.md, docs/scale.md."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "grafana")]

import bed  # noqa: E402
import tools  # noqa: E402
import yaml  # noqa: E402
from backfill import Backfill  # noqa: E402
from cluster import DAY, Cluster, is_complete, recorded  # noqa: E402
from recording import record  # noqa: E402
from testbed import prometheus as servers  # noqa: E402
from testbed.processes import cpu_seconds, exit_on_signals, scratch, wait_for  # noqa: E402

SCRAPE, EVALUATION = 30, 60
# Pixels of a page on a screen of 1080p, and of the frame of a panel.
WIDTH, FRAME = 1880, 40
# Grafana's limits: steps of at least a range's 11 000th part (promlib/models/query.go).
MOST_POINTS = 11_000
# rangeUtil.roundInterval of @grafana/data: up to a number of seconds the interval is the second one.
ROUNDED = ((0.015, 0.01), (0.035, 0.02), (0.075, 0.05), (0.15, 0.1), (0.35, 0.2), (0.75, 0.5), (1.5, 1), (3.5, 2), (7.5, 5), (12.5, 10), (17.5, 15), (25, 20), (45, 30), (90, 60), (210, 120),
           (450, 300), (750, 600), (1050, 900), (1500, 1200), (2700, 1800), (5400, 3600), (9000, 7200), (16_200, 10_800), (32_400, 21_600), (86_400, 43_200), (604_800, 86_400))
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}




def seconds(text):
    number, unit = re.fullmatch(r"(\d+)([smhd])", text).groups()
    return int(number) * UNITS[unit]


def rounded(interval):
    return next((to for most, to in ROUNDED if interval < most), 604_800)


def timing(range_seconds, width, least=None):
    """(step, $__interval, $__rate_interval) of a panel this many columns wide, in seconds."""
    pixels = max(100, WIDTH * width // 24 - FRAME)
    interval = max(rounded(range_seconds / pixels), seconds(least) if least else SCRAPE)
    step = max(interval, -(-range_seconds // MOST_POINTS))
    return step, interval, max(step + SCRAPE, 4 * SCRAPE)


def idle(process):
    before = cpu_seconds(process)
    time.sleep(5)
    return cpu_seconds(process) - before < 0.05


def escaped(value):
    """A value of several in a regular expression, as Grafana's data source writes it (prometheusSpecialRegexEscape)."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value)


class Page:
    """A dashboard that is opened: what its variables are, and what each panel costs."""

    def __init__(self, server, process, dashboard, end, chosen):
        self.server, self.process, self.dashboard, self.end = server, process, dashboard, end
        self.range = seconds(dashboard["time"]["from"].removeprefix("now-"))
        self.values = {"__range": f"{self.range}s", "__range_s": str(self.range), "__from": str(int((end - self.range) * 1000)), "__to": str(int(end * 1000)), **chosen}

    def ask(self, path, **parameters):
        """(results, bytes) of a query."""
        given = urllib.parse.urlencode(parameters)
        address = f"http://{self.server.address}/api/v1/{path}"
        request = urllib.request.Request(f"{address}?{given}") if path.startswith("label/") else urllib.request.Request(address, given.encode())
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{self.dashboard['uid']}: {error.read().decode()}\n{parameters}") from error
        data = json.loads(body)["data"]
        return (data["result"] if isinstance(data, dict) else data), len(body)

    def measured(self, title, queries):
        """What these (path, parameters) cost together."""
        before, series, size = cpu_seconds(self.process), 0, 0
        for path, parameters in queries:
            found, length = self.ask(path, **parameters)
            series, size = series + len(found), size + length
        return {"panel": title, "cpu": cpu_seconds(self.process) - before, "series": series, "bytes": size}

    def variables(self):
        """Asks for the variables, in their order, and chooses as Grafana does."""
        for model in self.dashboard["templating"]["list"]:
            name = model["name"]
            if model["type"] != "query":
                if name not in self.values:
                    self.values[name] = str(model.get("current", {}).get("value") or model.get("query") or "")
                continue
            query = tools.interpolate(model["query"]["query"], self.values)
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
            if found:
                asked = f"label/{found[2]}/values", {"match[]": found[1], "start": self.end - self.range, "end": self.end}
                options = self.ask(asked[0], **asked[1])[0]
            else:
                asked = "query", {"query": re.fullmatch(r"query_result\((.+)\)", query, re.S)[1], "time": self.end}
                label = re.match(r"/(\w+)=", model["regex"])[1]
                options = [series["metric"].get(label, "") for series in self.ask(asked[0], **asked[1])[0]]
            yield self.measured(f"variable {name}", [asked])
            if name not in self.values:
                everything = model.get("allValue") if model.get("includeAll") else None
                self.values[name] = everything or ("|".join(map(escaped, options)) if model.get("includeAll") else (options or [""])[0])

    def measure(self):
        """What each panel of open rows, each variable and each annotation costs."""
        rows = list(self.variables())
        for note in self.dashboard["annotations"]["list"]:
            step, _, rate = timing(self.range, 24)
            rows.append(self.measured(f"annotation {note['name']}", [self.over(note["expr"], step, step, rate)]))
        for panel in self.dashboard["panels"]:
            if panel["type"] != "row":
                queries = []
                for target in panel["targets"]:
                    step, interval, rate = timing(self.range, panel["gridPos"]["w"], target.get("interval"))
                    queries.append(self.now(target["expr"], interval, rate) if target.get("instant") else self.over(target["expr"], step, interval, rate))
                rows.append(self.measured(panel["title"], queries))
        return rows

    def text(self, expr, interval, rate):
        return tools.interpolate(expr, {**self.values, "__interval": f"{interval:g}s", "__interval_ms": f"{interval * 1000:g}", "__rate_interval": f"{rate:g}s"})

    def now(self, expr, interval, rate):
        return "query", {"query": self.text(expr, interval, rate), "time": self.end}

    def over(self, expr, step, interval, rate):
        aligned = [int(at // step) * step for at in (self.end - self.range, self.end)]
        return "query_range", {"query": self.text(expr, interval, rate), "start": aligned[0], "end": aligned[1], "step": step}


def levels(paths):
    """The recording rules, those first that need no others: a list of {group: rules} for each level."""
    rules = {}
    for path in paths:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    rules.setdefault(rule["record"], []).append({key: rule[key] for key in ("record", "expr", "labels") if key in rule})
    found = []
    while rules:
        ready = [name for name, ones in rules.items() if not any(re.search(rf"(?<![\w:]){re.escape(other)}(?![\w:])", one["expr"]) for one in ones for other in rules if other != name)]
        if not ready:
            raise SystemExit(f"rules that need each other: {sorted(rules)}")
        found.append([rule for name in ready for rule in rules.pop(name)])
    return found


def write(promtool, work, lines):
    """Makes blocks of lines of OpenMetrics."""
    file = work / "past.om"
    with file.open("w") as text:
        text.writelines(lines)
        text.write("# EOF\n")
    done = subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", file, work / "data"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:])


def scrapes(cluster, begin, end):
    """What Prometheus itself says of each scrape."""
    for name, value in (("up", 1), ("scrape_duration_seconds", 0.02), ("scrape_samples_scraped", 1000)):
        for node in range(cluster.count):
            for at in range(int(begin), int(end), SCRAPE):
                yield f'{name}{{cluster="scale",instance="{cluster.instance(node)}",job="jobledger"}} {value} {at}\n'


def write_recorded(program, promtool, work, paths, begin, end):
    """Records the past of the rules, one level after the other, since each needs the one before."""
    for rules in levels(paths):
        with bed.prometheus(program, work, None, None) as (server, _):
            found = [(rule, server.get("query_range", query=rule["expr"], start=begin, end=end, step=EVALUATION)["result"]) for rule in rules]
        write(promtool, work, (f"{line} {value} {at}\n" for rule, series in found for line, values in _named(rule, series) for at, value in values))


def _named(rule, found):
    """The series of a rule's result, each with its values."""
    for series in found:
        labels = {name: value for name, value in series["metric"].items() if name != "__name__"} | rule.get("labels", {})
        yield f"{rule['record']}{{{','.join(f'{name}={json.dumps(value, ensure_ascii=False)}' for name, value in labels.items())}}}", series["values"]


def chosen(cluster, end, dashboard):
    """What somebody chooses: a node, and a job of up to four nodes, however many nodes there are."""
    jobid, _ = next(iter(cluster.spanning(end - 60, 4).items()))
    variables = {model["name"]: model for model in dashboard["templating"]["list"]}
    values = {"cluster": ".*", "datasource": "prometheus"}
    if "jobid" in variables:
        values |= {"jobid": str(jobid)}
    if "instance" in variables and not variables["instance"].get("includeAll"):
        values |= {"instance": cluster.instance(cluster.count - 1)}
    return values


def measure(nodes, tracks, program, promtool, work, hours):
    end = int(time.time())
    cluster = Cluster(nodes, tracks, end - 7 * DAY)
    (work / "data").mkdir()
    written = Backfill(cluster, end, SCRAPE, hours * 3600).write(promtool, work / "data", os.cpu_count())
    print(f"{nodes} nodes: {written} samples of {hours} hours", file=sys.stderr, flush=True)
    write(promtool, work, scrapes(cluster, end - hours * 3600, end))
    write_recorded(program, promtool, work, [path for path in bed.RULES if "alerts" not in path.parts], end - hours * 3600 + 300, end)
    figures = {}
    with bed.prometheus(program, work, None, None) as (server, process):
        # It puts blocks together at first, which is not the cost of a dashboard.
        wait_for("Prometheus to have nothing to do", lambda: idle(process), 600)
        for name, dashboard in tools.dashboards().items():
            figures[name.removesuffix(".json")] = Page(server, process, dashboard, end - 60, chosen(cluster, end, dashboard)).measure()
    return figures


def table(sizes):
    """Lines of Markdown: of each dashboard what it costs to open it with each number of nodes, and what that makes with 1000.

    CPU seconds and bytes of a panel are a + b x nodes: what a query costs anyway, and what each node adds to it.
    """
    few, many = min(sizes), max(sizes)
    lines = [f"| dashboard | range | CPU s, {few} nodes | {many} nodes | 1000 nodes, from these | most series of a panel | kB | dearest panels ({many} nodes) |", "|---|---|---:|---:|---:|---:|---:|---|"]
    for name in sizes[many]:
        total = {size: sum(panel["cpu"] for panel in sizes[size][name]) for size in sizes}
        each = (total[many] - total[few]) / (many - few) if many > few else total[many] / many
        thousand = total[many] + max(0.0, each) * (1000 - many)
        panels = sorted(sizes[many][name], key=lambda panel: -panel["cpu"])[:3]
        widest = max(sizes[many][name], key=lambda panel: panel["series"])
        dearest = ", ".join("{} {:.2f}".format(panel["panel"], panel["cpu"]) for panel in panels)
        since = tools.dashboards()[name + ".json"]["time"]["from"].removeprefix("now-")
        size = sum(panel["bytes"] for panel in sizes[many][name]) / 1000
        lines.append(f"| {name.removeprefix('jobledger-')} | {since} | {total[few]:.2f} | {total[many]:.2f} | {thousand:.1f} | "
                     f"{widest['series']} ({widest['panel']}) | {size:.0f} | {dearest} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="+", help="how many nodes, one measurement each")
    parser.add_argument("--demo", type=pathlib.Path, required=True, help="the jobledger-demo that is recorded")
    parser.add_argument("--record", type=float, default=60, metavar="SECONDS", help="how long (default: %(default)s)")
    parser.add_argument("--hours", type=float, default=6, help="how much of the past there is (default: %(default)s); a dashboard with a longer range costs more than this shows")
    parser.add_argument("--prometheus", choices=["2", "3"], default="2", help="Debian 12's or Debian's newest")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE", help="also writes what each panel costs as JSON")
    options = parser.parse_args()
    exit_on_signals()
    program, promtool = servers.programs(options.prometheus)
    sizes = {}
    with scratch("jobledger-dashboards-scale") as directory:
        pages = record(options.demo, options.record, directory, is_complete)
        for nodes in options.nodes:
            work = directory / str(nodes)
            work.mkdir()
            sizes[nodes] = measure(nodes, recorded(pages), program, promtool, work, options.hours)
            for name, panels in sizes[nodes].items():
                for panel in sorted(panels, key=lambda panel: -panel["cpu"])[:8]:
                    print(f"{nodes:5} {name:24} {panel['cpu']:7.2f} s {panel['series']:6} series {panel['bytes']:9} bytes  {panel['panel']}", flush=True)
    print("\n".join(table(sizes)))
    if options.output:
        options.output.write_text(json.dumps(sizes, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
