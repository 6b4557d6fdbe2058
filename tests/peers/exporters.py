"""The exporters that are compared: how each is installed and started, and what its page must have."""

import dataclasses
import pathlib
import re
import subprocess

GO_TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools/go-tools.sh"
ROOT = "/sys/fs/cgroup"
# What each of them has: identity, CPU time, memory and CPUs of a job.
SAME = ("job", "cpu", "memory", "cpuset")
# What else is on by default and reads something of each job, or sums it up.
OF_JOBS = (*SAME, "pressure", "io", "processes", "owners")


@dataclasses.dataclass(frozen=True)
class Exporter:
    """`flags` are those beside the address it listens at. `job` finds the id of a job in a series that is about it; every job must
    have a sample of each family in `content`, and no sample may match `failed`."""

    name: str
    job: re.Pattern
    content: tuple[str, ...]
    failed: re.Pattern
    flags: tuple[str, ...]
    # Of the Go module proxy. None: ours.
    module: str | None = None


def collectors(names):
    return ["--collector.disable-defaults", *(f"--collector.{name}" for name in names)]


def ours(name, flags):
    return Exporter(
        name, re.compile(r'jobid="(\d+)"'), ("jobledger_job_cpu_seconds_total", "jobledger_job_memory_used_bytes", "jobledger_job_cpus"),
        # Where a source is absent, as pressure is on v1, its collector is not available and has not failed.
        re.compile(r'jobledger_exporter_collector_success\{collector="(?:job|cpu|memory|cpuset)"\} 0'),
        (f"--path.cgroupfs={ROOT}", "--scrape.min-interval=0s", "--log.level=error", *flags))


def cgroup_exporter(name, module, job):
    return Exporter(
        name, job, ("cgroup_cpu_total_seconds", "cgroup_memory_used_bytes", "cgroup_cpus"),
        re.compile(r"cgroup_exporter_collect_error\{.*\} 1"),
        ("--config.paths=/slurm", f"--path.cgroup.root={ROOT}", "--web.disable-exporter-metrics", "--log.level=error"), module)


OURS = [
    ours("Jobledger, the same content", collectors(SAME)),
    ours("Jobledger, all collectors of jobs", collectors(OF_JOBS)),
    ours("Jobledger as installed", []),
]
PEERS = [
    # Its module embeds BPF objects that its own build makes, and replaces another module: where `go install` refuses that, a program
    # that was built elsewhere is given.
    Exporter(
        "CEEMS", re.compile(r'uuid="(\d+)"'),
        ("ceems_compute_unit_cpu_user_seconds_total", "ceems_compute_unit_memory_used_bytes", "ceems_compute_unit_cpus"),
        re.compile(r"ceems_compute_collect_error\{.*\} 1|ceems_scrape_collector_success\{.*\} 0"),
        ("--collector.disable-defaults", "--collector.slurm", f"--path.cgroupfs={ROOT}", "--web.disable-exporter-metrics", "--log.level=error"),
        "github.com/ceems-dev/ceems/cmd/ceems_exporter@v0.10.0"),
    cgroup_exporter("plazonic", "github.com/plazonic/cgroup_exporter@v0.3.0", re.compile(r'jobid="(\d+)"')),
    cgroup_exporter("treydock", "github.com/treydock/cgroup_exporter@v1.2.0", re.compile(r'cgroup="[^"]*/job_(\d+)"')),
]
# In no public registry by name, so it cannot be installed.
ABSENT = {"slurm-job-exporter": "no public registry has it by name"}


def install(exporter):
    """The path of a peer's program and None, or None and why there is none."""
    done = subprocess.run([GO_TOOLS, exporter.module], capture_output=True, text=True)
    if done.returncode == 0:
        return pathlib.Path(done.stdout.split()[-1]), None
    return None, reason(done.stderr)


def reason(said):
    """What a tool that failed said last, without addresses."""
    lines = [line.strip().removeprefix("server response: ") for line in said.splitlines() if line.strip()]
    return re.sub(r"\bhttps?://\S+", "the registry", lines[-1]) if lines else "it failed without a word"


def programs(wanted, ours, given):
    """Path by name of those that can be started, and why by name of the others. `given` are paths of peers that are there already."""
    found, missing = {}, {}
    for exporter in wanted:
        path, why = (given.get(exporter.name) or ours, None) if exporter.module is None or exporter.name in given else install(exporter)
        if path:
            found[exporter.name] = path
        else:
            missing[exporter.name] = f"{exporter.module}: {why}"
    return found, missing
