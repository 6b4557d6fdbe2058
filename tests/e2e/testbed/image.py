"""The root disks of the virtual machines and the kernel that boots them."""

import pathlib
import re
import shutil
import subprocess

from . import cache, debian, packages
from .processes import Failure

_HERE = pathlib.Path(__file__).parent
_GUEST = _HERE / "guest"
_INIT = _HERE / "initramfs/init"

_INCLUDE = ["systemd", "systemd-sysv", "dbus", "udev", "kmod", "slurmd", "slurmctld", "slurm-client", "munge",
            "python3", "iproute2", "procps", "util-linux"]
_BOOT_MODULES = ["virtio_pci", "virtio_blk", "ext4", "virtio_net"]
_USERS = {"alice": 1001, "bob": 1002}
# What a machine that lives for a minute need not start.
_MASKED = """apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service
    fstrim.timer systemd-pstore.service getty@tty1.service serial-getty@ttyS0.service systemd-random-seed.service
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-journal-flush.service
    systemd-udev-settle.service ldconfig.service systemd-hwdb-update.service systemd-sysusers.service
    systemd-firstboot.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount
    proc-sys-fs-binfmt_misc.mount dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount
    systemd-timesyncd.service""".split()


def kernel():
    """The directory with `vmlinuz` and `initrd`, shared by all machines."""
    packages.ensure(packages.MACHINE)
    depends = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
    names = re.findall(r"Depends: (linux-image-\S+)", depends)
    if not names:
        raise Failure("apt knows no linux-image-amd64 (apt-get update may be due)")
    digest = cache.key(_HERE / "image.py", _INIT, names[0])
    return cache.built("kernel", digest, lambda into: _build_kernel(names[0], into))


def _build_kernel(package, into):
    debian.download_own(package, into)
    (image,) = into.glob("boot/vmlinuz-*")
    version = image.name.removeprefix("vmlinuz-")
    image.rename(into / "vmlinuz")
    subprocess.run(["depmod", "-b", str(into), version], check=True)
    root = into / "initramfs"
    for directory in ("bin", "dev", "proc", "sys", "modules", "root"):
        (root / directory).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "mount", "insmod", "switch_root", "sleep", "reboot", "cat", "echo"):
        (root / "bin" / applet).symlink_to("busybox")
    order = []
    for module in _BOOT_MODULES:
        lines = subprocess.run(["modprobe", "-d", str(into), "-S", version, "--show-depends", module],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        for path in (line.split()[1] for line in lines if line.startswith("insmod ")):
            if path not in order:
                order.append(path)
                shutil.copy(path, root / "modules")
    (root / "modules/order").write_text("".join(pathlib.Path(path).name + "\n" for path in order))
    shutil.copy(_INIT, root / "init")
    subprocess.run(f"cd '{root}' && find . | cpio -o -H newc --quiet | gzip -1 > '{into}/initrd'",
                   shell=True, check=True)
    for directory in ("boot", "lib", "usr", "initramfs"):
        shutil.rmtree(into / directory)


def disk(suite):
    """The path of the root disk with the SLURM of a Debian suite."""
    packages.ensure(packages.MACHINE)
    digest = cache.key(_HERE / "image.py", _GUEST, suite)
    return cache.built(f"disk-{suite}", digest, lambda into: _build_disk(suite, into)) / "root.img"


def _build_disk(suite, into):
    root = into / "rootfs"
    bootstrap = ["mmdebstrap", "--mode=root", "--variant=minbase", "--quiet", "--include=" + ",".join(_INCLUDE),
                 "--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Check-Valid-Until false"]
    bootstrap += [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")]
    # Own mount and process namespaces: nothing stays mounted or running if this is killed half-way.
    subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                    *bootstrap, suite, str(root), debian.mirror()], stdin=subprocess.DEVNULL, check=True)
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
