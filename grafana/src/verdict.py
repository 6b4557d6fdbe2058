"""One sentence on a job: the first piece of advice that applies, or how its CPUs and GPUs were used."""

from . import advice, style
from .job_numbers import CPU_USE, ELAPSED, GPU_USE, GPUS, OOM_KILLS, RUNNING, ever
from .panels import sentence
from .queries import label

# Advice on what was seen: without the first row, of clusters, and those that say why there is none.
PIECES = advice.rows()[1:-3]
# Values of the sentences. The greatest that applies is shown, and with 100 more a job on which much was lost.
UNKNOWN, ELSEWHERE, SHORT, GOOD, FAIR, ADVISED, MUCH_LOST = 0, 5, 10, 20, 30, 50, 100
# Below these the job wasted most of what it held, or processes of it were killed.
LOST = f"(({CPU_USE} < {style.CPU_LOW} unless {GPUS}) or {GPU_USE} < {style.GPU_LOW} or {OOM_KILLS} > 0)"
RANGES = [(UNKNOWN, UNKNOWN, "Not found", style.ORANGE), (ELSEWHERE, ELSEWHERE, "Another time", style.ORANGE), (SHORT, SHORT, "No verdict", style.GREY),
          (GOOD, GOOD, "Good", style.BLUE), (FAIR, ADVISED + len(PIECES), "Could be better", style.ORANGE),
          (MUCH_LOST, 2 * MUCH_LOST, "Not good", style.RED)]


def query():
    """The sentence is the label `what`, its value one of RANGES."""
    here = f"count(last_over_time({RUNNING}[$__range]))"
    judged = f"({ELAPSED} >= 120)"
    found = [label(f"vector({UNKNOWN})", what="No job of this number within a month: choose one in the Jobs dashboard"),
             label(f"count({ever(RUNNING)}) * 0 + {ELSEWHERE}", what="The job ran at another time: «Go to its time», above"),
             label(f"{here} * 0 + {SHORT}", what="Less than two minutes: totals are exact, and there is nothing to judge yet"),
             label(f"{judged} * 0 + {GOOD}", what="Nothing to change: what is known of it is within its target"),
             label(f"({CPU_USE} < {style.CPU_FAIR} unless {GPUS}) * 0 + {FAIR} and on () {judged}", what="Its CPUs were used in part"),
             label(f"({GPU_USE} < {style.GPU_FAIR}) * 0 + {FAIR + 1} and on () {judged}", what="Its GPUs were busy for a part of the time")]
    # The first piece of advice weighs most: what a job was killed for is said first.
    for weight, row in enumerate(reversed(PIECES), ADVISED):
        found.append(f"0 * count by (what) ({row}) + {weight}")
    return f"topk(1, {' or '.join(found)}) + scalar({LOST} * 0 + {MUCH_LOST} and on () {judged} or vector(0))"


def add(board_):
    board_.add(sentence("Verdict", "The first piece of advice that applies to the job, or that none does. «Not good»: processes were killed for memory, or "
                                   f"less than {style.CPU_LOW:.0%} of the CPU time or {style.GPU_LOW:.0%} of the GPU time was used.", query(), RANGES, "what"), 24, 2)
