"""What is in a page of metrics, in the text format 0.0.4. Pure."""

import re

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)(?: \S+)?")


def samples(page):
    """Family and series of each sample."""
    found = (_SAMPLE.fullmatch(line) for line in page.splitlines() if line and not line.startswith("#"))
    return [(match[1], match[1] + (match[2] or ""), match[3]) for match in found if match]


def by_family(page, job):
    """The ids of jobs that each family has a sample of."""
    ids = {}
    for family, series, _ in samples(page):
        if match := job.search(series):
            ids.setdefault(family, set()).add(match[1])
    return ids


def series_per_job(page, job):
    """How many series a job has, in the mean; 0 without jobs."""
    found = [match[1] for _, series, _ in samples(page) if (match := job.search(series))]
    return len(found) / len(set(found)) if found else 0


def problem(page, exporter, jobs):
    """Why a page is not what is to be measured, or None. `jobs` is how many jobs there are."""
    families = by_family(page, exporter.job)
    seen = len(set().union(*families.values()))
    if seen != jobs:
        return f"shows {seen} of {jobs} jobs"
    for family in exporter.content:
        if (have := len(families.get(family, ()))) != jobs:
            return f"has {family} of {have} of {jobs} jobs"
    failed = next((f"{series} {value}" for _, series, value in samples(page) if exporter.failed.fullmatch(f"{series} {value}")), None)
    return f"says that it failed: {failed}" if failed else None
