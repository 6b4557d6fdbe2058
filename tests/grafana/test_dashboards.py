"""Every dashboard is generated, linted, follows Grafana's schema, and uses existing names, units, links and variables."""

import json
import re
import subprocess
import unittest

import expectations
import tools

UIDS = {"jobledger-overview", "jobledger-jobs", "jobledger-job-report", "jobledger-owner", "jobledger-waste", "jobledger-node", "jobledger-gpu", "jobledger-energy", "jobledger-exporter"}
# Prometheus' own, and labels that it, the site or the rules add.
SYNTHETIC = {"ALERTS", "up", "scrape_duration_seconds", "scrape_samples_scraped"}
ADDED = {"cluster", "job", "instance", "slurm_node", "alertname", "alertstate", "severity"}
# Grafana's built-in variables.
BUILT_IN = {"__range", "__range_s", "__rate_interval", "__interval", "__interval_ms", "__from", "__to", "__all", "__url_time_range", "__data", "__value", "__series", "__field"}
SERIES = re.compile(r"(?<![\w:\"])((?:[a-z_]+:)?(?:jobledger[a-z0-9_]*|process_[a-z_]+|scrape_[a-z_]+|up|ALERTS)(?::[a-z0-9_]+)*)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}|\$(\w+)")


def strings(value):
    """Every string in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def without_strings(expr):
    return re.sub(r'"[^"]*"', '""', expr)


class Made(unittest.TestCase):
    def test_the_committed_dashboards_are_the_generated_ones(self):
        ran = subprocess.run([tools.python(), tools.GRAFANA / "generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_the_generator_notices_a_difference(self):
        path = tools.GRAFANA / "dashboards" / "jobledger-nothing.json"
        self.addCleanup(path.unlink)
        path.write_text("{}\n")
        ran = subprocess.run([tools.python(), tools.GRAFANA / "generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("jobledger-nothing.json", ran.stderr)

    def test_linted(self):
        paths = sorted((tools.GRAFANA / "dashboards").glob("*.json"))
        ran = subprocess.run([tools.linter(), tools.GRAFANA / ".lint", *paths], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout[-4000:] + ran.stderr)

    def test_the_linter_finds_errors(self):
        dashboard = tools.dashboards()["jobledger-node.json"]
        next(tools.panels(dashboard))["description"] = ""
        next(panel for panel in tools.panels(dashboard) if panel["type"] == "timeseries")["targets"][0]["expr"] = "rate(jobledger_node_forks_total[3m])"
        path = tools.GRAFANA / "dashboards" / ".broken.json"
        self.addCleanup(path.unlink)
        path.write_text(json.dumps(dashboard))
        ran = subprocess.run([tools.linter(), tools.GRAFANA / ".lint", path], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        for complaint in ("title or description", "should use $__rate_interval", "instance selector not found"):
            self.assertIn(complaint, ran.stdout)

    def test_they_follow_grafanas_schema(self):
        """The package's types are generated from Grafana's schema: a round trip through them loses and changes nothing."""
        program = ("import json, sys\nfrom grafana_foundation_sdk.cog.encoder import JSONEncoder\nfrom grafana_foundation_sdk.models.dashboard import Dashboard\n"
                   "import grafana_foundation_sdk.cog.plugins as plugins\nplugins.register_default_plugins()\n"
                   "for path in sys.argv[1:]:\n    given = json.load(open(path))\n"
                   "    through = json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))\n"
                   "    assert through | {'schemaVersion': given['schemaVersion']} == given, path\n")
        paths = sorted((tools.GRAFANA / "dashboards").glob("*.json"))
        ran = subprocess.run([tools.python(), "-c", program, *paths], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)


class Form(unittest.TestCase):
    def setUp(self):
        self.dashboards = tools.dashboards()

    def test_all_dashboards_exist(self):
        self.assertEqual({dashboard["uid"] for dashboard in self.dashboards.values()}, UIDS)
        self.assertEqual(len({dashboard["title"] for dashboard in self.dashboards.values()}), len(UIDS))
        for name, dashboard in self.dashboards.items():
            self.assertEqual(name, dashboard["uid"] + ".json")

    def test_they_have_the_classic_form_for_provisioning(self):
        for name, dashboard in self.dashboards.items():
            with self.subTest(name):
                self.assertEqual(dashboard["schemaVersion"], 41)
                self.assertFalse(dashboard["editable"])
                self.assertFalse({"__inputs", "__requires", "id", "gnetId"} & dashboard.keys())
                self.assertIn("jobledger", dashboard["tags"])

    def test_panels_have_unique_ids_and_do_not_overlap(self):
        for name, dashboard in self.dashboards.items():
            everything = dashboard["panels"] + [panel for row in dashboard["panels"] for panel in row.get("panels", [])]
            ids = [panel["id"] for panel in everything]
            self.assertEqual(len(ids), len(set(ids)), name)
            for group in [dashboard["panels"], *(row["panels"] for row in dashboard["panels"] if row.get("panels"))]:
                taken = set()
                for panel in group:
                    place = panel["gridPos"]
                    with self.subTest(name, panel=panel["title"]):
                        self.assertLessEqual(place["x"] + place["w"], 24)
                        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                        self.assertFalse(cells & taken)
                        taken |= cells

    def test_panels_have_title_description_unit_and_query(self):
        units = set(subprocess.run([tools.python(), "-c", "import grafana_foundation_sdk.models.units as units\n"
                                    "print('\\n'.join(value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith('_')))"],
                                   capture_output=True, text=True, check=True).stdout.splitlines())
        self.assertGreater(len(units), 100)
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                with self.subTest(name, panel=panel["title"]):
                    self.assertTrue(panel["title"] and panel["description"].endswith("."))
                    self.assertTrue(panel["targets"])
                    self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"})
                    refs = [target["refId"] for target in panel["targets"]]
                    self.assertEqual(len(refs), len(set(refs)))
                    config = panel["fieldConfig"]
                    used = [config["defaults"]["unit"]] + [change["value"] for override in config["overrides"] for change in override["properties"] if change["id"] == "unit"]
                    # "si:" is a prefix of Grafana: the unit after it gets kilo, mega, giga.
                    self.assertLessEqual({unit for unit in used if not unit.startswith("si:")}, units)

    def test_an_empty_panel_of_the_report_says_why(self):
        """Most jobs lack something: GPUs, a file system, hardware counters. These two have data for every job."""
        for panel in tools.panels(self.dashboards["jobledger-job-report.json"]):
            if panel["title"] not in ("Verdict", "Advice: what to change"):
                with self.subTest(panel["title"]):
                    self.assertGreater(len(panel["fieldConfig"]["defaults"].get("noValue", "")), 3)

    def test_gaps_are_gaps(self):
        """Grafana ends a line where a step has no point, as long as no panel sets another threshold, or joins what is left."""
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                with self.subTest(name, panel=panel["title"]):
                    custom = panel["fieldConfig"]["defaults"].get("custom", {})
                    self.assertNotIn("insertNulls", custom)
                    self.assertFalse(custom.get("spanNulls", False))

    def test_the_first_screen_of_the_report(self):
        """1080p shows some 24 rows of the grid."""
        report = self.dashboards["jobledger-job-report.json"]
        first = [panel for panel in report["panels"] if panel["type"] != "row"]
        self.assertEqual([panel["title"] for panel in first], ["Job", "Verdict", "How well it used what it held", "Advice: what to change", "CPUs used and held", "Memory against its limit",
                                                               "GPUs, and what the job waited for", "Where and when it was busy"])
        self.assertLessEqual(max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in first), 24)
        rows = [panel for panel in report["panels"] if panel["type"] == "row"]
        self.assertTrue(rows and all(row["collapsed"] and row["panels"] for row in rows))

    def test_numbers_are_not_rounded_to_thousands_nor_shown_in_years(self):
        """Without decimals Grafana's "short" shows 1280 CPUs as "1 K", and "s" shows the CPU time of a department in years."""
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                if panel["type"] not in ("stat", "table"):
                    continue
                titles = {}
                for change in panel.get("transformations", []):
                    titles |= {heading: field for field, heading in change["options"].get("renameByName", {}).items()}
                # topk chooses rows.
                exprs = {"Value #" + target["refId"]: target["expr"].split(" topk(")[0] for target in panel["targets"]}
                units = [(panel["fieldConfig"]["defaults"]["unit"], "Value #A")]
                units += [(one["value"], titles.get(override["matcher"]["options"])) for override in panel["fieldConfig"]["overrides"]
                          for one in override["properties"] if one["id"] == "unit"]
                for unit, field in units:
                    with self.subTest(name, panel=panel["title"], field=field):
                        self.assertNotEqual(unit, "short")
                        if unit == "s":
                            self.assertNotRegex(exprs.get(field, exprs["Value #A"]), r"jobledger_job_(\w*cpu|gpu_idle|gpu_allocated)_seconds:|jobledger_step_cpu_seconds")

    def test_titles_say_what_is_per_hour_and_headings_fit(self):
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                with self.subTest(name, panel=panel["title"]):
                    for target in panel["targets"]:
                        if "_carbon_grams:rate" in target["expr"] and panel["type"] != "table":
                            self.assertIn("per hour", panel["title"])
                    if panel["type"] != "table":
                        continue
                    for change in panel["transformations"]:
                        for field, heading in change["options"].get("renameByName", {}).items():
                            # A number's column is narrow: longer titles are cut off.
                            self.assertLessEqual(len(heading) if field.startswith("Value #") else 0, 20)

    def test_variables_exist_and_are_used(self):
        for name, dashboard in self.dashboards.items():
            there = {variable["name"] for variable in dashboard["templating"]["list"]}
            used = {first or second for text in strings(dashboard) for first, second in VARIABLE.findall(text)}
            with self.subTest(name):
                self.assertFalse(used - there - BUILT_IN)
                self.assertFalse(there - used)
                for variable in dashboard["templating"]["list"]:
                    if variable["type"] == "query":
                        self.assertNotIn("interval", variable["query"]["query"], "Grafana does not put it into a variable's query")
                        self.assertEqual(variable["refresh"], 2, "asked again when the time range changes")

    def test_links_have_targets_that_know_their_variables(self):
        variables = {dashboard["uid"]: {variable["name"] for variable in dashboard["templating"]["list"]} for dashboard in self.dashboards.values()}
        found = 0
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                headings = set()
                for change in panel.get("transformations", []):
                    headings |= set(change["options"].get("renameByName", {}).values())
                for text in strings(panel):
                    if not text.startswith("/d/"):
                        continue
                    found += 1
                    with self.subTest(name, panel=panel["title"], link=text):
                        uid, query = re.fullmatch(r"/d/([\w-]+)\?(.+)", text).groups()
                        self.assertIn(uid, variables)
                        given = set(re.findall(r"(?:^|&)var-(\w+)=", query)) | set(re.findall(r"\$\{(\w+):queryparam\}", query))
                        self.assertLessEqual(given, variables[uid])
                        self.assertLessEqual(set(re.findall(r'__data\.fields\["([^"]+)"\]', query)), headings)
                        self.assertTrue("${__url_time_range}" in query or re.search(r"from=\$\{__data.+numeric\}&to=(now|\$\{__data.+numeric\})\Z", query))
        self.assertGreater(found, 30)

    def test_links_of_a_table_pass_the_cluster_of_their_row(self):
        """Job ids and node names are unique only within a cluster, and the variable's default is all clusters."""
        found = 0
        for name, dashboard in self.dashboards.items():
            for panel in tools.panels(dashboard):
                links = [text for text in strings(panel) if text.startswith("/d/")]
                if not links:
                    continue
                found += 1
                with self.subTest(name, panel=panel["title"]):
                    for link in links:
                        self.assertIn('&var-cluster=${__data.fields["Cluster link"]}&', link)
                    renamed = [change["options"]["renameByName"] for change in panel["transformations"] if change["id"] == "organize"][0]
                    self.assertEqual((renamed["cluster"], renamed["cluster_link"]), ("Cluster", "Cluster link"))
                    hidden = [change["properties"] for change in panel["fieldConfig"]["overrides"] if change["matcher"]["options"] == "Cluster link"][0]
                    self.assertIn({"id": "custom.hidden", "value": True}, hidden)
                    self.assertTrue(panel["targets"][0]["expr"].startswith("label_replace(label_join("))
                    self.assertTrue(panel["targets"][0]["expr"].endswith(', "cluster_link", "", "cluster"), "cluster_link", "All", "cluster_link", "")'))
                    for target in panel["targets"]:
                        for labels in re.findall(r"\b(?:by|on) \(([^)]+)\)", target["expr"]):
                            if labels != "given":
                                self.assertIn("cluster", labels.split(", "), target["expr"])
        self.assertGreater(found, 10)

    def test_totals_of_a_job_are_never_extrapolated(self):
        for name, dashboard in self.dashboards.items():
            for panel, target in tools.targets(dashboard):
                with self.subTest(name, panel=panel["title"]):
                    self.assertNotRegex(target["expr"], r"\b(increase|irate|delta)\(")
                    for window in re.findall(r"\brate\([^\[]*\[([^\]]+)\]", target["expr"]):
                        self.assertEqual(window, "$__rate_interval")

    def test_reasons_to_hold_a_gpu_down_equal_those_of_the_alert(self):
        reasons = re.search(r'HELD_DOWN = "([^"]+)"', (tools.GRAFANA / "src" / "style.py").read_text()).group(1)
        self.assertIn(f'jobledger_gpu_throttle_active{{reason=~"{reasons}"}}', (tools.RULES / "alerts" / "nodes.yaml").read_text())


class Names(unittest.TestCase):
    """The exporter or a rule has each metric and each label that is used."""

    def setUp(self):
        self.families, self.recorded = tools.families(), tools.recorded()
        self.labels = set().union(*self.families.values()) | ADDED

    def queries(self):
        for name, dashboard in tools.dashboards().items():
            for panel, target in tools.targets(dashboard):
                yield name, panel["title"], target["expr"], target.get("legendFormat", "")
            for note in dashboard["annotations"]["list"]:
                yield name, note["name"], note["expr"], note.get("titleFormat", "")
            for variable in dashboard["templating"]["list"]:
                if variable["type"] == "query":
                    yield name, variable["name"], variable["query"]["query"], ""

    def test_metrics_and_labels(self):
        used = set()
        for name, where, expr, legend in self.queries():
            with self.subTest(name, where=where):
                found = SERIES.findall(expr)
                self.assertTrue(found or "__from" in expr or expr.startswith("label_replace(label_replace(label_replace(vector"), expr)
                for metric, matchers in found:
                    used.add(metric)
                    self.assertTrue(metric in self.families or metric in self.recorded or metric in SYNTHETIC, metric)
                    allowed = (self.families[metric] | ADDED) if metric in self.families else self.labels
                    self.assertLessEqual(set(re.findall(r"(\w+)(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', matchers))), allowed, metric)
                made = set(re.findall(r'label_(?:replace|join)\(.*?, "(\w+)", ', expr)) | set(re.findall(r'count_values\("(\w+)"', expr))
                for labels in GROUPING.findall(without_strings(expr)):
                    self.assertLessEqual(set(filter(None, re.split(r"[,\s]+", labels))), self.labels | made)
                self.assertLessEqual(set(re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)), self.labels | made)
        self.assertGreater(len(used), 200)

    def test_every_query_of_series_of_the_exporter_selects_the_cluster(self):
        for name, where, expr, _ in self.queries():
            for metric, matchers in SERIES.findall(expr):
                if metric in ("jobledger:carbon_factor:grams_per_kwh",) or (where, metric) == ("cluster", "jobledger_exporter_build_info"):
                    continue
                with self.subTest(name, where=where, metric=metric):
                    self.assertIn('cluster=~"$cluster"', matchers)

    def test_recorded_series_are_used_where_they_exist(self):
        """A panel of many jobs has their rates from the rules, and does not compute them again. Of one job or one node its own counters are asked."""
        ours = {record.split(":")[1] for record in self.recorded if record.split(":")[0] in ("jobid", "jobid_instance", "jobid_gpu") and "rate2m" in record}
        for name, where, expr, _ in self.queries():
            if name in ("jobledger-job-report.json", "jobledger-node.json"):
                continue
            for metric in re.findall(r"\brate\(jobledger_job_(\w+?)_total\{", expr):
                with self.subTest(name, where=where):
                    self.assertIn((where, metric), expectations.RAW_RATES, metric if "jobledger_job_" + metric in ours else "no rule has it")


if __name__ == "__main__":
    unittest.main()
