#!/usr/bin/env python3
"""What `jobledger` shows of the same jobs from VictoriaMetrics (Debian sid's, which moves), from Prometheus 3, from Thanos, Cortex and Mimir, beside
Prometheus 2.

Not in CI: `make report-elsewhere`. Thanos, Cortex and Mimir are built from the Go modules of their names, once, in an hour; they need Go 1.25. The
program is $JOBLEDGER_CLI, or it is built. Ends with 1 where something differs by more than what follows from how a server computes rates.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tests/scale")]

import test_apart  # noqa: E402
import test_digest  # noqa: E402
import test_runs  # noqa: E402
import test_top  # noqa: E402
import test_usage  # noqa: E402
from tools import Ran, free_ports, program, running, scratch, server_of, wait_for  # noqa: E402
from tools import programs as prometheus_programs  # noqa: E402
from testbed import cache  # noqa: E402
from victoria import programs  # noqa: E402

# Without this tag a label set of Prometheus is no slice, as that of Thanos and Cortex is.
SLICES = "-tags=slicelabels"
THANOS = ("github.com/thanos-io/thanos", "v0.40.1", SLICES)
CORTEX = ("github.com/cortexproject/cortex", "v1.21.1", SLICES)
MIMIR = ("github.com/grafana/mimir", "v1.3.1-0.20260423142704-aced80d74930")
ORGANISATION = "physics"

# Of a curve's value, which is a rate; all others are the same but for their last digits.
RATES = 0.05
EQUAL = 1e-9
POLICIES = 'history = "{directory}/history"\n' + test_digest.POLICIES.format(days=test_digest.ALWAYS, most=200) + test_digest.IDLE

SINCE = f"--since={test_usage.moment(test_usage.SINCE)}"

# What is asked of which jobs.
COMMANDS = {
    "runs": [["report", "77", "--format=json"], ["report", "77", "--format=json", "--run=1"], ["list", "77", "--format=json"], ["report", "78", "--format=json"],
             ["list", "78", "--format=json"], ["report", "79", "--format=json"]],
    "clusters": [["report", "401", "--format=json"], ["list", "--user=alice", "--format=json"], ["waste", "--format=json"], ["top", "--once"]],
    "parts": [["report", "502", "--format=json"], ["report", "503", "--format=json"], ["report", "700+1", "--format=json"], ["top", "--once"]],
    "ended": [["report", "101", "--format=json"], ["report", "103"], ["list", "--user=all", "--since=3d", "--format=json"], ["compare", "101", "102", "--format=json"],
              ["digest", "--policies={directory}/digest.toml"]],
    "running": [["report", "201", "--format=json"], ["list", "--user=all", "--format=json"], ["idle-gpus", "--policies={directory}/digest.toml"]],
    "now": [["top", "--once"], ["report", "305_3", "--format=json"]],
    "usage": [["usage", SINCE, "--format=json"], ["usage", "--by=node", SINCE, "--format=json"]],
}
SAMPLES = {"runs": test_runs.samples, "clusters": test_apart.clusters, "parts": test_apart.parts, "ended": test_digest.digest_jobs, "running": test_digest.running_jobs, "now": test_top.jobs,
           "usage": test_usage.all_samples}


class Victoria:
    """A VictoriaMetrics that has some samples."""

    def __init__(self, samples):
        self._samples = samples

    def __enter__(self):
        self._directory = scratch("jobledger-victoria")
        directory = self._directory.__enter__()
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._server = running([str(programs("sid") / "victoria-metrics"), f"-storageDataPath={directory}/data", f"-httpListenAddr={self.address}",
                                "-search.latencyOffset=0s", "-retentionPeriod=1y", "-memory.allowedPercent=20"], directory / "log")
        self._server.__enter__()
        wait_for("VictoriaMetrics", self.is_up)
        for name, series in self._samples.families.items():
            lines = (f"{name}{{{labels}}} {value} {at * 1000}" for labels, points in series.items() for value, at in points)
            self.ask("/api/v1/import/prometheus", "\n".join(lines).encode())
        self.ask("/internal/force_flush")
        return self

    def ask(self, path, body=None):
        with urllib.request.urlopen(f"http://{self.address}{path}", data=body, timeout=120) as answer:
            return answer.read() or b"ok"

    def is_up(self):
        try:
            return self.ask("/health")
        except OSError:
            return None

    def __exit__(self, *error):
        self._server.__exit__(*error)
        self._directory.__exit__(*error)


def built(module, version, *flags):
    """The program of a Go module that is named as it; None without Go."""
    go, name = shutil.which("go"), module.rsplit("/", 1)[1]
    if not go:
        return None

    def build(into):
        environment = {**os.environ, "GOFLAGS": "-mod=mod"}
        described = subprocess.run([go, "mod", "download", "-json", f"{module}@{version}"], env=environment, stdout=subprocess.PIPE, check=True).stdout
        source = into / "source"
        shutil.copytree(json.loads(described)["Dir"], source)
        subprocess.run(["chmod", "-R", "u+w", source], check=True)
        subprocess.run([go, "build", "-trimpath", *flags, "-ldflags=-s -w", "-o", into / name, f"./cmd/{name}"], cwd=source, env=environment, check=True)
        shutil.rmtree(source)

    return cache.built(name, cache.key(version), build) / name


@contextlib.contextmanager
def over_thanos(binary, samples):
    """The address of a Thanos that asks a Prometheus with these samples by its sidecar, as one of two replicas."""
    with server_of(samples, 'global: {external_labels: {replica: "1"}}\n') as prometheus, scratch("jobledger-thanos") as directory:
        sidecar_grpc, sidecar_http, query_grpc, query_http = (f"127.0.0.1:{port}" for port in free_ports(4))
        sidecar = [binary, "sidecar", f"--prometheus.url=http://{prometheus.address}", f"--tsdb.path={directory}", f"--grpc-address={sidecar_grpc}", f"--http-address={sidecar_http}"]
        query = [binary, "query", f"--endpoint={sidecar_grpc}", "--query.replica-label=replica", f"--grpc-address={query_grpc}", f"--http-address={query_http}"]
        with running([*map(str, sidecar)], directory / "sidecar.log"), running([*map(str, query)], directory / "query.log"):

            def has_all():
                with contextlib.suppress(OSError):
                    with urllib.request.urlopen(f"http://{query_http}/api/v1/stores", timeout=60) as answer:
                        return [each for each in json.load(answer)["data"].get("sidecar", []) if each["lastError"] is None and each["labelSets"]]

            wait_for("Thanos", has_all)
            yield query_http


CORTEX_CONFIG = """
target: distributor,ingester,store-gateway,querier
auth_enabled: true
server: {{http_listen_address: 127.0.0.1, http_listen_port: {http}, grpc_listen_address: 127.0.0.1, grpc_listen_port: {grpc}}}
blocks_storage:
  backend: filesystem
  filesystem: {{dir: {directory}/bucket}}
  tsdb: {{dir: {directory}/tsdb}}
  bucket_store: {{sync_dir: {directory}/sync, sync_interval: 1s, bucket_index: {{enabled: false}}}}
ingester: {{lifecycler: {{address: 127.0.0.1, final_sleep: 0s, ring: {{kvstore: {{store: inmemory}}, replication_factor: 1}}}}}}
distributor: {{ring: {{kvstore: {{store: inmemory}}, instance_addr: 127.0.0.1}}}}
querier: {{store_gateway_addresses: "127.0.0.1:{grpc}", active_query_tracker_dir: {directory}/queries}}
"""


MIMIR_CONFIG = """
target: distributor,ingester,store-gateway,querier,compactor
multitenancy_enabled: true
usage_stats: {{enabled: false}}
activity_tracker: {{filepath: {directory}/activity}}
server: {{http_listen_address: 127.0.0.1, http_listen_port: {http}, grpc_listen_address: 127.0.0.1, grpc_listen_port: {grpc}}}
blocks_storage:
  backend: filesystem
  filesystem: {{dir: {directory}/bucket}}
  tsdb: {{dir: {directory}/tsdb}}
  bucket_store: {{sync_dir: {directory}/sync, sync_interval: 1s, ignore_blocks_within: 0s}}
# It makes the index of blocks, which nothing is found without.
compactor: {{data_dir: {directory}/compactor, cleanup_interval: 1s, sharding_ring: {{instance_addr: 127.0.0.1, kvstore: {{store: inmemory}}}}}}
ingester: {{ring: {{instance_addr: 127.0.0.1, final_sleep: 0s, kvstore: {{store: inmemory}}, replication_factor: 1}}}}
distributor: {{ring: {{instance_addr: 127.0.0.1, kvstore: {{store: inmemory}}}}}}
store_gateway: {{sharding_ring: {{instance_addr: 127.0.0.1, kvstore: {{store: inmemory}}, replication_factor: 1}}}}
querier: {{query_store_after: 0s}}
memberlist: {{bind_addr: [127.0.0.1], bind_port: 0}}
"""


@contextlib.contextmanager
def over_blocks(name, binary, configuration, samples):
    """The URL of a Cortex or Mimir that has these samples as those of an organisation, and the file that names it."""
    _, promtool = prometheus_programs("2")
    with scratch(f"jobledger-{name.lower()}") as directory:
        (directory / "samples").write_text("\n".join(samples.lines()))
        blocks = directory / "bucket" / ORGANISATION
        subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", directory / "samples", blocks], check=True, capture_output=True)
        http, grpc = free_ports(2)
        (directory / "config.yml").write_text(configuration.format(directory=directory, http=http, grpc=grpc))
        names = directory / "http.yml"
        names.write_text(f"http_headers: {{X-Scope-OrgID: {{values: [{ORGANISATION}]}}}}\n")
        url = f"http://127.0.0.1:{http}/prometheus"
        with running([str(binary), f"-config.file={directory}/config.yml"], directory / "log"):

            def has_all():
                request = urllib.request.Request(f"{url}/api/v1/query?query=count(last_over_time(jobledger_job_info[7d]))", headers={"X-Scope-OrgID": ORGANISATION})
                with contextlib.suppress(OSError):
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        return json.load(answer)["data"]["result"]

            wait_for(name, has_all)
            yield url, names


def differences(one, other, where="", limit=EQUAL):
    """Where two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                yield f"{where}.{key}: {one.get(key)!r}, {other.get(key)!r}"
            else:
                yield from differences(one[key], other[key], f"{where}.{key}", RATES if key == "curves" else limit)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other)):
            yield from differences(*pair, f"{where}[{at}]", limit)
    elif isinstance(one, float | int) and isinstance(other, float | int):
        if not math.isclose(one, other, rel_tol=limit, abs_tol=1e-9):
            yield f"{where}: {one}, {other}"
    elif one != other:
        yield f"{where}: {one!r}, {other!r}"


def shown(url, cli, command, until, *options):
    """What a command writes: a document where it is one. `top` looks at its own time, which is left out."""
    with scratch("jobledger-elsewhere") as directory:
        (directory / "digest.toml").write_text(POLICIES.replace("{directory}", str(directory)))
        ran = Ran(cli, url, *[word.replace("{directory}", str(directory)) for word in command], "--no-sacct", f"--until={until}", *options)
    if ran.status:
        return f"exit {ran.status}: {ran.err}"
    try:
        return json.loads(ran.out)
    except ValueError:
        return re.sub(r"\d\d:\d\d:\d\d", "TIME", ran.out).splitlines() if command[0] == "top" else ran.out.splitlines()


def main():
    cli, thanos, failed = program(), built(*THANOS), 0
    multitenant = {"Cortex": (built(*CORTEX), CORTEX_CONFIG), "Mimir": (built(*MIMIR), MIMIR_CONFIG)} if thanos else {}
    if not thanos:
        print("neither Thanos, Cortex nor Mimir: there is no Go to build them")
    for name, make in SAMPLES.items():
        # All look at the same time, so that the same samples are within their windows.
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        samples = make()
        os.environ["JOBLEDGER_PROMETHEUS"] = "2"
        with contextlib.ExitStack() as stack:
            two = stack.enter_context(server_of(samples))
            others = {"VictoriaMetrics": (f"http://{stack.enter_context(Victoria(samples)).address}", ())}
            if thanos:
                others["Thanos"] = (f"http://{stack.enter_context(over_thanos(thanos, samples))}", ())
            for server, (binary, configuration) in multitenant.items():
                url, names = stack.enter_context(over_blocks(server, binary, configuration, samples))
                others[server] = (url, (f"--http.config.file={names}",))
                refused = Ran(cli, url, "list", "--user=all")
                failed += (refused.status, "no org id" in refused.err) != (1, True)
                print(f"{server} without a name:", refused.err.strip())
            os.environ["JOBLEDGER_PROMETHEUS"] = "3"
            with server_of(samples) as three:
                others["Prometheus 3"] = (f"http://{three.address}", ())
                for command in COMMANDS[name]:
                    truth = shown(f"http://{two.address}", cli, command, until)
                    for other, (url, options) in others.items():
                        found = list(differences(truth, shown(url, cli, command, until, *options)))
                        failed += bool(found)
                        print("FAIL" if found else "ok  ", other, " ".join(command[:2]), *found[:12], sep="  " if not found else "\n     ", flush=True)
    print(f"{failed} differ" if failed else "all are the same")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
