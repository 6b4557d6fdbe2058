"""Known work on an NVIDIA GPU. Orders come on stdin, a JSON object a line; what was done is printed likewise.

Kernels that do a known number of operations are compiled by CuPy; products of matrices are PyTorch's. An order is
{"load": NAME, "seconds": N, ...}. The answer has "began" and "ended" (CLOCK_REALTIME), and what was done: "flops", "bytes",
"busy" (seconds in which kernels ran, by CUDA's events).
"""

import json
import sys
import time

import cupy

CHAINS, UNROLLED = 8, 16
BLOCKS, THREADS = 132 * 16, 256

# A chain of fused multiply-adds per register: each instruction is two operations of each lane. The sum is written so that
# none is left out.
SOURCE = r"""
extern "C" __global__ void work(TYPE *to, int rounds) {
    TYPE a[8];
    TYPE x = FROM(threadIdx.x + 1), y = FROM(blockIdx.x + 1);
    for (int k = 0; k < 8; k++) a[k] = FROM(k);
    for (int r = 0; r < rounds; r++) {
#pragma unroll
        for (int u = 0; u < 16; u++) {
#pragma unroll
            for (int k = 0; k < 8; k++) { STEP }
        }
    }
    TYPE sum = a[0];
    for (int k = 1; k < 8; k++) sum = ADD(sum, a[k]);
    to[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
BFLOATS = 'asm volatile("fma.rn.bf16x2 %0, %0, %1, %2;" : "+r"(a[k]) : "r"(x), "r"(y));'
HALVES = 'asm volatile("fma.rn.f16x2 %0, %0, %1, %2;" : "+r"(a[k]) : "r"(x), "r"(y));'
# Type, how one is made, a step, operations of a step, bytes of an element.
KERNELS = {
    "fma_fp64": ("double", "(double)", "a[k] = fma(a[k], x, y);", 2, 8),
    "fma_fp32": ("float", "(float)", "a[k] = fmaf(a[k], x, y);", 2, 4),
    "fma_fp16": ("unsigned", "(unsigned)", HALVES, 4, 4),
    "fma_bf16": ("unsigned", "(unsigned)", BFLOATS, 4, 4),
    "mad_int32": ("unsigned", "(unsigned)", "a[k] = a[k] * x + y;", 2, 4),
}


def compiled(name):
    kind, make, step, operations, size = KERNELS[name]
    source = SOURCE.replace("ADD(sum, a[k])", "sum + a[k]").replace("STEP", step).replace("FROM", make).replace("TYPE", kind)
    kernel = cupy.RawKernel(source, "work")
    to = cupy.empty(BLOCKS * THREADS * size, dtype=cupy.uint8)
    each = BLOCKS * THREADS * CHAINS * UNROLLED * operations

    def launch(rounds):
        kernel((BLOCKS,), (THREADS,), (to, cupy.int32(rounds)))
        return each * rounds

    return launch


class Pieces:
    """Work in pieces that are queued two at a time, so that the GPU never waits, for so many seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def run(self, piece):
        done, began = 0, time.time()
        first, queued = cupy.cuda.Event(), []
        first.record()
        while time.time() - began < self.seconds:
            done += piece()
            event = cupy.cuda.Event()
            event.record()
            queued.append(event)
            if len(queued) > 2:
                queued.pop(0).synchronize()
        last = queued[-1]
        last.synchronize()
        return done, {"began": began, "ended": time.time(), "busy": cupy.cuda.get_elapsed_time(first, last) / 1e3}


def rounds_for(launch, seconds):
    """How many rounds of a kernel last so long."""
    launch(10)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    launch(400)
    end.record()
    end.synchronize()
    return max(1, int(400 * seconds / (cupy.cuda.get_elapsed_time(begin, end) / 1e3)))


def fma(load, seconds, **_):
    launch = compiled(load)
    rounds = rounds_for(launch, 0.02)
    flops, times = Pieces(seconds).run(lambda: launch(rounds))
    return {"flops": flops, **times}


def duty(seconds, on, off, **_):
    """Kernels of `on` seconds with pauses."""
    launch = compiled("fma_fp32")
    rounds = rounds_for(launch, on)
    began, busy, flops = time.time(), 0.0, 0
    while time.time() - began < seconds:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        flops += launch(rounds)
        end.record()
        end.synchronize()
        busy += cupy.cuda.get_elapsed_time(begin, end) / 1e3
        time.sleep(off)
    return {"flops": flops, "busy": busy, "began": began, "ended": time.time()}


def matmul(seconds, kind, size=8192, **_):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32, "fp64": torch.float64}
    if kind == "int8":
        one = torch.randint(-100, 100, (size, size), dtype=torch.int8, device="cuda")
        two = one.t()
        multiply = lambda: torch._int_mm(one, two)
    elif kind == "fp8":
        one = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn)
        two = one.t()
        scale = torch.tensor(1.0, device="cuda")
        multiply = lambda: torch._scaled_mm(one, two, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    else:
        one = torch.randn(size, size, device="cuda", dtype=types[kind])
        two = torch.randn(size, size, device="cuda", dtype=types[kind])
        into = torch.empty(size, size, device="cuda", dtype=types[kind])
        multiply = lambda: torch.mm(one, two, out=into)
    for _ in range(3):
        multiply()
    torch.cuda.synchronize()

    def piece():
        for _ in range(2 if kind in ("fp64", "fp32") else 10):
            multiply()
        return (2 if kind in ("fp64", "fp32") else 10) * 2 * size**3

    flops, times = Pieces(seconds).run(piece)
    return {"flops": flops + 3 * 2 * size**3, **times}


def turns(seconds, **_):
    """Vector operations of 16 bits and products of matrices of 16 bits, one after the other: how long each took."""
    import torch

    launch = compiled("fma_fp16")
    rounds = rounds_for(launch, 0.01)
    one, two, into = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    took, began = {"vector": 0.0, "tensor": 0.0}, time.time()
    while time.time() - began < seconds:
        events = [cupy.cuda.Event() for _ in range(9)]
        events[0].record()
        for at in range(4):
            launch(rounds)
            events[2 * at + 1].record()
            for _ in range(10):
                torch.mm(one, two, out=into)
            events[2 * at + 2].record()
        events[-1].synchronize()
        for at in range(8):
            took["tensor" if at % 2 else "vector"] += cupy.cuda.get_elapsed_time(events[at], events[at + 1]) / 1e3
    return {**took, "busy": sum(took.values()), "began": began, "ended": time.time()}


def latency(seconds, **_):
    """How long a kernel takes that does nothing, from its launch until it is known to be over: microseconds."""
    launch = compiled("fma_fp32")
    launch(1)
    took, began = [], time.time()
    while time.time() - began < seconds:
        at = time.perf_counter()
        launch(1)
        cupy.cuda.runtime.streamSynchronize(0)
        took.append((time.perf_counter() - at) * 1e6)
    took.sort()
    parts = {f"p{part}": round(took[int(len(took) * part / 100)], 1) for part in (50, 90, 99, 99.9, 99.99)}
    late = {f"above_{limit}_us": sum(each > limit for each in took) for limit in (200, 500, 1000, 5000)}
    return {"kernels": len(took), **parts, "most": took[-1], **late, "began": began, "ended": time.time()}


def copy(seconds, direction, size=1 << 30, **_):
    """Copies within the GPU's memory, or between it and the host's (pinned)."""
    pinned = cupy.cuda.alloc_pinned_memory(size) if direction != "d2d" else None
    one, two = cupy.cuda.alloc(size), cupy.cuda.alloc(size)
    runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream().ptr
    if direction == "d2d":
        piece = lambda: runtime.memcpyAsync(two.ptr, one.ptr, size, runtime.memcpyDeviceToDevice, stream) or size
    elif direction == "h2d":
        piece = lambda: runtime.memcpyAsync(two.ptr, pinned.ptr, size, runtime.memcpyHostToDevice, stream) or size
    else:
        piece = lambda: runtime.memcpyAsync(pinned.ptr, two.ptr, size, runtime.memcpyDeviceToHost, stream) or size
    count, times = Pieces(seconds).run(piece)
    return {"bytes": count, **times}


HELD = []


def hold(bytes, **_):
    """Memory that is held until the process ends, beside its context."""
    HELD.append(cupy.cuda.alloc(bytes))
    began = time.time()
    return {"bytes": bytes, "began": began, "ended": began}


def fault(**_):
    """Writes where nothing is: an Xid."""
    began = time.time()
    kernel = cupy.RawKernel('extern "C" __global__ void fault(long long at) { *(int *)at = 1; }', "fault")
    kernel((1,), (1,), (cupy.int64(0x10),))
    try:
        cupy.cuda.runtime.deviceSynchronize()
        said = ""
    except Exception as error:
        said = str(error)
    return {"said": said, "began": began, "ended": time.time()}


LOADS = {**{name: fma for name in KERNELS}, "duty": duty, "matmul": matmul, "copy": copy, "latency": latency, "turns": turns, "hold": hold, "fault": fault}


def main():
    cupy.cuda.runtime.free(0)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = LOADS[order["load"]](**order)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(order | answer), flush=True)


if __name__ == "__main__":
    main()
