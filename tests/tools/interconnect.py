"""Interconnect devices in sysfs, as their drivers show them: InfiniBand, RoCE, Omni-Path, Slingshot.

Files and their widths are those of drivers/infiniband/core/sysfs.c, mlx5, bnxt_re, rxe and hfi1, and of HPE's driver for Cassini;
the numbers are made. What answers performance management has 16, 8 and 4 bits for errors, and 32 or 64 for traffic.
"""

# Error counters of a port, in the order of the kernel's table.
ERRORS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
          "port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
          "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped")
MLX5_HW = ("duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence", "packet_seq_err",
           "req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
           "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors", "rnr_nak_retry_err", "rx_atomic_requests",
           "rx_dct_connect", "rx_read_requests", "rx_write_requests")
MLX5_ROCE = ("np_cnp_sent", "np_ecn_marked_roce_packets", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart",
             "roce_slow_restart_cnps", "roce_slow_restart_trans", "rp_cnp_handled", "rp_cnp_ignored", "rx_icrc_encapsulated")
BNXT_HW = ("active_pds", "active_ahs", "active_qps", "active_srqs", "active_cqs", "active_mrs", "active_mws", "rx_pkts", "rx_bytes",
           "tx_pkts", "tx_bytes", "recoverable_errors", "rx_roce_errors", "rx_roce_discards", "to_retransmits", "seq_err_naks_rcvd",
           "max_retry_exceeded", "rnr_naks_rcvd", "missing_resp", "unrecoverable_err", "bad_resp_err", "oos_drop_count")
RXE_HW = ("ack_deferred", "completer_retry_err", "duplicate_request", "link_downed", "out_of_seq_request", "rcvd_pkts",
          "rcvd_rnr_err", "rcvd_seq_err", "rdma_recvs", "rdma_sends", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err",
          "send_rnr_err", "sent_pkts")
SIZES = ("27", "35", "36_to_63", "64", "65_to_127", "128_to_255", "256_to_511", "512_to_1023", "1024_to_2047", "2048_to_4095",
         "4096_to_8191", "8192_to_max")

UP = ("4: ACTIVE", "5: LinkUp")
DOWN = ("1: DOWN", "2: Polling")


def pci(a, address, driver, vendor):
    """A PCI device with its driver; gives its directory."""
    path = "sys/devices/pci%s:%s/%s" % (address[:4], address[5:7], address)
    a.file(path + "/vendor", vendor + "\n")
    a.link(path + "/driver", "../../../bus/pci/drivers/" + driver)
    a.dir("sys/bus/pci/drivers/" + driver)
    return path


def hca(a, name, above, ports, **attributes):
    """A device of the class and its ports; `ports` are dictionaries of files."""
    at = "%s/infiniband/%s" % (above, name)
    a.link("sys/class/infiniband/" + name, "../../" + at[len("sys/"):])
    if "pci" in above:
        a.link(at + "/device", "../../../" + above.rsplit("/", 1)[1])
    attributes.setdefault("node_type", "1: CA")
    for file, content in attributes.items():
        a.file("%s/%s" % (at, file), content + "\n")
    for number, files in enumerate(ports, 1):
        for file, content in files.items():
            a.file("%s/ports/%d/%s" % (at, number, file), "%s\n" % content)


def link(layer, rate, state=UP):
    return {"link_layer": layer, "rate": rate, "state": state[0], "phys_state": state[1], "lid": "0x1", "sm_lid": "0x1",
            "cap_mask": "0x00010000"}


def counters(received, sent, unit=4, extended=True, wait=0, trouble=None, cast=True):
    """The counters of performance management for bytes in packets of 2 KiB."""
    most = 2 ** 64 - 1 if extended else 2 ** 32 - 1
    files = {"port_rcv_data": min(received // unit, most), "port_xmit_data": min(sent // unit, most),
             "port_rcv_packets": min(received // 2048, most), "port_xmit_packets": min(sent // 2048, most), "port_xmit_wait": wait}
    if extended:
        some = 1 if cast else 0
        files.update(unicast_rcv_packets=some * (received // 2048 - 812), unicast_xmit_packets=some * (sent // 2048 - 9),
                     multicast_rcv_packets=812, multicast_xmit_packets=9)
    files.update({name: (trouble or {}).get(name, 0) for name in ERRORS})
    return {"counters/" + name: value for name, value in files.items()}


def hw(names, some, lifespan=10):
    files = {"hw_counters/" + name: some.get(name, 0) for name in names}
    files["hw_counters/lifespan"] = lifespan
    return files


def cassini(a, name, address, received, sent, up=True, trouble=None):
    """A Slingshot device; packets have 2 KiB, except for a few small ones."""
    at = pci(a, address, "cxi_ss1", "0x17db")
    a.link("sys/class/cxi/" + name, "../../%s/cxi/%s" % (at[len("sys/"):], name))
    a.link("%s/cxi/%s/device" % (at, name), "../../../" + address)
    telemetry = {"hni_sts_rx_ok_octets": received, "hni_sts_tx_ok_octets": sent, "hni_pcs_good_cw": 983276521110,
                 "hni_pcs_corrected_cw": 0, "hni_pcs_uncorrected_cw": 0, "hni_llr_tx_replay_event": 0, "hni_llr_rx_replay_event": 0,
                 "pct_sct_timeouts": 0, "pct_spt_timeouts": 0, "pct_retry_srb_requests": 0, "pct_trs_rsp_nack_drops": 0,
                 "atu_cache_miss_0": 40113}
    for way, amount in (("rx", received), ("tx", sent)):
        for size in SIZES:
            telemetry["hni_%s_ok_%s" % (way, size)] = {"64": amount // 65536, "1024_to_2047": amount // 2048}.get(size, 0)
    telemetry.update(trouble or {})
    for n, (file, value) in enumerate(sorted(telemetry.items())):
        a.file("%s/telemetry/%s" % (at, file), "%d@1795161611.%09d\n" % (value, 370000000 + n * 3127))
    for file, value in (("link", 1 if up else 0), ("speed", 200000), ("cassini_version", "1.1"), ("driver_rev", "bf5b9b3"),
                        ("nid", "0x2a1"), ("pid_bits", 9)):
        a.file("%s/properties/%s" % (at, file), "%s\n" % value)
