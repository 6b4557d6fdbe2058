"""Microarchitectures and events as the oracles call them."""

import oracles

LIBPFM_PMUS = {
    "Sandy Bridge-EP": "snb_ep", "Ivy Bridge-EP": "ivb_ep", "Haswell-EP": "hsw_ep", "Broadwell-EP": "bdw_ep", "Broadwell-DE": "bdw",
    "Skylake-SP": "skx", "Cascade Lake-SP": "clx", "Knights Landing": "knl", "Knights Mill": "knm", "Ice Lake-SP": "icx",
    "Sapphire Rapids": "spr", "Emerald Rapids": "emr", "Granite Rapids": "gnr", "Skylake": "skl", "Alder Lake": "adl_glc", "Haswell": "hsw", "Broadwell": "bdw", "Ice Lake": "icl",
    "Zen": "amd64_fam17h_zen1", "Zen 2": "amd64_fam17h_zen2", "Zen 3": "amd64_fam19h_zen3", "Zen 4": "amd64_fam19h_zen4",
    "Zen 4 MI300": "amd64_fam19h_zen4", "Zen 5": "amd64_fam1ah_zen5", "Neoverse N1": "arm_n1", "Neoverse V1": "arm_v1",
    "Neoverse N2": "arm_n2", "Neoverse N2 r0p3": "arm_n2", "Neoverse V2": "arm_v2", "Neoverse N3": "arm_n3", "Neoverse V3": "arm_v3",
    "ThunderX2": "arm_thunderx2", "TaiShan v110": "arm_kunpeng", "A64FX": "arm_a64fx",
}

# A CPU of each, as perf's tables are chosen by.
PERF_CPUIDS = {
    "Sandy Bridge-EP": "GenuineIntel-6-2D-7", "Ivy Bridge-EP": "GenuineIntel-6-3E-4", "Haswell-EP": "GenuineIntel-6-3F-2",
    "Broadwell-EP": "GenuineIntel-6-4F-1", "Broadwell-DE": "GenuineIntel-6-56-3", "Skylake-SP": "GenuineIntel-6-55-4",
    "Cascade Lake-SP": "GenuineIntel-6-55-7", "Cooper Lake-SP": "GenuineIntel-6-55-B", "Knights Landing": "GenuineIntel-6-57-1",
    "Knights Mill": "GenuineIntel-6-85-0", "Ice Lake-SP": "GenuineIntel-6-6A-6", "Ice Lake-D": "GenuineIntel-6-6C-1",
    "Sapphire Rapids": "GenuineIntel-6-8F-8", "Emerald Rapids": "GenuineIntel-6-CF-1", "Granite Rapids": "GenuineIntel-6-AD-1",
    "Granite Rapids-D": "GenuineIntel-6-AE-1", "Sierra Forest": "GenuineIntel-6-AF-3", "Grand Ridge": "GenuineIntel-6-B6-0",
    "Clearwater Forest": "GenuineIntel-6-DD-0", "Skylake": "GenuineIntel-6-5E-3", "Kaby Lake/Coffee Lake": "GenuineIntel-6-9E-A",
    "Comet Lake": "GenuineIntel-6-A5-0", "Haswell": "GenuineIntel-6-3C-3", "Broadwell": "GenuineIntel-6-3D-4",
    "Ice Lake": "GenuineIntel-6-7E-5", "Rocket Lake": "GenuineIntel-6-A7-1", "Tiger Lake": "GenuineIntel-6-8C-1",
    "Lunar Lake": "GenuineIntel-6-BD-1", "Panther Lake": "GenuineIntel-6-CC-2", "Alder Lake": "GenuineIntel-6-97-2", "Raptor Lake": "GenuineIntel-6-B7-1",
    "Alder Lake-N": "GenuineIntel-6-BE-0", "Meteor Lake": "GenuineIntel-6-AA-4", "Arrow Lake": "GenuineIntel-6-C6-2",
    "Arrow Lake-U": "GenuineIntel-6-B5-0", "Zen": "AuthenticAMD-23-1-2", "Zen 2": "AuthenticAMD-23-31-0", "Zen 3": "AuthenticAMD-25-1-1",
    "Zen 4": "AuthenticAMD-25-11-1", "Zen 4 MI300": "AuthenticAMD-25-90-0", "Zen 5": "AuthenticAMD-26-2-1",
    "Zen 6": "AuthenticAMD-26-50-0",
    "Neoverse N1": "0x00000000410fd0c0", "Neoverse V1": "0x00000000410fd400", "Neoverse N2": "0x00000000410fd490",
    "Neoverse N2 r0p3": "0x00000000410fd490",
    "Neoverse V2": "0x00000000410fd4f0", "Neoverse N3": "0x00000000410fd8e0",
    # The table is that of the V3 by its directory's name; perf takes it for the V3AE alone.
    "Neoverse V3": "0x00000000410fd830", "AmpereOne": "0x00000000c00fac30", "AmpereOneX": "0x00000000c00fac40",
    "Olympus": "0x000000004e0f0100", "ThunderX2": "0x00000000430f0af0", "TaiShan v110": "0x00000000480fd010",
    "A64FX": "0x00000000460f0010",
}

# The revision of those cores whose formulas ask for it.
REVISIONS = {"Neoverse N2 r0p3": 3}

# perf's metrics of what became of the slots, by our categories.
SLOTS = {"retiring": "retiring", "bad_speculation": "bad_speculation", "frontend": "frontend_bound", "backend": "backend_bound"}

# What libpfm4 calls other than VENDOR_EVENT:UMASK, on all its PMUs or on one.
LIBPFM_NAMES = {
    "CPU_CLK_UNHALTED.REF_TSC": "UNHALTED_REFERENCE_CYCLES",
    "OCR.READS_TO_CORE.DRAM": "OCR:READS_TO_CORE_DRAM",
    "ls_not_halted_cyc": "CYCLES_NOT_IN_HALT",
    "ex_ret_instr": "RETIRED_INSTRUCTIONS",
    "ex_ret_brn": "RETIRED_BRANCH_INSTRUCTIONS",
    "ex_ret_brn_misp": "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED",
    "l2_cache_req_stat.ic_dc_miss_in_l2": "CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS:LS_RD_BLK_C:IC_FILL_MISS",
    "l2_pf_miss_l2_hit_l3": "L2_PREFETCH_HIT_L3:ANY",
    "l2_pf_miss_l2_l3": "L2_PREFETCH_MISS_L3:ANY",
    "fp_ret_sse_avx_ops.dp": "RETIRED_SSE_AVX_OPERATIONS:DP_MULT_ADD_FLOPS:DP_DIV_FLOPS:DP_MULT_FLOPS:DP_ADD_SUB_FLOPS",
    "fp_ret_sse_avx_ops.sp": "RETIRED_SSE_AVX_OPERATIONS:SP_MULT_ADD_FLOPS:SP_DIV_FLOPS:SP_MULT_FLOPS:SP_ADD_SUB_FLOPS",
    "fp_ret_sse_avx_ops.all": "RETIRED_SSE_AVX_FLOPS:ADD_SUB_FLOPS:MULT_FLOPS:DIV_FLOPS:MAC_FLOPS",
    "fp_ret_sse_avx_ops.bfloat_mac": "RETIRED_SSE_AVX_FLOPS:BFLOAT_MAC_FLOPS",
    "ls_refills_from_sys.dram": "DATA_CACHE_REFILLS_FROM_SYSTEM:LS_MABRESP_LCL_DRAM:LS_MABRESP_RMT_DRAM",
    "ls_any_fills_from_sys.dram_io_all": "ANY_DATA_CACHE_FILLS_FROM_SYSTEM:MEM_IO_LCL:MEM_IO_RMT",
    "l2_pf_miss_l2_l3.l2_hwpf": "L2_PREFETCH_MISS_L3:L2_STREAM:L2_NEXT_LINE:L2_UP_DOWN:L2_BURST:L2_STRIDE",
    ("amd64_fam19h_zen3", "l2_pf_miss_l2_l3.l2_hwpf"): "L2_PREFETCH_MISS_L3:L2_HW_PREFETCHER",
    "ls_sw_pf_dc_fill.dram": "SOFTWARE_PREFETCH_DATA_CACHE_FILLS:LS_MABRESP_LCL_DRAM:LS_MABRESP_RMT_DRAM",
    "ls_hw_pf_dc_fill.dram": "HARDWARE_PREFETCH_DATA_CACHE_FILLS:LS_MABRESP_LCL_DRAM:LS_MABRESP_RMT_DRAM",
    ("snb_ep", "FP_COMP_OPS_EXE.SSE_PACKED_DOUBLE"): "FP_COMP_OPS_EXE:SSE_FP_PACKED_DOUBLE",
    ("snb_ep", "FP_COMP_OPS_EXE.SSE_SCALAR_SINGLE"): "FP_COMP_OPS_EXE:SSE_FP_SCALAR_SINGLE",
    ("ivb_ep", "FP_COMP_OPS_EXE.SSE_PACKED_DOUBLE"): "FP_COMP_OPS_EXE:SSE_FP_PACKED_DOUBLE",
    ("ivb_ep", "FP_COMP_OPS_EXE.SSE_SCALAR_SINGLE"): "FP_COMP_OPS_EXE:SSE_FP_SCALAR_SINGLE",
    ("snb_ep", "L2_LINES_IN.ALL"): "L2_LINES_IN:ANY",
    ("snb_ep", "LONGEST_LAT_CACHE.MISS"): "L3_LAT_CACHE:MISS",
    ("snb_ep", "LONGEST_LAT_CACHE.REFERENCE"): "L3_LAT_CACHE:REFERENCE",
    ("icx", "LONGEST_LAT_CACHE.REFERENCE"): "LONGEST_LAT_CACHE:REFERENCES",
    ("icl", "LONGEST_LAT_CACHE.REFERENCE"): "LONGEST_LAT_CACHE:REFERENCES",
    ("amd64_fam19h_zen3", "l2_pf_miss_l2_hit_l3"): "L2_PREFETCH_HIT_L3:L2_HW_PREFETCHER:L1_HW_PREFETCHER",
    ("amd64_fam19h_zen3", "l2_pf_miss_l2_l3"): "L2_PREFETCH_MISS_L3:L2_HW_PREFETCHER:L1_HW_PREFETCHER",
    ("amd64_fam19h_zen4", "l2_pf_miss_l2_hit_l3"):
        "L2_PREFETCH_HIT_L3:L2_STREAM:L2_NEXT_LINE:L2_UP_DOWN:L2_BURST:L2_STRIDE:L1_STREAM:L1_STRIDE:L1_REGION",
    ("amd64_fam19h_zen4", "l2_pf_miss_l2_l3"):
        "L2_PREFETCH_MISS_L3:L2_STREAM:L2_NEXT_LINE:L2_UP_DOWN:L2_BURST:L2_STRIDE:L1_STREAM:L1_STRIDE:L1_REGION",
    ("amd64_fam19h_zen4", "l2_request_g1.all"):
        "REQUESTS_TO_L2_GROUP1:RD_BLK_L:RD_BLK_X:LS_RD_BLK_C_S:CACHEABLE_IC_READ:CHANGE_TO_X:PREFETCH_L2_CMD:L2_HW_PF:MISC",
    ("amd64_fam17h_zen1", "l2_request_g1.all"):
        "REQUESTS_TO_L2_GROUP1:RD_BLK_L:RD_BLK_X:LS_RD_BLK_C_S:CACHEABLE_IC_READ:CHANGE_TO_X:PREFETCH_L2:L2_HW_PF:OTHER_REQUESTS",
    ("amd64_fam17h_zen2", "l2_request_g1.all"):
        "REQUESTS_TO_L2_GROUP1:RD_BLK_L:RD_BLK_X:LS_RD_BLK_C_S:CACHEABLE_IC_READ:CHANGE_TO_X:PREFETCH_L2:L2_HW_PF:GROUP2",
    ("amd64_fam19h_zen3", "ls_any_fills_from_sys.all"):
        "ANY_DATA_CACHE_FILLS_FROM_SYSTEM:LCL_L2:INT_CACHE:EXT_CACHE_LCL:MEM_IO_LCL:EXT_CACHE_RMT:MEM_IO_RMT",
    ("amd64_fam19h_zen4", "ls_any_fills_from_sys.all"):
        "ANY_DATA_CACHE_FILLS_FROM_SYSTEM:LCL_L2:LOCAL_CCX:NEAR_CACHE_NEAR_FAR:DRAM_IO_NEAR:FAR_CACHE_NEAR_FAR:DRAM_IO_FAR:ALT_MEM_NEAR_FAR",
    ("amd64_fam19h_zen4", "ls_any_fills_from_sys.dram_io_all"): "ANY_DATA_CACHE_FILLS_FROM_SYSTEM:DRAM_IO_NEAR:DRAM_IO_FAR",
}

# What perf calls otherwise, or has one event for each bit or part of, on all CPUs or on one.
_OPS = ("add_sub_flops", "mult_flops", "div_flops", "mac_flops")
_ZEN_OPS = ("add_sub_flops", "mult_flops", "div_flops", "mult_add_flops")
_G1 = ("rd_blk_l", "rd_blk_x", "ls_rd_blk_c_s", "cacheable_ic_read", "change_to_x", "prefetch_l2_cmd", "l2_hw_pf", "group2")
_G1_PARTS = ["l2_request_g1." + bit for bit in _G1]
_FILLS = {
    "l2_pf_miss_l2_hit_l3": ["l2_pf_miss_l2_hit_l3.all"],
    "l2_pf_miss_l2_l3": ["l2_pf_miss_l2_l3.all"],
    "ls_any_fills_from_sys.dram_io_all": ["ls_any_fills_from_sys.dram_io_all"],
    "ls_any_fills_from_sys.all": ["ls_any_fills_from_sys.all"],
    "fp_ret_sse_avx_ops.bfloat_mac": ["fp_ret_sse_avx_ops.bfloat_mac_flops"],
}


def _zen5_flops(kind):
    """A type of Zen 5's FLOPs: perf has its number without the operations, and these by themselves."""
    return ["fp_ret_sse_avx_ops." + part for part in (kind, *_OPS)]


PERF_NAMES = {
    "OFFCORE_RESPONSE.ALL_DATA_RD+ALL_RFO+DEMAND_CODE_RD.L3_MISS.ANY_SNOOP": [
        "offcore_response.%s.l3_miss.any_snoop" % request for request in ("all_data_rd", "all_rfo", "demand_code_rd")],
    "OCR.READS_TO_CORE.DRAM+PMM": ["ocr.reads_to_core." + memory for memory in ("dram", "local_socket_pmm", "remote_pmm")],
    "fp_ret_sse_avx_ops.dp": ["fp_ret_sse_avx_ops.dp_" + op for op in _ZEN_OPS],
    "fp_ret_sse_avx_ops.sp": ["fp_ret_sse_avx_ops.sp_" + op for op in _ZEN_OPS],
    # perf's own name for all of it sets bits too that are reserved, or of bfloat16.
    "fp_ret_sse_avx_ops.all": ["fp_ret_sse_avx_ops." + op for op in _OPS],
    "l2_request_g1.all": _G1_PARTS,
    "ls_refills_from_sys.dram": ["ls_refills_from_sys.ls_mabresp_lcl_dram", "ls_refills_from_sys.ls_mabresp_rmt_dram"],
    "ls_any_fills_from_sys.dram_io_all": ["ls_any_fills_from_sys.mem_io_local", "ls_any_fills_from_sys.mem_io_remote"],
    "ls_any_fills_from_sys.all": ["l1_data_cache_fills_all"],
    **{("Zen 4", event): parts for event, parts in _FILLS.items()},
    **{("Zen 4 MI300", event): parts for event, parts in _FILLS.items()},
    **{("Zen 5", event): parts for event, parts in _FILLS.items() if event.startswith("ls_any")},
    "l2_pf_miss_l2_l3.l2_hwpf": ["l2_pf_miss_l2_l3.l2_" + kind for kind in ("stream", "next_line", "up_down", "burst", "stride")],
    "ls_sw_pf_dc_fill.dram": ["ls_sw_pf_dc_fill.ls_mabresp_lcl_dram", "ls_sw_pf_dc_fill.ls_mabresp_rmt_dram"],
    "ls_hw_pf_dc_fill.dram": ["ls_hw_pf_dc_fill.ls_mabresp_lcl_dram", "ls_hw_pf_dc_fill.ls_mabresp_rmt_dram"],
    **{("Zen 6", event): [event] for event in ("l2_request_g1.all", "fp_ret_sse_avx_ops.all", *_FILLS)},
    ("Zen 5", "l2_request_g1.all"): ["l2_request_g1.all"],
    ("Zen 5", "l2_fill_rsp_src.dram_io_all"): ["l2_fill_rsp_src.dram_io_near", "l2_fill_rsp_src.dram_io_far"],
    ("Zen 5", "fp_ret_sse_avx_ops.dp_packed"): _zen5_flops("packed_double_flops"),
    ("Zen 5", "fp_ret_sse_avx_ops.dp_scalar"): _zen5_flops("scalar_double_flops"),
    ("Zen 5", "fp_ret_sse_avx_ops.sp_packed"): _zen5_flops("packed_single_flops"),
    ("Zen 5", "fp_ret_sse_avx_ops.sp_scalar"): _zen5_flops("scalar_single_flops"),
    ("Zen 5", "fp_ret_sse_avx_ops.bf16"): _zen5_flops("bfloat16_flops"),
}

# Memory controllers: libpfm4's PMU of the first box of each kind.
_LIBPFM_CHIPS = {"Sandy Bridge-EP": "snbep", "Ivy Bridge-EP": "ivbep", "Haswell-EP": "hswep", "Broadwell-EP": "bdx", "Skylake-SP": "skx",
                 "Knights Landing": "knl", "Knights Mill": "knm"}
_LIBPFM_BOXES = {"uncore_imc_N": "unc_imc0", "uncore_edc_eclk_N": "unc_edc_eclk0"}

# What the vendors call what is counted, which libpfm4 and perf do, too.
_BOX_EVENTS = {
    ("uncore_imc_N", "dram"): {"read": "UNC_M_CAS_COUNT.RD", "write": "UNC_M_CAS_COUNT.WR"},
    ("uncore_imc_N", "pmem"): {"read": "UNC_M_PMM_RPQ_INSERTS", "write": "UNC_M_PMM_WPQ_INSERTS"},
    ("uncore_hbm_N", "hbm"): {"read": "UNC_MCHBM_CAS_COUNT.RD", "write": "UNC_MCHBM_CAS_COUNT.WR"},
    ("uncore_edc_eclk_N", "mcdram"): {"read": "UNC_E_RPQ_INSERTS", "write": "UNC_E_WPQ_INSERTS"},
    ("amd_umc_N", "dram"): {"read": "umc_cas_cmd.rd", "write": "umc_cas_cmd.wr"},
    # One for each channel; those of its own socket and of others are one count, which Zen 5's names say in a word.
    "Zen 5 amd_df": {
        "read": "local_or_remote_socket_read_data_beats_dram_%d",
        "write": "local_or_remote_socket_write_data_beats_dram_%d",
    },
    ("amd_df", "dram"): {
        "both": "dram_channel_data_controller_%d",
        "read": "local_processor_read_data_beats_cs%d remote_processor_read_data_beats_cs%d",
        "write": "local_processor_write_data_beats_cs%d remote_processor_write_data_beats_cs%d",
    },
}
_SUBCHANNELS = ("Granite Rapids", "Granite Rapids-D", "Sierra Forest", "Grand Ridge", "Clearwater Forest")


def box_names(microarchitecture, pmu, memory, direction, ordinal):
    """The names of one count of a memory controller, the ordinal-th of its direction; None where there is none."""
    named = _BOX_EVENTS.get("%s %s" % (microarchitecture, pmu)) or _BOX_EVENTS.get((pmu, memory), {})
    name = named.get(direction)
    if name and microarchitecture in _SUBCHANNELS:
        name = name.replace("COUNT.", "COUNT_SCH%d." % ordinal)
    return name.replace("%d", str(ordinal)).split() if name else None


def perf_names(microarchitecture, event):
    """perf's names for an event, more than one where each is a part of it."""
    return PERF_NAMES.get((microarchitecture, event)) or PERF_NAMES.get(event) or [event.lower()]


def perf_core(microarchitecture, pmu):
    """The PMU of cores in perf's tables, and its fields."""
    if pmu.startswith("armv8"):
        return "default_core", oracles.ARM
    return pmu if pmu.startswith("cpu_") else "default_core", oracles.AMD if microarchitecture.startswith("Zen") else oracles.INTEL


def perf_box(microarchitecture, pmu):
    """The PMU of a memory controller in perf's tables, and its fields."""
    if pmu == "amd_df":
        return pmu, oracles.FABRIC_ZEN4 if microarchitecture in ("Zen 4", "Zen 5") else oracles.FABRIC
    return {"amd_umc_N": ("amd_umc", oracles.UMC), "uncore_hbm_N": ("uncore_mchbm", oracles.BOX),
            "uncore_edc_eclk_N": ("uncore_edc_eclk", oracles.BOX),
            "uncore_imc_N": ("uncore_imc_dclk" if microarchitecture.startswith("Knights") else "uncore_imc", oracles.BOX),
            }.get(pmu, (None, None))


def libpfm_box(microarchitecture, pmu, event):
    chip, box = _LIBPFM_CHIPS.get(microarchitecture), _LIBPFM_BOXES.get(pmu)
    return "%s_%s::%s" % (chip, box, event.replace(".", ":")) if chip and box else None


def libpfm_name(microarchitecture, event):
    pmu = LIBPFM_PMUS.get(microarchitecture)
    if not pmu:
        return None
    name = LIBPFM_NAMES.get((pmu, event)) or LIBPFM_NAMES.get(event) or event.replace(".", ":")
    return "%s::%s" % (pmu, name)
