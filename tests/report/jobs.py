"""Jobs whose numbers are known, as samples that an exporter would have given of them until an hour from now."""

import time

from tools import Samples

GIB = 1 << 30
MINUTE, HOUR, DAY = 60, 3600, 86400
NOW = int(time.time())
INTERVAL = 60


def quoted(text):
    return text.replace("\\", "\\\\").replace('"', '\\"')


class Jobs:
    """Jobs on nodes of 8 CPUs and cores, 128 GiB and 4 GPUs and parts of GPUs; of a cluster whose nodes have others."""

    def __init__(self, samples=None, cluster="", cpus=8, cores=8, gpus=(("A", False), ("B", False), ("C", True), ("C1", False), ("C2", False))):
        self.samples = samples or Samples()
        self.cluster = f',cluster="{cluster}"' if cluster else ""
        for node in ("n1", "n2"):
            times, of_node = range(NOW - 3 * DAY, NOW + HOUR, INTERVAL), f'instance="{node}:9810"{self.cluster}'
            for name, value in (("cpus", cpus), ("cores", cores), ("memory_total_bytes", 16 * cores * GIB)):
                self.samples.put(f"jobledger_node_{name}", of_node, times, value)
            # The third one is divided into two.
            for uuid, divided in gpus:
                self.samples.put("jobledger_gpu_info", f'{of_node},uuid="{uuid}",divided="{str(divided).lower()}"', times, 1)

    def add(self, number, user, start, end, *, gpus=(), until=None, limit=32, peak=31, cpus=2, used=2, name="x", account="physics", node="n1", nodes=1, array="", leader=None, gap=(), anew=None):
        """A job on a node. Each of its GPUs was busy until a time. It still runs if there is no end; in a gap nothing was scraped. Counters of GPUs may begin anew."""
        labels = f'jobid="{number}",instance="{node}:9810"{self.cluster}'
        after = range(end + 5, end + 300, INTERVAL) if end else range(0)
        times = [at for at in [*range(start + 15, end or NOW + HOUR, INTERVAL), *after] if not (gap and gap[0] < at < gap[1])]
        during = [at for at in times if at <= (end or at)]

        def put(metric, times, value, more=""):
            self.samples.put(f"jobledger_job_{metric}", labels + more, times, value)

        def ran(at):
            return min(at, end or at) - start

        def seen(at):
            """Without the gap: GPUs have their time by samples."""
            return ran(at) - (gap[1] - gap[0] if gap and at > gap[0] else 0)

        def since(counter):
            """A counter as it is after it began anew."""
            return lambda at: counter(at) - (counter(anew) if anew and at >= anew else 0)

        element = f',array_job_id="{array.split("_")[0]}",array_task_id="{array.split("_")[1]}"' if array else ""
        component = f',het_job_id="{leader}"' if leader else ""
        put("info", times, 1, f',user="{user}",account="{account}",partition="gpu",name="{quoted(name)}"{element}{component}')
        put("start_time_seconds", times, start)
        if end:
            put("end_time_seconds", after, end)
        if nodes:
            put("nodes_asked", times, nodes)
        put("cpus", during, cpus)
        put("gpus", during, len(gpus))
        put("allocated_cpu_seconds_total", times, lambda at: cpus * ran(at))
        put("cpu_seconds_total", times, lambda at: used * ran(at), ',mode="user"')
        put("memory_limit_bytes", times, limit * GIB)
        put("memory_peak_bytes", times, peak * GIB)
        put("memory_anon_bytes", during, peak * GIB / 2)
        put("memory_shmem_bytes", during, peak * GIB / 4)
        put("energy_joules_total", times, lambda at: 150 * ran(at), ',domain="package"')
        for index, busy_until in enumerate(gpus):
            gpu = f',gpu="{index}",uuid="GPU-{number}-{index}{"" if node == "n1" else node}"'
            put("gpu_info", times, 1, gpu + f',model="A100",minor="{index}",profile="",shared="false"')
            put("gpu_allocated_seconds_total", times, since(ran), gpu)
            put("gpu_energy_joules_total", times, lambda at: 250 * ran(at), gpu)
            put("gpu_busy_seconds_total", times, since(lambda at, busy=busy_until: min(seen(at), max(0, busy - start))), gpu)
            put("gpu_idle_seconds_total", times, since(lambda at, busy=busy_until: seen(at) - min(seen(at), max(0, busy - start))), gpu)
