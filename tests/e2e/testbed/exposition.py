"""Parses the exporter's metrics by the rules of the text format, without the exporter's code."""

import re
import urllib.request

# Flags with which each scrape of a scenario measures, is one of a reader, wherever it comes from, and has all there is.
SCRAPED = ("--scrape.min-interval=0s", "--web.scrapers=0.0.0.0/0", "--metric.profile=full")
_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?')
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPE = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Metrics:
    """The samples of one scrape."""

    def __init__(self, text):
        self.samples = []
        for line in text.split("\n"):
            if not line or line.startswith("#"):
                continue
            match = _SAMPLE.fullmatch(line)
            if not match:
                raise ValueError(f"not a sample: {line!r}")
            self.samples.append((match[1], _labels(match[2] or ""), float(match[3])))

    def select(self, name, **labels):
        """The (labels, value) of a family whose labels equal the given ones (values are compared as text)."""
        wanted = {key: str(value) for key, value in labels.items()}
        return [(have, value) for family, have, value in self.samples
                if family == name and all(have.get(key, "") == text for key, text in wanted.items())]

    def value(self, name, **labels):
        """The value of the only such sample, or None if there is none."""
        found = self.select(name, **labels)
        if len(found) > 1:
            raise ValueError(f"{len(found)} samples of {name} {labels}: {found[:4]}")
        return found[0][1] if found else None

    def total(self, name, **labels):
        """The sum over such samples."""
        return sum(value for _, value in self.select(name, **labels))

    def running(self):
        """The ids of the exported jobs without an end time."""
        exported, ended = ({int(labels["jobid"]) for labels, _ in self.select(family)}
                       for family in ("jobledger_job_info", "jobledger_job_end_time_seconds"))
        return exported - ended


def _labels(text):
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if not match:
            raise ValueError(f"not labels: {text!r}")
        labels[match[1]] = re.sub(r'\\["\\n]', lambda escape: _ESCAPE[escape[0]], match[2])
        at = match.end()
    return labels


def fetch(address, timeout=300):
    """Scrapes `address` (host:port) once."""
    return Metrics(text(address, timeout))


def text(address, timeout=300):
    """The exposition of `address` (host:port) as text."""
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read().decode()
