"""The kernel of the virtual machines, with the modules for the boot and for scenarios."""

import pathlib
import shutil
import subprocess

from . import cache, debian, packages

_HERE = pathlib.Path(__file__).parent
_INIT = _HERE / "initramfs/init"
_OWN_MODULES = _HERE / "kmod"

_AT_BOOT = ["virtio_pci", "virtio_blk", "ext4", "virtio_net"]
# Modules that scenarios load (devices.py), and those that these load by alias.
_ON_REQUEST = ["ib_core", "ib_uverbs", "rdma_rxe", "crc32_generic", "veth", "nfs", "nfsv3", "nfsv4", "nfsd", "ipmi_si",
               "ipmi_devintf"]


def kernel():
    """The directory with `vmlinuz`, `initrd` and `modules.tar` (a lib/modules for a root disk)."""
    packages.check("machine")
    (image,) = debian.depends("linux-image-amd64", r"linux-image-\S+")
    digest = cache.key(_HERE / "kernel.py", _INIT, _OWN_MODULES, image)
    return cache.built("kernel", digest, lambda into: _build(image, into))


def _build(image, into):
    packages.check("modules")
    debian.download_own(image, into)
    (vmlinuz,) = into.glob("boot/vmlinuz-*")
    version = vmlinuz.name.removeprefix("vmlinuz-")
    vmlinuz.rename(into / "vmlinuz")
    _build_own_modules(image.replace("linux-image-", "linux-headers-"), version, into)
    subprocess.run(["depmod", "-b", str(into), version], check=True)
    _pack_initrd(version, into)
    _pack_modules(version, into)
    for directory in ("boot", "lib", "usr", "initramfs", "guest"):
        shutil.rmtree(into / directory)


def _build_own_modules(headers, version, into):
    """Adds the modules of kmod/ to the kernel's own."""
    for package in (headers, *debian.depends(headers, r"linux-(?:headers|kbuild)-\S+")):
        debian.download_own(package, into)
    tree, build = into / "usr/src" / headers, into / "usr/kmod"
    makefile = tree / "Makefile"
    # A link with the absolute path of the installed package.
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{into}/usr/src/"))
    shutil.copytree(_OWN_MODULES, build)
    subprocess.run(["make", "-s", "-C", str(tree), f"M={build}", "modules"], stdout=subprocess.DEVNULL, check=True)
    own = into / "lib/modules" / version / "jobledger"
    own.mkdir()
    for module in build.glob("*.ko"):
        shutil.copy(module, own)


def _pack_initrd(version, into):
    root = into / "initramfs"
    for directory in ("bin", "dev", "proc", "sys", "modules", "root"):
        (root / directory).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "mount", "insmod", "switch_root", "sleep", "reboot", "cat", "echo"):
        (root / "bin" / applet).symlink_to("busybox")
    order = _with_dependencies(_AT_BOOT, version, into)
    for path in order:
        shutil.copy(path, root / "modules")
    (root / "modules/order").write_text("".join(path.name + "\n" for path in order))
    shutil.copy(_INIT, root / "init")
    subprocess.run(f"cd '{root}' && find . | cpio -o -H newc --quiet | gzip -1 > '{into}/initrd'",
                   shell=True, check=True)


def _pack_modules(version, into):
    modules, guest = into / "lib/modules" / version, into / "guest"
    target = guest / "lib/modules" / version
    own = [path.stem for path in _OWN_MODULES.glob("*.c")]
    # Modules that were loaded at boot are listed, too: modprobe would search for them otherwise.
    for path in _with_dependencies(_AT_BOOT + _ON_REQUEST + own, version, into):
        copy = target / path.relative_to(modules)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(modules / name, target)
    subprocess.run(["depmod", "-b", str(guest), version], check=True)
    subprocess.run(["tar", "-C", str(guest), "-cf", str(into / "modules.tar"), "lib"], check=True)


def _with_dependencies(names, version, into):
    """The files of these modules, dependencies first."""
    order = []
    for name in names:
        lines = subprocess.run(["modprobe", "-d", str(into), "-S", version, "--show-depends", name],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        for path in (pathlib.Path(line.split()[1]) for line in lines if line.startswith("insmod ")):
            if path not in order:
                order.append(path)
    return order
