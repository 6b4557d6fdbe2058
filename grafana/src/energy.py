"""Energy and carbon: what the cluster draws, whose it is, and what no job can be charged with."""

from . import board, job_tables, style
from .board import Board, href
from .job_report_rest import NO_OVERHEAD, OVERHEAD
from .owner import per_second
from .panels import Column, Query, series, stat, table
from .node import STANDING
from .queries import GRAMS_PER_KWH, cluster, grams, last, rate, spent


def total(recorded):
    return f"sum({cluster(recorded)})"


BOOKED = "instance:jobledger_total_energy_joules:rate5m"


def energy():
    """Watt-hours of the time range: in each step the sum of what nodes drew, and 0 where nothing was recorded, by a mean over the steps.

    A step is as wide as the range and the panel make it, and never so short that a group of rules with a longer interval has nothing in it.
    """
    steps = "[$__range:$__interval]"
    power = f"sum_over_time((sum(avg_over_time({cluster(BOOKED)}[$__interval]))){steps}) / count_over_time(vector(1){steps})"
    return Query(f"{power} * $__range_s / 3600", interval="2m")


def summary(board_):
    nobody_gpus = f"sum({cluster('instance:jobledger_gpu_unattributed_energy_joules_per_joule:ratio_rate5m')} * {cluster('instance:jobledger_gpu_energy_joules:rate5m')})"
    nobody = total("instance:jobledger_node_energy_unattributed_joules:rate5m")
    # Whichever there are: nodes may have a meter of their sockets, of their GPUs, or of both.
    unattributed = f"({nobody} + {nobody_gpus} or {nobody} or {nobody_gpus})"
    for title, description, unit, expr, steps, decimals in (
            ("Power", "CPUs, memory and GPUs of all nodes, and the overhead of those that have a meter of their own: all that is split over jobs.", style.WATTS, total(BOOKED), None, 1),
            ("CPUs and memory", "By the sockets' meters.", style.WATTS,
             f"sum({rate(cluster('jobledger_node_energy_joules_total', NO_OVERHEAD))} and on (cluster, job, instance, domain, socket, source) {cluster('jobledger_node_energy_zone_info', STANDING)})", None, 1),
            ("Overhead", "What nodes with a meter of their own take beyond CPUs, memory and GPUs: board, fans, network, losses of the supplies.", style.WATTS,
             f"sum({rate(cluster('jobledger_node_energy_joules_total', OVERHEAD))})", None, 1),
            ("GPUs", "By their boards' meters.", style.WATTS, total("instance:jobledger_gpu_energy_joules:rate5m"), None, 1),
            ("Attributed to jobs", "What was measured minus what is unattributed: all jobs, also those that are too young to have a rate.", style.WATTS,
             f"{total(BOOKED)} - {unattributed}", None, 1),
            ("No job's", "Idle CPUs and GPUs, and the system. With what is attributed to jobs it is what was measured.", style.WATTS, unattributed, None, 1),
            ("No job's, of all", "Part of the power that no job is charged with.", style.RATIO, f"{unattributed} / ({total(BOOKED)} > 0)", None, 0),
            ("CO₂ per hour", "CO₂ equivalent, by the grams per kilowatt hour and the PUE of rules/site.yaml.", style.GRAMS,
             f"{total('instance:jobledger_carbon_grams:rate5m')} * 3600", None, 1),
            ("CO₂ per kWh", "Grams of CO₂ equivalent per kilowatt hour of nodes, and where the number is from (rules/site.yaml).", style.GRAMS,
             Query(f"max by (cluster, source) ({GRAMS_PER_KWH})", "{{source}}"), None, 0),
            ("Energy in this range", "That power, as a mean, times the time: of nodes and times for which it was recorded.", style.WATT_HOURS,
             energy(), None, 2),
            ("Operations per joule", "Floating-point operations of CPUs, as counted, per joule of CPUs and memory (--collector.perf).", style.FLOP_PER_JOULE,
             f"sum(rate({cluster('jobledger_job_flops_total')}[$__rate_interval])) / (sum(rate({cluster('jobledger_job_energy_joules_total', NO_OVERHEAD)}[$__rate_interval])"
             f" and on (cluster, job, instance, jobid) {cluster('jobledger_job_flops_total')}) > 0)", None, 1),
            ("Nodes without a meter", "Nodes that answer and export no energy: no meter, or it may not be read (jobledger-exporter --check).", style.COUNT,
             f"count({cluster('jobledger_node_cpus')} unless on (cluster, job, instance) {cluster('jobledger_node_energy_joules_total')}) or vector(0)",
             [(None, style.GOOD), (1, style.WARN)], None)):
        board_.add(stat(title, description, unit, expr, steps, decimals=decimals), 4, 3)


def course(board_):
    board_.row("Power")
    cpus, gpus = total("instance:jobledger_node_energy_joules:rate5m"), total("instance:jobledger_gpu_energy_joules:rate5m")
    nobody = total("instance:jobledger_node_energy_unattributed_joules:rate5m")
    nobody_gpus = f"sum({cluster('instance:jobledger_gpu_unattributed_energy_joules_per_joule:ratio_rate5m')} * {cluster('instance:jobledger_gpu_energy_joules:rate5m')})"
    board_.add(series("Whose power it is", "Jobs, and what no job can be charged with: idle hardware and the system. Together it is what was measured.", style.WATTS,
                      [(f"{cpus} - {nobody}", "Jobs: CPUs, memory, overhead"), (f"{gpus} - {nobody_gpus}", "Jobs: GPUs"),
                       (nobody, "Nobody: CPUs, memory, overhead"), (nobody_gpus, "Nobody: GPUs")],
                      stack=True, colours={"Jobs: CPUs, memory, overhead": style.BLUE, "Jobs: GPUs": style.GREEN, "Nobody: CPUs, memory, overhead": style.GREY,
                                           "Nobody: GPUs": style.ORANGE}), 12, 9)
    board_.add(series("Power by user", "As charged to jobs, means of four minutes.", style.WATTS, (per_second("energy_joules", by=" by (user)"), "{{user}}"), stack=True), 12, 9)
    board_.add(series("Power by account", "As charged to jobs, means of four minutes.", style.WATTS,
                      (per_second("energy_joules", by=" by (account)"), "{{account}}"), stack=True), 8, 8)
    board_.add(series("CO₂ per hour by account", "CO₂ equivalent of that power.", style.GRAMS,
                      (f"sum by (account) ({grams(per_second('energy_joules', by=' by (cluster, account)'))}) * 3600", "{{account}}"), stack=True), 8, 8)
    power = cluster(BOOKED)
    board_.add(series("Power by node", "All that is split over jobs: the median of the nodes, and the nodes with the most power now.", style.WATTS,
                      [(f"quantile(0.5, {power})", "Median"), (f"{power} and on (cluster, instance) topk(10, {power} @ end())", "{{instance}}")]), 8, 8)


def tables(board_):
    board_.row("Jobs and owners")
    by, on = "by (cluster, jobid)", "on (cluster, jobid)"
    power = f"max {by} ({cluster('jobid:jobledger_job_total_energy_joules:rate2m')})"
    chosen = f"and {on} topk($limit, {power})"
    energy_so_far = f"sum {by} ({cluster('jobid_instance:jobledger_job_total_energy_joules:sum')})"
    board_.add(table(
        "Running jobs, the most power first", "Power now, the GPUs' part of it, energy of the job so far, and its CO₂ equivalent at the factor of now. Of jobs of which all of it is known.",
        [Column("jobid", "Job", links=[("Job report", job_tables.REPORT_RUNNING)]), Column("user", "User", links=[("User dashboard", job_tables.OWNER_LINK)]),
         Column("account", "Account"), Column("Value #B", "Power", style.WATTS, 1), Column("Value #C", "GPUs", style.WATTS, 1),
         Column("Value #D", "Energy", style.JOULES, 1), Column("Value #E", "CO₂ equivalent", style.GRAMS, 1),
         Column("Value #F", "From", style.NONE, 0, hide=True)],
        [f"max by (cluster, jobid, user, account) ({cluster('jobid:jobledger_job_owner:info')}) {chosen}", f"{power} {chosen}",
         f"max {by} ({cluster('jobid:jobledger_job_gpu_energy_joules:rate2m')}) {chosen}",
         f"{energy_so_far} {chosen}", f"{grams(energy_so_far)} {chosen}",
         f"(floor(max {by} ({cluster('jobledger_job_start_time_seconds')})) - 60) * 1000 {chosen}"], sort="Power"), 14, 10)
    accounts = f"sum by (cluster, account) ({spent('energy_joules')})"
    board_.add(table(
        "Accounts", "Energy of jobs within the time range, ended ones too, and its CO₂ equivalent at the factor of now.",
        [Column("account", "Account", links=[("Account dashboard", job_tables.ACCOUNT_LINK)]), Column("Value #A", "Energy", style.JOULES, 1),
         Column("Value #B", "CO₂ equivalent", style.GRAMS, 1)],
        [accounts, grams(accounts)], sort="Energy"), 10, 10)
    board_.row("Nodes and meters", collapsed=True)
    node_link = href(board.NODE, instance='${__data.fields["Node"]}')
    most = f"topk($limit, max by (cluster, instance) ({cluster(BOOKED)} or {cluster('instance:jobledger_node_total_energy_joules:rate5m')}))"
    board_.add(table(
        "Nodes", "The nodes with the most power: power of GPUs and of all else (CPUs, memory, overhead), the part that is no job's, and the CO₂ equivalent per hour.",
        [Column("instance", "Node", links=[("Node dashboard", node_link)]), Column("Value #A", "All else", style.WATTS, 1), Column("Value #B", "GPUs", style.WATTS, 1),
         Column("Value #C", "Whole node", style.WATTS, 1), Column("Value #D", "No job's", style.RATIO, 0), Column("Value #E", "GPUs: no job's", style.RATIO, 0),
         Column("Value #F", "CO₂ per hour", style.GRAMS, 1)],
        [f"{expr} and on (cluster, instance) {most}" for expr in [
            *(f"max by (cluster, instance) ({cluster(f'instance:jobledger_{recorded}')})" for recorded in (
                "node_energy_joules:rate5m", "gpu_energy_joules:rate5m", "node_total_energy_joules:rate5m", "node_energy_unattributed_joules_per_joule:ratio_rate5m",
                "gpu_unattributed_energy_joules_per_joule:ratio_rate5m")), f"max by (cluster, instance) ({cluster('instance:jobledger_carbon_grams:rate5m')}) * 3600"]],
        sort="All else"), 12, 10)
    board_.add(table(
        "Meters", "What measures energy on the nodes, how many of it there are, and its standing: attributed to jobs (booked), contained in or wider than what is attributed, a duplicate, "
                  "the total of the node, or retired: gone, or measured better by another. Estimated ones are added up from power.",
        [Column("domain", "Domain"), Column("source", "Source"), Column("standing", "Standing"), Column("estimated", "Estimated"),
         Column("Value #A", "Count", style.COUNT, 0)],
        f"count by (domain, source, standing, estimated) ({last(cluster('jobledger_node_energy_zone_info'))})", sort="Count"), 12, 10)
    board_.add(series("Meters of all domains", "As measured; domains overlap and sources repeat each other: the table above shows which are attributed to jobs (booked).", style.WATTS,
                      (f"sum by (domain, source) (rate({cluster('jobledger_node_energy_joules_total')}[$__rate_interval]))", "{{domain}} ({{source}})")), 12, 8)
    idle = cluster("jobledger_node_energy_idle_watts")
    board_.add(series("Idle power", "Of sockets and their memory, and the overhead of the idle node. It is shared by the CPUs held: set by flag, the least seen while idle, or what follows from the power under load.", style.WATTS,
                      [(f"quantile by (domain, origin) ({quantile}, {idle})", f"{name}: {{{{domain}}}} ({{{{origin}}}})")
                       for quantile, name in ((1, "Highest"), (0.5, "Median"), (0, "Lowest"))]), 12, 8)
    deficit = cluster("jobledger_node_energy_overhead_deficit_joules")
    board_.add(series("Parts beyond the whole", "By how much CPUs, memory and GPUs counted more than the node's own meter, and what overhead has not paid back. Some seconds of power come and go; "
                      "a line that climbs is a meter that is wrong.", style.JOULES,
                      (f"topk(10, max by (cluster, instance) ({deficit}) > 0)", "{{instance}}"), nothing="No node's parts count more than the node"), 12, 8)


def build():
    board_ = Board(board.ENERGY, "Jobledger / Energy and carbon", "What the cluster draws, whose it is, and what no job can be charged with.", since="now-6h")
    job_tables.limit(board_)
    summary(board_)
    course(board_)
    tables(board_)
    return board_
