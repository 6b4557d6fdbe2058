"""Histories of jobs, nodes and exporters, each with what the alerts should make of it.

`history(name, series, *checks)`: a check is (minute, alert, how many fire), with more label matchers if need be. One sample a minute, in
promtool's notation: `0+60x10` is eleven samples from 0 in steps of 60, `_x5` are five without one, `stale` ends the series.
"""

HISTORIES = {}


def history(name, series, *checks):
    if name in HISTORIES:
        raise ValueError(f"two histories are called {name}")
    HISTORIES[name] = (series, checks)


def one(metric, values, **labels):
    return {"series": metric + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}", "values": values}


def node(instance, minutes, up=None, began="0", scrapes=None, job="jobledger"):
    """An exporter: whether it answers, since when it runs."""
    target = {"job": job, "instance": instance}
    return [
        one("up", up or f"1x{minutes}", **target),
        one("process_start_time_seconds", began if " " in began or "x" in began else f"{began}x{minutes}", **target),
        one("jobledger_exporter_scrapes_total", scrapes or f"1+1x{minutes}", **target),
    ]


def on(instance, jobid):
    return {"job": "jobledger", "instance": instance, "jobid": str(jobid)}


def job(instance, jobid, minutes, start="0", before="", known=True, **who):
    """When a job started, and whose it is; an empty name is not known. `before` are the samples without it."""
    who = {"user": "alice", "account": "physics", "partition": "gpu", "qos": "normal", "name": "train"} | who
    found = [one("jobledger_job_start_time_seconds", f"{before}{start}x{minutes}", **on(instance, jobid))]
    if known:
        found.append(one("jobledger_job_info", f"{before}1x{minutes}", **on(instance, jobid), **{key: value for key, value in who.items() if value}))
    return found


def gpu(instance, jobid, allocated, idle, busy, index="0"):
    which = on(instance, jobid) | {"gpu": index, "uuid": f"GPU-{instance}-{index}"}
    return [
        one("jobledger_job_gpu_allocated_seconds_total", allocated, **which),
        one("jobledger_job_gpu_idle_seconds_total", idle, **which),
        one("jobledger_job_gpu_busy_seconds_total", busy, **which, method="alone"),
    ]


def idle_gpu(instance, jobid, minutes, index="0", before=""):
    return gpu(instance, jobid, f"{before}0+60x{minutes}", f"{before}0+60x{minutes}", f"{before}0x{minutes}", index)


def cpu(instance, jobid, seconds, cpus, minutes, before="", gpus=0):
    which = on(instance, jobid)
    return [
        one("jobledger_job_cpu_seconds_total", seconds, **which, mode="user"),
        one("jobledger_job_cpus", f"{before}{cpus}x{minutes}", **which),
        one("jobledger_job_gpus", f"{before}{gpus}x{minutes}", **which, source="program"),
    ]


def gpus_of_node(instance, values, vendor="nvidia"):
    """Whole GPUs: their samples by index."""
    found = []
    for index, samples in enumerate(values):
        which = {"job": "jobledger", "instance": instance, "gpu": str(index), "uuid": f"GPU-{instance}-{index}"}
        found += [one("jobledger_gpu_up", samples, **which), one("jobledger_gpu_info", samples, **which, vendor=vendor)]
    return found


def state(instance, samples, word="running"):
    return one("jobledger_gpu_driver_state", samples, job="jobledger", instance=instance, vendor="nvidia", state=word)


def port(instance, samples, device="mlx5_0"):
    return one("jobledger_node_infiniband_state", samples, job="jobledger", instance=instance, device=device, port="1")


def collector(instance, name, samples, what="available"):
    return one(f"jobledger_exporter_collector_{what}", samples, job="jobledger", instance=instance, collector=name)


def xid(instance, code, samples):
    return one("jobledger_gpu_xid_errors_total", samples, job="jobledger", instance=instance, gpu="0", uuid="G", code=str(code))


def memory(instance, jobid, what, samples):
    return one(f"jobledger_job_memory_{what}_bytes", samples, **on(instance, jobid))


def owner(user, what, samples, instance="n1"):
    return one(f"jobledger_owner_gpu_{what}_seconds_total", samples, job="jobledger", instance=instance, user=user, account="a", partition="gpu", qos="normal")


def series(*parts):
    """All parts, of which some are lists."""
    return [each for part in parts for each in (part if isinstance(part, list) else [part])]


IDLE, LONG, LOW, STUCK = "JobledgerJobGpuIdle", "JobledgerJobGpuIdleLong", "JobledgerJobGpuLowUse", "JobledgerJobStuck"
CPU_LOW, SERIAL, NODE_IDLE, STILL = "JobledgerJobCpuLow", "JobledgerJobSerialOnManyCores", "JobledgerJobNodeIdle", "JobledgerJobStandsStill"
MANY_CORES, NEAR, KILLED = "JobledgerJobGpuManyCores", "JobledgerJobMemoryNearLimit", "JobledgerJobOomKilled"
OWNER = "JobledgerOwnerGpuIdle"
XID, XID_WARNING, XID_APPLICATION = "JobledgerGpuXid", "JobledgerGpuXidWarning", "JobledgerGpuXidApplication"
LOST, DRIVER = "JobledgerGpuLost", "JobledgerGpuDriverFailed"
PORT_DOWN, PORT_SLOW = "JobledgerInfinibandPortDown", "JobledgerInfinibandPortSlow"
DOWN, MANY_DOWN, MISSING = "JobledgerExporterDown", "JobledgerExportersDown", "JobledgerTargetsMissing"

# GPUs of jobs.
history("a job stages data for 70 minutes with 16 of 16 cores, then trains: its owner is informed once, and the text says what the CPUs did",
        series(node("n1", 200), job("n1", 1, 200), gpu("n1", 1, "0+60x200", "0+60x70 4203+3x130", "0x70 57+57x130"), cpu("n1", 1, "0+960x200", 16, 200, gpus=1)),
        (59, IDLE, 0), (62, IDLE, 1), (100, IDLE, 0), (130, LONG, 0))
history("a job stages data for 55 minutes, then trains: it is not judged by its first hour",
        series(node("n1", 200), job("n1", 1, 200), gpu("n1", 1, "0+60x200", "0+60x55 3303+3x145", "0x55 57+57x145")),
        (61, LOW, 0), (63, LOW, 0), (120, LOW, 0), (61, IDLE, 0))
history("an idle job, and the exporter restarts half an hour after it began: an hour later its owner is informed",
        series(node("n1", 300, began="0x29 1800x270"), job("n1", 1, 300), gpu("n1", 1, "0+60x29 0+60x270", "0+60x29 0+60x270", "0x300")),
        (85, IDLE, 0), (120, IDLE, 1), (235, IDLE, 1), (235, LONG, 1))
history("an idle job, and a scrape fails: the alert goes on",
        series(node("n1", 200, up="1x89 0 1x110"), job("n1", 1, 200), idle_gpu("n1", 1, 200)),
        (89, IDLE, 1), (90, IDLE, 1), (91, IDLE, 1))
history("24 jobs of 50 minutes in a day, the GPU idle in all of them: their user is informed",
        series(node("n1", 1500), *[job("n1", i, 49, start=str(i * 3600), before=f"_x{i * 60} " if i else "", user="bob") for i in range(24)],
               *[idle_gpu("n1", i, 49, before=f"_x{i * 60} " if i else "") for i in range(24)],
               owner("bob", "idle", " ".join(f"{i * 3000}+60x49 {i * 3000 + 3000}x9" for i in range(25))),
               owner("bob", "allocated", " ".join(f"{i * 3000}+60x49 {i * 3000 + 3000}x9" for i in range(25)))),
        (600, OWNER, 0), (1430, OWNER, 1, 'user="bob"'), (1430, IDLE, 0))
history("SLURM suspends a job for five hours after an hour of work: its owner is not asked, support may look",
        series(node("n1", 420), job("n1", 1, 420), gpu("n1", 1, "0+60x420", "0+3x60 180+60x360", "0+57x60 3420x360"), cpu("n1", 1, "0+240x60 14400x360", 4, 420, gpus=1)),
        (250, IDLE, 0), (310, IDLE, 0), (370, IDLE, 0), (310, LOW, 0), (370, LONG, 0), (370, STILL, 1))
history("a collective operation hangs for six hours: busy, and no multiprocessor works, at 80 W",
        series(node("n1", 420), job("n1", 1, 420), gpu("n1", 1, "0+60x420", "0x420", "0+60x420"),
               one("jobledger_job_gpu_sm_active_seconds_total", "0x420", **on("n1", 1), gpu="0", uuid="GPU-n1-0"),
               one("jobledger_job_gpu_energy_joules_total", "0+4800x420", **on("n1", 1), gpu="0", uuid="GPU-n1-0", method="alone")),
        (110, STUCK, 0), (130, STUCK, 1), (400, STUCK, 1), (400, IDLE, 0))
history("a watchdog runs kernels for 20 ms a minute and nothing else does",
        series(node("n1", 700), job("n1", 1, 700), gpu("n1", 1, "0+60x700", "0+59.98x700", "0+0.02x700")),
        (62, IDLE, 1), (130, LONG, 1), (600, LONG, 1), (600, LOW, 0))
history("interactive jobs by their usual names are left out for eight hours",
        series(node("n1", 600), *[job("n1", at, 600, name=name) for at, name in enumerate(["bash", "spawner-jupyterhub", "vscode"])], *[idle_gpu("n1", at, 600, str(at)) for at in range(3)]),
        (70, IDLE, 0), (470, IDLE, 0), (490, IDLE, 3))
history("partitions as sites call them are left out for good",
        series(node("n1", 600), *[job("n1", at, 600, partition=name) for at, name in enumerate(["gpu-debug", "interactive-gpu", "debug", "gpu_interactive_long"])],
               *[idle_gpu("n1", at, 600, str(at)) for at in range(4)]),
        (70, IDLE, 0), (590, IDLE, 0))
history("a partition that merely contains the word is not",
        series(node("n1", 100), job("n1", 1, 100, partition="debugging"), idle_gpu("n1", 1, 100)), (70, IDLE, 1))
history("somebody's LIKWID lock, or the job's own, silences no alert of its GPU",
        series(node("n1", 200), job("n1", 1, 200), idle_gpu("n1", 1, 200), one("jobledger_node_counters_yielded", "1x200", job="jobledger", instance="n1"),
               one("jobledger_job_counters_yielded", "1x200", **on("n1", 1))),
        (150, IDLE, 1))
history("a requeued job, idle in its second run",
        series(node("n1", 300), one("jobledger_job_start_time_seconds", "0x100 6060x199", **on("n1", 1)), one("jobledger_job_info", "1x300", **on("n1", 1), user="alice"),
               gpu("n1", 1, "0+60x100 0+60x199", "0x100 0+60x199", "0+60x100 0x199")),
        (155, IDLE, 0), (165, IDLE, 1))
history("the node's clock is five minutes ahead", series(node("n1", 200, began="300"), job("n1", 1, 200, start="300"), idle_gpu("n1", 1, 200)), (66, IDLE, 1))
history("the node's clock is ten minutes behind", series(node("n1", 200, began="-600"), job("n1", 1, 200, start="-600"), idle_gpu("n1", 1, 200)), (55, IDLE, 0), (66, IDLE, 1))
history("the user's name is not known for three minutes: the alert goes on, and is alice's alone",
        series(node("n1", 200), one("jobledger_job_start_time_seconds", "0x200", **on("n1", 1)), one("jobledger_job_info", "1x90 stale _x2 1x106", **on("n1", 1), user="alice"),
               one("jobledger_job_info", "_x91 1x2 stale _x105", **on("n1", 1), uid="1001"), idle_gpu("n1", 1, 200)),
        (89, IDLE, 1, 'user="alice"'), (92, IDLE, 1, 'user="alice"'), (92, IDLE, 1), (120, IDLE, 1))
history("a writer without staleness marks, where a user became known: both jobs have their alert",
        series(node("n1", 200), job("n1", 2, 200), idle_gpu("n1", 2, 200, "5"), one("jobledger_job_start_time_seconds", "0x200", **on("n1", 1)),
               one("jobledger_job_info", "_x91 1x108", **on("n1", 1), user="alice"), one("jobledger_job_info", "1x90", **on("n1", 1), uid="1001"), idle_gpu("n1", 1, 200)),
        (92, IDLE, 1, 'jobid="2"'), (92, IDLE, 1, 'jobid="1",user="alice"'), (110, IDLE, 2))
history("a quarter of the time was not seen, and what was seen is idle",
        series(node("n1", 700), job("n1", 1, 700), gpu("n1", 1, "0+60x700", "0+45x700", "0x700")), (75, IDLE, 0), (200, IDLE, 1), (600, LONG, 1))
history("a job has eight GPUs and uses one: one alert, of seven GPUs",
        series(node("n1", 700), job("n1", 1, 700), gpu("n1", 1, "0+60x700", "0+3x700", "0+57x700"), *[idle_gpu("n1", 1, 700, str(at)) for at in range(1, 8)]),
        (400, LONG, 1), (400, IDLE, 1))
history("a job has one of eight GPUs and all 128 cores, and uses one: other jobs cannot use the seven",
        series(node("n1", 400), job("n1", 1, 400), gpu("n1", 1, "0+60x400", "0+6x400", "0+54x400"), cpu("n1", 1, "0+60x400", 128, 400, gpus=1), gpus_of_node("n1", ["1x400"] * 8),
               one("jobledger_node_cores", "128x400", job="jobledger", instance="n1"), one("jobledger_node_cpus", "128x400", job="jobledger", instance="n1")),
        (60, MANY_CORES, 0), (300, MANY_CORES, 1), (300, CPU_LOW, 0))
history("a job has all GPUs of a node and with them all cores: nobody lacks them",
        series(node("n1", 400), job("n1", 1, 400), *[gpu("n1", 1, "0+60x400", "0+6x400", "0+54x400", str(at)) for at in range(8)], cpu("n1", 1, "0+60x400", 128, 400, gpus=8),
               gpus_of_node("n1", ["1x400"] * 8), one("jobledger_node_cores", "128x400", job="jobledger", instance="n1"), one("jobledger_node_cpus", "128x400", job="jobledger", instance="n1")),
        (300, MANY_CORES, 0))
history("a job has a GPU's share of cores and uses few of them, as many programs do",
        series(node("n1", 400), job("n1", 1, 400), gpu("n1", 1, "0+60x400", "0+6x400", "0+54x400"), cpu("n1", 1, "0+60x400", 16, 400, gpus=1), gpus_of_node("n1", ["1x400"] * 8),
               one("jobledger_node_cores", "128x400", job="jobledger", instance="n1"), one("jobledger_node_cpus", "128x400", job="jobledger", instance="n1")),
        (300, MANY_CORES, 0))
history("a job works for an hour and waits for a person: after three hours support is informed, since nothing moves",
        series(node("n1", 420), job("n1", 1, 420), gpu("n1", 1, "0+60x420", "0x60 0+60x360", "0+60x60 3600x360"), cpu("n1", 1, "0+60x60 3600+0.01x360", 4, 420, gpus=1)),
        (230, IDLE, 0), (230, STILL, 1))
history("a job works for an hour, then its CPUs go on and its GPU does not",
        series(node("n1", 420), job("n1", 1, 420), gpu("n1", 1, "0+60x420", "0x60 0+60x360", "0+60x60 3600x360"), cpu("n1", 1, "0+240x420", 4, 420, gpus=1)),
        (230, IDLE, 0), (245, IDLE, 1), (355, LONG, 0), (365, LONG, 1), (365, STILL, 0))
history("an alert of an idle GPU ends when the GPU is used",
        series(node("n1", 200), job("n1", 1, 200), gpu("n1", 1, "0+60x200", "0+60x90 5400x110", "0x90 0+60x110")), (80, IDLE, 1), (115, IDLE, 0))
history("the driver hangs after an hour of idleness: what is not seen is not idle",
        series(node("n1", 300), job("n1", 1, 300), gpu("n1", 1, "0+60x300", "0+60x65 3900x235", "0x300")), (64, IDLE, 1), (110, IDLE, 0))
history("a GPU job is cancelled while its alert fires: the alert ends a quarter of an hour later",
        series(node("n1", 200), job("n1", 1, 89), idle_gpu("n1", 1, 89)), (85, IDLE, 1), (115, IDLE, 0))
history("a job that trains in bursts, a minute of ten, has a low use, not an idle GPU",
        series(node("n1", 400), job("n1", 1, 400), gpu("n1", 1, "0+60x400", " ".join(f"{at * 540}+60x8 {at * 540 + 540}" for at in range(40)), " ".join(f"{at * 60}x8 {at * 60 + 60}" for at in range(40)))),
        (200, LOW, 1), (200, IDLE, 0), (390, IDLE, 0), (390, LONG, 0))
history("one of the job's GPUs waits for the others, which work: that is not stuck",
        series(node("n1", 420), job("n1", 1, 420), *[gpu("n1", 1, "0+60x420", "0x420", "0+60x420", at) for at in "01"],
               *[one("jobledger_job_gpu_sm_active_seconds_total", samples, **on("n1", 1), gpu=at, uuid=f"GPU-n1-{at}") for at, samples in (("0", "0x420"), ("1", "0+50x420"))]),
        (300, STUCK, 0))
history("busy with few multiprocessors at full power, or with I/O, is not stuck",
        series(node("n1", 420), *[job("n1", at, 420) for at in "12"], *[gpu("n1", at, "0+60x420", "0x420", "0+60x420", at) for at in "12"],
               *[one("jobledger_job_gpu_sm_active_seconds_total", "0+6x420", **on("n1", at), gpu=at, uuid=f"GPU-n1-{at}") for at in "12"],
               one("jobledger_job_gpu_energy_joules_total", "0+36000x420", **on("n1", 1), gpu="1", uuid="GPU-n1-1", method="alone"),
               one("jobledger_gpu_power_limit_watts", "700x420", job="jobledger", instance="n1", gpu="1", uuid="GPU-n1-1", limit="enforced"),
               one("jobledger_job_io_read_bytes_total", "0+600000000x420", **on("n1", 2), device="nvme0n1")),
        (300, STUCK, 0))
for what, samples in (("begin anew in the two hours", "0+600000000x299 0+1000x120"), ("begin in the two hours, as the first file is read", "_x300 0+600000000x120")):
    history(f"busy with few multiprocessors, and counters of bytes {what}: that is not stuck",
            series(node("n1", 420), job("n1", 1, 420), gpu("n1", 1, "0+60x420", "0x420", "0+60x420"),
                   one("jobledger_job_gpu_sm_active_seconds_total", "0+6x420", **on("n1", 1), gpu="0", uuid="GPU-n1-0"),
                   one("jobledger_job_io_read_bytes_total", samples, **on("n1", 1), device="nvme0n1")),
            (330, STUCK, 0), (400, STUCK, 0))
history("a hung job of two nodes at a fifth of its power limit is one alert of four GPUs",
        series(*[node(at, 420) for at in ("n1", "n2")], *[job(at, 1, 420) for at in ("n1", "n2")],
               *[gpu(at, 1, "0+60x420", "0x420", "0+60x420", which) for at in ("n1", "n2") for which in "01"],
               *[one("jobledger_job_gpu_sm_active_seconds_total", "0+9x420", **on(at, 1), gpu=which, uuid=f"GPU-{at}-{which}") for at in ("n1", "n2") for which in "01"],
               *[one("jobledger_job_gpu_energy_joules_total", "0+8400x420", **on(at, 1), gpu=which, uuid=f"GPU-{at}-{which}", method="alone") for at in ("n1", "n2") for which in "01"],
               *[one("jobledger_gpu_power_limit_watts", "700x420", job="jobledger", instance=at, gpu=which, uuid=f"GPU-{at}-{which}", limit="enforced") for at in ("n1", "n2") for which in "01"]),
        (130, STUCK, 1))
history("a user with much work: ten idle GPU-hours of a hundred are no waste to mail about",
        series(node("n1", 1500), owner("bob", "idle", "0+36x1500"), owner("bob", "allocated", "0+360x1500")), (1440, OWNER, 0))
history("idle GPU-hours on several nodes add up, and an exporter that restarts loses none",
        series(*[node(at, 1500) for at in ("n1", "n2")], *[owner("bob", what, "0+20x700 0+20x799", instance) for what in ("idle", "allocated") for instance in ("n1", "n2")]),
        (1000, OWNER, 0), (1440, OWNER, 1))

# CPUs of jobs.
history("two nodes, the prolog's file is missing on one; that one idles, the other works: half of the cores are used",
        series(node("n1", 300), node("n2", 300), job("n1", 1, 300), job("n2", 1, 300, account="", partition=""), cpu("n1", 1, "0+6x300", 4, 300), cpu("n2", 1, "0+240x300", 4, 300)),
        (250, CPU_LOW, 0), (250, NODE_IDLE, 0))
history("SLURM suspends a CPU job for hours: its owner is not asked, also when it goes on",
        series(node("n1", 460), job("n1", 1, 460), cpu("n1", 1, "0+240x60 14400x340 14640+240x60", 4, 460)),
        (260, CPU_LOW, 0), (310, CPU_LOW, 0), (310, STILL, 1), (425, CPU_LOW, 0), (455, CPU_LOW, 0), (455, STILL, 0))
history("64 cores for their memory, of which nine tenths are used",
        series(node("n1", 300), job("n1", 1, 300), cpu("n1", 1, "0+240x300", 64, 300), memory("n1", 1, "peak", "230e9x300"), memory("n1", 1, "limit", "256e9x300")), (260, CPU_LOW, 0))
history("a peak that is page cache is no need of memory",
        series(node("n1", 300), job("n1", 1, 300), cpu("n1", 1, "0+240x300", 64, 300), memory("n1", 1, "peak", "230e9x300"), memory("n1", 1, "anon", "9e9x300"), memory("n1", 1, "limit", "256e9x300")),
        (275, CPU_LOW, 1))
history("a node joins late and ends early: the peak that is retained of it is no need of memory",
        series(node("n1", 300), node("n2", 300), job("n1", 1, 165, before="_x100 "), job("n2", 1, 300), cpu("n1", 1, "_x100 0+240x150 36000x15", 64, 165, before="_x100 "), cpu("n2", 1, "0+240x300", 64, 300),
               one("jobledger_job_end_time_seconds", "_x251 15060x15", **on("n1", 1)), memory("n1", 1, "anon", "_x100 9e9x150 stale"), memory("n1", 1, "peak", "_x100 250e9x165"), memory("n1", 1, "limit", "_x100 256e9x165")),
        (288, CPU_LOW, 1))
history("a serial program with a helper thread, 1.05 of 64 cores", series(node("n1", 200), job("n1", 1, 200), cpu("n1", 1, "0+63x200", 64, 200)), (120, SERIAL, 1))
history("two cores, one of which works", series(node("n1", 200), job("n1", 1, 200), cpu("n1", 1, "0+60x200", 2, 200)), (120, SERIAL, 0))
history("an outage of ten minutes passes the far end of the window",
        series(node("n1", 500), job("n1", 1, 500), one("jobledger_job_cpu_seconds_total", "0+6x100 _x12 678+6x380", **on("n1", 1), mode="user"), one("jobledger_job_cpus", "4x500", **on("n1", 1))),
        (340, CPU_LOW, 1), (350, CPU_LOW, 1), (370, CPU_LOW, 1))
history("four cores of SMT with a thread each: eight CPUs, half of whose time is used, are full",
        series(node("n1", 300), job("n1", 1, 300), cpu("n1", 1, "0+240x300", 8, 300), one("jobledger_node_cores", "32x300", job="jobledger", instance="n1"), one("jobledger_node_cpus", "64x300", job="jobledger", instance="n1")),
        (260, CPU_LOW, 0), (260, SERIAL, 0))
history("a node of the job joins late: its hours before are not idle ones",
        series(node("n1", 300), node("n2", 300), job("n1", 1, 300), job("n2", 1, 200, before="_x100 "), cpu("n1", 1, "0+6x300", 4, 300), cpu("n2", 1, "_x100 0+240x200", 4, 200, before="_x100 ")),
        (260, CPU_LOW, 0))
history("a workflow's manager on one core sleeps: nobody lacks the core", series(node("n1", 400), job("n1", 1, 400), cpu("n1", 1, "0+0.1x400", 1, 400)), (390, STILL, 0), (390, CPU_LOW, 0))

for held in (8, 16):
    history(f"a job with {held} of 16 CPUs uses a tenth of one",
            series(node("n1", 340), one("jobledger_node_cpus", "16x340", job="jobledger", instance="n1"), one("jobledger_node_cores", "16x340", job="jobledger", instance="n1"),
                   job("n1", 1, 340), cpu("n1", 1, "0+6x340", held, 340)),
            (330, CPU_LOW, 1))

# Memory of jobs.
history("memory wavers about the threshold for two hours",
        series(node("n1", 200), job("n1", 1, 200), memory("n1", 1, "anon", " ".join(["96x5 94x5"] * 16)), memory("n1", 1, "limit", "100x200")),
        (5, NEAR, 1), (6, NEAR, 1), (17, NEAR, 1), (20, NEAR, 1))
history("a kill of five hours ago, and the exporter was away for two hours",
        series(node("n1", 900, up="1x300 0x129 1x470"), one("jobledger_job_start_time_seconds", "0x300 _x130 0x469", **on("n1", 1)), one("jobledger_job_info", "1x300 _x130 1x469", **on("n1", 1), user="alice"),
               one("jobledger_job_oom_kills_total", "1x300 _x130 1x469", **on("n1", 1))),
        (200, KILLED, 0), (435, KILLED, 0))
history("a new Prometheus sees a kill of last week and an Xid of last month",
        series(node("n1", 120, began="-3000000"), job("n1", 1, 120, start="-600000"), one("jobledger_job_oom_kills_total", "3x120", **on("n1", 1)), xid("n1", 79, "1x120")),
        (1, KILLED, 0), (1, XID, 0), (30, KILLED, 0), (30, XID, 0), (90, KILLED, 0), (90, XID, 0))
for which, before in (("v2", "0x14"), ("v1, without a counter until then", "_x15")):
    history(f"a new Prometheus sees the first kill of a job of last week, {which}: one alert for an hour",
            series(node("n1", 200, began="-3000000"), job("n1", 1, 200, start="-600000"), one("jobledger_job_oom_kills_total", f"{before} 1x185", **on("n1", 1))),
            (14, KILLED, 0), (16, KILLED, 1), (27, KILLED, 1), (40, KILLED, 1), (58, KILLED, 1), (70, KILLED, 1), (110, KILLED, 0), (150, KILLED, 0))
history("the counter of kills cannot be read for a minute: an old kill is old ten minutes and an hour later",
        series(node("n1", 300, began="-3000000"), job("n1", 1, 300, start="-600000"), one("jobledger_job_oom_kills_total", "2x99 stale 2x200", **on("n1", 1))),
        (90, KILLED, 0), (102, KILLED, 0), (110, KILLED, 0), (112, KILLED, 0), (160, KILLED, 0), (162, KILLED, 0), (165, KILLED, 0))
history("kills every 20 minutes are one alert", series(node("n1", 400), job("n1", 1, 400), one("jobledger_job_oom_kills_total", " ".join(f"{at}x19" for at in range(1, 20)), **on("n1", 1))),
        (100, KILLED, 1), (300, KILLED, 1))
history("a job is killed before it was scraped without a kill",
        series(node("n1", 200), job("n1", 1, 3, start="6000", before="_x100 "), one("jobledger_job_oom_kills_total", "_x100 1x3", **on("n1", 1))), (101, KILLED, 1), (130, KILLED, 0))
history("a job of 64 nodes is killed on all of them: one alert",
        series(*[node(f"n{at}", 100) for at in range(8)], *[job(f"n{at}", 1, 100) for at in range(8)], *[one("jobledger_job_oom_kills_total", "0x80 1x20", **on(f"n{at}", 1)) for at in range(8)]),
        (79, KILLED, 0), (85, KILLED, 1))

# Hardware.
history("a port is down for two days: one alert", series(node("n1", 3000), port("n1", "4x60 1x2940")), (120, PORT_DOWN, 1), (1600, PORT_DOWN, 1), (2900, PORT_DOWN, 1))
history("an HCA is gone after a reboot", series(node("n1", 600), collector("n1", "infiniband", "1x60 0x540"), port("n1", "4x60 _x540")), (60, PORT_DOWN, 0), (200, PORT_DOWN, 1), (590, PORT_DOWN, 1))
history("one of two HCAs is gone", series(node("n1", 600), collector("n1", "infiniband", "1x600"), collector("n1", "infiniband", "1x600", "success"), port("n1", "4x600"), port("n1", "4x60 _x540", "mlx5_1")),
        (200, PORT_DOWN, 1, 'device="mlx5_1"'), (200, PORT_DOWN, 1))
history("the collector of InfiniBand is switched off: no port is missed", series(node("n1", 600), collector("n1", "infiniband", "1x60 _x540"), port("n1", "4x60 _x540")), (200, PORT_DOWN, 0))
history("the collector of InfiniBand fails: that is another alert", series(node("n1", 600), collector("n1", "infiniband", "1x600"), collector("n1", "infiniband", "1x60 0x540", "success"), port("n1", "4x60 _x540")),
        (200, PORT_DOWN, 0), (200, "JobledgerCollectorFailing", 1))
history("a node with InfiniBand is taken out of the configuration: nothing is missed", series(node("n1", 60), node("n2", 600), collector("n1", "infiniband", "1x60"), port("n1", "4x60")), (200, PORT_DOWN, 0))
history("a port comes up again", series(node("n1", 600), port("n1", "4x60 1x200 4x340")), (200, PORT_DOWN, 1), (300, PORT_DOWN, 0))
history("Prometheus itself is away for an hour while a port is down",
        series(node("n1", 400, up="1x100 _x60 1x240"), port("n1", "4x60 1x40 _x60 1x240")), (90, PORT_DOWN, 1), (170, PORT_DOWN, 1), (390, PORT_DOWN, 1))
history("a node comes back with seven of its eight GPUs: one alert, for days",
        series(node("n1", 3000, began="0x59 3600x2940"), gpus_of_node("n1", ["1x3000"] * 7 + ["1x59 _x2940"]), state("n1", "1x3000")), (58, LOST, 0), (120, LOST, 1), (2900, LOST, 1))
history("a node comes back without the GPUs' driver", series(node("n1", 600, began="0x59 3600x540"), gpus_of_node("n1", ["1x59 _x540"] * 2), state("n1", "1x59 _x540"), collector("n1", "gpu", "1x59 0x540")), (120, LOST, 2))
history("the collector of GPUs is switched off: none is missed", series(node("n1", 600, began="0x59 3600x540"), gpus_of_node("n1", ["1x59 _x540"] * 2), state("n1", "1x59 _x540"), collector("n1", "gpu", "1x59 _x540")), (120, LOST, 0))
history("a GPU is replaced: the old one is not missed", series(node("n1", 600), gpus_of_node("n1", ["1x600", "1x59 _x540"]), state("n1", "1x600"),
               one("jobledger_gpu_up", "_x120 1x480", job="jobledger", instance="n1", gpu="1", uuid="GPU-new"), one("jobledger_gpu_info", "_x120 1x480", job="jobledger", instance="n1", gpu="1", uuid="GPU-new", vendor="nvidia")),
        (100, LOST, 1), (150, LOST, 0), (590, LOST, 0))
history("parts of a divided GPU come and go: they are not missed", series(node("n1", 300), gpus_of_node("n1", ["1x300"]), state("n1", "1x300"),
               one("jobledger_gpu_up", "1x59 _x240", job="jobledger", instance="n1", gpu="0", uuid="MIG-1"), one("jobledger_gpu_info", "1x59 _x240", job="jobledger", instance="n1", gpu="0", uuid="MIG-1", vendor="nvidia", parent="GPU-n1-0")),
        (120, LOST, 0))
history("the driver is released for a while: no GPU is missed", series(node("n1", 300), gpus_of_node("n1", ["1x59 _x240"]), state("n1", "1x59 0x240"), state("n1", "0x59 1x240", "released")), (120, LOST, 0), (120, DRIVER, 0))
history("a GPU falls off the bus: alerts of one GPU, of which the mail is one (test_mail.py)",
        series(node("n1", 300), gpus_of_node("n1", ["1x60 0x240", "1x300"]), state("n1", "1x300"), xid("n1", 79, "_x60 1x240")), (70, LOST, 1), (70, XID, 1), (250, LOST, 1), (250, XID, 0))
history("the driver hangs for eight of ten minutes, for hours",
        series(node("n1", 400), state("n1", " ".join(["1x7 0x1"] * 40), "hanging"), state("n1", " ".join(["0x7 1x1"] * 40))), (200, DRIVER, 1))
history("the driver hangs for two minutes", series(node("n1", 100), state("n1", "0x50 1x1 0x48", "hanging"), state("n1", "1x50 0x1 1x48")), (52, DRIVER, 0), (60, DRIVER, 0))
history("a port has half of its speed for two days", series(node("n1", 3000), one("jobledger_node_infiniband_speed_bytes", "25e9x60 12.5e9x2940", job="jobledger", instance="n1", device="mlx5_0", port="1")),
        (120, PORT_SLOW, 1), (1600, PORT_SLOW, 1), (2900, PORT_SLOW, 1))
history("a port that is down is not slow as well", series(node("n1", 300), port("n1", "4x60 1x240"), one("jobledger_node_infiniband_speed_bytes", "25e9x60 1e9x240", job="jobledger", instance="n1", device="mlx5_0", port="1")),
        (120, PORT_DOWN, 1), (120, PORT_SLOW, 0))
history("Xids by NVIDIA's catalogue: a remapped row and a contained error are warnings", series(node("n1", 60), xid("n1", 63, "_x10 1x50"), xid("n1", 94, "_x10 1x50")), (30, XID, 0), (30, XID_WARNING, 2))
history("Xids by NVIDIA's catalogue: a fault of a program, one of the GPU, and one that the catalogue does not have",
        series(node("n1", 60), xid("n1", 31, "_x10 1x50"), xid("n1", 119, "_x10 1x50"), xid("n1", 999, "_x10 1x50")),
        (30, XID, 1, 'code="119"'), (30, XID, 1), (30, XID_APPLICATION, 1, 'code="31"'), (30, XID_WARNING, 1, 'code="999"'))
history("the exporter is upgraded: no old Xid comes back", series(node("n1", 400, began="0x200 12000x199"), xid("n1", 79, "_x10 1x190 _x200")), (30, XID, 1), (150, XID, 0), (230, XID, 0))

# Exporters.
history("service discovery returns nothing", series(node("n1", 60), job("n1", 1, 60)), (60, MISSING, 0), (120, MISSING, 1), (1500, MISSING, 1))
history("nothing was ever scraped", series(one("up", "1x100", job="other", instance="x")), (30, MISSING, 1))
history("service discovery loses three of ten nodes", series(*[node(f"n{at}", 60 if at < 3 else 300) for at in range(10)]), (120, MISSING, 1), (120, DOWN, 0))
history("a node is taken out of the configuration", series(*[node(f"n{at}", 60 if at < 1 else 300) for at in range(10)]), (120, MISSING, 0))
history("SLURM powers three of ten nodes off", series(*[node(f"n{at}", 100, up="1x10 0x90" if at < 3 else "1x100") for at in range(10)]), (60, DOWN, 0), (60, MANY_DOWN, 0), (60, MISSING, 0))
history("three of ten nodes do not answer, and jobs ran on two of them",
        series(*[node(f"n{at}", 100, up="1x10 0x90" if at < 3 else "1x100", scrapes="1+1x10 stale" if at < 3 else None) for at in range(10)],
               *[one("jobledger_exporter_jobs", f"{at}x10 stale" if at < 3 else "1x100", job="jobledger", instance=f"n{at}", state="running") for at in range(10)]),
        (60, DOWN, 2), (60, MANY_DOWN, 0))
history("six of ten exporters do not answer after an upgrade: one alert", series(*[node(f"n{at}", 100, up="1x10 0x90" if at < 6 else "1x100") for at in range(10)]), (60, MANY_DOWN, 1), (60, DOWN, 0))
history("the only exporter of a scrape job with another name is down for two days",
        series(one("up", "1x60 0x2940", job="hpc-nodes", instance="n1"), one("jobledger_exporter_scrapes_total", "1+1x60", job="hpc-nodes", instance="n1")), (120, MANY_DOWN, 1), (1600, MANY_DOWN, 1))
history("one scrape of one exporter fails", series(node("n1", 100, up="1x50 0 1x49"), one("jobledger_exporter_jobs", "3x50 stale 3x49", job="jobledger", instance="n1", state="running")), (50, DOWN, 0), (55, DOWN, 0), (55, MANY_DOWN, 0))
history("a node that crashed with jobs is back: the alert ends", series(node("n1", 200, up="1x50 0x30 1x118", scrapes="1+1x50 stale _x29 1+1x118"), node("n2", 200), node("n3", 200), one("jobledger_exporter_jobs", "3x50 stale _x29 0x118", job="jobledger", instance="n1", state="running")),
        (70, DOWN, 1), (110, DOWN, 0))
