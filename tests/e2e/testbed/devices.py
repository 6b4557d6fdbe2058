"""Devices with known counts in a virtual machine, each for a with block."""

import contextlib
import dataclasses
import pathlib

from .processes import wait_for

_TRAFFIC = pathlib.Path(__file__).with_name("traffic.py")
_WORD = 4


def no_devices(bed):
    """Why a bed has no such devices, or None."""
    return None if bed.has_devices else "devices are made in virtual machines only"


@contextlib.contextmanager
def _module(bed, name, **parameters):
    bed.load_module(name, **parameters)
    try:
        yield
    finally:
        bed.unload_module(name)


# Time


@dataclasses.dataclass(frozen=True)
class Timed:
    """A value read in a bed, with the seconds since boot before and after reading it."""

    value: object
    before: float
    after: float

    def until(self, later):
        """Bounds of the seconds from this reading to a later one. The clock's resolution is 10 ms."""
        return later.before - self.after - 0.01, later.after - self.before + 0.01


def timed(bed, read):
    """Calls `read()` between two readings of the bed's uptime, which the energy counters follow."""
    before = uptime(bed)
    value = read()
    return Timed(value, before, uptime(bed))


def uptime(bed):
    """Seconds since the bed's boot."""
    return float(bed.run("cat /proc/uptime").split()[0])


# Energy


@dataclasses.dataclass(frozen=True)
class Rapl:
    """The energy counters: watts by domain and socket."""

    watts: dict

    def joules(self, domain, socket, first, second):
        """Bounds of the joules between two `Timed` readings."""
        return tuple(self.watts[domain, socket] * seconds for seconds in first.until(second))


@contextlib.contextmanager
def rapl(bed, package=(100, 90), dram=(20, 15), range_uj=None):
    """Energy counters of two sockets with these watts, which wrap after `range_uj`."""
    parameters = {"package": package, "dram": dram} | ({"range_uj": range_uj} if range_uj else {})
    watts = {(domain, socket): of_socket for domain, sockets in (("package", package), ("dram", dram))
             for socket, of_socket in enumerate(sockets)}
    with _module(bed, "fakerapl", **parameters):
        yield Rapl(watts)


# InfiniBand


class Infiniband:
    """Adapters mlx5_0, mlx5_1, ... with one port each. `set_words` sets their data counters."""

    def __init__(self, bed, count):
        self._bed = bed
        self.received, self.transmitted = [0] * count, [0] * count

    def set_words(self):
        """Sets the counters: words of four bytes by adapter."""
        self._bed.run("cd /sys/module/fakeib/parameters; " + "; ".join(
            f"echo {','.join(map(str, words))} > {name}"
            for name, words in (("received", self.received), ("transmitted", self.transmitted))))

    def move(self, received, transmitted, adapter=0):
        """Adds bytes to the counters, in multiples of four."""
        self.received[adapter] += received // _WORD
        self.transmitted[adapter] += transmitted // _WORD
        self.set_words()

    def unplug(self):
        """Removes all adapters."""
        self._bed.unload_module("fakeib")

    def plug(self):
        """Adds the adapters again. They count from zero, as real ones do."""
        count = len(self.received)
        self.received, self.transmitted = [0] * count, [0] * count
        self._bed.load_module("fakeib", devices=count)


@contextlib.contextmanager
def infiniband(bed, count=1):
    """`count` InfiniBand adapters."""
    adapters = Infiniband(bed, count)
    adapters.plug()
    try:
        yield adapters
    finally:
        adapters.unplug()


@contextlib.contextmanager
def soft_roce(bed):
    """The adapter rxe0 on eth0. It has hw_counters only, which `roce_pingpong` moves."""
    bed.load_module("ib_uverbs")
    with _module(bed, "rdma_rxe"):
        bed.run("rdma link add rxe0 type rxe netdev eth0")
        try:
            yield
        finally:
            bed.run("rdma link delete rxe0")


def roce_pingpong(bed, exchanges=100):
    """Sends messages from rxe0 to itself: the kernel's driver counts them on both ends."""
    gids = "/sys/class/infiniband/rxe0/ports/1/gids"
    # 10.0.2.15, as an IPv6 address.
    bed.run(f"""index=$(cd {gids}; grep -l ffff:0a00:020f * | head -n 1)
        ibv_rc_pingpong -d rxe0 -g $index -n {exchanges} > /dev/null & server=$!
        for try in $(seq 20); do
            ibv_rc_pingpong -d rxe0 -g $index -n {exchanges} 10.0.2.15 > /dev/null && break
            sleep 0.5
        done
        wait $server""")


# Network


class Veth:
    """A cable to another network namespace, with a program that answers datagrams (traffic.py)."""

    interface = "veth0"
    address = "10.77.0.2"
    loopback = "127.0.0.1"

    def __init__(self, bed):
        self._script = f"{bed.inside}/traffic.py"

    def ask(self, count, sent, answered, address=address):
        """A command that sends `count` datagrams of `sent` bytes, each answered with `answered` bytes."""
        return f"python3 -B {self._script} ask {address} {count} {sent} {answered}"


@contextlib.contextmanager
def veth(bed):
    """A `Veth`. Datagrams on the loopback interface are answered, too."""
    cable = Veth(bed)
    bed.load_module("veth")
    bed.agent.put(f"{bed.inside}/traffic.py", _TRAFFIC.read_bytes(), 0o755)
    answer = f"systemd-run --quiet --collect --unit=testbed-answer%s %s python3 -B {bed.inside}/traffic.py answer"
    bed.run(f"""ip netns add far
        ip link add {cable.interface} type veth peer name veth1 netns far
        ip address add 10.77.0.1/24 dev {cable.interface}
        ip link set {cable.interface} up
        ip -n far address add {cable.address}/24 dev veth1
        ip -n far link set veth1 up
        {answer % ("-far", "ip netns exec far")}
        {answer % ("-near", "")}""")
    try:
        for address in (cable.address, cable.loopback):
            wait_for("an answer", lambda address=address: bed.agent.call(cable.ask(1, 1, 1, address))[0] == 0, 60)
        yield cable
    finally:
        bed.run(f"systemctl stop testbed-answer-far testbed-answer-near; ip link delete {cable.interface}; "
                "ip netns delete far")


# Files and disks


@contextlib.contextmanager
def nfs(bed, version="3"):
    """The directory of an NFS mount of this machine's own export."""
    export, mount = "/srv/export", "/mnt/nfs"
    options = f"vers={version},proto=tcp,port=2049" + (
        ",nolock,mountproto=tcp,mountport=20048" if version.startswith("3") else "")
    bed.load_module("nfsd")
    bed.run(f"""set -e
        mkdir -p {export} {mount}; chmod 1777 {export}
        mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
        systemd-run --quiet --collect --unit=testbed-rpcbind rpcbind -f -w
        exportfs -o rw,sync,no_root_squash,no_subtree_check,insecure,fsid=0 127.0.0.1:{export}
        for try in $(seq 50); do test -S /run/rpcbind.sock && break; sleep 0.1; done
        systemd-run --quiet --collect --unit=testbed-mountd rpc.mountd -F -p 20048
        rpc.nfsd --grace-time 1 --lease-time 10 2""")
    try:
        source = "127.0.0.1:" + (export if version.startswith("3") else "/")
        wait_for("the mount", lambda: bed.agent.call(f"mount -t nfs -o {options} {source} {mount}")[0] == 0, 60)
        try:
            yield mount
        finally:
            bed.run(f"umount {mount}")
    finally:
        bed.run(f"rpc.nfsd 0; exportfs -au; systemctl stop testbed-mountd testbed-rpcbind; rm -rf {export}")


def write_file(path, mebibytes):
    """A command that writes a new file to the server or disk, bypassing all caches."""
    return f"dd if=/dev/zero of={path} bs=64k count={mebibytes * 16} oflag=direct status=none"


def read_file(path, mebibytes):
    """A command that reads from the server or disk, bypassing all caches. A read at the end of the file counts, too."""
    return f"dd if={path} of=/dev/null bs=64k count={mebibytes * 16} iflag=direct status=none"
