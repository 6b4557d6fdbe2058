#!/usr/bin/env python3
"""seeds.py MACHINES CORPUS: the files of the fixture machines as first inputs of the targets that read such files. Few of them are different."""

import hashlib
import re
import sys
from pathlib import Path

# A pattern of the path within MACHINES.
SEEDS = {
    "keyed": r"(\.stat|\.events|/io\.stat|/status)$",
    "numbers": r"(\.effective|\.max|\.pressure|_in_bytes)$",
    "cgroup_files": r"(\.stat|/memory\.events|/memory\.oom_control|/cgroup\.procs)$",
    "known_work": r"/proc/stat$",
    "proc_files": r"/proc/[0-9]",
    "node_files": r"/proc/(?![0-9])",
    "interconnect": r"/(ports/.*|telemetry)/",
    "gpu_files": r"(/gpu_metrics|/properties|_err_count|/temp[^/]*_input|_link_speed)$|/fdinfo/",
    "file_systems": r"(/diskstats|/mountstats|/mountinfo)$|/lustre/.*/stats$",
    "pmu_sysfs": r"/(format|events)/",
    "slurm_names": r"/cmdline$",
    "slurm_texts": r"/run/|/environ$",
}
MOST_BYTES = 16 << 10

machines, corpus = map(Path, sys.argv[1:])
for target in SEEDS:
    (corpus / target).mkdir(parents=True, exist_ok=True)
for path in machines.rglob("*"):
    name = f"/{path.relative_to(machines)}"
    targets = [target for target, pattern in SEEDS.items() if re.search(pattern, name)]
    if targets and path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
        content = path.read_bytes()
        for target in targets:
            seed = corpus / target / f"seed-{hashlib.sha1(content).hexdigest()[:16]}"
            if not seed.exists():
                seed.write_bytes(content)
