"""The test bed's own devices: they count what the other scenarios assume."""

import time

from testbed import beds, devices
from testbed.context import equal, expect, scenario

_POWERCAP = "/sys/class/powercap"
_MIB = 1 << 20
# Disk statistics are in sectors of 512 bytes, whatever the disk's own sector size.
_SECTOR = 512


@scenario(beds.ONCE, unable=devices.no_devices, by_name=True)
def devices_are_what_they_say(context):
    """Energy, InfiniBand, RoCE, network, NFS and disk: the kernel's files change by the amounts of the harness."""
    bed = context.bed
    _sockets(bed)
    _energy(bed)
    _infiniband(bed)
    _roce(bed)
    _network(bed)
    for version in ("3", "4.2"):
        _nfs(bed, version)
    _disk(bed)


def _numbers(bed, *paths):
    return [int(word) for word in bed.run("cat " + " ".join(paths)).split()]


def _sockets(bed):
    packages = _numbers(bed, "/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id")
    equal("sockets of the CPUs", packages, [0, 0, 1, 1])
    equal("CPUs by NUMA node", bed.run("cat /sys/devices/system/node/node[01]/cpulist").split(), ["0-1", "2-3"])


def _energy(bed):
    zones = {"intel-rapl:0": ("package", 0), "intel-rapl:0:1": ("dram", 0), "intel-rapl:1": ("package", 1),
             "intel-rapl:1:0": ("dram", 1)}
    files = [f"{_POWERCAP}/{zone}/energy_uj" for zone in zones]
    # The counters of the packages wrap about every 20 seconds.
    range_uj = 2_000_000_000
    with devices.rapl(bed, range_uj=range_uj) as rapl:
        names = bed.run(f"cd {_POWERCAP}; cat {' '.join(f'{zone}/name' for zone in zones)}").split()
        equal("names", names, [f"package-{socket}" if domain == "package" else domain
                               for domain, socket in zones.values()])
        expect(bed.agent.call(f"{bed.slurm.as_user(bed.users[0])} cat {files[0]}")[0] != 0, "a user can read energy_uj")
        equal("range", _numbers(bed, f"{_POWERCAP}/intel-rapl:0/max_energy_range_uj"), [range_uj])
        for _ in range(4):
            read = devices.timed(bed, lambda: _numbers(bed, *files))
            for (domain, socket), shown in zip(zones.values(), read.value, strict=True):
                watts = rapl.watts[domain, socket]
                # Since boot. /proc/uptime has a resolution of 10 ms.
                least, most = (int(watts * seconds * 1e6) for seconds in (read.before, read.after + 0.01))
                expect((shown - least) % (range_uj + 1) <= most - least,
                       f"{domain} {socket}: {shown} uJ, not {least} to {most} modulo {range_uj + 1}")
            time.sleep(2)
    expect(bed.agent.call(f"test -e {_POWERCAP}/intel-rapl:0")[0] != 0, "the zones are left after their module was unloaded")


def _infiniband(bed):
    port = "/sys/class/infiniband/mlx5_1/ports/1"
    files = [f"{port}/counters/{name}" for name in ("port_rcv_data", "port_xmit_data")]
    with devices.infiniband(bed, count=2) as adapters:
        equal("a new adapter's words", _numbers(bed, *files), [0, 0])
        adapters.move(received=_MIB, transmitted=3 * _MIB, adapter=1)
        adapters.move(received=4, transmitted=0, adapter=0)
        equal("words", _numbers(bed, *files), [_MIB // 4, 3 * _MIB // 4])
        # 10 ms, rounded up to the kernel's ticks.
        (lifespan,) = _numbers(bed, f"{port}/hw_counters/lifespan")
        expect(10 <= lifespan < 20, f"a lifespan of {lifespan} ms")
        equal("link", bed.run(f"cat {port}/link_layer").strip(), "InfiniBand")
        adapters.unplug()
        expect(bed.agent.call(f"test -e {port}")[0] != 0, "the adapters are left after their module was unloaded")
        adapters.plug()
        equal("words of an adapter that came back", _numbers(bed, *files), [0, 0])


def _roce(bed):
    counters = "/sys/class/infiniband/rxe0/ports/1/hw_counters"
    files = [f"{counters}/sent_pkts", f"{counters}/rcvd_pkts"]
    with devices.soft_roce(bed):
        before = _numbers(bed, *files)
        devices.roce_pingpong(bed, 100)
        # The driver updates counters that are older than their lifespan.
        time.sleep(0.1)
        after = _numbers(bed, *files)
        for what, old, new in zip(("sent", "received"), before, after, strict=True):
            expect(new - old >= 200, f"{what}: {new - old} packets of 100 messages there and 100 back")


def _network(bed):
    with devices.veth(bed) as cable:
        statistics = f"/sys/class/net/{cable.interface}/statistics"
        files = [f"{statistics}/tx_bytes", f"{statistics}/rx_bytes"]
        before = _numbers(bed, *files)
        bed.run(cable.ask(200, sent=1000, answered=300))
        for what, old, new, size in zip(("sent", "received"), before, _numbers(bed, *files), (1000, 300), strict=True):
            # 42 bytes of headers, and now and then an ARP packet.
            expect(0 <= new - old - 200 * (size + 42) < 2000, f"{what}: {new - old} bytes of 200 times {size}")


def _nfs(bed, version):
    def moved():
        section = bed.run("cat /proc/self/mountstats").partition(f"mounted on {mount} with fstype nfs")[2]
        # nfs_show_stats: normal, direct and server's bytes, read and written each, then pages.
        return [int(word) for word in section.partition("bytes:")[2].split()[2:6]]

    with devices.nfs(bed, version) as mount:
        before = moved()
        bed.run(devices.write_file(f"{mount}/file", 2))
        written = moved()
        bed.run(devices.read_file(f"{mount}/file", 2))
        read = moved()
        # direct read, direct written, server read, server written
        equal(f"NFS {version}: written", [new - old for old, new in zip(before, written, strict=True)],
              [0, 2 * _MIB, 0, 2 * _MIB])
        equal(f"NFS {version}: read", [new - old for old, new in zip(written, read, strict=True)],
              [2 * _MIB, 0, 2 * _MIB, 0])


def _disk(bed):
    def sectors():
        words = bed.run(f"grep -w {bed.spare_disk} /proc/diskstats").split()
        return int(words[5]), int(words[9])

    before = sectors()
    bed.run(devices.write_file(f"/dev/{bed.spare_disk}", 3))
    written = sectors()
    bed.run(devices.read_file(f"/dev/{bed.spare_disk}", 2))
    read = sectors()
    equal("sectors written", written[1] - before[1], 3 * _MIB // _SECTOR)
    equal("sectors read", read[0] - written[0], 2 * _MIB // _SECTOR)
