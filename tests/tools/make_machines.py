#!/usr/bin/env python3
"""Writes the fixture machines that no recording covers.

usage: make_machines.py FIXTURES [NAME...]

A machine is described by its node, its control groups and its processes; the library modules beside this file write the
kernel files, so that parents are the sums of their children and every number of a machine agrees with the others.
"""

import os
import sys

import energy_files
import gpu_files
import pmu_files
from build import MIB, SEC, Build
from cgroup_files import V1, Group, Usage
from file_systems import disks, lustre, nfs, nfs_mount
from interconnect import BNXT_HW, DOWN, MLX5_HW, MLX5_ROCE, RXE_HW, cassini, counters, hca, hw, link, pci
from node_files import EPYC_7763, MI300A, XEON_6248, Node
from processes import title_cmdline

DEBIAN_6_1 = ("6.1.0-41-amd64", "(debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU Binutils "
              "for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)")
UBUNTU_6_8 = ("6.8.0-87-generic", "(buildd@lcy02-amd64-034) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0, GNU ld "
              "(GNU Binutils for Ubuntu) 2.42) #88-Ubuntu SMP PREEMPT_DYNAMIC Sat Oct 11 09:28:41 UTC 2025")
UBUNTU_5_15 = ("5.15.0-161-generic", "(buildd@lcy02-amd64-060) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04.2) 11.4.0, GNU ld (GNU Binutils "
               "for Ubuntu) 2.38) #171-Ubuntu SMP Sat Oct 11 08:17:01 UTC 2025")
AWS_ARM_6_8 = ("6.8.0-1042-aws", "(buildd@bos03-arm64-052) (aarch64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0, GNU ld "
               "(GNU Binutils for Ubuntu) 2.42) #44-Ubuntu SMP Tue Oct 14 17:02:12 UTC 2025")
EL8_4_18 = ("4.18.0-553.el8_10.x86_64", "(mockbuild@iad1-prod-build001.bld.equ.rockylinux.org) (gcc version 8.5.0 20210514 (Red Hat "
            "8.5.0-22) (GCC)) #1 SMP Fri May 24 13:05:10 UTC 2024")

V1_SPLIT = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
V1_JOINT = ("cpu,cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")


def node(hostname="node1", kernel=DEBIAN_6_1, cpus=8, gib=32, **kw):
    kw.setdefault("uptime", 86411.37)
    kw.setdefault("cpufreq", ("intel_cpufreq", 1000000, 3900000))
    kw.setdefault("cpu", XEON_6248)
    kw.setdefault("dmi", ("Dell Inc.", "PowerEdge R640"))
    kw.setdefault("disk", ("sda", 8, 0))
    kw.setdefault("nic", "eno1")
    return Node(hostname, *kernel, cpus=cpus, mem_kb=gib * MIB - 400_000, btime=1795075200, last_pid=30000, **kw)


def work(cpu_seconds, anon_mib, file_mib=8, system=0.05, **kw):
    """What a computing task has used."""
    us = int(cpu_seconds * SEC)
    kw.setdefault("pgfault", anon_mib * 260)
    kw.setdefault("pgmajfault", 4)
    kw.setdefault("cpu_some", us // 200)
    return Usage(user=us - int(us * system), system=int(us * system), anon=anon_mib * MIB, file=file_mib * MIB, **kw)


# Machines of cgroup v2 ----------------------------------------------------------------------------------------------

MACHINES = {}


def machine(shows):
    def register(make):
        MACHINES[make.__name__.replace("__", ".").replace("_", "-")] = (make, shows)
        return make
    return register


def plain_job(b, jobid, uid, cpus, memory_mib, seconds, anon_mib, name=None, steps=("step_extern", "step_batch", "step_0"),
              threads=2, special=False):
    built = []
    for s in steps:
        if s == "step_extern":
            built.append(b.extern(jobid, cpus, sleeper=not special))
            continue
        batch = s == "step_batch"
        tasks = [(work(0.4 if batch else seconds, 1 if batch else anon_mib), 1, 1 if batch else threads)]
        built.append(b.step(jobid, s, uid, tasks, cpus=cpus, special=special))
    return b.job(name or "job_%d" % jobid, jobid, uid, cpus, memory_mib * MIB, built)


@machine("A node that runs no SLURM at all: no scope, no slurmd.")
def v2_no_slurm():
    return Build(node("login1")).finish_v2(slurmd=False)


@machine("A node whose slurmd runs but has no job: the scope (without node name) and system/ only. Kernel 6.8.")
def v2_idle():
    b = Build(node("node1", UBUNTU_6_8))
    return b.place(b.scope(name="slurmstepd.scope"), "system.slice").finish_v2()


@machine("slurmd in a Kubernetes pod (Slinky, IgnoreSystemd=yes): the scope lies below the pod's scope in kubepods.slice.\n"
         "Job 41 of 1001: CPUs 0-3, 4096 MiB, 812.4 CPU-seconds in step 0.")
def v2_kubepods():
    b = Build(node("worker-0"))
    pod = ("kubepods.slice", "kubepods-burstable.slice",
           "kubepods-burstable-pod5d2e0b7c_94a1_4c30_9a5e_7f1de0a1c2b3.slice",
           "cri-containerd-3f1c0b6de4a94b1c8b6c1b5f2c4a7e90d1f2e3a4b5c6d7e8f90a1b2c3d4e5f60.scope", "system.slice")
    job = plain_job(b, 41, 1001, "0-3", 4096, 812.4, 900, threads=4)
    return b.place(b.scope(job, name="slurmstepd.scope"), *pod).finish_v2(slurmd=False)


@machine("CgroupSlice=hpc.slice (25.11 and later). Job 52 of 1002: CPUs 4-5, 2048 MiB.")
def v2_slice_hpc():
    b = Build(node())
    return b.place(b.scope(plain_job(b, 52, 1002, "4-5", 2048, 77.0, 300)), "hpc.slice").finish_v2()


@machine("Two slurmd on one host, node1_ and node2_ scopes, with the same job id 77 on both: a job of 1001 over two virtual nodes.\n"
         "node1: CPUs 0-1, 2048 MiB, 60 s; node2: CPUs 4-5, 1024 MiB, 90 s. node2 also runs job 78 of 1002 on CPU 6.")
def v2_two_slurmd():
    b = Build(node())
    one = b.scope(plain_job(b, 77, 1001, "0-1", 2048, 60.0, 200))
    two = b.scope(plain_job(b, 77, 1001, "4-5", 1024, 90.0, 100, steps=("step_extern", "step_0")),
                  plain_job(b, 78, 1002, "6", 512, 12.5, 40), name="node2_slurmstepd.scope")
    return b.place(one, "system.slice").place(two, "system.slice").finish_v2()


@machine("Job directories named by SLUID (26.05). sEKNKTV3WPV500 = job 123 of 1001 (CPUs 0-1, 2048 MiB): extern is a step manager\n"
         "(title `slurmstepd: [123.extern stepmgr]`), step 0 has a namespace helper (`slurmstepd: [123.0:namespace]`).\n"
         "sEKNKTV3WPX800 = job 124 of 1002 (CPU 2). sEKNKTV3WPZA00 cannot be resolved: the titles of its slurmstepd are gone and\n"
         "its user's process (1003, CPU 3) claims SLURM_JOB_ID=4242 in its environment, which proves nothing.")
def v2_sluid():
    b = Build(node())
    first = b.job("sEKNKTV3WPV500", 123, 1001, "0-1", 2048 * MIB, [
        b.extern(123, "0-1", sleeper=False, title="slurmstepd: [123.extern stepmgr]"),
        b.step(123, "step_batch", 1001, [(work(0.6, 2), 1, 1)], cpus="0-1"),
        b.step(123, "step_0", 1001, [(work(44.0, 120), 1, 2), (work(43.0, 118), 1, 2)], cpus="0-1",
               helpers=["slurmstepd: [123.0:namespace]"]),
    ])
    second = plain_job(b, 124, 1002, "2", 512, 9.0, 30, name="sEKNKTV3WPX800", special=True)
    lost = b.step(0, "step_0", 1003, [(work(5.0, 20), 1, 1)], title="/usr/sbin/slurmstepd", cpus="3")
    for p in lost.all_procs():
        if p.uid:
            p.environ["SLURM_JOB_ID"] = p.environ["SLURM_JOBID"] = "4242"
    third = b.job("sEKNKTV3WPZA00", 0, 1003, "3", 512 * MIB, [lost])
    return b.place(b.scope(first, second, third), "system.slice").finish_v2()


@machine("Every name a step can have. Job 200 of 1001 (CPUs 0-3, 8192 MiB): extern, batch, interactive, 0, 0+1 (het component),\n"
         "7 (three tasks), TBD (26.05) and TDB (before it), task_special with a process of its own in step 7.")
def v2_steps():
    b = Build(node())
    seven = b.step(200, "step_7", 1001, [(work(31.0, 64), 1, 1), (work(30.0, 64), 2, 1), (work(29.0, 64), 1, 4)], cpus="0-2")
    special = next(c for c in seven.children[1].children if c.name == "task_special")
    special.own, special.procs = work(1.5, 6), [b.task(200, 1001, comm="adopted", cpus="0-2")]
    one = lambda name, seconds: b.step(200, name, 1001, [(work(seconds, 16), 1, 1)], cpus="0-3")
    job = b.job("job_200", 200, 1001, "0-3", 8192 * MIB, [
        b.extern(200, "0-3", sleeper=False),
        one("step_batch", 2.0), one("step_interactive", 3.0), one("step_0", 4.0), one("step_0+1", 5.0), seven,
        b.step(200, "step_TBD", 1001, [], cpus="0-3"), b.step(200, "step_TDB", 1001, [], cpus="0-3")])
    return b.place(b.scope(job), "system.slice").finish_v2()


@machine("Directories that are no running jobs beside some that are. job_301: running, of 1001, CPUs 0-1. job_302: empty, no step left.\n"
         "job_303: leftover steps without a process (SLURM failed to remove it). job_304: no user process, but a live slurmstepd holds\n"
         "the allocation (extern only, of an salloc): a job, CPUs 4-5, 1024 MiB; no user's uid is in its processes.\n"
         "job_305 of 1002: a process in D state that outlived its slurmstepd keeps the directory: a job still, CPU 6.")
def v2_stale():
    b = Build(node())
    running = plain_job(b, 301, 1001, "0-1", 2048, 30.0, 64)
    empty = Group("job_302", cpus="2", mems="0", memory_max=512 * MIB, own=Usage(user=3 * SEC, system=SEC, file=MIB))
    left = b.job("job_303", 303, 1001, "3", 512 * MIB, [b.step(303, "step_0", 1001, [], alive=False), b.step(
        303, "step_batch", 1001, [], alive=False)])
    for s in left.children:
        s.children[1].add(Group("task_0", own=Usage(user=2 * SEC, system=SEC // 2, file=MIB)))
    held = b.job("job_304", 304, 1002, "4-5", 1024 * MIB, [b.extern(304, "4-5", sleeper=False)])
    stuck = b.job("job_305", 305, 1002, "6", 1024 * MIB, [b.step(305, "step_0", 1002, [(work(8.0, 32), 1, 1)], alive=False, cpus="6")])
    for p in stuck.all_procs():
        p.state = "D"
    return b.place(b.scope(running, empty, left, held, stuck), "system.slice").finish_v2()


@machine("A user's own look-alikes. Job 61 of 1002 (CPU 0) is real. User 1001 owns the delegated tree\n"
         "user.slice/user-1001.slice/user@1001.service and made slurmstepd.scope/job_666 and slurmstepd.scope/sEKNKTV3WPV599 in it,\n"
         "with a process titled `slurmstepd: [666.0]` that is the user's, and a directory\n"
         "job_61/step_0/user/task_0 of the same real job id. None of it is a job.")
def v2_lookalike():
    b = Build(node())
    real = b.scope(plain_job(b, 61, 1002, "0", 512, 20.0, 30))
    owner = (1001, 1001)
    fake_stepd = lambda: b.proc("slurmstepd", title_cmdline("slurmstepd: [666.0]"), 1001)

    def fake(name, seconds):
        step = Group("step_0", owner=owner, children=[
            Group("slurm", owner=owner, procs=[fake_stepd()], own=work(0.1, 1)),
            Group("user", owner=owner, children=[Group("task_0", owner=owner, own=work(seconds, 30),
                                                       procs=[b.task(666, 1001, comm="miner")])])])
        return Group(name, owner=owner, children=[step])

    scope = Group("slurmstepd.scope", owner=owner, controllers="memory pids", children=[
        fake("job_666", 500.0), fake("job_61", 9.0), fake("sEKNKTV3WPV599", 3.0), Group("system", owner=owner)])
    b.place(real, "system.slice")
    service = Group("user@1001.service", owner=owner, controllers="memory pids", children=[scope])
    return b.finish_v2(extra=[(("user.slice", "user-1001.slice"), service)])


@machine("io and pids controllers on in SLURM's tree (EnableExtraControllers=io,pids).\n"
         "Job 81 of 1001: CPUs 0-1, 2048 MiB, 64 MiB read, 256 MiB written, 15 threads (11 of them slurmstepd and sleep). Job 82 of 1002: CPU 2, no IO yet (empty io.stat).")
def v2_io_pids():
    b = Build(node())
    first = b.job("job_81", 81, 1001, "0-1", 2048 * MIB, [
        b.extern(81, "0-1"),
        b.step(81, "step_0", 1001, [(work(40.0, 90, read=64 * MIB, rios=1024, written=256 * MIB, wios=2048, io_some=310_000,
                                          io_full=270_000), 1, 4)], cpus="0-1")])
    second = b.job("job_82", 82, 1002, "2", 512 * MIB, [b.step(82, "step_0", 1002, [(work(6.0, 20), 1, 1)], cpus="2")])
    second.pids_max = 4096
    return b.place(b.scope(first, second), "system.slice").finish_v2(slurm="cpuset cpu io memory pids")


@machine("Jobs at their limits. Job 91 of 1001 (CPUs 0-1): memory at its limit of 1024 MiB, 3 OOM kills, 4711 breaches, memory pressure.\n"
         "Job 92 of 1002 (CPU 2): CPU bandwidth limited (cpu.max 50000 100000), 200 of 400 periods throttled for 9.5 s.\n"
         "Job 93 of 1002 (CPU 3): no memory limit at all (max), 64 MiB swapped out. Node with swap.")
def v2_limits():
    b = Build(node(swap_kb=8 * MIB))
    oom = b.job("job_91", 91, 1001, "0-1", 1024 * MIB, [
        b.step(91, "step_0", 1001, [(work(70.0, 1004, 1, oom_kill=3, max_events=4711, memory_some=2_500_000, memory_full=1_900_000,
                                          pgmajfault=9000), 1, 2)], cpus="0-1")])
    oom.peak = 1024 * MIB
    slow = b.job("job_92", 92, 1002, "2", 512 * MIB, [
        b.step(92, "step_0", 1002, [(work(20.0, 10, periods=400, throttled_periods=200, throttled=9_500_000), 1, 1)], cpus="2")])
    slow.cpu_max = "50000 100000"
    free = b.job("job_93", 93, 1002, "3", None, [b.step(93, "step_0", 1002, [(work(3.0, 100, swap=64 * MIB), 1, 1)], cpus="3")])
    for g in (free, free.children[0].children[1]):
        g.swap_max = None
    return b.place(b.scope(oom, slow, free), "system.slice").finish_v2()


@machine("An older v2 kernel without PSI (5.15, psi=0): no memory.peak, no *.pressure, no cgroup.pressure, no pids.peak.\n"
         "Job 31 of 1001: CPUs 0-1, 2048 MiB.")
def v2_kernel5__15_no_psi():
    b = Build(node("node1", UBUNTU_5_15, psi=False))
    return b.place(b.scope(plain_job(b, 31, 1001, "0-1", 2048, 55.0, 140), name="slurmstepd.scope"), "system.slice").finish_v2()


@machine("A big node: 2 sockets of 64 cores, 128 CPUs, 2 NUMA nodes, 512 GiB, kernel 6.8.\n"
         "Job 1001 of 1001: CPUs 0-63 (all of socket 0), 262144 MiB. Job 1002 of 1002: CPUs 64-95, 131072 MiB.\n"
         "Job 1003 of 1003: CPUs 96,98,100-103, 16384 MiB. CPUs 97, 99, 104-127 are free.")
def v2_big():
    b = Build(node("big1", UBUNTU_6_8, cpus=128, gib=512, sockets=2, numa=2, cpu=EPYC_7763, cpufreq=("acpi-cpufreq", 1500000, 2450000),
                   dmi=("Dell Inc.", "PowerEdge R7525"), disk=("nvme0n1", 259, 0), uptime=1209600.5))
    def big(jobid, uid, cpus, mems, memory, tasks, each, anon):
        return b.job("job_%d" % jobid, jobid, uid, cpus, memory * MIB, [
            b.extern(jobid, cpus), b.step(jobid, "step_batch", uid, [(work(1.2, 3), 1, 1)], cpus=cpus),
            b.step(jobid, "step_0", uid, [(work(each + i * 1.25, anon), 1, 8) for i in range(tasks)], cpus=cpus)], mems=mems)
    return b.place(b.scope(big(1001, 1001, "0-63", "0", 262144, 8, 288000.0, 20000), big(1002, 1002, "64-95", "1", 131072, 4, 90000.0, 9000),
                           big(1003, 1003, "96,98,100-103", "1", 16384, 2, 1800.0, 700), name="slurmstepd.scope",
                           past=Usage(user=91_000_000 * 100, system=3_000_000 * 100)), "system.slice").finish_v2()


@machine("An ARM node: 16 Neoverse-V1 CPUs (aarch64 /proc/cpuinfo, no cpufreq), kernel 6.8. Job 12 of 1001: CPUs 0-7, 8192 MiB.")
def v2_arm():
    b = Build(node("arm1", AWS_ARM_6_8, cpus=16, gib=32, arch="aarch64", cpufreq=(), dmi=("Amazon EC2", "c7g.4xlarge"),
                   disk=("nvme0n1", 259, 0), nic="ens5"))
    return b.place(b.scope(plain_job(b, 12, 1001, "0-7", 8192, 640.0, 800, threads=8)), "system.slice").finish_v2()


def measured(measure, **kw):
    """A node with two jobs and energy meters."""
    kw = {"cpus": 4, "gib": 64} | kw
    b = Build(node(**kw))
    half = kw["cpus"] // 2
    jobs = (plain_job(b, 81, 1001, "0-%d" % (half - 1), 16384, 5200.0, 4000, threads=half),
            plain_job(b, 82, 1002, "%d" % half, 4096, 610.0, 900))
    measure(b.a)
    return b.place(b.scope(*jobs, name="slurmstepd.scope"), "system.slice").finish_v2()


@machine("RAPL of two Intel sockets through powercap, package and DRAM, energy_uj root's alone. Job 81 has socket 0, job 82 a CPU of\n"
         "socket 1.")
def energy_intel_2s():
    return measured(energy_files.intel_two_sockets, sockets=2, numa=2)


@machine("RAPL of an AMD socket through powercap: package and core, no memory. Jobs 81 and 82.")
def energy_amd():
    return measured(energy_files.amd, cpu=EPYC_7763)


@machine("A Grace module: no RAPL, ACPI power meters for module, socket, cores and SysIO. Jobs 81 and 82.")
def energy_grace():
    return measured(energy_files.grace, kernel=AWS_ARM_6_8, arch="aarch64", cpufreq=())


@machine("A Cray node with pm_counters: node, CPU, memory and an accelerator. Jobs 81 and 82.")
def energy_cray():
    return measured(energy_files.cray, cpu=EPYC_7763)


@machine("InfiniBand and RoCE on one node: mlx5_0 (InfiniBand), mlx5_1 (RoCE with congestion), bnxt_re0 (RoCE without performance\n"
         "management: its bytes are in hw_counters), rxe0 (software, packets alone). Job 601 of 1001 has the node for itself.")
def v2_infiniband():
    b = Build(node("node1", UBUNTU_6_8, nic="ens1f0np0"))
    board = {"fw_ver": "20.40.1000", "board_id": "MT_0000000223", "hca_type": "MT4123"}
    files = link("InfiniBand", "200 Gb/sec (4X HDR)")
    files.update(counters(20523500 << 20, 41049000 << 20, wait=41050, trouble={"symbol_error": 3, "link_downed": 1}))
    files.update(hw(MLX5_HW, {"rx_read_requests": 880, "rx_write_requests": 51290, "out_of_sequence": 2}))
    hca(b.a, "mlx5_0", pci(b.a, "0000:3b:00.0", "mlx5_core", "0x15b3"), [files], **board)
    files = link("Ethernet", "100 Gb/sec (4X EDR)")
    files.update(counters(733120 << 20, 699001 << 20))
    files.update(hw(MLX5_HW + MLX5_ROCE, {"np_cnp_sent": 12884, "np_ecn_marked_roce_packets": 441882, "rp_cnp_handled": 12701,
                                          "rp_cnp_ignored": 3, "roce_adp_retrans": 17, "out_of_sequence": 41, "packet_seq_err": 44}))
    hca(b.a, "mlx5_1", pci(b.a, "0000:3b:00.1", "mlx5_core", "0x15b3"), [files], **board)
    files = link("Ethernet", "25 Gb/sec (1X EDR)")
    files.update(hw(BNXT_HW, {"active_qps": 12, "active_cqs": 9, "rx_bytes": 9120054112, "tx_bytes": 3301188421, "rx_pkts": 7311022,
                              "tx_pkts": 2950917, "to_retransmits": 6, "oos_drop_count": 5}))
    hca(b.a, "bnxt_re0", pci(b.a, "0000:5e:00.0", "bnxt_en", "0x14e4"), [files], fw_ver="229.1.123.0", board_id="", hca_type="0x1750")
    files = link("Ethernet", "2.5 Gb/sec (1X SDR)")
    files.update(hw(RXE_HW, {"rcvd_pkts": 420, "sent_pkts": 411}, lifespan=12))
    hca(b.a, "rxe0", "sys/devices/virtual", [files], fw_ver="", parent="ens1f0np0")
    return b.place(b.scope(plain_job(b, 601, 1001, "0-7", 16384, 640.0, 800, threads=8)), "system.slice").finish_v2()


@machine("HPE Slingshot without jobs: cxi0 with a link, on which code words were corrected, and cxi1 without one.")
def v2_slingshot():
    b = Build(node("nid000673", nic="hsn0"))
    cassini(b.a, "cxi0", "0000:41:00.0", 81 << 30, 93 << 30, trouble={"hni_pcs_corrected_cw": 5123, "hni_llr_tx_replay_event": 2})
    cassini(b.a, "cxi1", "0000:c1:00.0", 0, 0, up=False)
    return b.place(b.scope(), "system.slice").finish_v2()


@machine("Jobs in cgroup v2 on a hybrid host: the scope lies at cgroup/unified, the controllers are mounted as v1 beside it, so that\n"
         "job groups have only what needs no controller (cpu.stat's three times, pressure, cgroup.*). Job 71 of 1001.")
def hybrid_v2_jobs():
    b = Build(node(cgroup="hybrid", v1_controllers=V1_SPLIT))
    job = plain_job(b, 71, 1001, "", 1024, 33.0, 70)
    b.place(b.scope(job), "system.slice").finish_v2(controllers="", slurm="", root="cgroup/unified", available="")
    top = Group("", own=Usage(user=300 * SEC, system=90 * SEC, anon=90 * MIB, file=300 * MIB))
    for hierarchy in V1_SPLIT:
        V1(b.a, b.node.version(), b.every, b.node.cpus).write(hierarchy, [hierarchy], top, lambda g: [], lambda g: True)
    b.a.file("cgroup/systemd/cgroup.procs", "1\n")
    return b


# Machines of cgroup v1 ----------------------------------------------------------------------------------------------

ALL_V1 = ("freezer", "cpuset", "memory", "devices", "cpuacct")


def v1_plain(b, jobid, uid, cpus, memory_mib, seconds, anon_mib):
    memory = memory_mib * MIB if memory_mib else None
    extern = b.v1_step(jobid, "step_extern", uid, [(Usage(user=900, system=2100, anon=MIB // 4, pgfault=90), 1, 1)], cpus=cpus)
    for p in extern.children[0].procs:
        # Owned by root, whoever the job's user is.
        p.comm, p.cmdline, p.environ, p.uid, p.gid = "sleep", b"sleep\x00100000000\x00", {}, 0, 0
    return uid, b.v1_job(jobid, uid, cpus, memory, [
        extern, b.v1_step(jobid, "step_batch", uid, [(work(0.5, 1), 1, 1)], cpus=cpus),
        b.v1_step(jobid, "step_0", uid, [(work(seconds, anon_mib), 1, 2), (work(seconds / 2, anon_mib), 1, 2)], cpus=cpus)])


@machine("EL8: kernel 4.18, cgroup v1 with cpu and cpuacct mounted together, memory, cpuset, devices, freezer; no PSI, no memory.peak.\n"
         "Job 501 of 1001: CPUs 0-1, 2048 MiB. Job 502 of 1002: CPU 2, 1024 MiB. step_0 has two tasks each.")
def v1_el8_joint():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT))
    return b.finish_v1([b.v1_root([v1_plain(b, 501, 1001, "0-1", 2048, 100.0, 128), v1_plain(b, 502, 1002, "2", 1024, 25.0, 64)])], ALL_V1)


@machine("cgroup v1 with cpu and cpuacct mounted apart, on kernel 6.1; the cgroup2 mount at unified/ is empty (systemd's hybrid mode).\n"
         "Job 511 of 1001: CPUs 0-1, 2048 MiB.")
def v1_split_hybrid():
    b = Build(node(cgroup="hybrid", v1_controllers=V1_SPLIT))
    return b.finish_v1([b.v1_root([v1_plain(b, 511, 1001, "0-1", 2048, 100.0, 128)])], ALL_V1)


@machine("cgroup v1 with the freezer alone (proctrack/cgroup, no task/cgroup): jobs are there, their processes are known, but no group\n"
         "accounts for CPU or memory. Job 521 of 1001, job 522 of 1002.")
def v1_freezer_only():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT))
    return b.finish_v1([b.v1_root([v1_plain(b, 521, 1001, "", None, 10.0, 64), v1_plain(b, 522, 1002, "", None, 20.0, 64)])], ("freezer",))


@machine("EL8 with Omni-Path (hfi1_0, whose counters are flits of 8 bytes) and an HCA without extended counters (mthca0), of whose two\n"
         "ports the second is down and the first received more than 32 bits can say. Job 541 of 1001; the freezer alone.")
def v1_omni_path():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT, nic="ib0"))
    files = link("InfiniBand", "100 Gb/sec (4X EDR)")
    files.update(counters(512 << 30, 498 << 30, unit=8, cast=False, trouble={"link_downed": 2, "port_rcv_errors": 1}))
    hca(b.a, "hfi1_0", pci(b.a, "0000:18:00.0", "hfi1", "0x8086"), [files], fw_ver="1.27.0",
        board_id="Intel Omni-Path Host Fabric Interface Adapter 100 Series")
    first, second = link("InfiniBand", "10 Gb/sec (4X SDR)"), link("InfiniBand", "10 Gb/sec (4X SDR)", DOWN)
    first.update(counters(21 << 30, 3 << 30, extended=False, trouble={"link_downed": 255, "symbol_error": 12}))
    second.update(counters(0, 0, extended=False))
    hca(b.a, "mthca0", pci(b.a, "0000:86:00.0", "ib_mthca", "0x15b3"), [first, second], fw_ver="4.8.200", board_id="MT_0370130002")
    return b.finish_v1([b.v1_root([v1_plain(b, 541, 1001, "", None, 10.0, 64)])], ("freezer",))


@machine("Two slurmd on cgroup v1: roots slurm_node1 and slurm_node2, the same job id 533 of 1001 on both\n"
         "(node1: CPUs 0-1, 1024 MiB; node2: CPUs 4-5, 2048 MiB).")
def v1_two_slurmd():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT))
    return b.finish_v1([b.v1_root([v1_plain(b, 533, 1001, "0-1", 1024, 40.0, 64)], name="slurm_node1"),
                        b.v1_root([v1_plain(b, 533, 1001, "4-5", 2048, 60.0, 96)], name="slurm_node2")], ALL_V1)


@machine("cgroup v1 and a user who owns the step directories, as SLURM leaves them: job 5 of 1001 (CPU 0, 512 MiB) is real, and its user\n"
         "made slurm/uid_0/job_99/step_0 below step_0 and moved a process of 1234 s there. Job 99 does not exist: the time is job 5's.\n"
         "An empty uid_1002 remains after a race.")
def v1_lookalike():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT))
    uid, job = v1_plain(b, 5, 1001, "0", 512, 15.0, 32)
    root = b.v1_root([(uid, job)])
    root.add(Group("uid_1002"))
    at = next(s for s in job.children if s.name == "step_0")
    for name in ("slurm", "uid_0", "job_99", "step_0"):
        at = at.add(Group(name, owner=(1001, 1001)))
    at.own, at.procs = work(1234.0, 10), [b.task(5, 1001, comm="miner", cpus="0")]
    return b.finish_v1([root], ALL_V1)


# Machines with network file systems -----------------------------------------------------------------------------------

@machine("A node with NFS: nas:/home (4.2) in two places that are one super block, read from 3 GiB, written to 1 GiB; nfs2:/apps (3, RDMA),\n"
         "read-mostly. Its disk is sda with the device mapper's dm-0 on it. Job 41 of 1001 has the node for itself.")
def v2_nfs():
    b = Build(node("node1", UBUNTU_6_8))
    b.place(b.scope(plain_job(b, 41, 1001, "0-7", 4096, 812.4, 900, threads=4)), "system.slice").finish_v2()
    gib = 1 << 30
    home = dict(NULL=1, READ=3190, WRITE=1100, COMMIT=40, OPEN=410, CLOSE=402, SETATTR=12, ACCESS=900, GETATTR=5400, LOOKUP=640,
                REMOVE=9, RENAME=4, READDIR=33, SEQUENCE=31, EXCHANGE_ID=2, CREATE_SESSION=1, RECLAIM_COMPLETE=1, SERVER_CAPS=3, FSINFO=1)
    home_bytes = [4 * gib, gib, 0, 0, 3 * gib, gib, 786432, 262144]
    apps = dict(NULL=1, GETATTR=9100, LOOKUP=4800, ACCESS=5100, READ=820, READDIRPLUS=77, FSINFO=2, PATHCONF=1)
    apps_bytes = [600 << 20, 0, 0, 0, 400 << 20, 0, 102400, 0]
    nfs(b.a, [nfs_mount("nas:/home/anna", "/home/anna", 50, 86000, home, home_bytes),
              nfs_mount("nas:/home/berta", "/home/berta", 50, 86000, home, home_bytes),
              nfs_mount("nfs2:/apps", "/apps", 51, 86001, apps, apps_bytes, version="3", proto="rdma")])
    stats = b.a.entries["proc/diskstats"][1].decode()
    b.a.file("proc/diskstats", stats + " 252       0 dm-0 900000 0 30000000 700000 200000 0 9000000 300000 0 400000 1000000 50 0 81920 9 0 0\n")
    disks(b.a, ["sda", ("dm-0", ["sda"])])
    return b


@machine("A Lustre 2.12 client (EL8): debugfs, operations are counted. scratch with 4 OSTs; jobs are named to servers by SLURM_JOB_ID.\n"
         "Job 52 of 1001 has the node for itself.")
def v1_lustre2__12():
    b = Build(node("node1", EL8_4_18, psi=False, cgroup="v1-joint", v1_controllers=V1_JOINT))
    b.finish_v1([b.v1_root([v1_plain(b, 52, 1001, "0-7", 4096, 40.0, 64)])], ALL_V1)
    lustre(b.a, "scratch", "ffff9bc8f6a1d800", 4, 4096, 1024, timed=False)
    b.a.file("sys/fs/lustre/version", "2.12.9\n")
    b.a.file("sys/fs/lustre/jobid_var", "SLURM_JOB_ID\n")
    b.a.file("sys/fs/lustre/jobid_name", "%j\n")
    disks(b.a, ["sda"])
    return b


@machine("A Lustre 2.15 client: debugfs, operations are timed. scratch with 2 OSTs and home with one; jobs are not named to servers.\n"
         "Two jobs share the node, so their traffic is unattributed.")
def v2_lustre2__15():
    b = Build(node("node1", UBUNTU_5_15))
    jobs = [plain_job(b, 61, 1001, "0-3", 4096, 81.0, 90), plain_job(b, 62, 1002, "4-7", 4096, 44.0, 60)]
    b.place(b.scope(*jobs), "system.slice").finish_v2()
    lustre(b.a, "scratch", "ffff8f3e0c9d2000", 2, 2048, 4096, timed=True)
    lustre(b.a, "home", "ffff8f3e11aa7800", 1, 128, 64, timed=True)
    b.a.file("sys/fs/lustre/version", "2.15.5\n")
    b.a.file("sys/fs/lustre/jobid_var", "disable\n")
    b.a.file("sys/fs/lustre/jobid_name", "%e.%u\n")
    disks(b.a, ["sda"])
    return b


# Machines with GPUs of AMD and Intel, made after their drivers' sources -------------------------------------------------

def with_gpus(lay, given, **kw):
    """Two jobs, and the ids of the GPUs that the prolog says they have."""
    b = Build(node(**kw))
    jobs = [plain_job(b, 701, 1001, "0-3", 4096, 81.0, 90), plain_job(b, 702, 1002, "4-7", 4096, 44.0, 60)]
    b.place(b.scope(*jobs), "system.slice").finish_v2()
    lay(b.a, *jobs)
    # The host's PID namespace (include/linux/proc_ns.h, PROC_PID_INIT_INO).
    b.a.link("proc/1/ns/pid", "pid:[4026531836]")
    for job, ids in given.items():
        b.a.file("run/jobledger/jobs/%d" % job, "version=1\njob_id=%d\ngpu_uuids=%s\n" % (job, ids))
    return b


@machine("Two MI250 boards of two dies (amdgpu, gpu_metrics 1.3), made after the driver's sources: renderD128 and 129 are a board with\n"
         "the serial number 692218000555, of 130 and 131 nothing says that they are one. Card 0 is the baseboard's display.\n"
         "Job 701 of 1001: 8 GiB on renderD128 through KFD. Job 702 of 1002: 4 MiB and 62.5 s of engines on renderD130 through DRM.")
def gpu_mi250():
    return with_gpus(gpu_files.mi250, {701: "GPU-39f9e7d2aa1b5000,GPU-39f9e7d2aa1b5001"}, cpu=EPYC_7763)


@machine("Two MI300X (amdgpu), made after the driver's sources: renderD128 is whole (SPX, gpu_metrics 1.9), renderD132 to 135 are four\n"
         "partitions of the other (QPX, 1.8). Job 701 of 1001: 96 GiB on the whole one. Job 702 of 1002: 30 GiB on partition 2.")
def gpu_mi300():
    return with_gpus(gpu_files.mi300, {701: "GPU-a1b2c3d400000010"}, cpu=EPYC_7763)


@machine("Two MI300A (amdgpu), made after the driver's sources: sockets with CPU cores that are GPUs, too. RAPL has their packages, Cray's\n"
         "pm_counters the node. Job 701 of 1001 has the first socket and its GPU, job 702 CPUs of the other.")
def energy_mi300a():
    def lay(a, first, second):
        energy_files.mi300a(a)
        gpu_files.mi300a(a, first, second)
    return with_gpus(lay, {701: "GPU-a1b2c3d400000020", 702: ""}, cpu=MI300A, sockets=2, numa=2)


@machine("A Flex 170 (xe, renderD128) and a Max 1100 (i915, renderD129), made after the drivers' sources. Job 701 of 1001 is on the first:\n"
         "23992 KiB, ticks of 4 compute engines; job 702 of 1002 on the second: 512 MiB, 1 s of render, 8 s of 4 compute engines.")
def gpu_intel_xe():
    return with_gpus(gpu_files.intel, {})


# Small machines with PMUs and little else (tests/perf).

@machine("PMUs of an older Xeon: Broadwell-EP, SMT on, watchdog on.")
def pmu_broadwell():
    return pmu_files.broadwell()


@machine("PMUs of an Ice Lake-SP, SMT on, watchdog on.")
def pmu_icelake():
    return pmu_files.icelake()


@machine("PMUs of a Sapphire Rapids, SMT switched off while it runs, watchdog off.")
def pmu_sapphirerapids():
    return pmu_files.sapphirerapids()


@machine("PMUs of a Genoa, SMT on, watchdog on.")
def pmu_genoa():
    return pmu_files.genoa()


@machine("PMUs of a Grace: one for all cores, and one of their DSU that is none of cores; no SMT, no watchdog.")
def pmu_grace():
    return pmu_files.grace()


@machine("PMUs of a hybrid Alder Lake: CPUs 0-3 are P-cores, 4 and 5 E-cores.")
def pmu_alderlake():
    return pmu_files.alderlake()


def main():
    fixtures, chosen = sys.argv[1], sys.argv[2:]
    for name, (make, shows) in MACHINES.items():
        if chosen and name not in chosen:
            continue
        text = make().text(name, shows)
        os.makedirs(os.path.join(fixtures, name), exist_ok=True)
        with open(os.path.join(fixtures, name, "machine.txt"), "w", encoding="utf-8") as out:
            out.write(text)
        print("%7d lines  %s" % (text.count("\n"), name))


if __name__ == "__main__":
    main()
