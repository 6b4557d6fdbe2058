"""The tables, from what was measured. Pure."""

import dataclasses
import statistics

NOT_MEASURED = "–"


@dataclasses.dataclass
class Size:
    """One number of jobs. Costs are seconds of CPU time, one for each scrape, by name."""

    jobs: int
    files: int
    held: list[float]
    opened: list[float]
    costs: dict[str, list[float]]
    # (series of a job, series, bytes, resident MiB), by name.
    pages: dict[str, tuple[float, int, int, float]]


def milliseconds(seconds):
    """Three digits, as far as they say something."""
    value = seconds * 1e3
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def costs(sizes, names):
    """CPU time of a scrape, median."""
    lines = [row(["jobs", "files", "preads on kept descriptors", "open, read, close", *names]), row(["---:"] * (4 + len(names)))]
    for size in sizes:
        of_each = [milliseconds(statistics.median(size.costs[name])) if name in size.costs else NOT_MEASURED for name in names]
        floors = [milliseconds(statistics.median(floor)) for floor in (size.held, size.opened)]
        lines.append(row([str(size.jobs), str(size.files), *floors, *of_each]))
    return lines


def pages(sizes, names):
    """What each gave for it."""
    lines = [row(["jobs", "exporter", "series of a job", "series", "bytes", "CPU time, mean, ms", "RSS, MiB"]),
             row(["---:", "---", *["---:"] * 5])]
    for size in sizes:
        for name in (name for name in names if name in size.pages):
            per_job, series, length, resident = size.pages[name]
            lines.append(row([str(size.jobs), name, f"{per_job:.1f}", str(series), str(length), milliseconds(statistics.mean(size.costs[name])),
                              f"{resident:.1f}"]))
    return lines


def reasons(why):
    """Who is not in a table, and why."""
    return [f"- {name}: {text}" for name, text in why.items()]
