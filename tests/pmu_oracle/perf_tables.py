"""The vendors' tables of events that are compiled into perf, read from the program's file without running it.

tools/perf/pmu-events/jevents.py of Linux writes them: an array that maps CPUs to tables (`struct pmu_events_map`), in a table an array
for each PMU (`struct pmu_table_entry`), and in that the offset of each event in one large text. The text of an event is its attributes,
one after the other. Debian builds perf for each architecture with the tables of that architecture.
"""

import collections
import re
import struct

# ELF (elf.h): 64 bits, little-endian; relocations without a symbol, by machine.
_RELATIVE = {62: 8, 183: 1027}
_SHT_RELA = 4
_ARCHITECTURES = {62: b"x86", 183: b"arm64"}

# struct pmu_events_map: arch, cpuid, {pmus, num_pmus} of events, {name, pmus, num_pmus} of metrics; struct pmu_table_entry: entries,
# num_entries, pmu_name.
_ENTRY_SIZE = 16
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]+")


class _Program:
    """An ELF file as it lies in memory, and its pointers."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("%s is no 64-bit little-endian ELF file" % path)
        self.machine = struct.unpack_from("<H", self.data, 18)[0]
        (phoff, shoff), (phentsize, phnum, shentsize, shnum) = (
            struct.unpack_from("<QQ", self.data, 32), struct.unpack_from("<HHHH", self.data, 54))
        loads = [struct.unpack_from("<IIQQQQ", self.data, phoff + at * phentsize) for at in range(phnum)]
        self.segments = [(vaddr, offset, size) for kind, _, offset, vaddr, _, size in loads if kind == 1]
        self.pointers = {}
        for at in range(shnum):
            _, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", self.data, shoff + at * shentsize)
            if kind == _SHT_RELA:
                for place, info, addend in struct.iter_unpack("<QQq", self.data[offset:offset + size // 24 * 24]):
                    if info == _RELATIVE[self.machine]:
                        self.pointers[place] = addend

    def offset(self, address):
        for vaddr, offset, size in self.segments:
            if vaddr <= address < vaddr + size:
                return address - vaddr + offset
        raise ValueError("%#x is not in the file" % address)

    def text(self, address):
        at = self.offset(address)
        return self.data[at:self.data.index(b"\0", at)]

    def number(self, address):
        return struct.unpack_from("<i", self.data, self.offset(address))[0]


def _maps(program):
    """(pattern of CPUs, address of its table's PMUs, how many, address of its metrics' PMUs or None, how many) of each CPU."""
    arch = _ARCHITECTURES[program.machine]
    targets = {address for address in set(program.pointers.values()) if _is(program, address, arch)}
    for place, target in sorted(program.pointers.items()):
        cpuid, pmus = program.pointers.get(place + 8), program.pointers.get(place + 16)
        if target in targets and cpuid and pmus:
            yield (program.text(cpuid).decode(), pmus, program.number(place + 24),
                   program.pointers.get(place + 40), program.number(place + 48))


def _is(program, address, text):
    try:
        at = program.offset(address)
    except ValueError:
        return False
    return program.data[at:at + len(text) + 1] == text + b"\0"


def read(path):
    """[(pattern of CPUs, {PMU: {name of an event: (its terms, its description)}}, {name of a metric: its formula})]"""
    program = _Program(path)
    maps = list(_maps(program))
    base = _base(program, maps)
    return [(cpuid, {program.text(base + program.number(entry + 12)).decode(): _events(program, base, entry) for entry in _entries(pmus, count)},
             {name: formula for entry in _entries(metrics, formulas) for name, formula in _metrics(program, base, entry)})
            for cpuid, pmus, count, metrics, formulas in maps]


def _entries(pmus, count):
    return range(pmus, pmus + count * _ENTRY_SIZE, _ENTRY_SIZE) if pmus else ()


def _base(program, maps):
    """The address of the large text. Every CPU has events of its cores: their PMU's name is the most frequent one."""
    offsets = collections.Counter(program.number(entry + 12) for _, pmus, count, _, _ in maps for entry in _entries(pmus, count))
    ((core, _),) = offsets.most_common(1)
    for found in re.finditer(rb"\0default_core\0", program.data):
        for vaddr, offset, size in program.segments:
            if offset <= found.start() < offset + size:
                base = found.start() + 1 - offset + vaddr - core
                if _are_events(program, base, maps[0][1]):
                    return base
    raise ValueError("perf's tables are laid out otherwise than in Linux 7.2: look at tools/perf/pmu-events/jevents.py")


def _are_events(program, base, entry):
    try:
        events = _events(program, base, entry)
    except ValueError:
        return False
    return all(_NAME.fullmatch(name) and "event=" in terms for name, (terms, _) in events.items())


def _texts(program, base, entry, wanted):
    """The first attributes of each event or metric of a PMU."""
    start, count = program.pointers[entry], program.number(entry + 8)
    for at in range(count):
        begin = program.offset(base + program.number(start + 4 * at))
        yield program.data[begin:begin + 16384].split(b"\0", wanted)[:wanted]


def _events(program, base, entry):
    # name, topic, description, terms, and what is of no use here (_json_event_attributes).
    return {name.decode(): (terms.decode(), description.decode(errors="replace")) for name, _, description, terms in _texts(program, base, entry, 4)}


def _metrics(program, base, entry):
    # name, group, formula (_json_metric_attributes).
    return ((name.decode(), formula.decode()) for name, _, formula in _texts(program, base, entry, 3))
