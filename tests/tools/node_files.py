"""The node-wide files of /proc and /sys that a node exporter reads, written from a short description of the node.

Every file has the format of the named kernel; the numbers agree with each other (CPU count, uptime, idle time, memory).
"""

from dataclasses import dataclass, field


def cpu_list(cpus):
    """0,1,2,5 as the kernel's list format: 0-2,5."""
    out, cpus = [], sorted(cpus)
    i = 0
    while i < len(cpus):
        j = i
        while j + 1 < len(cpus) and cpus[j + 1] == cpus[j] + 1:
            j += 1
        out.append("%d" % cpus[i] if i == j else "%d-%d" % (cpus[i], cpus[j]))
        i = j + 1
    return ",".join(out)


def parse_cpu_list(text):
    cpus = []
    for part in text.strip().split(","):
        if part:
            a, _, b = part.partition("-")
            cpus.extend(range(int(a), int(b or a) + 1))
    return cpus


def cpu_mask(cpus, total):
    """The same as the kernel's mask format: 32-bit groups, most significant first."""
    bits = sum(1 << c for c in cpus)
    groups = (total + 31) // 32
    words = ["%08x" % ((bits >> (32 * g)) & 0xFFFFFFFF) for g in reversed(range(groups))]
    width = (total - 32 * (groups - 1) + 3) // 4
    words[0] = words[0][-width:]
    return ",".join(words)


X86_FLAGS = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx "
    "pdpe1gb rdtscp lm constant_tsc rep_good nopl cpuid pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave "
    "avx f16c rdrand lahf_lm abm bmi1 avx2 bmi2"
)


@dataclass
class Cpu:
    """The processor model in /proc/cpuinfo."""

    vendor: str
    family: int
    model: int
    name: str
    stepping: int
    mhz: float
    cache_kb: int
    flags: str = X86_FLAGS


QEMU_HASWELL = Cpu("GenuineIntel", 6, 60, "Intel Core Processor (Haswell)", 1, 2596.134, 16384, X86_FLAGS + " hypervisor")
EPYC_7763 = Cpu("AuthenticAMD", 25, 1, "AMD EPYC 7763 64-Core Processor", 1, 2450.000, 512)
MI300A = Cpu("AuthenticAMD", 25, 144, "AMD Instinct MI300A Accelerator", 1, 3700.000, 1024)
EPYC_VM = Cpu("AuthenticAMD", 25, 17, "AMD EPYC", 1, 2596.134, 1024, X86_FLAGS + " hypervisor")
XEON_6248 = Cpu("GenuineIntel", 6, 85, "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", 7, 2500.000, 28160)


@dataclass
class Node:
    """A compute node as its kernel describes it."""

    hostname: str
    release: str  # uname -r
    build: str  # the rest of /proc/version after "Linux version <release> "
    cpus: int
    mem_kb: int
    btime: int
    uptime: float
    sockets: int = 1
    threads: int = 1
    numa: int = 1
    cpu: Cpu = field(default_factory=lambda: QEMU_HASWELL)
    arch: str = "x86_64"
    dmi: tuple = ("QEMU", "Standard PC (Q35 + ICH9, 2009)")
    psi: bool = True
    cgroup: str = "v2"  # v2, v1 (split), v1-joint, hybrid (split + unified)
    v1_controllers: tuple = ()
    cpufreq: tuple = ()  # driver, minimum kHz, maximum kHz
    swap_kb: int = 0
    disk: tuple = ("vda", 254, 0)
    nic: str = "eth0"
    busy_user: float = 0.0  # CPU seconds since boot
    busy_system: float = 0.0
    used_anon_kb: int = 120000
    used_file_kb: int = 400000
    load: tuple = (0.21, 0.13, 0.05)
    last_pid: int = 4000

    def version(self):
        major, minor = self.release.split(".")[:2]
        return int(major), int(minor)

    def node_cpus(self, n):
        """Cores of a socket are numbered in one run; the second threads follow after all first threads."""
        cores = self.cpus // self.threads
        per = cores // self.numa
        return [t * cores + c for t in range(self.threads) for c in range(n * per, (n + 1) * per)]

    def socket_cpus(self, s):
        cores = self.cpus // self.threads
        per = cores // self.sockets
        return [t * cores + c for t in range(self.threads) for c in range(s * per, (s + 1) * per)]


def write_node(archive, node):
    _proc(archive, node)
    _sys(archive, node)
    archive.dir("run/jobledger/jobs")
    archive.dir("dev")


def _proc(a, n):
    a.file("proc/version", "Linux version %s %s\n" % (n.release, n.build))
    a.file("proc/sys/kernel/osrelease", n.release + "\n")
    a.file("proc/sys/kernel/ostype", "Linux\n")
    a.file("proc/sys/kernel/hostname", n.hostname + "\n")
    a.file("proc/sys/kernel/perf_event_paranoid", "2\n" if n.version() < (5, 0) else "3\n")
    ticks = [_split(int(x * 100), n.cpus) for x in (n.busy_user, n.busy_system)]
    wait = _split(int(n.uptime * 0.4) * n.cpus, n.cpus)
    soft = _split(int(n.busy_system * 2), n.cpus)
    total = int(n.uptime * 100)
    rows = []
    for c in range(n.cpus):
        busy = [ticks[0][c], 0, ticks[1][c], 0, wait[c], 0, soft[c], 0, 0, 0]
        busy[3] = max(0, total - sum(busy))
        rows.append(busy)
    sums = [sum(r[i] for r in rows) for i in range(10)]
    a.file("proc/uptime", "%.2f %.2f\n" % (n.uptime, sums[3] / 100))
    a.file("proc/loadavg", "%.2f %.2f %.2f %d/%d %d\n" % (*n.load, 1, 90 + 4 * n.cpus, n.last_pid))
    stat = ["cpu  " + " ".join(map(str, sums))]
    stat += ["cpu%d " % c + " ".join(map(str, r)) for c, r in enumerate(rows)]
    stat += ["intr %d 0 9 0 0" % (total * n.cpus // 7), "ctxt %d" % (total * n.cpus // 5), "btime %d" % n.btime]
    stat += ["processes %d" % n.last_pid, "procs_running 1", "procs_blocked 0"]
    s = total * n.cpus // 11
    stat += ["softirq %d 0 %d 2 %d %d 0 11 %d 0 %d" % (s, s // 3, s // 50, s // 60, s // 4, s // 3)]
    a.file("proc/stat", "\n".join(stat) + "\n")
    a.file("proc/meminfo", _meminfo(n))
    a.file("proc/cpuinfo", _cpuinfo(n))
    if n.psi:
        for what, some in (("cpu", 1.5), ("memory", 0.0), ("io", 0.3)):
            us = int(some * (n.busy_user + n.busy_system) * 1e4) + (0 if what == "memory" else 20301)
            line = "avg10=0.00 avg60=%.2f avg300=%.2f total=%d"
            text = "some " + line % (0.11 if us else 0, 0.05 if us else 0, us) + "\n"
            if what != "cpu" or n.version() >= (5, 13):
                full = 0 if what == "cpu" else us * 3 // 4
                text += "full " + line % (0.07 if full else 0, 0.03 if full else 0, full) + "\n"
            a.file("proc/pressure/" + what, text)
    a.link("proc/mounts", "self/mounts")
    a.link("proc/net", "self/net")
    mounts = _mounts(n)
    a.file("proc/self/mounts", "".join("%s %s %s %s 0 0\n" % (dev, at, kind, opts if dev == "/dev/" + n.disk[0] + "1" else
           _merged(opts, sup)) for _, _, at, opts, kind, dev, sup in mounts))
    a.file("proc/self/mountinfo", "".join(
        "%d %d %s / %s %s%s - %s %s %s\n" % (22 + i, parent, devno, at, opts, " shared:%d" % (i + 1), kind, dev, sup)
        for i, (parent, devno, at, opts, kind, dev, sup) in enumerate(mounts)))
    a.file("proc/self/cgroup", "".join(self_cgroup_lines(n, "/")))
    v1 = v1_hierarchies(n)
    names = ["cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "net_cls", "perf_event", "net_prio",
             "hugetlb", "pids", "rdma"]
    if n.cgroup == "v2":
        rows = ["%s\t0\t71\t1" % c for c in names]
    else:
        rows = ["%s\t%d\t%d\t1" % (c, next((h for h, cs in v1 if c in cs), 0), 6) for c in names]
    a.file("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\n" + "".join(r + "\n" for r in rows))
    name, major, minor = n.disk
    io = int(n.uptime * 40)
    tail = " 0 0 0 0" if n.version() >= (4, 18) else ""
    tail += " %d %d" % (io // 70, io // 9) if n.version() >= (5, 5) else ""
    a.file("proc/diskstats",
           "%4d %7d %s %d %d %d %d %d %d %d %d 0 %d %d%s\n" % (major, minor, name, io, io // 8, io * 44, io // 3, io // 4,
                                                             io // 5, io * 12, io // 2, io // 3, io, tail)
           + "%4d %7d %s1 %d %d %d %d %d %d %d %d 0 %d %d%s\n" % (major, minor + 1, name, io - 9, io // 8, io * 44 - 80,
                                                                io // 3, io // 4, io // 5, io * 12, io // 2, io // 3, io,
                                                                tail))
    rx, tx = int(n.uptime * 1500), int(n.uptime * 400)
    head = ("Inter-|   Receive                                                |  Transmit\n"
            " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls "
            "carrier compressed\n")
    row = "%6s: %7d %7d    0    0    0     0          0         0 %8d %7d    0    0    0     0       0          0\n"
    a.file("proc/self/net/dev", head + row % ("lo", tx, tx // 300, tx, tx // 300) + row % (n.nic, rx, rx // 900, tx, tx // 200))


def _split(total, parts):
    """A total over parts, unevenly but exactly."""
    weights = [3 + (i * 7) % 5 for i in range(parts)]
    shares = [total * w // sum(weights) for w in weights]
    shares[0] += total - sum(shares)
    return shares


def _merged(opts, sup):
    return ",".join(dict.fromkeys(sup.split(",")[:1] + opts.split(",")[1:] + sup.split(",")[1:]))


def v1_hierarchies(n):
    """(hierarchy number, controllers) of the v1 mounts."""
    return [(i + 1, c.split(",")) for i, c in enumerate(n.v1_controllers)]


def self_cgroup_lines(n, path):
    lines = ["%d:%s:%s\n" % (h, ",".join(cs), path) for h, cs in reversed(v1_hierarchies(n))]
    if n.cgroup == "v1-joint":
        lines.insert(0, "%d:name=systemd:%s\n" % (len(lines) + 1, path))
    return lines + ([] if n.cgroup == "v1-joint" else ["0::%s\n" % path])


def _mounts(n):
    safe = "rw,nosuid,nodev,noexec,relatime"
    root = "/dev/%s1" % n.disk[0]
    kind, extra = ("xfs", "rw,attr2,inode64,noquota") if ".el" in n.release else ("ext4", "rw")
    mounts = [
        (1, "%d:%d" % (n.disk[1], n.disk[2] + 1), "/", "rw,relatime", kind, root, extra),
        (22, "0:20", "/sys", safe, "sysfs", "sysfs", "rw"),
        (22, "0:21", "/proc", safe, "proc", "proc", "rw"),
        (22, "0:5", "/dev", "rw,nosuid,relatime", "devtmpfs", "udev", "rw,size=%dk,mode=755" % (n.mem_kb // 2)),
        (22, "0:23", "/run", "rw,nosuid,nodev,relatime", "tmpfs", "tmpfs", "rw,size=%dk,mode=755" % (n.mem_kb // 10)),
    ]
    if n.cgroup == "v2":
        mounts.append((23, "0:26", "/sys/fs/cgroup", safe, "cgroup2", "cgroup2", "rw,nsdelegate,memory_recursiveprot"))
        return mounts
    tmpfs = len(mounts) + 22
    mounts.append((23, "0:26", "/sys/fs/cgroup", "ro,nosuid,nodev,noexec", "tmpfs", "tmpfs", "ro,mode=755"))
    at = 27
    if n.cgroup == "hybrid":
        mounts.append((tmpfs, "0:%d" % at, "/sys/fs/cgroup/unified", safe, "cgroup2", "cgroup2", "rw,nsdelegate"))
        at += 1
    mounts.append((tmpfs, "0:%d" % at, "/sys/fs/cgroup/systemd", safe, "cgroup", "cgroup", "rw,xattr,name=systemd"))
    for i, c in enumerate(n.v1_controllers):
        mounts.append((tmpfs, "0:%d" % (at + 1 + i), "/sys/fs/cgroup/" + c, safe, "cgroup", "cgroup", "rw," + c))
    return mounts


def _meminfo(n):
    anon, file = n.used_anon_kb, n.used_file_kb
    slab, stack, tables = 60000 + n.cpus * 900, 3000 + n.cpus * 90, 5000
    free = n.mem_kb - anon - file - slab - stack - tables - 20000
    v = n.version()
    rows = [
        ("MemTotal", n.mem_kb), ("MemFree", free), ("MemAvailable", free + file * 9 // 10), ("Buffers", file // 10),
        ("Cached", file - file // 10), ("SwapCached", 0), ("Active", anon // 9 + file // 2),
        ("Inactive", anon - anon // 9 + file - file // 2), ("Active(anon)", anon // 9), ("Inactive(anon)", anon - anon // 9),
        ("Active(file)", file // 2), ("Inactive(file)", file - file // 2), ("Unevictable", 0), ("Mlocked", 0),
        ("SwapTotal", n.swap_kb), ("SwapFree", n.swap_kb),
    ]
    if v >= (5, 19):
        rows += [("Zswap", 0), ("Zswapped", 0)]
    rows += [("Dirty", 84), ("Writeback", 0), ("AnonPages", anon - 700), ("Mapped", file // 6), ("Shmem", 700),
             ("KReclaimable", slab // 2), ("Slab", slab), ("SReclaimable", slab // 2), ("SUnreclaim", slab - slab // 2),
             ("KernelStack", stack), ("PageTables", tables)]
    if v >= (6, 1):
        rows += [("SecPageTables", 0)]
    rows += [("NFS_Unstable", 0), ("Bounce", 0), ("WritebackTmp", 0), ("CommitLimit", n.mem_kb // 2 + n.swap_kb),
             ("Committed_AS", anon * 3), ("VmallocTotal", 34359738367 if n.arch == "x86_64" else 133143592960),
             ("VmallocUsed", 20000), ("VmallocChunk", 0), ("Percpu", n.cpus * 720), ("HardwareCorrupted", 0),
             ("AnonHugePages", 0), ("ShmemHugePages", 0), ("ShmemPmdMapped", 0)]
    if v >= (5, 4):
        rows += [("FileHugePages", 0), ("FilePmdMapped", 0)]
    out = ["%-15s %8d kB" % (k + ":", x) for k, x in rows]
    out += ["HugePages_Total:       0", "HugePages_Free:        0", "HugePages_Rsvd:        0", "HugePages_Surp:        0"]
    out += ["Hugepagesize:       2048 kB", "Hugetlb:               0 kB"]
    if n.arch == "x86_64":
        out += ["DirectMap4k:      %6d kB" % 151520, "DirectMap2M:    %8d kB" % (n.mem_kb - 151520)]
    return "\n".join(out) + "\n"


def _cpuinfo(n):
    out = []
    if n.arch == "aarch64":
        for c in range(n.cpus):
            out += ["processor\t: %d" % c, "BogoMIPS\t: 2100.00",
                    "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc "
                    "dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg dcpodp svei8mm svebf16 "
                    "i8mm bf16 dgh rng",
                    "CPU implementer\t: 0x41", "CPU architecture: 8", "CPU variant\t: 0x1", "CPU part\t: 0xd40",
                    "CPU revision\t: 1", ""]
        return "\n".join(out) + "\n"
    cores = n.cpus // n.threads // n.sockets
    for c in range(n.cpus):
        core = c % (n.cpus // n.threads)
        socket, core_id = core // cores, core % cores
        apic = (socket * cores + core_id) * n.threads + c // (n.cpus // n.threads)
        out += [
            "processor\t: %d" % c, "vendor_id\t: %s" % n.cpu.vendor, "cpu family\t: %d" % n.cpu.family,
            "model\t\t: %d" % n.cpu.model, "model name\t: %s" % n.cpu.name, "stepping\t: %d" % n.cpu.stepping,
            "microcode\t: 0x1", "cpu MHz\t\t: %.3f" % n.cpu.mhz, "cache size\t: %d KB" % n.cpu.cache_kb,
            "physical id\t: %d" % socket, "siblings\t: %d" % (cores * n.threads), "core id\t\t: %d" % core_id,
            "cpu cores\t: %d" % cores, "apicid\t\t: %d" % apic, "initial apicid\t: %d" % apic, "fpu\t\t: yes",
            "fpu_exception\t: yes", "cpuid level\t: 13", "wp\t\t: yes", "flags\t\t: %s" % n.cpu.flags,
            "bugs\t\t: spectre_v1 spectre_v2", "bogomips\t: %.2f" % (2 * n.cpu.mhz), "clflush size\t: 64",
            "cache_alignment\t: 64", "address sizes\t: 46 bits physical, 48 bits virtual", "power management:", "",
        ]
    return "\n".join(out) + "\n"


def _sys(a, n):
    base = "sys/devices/system/cpu"
    every = cpu_list(range(n.cpus)) + "\n"
    a.file(base + "/online", every)
    a.file(base + "/possible", every)
    a.file(base + "/present", every)
    a.file(base + "/offline", "\n")
    a.file(base + "/kernel_max", "8191\n" if n.cpus > 64 else "511\n")
    cores = n.cpus // n.threads
    per_socket = cores // n.sockets
    for c in range(n.cpus):
        core = c % cores
        socket = core // per_socket
        t = "%s/cpu%d/topology/" % (base, c)
        siblings = [core + i * cores for i in range(n.threads)]
        package = n.socket_cpus(socket)
        a.file(t + "physical_package_id", "%d\n" % socket)
        a.file(t + "core_id", "%d\n" % (core % per_socket))
        for name, cpus in (("core_siblings", package), ("thread_siblings", siblings)):
            a.file(t + name, cpu_mask(cpus, n.cpus) + "\n")
            a.file(t + name + "_list", cpu_list(cpus) + "\n")
        if n.version() >= (5, 2):
            a.file(t + "die_id", "0\n" if n.arch == "x86_64" else "-1\n")
            a.file(t + "package_cpus_list", cpu_list(package) + "\n")
            a.file(t + "core_cpus_list", cpu_list(siblings) + "\n")
        if n.cpufreq:
            driver, low, high = n.cpufreq
            f = "%s/cpu%d/cpufreq/" % (base, c)
            for name, value in (("scaling_driver", driver), ("scaling_governor", "performance"), ("cpuinfo_min_freq", low),
                                ("cpuinfo_max_freq", high), ("scaling_min_freq", low), ("scaling_max_freq", high),
                                ("scaling_cur_freq", high - 1000 * ((c * 37) % 400)), ("affected_cpus", c)):
                a.file(f + name, "%s\n" % value)
    base = "sys/devices/system/node"
    nodes = cpu_list(range(n.numa)) + "\n"
    for name in ("online", "possible", "has_cpu", "has_memory", "has_normal_memory"):
        a.file("%s/%s" % (base, name), nodes)
    for i in range(n.numa):
        d = "%s/node%d/" % (base, i)
        cpus = n.node_cpus(i)
        total = n.mem_kb // n.numa
        anon, file = n.used_anon_kb // n.numa, n.used_file_kb // n.numa
        used = anon + file + 60000
        a.file(d + "cpulist", cpu_list(cpus) + "\n")
        a.file(d + "cpumap", cpu_mask(cpus, n.cpus) + "\n")
        a.file(d + "distance", " ".join("10" if j == i else "32" for j in range(n.numa)) + "\n")
        rows = [("MemTotal", total), ("MemFree", total - used), ("MemUsed", used), ("Active", anon // 9 + file // 2),
                ("Inactive", anon - anon // 9 + file - file // 2), ("Dirty", 84), ("Writeback", 0), ("FilePages", file),
                ("AnonPages", anon), ("Shmem", 700), ("Slab", 40000)]
        a.file(d + "meminfo", "".join("Node %d %-15s %8d kB\n" % (i, k + ":", v) for k, v in rows)
               + "".join("Node %d HugePages_%s:     0\n" % (i, k) for k in ("Total", "Free", "Surp")))
        hits = int(n.uptime * 900)
        a.file(d + "numastat", "numa_hit %d\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 1130\nlocal_node %d\nother_node %d\n"
               % (hits, hits - hits // 50 * (n.numa - 1), hits // 50 * (n.numa - 1)))
    a.link("sys/class/dmi/id", "../../devices/virtual/dmi/id")
    a.file("sys/devices/virtual/dmi/id/sys_vendor", n.dmi[0] + "\n")
    a.file("sys/devices/virtual/dmi/id/product_name", n.dmi[1] + "\n")
