"""Roofs of a roofline: what a core and a socket can do at most, from what the CPUs are and the clock that the job ran at.

FLOPS: double-precision operations per cycle and core with the widest vectors and fused multiply-adds. SCALAR: the same without
vectors. BANDWIDTH: gigabytes per second and socket with all memory channels filled with the fastest memory that the vendor supports
(channels x transfers per second x 8 bytes). Sources: Intel's and AMD's processor specifications and optimization manuals, Arm's
software optimization guides (pipes of V-units), Fujitsu's A64FX manual, NVIDIA's Grace data sheet. Processors with one 512-bit FMA
unit (some Silver and Bronze) have half of the roof; less or slower memory has a lower one (DDR5-6400 instead of MRDIMM-8800: Granite
Rapids), and Xeon Max, which is Sapphire Rapids with HBM, a higher one: the variable `bandwidth` sets it.
"""

#                        FLOPS  SCALAR  BANDWIDTH
NODES = {
    "Sandy Bridge-EP":    (8, 2, 51.2),
    "Ivy Bridge-EP":      (8, 2, 59.7),
    "Haswell-EP":         (16, 4, 68.3),
    "Broadwell-EP":       (16, 4, 76.8),
    "Skylake-SP":         (32, 4, 128.0),
    "Cascade Lake-SP":    (32, 4, 140.8),
    "Cooper Lake-SP":     (32, 4, 153.6),
    "Ice Lake-SP":        (32, 4, 204.8),
    "Sapphire Rapids":    (32, 4, 307.2),
    "Emerald Rapids":     (32, 4, 358.4),
    "Granite Rapids":     (32, 4, 844.8),
    "Sierra Forest":      (8, 4, 409.6),
    "Zen":                (8, 4, 170.6),
    "Zen 2":              (16, 4, 204.8),
    "Zen 3":              (16, 4, 204.8),
    "Zen 4":              (16, 4, 460.8),
    "Zen 5":              (32, 4, 614.4),
    "A64FX":              (32, 4, 1024.0),
    "Neoverse N1":        (8, 4, 204.8),
    "Neoverse V1":        (16, 8, 307.2),
    "Neoverse V2":        (16, 8, 512.0),
}

# Processors whose loads from memory lack what was prefetched, of Granite Rapids into L3 (docs/counters.md): operations per byte are too
# many there.
WITHOUT_PREFETCHES = ("Sierra Forest", "Clearwater Forest", "Granite Rapids", "Granite Rapids-D")


def by_microarchitecture(selector, column):
    """A number of NODES for each node, as PromQL without anything but the exporter's own series: {number: names} makes the query short."""
    names = {}
    for name, row in NODES.items():
        names.setdefault(row[column], []).append(name)
    terms = [f'last_over_time(jobledger_node_info{{{selector},microarchitecture=~"{"|".join(found)}"}}[5m] @ end()) * {number:g}' for number, found in names.items()]
    return "(" + " or ".join(terms) + ")"
