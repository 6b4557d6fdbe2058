"""GPU health: what is wrong with which GPU, and how it does."""

from . import board, style
from .board import Board, href
from .panels import BAND_COLOURS, Column, Query, bands, bars, heatmap, series, stat, states, table
from .queries import CLUSTER, NODE, of, rate

ONE = f'{NODE},uuid=~"$uuid"'
# Of a whole site a panel shows how its GPUs are distributed, and those with the most trouble: a hidden variable chooses them.
ROWS, LINES = 30, 10
WORST = f'{NODE},uuid=~"$worst"'
NAME = "{{instance}} GPU {{gpu}}"
BY = "by (cluster, instance, gpu, uuid)"
HEAT_AND_POWER = f'reason=~"{style.HELD_DOWN}"'
NOT_FOR_NOTHING = f'reason!~"{style.NOT_HELD_DOWN}"'
USED = 'state="used"'
# A divided GPU is exported beside its parts, and no job can have it.
UNDIVIDED = 'divided!="true"'
UNCORRECTED = 'type="uncorrected",since="load"'
TEMPERATURE = [(None, style.GOOD), (80, style.WARN), (90, style.BAD)]
# Steps of a site's panels: of all GPUs at every scrape a page would cost many CPU seconds.
GAUGE_STEP, RATE_STEP = "10m", "10m"


def gpu(metric, *more):
    return of(metric, ONE, *more)


def worst(metric, *more):
    return of(metric, WORST, *more)


def trouble(of_these):
    """How much trouble each GPU has; then how hot it is."""
    def these(metric, *more):
        return of(metric, of_these, *more)

    none = f"(max {BY} ({these('jobledger_gpu_up')}) or max {BY} ({these('jobledger_gpu_info')})) * 0"
    signs = ((10000, f"max {BY} ({these('jobledger_gpu_up')}) == bool 0"), (1000, f"max {BY} ({these('jobledger_gpu_remapped_rows_failed')})"),
             (1000, f"sum {BY} ({grown('jobledger_gpu_xid_errors_total', of_these=of_these)}) > bool 0"), (1000, f"sum {BY} ({these('jobledger_gpu_ecc_errors_total', UNCORRECTED)}) > bool 0"),
             (1000, f"max {BY} ({these('jobledger_gpu_remapped_rows_pending')} or {these('jobledger_gpu_retired_pages_pending')})"),
             (1000, f"max {BY} ({these('jobledger_gpu_recovery_action', 'action!=' + chr(34) + 'none' + chr(34))})"),
             (100, f"max {BY} ({these('jobledger_gpu_throttle_active', HEAT_AND_POWER)})"), (0.1, f"max {BY} ({these('jobledger_gpu_temperature_celsius')})"))
    return f"({' + '.join(f'{weight:g} * ({sign} or {none})' for weight, sign in signs)})"


def chosen(most):
    return f"topk({most}, {trouble(ONE)})"


def distribution(all_of_them, of_the_worst, step=GAUGE_STEP):
    return bands(all_of_them, f"topk({LINES}, {of_the_worst})", NAME, step)


def grown(metric, *more, of_these=ONE):
    """How often something happened within the time range: at its end less at its beginning; what was not there at first counts from 0."""
    counter = of(metric, of_these, *more)
    return f"(max_over_time({counter}[$__range]) - ({counter} offset $__range or max_over_time({counter}[$__range]) * 0))"


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
    board_.row("GPUs with the most trouble")
    flag = {0: (" ", style.BLUE), 1: ("yes", style.RED)}
    link = href(board.GPU, instance='${__data.fields["Node"]}', uuid='${__data.fields["UUID"]}')
    report = href(board.REPORT, jobid='${__data.fields["Job"]}')
    board_.add(table(
        "Health", f"The {ROWS} with the most trouble, then the hottest, of the nodes and GPUs chosen above, as they are now; an empty cell is something that this GPU or its driver does not report. Held down: part of the time range in which heat or a power brake held the clocks down. Xid: errors in the time "
               "range. Uncorr., Corrected: memory errors since the driver was loaded. Rows: of memory, replaced so far; Reset?: more are to be; Replace?: one could not be. Replays: PCIe packets sent again.",
        [Column("instance", "Node", links=[("Node dashboard", href(board.NODE, instance='${__data.fields["Node"]}'))], width=120),
         Column("gpu", "GPU", links=[("This GPU alone", link)]), Column("model", "Model", width=180), Column("profile", "Part"),
         Column("Value #B", "State", texts={0: ("cannot be read", style.RED), 1: ("ok", style.BLUE)}), Column("reason", "Why"), Column("jobid", "Job", links=[("Job report", report)]),
         Column("Value #D", "Temp.", style.CELSIUS, 0, TEMPERATURE), Column("Value #E", "Power", style.WATTS, 0), Column("Value #F", "Held down", style.RATIO, 0,
                [(None, style.GOOD), (0.1, style.WARN), (0.5, style.BAD)]),
         Column("Value #G", "Xid", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #H", "Uncorr.", style.COUNT, 0, style.NONE_IS_GOOD),
         Column("Value #I", "Corrected", style.COUNT, 0), Column("Value #J", "Rows", style.COUNT, 0), Column("Value #K", "Reset?", texts=flag),
         Column("Value #L", "Replace?", texts=flag), Column("Value #M", "NVLinks", style.COUNT, 0), Column("Value #N", "Replays", style.COUNT, 0), Column("uuid", "UUID", width=200)],
        [f"sort_desc({trouble(WORST)} * on (cluster, instance, gpu, uuid) group_left (model, profile) max by (cluster, instance, gpu, uuid, model, profile) ({worst('jobledger_gpu_info')}))", f"max {BY} ({worst('jobledger_gpu_up')})",
         f"max by (cluster, instance, gpu, uuid, reason) ({worst('jobledger_gpu_down_info')})",
         f"max {BY} ({worst('jobledger_gpu_temperature_celsius')})", f"max {BY} ({worst('jobledger_gpu_power_watts')})",
         f"max {BY} (avg_over_time({worst('jobledger_gpu_throttle_active', HEAT_AND_POWER)}[$__range]))",
         f"sum {BY} ({grown('jobledger_gpu_xid_errors_total', of_these=WORST)})", f"sum {BY} ({worst('jobledger_gpu_ecc_errors_total', UNCORRECTED)})",
         f"sum {BY} ({worst('jobledger_gpu_ecc_errors_total', UNCORRECTED.replace('uncorrected', 'corrected'))})", f"sum {BY} ({worst('jobledger_gpu_remapped_rows')})",
         f"max {BY} ({worst('jobledger_gpu_remapped_rows_pending')} or {worst('jobledger_gpu_retired_pages_pending')})", f"max {BY} ({worst('jobledger_gpu_remapped_rows_failed')})",
         f"max {BY} ({worst('jobledger_gpu_nvlink_active_links')})", f"max {BY} ({worst('jobledger_gpu_pcie_replays_total')})",
         f"max by (cluster, instance, gpu, uuid, jobid) ({worst('jobledger_job_gpu_info')} and on (cluster, job, instance, jobid) ({of('jobledger_job_start_time_seconds', NODE)} "
         f"unless {of('jobledger_job_end_time_seconds', NODE)}))"]), 24, 12)


def errors(board_):
    board_.row("Errors")
    held = f"max by (cluster, instance, gpu, reason) ({gpu('jobledger_gpu_throttle_active', NOT_FOR_NOTHING)}) == 1"
    xids = worst("jobledger_gpu_xid_errors_total")
    of_these = f"Of the {ROWS} GPUs with the most trouble."
    board_.add(states("Xid errors", f"When a driver reported an error, by code (NVIDIA's Xid). 13, 31, 43, 45 and 68 are mostly the program's, the others the hardware's or the driver's. {of_these}",
                      [Query(f"({xids} > 0 unless {xids} == ({xids} offset 1m)) ^ 0", NAME + ": Xid {{code}}", interval="1m")],
                      {1: ("Xid", style.RED)}, show_value=False, nothing="None in this time range"), 12, 8)
    board_.add(series("Clocks held down", "GPUs whose clocks are held down, by reason. Idle GPUs and clocks that were set are left out; at its power limit (sw_power_cap, power) a GPU does what it was bought for.", style.NUMBER,
                      [Query(f"count by (reason) ({held})", "{{reason}}", interval=GAUGE_STEP)], calcs=("max",), nothing="None in this time range"), 12, 8)
    board_.add(series("Memory errors", f"Since the driver was loaded, by type. {of_these}", style.NUMBER,
                      Query(f"sum by (instance, gpu, type) ({worst('jobledger_gpu_ecc_errors_total', 'since=' + chr(34) + 'load' + chr(34))}) > 0", NAME + " {{type}}", interval=GAUGE_STEP), calcs=("lastNotNull",),
                      nothing="None"), 8, 8)
    board_.add(series("Rows replaced and pages retired", f"By cause. {of_these}", style.NUMBER,
                      [Query(f"sum by (instance, gpu, cause) ({worst('jobledger_gpu_remapped_rows')}) > 0", NAME + " rows, {{cause}}", interval=GAUGE_STEP),
                       Query(f"sum by (instance, gpu, cause) ({worst('jobledger_gpu_retired_pages')}) > 0", NAME + " pages, {{cause}}", interval=GAUGE_STEP)], calcs=("lastNotNull",), nothing="None"), 8, 8)
    board_.add(series("Link errors", f"PCIe packets sent again, and errors on NVLinks, per second. {of_these}", style.OPS,
                      [Query(f"sum by (instance, gpu) ({rate(worst('jobledger_gpu_pcie_replays_total'))}) > 0", NAME + " PCIe replays", interval=GAUGE_STEP),
                       Query(f"sum by (instance, gpu, type) ({rate(worst('jobledger_gpu_nvlink_errors_total'))}) > 0", NAME + " NVLink {{type}}", interval=GAUGE_STEP)], nothing="None in this time range"), 8, 8)
    slowed = gpu("jobledger_gpu_throttle_seconds_total", HEAT_AND_POWER)
    board_.add(bars("Slowed by heat or power", "Time in which clocks were held down within the range, by reason, the ten longest of all GPUs.", style.SECONDS,
                    (f"sort_desc(topk(10, sum by (instance, gpu, reason) (clamp_max({slowed} - ({slowed} offset $__range or {slowed} * 0), $__range_s)) > 0))",
                     NAME + ": {{reason}}"), [(None, style.ORANGE)], nothing="None in this time range"), 12, 8)
    vendor = "jobledger_gpu_driver_state"
    board_.add(series("Drivers", "Nodes by how the reading of a vendor's GPUs fares. Failed and hanging are trouble; released: given back on purpose, as for a driver update.", style.NUMBER,
                      [Query(f"count by (vendor, state) ({of(vendor, NODE)} == 1)", "{{vendor}}: {{state}}", interval=GAUGE_STEP)], calcs=("lastNotNull",)), 12, 8)


def work(board_):
    board_.row("Work", collapsed=True)
    busy = f"clamp_max({rate(gpu('jobledger_gpu_busy_seconds_total'))} / ({rate(gpu('jobledger_gpu_observed_seconds_total'))} > 0), 1)"
    board_.add(heatmap("How busy GPUs are", "Each row is a tenth of the time in which a kernel ran: the colour is how many GPUs were busy for so much of it. GPUs in the lowest row are idle.", style.NUMBER,
                       Query(f'count_values("busy", floor(max {BY} ({busy}) * 10) * 10)', "{{busy}} % and more", interval=RATE_STEP), high=None), 12, 10)
    board_.add(series("Whose time it is", "GPUs' worth of time: busy for a job, busy for nobody, had by nobody.", style.NUMBER,
                      [Query(f"sum({rate(gpu('jobledger_gpu_busy_seconds_total'))}) - (sum({rate(gpu('jobledger_gpu_unattributed_busy_seconds_total'))}) or vector(0))", "Busy for jobs", interval=RATE_STEP),
                       Query(f"sum({rate(gpu('jobledger_gpu_unattributed_busy_seconds_total'))})", "Busy for nobody", interval=RATE_STEP),
                       Query(f"sum({rate(gpu('jobledger_gpu_unallocated_seconds_total'))})", "Had by nobody", interval=RATE_STEP)],
                      colours={"Busy for jobs": style.GREEN, "Busy for nobody": style.RED, "Had by nobody": style.GREY}), 12, 10)
    def ratio(selected):
        return f"clamp_max({rate(selected('jobledger_gpu_sm_active_seconds_total'))} / ({rate(selected('jobledger_gpu_observed_seconds_total'))} > 0), 1)"
    def used(selected):
        return f"{selected('jobledger_gpu_memory_bytes', USED)} / ignoring (state) ({selected('jobledger_gpu_memory_size_bytes')} > 0)"
    board_.add(series("SM active", "Part of the multiprocessors that had work (Hopper and later): the distribution over all GPUs, and those with the most trouble.", style.RATIO,
                      distribution(ratio(gpu), f"max by (instance, gpu, uuid) ({ratio(worst)})", step=RATE_STEP), high=1, calcs=(), colours=BAND_COLOURS, nothing="No GPU reports it"), 8, 10)
    board_.add(series("Memory used", "Of each GPU's memory: the distribution over all GPUs, and those with the most trouble.", style.RATIO,
                      distribution(used(gpu), f"max by (instance, gpu, uuid) ({used(worst)})"), high=1, calcs=(), colours=BAND_COLOURS), 8, 10)
    board_.add(series("PCIe and links", "Bytes per second, of all GPUs chosen.", style.BYTES_PER_SECOND,
                      [Query(f"sum({rate(gpu(f'jobledger_gpu_{link}_{way}_bytes_total'))})", f"{title} {word}", interval=RATE_STEP) for link, title in (("pcie", "PCIe"), ("link", "Links"))
                       for way, word in (("received", "received"), ("transmitted", "sent"))], nothing="No GPU reports it"), 8, 10)


def body(board_):
    board_.row("Heat, power and clocks", collapsed=True)
    board_.add(series("Temperature", "The hottest sensor of each GPU: the distribution over all GPUs, and those with the most trouble.", style.CELSIUS,
                      distribution(f"max {BY} ({gpu('jobledger_gpu_temperature_celsius')})", f"max {BY} ({worst('jobledger_gpu_temperature_celsius')})"), low=None, calcs=(), colours=BAND_COLOURS,
                      steps=[(None, "transparent"), (90, style.RED)]), 8, 9)
    board_.add(series("Margin to slowing down", "How much warmer GPUs may get before they slow themselves down.", style.CELSIUS,
                      distribution(gpu("jobledger_gpu_temperature_margin_celsius"), worst("jobledger_gpu_temperature_margin_celsius")), low=None, calcs=(), colours=BAND_COLOURS, nothing="No GPU reports it"), 8, 9)
    limit = gpu("jobledger_gpu_power_limit_watts", 'limit="enforced"')
    board_.add(series("Power", "As the boards report it, and the highest limit in force.", style.WATTS,
                      [*distribution(f"max {BY} ({gpu('jobledger_gpu_power_watts')})", f"max {BY} ({worst('jobledger_gpu_power_watts')})"), Query(f"max({limit})", "Highest limit", interval=GAUGE_STEP)],
                      limits=["Highest limit"], calcs=(), colours=BAND_COLOURS), 8, 9)
    for clock, title in (("sm|gfx|graphics", "Clock of the processor"), ("memory", "Clock of memory")):
        matcher = f'clock=~"{clock}"'
        board_.add(series(title, "At the moment of reading.", style.HERTZ, distribution(f"max {BY} ({gpu('jobledger_gpu_clock_hertz', matcher)})", f"max {BY} ({worst('jobledger_gpu_clock_hertz', matcher)})"), calcs=(), colours=BAND_COLOURS,
                          nothing="No GPU reports it"), 8, 9)
    lanes = 'state="current"'
    board_.add(series("Fans and PCIe link", "Highest speed that a fan is to have, of its highest (left); fewest lanes in use, fewer than a GPU has at most is a bad contact (right).", style.RATIO,
                      [Query(f"max({gpu('jobledger_gpu_fan_speed_ratio')})", "Fastest fan", interval=GAUGE_STEP),
                       Query(f"min(max {BY} ({gpu('jobledger_gpu_pcie_link_lanes', lanes)}))", "Fewest lanes", interval=GAUGE_STEP)], right={"/lanes/": style.NUMBER}, calcs=(), nothing="No GPU reports it"), 8, 9)


def build():
    board_ = Board(board.GPU, "Jobledger / GPU health", "What is wrong with which GPU, whose it is, and how it does.", since="now-6h")
    board_.lookup("instance", "Node", f"label_values(jobledger_gpu_info{{{CLUSTER}}}, instance)", everything=".*", multi=True)
    board_.text("uuid", "GPU (UUID)", ".*", "A UUID, or a regular expression for several. Links of tables choose one.")
    board_.worst("worst", chosen(ROWS), "uuid", "The GPUs of the table.")
    board_.alerts("JobledgerGpu.*|JobledgerNode.*")
    summary(board_)
    all_of_them(board_)
    errors(board_)
    work(board_)
    body(board_)
    return board_
