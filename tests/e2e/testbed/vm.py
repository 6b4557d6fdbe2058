"""Virtual machines with SLURM: a root disk under qemu, without hardware virtualisation."""

import contextlib

from . import image, kernel
from .agent import Agent
from .bed import Bed, User
from .exposition import SCRAPED
from .processes import Lost, free_ports, running, scratch, wait_for

_AGENT_PORT = 7000
# Where the machine finds servers of the host (forward).
_GATEWAY, _SERVERS = "10.0.2.100", {"slurmdbd": 6819, "prometheus": 9090}
_EXPORTER_PORT = 9810
_LOG = "/run/jobledger-exporter.log"
_CPUS = 4
_SPARE_BYTES = 64 << 20
# Without what hardens Debian's kernel and costs an emulated CPU time.
_ARGUMENTS = ("console=ttyS0 panic=-1 loglevel=5 softlockup_all_cpu_backtrace=1 mitigations=off nokaslr selinux=0 "
              "apparmor=0 audit=0 tsc=reliable net.ifnames=0 init_on_alloc=0 hardened_usercopy=off "
              "randomize_kstack_offset=off")


class VirtualBed(Bed):
    """SLURM under systemd in a virtual machine."""

    users = (User("alice", 1001), User("bob", 1002))
    nodes = ("node1", "node2")
    partitions = ("main", "second")
    cpus = _CPUS
    cgroup_root = "/sys/fs/cgroup"
    inside = "/opt/testbed"
    slurm_directory = "/etc/slurm"
    has_gpus = True
    has_memory_limits = True
    has_cpu_accounting = True
    has_devices = True
    # A disk that nothing else uses.
    spare_disk = "vdb"
    log_files = ("/var/log/slurm/slurmctld.log", "/var/log/slurm/slurmd-node1.log", "/var/log/slurm/slurmd-node2.log")

    emulated = True

    def __init__(self, name, suite, cgroup, agent, exporter_port, directory, modules):
        super().__init__(name, cgroup, agent, directory)
        # Debian's.
        self.suite = suite
        # The host's address that forwards to port 9810.
        self.exporter_address = f"127.0.0.1:{exporter_port}"
        self.bmc_socket = directory / "bmc.sock"
        self._binary = None
        self._modules = modules

    def forward(self, server, port):
        """Forwards connections to a server of the host, one of _SERVERS; returns its address and port in the machine."""
        (self.directory / f"{server}.port").write_text(str(port))
        return _GATEWAY, _SERVERS[server]

    def load_module(self, name, **parameters):
        """Loads a kernel module (kernel.py lists them); a parameter may be a sequence."""
        if self._modules:
            self.agent.put("/opt/testbed/modules.tar", self._modules.read_bytes())
            self.run("cd / && tar -xf /opt/testbed/modules.tar --keep-directory-symlink && rm /opt/testbed/modules.tar")
            self._modules = None
        words = [f"{key}={','.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"
                 for key, value in parameters.items()]
        self.run(" ".join(["modprobe", name, *words]))

    def unload_module(self, name):
        """Unloads a module as soon as it is unused."""
        wait_for(f"{name} to go", lambda: self.run(f"modprobe -r {name} && echo gone"), 30)

    def start_slurmd(self, node):
        if node == self.nodes[0]:
            self.run("systemctl start slurmd")
        else:
            self.run(f"systemd-run --quiet --unit=slurmd-{node} -p Delegate=yes -p KillMode=process "
                     f"-p LimitMEMLOCK=infinity slurmd -D -N {node}")

    def stop_slurmd(self, node):
        unit = "slurmd" if node == self.nodes[0] else f"slurmd-{node}"
        self.run(f"systemctl stop {unit}; systemctl reset-failed {unit} 2>/dev/null || true")

    def remove_slurm_cgroup(self, node):
        if self.cgroup == "v2":
            self.run(f"systemctl stop {node}_slurmstepd.scope")
        else:
            self.run(f"for top in /sys/fs/cgroup/*/slurm_{node}; do find $top -depth -type d -exec rmdir {{}} +; done")

    def start_exporter(self, binary, flags=()):
        content = binary.read_bytes()
        if content != self._binary:
            self.agent.put("/opt/testbed/jobledger-exporter", content, 0o755)
            self._binary = content
        words = " ".join(f"'{flag}'" for flag in (f"--web.listen-address=:{_EXPORTER_PORT}", *SCRAPED, *flags))
        # journald takes a seventh of the machine for a log of all details.
        self.run("systemd-run --quiet --unit=jobledger-exporter -p LimitNOFILE=65536 "
                 f"-p StandardOutput=append:{_LOG} -p StandardError=append:{_LOG} "
                 f"/opt/testbed/jobledger-exporter {words}")
        return self.exporter_address

    def stop_exporter(self):
        self.run("systemctl stop jobledger-exporter; systemctl reset-failed jobledger-exporter 2>/dev/null || true")

    def kill_exporter(self):
        self.run("systemctl kill -s KILL jobledger-exporter; "
                 "while systemctl is-active -q jobledger-exporter; do sleep 0.1; done; "
                 "systemctl reset-failed jobledger-exporter 2>/dev/null || true")

    @property
    def state_file(self):
        """Where an exporter may keep its accounts for the next one."""
        return "/run/exporter-state"

    def console(self):
        lines = (self.directory / "serial.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-120:])

    def exporter_log(self):
        return self.run(f"cat {_LOG} 2>/dev/null || true")


def _numa():
    """qemu's arguments: each socket has half of the memory."""
    for node in range(2):
        yield from ("-object", f"memory-backend-ram,id=memory{node},size=1G",
                    "-numa", f"node,nodeid={node},memdev=memory{node},cpus={2 * node}-{2 * node + 1}")


@contextlib.contextmanager
def boot(name, suite, cgroup):
    """A booted machine with one idle SLURM node, for a with block."""
    disk, system = image.disk(suite), kernel.kernel()
    with scratch(f"jobledger-{name}") as directory:
        agent_port, exporter_port = free_ports(2)
        arguments = _ARGUMENTS + (" systemd.unified_cgroup_hierarchy=0" if cgroup == "v1" else "")
        forwards = (f"hostfwd=tcp:127.0.0.1:{agent_port}-10.0.2.15:{_AGENT_PORT},"
                    f"hostfwd=tcp:127.0.0.1:{exporter_port}-10.0.2.15:{_EXPORTER_PORT}")
        # A process for each connection.
        servers = "".join(f",guestfwd=tcp:{_GATEWAY}:{port}-cmd:sh -c 'exec busybox nc 127.0.0.1 $(cat {directory}/{server}.port)'"
                          for server, port in _SERVERS.items())
        spare = directory / "spare.img"
        with open(spare, "wb") as handle:
            handle.truncate(_SPARE_BYTES)
        # A CPU without AVX, whose emulation is slower than what a C library gains by it.
        # One thread for all CPUs. With a thread each, qemu 7.2 kept executing an int3 that the kernel had already replaced
        # (opening counters patches the scheduler, text_poke_bp), and the machine froze.
        command = [
            "qemu-system-x86_64", "-name", name, "-M", "q35", "-accel", "tcg,thread=single,tb-size=512",
            "-cpu", "Nehalem", "-smp", f"{_CPUS},sockets=2", "-m", "2048", *_numa(), "-nodefaults", "-no-user-config",
            "-display", "none", "-serial", f"file:{directory}/serial.log", "-no-reboot",
            "-kernel", f"{system}/vmlinuz", "-initrd", f"{system}/initrd", "-append", arguments,
            "-drive", f"file={disk},format=raw,if=none,id=disk,snapshot=on,cache=unsafe",
            "-device", "virtio-blk-pci,drive=disk",
            "-drive", f"file={spare},format=raw,if=none,id=spare,cache=unsafe",
            "-device", "virtio-blk-pci,drive=spare",
            # A BMC whose other end a scenario may be (bmc.py).
            "-chardev", f"socket,id=bmc,path={directory}/bmc.sock,server=on,wait=off",
            "-device", "ipmi-bmc-extern,id=bmc0,chardev=bmc", "-device", "isa-ipmi-kcs,bmc=bmc0",
            "-netdev", f"user,id=net,restrict=on,{forwards}{servers}", "-device", "virtio-net-pci,netdev=net,romfile="]
        with running(command, directory / "qemu.log") as qemu:
            bed = VirtualBed(name, suite, cgroup, Agent(agent_port), exporter_port, directory, system / "modules.tar")

            def answers():
                if qemu.poll() is not None:
                    raise Lost(f"{name}: qemu ended: {(directory / 'qemu.log').read_text()}")
                return bed.agent.call("true", timeout=20)[0] == 0

            wait_for(f"{name} to boot", answers, 300)
            bed.wait_up(bed.nodes[0], 300)
            yield bed
