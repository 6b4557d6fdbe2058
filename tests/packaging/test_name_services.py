"""Users' names from sssd and nscd, asked by the exporter with all that it gave up: user, system calls, sockets.

As root, with mmdebstrap (tests/tools/install-packages.sh container) and the exporter (make tested-programs). The services are Debian's:
unpacked, not installed. The exporter shares with each the directory of its socket alone, and its own files do not know the user.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

from support import EXPORTER, ROOT

sys.path[:0] = [str(ROOT / "tests/e2e")]

from testbed import cache  # noqa: E402
from testbed.processes import free_ports, running, wait_for  # noqa: E402

# getent is in libc-bin.
PACKAGES = ["libc-bin", "libnss-sss", "nscd", "sssd-common"]
UID = 4711
# The machine is this suite's, and so is its C library.
SUITE = "bookworm"
OWNERS = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
ALICE = f"alice:x:{UID}:{UID}::/:/bin/sh\n"
SSSD = """[sssd]
services = nss
domains = site
[domain/site]
id_provider = files
passwd_files = /etc/passwd.site
group_files = /etc/group.site
"""
# What a program has of its own in the root directory $0 is below $1; of $2, a directory below another one's, it has that one's.
ENTER = """set -e
for own in etc var run tmp node; do mount --bind "$1/$own" "$0/$own"; done
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount --bind "$2/$3" "$0/$3"; root=$0; shift 3
exec chroot "$root" "$@"
"""


def packages():
    """The root directory with the services, in which nothing was configured."""
    def build(into):
        root = into / "root"
        subprocess.run(["unshare", "--mount", "--propagation", "private", "mmdebstrap", "--mode=root", "--variant=extract", "--quiet",
                        f"--include={','.join(PACKAGES)}", SUITE, root], check=True, stdin=subprocess.DEVNULL)
        for name in ("proc", "run", "tmp", "node"):
            (root / name).mkdir(exist_ok=True)
        (root / "var/run").symlink_to("../run")
    return cache.built("name-services", cache.key(*PACKAGES), build) / "root"


def own(at, modules, users):
    """What a program has of its own: the users that it knows, and where it asks for others."""
    for name in ("run", "tmp", "node"):
        (at / name).mkdir(parents=True)
    for name in ("etc", "var"):
        shutil.copytree(packages() / name, at / name, symlinks=True)
    (at / "etc/passwd").write_text(OWNERS + users)
    (at / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (at / "etc/nsswitch.conf").write_text(f"passwd: {modules}\ngroup: {modules}\n")
    return at


def inside(own_files, service, shared, *command):
    """The command of a program that shares a directory with the service."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, packages(), own_files, service, shared, *command]


def job(at):
    """A job of the user, as files: its cgroup and the prolog's file."""
    cgroup = at / "cgroup/system.slice/slurmstepd.scope/job_5"
    cgroup.mkdir(parents=True)
    (at / "cgroup/cgroup.controllers").touch()
    (cgroup / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (at / "jobs").mkdir()
    (at / "jobs/5").write_text(f"job_id=5\nuid={UID}\n")


class NameServices(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobledger-names-")))
        self.home.chmod(0o755)
        self.stack = stack

    def name(self, service, module, shared, command):
        """Waits until the exporter has the name of the job's user from the service."""
        log = self.home / "log"
        self.stack.enter_context(running(inside(service, service, shared, *command), log))
        asking = own(self.home / "exporter", f"files {module}".strip(), "")
        (asking / shared).mkdir(parents=True, exist_ok=True)
        shutil.copy(EXPORTER, asking / "node/exporter")
        job(asking / "node")
        # The exporter asks again for a user that it did not get a minute later.
        getent = inside(asking, service, shared, "getent", "passwd", str(UID))
        wait_for("the service", lambda: subprocess.run(getent, capture_output=True, check=False).returncode == 0)
        (port,) = free_ports(1)
        exporter = self.stack.enter_context(running(inside(
            asking, service, shared, "/node/exporter", "--path.cgroupfs=/node/cgroup", "--jobs.metadata-dir=/node/jobs",
            f"--web.listen-address=127.0.0.1:{port}"), log))

        def named():
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
                return any(line.startswith("jobledger_job_info{") and 'user="alice"' in line for line in page.read().decode().splitlines())
            return False

        try:
            wait_for("the name of the job's user", named)
        except Exception as error:
            raise AssertionError(log.read_text()) from error
        status = Path(f"/proc/{exporter.pid}/status").read_text()
        self.assertRegex(status, r"Uid:\t65534\t")
        self.assertRegex(status, r"Seccomp:\t2\n")

    def test_sssd(self):
        service = own(self.home / "service", "files", "")
        (service / "etc/sssd/sssd.conf").write_text(SSSD)
        (service / "etc/sssd/sssd.conf").chmod(0o600)
        (service / "etc/passwd.site").write_text(ALICE)
        (service / "etc/group.site").write_text(f"alice:x:{UID}:\n")
        self.name(service, "sss", "var/lib/sss", ["/usr/sbin/sssd", "--interactive", "--logger=stderr"])

    def test_nscd(self):
        service = own(self.home / "service", "files", ALICE)
        (service / "run/nscd").mkdir(parents=True)
        self.name(service, "", "run/nscd", ["/usr/sbin/nscd", "--foreground"])


if __name__ == "__main__":
    unittest.main()
