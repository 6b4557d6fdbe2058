"""Job report: GPUs."""

from . import style
from .board import GPU, NODE, href
from .job_numbers import GPUS, by_gpu, gpu_now, known, running, use
from .panels import Column, series, table
from .queries import job, last, most

# A job with more GPUs than this has a table of those that were busy least.
ROWS = 40
BY = "by (cluster, instance, gpu, uuid)"


def _table(board_):
    def per(counter, *more):
        return f"sum {BY} ({by_gpu(counter, *more)})"

    allocated, idle, busy = (per(f"jobledger_job_gpu_{what}_seconds_total") for what in ("allocated", "idle", "busy"))
    least = f"and on (cluster, instance, gpu, uuid) bottomk({ROWS}, {use(busy, idle)} or {allocated} * 0 + 2)"

    def part(counter, *more):
        return f"clamp_max({per(counter, *more)} / ({allocated} > 0), 1) {least}"

    # The energy of a part is that of its whole board, whose uuid is another; the number is the same.
    energy = f"sum by (cluster, instance, gpu) ({known(most(job('jobledger_job_gpu_energy_joules_total')))})"
    board_.add(table(
        "GPUs of the job", f"Totals of each GPU over the job; of more than {ROWS} those that were busy least. Busy is of the time in which it is known whether kernels ran; SM active (how much of the GPU worked), tensor "
                           "and memory pipes are reported by Hopper and later, and by AMD in part; a GPU that jobs share has none. Energy is the whole board's, as far as it is charged to the job.",
        [Column("instance", "Node", links=[("Node dashboard", href(NODE, instance='${__data.fields["Node"]}'))], width=130),
         Column("gpu", "GPU", links=[("GPU health", href(GPU, uuid='${__data.fields["UUID"]}'))]), Column("model", "Model", width=180),
         Column("profile", "Part"), Column("shared", "Shared"), Column("source", "Known by"),
         Column("Value #B", "Had", style.SECONDS), Column("Value #C", "Busy", style.RATIO, 1, style.EFFICIENCY_GPU, gauge=1),
         Column("Value #D", "Not used", style.SECONDS), Column("Value #E", "SM active", style.RATIO, 1), Column("Value #F", "Tensor", style.RATIO, 1),
         Column("Value #G", "Memory at most", style.BYTES, 1), Column("Value #H", "Energy", style.JOULES, 1), Column("uuid", "UUID", width=200)],
        [f"max by (cluster, instance, gpu, uuid, model, profile, shared, source) ({last(job('jobledger_job_gpu_info'))}) {least}", f"{allocated} {least}",
         f"{use(busy, idle)} {least}", f"{idle} {least}", part("jobledger_job_gpu_sm_active_seconds_total"), part("jobledger_job_gpu_pipe_active_seconds_total", 'pipe="tensor"'),
         f"max {BY} ({known(most(job('jobledger_job_gpu_memory_peak_bytes')))}) {least}",
         f"max {BY} ({last(job('jobledger_job_gpu_info'))}) * on (cluster, instance, gpu) group_left () {energy} {least}"],
        sort="Busy", descending=False, nothing="The job has no GPUs, or it is not known which"), 24, 7)


def add(board_):
    board_.count("gpus", GPUS)
    board_.row("GPUs: $gpus", collapsed=True)
    _table(board_)
    used, size = job("jobledger_job_gpu_memory_used_bytes"), job("jobledger_job_gpu_memory_limit_bytes")
    share = f"clamp_max({used} / ({size} > 0), 1)"
    without = "The job has no GPUs, or their driver does not report it"
    board_.add(series("How the GPUs worked", "Means over the job's GPUs of the time that it had them. SM active, occupancy (of the warps that fit) and pipes: Hopper and later.", style.RATIO,
                      [*((gpu_now(f"jobledger_job_gpu_{what}_seconds_total"), title) for what, title in (
                          ("busy", "Busy"), ("sm_active", "SM active"), ("sm_occupancy", "Occupancy"), ("dram_active", "Memory active"))),
                       *((gpu_now("jobledger_job_gpu_pipe_active_seconds_total", f'pipe="{pipe}"'), title) for pipe, title in (("tensor", "Tensor pipe"), ("fp16", "FP16 pipe"), ("fp32", "FP32 pipe"), ("fp64", "FP64 pipe")))],
                      high=1, calcs=("mean",), nothing=without), 8, 9)
    board_.add(series("GPU memory", "Of each GPU's memory: the fullest, the mean and the emptiest GPU of the job.", style.RATIO,
                      [(f"max({share})", "Fullest"), (f"avg({share})", "Mean"), (f"min({share})", "Emptiest")], high=1, calcs=("max",), nothing=without), 8, 9)
    power = f"sum by (cluster, instance, gpu) ({running('jobledger_job_gpu_energy_joules_total')})"
    board_.add(series("Power, and bytes to and from GPUs", "Power of the boards, as attributed to the job, on the left; bytes over PCIe (host) and over links to other GPUs on the right.", style.WATTS,
                      [(f"sum({power})", "Power"),
                       *((f"sum({running(f'jobledger_job_gpu_{link}_{way}_bytes_total')})", f"{title} {word}") for link, title in (("pcie", "PCIe"), ("link", "Links"))
                         for way, word in (("received", "in"), ("transmitted", "out")))],
                      right={"/PCIe|Links/": style.BYTES_PER_SECOND}, colours={"Power": style.GREEN}, calcs=("mean",), nothing=without), 8, 9)
