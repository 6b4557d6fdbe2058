"""The text format of Prometheus, as far as the exporter writes it: families in one piece, no timestamps."""

import re

JOBID = re.compile(r'jobid="(\d+)"')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Page:
    """One scrape: its families in order, with type and help, and its samples as text by series."""

    def __init__(self, text):
        self.families, self.samples = {}, {}
        for line in text.splitlines():
            if line.startswith("# "):
                _, what, name, rest = line.split(" ", 3)
                self.families.setdefault(name, {})[what] = rest
            elif line:
                series, value = line.rsplit(" ", 1)
                self.samples[series] = value


def name_of(series):
    return series.partition("{")[0]


def labels_of(series):
    return dict(LABEL.findall(series.partition("{")[2]))


def header(name, family, openmetrics):
    """The comment lines of a family. OpenMetrics calls a family of counters what its samples are without `_total`."""
    if openmetrics and family["TYPE"] == "counter":
        name = name.removesuffix("_total")
    return f"# HELP {name} {family['HELP']}\n# TYPE {name} {family['TYPE']}\n"
