"""Job report: GPUs."""

from . import style
from .board import GPU, NODE, href
from .panels import Column, Query, heatmap, series, states, table
from .queries import CLUSTER, ROWS_OF_GPUS, job, last, most, rows_of_gpus

GPU_NAME = "{{instance}} GPU {{gpu}} {{profile}}"
# Health, and energy, are those of the whole board, whose uuid is not that of its parts; the number is.
OURS = f"and on (cluster, instance, gpu) {job('jobledger_job_gpu_info')}"


def _parts(recorded):
    """One series per GPU, with the profile of a part of a divided one, whose number is that of its GPU."""
    by = "cluster, job, instance, gpu, uuid"
    return f"(max by ({by}) ({job(recorded)})) * on ({by}) group_left (profile) max by ({by}, profile) ({job('jobledger_job_gpu_info')})"


def _gpus(board_):
    by_gpu = "max by (cluster, instance, gpu, uuid)"

    def per(metric):
        return f"{by_gpu} ({most(job(metric))})"

    def board(expr):
        return f"{by_gpu} ({last(job('jobledger_job_gpu_info'))}) * on (cluster, instance, gpu) group_left () {expr}"

    busy = f"sum by (cluster, instance, gpu, uuid) ({most(job('jobledger_job_gpu_busy_seconds_total'))})"
    idle = per("jobledger_job_gpu_idle_seconds_total")
    allocated = per("jobledger_job_gpu_allocated_seconds_total")
    board_.add(table(
        "GPUs of the job", "Totals of each GPU over the job. Busy is of the time in which it is known whether kernels ran; SM active (how much of the GPU "
                           "worked) and tensor pipes are reported by Hopper and later; a GPU that jobs share has neither. Held down: part of the time in "
                           "which heat or a power brake held the clocks down. Energy and Held down are the whole board's, as far as it is charged to the job.",
        [Column("instance", "Node", links=[("Node dashboard", href(NODE, instance='${__data.fields["Node"]}'))], width=130),
         Column("gpu", "GPU", links=[("GPU health", href(GPU, uuid='${__data.fields["UUID"]}'))]), Column("model", "Model", width=180),
         Column("profile", "Part"), Column("shared", "Shared"), Column("source", "Known by"),
         Column("Value #B", "Had", style.SECONDS), Column("Value #C", "Busy", style.RATIO, 1, style.EFFICIENCY_GPU, gauge=1),
         Column("Value #D", "Not used", style.SECONDS), Column("Value #E", "SM active", style.RATIO, 1), Column("Value #F", "Tensor", style.RATIO, 1),
         Column("Value #G", "Memory", style.BYTES, 1), Column("Value #H", "Energy", style.JOULES, 1),
         Column("Value #I", "Held down", style.RATIO, 1, [(None, style.GOOD), (0.1, style.WARN), (0.5, style.BAD)]),
         Column("uuid", "UUID", width=200)],
        [f"max by (cluster, instance, gpu, uuid, model, profile, shared, source) ({last(job('jobledger_job_gpu_info'))})", allocated,
         f"({busy} or {idle} * 0) / (({busy} or {idle} * 0) + {idle} > 0)", idle,
         f"{per('jobledger_job_gpu_sm_active_seconds_total')} / ({allocated} > 0)",
         f"sum by (cluster, instance, gpu, uuid) ({most(job('jobledger_job_gpu_pipe_active_seconds_total', 'pipe=' + chr(34) + 'tensor' + chr(34)))})"
         f" / ({allocated} > 0)",
         per("jobledger_job_gpu_memory_peak_bytes"),
         board(f"sum by (cluster, instance, gpu) ({most(job('jobledger_job_gpu_energy_joules_total'))})"),
         board(f"max by (cluster, instance, gpu) (avg_over_time(jobledger_gpu_throttle_active{{{CLUSTER},reason=~\"{style.HELD_DOWN}\"}}[$__range]))")],
        sort="Busy", descending=False), 24, 7)


def add(board_):
    board_.row("GPUs")
    _gpus(board_)
    board_.add(series("GPU busy", "Part of the time in which kernels of the job ran on each GPU. A kernel on one multiprocessor is busy, too: look at SM "
                                  "active.", style.RATIO,
                      (_parts("jobid_gpu:jobledger_job_gpu_busy_seconds_per_seen_second:ratio_rate2m"), GPU_NAME), high=1), 8, 8)
    board_.add(series("GPU memory", "Taken by the job, and what there is.", style.BYTES,
                      [(_parts("jobid_gpu:jobledger_job_gpu_memory_used_bytes:sum"), GPU_NAME),
                       (f"max({job('jobledger_job_gpu_memory_limit_bytes')})", "Size of the largest")], limits=["Size of the largest"]), 8, 8)
    board_.add(series("GPU power", "Of the whole board, as attributed to the job.", style.WATTS,
                      (job("jobid_gpu:jobledger_job_gpu_energy_joules:rate2m"), "{{instance}} GPU {{gpu}}"), stack=True), 8, 8)
    board_.add(series("SM active and occupancy", "Part of the multiprocessors that had work, and of the warps they can hold (Hopper and later), as a mean over "
                                                 "the job's GPUs.", style.RATIO,
                      [(f"avg({job('jobid_gpu:jobledger_job_gpu_sm_active_seconds:rate2m')})", "SM active"),
                       (f"avg({job('jobid_gpu:jobledger_job_gpu_sm_occupancy_seconds:rate2m')})", "Occupancy"),
                       (f"avg({job('jobid_gpu:jobledger_job_gpu_dram_active_seconds:rate2m')})", "Memory active")], high=1), 8, 8)
    board_.add(series("Pipes", "Part of the time in which each kind of pipe worked, as a mean over the job's GPUs (Hopper and later).", style.RATIO,
                      (f"avg by (pipe) ({job('jobid_gpu:jobledger_job_gpu_pipe_active_seconds:rate2m')})", "{{pipe}}"), high=1), 8, 8)
    board_.add(series("Bytes to and from GPUs", "Over PCIe (host) and over links to other GPUs.", style.BYTES_PER_SECOND,
                      [(job("jobid:jobledger_job_gpu_pcie_received_bytes:rate2m"), "PCIe to GPUs"),
                       (job("jobid:jobledger_job_gpu_pcie_transmitted_bytes:rate2m"), "PCIe from GPUs"),
                       (job("jobid:jobledger_job_gpu_link_received_bytes:rate2m"), "Links received"),
                       (job("jobid:jobledger_job_gpu_link_transmitted_bytes:rate2m"), "Links sent")]), 8, 8)
    busy = "jobid_gpu:jobledger_job_gpu_busy_seconds_per_seen_second:ratio_rate2m"
    board_.add(heatmap("Busy by GPU", f"Each GPU of the job a row, or each node of more than {ROWS_OF_GPUS} GPUs. A dark row is a GPU (or GPUs) that nobody uses.", style.RATIO,
                       (rows_of_gpus(_parts(busy), job(busy), job("jobledger_job_gpu_info")), "{{row}}")), 12, 7)
    board_.add(states(
        "Clocks held down", "Reasons for which the clocks of the job's GPUs were held down: heat and power brakes slow the job.",
        [Query(f"max by (instance, gpu, reason) (jobledger_gpu_throttle_active{{{CLUSTER},reason!~\"{style.NOT_HELD_DOWN}\"}} {OURS}) == 1",
               "{{instance}} GPU {{gpu}}: {{reason}}")],
        {1: ("held down", style.ORANGE)}, show_value=False), 12, 7)
