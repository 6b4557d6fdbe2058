"""GPUs as amdgpu, i915 and xe show them in sysfs, and DRM descriptors of processes.

Made after the drivers' sources (drivers/gpu/drm/amd/include/kgd_pp_interface.h, amdgpu_pm.c, amdkfd/kfd_topology.c, xe_hwmon.c,
xe_drm_client.c, i915's hwmon), not seen on a live node; the numbers are made.
"""

import struct

from interconnect import pci

ONES = {2: 0xFFFF, 4: 0xFFFFFFFF, 8: 0xFFFFFFFFFFFFFFFF}


class Table:
    """A structure whose unset bytes are 0xff, as in the driver."""

    def __init__(self, size, form, content):
        self.data = bytearray(b"\xff" * size)
        struct.pack_into("<HBB", self.data, 0, size, form, content)

    def put(self, code, at, *values):
        struct.pack_into("<%d%s" % (len(values), code), self.data, at, *values)
        return self

    def bytes(self):
        return bytes(self.data)


def metrics_1_3(temperatures, activity, power, joules, throttle=0):
    """MI200: sums of activity without a count of cycles."""
    table = Table(120, 1, 3).put("H", 4, *temperatures).put("H", 16, *activity).put("H", 22, power)
    table.put("Q", 24, joules << 16, 86_411_000_000_000).put("H", 54, 1650, 1090, 1600)
    return table.put("H", 72, 0, 16, 160).put("I", 80, 912_345_678, 81_234_567).put("Q", 96, 8_641_100_000_000).put("Q", 112, throttle).bytes()


def metrics_1_8(power, joules, cycles, gfx, memory, partitions, xgmi):
    """MI300: `partitions` has the sums of each partition's dies."""
    table = Table(3872, 1, 8).put("H", 4, 61, 55, 49, power, gfx // cycles, memory // cycles)
    table.put("Q", 24, joules << 16, 86_411_000_000_000).put("I", 40, cycles, 0, 0, 0, 0, 0).put("H", 68, 16, 320)
    table.put("I", 76, gfx & 0xFFFFFFFF, memory & 0xFFFFFFFF).put("Q", 112, 3)
    table.put("Q", 136, *[xgmi[0]] * 7).put("Q", 200, *[xgmi[1]] * 7).put("Q", 288, cycles * 100_000)
    table.put("H", 296, *[2100] * 8).put("H", 312, 1200).put("H", 336, 1300).put("H", 338, len(partitions))
    for number, dies in enumerate(partitions):
        table.put("Q", 344 + number * 440 + 120, *dies)
    return table.bytes()


def metrics_1_9(attributes):
    """A list of attributes: id, unit, type, values; a value that is None is all ones."""
    body = b""
    for ident, unit, code, values in attributes:
        kind = "BbHhIiQq".index(code)
        body += struct.pack("<Q", unit << 24 | kind << 20 | ident << 10 | len(values))
        body += b"".join(struct.pack("<" + code, ONES[struct.calcsize(code)] if v is None else v) for v in values)
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(attributes)) + body


def card(a, number, render, address, driver, vendor, device):
    """A card with its render node; gives the directories of the card and of its PCI device."""
    at = pci(a, address, driver, vendor)
    a.file(at + "/device", device + "\n")
    for name in ["card%d" % number] + (["renderD%d" % render] if render else []):
        a.dir("%s/drm/%s" % (at, name))
        a.link("sys/class/drm/" + name, "../../%s/drm/%s" % (at[len("sys/"):], name))
        a.link("%s/drm/%s/device" % (at, name), "../../../" + address)
    return "%s/drm/card%d" % (at, number), at


def files(a, at, **content):
    for name, value in content.items():
        a.file("%s/%s" % (at, name), value if isinstance(value, bytes) else "%s\n" % value)


def link(a, at, speed, width):
    files(a, at, current_link_speed=speed, current_link_width=width, max_link_speed=speed, max_link_width=width)


def errors(a, at, **blocks):
    for block, (uncorrected, corrected) in blocks.items():
        a.file("%s/ras/%s_err_count" % (at, block), "ue: %d\nce: %d\n" % (uncorrected, corrected))


def kfd(a, node, gpu, address, partition, render, simds):
    bus, device = int(address[5:7], 16), int(address[8:10], 16)
    at = "sys/class/kfd/kfd/topology/nodes/%d" % node
    a.file(at + "/gpu_id", "%d\n" % gpu)
    rows = [("cpu_cores_count", 0 if gpu else 64), ("simd_count", simds), ("mem_banks_count", 1), ("vendor_id", 4098 if gpu else 0),
            ("location_id", bus << 8 | device << 3 | partition), ("domain", int(address[:4], 16)), ("drm_render_minor", render),
            ("hive_id", 11236453123456789)]
    a.file(at + "/properties", "".join("%s %d\n" % row for row in rows))


def kfd_process(a, pid, vram):
    for gpu, size in vram.items():
        a.file("sys/class/kfd/kfd/proc/%d/vram_%d" % (pid, gpu), "%d\n" % size)
        a.file("sys/class/kfd/kfd/proc/%d/sdma_%d" % (pid, gpu), "0\n")


def descriptor(a, pid, fd, node, owner, rows):
    """A descriptor that a process has open, `rows` those of DRM."""
    a.link("proc/%d/fd/%d" % (pid, fd), "/dev/dri/" + node)
    head = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t%d\n" % (600 + fd)
    a.file("proc/%d/fdinfo/%d" % (pid, fd), head + "".join("%s:\t%s\n" % row for row in rows), owner=owner)


def other_descriptor(a, pid, owner):
    a.link("proc/%d/fd/0" % pid, "/dev/null")
    a.file("proc/%d/fdinfo/0" % pid, "pos:\t0\nflags:\t0100000\nmnt_id:\t24\nino:\t4\n", owner=owner)


def amdgpu_client(address, client, vram_kib, gfx=0, compute=0):
    rows = [("drm-driver", "amdgpu"), ("drm-client-id", client), ("drm-pdev", address), ("pasid", 32770 + client),
            ("drm-memory-vram", "%d KiB" % vram_kib), ("drm-memory-gtt", "2048 KiB"), ("drm-memory-cpu", "0 KiB"),
            ("amd-requested-vram", "%d KiB" % vram_kib)]
    return rows + [("drm-engine-" + name, "%d ns" % ns) for name, ns in (("gfx", gfx), ("compute", compute)) if ns]


def xe_client(address, client, vram_kib, ccs, clock, engines=4):
    rows = [("drm-driver", "xe"), ("drm-client-id", client), ("drm-pdev", address), ("drm-total-system", 0),
            ("drm-total-vram0", "%d KiB" % (vram_kib + 8)), ("drm-resident-vram0", "%d KiB" % vram_kib)]
    for name, cycles, capacity in (("rcs", 0, 1), ("bcs", 77000, 1), ("ccs", ccs, engines)):
        rows += [("drm-cycles-" + name, cycles), ("drm-total-cycles-" + name, clock)]
        rows += [("drm-engine-capacity-" + name, capacity)] if capacity > 1 else []
    return rows


def i915_client(address, client, local_mib, render, compute):
    return [("drm-driver", "i915"), ("drm-pdev", address), ("drm-client-id", client), ("drm-engine-render", "%d ns" % render),
            ("drm-engine-copy", "5 ns"), ("drm-engine-compute", "%d ns" % compute), ("drm-engine-capacity-compute", 4),
            ("drm-total-local0", "%d MiB" % local_mib), ("drm-resident-local0", "%d MiB" % local_mib), ("drm-total-system0", "1 MiB")]


# Machines -------------------------------------------------------------------------------------------------------------

def processes(job):
    """The processes of the job's user, by pid."""
    return sorted((p for p in job.all_procs() if p.uid), key=lambda p: p.pid)


def mi250(a, first, second):
    """Two boards of two dies and a display chip without a render node."""
    card(a, 0, None, "0000:03:00.0", "ast", "0x1a03", "0x2000")
    gib = 1 << 30
    for die in range(4):
        address, primary = "0000:%s:00.0" % ("c1", "c6", "c9", "ce")[die], die % 2 == 0
        _, at = card(a, 1 + die, 128 + die, address, "amdgpu", "0x1002", "0x740c")
        unique = "%016x" % (0x39F9E7D2AA1B5000 + die)
        table = metrics_1_3((41, 44, 47, 40, 36, 38), (37, 12), 287 if primary else 0, 123456 if primary else 0, throttle=1 << 34 if die == 0 else 0)
        files(a, at, unique_id=unique, serial_number="692218000555" if die < 2 else unique[1:],
              product_name="AMD INSTINCT MI250 (MCM) OAM AC MBA" if primary else "", gpu_busy_percent=37, mem_busy_percent=12,
              mem_info_vram_total=64 * gib, mem_info_vram_used=(9 + die) * gib, mem_info_gtt_total=256 * gib, mem_info_gtt_used=14 << 20,
              mem_info_vis_vram_total=64 * gib, mem_info_vis_vram_used=(9 + die) * gib, pcie_replay_count=2, gpu_metrics=table)
        link(a, at, "16.0 GT/s PCIe", 16)
        errors(a, at, umc=(0, 7 if die == 0 else 0), gfx=(0, 0))
        files(a, at + "/hwmon/hwmon%d" % (4 + die), name="amdgpu", temp1_input=41000, temp1_label="edge", temp2_input=44000, temp2_label="junction",
              temp3_input=47000, temp3_label="mem", power1_average=287_000_000 if primary else 0, power1_cap=500_000_000, power1_cap_max=500_000_000,
              power1_cap_min=0, power1_cap_default=500_000_000, freq1_input=1_650_000_000, freq2_input=1_600_000_000)
        kfd(a, 2 + die, 20000 + die, address, 0, 128 + die, 416)
    kfd(a, 0, 0, "0000:00:00.0", 0, 0, 0)
    rocm, drm = processes(first)[-1], processes(second)[-1]
    owner = lambda p: (p.uid, p.uid)
    # KFD opens every GPU that the job may have; the process uses the first die.
    kfd_process(a, rocm.pid, {20000: 8 * gib, 20001: 0})
    descriptor(a, rocm.pid, 5, "renderD128", owner(rocm), amdgpu_client("0000:c1:00.0", 31, 8 << 20))
    descriptor(a, rocm.pid, 6, "renderD129", owner(rocm), amdgpu_client("0000:c6:00.0", 32, 0))
    # One client through two descriptors.
    for fd in (7, 8):
        descriptor(a, drm.pid, fd, "renderD130", owner(drm), amdgpu_client("0000:c9:00.0", 44, 4096, gfx=1_000_000_000, compute=61_500_000_000))
    other_descriptor(a, drm.pid, owner(drm))


def mi300(a, first, second):
    """One GPU that is whole and one of four partitions."""
    gib = 1 << 30
    for gpu, (address, mode) in enumerate((("0000:0c:00.0", "SPX"), ("0000:9f:00.0", "QPX"))):
        _, at = card(a, gpu, 128 + 4 * gpu, address, "amdgpu", "0x1002", "0x74a1")
        if gpu == 0:
            table = metrics_1_9([(0, 2, "H", [58]), (1, 2, "H", [44]), (3, 3, "H", [612]), (4, 10, "H", [83]), (7, 0, "Q", [5_000_000 << 16]),
                                 (8, 4, "Q", [86_411_000_000_000]), (9, 0, "Q", [86_400_000]), (16, 0, "H", [16]), (17, 7, "H", [320]),
                                 (20, 10, "I", [2_000_000_000]), (21, 10, "I", [700_000_000]), (25, 0, "Q", [0]), (29, 9, "Q", [1000] * 7 + [None]),
                                 (30, 9, "Q", [2000] * 7 + [None]), (32, 5, "Q", [8_640_000_000_000]), (33, 1, "H", [2100] * 6 + [1400, 1400]),
                                 (37, 1, "H", [1300]), (43, 10, "Q", [9] * 8)])
        else:
            table = metrics_1_8(431, 4_000_000, 86_400_000, 2_160_000_000, 432_000_000,
                                [[4_320_000_000] * 2, [0, 0], [8_640_000_000, 0], [864_000_000] * 2], (500, 600))
        files(a, at, unique_id="%016x" % (0xA1B2C3D400000010 + gpu), serial_number="69240%d00471" % gpu, product_name="AMD Instinct MI300X OAM",
              current_compute_partition=mode, current_memory_partition="NPS1", gpu_busy_percent=83 if gpu == 0 else 25, mem_info_vram_total=192 * gib,
              mem_info_vram_used=(100 - 60 * gpu) * gib, mem_info_gtt_total=512 * gib, mem_info_gtt_used=20 << 20, pcie_replay_count=0, gpu_metrics=table)
        link(a, at, "32.0 GT/s PCIe", 16)
        errors(a, at, umc=(0, 0))
        files(a, at + "/hwmon/hwmon%d" % (3 + gpu), name="amdgpu", temp2_input=58000 + 3000 * gpu, temp2_label="junction", temp3_input=44000,
              temp3_label="mem", power1_input=612_000_000 - gpu * 181_000_000, power1_cap=750_000_000, power1_cap_max=750_000_000)
    kfd(a, 2, 41000, "0000:0c:00.0", 0, 128, 1216)
    for part in range(4):
        kfd(a, 3 + part, 42000 + part, "0000:9f:00.0", part, 132 + part, 304)
        if part:
            # The other partitions' nodes have their own devices (drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c).
            name = "renderD%d" % (132 + part)
            at = "sys/devices/platform/amdgpu_xcp_%d" % (part - 1)
            a.dir("%s/drm/%s" % (at, name))
            a.link("sys/class/drm/" + name, "../../%s/drm/%s" % (at[len("sys/"):], name))
            a.link("%s/drm/%s/device" % (at, name), "../../../amdgpu_xcp_%d" % (part - 1))
    whole, part = processes(first)[-1], processes(second)[-1]
    kfd_process(a, whole.pid, {41000: 96 * gib})
    kfd_process(a, part.pid, {42002: 30 * gib})
    descriptor(a, part.pid, 5, "renderD134", (part.uid, part.uid), amdgpu_client("0000:9f:00.0", 12, 30 << 20))


def mi300a(a, first, second):
    """Two sockets with CPU cores, each a GPU; `card` of the first is the first socket's."""
    gib = 1 << 30
    for socket in range(2):
        address = "%04x:01:00.0" % socket
        _, at = card(a, socket, 128 + socket, address, "amdgpu", "0x1002", "0x74a0")
        table = metrics_1_8(291 - socket * 170, 2_500_000 - socket * 700_000, 86_400_000, 2_160_000_000, 432_000_000, [[2_160_000_000] * 6], (500, 600))
        files(a, at, unique_id="%016x" % (0xA1B2C3D400000020 + socket), product_name="AMD Instinct MI300A", current_compute_partition="SPX",
              current_memory_partition="NPS1", gpu_busy_percent=25, mem_info_vram_total=128 * gib, mem_info_vram_used=(40 - 30 * socket) * gib,
              mem_info_gtt_total=64 * gib, mem_info_gtt_used=20 << 20, gpu_metrics=table)
        files(a, at + "/hwmon/hwmon%d" % (3 + socket), name="amdgpu", temp2_input=48000, temp2_label="junction",
              power1_input=291_000_000 - socket * 170_000_000, power1_cap=550_000_000, power1_cap_max=550_000_000)
        kfd(a, 2 + socket, 43000 + socket, address, 0, 128 + socket, 912)
    kfd_process(a, processes(first)[-1].pid, {43000: 30 * gib})


def intel(a, first, second):
    """One GPU with xe, one with i915."""
    at_card, at = card(a, 1, 128, "0000:4d:00.0", "xe", "0x8086", "0x56c0")
    link(a, at, "16.0 GT/s PCIe", 16)
    files(a, at + "/hwmon/hwmon2", name="xe", energy1_input=7_654_321_000_000, energy2_input=6_000_000_000_000, power1_max=150_000_000,
          power1_crit=0, power1_rated_max=150_000_000, temp2_input=52000, temp3_input=60000)
    for gt, frequency in ((0, 1950), (1, 0)):
        freq = "%s/tile0/gt%d/freq0" % (at, gt)
        files(a, freq, act_freq=frequency, rp0_freq=2050, cur_freq=1950)
        files(a, freq + "/throttle", status=gt, reason_pl1=gt, reason_pl2=0, reason_pl4=0, reason_thermal=0, reason_prochot=0)
    at_card, at = card(a, 2, 129, "0000:9a:00.0", "i915", "0x8086", "0x0bda")
    link(a, at, "32.0 GT/s PCIe", 16)
    gib = 1 << 30
    files(a, at_card, lmem_total_bytes=48 * gib, lmem_avail_bytes=40 * gib)
    files(a, at_card + "/gt/gt0", rps_act_freq_mhz=1550, rps_RP0_freq_mhz=1550, throttle_reason_status=0, throttle_reason_pl1=0,
          throttle_reason_thermal=0)
    files(a, at + "/hwmon/hwmon3", name="i915", energy1_input=1_111_000_000, power1_max=300_000_000)
    files(a, at + "/hwmon/hwmon4", name="i915_gt0", energy1_input=999_000_000)
    one, two = processes(first)[-1], processes(second)[-1]
    descriptor(a, one.pid, 4, "renderD128", (one.uid, one.uid), xe_client("0000:4d:00.0", 9, 23992, 400_000_000, 5_000_000_000))
    descriptor(a, two.pid, 4, "renderD129", (two.uid, two.uid), i915_client("0000:9a:00.0", 3, 512, 1_000_000_000, 8_000_000_000))
