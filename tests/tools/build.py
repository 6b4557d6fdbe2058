"""Builds a generated machine: its groups, their processes, and the node's totals."""

from archive import Archive
from cgroup_files import V1, V2, Group, Usage
from node_files import self_cgroup_lines, write_node
from processes import Process, title_cmdline, write_process

MIB = 1 << 20
SEC = 1_000_000


class Build:
    """A machine under construction."""

    def __init__(self, node):
        self.node, self.a, self.pid, self.places = node, Archive(), 2100, []
        every = "0-%d" % (node.cpus - 1)
        self.every, self.mems = every, "0" if node.numa == 1 else "0-%d" % (node.numa - 1)

    def proc(self, comm, cmdline, uid=0, cpus=None, gap=3, **kw):
        self.pid += gap
        if isinstance(cmdline, list):
            cmdline = b"".join(w.encode() + b"\0" for w in cmdline)
        p = Process(self.pid, 1, comm, cmdline, uid, uid, cpus=cpus or self.every, start_ticks=8_000_000 + self.pid, **kw)
        return p

    def stepd(self, jobid, step, title=None, threads=5, cpus=None):
        title = title or "slurmstepd: [%s.%s]" % (jobid, step)
        return self.proc("slurmstepd", title_cmdline(title), cpus=cpus, threads=threads, gap=11)

    def task(self, jobid, uid, comm="solver", args=(), threads=1, cpus=None, env=None, user=0, system=0, io=(0, 0), rss=20000):
        variables = {"SLURM_JOB_ID": jobid, "SLURM_JOBID": jobid, "SLURM_JOB_UID": uid, "SLURM_CLUSTER_NAME": "test",
                     "SLURMD_NODENAME": self.node.hostname, "HOME": "/home/u%d" % uid}
        variables.update(env or {})
        return self.proc(comm, ["/home/u%d/%s" % (uid, comm), *args], uid, cpus, threads=threads, environ=variables,
                         user_ticks=user // 10000, system_ticks=system // 10000, io=io, rss_pages=rss)

    def job(self, name, jobid, uid, cpus, memory, steps, mems="0", **kw):
        """`steps` as built by `step`; limits as SLURM sets them, on the job and on every step's user group."""
        g = Group(name, cpus=cpus, mems=mems, memory_max=memory, memory_high=memory, swap_max=0, **kw)
        for s in steps:
            user = next(c for c in s.children if c.name == "user")
            user.memory_max, user.memory_high, user.swap_max = memory, memory, 0
            user.cpus, user.mems = user.cpus or cpus, mems
            g.add(s)
        return g

    def step(self, jobid, name, uid, tasks, title=None, helpers=(), special=True, alive=True, cpus=None):
        """`tasks`: list of (usage, number of processes, threads each)."""
        label = name[len("step_"):] if name.startswith("step_") else name
        g = Group(name)
        daemon = [self.stepd(jobid, label, title, cpus=cpus)] if alive else []
        daemon += [self.proc("slurmstepd", title_cmdline(t)) for t in helpers]
        slurm = Group("slurm", procs=daemon, own=Usage(
            user=11_000, system=34_000, anon=2 * MIB, file=1 * MIB, pgfault=900, pgmajfault=2) if daemon else Usage())
        user = Group("user", cpus=cpus or "")
        g.add(slurm)
        g.add(user)
        for i, (usage, count, threads) in enumerate(tasks):
            procs = [self.task(jobid, uid, threads=threads, cpus=cpus, user=usage.user // count, system=usage.system // count,
                               rss=usage.anon // 4096 // count or 300, io=(usage.read // count, usage.written // count),
                               env={"SLURM_PROCID": i, "SLURM_STEP_ID": label}) for _ in range(count)]
            user.add(Group("task_%d" % i, own=usage, procs=procs))
        if special and tasks:
            user.add(Group("task_special"))
        return g

    def extern(self, jobid, cpus, sleeper=True, title=None):
        """step_extern: up to 24.11 root's `sleep` keeps its task alive; 26.05 has none."""
        g = self.step(jobid, "step_extern", 0, [(Usage(user=900, system=2100, anon=MIB // 4, pgfault=90), 1, 1)] if sleeper else [],
                      title=title, special=False, cpus=cpus)
        for p in g.children[1].all_procs():
            p.comm, p.cmdline, p.environ = "sleep", b"sleep\x00100000000\x00", {}
        return g

    def scope(self, *jobs, name="node1_slurmstepd.scope", past=None):
        infinity = self.proc("slurmstepd", ["/usr/sbin/slurmstepd", "infinity"], threads=1)
        g = Group(name, own=past or Usage(user=71 * SEC, system=9 * SEC, file=2 * MIB, pgfault=40_000))
        g.add(*jobs, Group("system", own=Usage(user=70_000, system=210_000, anon=MIB // 2, file=MIB // 4, pgfault=700),
                           procs=[infinity]))
        return g

    def place(self, scope, *above):
        """Puts a scope below named groups; `finish_v2` adds the host's own groups."""
        self.places.append((above, scope))
        return self

    def finish_v2(self, controllers="cpuset cpu io memory pids", slurm="cpuset cpu memory", root="cgroup", slurmd=True, extra=(),
                  available="cpuset cpu io memory hugetlb pids rdma misc"):
        top = Group("", own=Usage(user=40 * SEC, system=60 * SEC, anon=3 * MIB, file=40 * MIB, read=900 * MIB, rios=21000),
                    controllers=controllers)
        init = self.proc("systemd", ["/sbin/init"], gap=0)
        init.pid, init.ppid = 1, 0
        top.add(Group("init.scope", own=Usage(user=9 * SEC, system=11 * SEC, anon=5 * MIB, file=11 * MIB), procs=[init]))
        system = top.add(Group("system.slice", controllers=controllers))
        if slurmd:
            d = self.proc("slurmd", ["/usr/sbin/slurmd", "-D", "-s"], threads=3)
            system.add(Group("slurmd.service", own=Usage(user=21 * SEC, system=17 * SEC, anon=14 * MIB, file=9 * MIB,
                                                         read=30 * MIB, rios=800, written=9 * MIB, wios=410), procs=[d]))
        system.add(Group("ssh.service", own=Usage(user=SEC, system=SEC, anon=2 * MIB, file=4 * MIB),
                         procs=[self.proc("sshd", ["sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups"])]))
        top.add(Group("user.slice", controllers=controllers))
        for above, scope in [(a, s) for a, s in self.places] + list(extra):
            at = top
            for name in above:
                nxt = next((c for c in at.children if c.name == name), None)
                at = nxt or at.add(Group(name, controllers=controllers))
            scope.controllers = scope.controllers if scope.controllers is not None else slurm
            at.add(scope)
        total = top.total()
        self.node.busy_user, self.node.busy_system = total.user / SEC, total.system / SEC
        self.node.used_anon_kb += total.anon // 1024
        self.node.used_file_kb += total.file // 1024
        write_node(self.a, self.node)
        d = self.node.disk
        V2(self.a, self.node.version(), self.every, self.mems, self.node.psi, "%d:%d" % d[1:], root, self.node.numa).write(
            top, available=available)
        self._processes_v2(top, "")
        return self

    def _processes_v2(self, group, path):
        for p in group.procs:
            line = "0::%s\n" % (path or "/")
            above = self_cgroup_lines(self.node, "/")[:-1] if self.node.cgroup != "v2" else []
            self.write_process(p, "".join(above) + line)
        for c in group.children:
            self._processes_v2(c, path + "/" + c.name)

    def write_process(self, p, lines):
        write_process(self.a, p, lines, self.node.cpus)

    def finish_v1(self, roots, slurm_controllers):
        """`roots`: SLURM's root groups; a hierarchy has them if SLURM uses one of its controllers."""
        n = self.node
        slurm_total = sum((r.total() for r in roots), Usage())
        system = Usage(user=130 * SEC, system=150 * SEC, anon=90 * MIB, file=300 * MIB, read=900 * MIB, rios=21000,
                       written=80 * MIB, wios=2000)
        total = slurm_total + system
        n.busy_user, n.busy_system = total.user / SEC, total.system / SEC
        n.used_anon_kb += total.anon // 1024
        n.used_file_kb += total.file // 1024
        write_node(self.a, n)
        slurmd = self.proc("slurmd", ["/usr/sbin/slurmd", "-D", "-s"], threads=3)
        writer = V1(self.a, n.version(), self.every, n.cpus, self.mems, "%d:%d" % n.disk[1:])
        where = {}  # pid -> {hierarchy: path}
        for hierarchy in n.v1_controllers:
            names = hierarchy.split(",")
            uses = any(c in slurm_controllers for c in names)
            top = Group("", own=system, procs=[slurmd])
            if uses:
                top.children = roots
            shown = self._v1_procs(top, names, where, hierarchy)
            writer.write(hierarchy, names, top, lambda g: shown.get(id(g), []), lambda g: id(g) in shown)
            if not uses and roots:
                # Without SLURM's groups the usage is the root's own.
                flat_top = Group("", own=total, procs=[slurmd])
                writer.write(hierarchy, names, flat_top, lambda g: g.procs, lambda g: False)
        for name in ("cpu", "cpuacct"):
            if "cpu,cpuacct" in n.v1_controllers:
                self.a.link("cgroup/" + name, "cpu,cpuacct")
        self.a.file("cgroup/systemd/cgroup.procs", "1\n")
        if n.cgroup == "hybrid":
            self._unified(total)
        every = {p.pid: p for r in roots for p in r.all_procs()}
        every[slurmd.pid] = slurmd
        for pid, p in sorted(every.items()):
            lines = []
            for line in self_cgroup_lines(n, "/"):
                number, controllers, _ = line.split(":")
                lines.append("%s:%s:%s\n" % (number, controllers, where.get(pid, {}).get(controllers, "/")))
            self.write_process(p, "".join(lines))
        return self

    def _unified(self, total):
        names = Group("", own=total)
        V2(self.a, self.node.version(), self.every, self.mems, self.node.psi, root="cgroup/unified").write(names, available="")

    def _v1_procs(self, top, names, where, hierarchy):
        """The processes of each group in a hierarchy; freezer and cpuset have no groups for tasks."""
        shown = {id(top): list(top.procs)}
        no_tasks = "freezer" in names or "cpuset" in names

        def walk(group, path, above):
            chain = above if no_tasks and group.name.startswith("task_") else above + [(group, path)]
            shown.setdefault(id(chain[-1][0]), [])
            for p in group.procs:
                # A step's slurmstepd is in the job's group in the freezer hierarchy, else in the step's.
                holder, holder_path = chain[2] if "freezer" in names and p.comm == "slurmstepd" else chain[-1]
                shown[id(holder)].append(p)
                where.setdefault(p.pid, {})[hierarchy] = holder_path
            for child in group.children:
                walk(child, path + "/" + child.name, chain)

        for root in top.children:
            walk(root, "/" + root.name, [])
        return shown

    # v1 trees -----------------------------------------------------------------------------------------------------

    def v1_root(self, jobs, name="slurm", past=None):
        """`jobs`: list of (uid, job group)."""
        g = Group(name, own=past or Usage(user=30 * SEC, system=4 * SEC))
        for uid in sorted({u for u, _ in jobs}):
            g.add(Group("uid_%d" % uid, children=[j for u, j in jobs if u == uid]))
        return g

    def v1_job(self, jobid, uid, cpus, memory, steps):
        g = Group("job_%d" % jobid, cpus=cpus, mems="0", memory_max=memory, swap_max=0)
        for s in steps:
            s.cpus, s.mems, s.memory_max, s.swap_max = s.cpus or cpus, "0", memory, 0
            g.add(s)
        return g

    def v1_step(self, jobid, name, uid, tasks, cpus=None, alive=True):
        owner = (uid, uid) if uid else None
        label = name[len("step_"):]
        g = Group(name, owner=owner, own=Usage(user=11_000, system=34_000, anon=2 * MIB, file=MIB, pgfault=900),
                  procs=[self.stepd(jobid, label, cpus=cpus)] if alive else [], cpus=cpus or "")
        for i, (usage, count, threads) in enumerate(tasks):
            procs = [self.task(jobid, uid, threads=threads, cpus=cpus, user=usage.user // count, system=usage.system // count,
                               rss=usage.anon // 4096 // count or 300, env={"SLURM_PROCID": i, "SLURM_STEP_ID": label})
                     for _ in range(count)]
            g.add(Group("task_%d" % i, own=usage, procs=procs, owner=owner, cpus=cpus or "", mems="0"))
        return g

    def text(self, name, shows):
        return self.a.text("%s\n%s\nMade by tests/tools/make_machines.py." % (name, shows))
