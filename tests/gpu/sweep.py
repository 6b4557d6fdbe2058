"""Asks NVML, by NVIDIA's own bindings, everything that it can be asked without changing anything, and prints the answers."""

import ctypes
import inspect
import json
import os
import statistics
import sys
import time

import pynvml


def answer_of(call, *args):
    took = []
    for _ in range(5):
        at = time.perf_counter()
        try:
            answer = call(*args)
        except pynvml.NVMLError as error:
            answer = f"error {error.value}"
        took.append((time.perf_counter() - at) * 1e6)
    return text_of(answer), round(statistics.median(took), 1)


def text_of(value):
    if isinstance(value, ctypes.Structure):
        return {name: text_of(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, (list, tuple)):
        return [text_of(each) for each in value[:8]]
    if isinstance(value, ctypes.Array):
        return [text_of(each) for each in list(value)[:8]]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def simple_calls(handle):
    found = {}
    for name in sorted(dir(pynvml)):
        call = getattr(pynvml, name)
        if not name.startswith(("nvmlDeviceGet", "nvmlDeviceIs", "nvmlSystemGet", "nvmlGpmQuery")) or not inspect.isfunction(call):
            continue
        needed = [each for each in inspect.signature(call).parameters.values() if each.default is each.empty]
        if len(needed) > 1:
            continue
        try:
            found[name] = answer_of(call, *([handle] if needed else []))
        except Exception as error:
            found[name] = (f"{type(error).__name__}: {error}"[:200], None)
    return found


def fields(handle):
    found = {}
    for number in range(1, 340):
        for scope in (0, 1, 2, 0xFFFFFFFF) if number in (83, 138, 139, 140, 141, 185, 186, 190) else (0,):
            value = pynvml.c_nvmlFieldValue_t()
            value.fieldId, value.scopeId, value.nvmlReturn = number, scope, 3
            at = time.perf_counter()
            code = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")(handle, 1, ctypes.byref(value))
            took = (time.perf_counter() - at) * 1e6
            if code == 0 and value.nvmlReturn == 0:
                found[f"{number}:{scope}"] = [value.valueType, value.value.ullVal, round(took, 1), value.latencyUsec]
            elif code or value.nvmlReturn != 3:
                found[f"{number}:{scope}"] = f"error {code} {value.nvmlReturn}"
    return found


def activity(handle, seconds=1.0):
    one, two = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(handle, one)
    time.sleep(seconds)
    at = time.perf_counter()
    pynvml.nvmlGpmSampleGet(handle, two)
    took = (time.perf_counter() - at) * 1e6
    found = {"sample_us": round(took, 1)}
    room = len(pynvml.c_nvmlGpmMetricsGet_t().metrics)
    for first in range(1, 333, 100):
        get = pynvml.c_nvmlGpmMetricsGet_t()
        get.version, get.sample1, get.sample2 = 1, one, two
        ids = list(range(first, min(first + 100, 333)))[:room]
        get.numMetrics = len(ids)
        for slot, number in zip(get.metrics, ids):
            slot.metricId = number
        code = pynvml._nvmlGetFunctionPointer("nvmlGpmMetricsGet")(ctypes.byref(get))
        for slot in list(get.metrics)[: len(ids)]:
            if code == 0 and slot.nvmlReturn == 0:
                found[slot.metricId] = slot.value
            elif code:
                found[slot.metricId] = f"error {code}"
    return found


def main():
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    result = {"user": os.geteuid(), "arguments": sys.argv[1:]}
    parts = {"calls": simple_calls, "fields": fields, "activity": activity}
    for name, part in parts.items():
        if name in sys.argv[1:]:
            try:
                result[name] = part(handle)
            except Exception as error:
                result[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(result))


if __name__ == "__main__":
    main()
