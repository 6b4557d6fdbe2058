#!/usr/bin/env python3
"""Runs the tests of counters (tests/pmu) on an emulated ARM machine with a hardware PMU.

    run.py [FILTER...]      names of tests, or parts of them; all without one

qemu emulates a Neoverse N1 whose PMUv3 has six counters and one for cycles. With `-icount shift=0` each instruction takes one
nanosecond of the machine's time: what is counted does not depend on how fast this machine is. The kernel is Debian's for arm64, its
root is in memory: the tests, the exporter, busybox and the C library.

The programs are built here for ARM, by Debian's cross compiler and Rust's own library for that target (rustup target add).
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

_HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE.parent / "e2e"))

from testbed import cache, debian, packages  # noqa: E402
from testbed.processes import Failure, die_with_parent, scratch  # noqa: E402

_SKIPS = _HERE.parent / "skips.md"
_TARGET = "aarch64-unknown-linux-gnu"
_CROSS = "aarch64-linux-gnu"
_SUITE = "bookworm"
_PROGRAMS = ("burn", "fake-slurmstepd", "jobledger-exporter")
_LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1")
# One CPU unless a test switches another one on: the counts of qemu's second CPU advance while the first one executes, too.
_MACHINE = ["-M", "virt,gic-version=3", "-cpu", "neoverse-n1", "-smp", "2", "-m", "1024", "-accel", "tcg,tb-size=256", "-icount",
            "shift=0,sleep=off", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
            "-net", "none"]
_ARGUMENTS = "console=ttyAMA0 quiet panic=-1 mitigations=off nokaslr init_on_alloc=0 rcupdate.rcu_cpu_stall_suppress=1"
_VERDICT = "the tests ended with status "
# Without a word from the machine for so long it hangs, seconds.
_SILENCE = 600


def main(filters):
    packages.check("pmu")
    if not _has_library():
        return _skip(f"Rust has no library for {_TARGET}, and rustup did not fetch it")
    if not filters:
        _loops()
    machine = cache.built("pmu", cache.key("Image and busybox", _SUITE), _fetch)
    with scratch("jobledger-pmu") as directory:
        _pack(machine, _build(), filters, directory)
        return _boot(machine / "Image", directory / "initrd")


def _has_library():
    """Whether Rust can build for the machine, after rustup was asked for it."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], cwd=cache.REPOSITORY, stdout=subprocess.PIPE, text=True, check=True).stdout
    library = pathlib.Path(sysroot.strip(), "lib/rustlib", _TARGET)
    if not library.is_dir() and shutil.which("rustup"):
        subprocess.run(["rustup", "target", "add", _TARGET], cwd=cache.REPOSITORY, check=False)
    return library.is_dir()


def _skip(why):
    """Under CI a skip is a failure unless tests/skips.md names it."""
    print(f"SKIPPED rust-arm64: {why}")
    return 1 if os.environ.get("CI") and "| `rust-arm64` |" not in _SKIPS.read_text(encoding="utf-8") else 0


def _fetch(into):
    """The kernel and busybox, of Debian for arm64."""
    archive = debian.Archive(_SUITE, into / "apt", "arm64")
    (image,) = archive.depends("linux-image-arm64", r"linux-image-\S+")
    for package in (image, "busybox-static"):
        archive.unpack(package, into / "root")
    (kernel,) = (into / "root/boot").glob("vmlinuz-*")
    kernel.rename(into / "Image")
    shutil.move(into / "root/bin/busybox", into / "busybox")
    for directory in ("apt", "root"):
        shutil.rmtree(into / directory)


def _variable(name):
    """A variable of cargo's for the machine."""
    return f"CARGO_TARGET_{_TARGET.upper().replace('-', '_')}_{name}"


def _environment():
    """cargo's. In a directory of their own these builds keep nobody waiting for cargo's lock."""
    return {**os.environ, _variable("LINKER"): f"{_CROSS}-gcc", "CARGO_TARGET_DIR": str(cache.REPOSITORY / "target/arm")}


def _build():
    """Builds the tests' program, and those that it starts; returns them by name. At once, so that each crate has one set of features."""
    programs = [word for name in _PROGRAMS for word in ("--bin", name)]
    done = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "build", "--workspace", "--locked", "--features", "jobledger/testing", "--test", "pmu", *programs,
         "--target", _TARGET, "--message-format", "json-render-diagnostics"],
        cwd=cache.REPOSITORY, env=_environment(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure("the programs for ARM do not build")
    messages = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    built = {message["target"]["name"]: pathlib.Path(message["executable"]) for message in messages if message.get("executable")}
    return {name: built[name] for name in (*_PROGRAMS, "pmu")}


def _pack(machine, programs, filters, directory):
    """Makes the machine's root."""
    root = directory / "root"
    for below in ("bin", "lib", "opt", "proc", "sys", "tmp", "run", "dev", "etc"):
        (root / below).mkdir(parents=True)
    shutil.copy(machine / "busybox", root / "bin")
    for name in _LIBRARIES:
        shutil.copy(pathlib.Path("/usr", _CROSS, "lib", name), root / "lib")
    for name, program in programs.items():
        subprocess.run([f"{_CROSS}-strip", "-o", root / "opt" / name, program], check=True)
    init = (_HERE / "init").read_text(encoding="ascii").replace("VERDICT", _VERDICT)
    (root / "init").write_text(init.replace("FILTERS", " ".join(f"'{name}'" for name in filters)), encoding="ascii")
    (root / "init").chmod(0o755)
    with open(directory / "initrd", "wb") as initrd:
        subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=root, stdout=initrd, check=True)


def _loops():
    """The loops of known work (crates/known-work), disassembled and run by an emulator of the instructions alone: with SVE, and without."""
    for core in ("max", "neoverse-n1"):
        runner = f"qemu-aarch64-static -cpu {core} -L /usr/{_CROSS}"
        subprocess.run([os.environ.get("CARGO", "cargo"), "test", "--quiet", "--locked", "--target", _TARGET, "-p", "known-work", "--lib", "--tests"],
                       cwd=cache.REPOSITORY, env={**_environment(), _variable("RUNNER"): runner}, check=True)


def _boot(kernel, initrd):
    """Shows what the machine says; returns the tests' status."""
    command = ["timeout", "--foreground", str(3 * _SILENCE), "qemu-system-aarch64", *_MACHINE, "-kernel", kernel, "-initrd", initrd,
               "-append", _ARGUMENTS]
    parent = os.getpid()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace",
                          preexec_fn=lambda: die_with_parent(parent, 15)) as qemu:
        status = None
        for line in qemu.stdout:
            print(line.rstrip(), flush=True)
            if line.startswith(_VERDICT):
                status = int(line.removeprefix(_VERDICT))
    if status is None:
        print("the machine ended before its tests did", file=sys.stderr)
    return 1 if status is None else status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        sys.exit(f"{failure}")
