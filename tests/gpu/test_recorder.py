"""What a library answered is answered again: the fake library is recorded, and the recording is asked the same."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import fixture

SOURCES = Path(__file__).resolve().parents[1] / "support" / "fake-nvml"
CC = shutil.which("cc")
GPU = """
gpu 0 name NVIDIA H200
gpu 0 memory 1000 600 100
gpu 0 energy 5000
gpu 0 sample 1000000 75
gpu 0 sample 2000000 25
gpu 0 process 100 5000 50 compute
gpu 0 process 101 7000 25 mps
gpu 0 field 185 0 uint 350500
gpu 0 field 194 0 sint -5
gpu 0 activity 5 93.5
"""
XID = "gpu 0 xid 1 31\n"


def ask(library, orders):
    """Calls a library as the exporter does, in a process of its own. Before each sample the file of an order is put in place."""
    import ctypes

    lib = ctypes.CDLL(library)
    number, many, buffer = ctypes.c_uint, ctypes.c_ulonglong, ctypes.create_string_buffer
    answers = [lib.nvmlInit_v2()]
    text, gpu, events, one, two = buffer(96), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    answers.append([lib.nvmlSystemGetDriverVersion(text, 96), text.value.decode()])
    answers.append(lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)))
    lib.nvmlEventSetCreate(ctypes.byref(events))
    lib.nvmlDeviceRegisterEvents(gpu, many(8), events)
    lib.nvmlGpmSampleAlloc(ctypes.byref(one))
    lib.nvmlGpmSampleAlloc(ctypes.byref(two))
    last = 0
    for path, content in orders:
        Path(path + ".new").write_text(content)
        os.rename(path + ".new", path)
        event, found = (ctypes.c_ulonglong * 4)(), []
        for _ in range(2):
            code = lib.nvmlEventSetWait_v2(events, event, number(0))
            found.append([code, *([event[1], event[2]] if code == 0 else [])])
        answers.append(found)
        answers.append([lib.nvmlDeviceGetName(gpu, text, 96), text.value.decode()])
        memory = buffer(40)
        ctypes.cast(memory, ctypes.POINTER(number))[0] = 40 | 2 << 24
        answers.append([lib.nvmlDeviceGetMemoryInfo_v2(gpu, memory), memory.raw.hex()])
        kind, count = number(), number()
        lib.nvmlDeviceGetSamples(gpu, 1, many(last), ctypes.byref(kind), ctypes.byref(count), None)
        samples = buffer(16 * max(1, count.value))
        code = lib.nvmlDeviceGetSamples(gpu, 1, many(last), ctypes.byref(kind), ctypes.byref(count), samples)
        answers.append([code, count.value, samples.raw[: 16 * count.value].hex()])
        for call in (lib.nvmlDeviceGetComputeRunningProcesses_v3, lib.nvmlDeviceGetMPSComputeRunningProcesses_v3, lib.nvmlDeviceGetGraphicsRunningProcesses_v3):
            count = number()
            asked = [call(gpu, ctypes.byref(count), None), count.value]
            processes = buffer(24 * max(1, count.value))
            asked += [call(gpu, ctypes.byref(count), processes) if count.value else 0, processes.raw[: 24 * count.value].hex()]
            answers.append(asked)
        fields = buffer(40 * 3)
        for at, each in enumerate((83, 185, 194)):
            ctypes.cast(ctypes.byref(fields, 40 * at), ctypes.POINTER(number))[0] = each
        code = lib.nvmlDeviceGetFieldValues(gpu, 3, fields)
        answers.append([code, [fields.raw[40 * at + 24: 40 * at + 40].hex() for at in range(3)]])
        answers.append(lib.nvmlGpmSampleGet(gpu, two))
        get = (ctypes.c_ulonglong * (3 + 210 * 5))()
        get[0], get[1], get[2] = 1 | 2 << 32, one.value, two.value
        get[3], get[8] = 5, 99
        code = lib.nvmlGpmMetricsGet(get)
        answers.append([code, get[3], get[4], get[8]])
        one, two = two, one
        answers.append(lib.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(count)))
    return answers


@unittest.skipUnless(CC, "gpu: needs a C compiler")
class Recorder(unittest.TestCase):
    def setUp(self):
        self.home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ("fake-nvml", "recorded-nvml"):
            command = [CC, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", self.home / f"{name}.so", SOURCES / f"{name}.c", "-ldl", "-lpthread"]
            subprocess.run(command, check=True)

    def asked(self, orders, record):
        code = f"import json, test_recorder; print(json.dumps(test_recorder.ask({str(self.home / 'recorded-nvml.so')!r}, {orders!r})))"
        environment = {**os.environ, "FAKE_NVML": str(self.home / "machine"), **({"NVML_RECORD": str(self.home / "fake-nvml.so")} if record else {})}
        done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout), done.stderr

    def test_a_recording_answers_as_what_was_recorded(self):
        (self.home / "machine").write_text(GPU)
        machine, at = str(self.home / "machine"), str(self.home / "nvml.at")
        later = GPU.replace("energy 5000", "energy 7500").replace("activity 5 93.5", "activity 5 12.25") + "gpu 0 sample 3000000 50\n" + XID
        said, log = self.asked([(machine, GPU), (machine, later)], record=True)
        self.assertIn([0, 8, 31], [event for answer in said if isinstance(answer, list) for event in answer if isinstance(event, list)])
        lines = [line.removeprefix("nvml ") for line in log.splitlines() if line.startswith("nvml ")]
        self.assertGreater(len(lines), 30)
        (self.home / "nvml.txt").write_text("\n".join(lines) + "\n")
        again, log = self.asked([(at, "at 1\n"), (at, "at 2\n")], record=False)
        self.assertEqual(log, "")
        self.assertEqual(again, said)
        # Samples in another order: what was not asked in the first one is not known there.
        self.assertNotEqual(self.asked([(at, "at 2\n"), (at, "at 1\n")], record=False)[0], said)


class Fixture(unittest.TestCase):
    LOG = """\
nvml 1.000001 5 nvmlInit_v2 -> 0
another line
nvml 1.100000 5 nvmlEventSetWait_v2 -> 10
nvml 1.200000 5 nvmlDeviceGetName 0 -> 0 "GPU"
nvml 1.300000 5 nvmlDeviceGetFieldValues 0 -> 0 83:0:0:3:01 185:0:0:1:07
nvml 2.100000 5 nvmlEventSetWait_v2 -> 0 0:8:31:1:1
nvml 2.100100 5 nvmlEventSetWait_v2 -> 10
nvml 2.200000 5 nvmlDeviceGetName 0 -> 0 "GPU"
nvml 2.300000 5 nvmlDeviceGetFieldValues 0 -> 0 83:0:0:3:02 185:0:0:1:07
nvml 2.400000 5 nvmlShutdown -> 0
"""

    def test_a_sample_begins_with_the_question_for_events(self):
        first, second = fixture.samples_of(self.LOG)
        self.assertEqual([text.split()[0] for _, text in first], ["nvmlInit_v2", "nvmlEventSetWait_v2", "nvmlDeviceGetName", "nvmlDeviceGetFieldValues"])
        self.assertEqual([text.split()[0] for _, text in second], ["nvmlEventSetWait_v2"] * 2 + ["nvmlDeviceGetName", "nvmlDeviceGetFieldValues"])

    def test_what_did_not_change_is_not_repeated(self):
        import contextlib
        import io

        written = io.StringIO()
        with contextlib.redirect_stdout(written):
            writer = fixture.Writer()
            self.assertEqual([writer.sample(each) for each in fixture.samples_of(self.LOG)], [1, 2])
        self.assertEqual(written.getvalue().splitlines()[4:], [
            "2.100 nvmlEventSetWait_v2 -> 0 0:8:31:1:1", "2.100 nvmlEventSetWait_v2 -> 10", "2.300 nvmlDeviceGetFieldValues 0 -> 0 83:0:0:3:02"])

    def test_work_is_that_of_a_second(self):
        done = {"a": {"flops": 100, "began": 1.0, "ended": 3.0, "busy": 1.0}, "b": {"flops": 10, "began": 1.0, "ended": 2.0, "busy": 1.0}}
        self.assertEqual(fixture.work(done), {"flops": "50,10"})
        self.assertEqual(fixture.work({"a": done["a"]}), {"flops": "50", "busy": "0.5"})


if __name__ == "__main__":
    unittest.main()
