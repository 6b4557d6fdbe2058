"""Selectors and pieces of PromQL that dashboards share."""

# All series of a cluster. A Prometheus with one cluster has no such label: the variable's "all" is .*, which matches that.
CLUSTER = 'cluster=~"$cluster"'
JOBID = f'{CLUSTER},jobid="$jobid"'
NODE = f'{CLUSTER},instance=~"$instance"'
OWNED = f'{CLUSTER},user=~"$user",account=~"$account",partition=~"$partition"'


def of(metric, selector, *more):
    """A metric with matchers."""
    return f"{metric}{{{','.join([selector, *more])}}}"


def job(metric, *more):
    return of(metric, JOBID, *more)


def node(metric, *more):
    return of(metric, NODE, *more)


def cluster(metric, *more):
    return of(metric, CLUSTER, *more)


def last(expr):
    """The last value within the dashboard's time range, also of what has ended."""
    return f"last_over_time({expr}[$__range])"


def most(expr):
    """The highest value within the time range: of a job's counter its exact total."""
    return f"max_over_time({expr}[$__range])"


def owners(quantity, *more):
    """How much a counter of owners grew in each four minutes (rules/recording/owners.yaml)."""
    return cluster(f"owner:jobledger_owner_{quantity}:increase4m", *more)


def spent(quantity, *more):
    """What jobs of owners used within the time range, jobs of any length."""
    return f"sum_over_time({owners(quantity, *more)}[$__range])"


def rate(expr):
    return f"rate({expr}[$__rate_interval])"


GRAMS_PER_KWH = "jobledger:carbon_factor:grams_per_kwh"


def grams(joules):
    """CO₂ equivalent of energy that still has its label cluster, by the factor of its cluster, or the one that is for all. Several servers may have recorded it."""
    return f"({joules} * on (cluster) group_left () max by (cluster) ({GRAMS_PER_KWH}) or {joules} * on () group_left () max({GRAMS_PER_KWH})) / 3.6e6"


# Names of more rows lie over each other.
ROWS_OF_GPUS = 8


def rows_of_gpus(per_gpu, per_node, gpus):
    """For a heat map, by the label row: a row per GPU, or where there are more `gpus` in the time range than can be distinguished, one per node, the mean of its GPUs."""
    names = f'label_join(label_join({per_gpu}, "row", " GPU ", "instance", "gpu"), "row", " ", "row", "profile")'
    count = f"count(last_over_time({gpus}[$__range] @ end()))"
    return (f"{names} and on () ({count} <= {ROWS_OF_GPUS})"
            f' or label_join(avg by (cluster, instance) ({per_node}), "row", "", "instance") and on () ({count} > {ROWS_OF_GPUS})')


def hours(seconds):
    """CPU or GPU time as it is charged: Grafana's own unit of seconds would show years."""
    return f"({seconds}) / 3600"


def label(expr, **labels):
    """The same series with more labels."""
    for name, value in labels.items():
        if set('"\\$') & set(value):
            raise ValueError(f"to be escaped: {value}")
        expr = f'label_replace({expr}, "{name}", "{value}", "", "")'
    return expr


def linked(expr):
    """The same series, with what a link has to choose as Cluster: theirs, or All where they have none."""
    return f'label_replace(label_join({expr}, "cluster_link", "", "cluster"), "cluster_link", "All", "cluster_link", "")'
