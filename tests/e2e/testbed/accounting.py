"""SLURM's accounting: slurmdbd and its database on this machine, for the slurmctld of a virtual one, and of the same suite of Debian."""

import contextlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile

from . import cache, image, packages
from .processes import Failure, connects, free_ports, running, scratch, wait_for

# slurmdbd takes messages from root and from this user alone, and runs as it. Debian gives it the same number on all machines.
_USER = "slurm"
_DBD = """AuthType=auth/munge
AuthInfo=socket={munge}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=slurm
LogFile={home}/slurmdbd.log
PidFile={home}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""
_CLIENT = """ClusterName={cluster}
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={munge}
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={munge}
"""
_CONFIG = "/etc/slurm/slurm.conf"
# Runs a command in a root directory that sees this machine's scratch directories.
_ENTER = "mount --rbind {scratch} {root}{scratch} && exec chroot {root} \"$@\""


def _programs(suite):
    """What a command of the suite's SLURM begins with: nothing if it is this machine's own suite."""
    if platform.freedesktop_os_release().get("VERSION_CODENAME") == suite:
        return []
    include = ["slurmdbd", "slurm-client"]

    def build(into):
        image.bootstrap(suite, include, into / "root")
        (into / "root/etc/hosts").write_text("127.0.0.1 localhost\n")

    root = cache.built(f"accounting-{suite}", cache.key(pathlib.Path(image.__file__), suite, *include), build) / "root"
    enter = _ENTER.format(scratch=tempfile.gettempdir(), root=root)
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", enter, "sh"]


class Accounting:
    """A running slurmdbd."""

    def __init__(self, config, programs):
        # For SLURM's commands on this machine.
        self.environment = {"SLURM_CONF": str(config)}
        if programs:
            commands = config.parent / "bin"
            commands.mkdir()
            for name in ("sacct", "sacctmgr"):
                (commands / name).write_text(f'#!/bin/sh\nexec {shlex.join([*programs, f"/usr/bin/{name}"])} "$@"\n')
                (commands / name).chmod(0o755)
            self.environment["PATH"] = f"{commands}:{os.environ['PATH']}"

    def command(self, *words):
        """The output of one of SLURM's commands on this machine."""
        done = subprocess.run(words, env=os.environ | self.environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise Failure(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def sacct(self, job, *fields, cluster=None):
        """Rows of the fields: the job, then its steps. Times are seconds since the epoch."""
        where = [f"--clusters={cluster}"] if cluster else []
        text = self.command("env", "SLURM_TIME_FORMAT=%s", "sacct", "--parsable2", "--noheader", "--duplicates",
                            f"--format={','.join(fields)}", f"--jobs={job}", *where)
        return [dict(zip(fields, line.split("|"))) for line in text.splitlines()]


@contextlib.contextmanager
def start(bed, accounts, *settings, clusters=()):
    """Accounting for a virtual machine with these accounts and their users, the first of whom is coordinator, for a with block. Lines of slurm.conf may
    be given, instead of the bed's of the same name, and other clusters, which have the same accounts. slurmctld starts again before and after the block."""
    packages.check("accounting")
    programs = _programs(bed.suite)
    with scratch("jobledger-accounting") as home, contextlib.ExitStack() as stack:
        shutil.chown(home, _USER, _USER)
        key, munge, database = home / "munge.key", home / "munge.socket", home / "data/mysqld.sock"
        key.write_bytes(bed.agent.get("/etc/munge/munge.key"))
        key.chmod(0o400)
        (port,) = free_ports(1)
        cluster = bed.run(f"sed -n 's/^ClusterName=//p' {_CONFIG}").strip()
        values = {"munge": munge, "home": home, "port": port, "cluster": cluster}
        for name, text in (("slurmdbd.conf", _DBD), ("slurm.conf", _CLIENT)):
            path = home / name
            path.write_text(text.format(**values))
            shutil.chown(path, _USER, _USER)
            path.chmod(0o600 if name == "slurmdbd.conf" else 0o644)
        found = Accounting(home / "slurm.conf", programs)
        stack.enter_context(running(
            ["munged", "-F", "--force", f"--key-file={key}", f"--socket={munge}", f"--pid-file={home}/munge.pid",
             f"--log-file={home}/munge.log", f"--seed-file={home}/munge.seed"], home / "munged.out"))
        _start_database(home, database, stack)
        environment = os.environ | found.environment | {"MYSQL_UNIX_PORT": str(database)}
        stack.enter_context(running([*programs, "slurmdbd", "-D"], home / "slurmdbd.out", env=environment))
        try:
            wait_for("slurmdbd", lambda: connects(port))
        except Failure as failure:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in [*home.glob("*.log"), *home.glob("*.out")])
            raise Failure(f"{failure}\n{logs}") from failure
        # slurmdbd informs a slurmctld of changes where it registered, and the machine is not there: all is set before it registers.
        for name in (cluster, *clusters):
            found.command("sacctmgr", "--immediate", "add", "cluster", name)
        for account, users in accounts.items():
            found.command("sacctmgr", "--immediate", "add", "account", account)
            for user in users:
                found.command("sacctmgr", "--immediate", "add", "user", user, f"account={account}")
            found.command("sacctmgr", "--immediate", "add", "coordinator", f"account={account}", f"names={users[0]}")
        address, port = bed.forward("slurmdbd", port)
        before = bed.agent.get(_CONFIG)
        stack.callback(_configure, bed, before)
        own = ["AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={address}", f"AccountingStoragePort={port}", *settings]
        names = {line.partition("=")[0] for line in own}
        others = [line for line in before.decode().splitlines() if line.partition("=")[0] not in names]
        _configure(bed, "\n".join([*others, *own, ""]).encode())
        wait_for("slurmctld to register", lambda: found.command("sacctmgr", "--noheader", "--parsable2", "show", "cluster", f"cluster={cluster}",
                                                                "format=controlhost").strip())
        yield found


def _start_database(home, database, stack):
    """Without users and passwords: nobody else may look into its directory."""
    data = home / "data"
    data.mkdir(mode=0o700)
    shutil.chown(data, _USER, _USER)
    options = ["--no-defaults", f"--datadir={data}", f"--user={_USER}"]
    subprocess.run(["mariadb-install-db", *options, "--skip-test-db", "--skip-name-resolve"], check=True, capture_output=True)
    stack.enter_context(running(
        ["mariadbd", *options, f"--socket={database}", "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=64M",
         "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"], home / "mariadbd.log"))
    wait_for("the database", lambda: "ready for connections" in (home / "mariadbd.log").read_text())


def _configure(bed, content):
    # slurmdbd gives the cluster a number. slurmctld ends itself if its files have another one.
    bed.run("systemctl stop slurmctld; rm -f /var/spool/slurmctld/clustername")
    bed.agent.put(_CONFIG, content)
    bed.run("systemctl start slurmctld")
    bed.wait_up(bed.nodes[0])
