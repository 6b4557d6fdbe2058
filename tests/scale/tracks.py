"""Tracks: endless replays of the series of a recorded job or node.

Gauges repeat their recorded values. Counters repeat their increments and so never go back; those of a job start at 0 with the job.
Every value was exported, or is a sum of exported increments with as many digits.
"""

from exposition import JOBID, labels_of, name_of
from recording import STEP

# Minimum number of scrapes of a job.
LEAST = 8
START = "jobledger_job_start_time_seconds"
END = "jobledger_job_end_time_seconds"
INFO = "jobledger_job_info"
# Placeholder for a job's id in its series.
MARK = "\0"


class Track:
    """Series as (family, text, increments or None, texts or None), all of the same number of steps.

    A counter has its values at each step, the increment of a whole round, and its number of decimals (None for integers). A gauge has
    its texts. With `from_zero` counters start at 0.
    """

    def __init__(self, columns, counters, from_zero):
        self.steps = max(1, min(len(column) for column in columns.values()) - 1)
        self.series, self.from_zero, self._only = [], from_zero, {}
        for series, column in columns.items():
            name = name_of(series)
            if name in counters:
                decimals = max(len(text.partition(".")[2]) for text in column)
                values = [float(text) if decimals else int(text) for text in column]
                self.series.append((name, series, values, values[self.steps] - values[0], decimals or None))
            else:
                self.series.append((name, series, None, column, None))

    def at(self, seconds, shift):
        """(finished rounds, step) `seconds` after a start at step `shift` of the recording."""
        return divmod(int(seconds / STEP) + shift, self.steps)

    def values(self, seconds, shift, names=None):
        """The values as texts of all series, or of those of some families, in order."""
        rounds, at = self.at(seconds, shift)
        texts = []
        for _, _, counts, more, decimals in self.series if names is None else self.only(names)[1]:
            if counts is None:
                texts.append(more[at])
                continue
            value = counts[at] + rounds * more - (counts[shift] if self.from_zero else 0)
            texts.append(str(value) if decimals is None else repr(round(value, decimals)))
        return texts

    def only(self, names):
        """(indices, series) of some families."""
        if names not in self._only:
            found = [(number, series) for number, series in enumerate(self.series) if series[0] in names]
            self._only[names] = [number for number, _ in found], [series for _, series in found]
        return self._only[names]

    def total(self, names, seconds, shift):
        """The sum of all counters of some families."""
        rounds, at = self.at(seconds, shift)
        return sum(counts[at] + rounds * more - counts[shift] for name, _, counts, more, _ in self.series
                   if name in names and counts is not None)


def _columns(pages, keys):
    """The values of each series as texts, by page. Missing values repeat the one before; leading ones are the first value."""
    columns = {}
    for key, series in keys.items():
        texts = [page.samples.get(series) for page in pages]
        known = next(text for text in texts if text is not None)
        for number, text in enumerate(texts):
            known = texts[number] = text if text is not None else known
        columns[key] = texts
    return columns


def _running(pages):
    """The pages in which each job runs, {jobid: [number, ...]}, without jobs that were requeued meanwhile."""
    running, starts = {}, {}
    for number, page in enumerate(pages):
        for series, value in page.samples.items():
            if name_of(series) == START:
                (jobid,) = JOBID.findall(series)
                starts.setdefault(jobid, set()).add(value)
                if series.replace(START, END) not in page.samples:
                    running.setdefault(jobid, []).append(number)
    return {jobid: numbers for jobid, numbers in running.items() if len(starts[jobid]) == 1}


def _distinct(pages):
    """The pages without repetitions of the last one (see recording._even)."""
    count = len(pages)
    while count > 1 and pages[count - 1] is pages[count - 2]:
        count -= 1
    return pages[:count]


def _job_track(pages, jobid, counters):
    label = f'jobid="{jobid}"'
    keys = {series.replace(label, f'jobid="{MARK}"'): series
            for series in pages[-1].samples if label in series and not series.startswith("jobledger_node_")}
    return Track(_columns(pages, keys), counters, from_zero=True)


def _job_name(page, jobid):
    """The name of a job, which on a simulated node is its kind."""
    return next((labels_of(series)["name"] for series in page.samples
                 if series.startswith(INFO) and f'jobid="{jobid}"' in series), None)


class Recorded:
    """The tracks of one recorded node and of its jobs by name. `wanted` are the names of needed jobs."""

    def __init__(self, pages, wanted):
        pages = _distinct(pages)
        last = pages[-1]
        self.families = last.families
        counters = {name for name, family in self.families.items() if family["TYPE"] == "counter"}
        own = {series: series for series in last.samples if 'jobid="' not in series}
        self.node = Track(_columns(pages, own), counters, from_zero=False)
        self.jobs = {}
        running = {jobid: numbers for jobid, numbers in _running(pages).items() if len(numbers) >= LEAST}
        kinds = {jobid: _job_name(pages[numbers[-1]], jobid) for jobid, numbers in running.items()}
        # Jobs that ran at the same moment have different GPUs, so they fit together on a node.
        moments = [[jobid for jobid, numbers in running.items() if number in numbers] for number in range(len(pages))]
        for jobid in max(moments, key=lambda jobids: len({kinds[jobid] for jobid in jobids} & wanted)):
            self.jobs[kinds[jobid]] = _job_track(_distinct([pages[number] for number in running[jobid]]), jobid, counters)
        self.kept_after_end = {name_of(series) for page in pages for series in page.samples
                               for jobid in JOBID.findall(series)
                               if f'{END}{{jobid="{jobid}"}}' in page.samples}
