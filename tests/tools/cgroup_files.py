"""The files of a control group, v2 and v1, as the named kernel writes them. Parents are the sums of their children."""

from dataclasses import dataclass, field, replace
from typing import Optional

MEMORY_STAT = {
    (5, 15): "anon file kernel_stack pagetables percpu sock shmem file_mapped file_dirty file_writeback swapcached anon_thp "
             "file_thp shmem_thp inactive_anon active_anon inactive_file active_file unevictable slab_reclaimable "
             "slab_unreclaimable slab workingset_refault_anon workingset_refault_file workingset_activate_anon "
             "workingset_activate_file workingset_restore_anon workingset_restore_file workingset_nodereclaim pgfault "
             "pgmajfault pgrefill pgscan pgsteal pgactivate pgdeactivate pglazyfree pglazyfreed thp_fault_alloc "
             "thp_collapse_alloc",
    (6, 1): "anon file kernel kernel_stack pagetables sec_pagetables percpu sock vmalloc shmem zswap zswapped file_mapped "
            "file_dirty file_writeback swapcached anon_thp file_thp shmem_thp inactive_anon active_anon inactive_file "
            "active_file unevictable slab_reclaimable slab_unreclaimable slab workingset_refault_anon workingset_refault_file "
            "workingset_activate_anon workingset_activate_file workingset_restore_anon workingset_restore_file "
            "workingset_nodereclaim pgscan pgsteal pgscan_kswapd pgscan_direct pgsteal_kswapd pgsteal_direct pgfault pgmajfault "
            "pgrefill pgactivate pgdeactivate pglazyfree pglazyfreed zswpin zswpout thp_fault_alloc thp_collapse_alloc",
    (6, 8): "anon file kernel kernel_stack pagetables sec_pagetables percpu sock vmalloc shmem zswap zswapped file_mapped "
            "file_dirty file_writeback swapcached anon_thp file_thp shmem_thp inactive_anon active_anon inactive_file "
            "active_file unevictable slab_reclaimable slab_unreclaimable slab workingset_refault_anon workingset_refault_file "
            "workingset_activate_anon workingset_activate_file workingset_restore_anon workingset_restore_file "
            "workingset_nodereclaim pgscan pgsteal pgscan_kswapd pgscan_direct pgscan_khugepaged pgsteal_kswapd pgsteal_direct "
            "pgsteal_khugepaged pgfault pgmajfault pgrefill pgactivate pgdeactivate pglazyfree pglazyfreed zswpin zswpout zswpwb "
            "thp_fault_alloc thp_collapse_alloc thp_swpout thp_swpout_fallback",
}

NUMA_STAT = ("anon file kernel_stack pagetables shmem file_mapped file_dirty file_writeback swapcached anon_thp file_thp "
             "shmem_thp inactive_anon active_anon inactive_file active_file unevictable slab_reclaimable slab_unreclaimable "
             "workingset_refault_anon workingset_refault_file workingset_activate_anon workingset_activate_file "
             "workingset_restore_anon workingset_restore_file workingset_nodereclaim").split()


@dataclass
class Usage:
    """What a group itself used, without its children. Times in microseconds, memory in bytes."""

    user: int = 0
    system: int = 0
    anon: int = 0
    file: int = 0
    shmem: int = 0
    swap: int = 0
    pgfault: int = 0
    pgmajfault: int = 0
    oom_kill: int = 0
    max_events: int = 0
    throttled: int = 0
    periods: int = 0
    throttled_periods: int = 0
    cpu_some: int = 0
    memory_some: int = 0
    memory_full: int = 0
    io_some: int = 0
    io_full: int = 0
    read: int = 0
    written: int = 0
    rios: int = 0
    wios: int = 0
    kmem: int = 0  # kernel memory; follows from the user memory unless given

    def __add__(self, other):
        return Usage(*(a + b for a, b in zip(vars(self).values(), vars(other).values())))

    def with_kernel_memory(self):
        used = self.anon + self.file
        return replace(self, kmem=self.kmem or (16384 + used // 160 // 4096 * 4096 if used else 0))

    def current(self):
        return self.anon + self.file + self.kmem


@dataclass
class Group:
    """A control group with its processes and children."""

    name: str
    own: Usage = field(default_factory=Usage)
    procs: list = field(default_factory=list)
    cpus: str = ""
    mems: str = ""
    memory_max: Optional[int] = None
    memory_high: Optional[int] = None
    swap_max: Optional[int] = None
    cpu_max: str = "max 100000"
    pids_max: Optional[int] = None
    peak: Optional[int] = None
    owner: Optional[tuple] = None
    controllers: Optional[str] = None  # cgroup.subtree_control; None: as the parent's
    children: list = field(default_factory=list)

    def add(self, *children):
        self.children.extend(children)
        return children[0]

    def total(self):
        return sum((c.total() for c in self.children), self.own.with_kernel_memory())

    def all_procs(self):
        return self.procs + [p for c in self.children for p in c.all_procs()]

    def descendants(self):
        return len(self.children) + sum(c.descendants() for c in self.children)


def limit(value):
    return "max\n" if value is None else "%d\n" % value


def flat(pairs):
    return "".join("%s %d\n" % kv for kv in pairs)


def pressure(some, full):
    line = "%s avg10=0.00 avg60=%.2f avg300=%.2f total=%d\n"
    return "".join(line % (k, min(99, t / 6e7), min(99, t / 3e8), t) for k, t in (("some", some), ("full", full)))


class V2:
    """Writes a tree of groups as one kernel's cgroup2 file system."""

    def __init__(self, archive, kernel, node_cpus, node_mems="0", psi=True, disk="254:0", root="cgroup", numa=1):
        self.a, self.kernel, self.cpus, self.mems = archive, kernel, node_cpus, node_mems
        self.psi, self.disk, self.root, self.numa = psi, disk, root, numa

    def write(self, group, path="", available="cpuset cpu io memory hugetlb pids rdma misc", effective=None):
        """`available` are the controllers the parent enables; at the root those of the kernel."""
        a, k, is_root = self.a, self.kernel, path == ""
        d = self.root + ("" if is_root else "/" + path)
        a.dir(d, owner=group.owner)
        put = lambda name, text: a.file(d + "/" + name, text)
        t = group.total()
        own_cpus, own_mems = effective or (self.cpus, self.mems)
        own_cpus, own_mems = group.cpus or own_cpus, group.mems or own_mems
        enabled = group.controllers if group.controllers is not None else (available if group.children else "")
        has = available.split()
        put("cgroup.controllers", available + "\n" if available else "")
        put("cgroup.subtree_control", enabled + "\n" if enabled else "")
        put("cgroup.procs", "".join("%d\n" % p.pid for p in group.procs))
        put("cgroup.threads", "".join("%d\n" % x for p in group.procs for x in [p.pid] + [
            p.pid + 1 + i for i in range(p.threads - 1)]))
        put("cgroup.stat", flat([("nr_descendants", group.descendants()), ("nr_dying_descendants", 3 if is_root else 0)]))
        put("cgroup.max.depth", "max\n")
        put("cgroup.max.descendants", "max\n")
        if self.psi and k >= (6, 1) and not is_root:
            put("cgroup.pressure", "1\n")
        if not is_root:
            put("cgroup.type", "domain\n")
            put("cgroup.freeze", "0\n")
            put("cgroup.events", flat([("populated", 1 if group.all_procs() else 0), ("frozen", 0)]))
        self._cpu(put, t, group, is_root, "cpu" in has)
        if "cpuset" in has:
            if not is_root:
                put("cpuset.cpus", group.cpus + "\n")
                put("cpuset.mems", group.mems + "\n")
                put("cpuset.cpus.partition", "member\n")
            put("cpuset.cpus.effective", own_cpus + "\n")
            put("cpuset.mems.effective", own_mems + "\n")
        if self.psi:
            put("cpu.pressure", pressure(t.cpu_some, t.cpu_some // 5 if not is_root else 0))
            put("memory.pressure", pressure(t.memory_some, t.memory_full))
            put("io.pressure", pressure(t.io_some, t.io_full))
        if "memory" in has:
            self._memory(put, t, group, is_root)
        if "io" in has:
            put("io.stat", "%s rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n" % (
                self.disk, t.read, t.written, t.rios, t.wios) if t.rios + t.wios else "")
            if not is_root:
                put("io.max", "")
                put("io.weight", "default 100\n")
        if "pids" in has and not is_root:
            n = sum(p.threads for p in group.all_procs())
            put("pids.current", "%d\n" % n)
            put("pids.max", limit(group.pids_max))
            put("pids.events", "max 0\n")
            if k >= (6, 1):
                put("pids.peak", "%d\n" % (n + n // 3))
        for child in group.children:
            self.write(child, (path + "/" if path else "") + child.name, enabled, (own_cpus, own_mems))

    def _cpu(self, put, t, group, is_root, controller):
        rows = [("usage_usec", t.user + t.system), ("user_usec", t.user), ("system_usec", t.system)]
        if controller and not is_root:
            rows += [("nr_periods", t.periods), ("nr_throttled", t.throttled_periods), ("throttled_usec", t.throttled)]
            if self.kernel >= (5, 15):
                rows += [("nr_bursts", 0), ("burst_usec", 0)]
            put("cpu.max", group.cpu_max + "\n")
            put("cpu.max.burst", "0\n")
            put("cpu.weight", "100\n")
            put("cpu.weight.nice", "0\n")
            put("cpu.idle", "0\n")
        put("cpu.stat", flat(rows))

    def _memory(self, put, t, group, is_root):
        k = self.kernel
        put("memory.stat", self._memory_stat(t))
        per = lambda v: " ".join("N%d=%d" % (i, v // self.numa + (v % self.numa if i == 0 else 0)) for i in range(self.numa))
        values = memory_values(t)
        put("memory.numa_stat", "".join("%s %s\n" % (key, per(values.get(key, 0))) for key in NUMA_STAT))
        if is_root:
            return
        put("memory.current", "%d\n" % t.current())
        put("memory.min", "0\n")
        put("memory.low", "0\n")
        put("memory.high", limit(group.memory_high))
        put("memory.max", limit(group.memory_max))
        put("memory.oom.group", "0\n")
        for name, u in (("memory.events", t), ("memory.events.local", group.own)):
            rows = [("low", 0), ("high", u.max_events), ("max", u.max_events), ("oom", u.oom_kill), ("oom_kill", u.oom_kill)]
            put(name, flat(rows + ([("oom_group_kill", 0)] if k >= (5, 17) else [])))
        if k >= (5, 19):
            peak = group.peak or t.current() + t.current() // 8 // 4096 * 4096
            put("memory.peak", "%d\n" % peak)
            put("memory.zswap.current", "0\n")
            put("memory.zswap.max", "max\n")
        put("memory.swap.current", "%d\n" % t.swap)
        put("memory.swap.high", "max\n")
        put("memory.swap.max", limit(group.swap_max))
        put("memory.swap.events", flat([("high", 0), ("max", 0), ("fail", 0)]))
        if k >= (6, 5):
            put("memory.swap.peak", "%d\n" % t.swap)
        if k >= (6, 8):
            put("memory.zswap.writeback", "1\n")

    def _memory_stat(self, t):
        keys = MEMORY_STAT[max(v for v in MEMORY_STAT if v <= self.kernel)].split()
        values = memory_values(t)
        return flat([(key, values.get(key, 0)) for key in keys])


def memory_values(t):
    kernel = t.kmem
    slab = kernel // 4
    return {
        "anon": t.anon, "file": t.file, "shmem": t.shmem, "kernel": kernel, "kernel_stack": kernel // 4,
        "pagetables": kernel // 4, "percpu": kernel // 8, "file_mapped": t.file // 3 // 4096 * 4096,
        "inactive_anon": t.anon + t.shmem - t.anon // 64 // 4096 * 4096, "active_anon": t.anon // 64 // 4096 * 4096,
        "inactive_file": t.file - t.shmem - (t.file - t.shmem) // 3, "active_file": (t.file - t.shmem) // 3,
        "slab": slab, "slab_reclaimable": slab // 3, "slab_unreclaimable": slab - slab // 3,
        "pgfault": t.pgfault, "pgmajfault": t.pgmajfault, "swapcached": 0,
    }


UNLIMITED_V1 = 9223372036854771712  # PAGE_COUNTER_MAX in bytes


class V1:
    """Writes a tree of groups into v1 hierarchies."""

    def __init__(self, archive, kernel, node_cpus, cpu_count, node_mems="0", disk="254:0"):
        self.a, self.kernel, self.cpus, self.count, self.mems = archive, kernel, node_cpus, cpu_count, node_mems
        self.disk = disk

    def write(self, hierarchy, controllers, group, procs_of, keep, path="", effective=None, memory_limit=None):
        """`procs_of(group)` gives a group's processes in a hierarchy, `keep(group)` whether the hierarchy has it."""
        d = "cgroup/%s%s" % (hierarchy, "/" + path if path else "")
        self.a.dir(d, owner=group.owner)
        # SLURM gives the directory to the user; root still owns its files.
        put = lambda name, text: self.a.file(d + "/" + name, text)
        procs = procs_of(group)
        put("cgroup.procs", "".join("%d\n" % p.pid for p in procs))
        put("tasks", "".join("%d\n" % (p.pid + i) for p in procs for i in range(p.threads)))
        put("cgroup.clone_children", "0\n")
        own_cpus, own_mems = effective or (self.cpus, self.mems)
        own_cpus, own_mems = group.cpus or own_cpus, group.mems or own_mems
        own_limit = min(x for x in (group.memory_max, memory_limit, UNLIMITED_V1) if x is not None)
        t = group.total()
        for c in controllers:
            if c == "freezer":
                if path:
                    put("freezer.state", "THAWED\n")
                    put("freezer.self_freezing", "0\n")
                    put("freezer.parent_freezing", "0\n")
            elif c == "cpuset":
                self._cpuset(put, group, own_cpus, own_mems, path == "")
            elif c == "cpuacct":
                self._cpuacct(put, t, own_cpus)
            elif c == "cpu":
                self._cpu(put, t, group, path == "")
            elif c == "memory":
                self._memory(put, t, group, own_limit, procs)
            elif c == "devices":
                put("devices.list", "a *:* rwm\n")
            elif c == "pids":
                if path:
                    put("pids.current", "%d\n" % sum(p.threads for p in group.all_procs()))
                    put("pids.max", limit(group.pids_max))
                    put("pids.events", "max 0\n")
            elif c == "blkio":
                self._blkio(put, t)
        for child in group.children:
            if keep(child):
                self.write(hierarchy, controllers, child, procs_of, keep, (path + "/" if path else "") + child.name,
                           (own_cpus, own_mems), own_limit)

    def _cpuset(self, put, group, cpus, mems, is_root):
        put("cpuset.cpus", cpus + "\n")
        put("cpuset.mems", mems + "\n")
        put("cpuset.effective_cpus", cpus + "\n")
        put("cpuset.effective_mems", mems + "\n")
        for name in ("cpu_exclusive", "mem_exclusive", "mem_hardwall", "memory_migrate", "memory_pressure",
                     "memory_spread_page", "memory_spread_slab"):
            put("cpuset." + name, "1\n" if is_root and name.endswith("exclusive") else "0\n")
        put("cpuset.sched_load_balance", "1\n")
        put("cpuset.sched_relax_domain_level", "-1\n")

    def _cpuacct(self, put, t, cpus):
        from node_files import parse_cpu_list
        put("cpuacct.stat", flat([("user", t.user // 10000), ("system", t.system // 10000)]))
        put("cpuacct.usage", "%d\n" % ((t.user + t.system) * 1000))
        put("cpuacct.usage_user", "%d\n" % (t.user * 1000))
        put("cpuacct.usage_sys", "%d\n" % (t.system * 1000))
        used = parse_cpu_list(cpus)
        share = lambda us, c: us * 1000 // len(used) + (us * 1000 % len(used) if c == used[0] else 0) if c in used else 0
        put("cpuacct.usage_percpu", "".join("%d " % (share(t.user + t.system, c)) for c in range(self.count)) + "\n")
        put("cpuacct.usage_percpu_user", "".join("%d " % share(t.user, c) for c in range(self.count)) + "\n")
        put("cpuacct.usage_percpu_sys", "".join("%d " % share(t.system, c) for c in range(self.count)) + "\n")
        put("cpuacct.usage_all", "cpu user system\n" + "".join(
            "%d %d %d\n" % (c, share(t.user, c), share(t.system, c)) for c in range(self.count)))

    def _cpu(self, put, t, group, is_root):
        quota, period = group.cpu_max.split()
        put("cpu.shares", "1024\n")
        put("cpu.cfs_period_us", period + "\n")
        put("cpu.cfs_quota_us", ("-1" if quota == "max" else quota) + "\n")
        put("cpu.stat", flat([("nr_periods", t.periods), ("nr_throttled", t.throttled_periods),
                              ("throttled_time", t.throttled * 1000)]))

    def _memory(self, put, t, group, own_limit, procs):
        used = t.current()
        put("memory.usage_in_bytes", "%d\n" % used)
        put("memory.max_usage_in_bytes", "%d\n" % (group.peak or used + used // 8 // 4096 * 4096))
        put("memory.limit_in_bytes", "%d\n" % (group.memory_max or UNLIMITED_V1))
        put("memory.soft_limit_in_bytes", "%d\n" % (group.memory_max or UNLIMITED_V1))
        put("memory.failcnt", "%d\n" % group.own.max_events)
        memsw = UNLIMITED_V1 if group.memory_max is None else group.memory_max + (group.swap_max or 0)
        put("memory.memsw.usage_in_bytes", "%d\n" % (used + t.swap))
        put("memory.memsw.max_usage_in_bytes", "%d\n" % (used + t.swap + used // 8 // 4096 * 4096))
        put("memory.memsw.limit_in_bytes", "%d\n" % memsw)
        put("memory.memsw.failcnt", "0\n")
        put("memory.kmem.usage_in_bytes", "%d\n" % t.kmem)
        put("memory.kmem.max_usage_in_bytes", "%d\n" % t.kmem)
        put("memory.kmem.limit_in_bytes", "%d\n" % UNLIMITED_V1)
        put("memory.kmem.failcnt", "0\n")
        put("memory.swappiness", "60\n")
        put("memory.use_hierarchy", "1\n")
        put("memory.move_charge_at_immigrate", "0\n")
        put("memory.oom_control", flat([("oom_kill_disable", 0), ("under_oom", 0), ("oom_kill", group.own.oom_kill)]))
        rows = lambda u: [
            ("cache", u.file), ("rss", u.anon), ("rss_huge", 0), ("shmem", u.shmem), ("mapped_file", u.file // 3 // 4096 * 4096),
            ("dirty", 0), ("writeback", 0), ("swap", u.swap), ("pgpgin", (u.anon + u.file) // 4096 + 77), ("pgpgout", 77),
            ("pgfault", u.pgfault), ("pgmajfault", u.pgmajfault), ("inactive_anon", u.shmem), ("active_anon", u.anon),
            ("inactive_file", (u.file - u.shmem) // 2), ("active_file", u.file - u.shmem - (u.file - u.shmem) // 2),
            ("unevictable", 0)]
        put("memory.stat", flat(rows(group.own) + [("hierarchical_memory_limit", own_limit),
                                                   ("hierarchical_memsw_limit", own_limit)]
                                + [("total_" + k, v) for k, v in rows(t)]))

    def _blkio(self, put, t):
        for name, r, w in (("io_service_bytes", t.read, t.written), ("io_serviced", t.rios, t.wios)):
            text = "".join("%s %s %d\n" % (self.disk, k, v) for k, v in (
                ("Read", r), ("Write", w), ("Sync", r), ("Async", w), ("Discard", 0), ("Total", r + w))) if r + w else ""
            put("blkio.throttle." + name, text + "Total %d\n" % (r + w))
            put("blkio.throttle.%s_recursive" % name, text + "Total %d\n" % (r + w))
