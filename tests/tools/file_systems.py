"""Network file systems and disks of a fixture machine, as the kernels and clients print them."""

NFS3 = ("NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR RENAME LINK READDIR "
        "READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT").split()
NFS4 = ("NULL READ WRITE COMMIT OPEN OPEN_CONFIRM OPEN_NOATTR OPEN_DOWNGRADE CLOSE SETATTR FSINFO RENEW SETCLIENTID "
        "SETCLIENTID_CONFIRM LOCK LOCKT LOCKU ACCESS GETATTR LOOKUP LOOKUP_ROOT REMOVE RENAME LINK SYMLINK CREATE PATHCONF STATFS "
        "READLINK READDIR SERVER_CAPS DELEGRETURN GETACL SETACL FS_LOCATIONS RELEASE_LOCKOWNER SECINFO FSID_PRESENT EXCHANGE_ID "
        "CREATE_SESSION DESTROY_SESSION SEQUENCE GET_LEASE_TIME RECLAIM_COMPLETE GETDEVICEINFO LAYOUTGET LAYOUTCOMMIT "
        "LAYOUTRETURN SECINFO_NO_NAME TEST_STATEID FREE_STATEID BIND_CONN_TO_SESSION DESTROY_CLIENTID SEEK ALLOCATE DEALLOCATE "
        "LAYOUTSTATS CLONE COPY OFFLOAD_CANCEL LOOKUPP LAYOUTERROR COPY_NOTIFY GETXATTR SETXATTR LISTXATTRS REMOVEXATTR "
        "READ_PLUS").split()


def nfs_mount(source, at, device, age, used, bytes_, version="4.2", proto="tcp", errors=True):
    """A mount: `used` has the operations that were used with their number, `bytes_` what mountstats' line of that name has."""
    operations = NFS3 if version == "3" else NFS4
    kind = "nfs" if version == "3" else "nfs4"
    opts = "rw,vers=%s,rsize=1048576,wsize=1048576,namlen=255,hard,proto=%s,timeo=600,retrans=2,sec=sys" % (version, proto)
    rows = []
    for op in operations:
        n = used.get(op, 0)
        payload = {"READ": (0, bytes_[4]), "WRITE": (bytes_[5], 0)}.get(op, (0, 0))
        row = [n, n + n // 200, n // 400, n * 168 + payload[0], n * 120 + payload[1], n // 3, n * 2, n * 3 - n // 2]
        rows.append("\t%12s: %s\n" % (op, " ".join(map(str, row + ([n // 50] if errors else [])))))
    opens = used.get("OPEN", used.get("LOOKUP", 0))
    events = [9 * opens, 40 * opens, 3, 17, opens, 5 * opens, 11 * opens, 0, 0, 4 * opens, 0, 7 * opens, opens // 2, 5, opens, 2, 3,
              opens, 0, 1, 99, 0, 0, 0, 2, 0, 0]
    port = "880" if proto == "tcp" else "0"
    stats = ("device %s mounted on %s with fstype %s statvers=1.1\n\topts:\t%s\n\tage:\t%d\n" % (source, at, kind, opts, age)
             + "\tcaps:\tcaps=0x3ffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255\n"
             + ("\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x60803,acl=0x3,sessions,pnfs=not configured,lease_time=90\n"
                if kind == "nfs4" else "")
             + "\tsec:\tflavor=1,pseudoflavor=1\n\tevents:\t%s \n\tbytes:\t%s \n" % (" ".join(map(str, events)), " ".join(map(str, bytes_)))
             + "\tRPC iostats version: %s  p/v: 100003/%s (nfs)\n" % ("1.1" if errors else "1.0", version[0])
             + "\txprt:\t%s %s 1 2 0 3 9000 9000 0 12000 0 64 300 900\n\tper-op statistics\n" % (proto, port) + "".join(rows))
    info = (device, at, kind, source, opts)
    return stats, info


def nfs(archive, mounts):
    """Adds mounts to the machine's `mountstats` and `mountinfo`; mounts of one device number are one super block."""
    before = archive.entries["proc/self/mountinfo"][1].decode().splitlines(keepends=True)
    stats = ""
    for line in before:
        parts = line.split(" - ")
        stats += "device %s mounted on %s with fstype %s\n" % (parts[1].split()[1], parts[0].split()[4], parts[1].split()[0])
    for i, (text, (device, at, kind, source, opts)) in enumerate(mounts):
        stats += text
        before.append("%d 22 0:%d / %s rw,relatime shared:%d - %s %s %s\n" % (90 + i, device, at, 90 + i, kind, source, opts))
    archive.file("proc/self/mountinfo", "".join(before))
    archive.file("proc/self/mountstats", stats)


def lustre_stats(rows, start=None):
    """A stats file: (name, samples, unit, minimum, maximum, sum, sum of squares); with `start` as 2.15 prints it."""
    out = ["%-25s %s secs.nsecs" % ("snapshot_time", "1795161611.370000000")]
    if start:
        out += ["%-25s %d.000000000 secs.nsecs" % ("start_time", start), "%-25s 86400.000000000 secs.nsecs" % "elapsed_time"]
    for name, samples, unit, *rest in rows:
        out.append("%-25s %d samples [%s]%s" % (name, samples, unit, "".join(" %d" % r for r in rest)))
    return "\n".join(out) + "\n"


def lustre(archive, filesystem, instance, osts, mib_read, mib_written, timed, root="sys/kernel/debug/lustre"):
    """A mounted Lustre file system with one MDT; `timed`: operations are timed, as from 2.13 on."""
    start = 1795075211 if timed else None
    mib = 1 << 20

    def count(name, n):
        return (name, n, "usec", 2, 9000, n * 40, n * 4000) if timed else (name, n, "regs")

    # Sums of squares are printed from 2.13 on only.
    def total(name, samples, unit, low, high, sum_):
        return (name, samples, unit, low, high, sum_) + ((sum_ * high // 2,) if timed else ())
    rows = [total("read_bytes", mib_read, "bytes", 1, mib, mib_read * mib - 4095),
            total("write_bytes", mib_written * 2, "bytes", 8, mib, mib_written * mib)]
    if timed:
        rows += [("read", mib_read, "usec", 1, 90000, mib_read * 300, mib_read * 90000),
                 ("write", mib_written * 2, "usec", 1, 40000, mib_written * 200, mib_written * 40000)]
    rows += [count(*c) for c in (("ioctl", 4), ("open", 5210), ("close", 5198), ("seek", 911), ("readdir", 61), ("setattr", 3),
                                 ("truncate", 40), ("getattr", 20480), ("create", 12), ("unlink", 9), ("mkdir", 6), ("statfs", 7),
                                 ("getxattr", 800), ("getxattr_hits", 120), ("inode_permission", 410233))]
    archive.file("%s/llite/%s-%s/stats" % (root, filesystem, instance), lustre_stats(rows, start))

    def target(layer, name, rows):
        archive.file("%s/%s/%s-%s-%s-%s/stats" % (root, layer, filesystem, name, layer, instance), lustre_stats(rows, start))
    for i in range(osts):
        reads, writes = mib_read // osts // 4, mib_written // osts // 4
        target("osc", "OST%04x" % i, [
            ("req_waittime", reads + writes + 700, "usec", 40, 190000, (reads + writes) * 1900 + 60000, 9 << 30),
            ("req_active", reads + writes + 700, "reqs", 1, 9, (reads + writes) * 2 + 700, 9 << 20),
            total("read_bytes", reads, "bytes", 4096, 4 * mib, reads * 4 * mib),
            total("write_bytes", writes, "bytes", 4096, 4 * mib, writes * 4 * mib),
            ("ost_read", reads, "usec", 200, 190000, reads * 2000, 9 << 29), ("ost_write", writes, "usec", 150, 90000, writes * 1800, 9 << 28),
            ("ost_statfs", 7, "usec", 90, 400, 1400, 300000), ("obd_ping", 690, "usec", 40, 900, 60000, 9 << 20)])
    target("mdc", "MDT0000", [
        ("req_waittime", 31877, "usec", 30, 81000, 4781550, 9 << 30), ("req_active", 31877, "reqs", 1, 5, 33000, 39000),
        ("mds_close", 5198, "usec", 60, 9000, 700000, 9 << 22), ("ldlm_ibits_enqueue", 25690, "reqs", 1, 1, 25690, 25690)])
    if root.startswith("sys"):
        archive.file("%s/osc/num_refs" % root, "%d\n" % (osts + 3))


def disks(archive, names):
    """The entries of whole disks in /sys/block: `name`, or (`name`, what it is stacked on)."""
    for name in names:
        name, below = name if isinstance(name, tuple) else (name, ())
        archive.file("sys/block/%s/hidden" % name, "0\n")
        archive.dir("sys/block/%s/slaves" % name)
        for disk in below:
            archive.link("sys/block/%s/slaves/%s" % (name, disk), "../../%s" % disk)
        if name.startswith("dm-"):
            archive.file("sys/block/%s/dm/name" % name, "vg0-scratch\n")
