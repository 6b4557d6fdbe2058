#!/usr/bin/env python3
"""Turns recordings of real SLURM nodes into fixture machines.

usage: convert_recording.py RECORDINGS FIXTURES

A recording is a directory with tree.txt (directories), files.txt ("=== path" and content) and procs.txt ("##### PID" with
"--- file" sections). What it kept is taken over as it is; what it left out is written by node_files.py and processes.py
(tests/fixtures/README.md says which).
"""

import os
import re
import sys

from archive import Archive
from cgroup_files import V1, V2, Group, Usage
from node_files import EPYC_VM, Node, write_node
from processes import status_text, title_cmdline

MOUNT = "/sys/fs/cgroup"
# Unreadable or useless files.
WRITE_ONLY = {"cgroup.kill", "memory.reclaim", "memory.force_empty", "cgroup.event_control", "memory.pressure_level",
              "devices.allow", "devices.deny", "notify_on_release"}
KEPT = re.compile(r"(cpu|cpuset|cpuacct|memory|io|blkio|pids|cgroup|freezer|devices|hugetlb|rdma|misc)\.|tasks$")

DEBIAN_6_1 = ("6.1.0-41-amd64", "(debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU Binutils "
              "for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)")


def vm(btime, uptime, busy):
    return Node("node1", *DEBIAN_6_1, cpus=4, mem_kb=2018368, btime=btime, uptime=uptime, busy_user=busy[0],
                busy_system=busy[1], disk=("vda", 254, 0), last_pid=4000)


def host(uptime, busy):
    return Node("vm", "6.18.44", "(builder@localhost) (gcc (GCC) 15.3.0, GNU ld (GNU Binutils) 2.46) #1 SMP PREEMPT_DYNAMIC @0",
                cpus=2, mem_kb=24684084, btime=1795160000, uptime=uptime, busy_user=busy[0], busy_system=busy[1], cpu=EPYC_VM,
                cgroup="hybrid", dmi=("QEMU", "Standard PC (Q35 + ICH9, 2009)"), last_pid=19300,
                v1_controllers=("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids"))


# machine, recording, node (boot time and uptime follow from job start times and process start times), what it shows
MACHINES = [
    ("slurm22.05-v2-idle", "slurm22.05-v2/00-idle", vm(1795160456, 62.4, (14.2, 8.9)),
     "SLURM 22.05.8, cgroup v2, no job: the scope with its permanent slurmstepd."),
    ("slurm22.05-v2-jobs", "slurm22.05-v2/01-two-jobs-gpu", vm(1795160456, 92.5, (27.4, 14.3)),
     "SLURM 22.05.8, cgroup v2. Job 3 of alice (1001): CPUs 0-1, 400 MiB, GPUs 0-1, steps batch, extern, 0 (1 task), 1 (2 tasks).\n"
     "Job 4 of bob (1002): CPU 2, 200 MiB, GPU 2, steps batch, extern, 0, 1 (1 task each)."),
    ("slurm22.05-v2-after-end", "slurm22.05-v2/02-after-job-end", vm(1795160456, 118.9, (36.1, 18.2)),
     "SLURM 22.05.8, cgroup v2, after the jobs of slurm22.05-v2-jobs ended: only the scope is left."),
    ("slurm22.05-v2-gpu4", "slurm22.05-v2/06-nogpu-and-4gpu", vm(1795160456, 228.3, (71.0, 33.8)),
     "SLURM 22.05.8 with two slurmd, cgroup v2, all jobs on node1. Job 11 of bob (1002): 1 CPU, 200 MiB, no GPU.\n"
     "Job 12 of root: 2 CPUs, 200 MiB, GPUs 0-3. Steps batch, extern, 0, 1 each. node2 is idle."),
    ("slurm24.11-v2-idle", "slurm24.11-v2/00-idle", vm(1795161560, 33.1, (9.8, 6.2)),
     "SLURM 24.11.5, cgroup v2, no job yet: the scope has no controller enabled for its children."),
    ("slurm24.11-v2-jobs", "slurm24.11-v2/01-jobs-gpu2-gpu1-nogpu", vm(1795161560, 49.4, (19.9, 10.4)),
     "SLURM 24.11.5, cgroup v2. Job 1 of alice (1001): CPUs 0-1, 400 MiB, GPUs 0-1. Job 2 of bob (1002): CPU 2, 200 MiB, GPU 2.\n"
     "Job 3 of bob: CPU 3, 200 MiB, no GPU. Steps batch, extern, 0, 1 each."),
    ("slurm26.05-v2-idle", "slurm26.05-v2/00-idle", vm(1795161573, 33.6, (9.9, 6.3)),
     "SLURM 26.05.5, cgroup v2, no job yet: the scope has no controller enabled for its children."),
    ("slurm26.05-v2-jobs", "slurm26.05-v2/01-jobs-gpu2-gpu1-nogpu", vm(1795161573, 80.2, (29.6, 14.9)),
     "SLURM 26.05.5, cgroup v2, job directories named by SLUID. sDNHM7VZHTTA00 = job 1 of alice (1001): CPUs 0-1, 400 MiB, GPUs 0-1.\n"
     "sDNHM7VZHTX700 = job 2 of bob (1002): CPU 2, 200 MiB, GPU 2. sDNHM7VZHTZ800 = job 3 of bob: CPU 3, 200 MiB, no GPU.\n"
     "Steps batch, extern, 0, 1 each; task_special beside the tasks."),
    ("slurm22.05-v1-jobs", "slurm22.05-v1/01-two-jobs-gpu", host(706.1, (41.0, 19.0)),
     "SLURM 22.05.8, cgroup v1 (freezer, cpuset and devices only) on a host with cgroup2 at unified/, root slurm_vm.\n"
     "Job 2 of root: CPU 0, GPUs 0-1. Job 3 of nobody (65534): CPU 1, GPU 2. Steps batch, 0, 1 each. The job has neither CPU nor\n"
     "memory accounting: this site runs jobacct_gather/linux and constrains no memory."),
    ("slurm22.05-v1-after-end", "slurm22.05-v1/02-after-job-end", host(731.7, (42.3, 19.6)),
     "SLURM 22.05.8, cgroup v1, after the jobs of slurm22.05-v1-jobs ended: only the slurm_vm roots are left."),
]

EXTRA = ("slurm26.05-v2-extra-controllers", "slurm26.05-v2-jobs with the files that EnableExtraControllers=io,pids adds.\n"
         "pids.* are exact (threads of the recorded processes), io.stat is made: what each job's file writes amount to.")


def read_recording(path):
    dirs = [line.strip() for line in open(path + "/tree.txt", encoding="utf-8")]
    files = {}
    text = open(path + "/files.txt", encoding="utf-8").read()
    for part in re.split(r"^=== (?=/sys/fs/cgroup/)", text, flags=re.M)[1:]:
        name, _, content = part.partition("\n")
        files[name] = content
    procs = {}
    text = open(path + "/procs.txt", encoding="utf-8").read()
    for part in re.split(r"^##### PID ", text, flags=re.M)[1:]:
        pid, _, body = part.partition("\n")
        sections = {}
        for section in re.split(r"^--- (?=/proc/\d+/)", body, flags=re.M)[1:]:
            name, _, content = section.partition("\n")
            sections[os.path.basename(name)] = content
        procs[int(pid)] = sections
    return dirs, files, procs


def cmdline(recorded):
    """The recording shows every NUL as a space and adds a newline."""
    text = recorded[:-1] if recorded.endswith("\n") else recorded
    if text.startswith("slurmstepd: "):
        title = text.rstrip(" ")
        assert len(text) == len(title_cmdline(title)), text
        return title_cmdline(title)
    text = text[:-1] if text.endswith(" ") else text
    # The argument of -c may contain blanks.
    head, flag, program = text.partition(" -c ") if re.search(r"(sh|python3) -c ", text) else (text, "", "")
    if flag and not re.search(r"(sh|python3)$", head):
        head, flag, program = re.match(r"(.*?(?:sh|python3))( -c )(.*)", text, re.S).groups()
    words = head.split(" ") + (["-c", program] if flag else [])
    return "\0".join(words).encode() + b"\0"


def add_process(a, pid, sections, node):
    recorded = dict(line.split(":\t", 1) for line in sections["status"].splitlines())
    uid, gid = int(recorded["Uid"].split()[0]), int(recorded["Gid"].split()[0])
    owner = (uid, gid) if uid or gid else None
    d = "proc/%d" % pid
    a.dir(d, owner=owner)
    a.file(d + "/cmdline", cmdline(sections["cmdline"]), owner=owner)
    a.file(d + "/stat", sections["stat"], owner=owner)
    a.file(d + "/status", status_text(sections["stat"], recorded, uid, gid, int(recorded["Threads"]),
                                      recorded["Cpus_allowed_list"], node.cpus), owner=owner)
    a.file(d + "/cgroup", sections["cgroup"], owner=owner)
    environ = "".join(line + "\0" for line in sections.get("environ", "").splitlines())
    a.file(d + "/environ", environ, owner=owner, mode=0o400)


def add_surroundings_v2(a, node, scope_total):
    """The groups above and beside the recorded scopes: the recordings begin at the scope."""
    slice_own = Usage(user=2_400_000, system=1_900_000, anon=38 << 20, file=170 << 20, pgfault=90_000, pgmajfault=300,
                      read=88 << 20, written=4 << 20, rios=5200, wios=260)
    root = Group("", own=Usage(user=3_000_000, system=4_000_000, anon=2 << 20, file=30 << 20, rios=100, read=4 << 20))
    init = root.add(Group("init.scope", own=Usage(user=900_000, system=1_100_000, anon=4 << 20, file=9 << 20, rios=400,
                                                  read=9 << 20)))
    init.controllers = ""
    system = root.add(Group("system.slice", own=scope_total))
    system.add(Group("slurmd.service", own=slice_own, controllers=""))
    root.add(Group("user.slice", own=Usage(), controllers=""))
    root.controllers = system.controllers = "cpuset cpu io memory pids"
    V2(a, (6, 1), "0-%d" % (node.cpus - 1)).write(root)


def scope_usage(files, scopes):
    total = Usage()
    for s in scopes:
        stat = dict(line.split() for line in files[s + "/cpu.stat"].splitlines())
        memory = dict(line.split() for line in files[s + "/memory.stat"].splitlines())
        io = dict(x.split("=") for x in files[s + "/io.stat"].split()[1:])
        total = total + Usage(user=int(stat["user_usec"]), system=int(stat["system_usec"]), anon=int(memory["anon"]),
                              file=int(memory["file"]), kmem=int(memory["kernel"]), pgfault=int(memory["pgfault"]),
                              pgmajfault=int(memory["pgmajfault"]), read=int(io.get("rbytes", 0)),
                              written=int(io.get("wbytes", 0)), rios=int(io.get("rios", 0)), wios=int(io.get("wios", 0)))
    return total


def add_surroundings_v1(a, node):
    """The roots of the v1 mounts and the empty cgroup2 mount: the recording has SLURM's directories only."""
    root = Group("", own=Usage(user=int(node.busy_user * 1e6), system=int(node.busy_system * 1e6), anon=90 << 20, file=700 << 20,
                               read=2 << 30, rios=50000, written=2 << 30, wios=13000, pgfault=4_000_000))
    writer = V1(a, (6, 18), "0-1", node.cpus)
    for hierarchy in node.v1_controllers:
        writer.write(hierarchy, [hierarchy], root, lambda g: [], lambda g: True)
    a.dir("cgroup/systemd")
    a.file("cgroup/systemd/cgroup.procs", "1\n")
    V2(a, (6, 18), "0-1", root="cgroup/unified").write(root, available="")


def convert(name, source, node, shows, extra=False):
    a = Archive()
    write_node(a, node)
    dirs, files, procs = read_recording(source)
    if extra:
        add_extra_controllers(dirs, files, procs)
    if "-v2" in name:
        scopes = [d for d in dirs if d.endswith("slurmstepd.scope")]
        add_surroundings_v2(a, node, scope_usage(files, scopes))
    else:
        add_surroundings_v1(a, node)
    for d in dirs:
        # SLURM gives step and task directories of v1 to the job's user.
        uid = re.search(r"/uid_(\d+)/job_\d+/step_", d)
        owner = (int(uid.group(1)),) * 2 if uid and uid.group(1) != "0" else None
        a.dir("cgroup" + d[len(MOUNT):], owner=owner)
    for path, content in files.items():
        base = os.path.basename(path)
        if base in WRITE_ONLY or not KEPT.match(base):
            continue
        assert not content.startswith("<"), path
        a.file("cgroup" + path[len(MOUNT):], content)
    for pid, sections in procs.items():
        add_process(a, pid, sections, node)
    return a.text("%s\n%s\nRecorded; tests/fixtures/README.md says what was added." % (name, shows))


def add_extra_controllers(dirs, files, procs):
    threads = {pid: int(re.search(r"Threads:\t(\d+)", s["status"]).group(1)) for pid, s in procs.items()}
    controllers = "cpuset cpu io memory pids\n"
    for d in dirs:
        below = [p for p in files if p.startswith(d + "/") and p.endswith("/cgroup.procs")]
        pids = [int(x) for p in below for x in files[p].split()]
        # The python3 tasks of the recorded job script wrote 4 MiB each.
        wrote = sum(1 for p in pids if procs[p]["cmdline"].startswith("/usr/bin/python3"))
        read_before, reads_before, dev = 0, 0, "254:0"
        if d.endswith(".scope"):
            files[d + "/cgroup.subtree_control"] = controllers
            fields = dict(x.split("=") for x in files[d + "/io.stat"].split()[1:])
            read_before, reads_before = int(fields["rbytes"]), int(fields["rios"])
        else:
            files[d + "/cgroup.controllers"] = controllers
            if files[d + "/cgroup.subtree_control"]:
                files[d + "/cgroup.subtree_control"] = controllers
            count = sum(threads[p] for p in pids)
            for name, value in (("current", count), ("max", "max"), ("peak", count + 2)):
                files["%s/pids.%s" % (d, name)] = "%s\n" % value
            files[d + "/pids.events"] = "max 0\n"
            files[d + "/io.max"] = ""
            files[d + "/io.weight"] = "default 100\n"
        files[d + "/io.stat"] = "%s rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n" % (
            dev, read_before + wrote * 1572864, wrote * 4194304, reads_before + wrote * 41,
            wrote * 8) if wrote or read_before else ""


def main():
    recordings, fixtures = sys.argv[1:]
    jobs = [(name, source, node, shows, False) for name, source, node, shows in MACHINES]
    base = next(m for m in MACHINES if m[0] == "slurm26.05-v2-jobs")
    jobs.append((EXTRA[0], base[1], base[2], EXTRA[1], True))
    for name, source, node, shows, extra in jobs:
        text = convert(name, os.path.join(recordings, source), node, shows, extra)
        os.makedirs(os.path.join(fixtures, name), exist_ok=True)
        with open(os.path.join(fixtures, name, "machine.txt"), "w", encoding="utf-8") as out:
            out.write(text)
        print("%7d lines  %s" % (text.count("\n"), name))


if __name__ == "__main__":
    main()
