"""The root disks of the virtual machines."""

import pathlib
import shutil
import subprocess

from . import cache, debian, packages

_HERE = pathlib.Path(__file__).parent
_GUEST = _HERE / "guest"

_INCLUDE = ["systemd", "systemd-sysv", "dbus", "udev", "kmod", "slurmd", "slurmctld", "slurm-client", "munge",
            "python3", "iproute2", "procps", "util-linux", "nfs-kernel-server", "nfs-common", "ibverbs-utils",
            "ibverbs-providers"]
_USERS = {"alice": 1001, "bob": 1002}
# Services that a machine for tests does not need.
_MASKED = """apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service
    fstrim.timer systemd-pstore.service getty@tty1.service serial-getty@ttyS0.service systemd-random-seed.service
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-journal-flush.service
    systemd-udev-settle.service ldconfig.service systemd-hwdb-update.service systemd-sysusers.service
    systemd-firstboot.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount
    proc-sys-fs-binfmt_misc.mount dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount
    systemd-timesyncd.service nfs-server.service nfs-mountd.service nfs-idmapd.service nfs-blkmap.service
    nfs-client.target nfsdcld.service rpcbind.service rpcbind.socket rpc-statd.service rpc-statd-notify.service
    rpc-gssd.service rpc-svcgssd.service auth-rpcgss-module.service proc-fs-nfsd.mount run-rpc_pipefs.mount
    fsidd.service""".split()


def disk(suite):
    """The path of the root disk with the SLURM of a Debian suite."""
    packages.check("machine")
    digest = cache.key(_HERE / "image.py", _GUEST, suite)
    return cache.built(f"disk-{suite}", digest, lambda into: _build_disk(suite, into)) / "root.img"


def bootstrap(suite, include, root):
    """Makes a root directory of a suite with these packages and what they need."""
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet", "--include=" + ",".join(include),
               "--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Check-Valid-Until false"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    # In its own mount and process namespaces nothing is left mounted or running if this is killed.
    subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                    *command, suite, str(root), debian.mirror()], stdin=subprocess.DEVNULL, check=True)


def _build_disk(suite, into):
    root = into / "rootfs"
    bootstrap(suite, _INCLUDE, root)
    _configure(root)
    image = into / "root.img"
    with open(image, "wb") as handle:
        handle.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-L", "root", "-O", "^has_journal", "-d", str(root), str(image)], check=True)
    shutil.rmtree(root)


def _configure(root):
    def inside(*command):
        subprocess.run(["chroot", str(root), *command], check=True, stdout=subprocess.DEVNULL)

    shutil.copytree(_GUEST, root, dirs_exist_ok=True)
    (root / "etc/machine-id").write_text("5f0e0000000000000000000000000001\n")
    inside("passwd", "-d", "root")
    for name, uid in _USERS.items():
        inside("useradd", "-m", "-s", "/bin/bash", "-u", str(uid), name)
    for unit in _MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (root / "var/lib/slurm/slurmd").mkdir(parents=True, exist_ok=True)
    units = root / "etc/systemd/system"
    (units / "multi-user.target.wants/testbed-agent.service").symlink_to("../testbed-agent.service")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    inside("sh", "-c", "head -c 1024 /dev/urandom > /etc/munge/munge.key; chown munge: /etc/munge/munge.key; "
                       "chmod 400 /etc/munge/munge.key")
