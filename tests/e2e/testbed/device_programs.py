#!/usr/bin/python3
"""device_programs.py ROOT: lists the BPF programs that are attached to each control group (bpf(2))."""

import ctypes
import os
import sys

_BPF = 321
_PROG_QUERY = 16
# enum bpf_attach_type of include/uapi/linux/bpf.h: ingress, egress, sock_create, sock_ops, device, and so on. Kinds that
# are not for control groups are refused.
_KINDS = range(64)
_MOST = 64
_libc = ctypes.CDLL(None, use_errno=True)


class _Query(ctypes.Structure):
    _fields_ = [("target", ctypes.c_uint32), ("kind", ctypes.c_uint32), ("query_flags", ctypes.c_uint32),
                ("attach_flags", ctypes.c_uint32), ("ids", ctypes.c_uint64), ("count", ctypes.c_uint32),
                ("padding", ctypes.c_uint32), ("more", ctypes.c_uint64 * 4)]


def attached(directory, kind):
    """(flags, ids of the programs), or None if the kernel refuses this kind."""
    ids = (ctypes.c_uint32 * _MOST)()
    query = _Query(directory, kind, 0, 0, ctypes.addressof(ids), _MOST, 0)
    if _libc.syscall(_BPF, _PROG_QUERY, ctypes.byref(query), 32) < 0:
        return None
    return query.attach_flags, list(ids[:query.count])


def main():
    asked = 0
    for path, _, _ in sorted(os.walk(sys.argv[1])):
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        for kind in _KINDS:
            found = attached(directory, kind)
            asked += found is not None
            if found and found[1]:
                print(path, kind, *found[:1], *found[1])
        os.close(directory)
    # If no kind can be queried, an empty list would be wrong.
    sys.exit(0 if asked else "the kernel answers no query")


main()
