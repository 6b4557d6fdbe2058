"""GPU health: what is wrong with which GPU, and how it does."""

from . import board, style
from .board import Board, href
from .panels import Column, Query, bars, heatmap, series, stat, states, table
from .queries import CLUSTER, NODE, ROWS_OF_GPUS, of, rate, rows_of_gpus

ONE = f'{NODE},uuid=~"$uuid"'
NAME = "{{instance}} GPU {{gpu}}"
PART = NAME + " {{profile}}"
BY = "by (cluster, instance, gpu, uuid)"
HEAT_AND_POWER = f'reason=~"{style.HELD_DOWN}"'
NOT_FOR_NOTHING = f'reason!~"{style.NOT_HELD_DOWN}"'
USED = 'state="used"'
# A divided GPU is exported beside its parts, and no job can have it.
UNDIVIDED = 'divided!="true"'
UNCORRECTED = 'type="uncorrected",since="load"'
TEMPERATURE = [(None, style.GOOD), (80, style.WARN), (90, style.BAD)]


def gpu(metric, *more):
    return of(metric, ONE, *more)


def parts(expr):
    """One series per GPU, with the profile of a part of a divided one, whose number is that of its GPU."""
    by = "cluster, job, instance, gpu, uuid"
    return f"(max by ({by}) ({expr})) * on ({by}) group_left (profile) max by ({by}, profile) ({gpu('jobledger_gpu_info')})"


def grown(metric, *more):
    """How often something happened within the time range: at its end less at its beginning; what was not there at first counts from 0."""
    return f"(max_over_time({gpu(metric, *more)}[$__range]) - ({gpu(metric, *more)} offset $__range or max_over_time({gpu(metric, *more)}[$__range]) * 0))"


def summary(board_):
    for title, description, unit, expr, steps in (
            ("GPUs", "GPUs, and parts of divided ones.", style.COUNT, f"count({gpu('jobledger_gpu_info', UNDIVIDED)})", None),
            ("Cannot be read", "GPUs of which the driver says that they are lost, want a reset, or do not answer.", style.COUNT, f"count({gpu('jobledger_gpu_up')} == 0) or count({gpu('jobledger_gpu_up')}) * 0",
             style.NONE_IS_GOOD),
            ("Drivers failing", "Nodes and vendors whose driver does not let itself be read: it failed or hangs.", style.COUNT,
             f"count(jobledger_gpu_driver_state{{{NODE},state=~\"failed|hanging\"}} == 1) or count(jobledger_gpu_driver_state{{{NODE}}}) * 0", style.NONE_IS_GOOD),
            ("Held by jobs", "GPUs that a job has.", style.COUNT, f"count({gpu('jobledger_gpu_jobs')} > 0) or count({gpu('jobledger_gpu_jobs')}) * 0", None),
            ("Xid errors", "Errors that drivers reported within the time range.", style.COUNT, f"sum({grown('jobledger_gpu_xid_errors_total')}) or count({gpu('jobledger_gpu_info')}) * 0",
             style.NONE_IS_GOOD),
            ("Uncorrected errors", "Of memories, since the drivers were loaded.", style.COUNT, f"sum({gpu('jobledger_gpu_ecc_errors_total', UNCORRECTED)})", style.NONE_IS_GOOD),
            ("Rows to be replaced", "GPUs that need a reset to replace rows or pages of memory.", style.COUNT,
             f"count({gpu('jobledger_gpu_remapped_rows_pending')} == 1 or {gpu('jobledger_gpu_retired_pages_pending')} == 1) or count({gpu('jobledger_gpu_info')}) * 0", style.NONE_IS_GOOD),
            ("To be replaced", "GPUs of which a row of memory could not be replaced.", style.COUNT,
             f"count({gpu('jobledger_gpu_remapped_rows_failed')} == 1) or count({gpu('jobledger_gpu_info')}) * 0", style.NONE_IS_GOOD),
            ("Recovery wanted", "GPUs whose driver asks for a reset, a reboot or a drain.", style.COUNT,
             f"count(count {BY} ({gpu('jobledger_gpu_recovery_action', 'action!=' + chr(34) + 'none' + chr(34))} == 1)) or count({gpu('jobledger_gpu_info')}) * 0", style.NONE_IS_GOOD),
            ("Held down", "GPUs whose clocks are held down by heat or power now.", style.COUNT,
             f"count(max {BY} ({gpu('jobledger_gpu_throttle_active', HEAT_AND_POWER)}) == 1) or count({gpu('jobledger_gpu_info')}) * 0", [(None, style.GOOD), (1, style.WARN)]),
            ("Hottest", "Highest temperature of any sensor.", style.CELSIUS, f"max({gpu('jobledger_gpu_temperature_celsius')})", TEMPERATURE),
            ("Power", "As the boards report it now.", style.WATTS, f"sum(max {BY} ({gpu('jobledger_gpu_power_watts')}))", None)):
        board_.add(stat(title, description, unit, expr, steps), 4, 3)


def all_of_them(board_):
    board_.row("All GPUs")
    flag = {0: (" ", style.BLUE), 1: ("yes", style.RED)}
    link = href(board.GPU, instance='${__data.fields["Node"]}', uuid='${__data.fields["UUID"]}')
    report = href(board.REPORT, jobid='${__data.fields["Job"]}')
    board_.add(table(
        "Health", "As they are now; an empty cell is something that this GPU or its driver does not report. Held down: part of the time range in which heat or a power brake held the clocks down. Xid: errors in the time "
               "range. Uncorr., Corrected: memory errors since the driver was loaded. Rows: of memory, replaced so far; Reset?: more are to be; Replace?: one could not be. Replays: PCIe packets sent again.",
        [Column("instance", "Node", links=[("Node dashboard", href(board.NODE, instance='${__data.fields["Node"]}'))], width=120),
         Column("gpu", "GPU", links=[("This GPU alone", link)]), Column("model", "Model", width=180), Column("profile", "Part"),
         Column("Value #B", "State", texts={0: ("cannot be read", style.RED), 1: ("ok", style.BLUE)}), Column("reason", "Why"), Column("jobid", "Job", links=[("Job report", report)]),
         Column("Value #D", "Temp.", style.CELSIUS, 0, TEMPERATURE), Column("Value #E", "Power", style.WATTS, 0), Column("Value #F", "Held down", style.RATIO, 0,
                [(None, style.GOOD), (0.1, style.WARN), (0.5, style.BAD)]),
         Column("Value #G", "Xid", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #H", "Uncorr.", style.COUNT, 0, style.NONE_IS_GOOD),
         Column("Value #I", "Corrected", style.COUNT, 0), Column("Value #J", "Rows", style.COUNT, 0), Column("Value #K", "Reset?", texts=flag),
         Column("Value #L", "Replace?", texts=flag), Column("Value #M", "NVLinks", style.COUNT, 0), Column("Value #N", "Replays", style.COUNT, 0), Column("uuid", "UUID", width=200)],
        [f"max by (cluster, instance, gpu, uuid, model, profile) ({gpu('jobledger_gpu_info')})", f"max {BY} ({gpu('jobledger_gpu_up')})",
         f"max by (cluster, instance, gpu, uuid, reason) ({gpu('jobledger_gpu_down_info')})",
         f"max {BY} ({gpu('jobledger_gpu_temperature_celsius')})", f"max {BY} ({gpu('jobledger_gpu_power_watts')})",
         f"max {BY} (avg_over_time({gpu('jobledger_gpu_throttle_active', HEAT_AND_POWER)}[$__range]))",
         f"sum {BY} ({grown('jobledger_gpu_xid_errors_total')})", f"sum {BY} ({gpu('jobledger_gpu_ecc_errors_total', UNCORRECTED)})",
         f"sum {BY} ({gpu('jobledger_gpu_ecc_errors_total', UNCORRECTED.replace('uncorrected', 'corrected'))})", f"sum {BY} ({gpu('jobledger_gpu_remapped_rows')})",
         f"max {BY} ({gpu('jobledger_gpu_remapped_rows_pending')} or {gpu('jobledger_gpu_retired_pages_pending')})", f"max {BY} ({gpu('jobledger_gpu_remapped_rows_failed')})",
         f"max {BY} ({gpu('jobledger_gpu_nvlink_active_links')})", f"max {BY} ({gpu('jobledger_gpu_pcie_replays_total')})",
         f"max by (cluster, instance, gpu, uuid, jobid) ({gpu('jobledger_job_gpu_info')} and on (cluster, job, instance, jobid) ({of('jobledger_job_start_time_seconds', NODE)} "
         f"unless {of('jobledger_job_end_time_seconds', NODE)}))"],
        sort="Node", descending=False), 24, 12)


def errors(board_):
    board_.row("Errors")
    board_.add(states("Xid errors", "When a driver reported an error, by code (NVIDIA's Xid). 13, 31, 43, 45 and 68 are mostly the program's, the others the hardware's or the driver's.",
                      [Query(f"({gpu('jobledger_gpu_xid_errors_total')} > 0 unless {gpu('jobledger_gpu_xid_errors_total')} == ({gpu('jobledger_gpu_xid_errors_total')} offset 1m)) ^ 0",
                             NAME + ": Xid {{code}}")], {1: ("Xid", style.RED)}, show_value=False), 12, 8)
    board_.add(states("Clocks held down", "By reason. Idle GPUs and clocks that were set are left out; at its power limit (sw_power_cap, power) a GPU does what it was bought for.",
                      [Query(f"max by (instance, gpu, reason) ({gpu('jobledger_gpu_throttle_active', NOT_FOR_NOTHING)}) == 1",
                             NAME + ": {{reason}}")], {1: ("held down", style.ORANGE)}, show_value=False), 12, 8)
    board_.add(series("Memory errors", "Since the driver was loaded, by type.", style.NUMBER,
                      (f"sum by (instance, gpu, type) ({gpu('jobledger_gpu_ecc_errors_total', 'since=' + chr(34) + 'load' + chr(34))}) > 0", NAME + " {{type}}"), calcs=("lastNotNull",)), 8, 8)
    board_.add(series("Rows replaced and pages retired", "By cause.", style.NUMBER,
                      [(f"sum by (instance, gpu, cause) ({gpu('jobledger_gpu_remapped_rows')}) > 0", NAME + " rows, {{cause}}"),
                       (f"sum by (instance, gpu, cause) ({gpu('jobledger_gpu_retired_pages')}) > 0", NAME + " pages, {{cause}}")], calcs=("lastNotNull",)), 8, 8)
    board_.add(series("Link errors", "PCIe packets sent again, and errors on NVLinks, per second.", style.OPS,
                      [(f"sum by (instance, gpu) ({rate(gpu('jobledger_gpu_pcie_replays_total'))}) > 0", NAME + " PCIe replays"),
                       (f"sum by (instance, gpu, type) ({rate(gpu('jobledger_gpu_nvlink_errors_total'))}) > 0", NAME + " NVLink {{type}}")]), 8, 8)
    board_.add(bars("Slowed by heat or power", "Time in which clocks were held down within the range, by reason, the ten longest.", style.SECONDS,
                    (f"sort_desc(topk(10, sum by (instance, gpu, reason) ({grown('jobledger_gpu_throttle_seconds_total', HEAT_AND_POWER)}) > 0))", NAME + ": {{reason}}"),
                    [(None, style.ORANGE)]), 12, 8)
    board_.add(states("Drivers", "How the reading of each vendor's GPUs fares. Released: given back on purpose, as for a driver update.",
                      [Query(" or ".join(f"max by (instance, vendor) (jobledger_gpu_driver_state{{{NODE},state=\"{state}\"}} == 1) * {number}"
                                         for number, state in ((1, "running"), (2, "starting"), (3, "released"), (4, "failed"), (5, "hanging"))), "{{instance}} {{vendor}}")],
                      {1: ("running", style.BLUE), 2: ("starting", style.GREY), 3: ("released", style.ORANGE), 4: ("failed", style.RED), 5: ("hanging", style.RED)}), 12, 8)


def work(board_):
    board_.row("Work")
    busy = f"{rate(gpu('jobledger_gpu_busy_seconds_total'))} / ({rate(gpu('jobledger_gpu_observed_seconds_total'))} > 0)"
    board_.add(heatmap("Busy", f"Each GPU a row, or each node of more than {ROWS_OF_GPUS} GPUs (choose nodes above to see theirs): the part of the time in which a kernel ran.", style.RATIO,
                       Query(rows_of_gpus(parts(busy), busy, gpu("jobledger_gpu_info", UNDIVIDED)), "{{row}}", interval="1m")), 12, 10)
    board_.add(series("Whose time it is", "GPUs' worth of time: busy for a job, had and idle, had by nobody.", style.NUMBER,
                      [Query(f"sum({rate(gpu('jobledger_gpu_busy_seconds_total'))}) - (sum({rate(gpu('jobledger_gpu_unattributed_busy_seconds_total'))}) or vector(0))", "Busy for jobs", interval="1m"),
                       Query(f"sum({rate(gpu('jobledger_gpu_unattributed_busy_seconds_total'))})", "Busy for nobody", interval="1m"),
                       Query(f"sum({rate(gpu('jobledger_gpu_unallocated_seconds_total'))})", "Had by nobody", interval="1m")],
                      colours={"Busy for jobs": style.GREEN, "Busy for nobody": style.RED, "Had by nobody": style.GREY}), 12, 10)
    board_.add(series("SM active", "Part of the multiprocessors that had work (Hopper and later).", style.RATIO,
                      Query(parts(f"{rate(gpu('jobledger_gpu_sm_active_seconds_total'))} / ({rate(gpu('jobledger_gpu_observed_seconds_total'))} > 0)"), PART, interval="1m"), high=1, calcs=()), 8, 8)
    board_.add(series("Memory used", "Of each GPU's memory.", style.RATIO,
                      (parts(f"{gpu('jobledger_gpu_memory_bytes', USED)} / ignoring (state) ({gpu('jobledger_gpu_memory_size_bytes')} > 0)"), PART), high=1, calcs=()), 8, 8)
    board_.add(series("PCIe and links", "Bytes per second, of all GPUs chosen.", style.BYTES_PER_SECOND,
                      [(f"sum({rate(gpu(f'jobledger_gpu_{link}_{way}_bytes_total'))})", f"{title} {word}") for link, title in (("pcie", "PCIe"), ("link", "Links"))
                       for way, word in (("received", "received"), ("transmitted", "sent"))]), 8, 8)


def body(board_):
    board_.row("Heat, power and clocks", collapsed=True)
    board_.add(series("Temperature", "By sensor.", style.CELSIUS, (gpu("jobledger_gpu_temperature_celsius"), NAME + " {{sensor}}"), low=None, calcs=(),
                      steps=[(None, "transparent"), (90, style.RED)]), 8, 8)
    board_.add(series("Margin to slowing down", "How much warmer each GPU may get before it slows itself down.", style.CELSIUS,
                      (gpu("jobledger_gpu_temperature_margin_celsius"), NAME), low=None, calcs=()), 8, 8)
    board_.add(series("Power", "As the board reports it, and the limit in force.", style.WATTS,
                      [(gpu("jobledger_gpu_power_watts"), NAME + " {{scope}}"), (f"max({gpu('jobledger_gpu_power_limit_watts', 'limit=' + chr(34) + 'enforced' + chr(34))})", "Highest limit")],
                      limits=["Highest limit"], calcs=()), 8, 8)
    board_.add(series("Clocks", "At the moment of reading.", style.HERTZ, (gpu("jobledger_gpu_clock_hertz"), NAME + " {{clock}}"), calcs=()), 8, 8)
    board_.add(series("Fans", "Part of the highest speed that each fan is to have.", style.RATIO, (gpu("jobledger_gpu_fan_speed_ratio"), NAME + " fan {{fan}}"), high=1, calcs=()), 8, 8)
    board_.add(series("PCIe link", "Lanes in use now; fewer than it has at most is a bad contact. The generation falls while idle.", style.NUMBER,
                      [(f"max by (instance, gpu) ({gpu('jobledger_gpu_pcie_link_lanes', 'state=' + chr(34) + 'current' + chr(34))})", NAME + " lanes"),
                       (f"max by (instance, gpu) ({gpu('jobledger_gpu_pcie_link_generation', 'state=' + chr(34) + 'current' + chr(34))})", NAME + " generation")], calcs=()), 8, 8)


def build():
    board_ = Board(board.GPU, "Jobledger / GPU health", "What is wrong with which GPU, whose it is, and how it does.", since="now-6h")
    board_.lookup("instance", "Node", f"label_values(jobledger_gpu_info{{{CLUSTER}}}, instance)", everything=".*", multi=True)
    board_.lookup("uuid", "GPU (UUID)", f"label_values(jobledger_gpu_info{{{NODE}}}, uuid)", everything=".*", multi=True)
    summary(board_)
    all_of_them(board_)
    errors(board_)
    work(board_)
    body(board_)
    return board_
