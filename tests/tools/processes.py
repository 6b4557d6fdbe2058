"""/proc/PID of a process: built from a description, or completed from the lines that a recording kept."""

from dataclasses import dataclass, field

from node_files import cpu_mask, parse_cpu_list

# Command line area of a slurmstepd before it sets its title: "/usr/sbin/slurmstepd" and its NUL.
STEPD_AREA = 21


def title_cmdline(title):
    """What /proc/PID/cmdline shows after setproctitle: the title padded with NULs, at least one."""
    raw = title.encode()
    return raw + b"\0" * max(1, STEPD_AREA - len(raw))


@dataclass
class Process:
    pid: int
    ppid: int
    comm: str
    cmdline: bytes
    uid: int = 0
    gid: int = 0
    threads: int = 1
    cpus: str = "0"
    start_ticks: int = 1000
    user_ticks: int = 0
    system_ticks: int = 0
    rss_pages: int = 800
    state: str = "S"
    environ: dict = field(default_factory=dict)
    io: tuple = (0, 0)  # bytes read and written on block devices
    session: int = 0


STATES = {"S": "S (sleeping)", "R": "R (running)", "D": "D (disk sleep)", "T": "T (stopped)", "Z": "Z (zombie)"}


def stat_line(p):
    vsize = p.rss_pages * 4096 * 6
    sid = p.session or p.pid
    return ("%d (%s) %s %d %d %d 0 -1 4194560 %d 0 0 0 %d %d 0 0 20 0 %d 0 %d %d %d 18446744073709551615 94001298247680 "
            "94001298411657 140724502427456 0 0 0 65536 4096 65538 1 0 0 17 %d 0 0 0 0 0 94001298464064 94001298469888 "
            "94002010181632 140724502429386 140724502429416 140724502429416 140724502429667 0\n"
            % (p.pid, p.comm, p.state, p.ppid, p.pid, sid, p.rss_pages + 120, p.user_ticks, p.system_ticks, p.threads,
               p.start_ticks, vsize, p.rss_pages, parse_cpu_list(p.cpus)[0]))


def status_text(stat, recorded, uid, gid, threads, cpus, total_cpus):
    """The whole /proc/PID/status; `recorded` lines are kept, the others follow from `stat` or have usual values."""
    close = stat.rindex(")")
    comm = stat[stat.index("(") + 1:close]
    f = stat[close + 2:].split()
    pid, ppid, sid, vsize, rss = stat.split()[0], f[1], f[3], int(f[20]) // 1024, int(f[21]) * 4
    caps = "000001ffffffffff" if uid == 0 else "0000000000000000"
    mask = cpu_mask(parse_cpu_list(cpus), total_cpus)
    kb = lambda n: "%8d kB" % n
    rows = [
        ("Name", comm), ("Umask", "0022"), ("State", STATES[f[0]]), ("Tgid", pid), ("Ngid", "0"), ("Pid", pid), ("PPid", ppid),
        ("TracerPid", "0"), ("Uid", "\t".join([str(uid)] * 4)), ("Gid", "\t".join([str(gid)] * 4)), ("FDSize", "64"),
        ("Groups", "%d " % gid if uid else "0 "), ("NStgid", pid), ("NSpid", pid), ("NSpgid", f[2]), ("NSsid", sid),
        ("VmPeak", kb(vsize)), ("VmSize", kb(vsize)), ("VmLck", kb(0)), ("VmPin", kb(0)), ("VmHWM", kb(rss)),
        ("VmRSS", kb(rss)), ("RssAnon", kb(rss // 4)), ("RssFile", kb(rss - rss // 4)), ("RssShmem", kb(0)),
        ("VmData", kb(rss // 3)), ("VmStk", kb(132)), ("VmExe", kb(160)), ("VmLib", kb(4400)), ("VmPTE", kb(60)),
        ("VmSwap", kb(0)), ("HugetlbPages", kb(0)), ("CoreDumping", "0"), ("THP_enabled", "1"), ("Threads", str(threads)),
        ("SigQ", "0/7700"), ("SigPnd", "0" * 16), ("ShdPnd", "0" * 16), ("SigBlk", "0" * 16), ("SigIgn", "0" * 16),
        ("SigCgt", "0" * 16), ("CapInh", "0" * 16), ("CapPrm", caps), ("CapEff", caps), ("CapBnd", "000001ffffffffff"),
        ("CapAmb", "0" * 16), ("NoNewPrivs", "0"), ("Seccomp", "0"), ("Seccomp_filters", "0"),
        ("Speculation_Store_Bypass", "vulnerable"), ("Cpus_allowed", mask), ("Cpus_allowed_list", cpus),
        ("Mems_allowed", "1"), ("Mems_allowed_list", "0"), ("voluntary_ctxt_switches", "12"),
        ("nonvoluntary_ctxt_switches", "3"),
    ]
    return "".join("%s:\t%s\n" % (k, recorded.get(k, v)) for k, v in rows)


def io_text(read, written):
    return ("rchar: %d\nwchar: %d\nsyscr: %d\nsyscw: %d\nread_bytes: %d\nwrite_bytes: %d\ncancelled_write_bytes: 0\n"
            % (read + 190433, written + 2213, 88 + read // 65536, 12 + written // 65536, read, written))


def environ_bytes(variables):
    return b"".join(("%s=%s" % kv).encode() + b"\0" for kv in variables.items())


def write_process(archive, p, cgroup_lines, total_cpus, with_io=True):
    d = "proc/%d" % p.pid
    owner = (p.uid, p.gid) if p.uid or p.gid else None
    stat = stat_line(p)
    archive.dir(d, owner=owner)
    archive.file(d + "/cmdline", p.cmdline, owner=owner)
    archive.file(d + "/stat", stat, owner=owner)
    archive.file(d + "/status", status_text(stat, {}, p.uid, p.gid, p.threads, p.cpus, total_cpus), owner=owner)
    archive.file(d + "/cgroup", cgroup_lines, owner=owner)
    archive.file(d + "/environ", environ_bytes(p.environ), owner=owner, mode=0o400)
    if with_io:
        archive.file(d + "/io", io_text(*p.io), owner=owner, mode=0o400)
