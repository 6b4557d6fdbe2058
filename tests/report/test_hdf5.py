"""Jobs as HDF5, read by others: h5py and h5dump, which are HDF5's own library, and SLURM's sh5util.

What they should find is computed here from report.json, which crates/job-files/examples/write_hdf5.rs writes beside the files. Needs
python3-venv, hdf5-tools and slurm-wlm-hdf5-plugin; h5py comes from PyPI.
"""

import collections
import csv
import json
import math
import os
import site
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import curves_of, example

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MIB = 2**20
STEP = "Steps/batch/Nodes"
# Groups of the nodes `../n1,"x"` with a line end, and of the one without a name.
FOLDERS = [".._n1__x__", "_"]
TASKS = ["CPUFrequency", "CPUTime", "CPUUtilization", "GPUMemMB", "GPUUtilization", "RSS", "VMSize", "Pages", "ReadMB", "WriteMB"]
# sh5util lists what all nodes have; the second one has one GPU.
MEMBERS = {
    "Tasks": TASKS,
    "Energy": ["Power", "GPU0Power"],
    "Filesystem": ["Reads", "ReadMB", "Writes", "WriteMB"],
    "Network": ["PacketsIn", "PacketsOut", "InMB", "OutMB"],
}


def setUpModule():
    global files, report, curves, ends, lengths, h5py
    python = subprocess.run([ROOT / "grafana/environment.sh", HERE / "requirements-hdf5.txt"], capture_output=True, text=True, check=True)
    # It is made with this Python, so what is in it can be imported here.
    for packages in Path(python.stdout.strip()).parents[1].glob("lib/python3*/site-packages"):
        site.addsitedir(packages)
    import h5py
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    files = Path(directory.name)
    for writes in ("write_sample", "write_hdf5"):
        subprocess.run([example(writes), files], cwd=ROOT, check=True)
    # All that sh5util needs of SLURM: no daemon runs.
    (files / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=localhost\nAcctGatherProfileType=acct_gather_profile/hdf5\n")
    (files / "acct_gather.conf").write_text(f"ProfileHDF5Dir={files}\n")
    report = json.loads((files / "report.json").read_text())
    times = report["curves"]
    ends = times["ends"]
    lengths = [end - begin for begin, end in zip([times["start"], *ends], ends)]
    curves = curves_of(report)


def gaps(values):
    """NaN as None."""
    return [None if math.isnan(value) else float(value) for value in values]


def sums(rows):
    """Of what is there in each column."""
    return [sum(known) if (known := [value for value in column if value is not None]) else None for column in zip(*rows)]


class Own(unittest.TestCase):
    def setUp(self):
        self.file = h5py.File(files / "jobledger.h5")
        self.addCleanup(self.file.close)

    def test_every_curve_is_a_row_of_its_metric(self):
        self.assertEqual(list(self.file["time"]), ends)
        self.assertEqual(self.file["time"].attrs["units"], b"seconds since 1970-01-01 00:00:00 UTC")
        gpus = [(int(row["node"]), int(row["gpu"])) for row in self.file["gpus"]]
        self.assertEqual(gpus, [(0, 0), (0, 1), (1, 0)])
        seen = 0
        for level, rows in (("node", [(0, None), (1, None)]), ("gpu", gpus)):
            for metric, dataset in self.file[level].items():
                self.assertEqual(dataset.dtype, "<f8")
                self.assertEqual(dataset.compression, "gzip")
                for (node, gpu), values in zip(rows, dataset[()], strict=True):
                    expected = curves.get((metric, node, gpu), [None] * len(ends))
                    self.assertEqual(gaps(values), expected, (metric, node, gpu))
                    seen += (metric, node, gpu) in curves
        self.assertEqual(seen, len(curves))
        self.assertTrue(any(None in values for values in curves.values()), "the job has gaps")

    def test_the_jobs_curves_are_sums(self):
        self.assertEqual(set(self.file["job"]), {metric for metric, _, _ in curves})
        for metric, dataset in self.file["job"].items():
            expected = sums([values for (name, _, _), values in curves.items() if name == metric])
            for found, value in zip(gaps(dataset), expected, strict=True):
                self.assertTrue(found is value is None or math.isclose(found, value, rel_tol=1e-12), metric)

    def test_totals_are_those_of_nodes_and_gpus(self):
        nodes = report["job"]["nodes"]
        for level, parts in (("node", nodes), ("gpu", [gpu for node in nodes for gpu in node["gpus"]])):
            values = [part["values"] for part in parts]
            self.assertEqual(set(self.file["totals"][level]), {metric for part in values for metric in part})
            for metric, dataset in self.file["totals"][level].items():
                self.assertEqual(gaps(dataset), [part.get(metric) for part in values], metric)

    def test_units_and_meanings_are_with_the_values(self):
        for path, unit, shape in [
            ("node/cpu_seconds", b"seconds per second", b"node, time"),
            ("gpu/gpu_energy_joules", b"joules per second", b"gpu, time"),
            ("job/memory_anon_bytes", b"bytes", b"time"),
            ("totals/node/cpu_seconds", b"seconds", b"node"),
            ("node/page_faults_major", b"1 per second", b"node, time"),
        ]:
            attributes = self.file[path].attrs
            self.assertEqual((attributes["unit"], attributes["dimensions"]), (unit, shape), path)
            self.assertTrue(attributes["description"])
        self.assertEqual(self.file["node/cpu_user_seconds"].attrs["series"], b'jobledger_job_cpu_seconds_total{mode="user"}')

    def test_who_and_when_is_in_the_root(self):
        attributes = dict(self.file.attrs)
        self.assertIn("jobledger_version", attributes)
        del attributes["jobledger_version"]
        job = report["job"]
        self.assertEqual(attributes, {
            "schema": 1, "jobid": 7, "run": 1, "runs": 1, "cluster": "c1", "user": "alice", "account": "physics",
            "name": job["identity"]["name"].replace("\0", "\ufffd"), "state": "ended", "slurm_state": "COMPLETED",
            "slurm_state_origin": "derived", "exit_code": 0, "time_limit_seconds": 7200, "start": report["curves"]["start"],
            "end": report["curves"]["end"], "seen_until": report["curves"]["end"], "step_seconds": 60,
            "generated": report["curves"]["end"] + 7.25, "source": "http://prometheus:9090",
        })

    def test_hostile_names_are_data(self):
        self.assertEqual(list(self.file["nodes"].asstr()), [node["name"] for node in report["job"]["nodes"]])
        gpus = [gpu for node in report["job"]["nodes"] for gpu in node["gpus"]]
        for column in ("uuid", "model"):
            found = [row.decode() for row in self.file["gpus"][column]]
            self.assertEqual(found, [gpu[column].replace("\0", "\ufffd") for gpu in gpus])
        self.assertEqual(set(self.file), {"advice", "gpu", "gpus", "job", "node", "nodes", "quality", "time", "totals"})

    def test_advice_and_quality(self):
        advice = [(row["id"].decode(), row["severity"].decode(), row["measured"].decode(), row["sbatch"].decode()) for row in self.file["advice"]]
        self.assertEqual(advice, [(item["piece"], item["severity"], item["measured"], item["sbatch"] or "") for item in report["advice"]])
        self.assertTrue(advice)
        quality = self.file["quality"]
        self.assertEqual(list(quality["coverage"]), [0.75, 0.75])
        self.assertEqual(list(quality["end"]), [node["end"] for node in report["job"]["nodes"]])
        self.assertEqual(list(quality.attrs["notes"]), report["quality"]["notes"])
        self.assertEqual((quality.attrs["nodes_seen"], quality.attrs["coverage"]), (2, report["quality"]["coverage"]))


class Slurm(unittest.TestCase):
    def setUp(self):
        self.file = h5py.File(files / "slurm.h5")
        self.addCleanup(self.file.close)

    def sh5util(self, *arguments):
        done = subprocess.run(["sh5util", "-j", "7", "-i", files / "slurm.h5", *arguments], cwd=files, capture_output=True, text=True,
                              env={**os.environ, "SLURM_CONF": str(files / "slurm.conf")}, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("error", done.stderr)
        return done.stdout

    def extract(self, series, level):
        self.sh5util("-E", "-s", series, "-l", f"Node:{level}", "-o", files / "extract.csv")
        with open(files / "extract.csv", newline="") as lines:
            return list(csv.DictReader(lines))

    def table(self, folder, series):
        return self.file[f"{STEP}/{folder}/{series}" + ("/0" if series == "Tasks" else "")]

    def test_groups_attributes_and_types_are_those_of_slurms_plugin(self):
        self.assertEqual(list(self.file.attrs["Number of Steps"]), [1])
        self.assertEqual(list(self.file["Steps/batch"].attrs["Number of Nodes"]), [2])
        self.assertEqual(list(self.file[STEP]), FOLDERS)
        for index, (folder, node) in enumerate(zip(FOLDERS, report["job"]["nodes"])):
            attributes = {name: list(value) for name, value in self.file[f"{STEP}/{folder}"].attrs.items()}
            self.assertEqual(attributes, {
                "Node Index": [index], "Node Name": [node["name"].encode()], "Number of Tasks": [1],
                "CPUs per Task": [int(node["values"]["cpus"])], "Start Time": [b"Mon Nov 23 08:11:40 2026"],
            })
            for series, members in MEMBERS.items():
                table = self.table(folder, series)
                members = ["ElapsedTime", "EpochTime", *members] + (["GPU1Power"] if series == "Energy" and index == 0 else [])
                self.assertEqual(list(table.dtype.names), members)
                reals = {"CPUTime", "CPUUtilization", "GPUUtilization", "ReadMB", "WriteMB", "InMB", "OutMB"}
                for at, member in enumerate(members):
                    dtype, offset = table.dtype.fields[member][:2]
                    self.assertEqual((dtype.str, offset), ("<f8" if member in reals else "<u8", 8 * at), member)
                self.assertEqual((table.shape, table.maxshape), ((len(ends),), (None,)))

    def test_values_are_those_of_the_curves(self):
        start = report["curves"]["start"]

        def curve(node, metric, gpu=None):
            return curves.get((metric, node, gpu), [None] * len(ends))

        def level(values, factor=1.0):
            return [0 if value is None else value * factor for value in values]

        def increase(values, factor):
            return [0 if value is None else value * factor * length for value, length in zip(values, lengths)]

        def total(values, factor=1.0):
            steps = increase(values, factor)
            return [sum(steps[:number + 1]) for number in range(len(steps))]

        for node, folder in enumerate(FOLDERS):
            gpus = range(2 - node)
            busy = [sum(parts) for parts in zip(*(
                [100 * busy / (busy + idle) for busy, idle in zip(curve(node, "gpu_busy_seconds", gpu), curve(node, "gpu_idle_seconds", gpu))]
                for gpu in gpus))]
            resident = [None if None in pair else sum(pair) for pair in zip(curve(node, "memory_anon_bytes"), curve(node, "memory_shmem_bytes"))]
            memory = [None if None in parts else sum(parts) for parts in zip(*(curve(node, "gpu_memory_used_bytes", gpu) for gpu in gpus))]
            frequency = [cycles / seconds / 1e3 for cycles, seconds in zip(curve(node, "cycles"), curve(node, "counted_cpu_seconds"))]
            expected = {
                ("Tasks", "ElapsedTime"): [end - start for end in ends],
                ("Tasks", "EpochTime"): ends,
                ("Tasks", "CPUFrequency"): frequency,
                ("Tasks", "CPUTime"): increase(curve(node, "cpu_seconds"), 1),
                ("Tasks", "CPUUtilization"): level(curve(node, "cpu_seconds"), 100),
                ("Tasks", "GPUMemMB"): level(memory, 1 / MIB),
                ("Tasks", "GPUUtilization"): busy,
                ("Tasks", "RSS"): level(resident, 1 / 1024),
                ("Tasks", "VMSize"): [0] * len(ends),
                ("Tasks", "Pages"): total(curve(node, "page_faults_major")),
                ("Tasks", "ReadMB"): increase(curve(node, "io_read_bytes"), 1 / MIB),
                ("Tasks", "WriteMB"): increase(curve(node, "syscall_written_bytes"), 1 / MIB),
                ("Energy", "Power"): level(curve(node, "energy_joules")),
                **{("Energy", f"GPU{gpu}Power"): level(curve(node, "gpu_energy_joules", gpu)) for gpu in gpus},
                ("Filesystem", "Reads"): [0] * len(ends),
                ("Filesystem", "ReadMB"): total(curve(node, "lustre_read_bytes"), 1 / MIB),
                ("Filesystem", "WriteMB"): total(curve(node, "lustre_written_bytes"), 1 / MIB),
                ("Network", "PacketsIn"): [0] * len(ends),
                ("Network", "InMB"): total(curve(node, "infiniband_received_bytes"), 1 / MIB),
                ("Network", "OutMB"): total(curve(node, "infiniband_transmitted_bytes"), 1 / MIB),
            }
            for (series, member), values in expected.items():
                found = self.table(folder, series)[member]
                tolerance = 0.501 if found.dtype == "<u8" else 0
                for number, (one, other) in enumerate(zip(found, values, strict=True)):
                    close = math.isclose(one, other, rel_tol=1e-9, abs_tol=tolerance)
                    self.assertTrue(close, f"{series}/{member} of node {node} at {number}: {one} is not {other}")

    def test_what_is_absent_is_said(self):
        absent = list(self.file.attrs["jobledger:absent"])
        self.assertIn("Tasks/VMSize: 40 of 40 samples", absent)
        gaps_of_memory = sum(value is None for value in curves["memory_anon_bytes", 1, None])
        self.assertIn(f"Tasks/RSS: {gaps_of_memory} of 40 samples", absent)
        self.assertIn("Tasks/Pages: 20 of 40 samples", absent)
        self.assertFalse([line for line in absent if line.startswith("Tasks/CPUTime")])
        self.assertIn("Tasks/ReadMB: io_read_bytes", list(self.file.attrs["jobledger:measured"]))

    def test_sh5util_lists_what_all_nodes_have(self):
        for series, members in MEMBERS.items():
            self.assertEqual(self.sh5util("-L", "-s", series).split(), ["ElapsedTime", "EpochTime", *members])

    def test_sh5util_extracts_time_series(self):
        for series, members in MEMBERS.items():
            rows = self.extract(series, "TimeSeries")
            self.assertEqual(len(rows), len(FOLDERS) * len(ends))
            for number, row in enumerate(rows):
                folder, sample = FOLDERS[number // len(ends)], number % len(ends)
                self.assertEqual((row["Step"], row["Node"], row.get("Series", "0")), ("batch", folder, "0"))
                record = self.table(folder, series)[sample]
                for member in ("ElapsedTime", "EpochTime", *members):
                    value = record[member]
                    text = f"{value:.6f}" if value.dtype == "<f8" else str(value)
                    self.assertEqual(row[member], text, (series, folder, sample, member))

    def test_sh5util_extracts_totals(self):
        for series, members in MEMBERS.items():
            rows = self.extract(series, "Totals")
            self.assertEqual([row["Node"] for row in rows], FOLDERS)
            for folder, row in zip(FOLDERS, rows):
                table = self.table(folder, series)[()]
                self.assertEqual(row["ElapsedTime"], str(table["ElapsedTime"][-1]))
                for member in ("EpochTime", *members):
                    values = [value.item() for value in table[member]]
                    sizes = {"Min": min(values), "Max": max(values), "Sum": sum(values), "Avg": sum(values) / len(values)}
                    for name, value in sizes.items():
                        found = float(row[f"{name}_{member}"])
                        self.assertTrue(math.isclose(found, value, rel_tol=1e-9, abs_tol=1e-6), (series, folder, name, member, found, value))


class Steps(unittest.TestCase):
    """Files of a job whose steps and tasks are known (crates/job-files/src/sample.rs)."""

    def extract(self, series):
        done = subprocess.run(["sh5util", "-j", "12345", "-i", files / "steps-slurm.h5", "-E", "-l", "Node:TimeSeries", "-s", series, "-o", files / "steps.csv"],
                              cwd=files, capture_output=True, text=True, env={**os.environ, "SLURM_CONF": str(files / "slurm.conf")}, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("error", done.stderr)
        with open(files / "steps.csv", newline="") as lines:
            return list(csv.DictReader(lines))

    def test_sh5util_finds_the_tasks_of_each_step(self):
        used = {}
        for row in self.extract("Tasks"):
            key = row["Step"], row["Node"].startswith("b01"), row["Series"]
            used[key] = used.get(key, 0) + float(row["CPUTime"])
        self.assertEqual(used, {("0", True, "0"): 100, ("0", True, "1"): 35, ("0", False, "2"): 147, ("batch", True, "0"): 0})

    def test_sh5util_finds_the_power_of_nodes_while_a_step_ran(self):
        rows = self.extract("Energy")
        samples = collections.Counter((row["Step"], row["Node"].startswith("b01")) for row in rows)
        self.assertEqual(samples, {("batch", True): 5, ("0", True): 3, ("0", False): 3})
        self.assertEqual({row["Power"] for row in rows}, {"100"})

    def test_h5py_reads_rows_of_parts(self):
        with h5py.File(files / "steps.h5") as file:
            parts = [(int(row["node"]), row["step"].decode(), row["task"].decode()) for row in file["parts"]]
            self.assertEqual(parts, [(0, "batch", ""), (0, "0", ""), (0, "0", "0"), (0, "0", "1"), (1, "0", ""), (1, "0", "2")])
            self.assertEqual(gaps(file["part/cpu_seconds"][1]), [None, 0.25, 1.5, 0.5, None])
            self.assertEqual(file["part/cpu_seconds"].attrs["dimensions"], b"part, time")


class Dump(unittest.TestCase):
    def test_hdf5s_own_tool_reads_all_of_the_files(self):
        for name in ("jobledger.h5", "slurm.h5", "steps.h5", "steps-slurm.h5"):
            done = subprocess.run(["h5dump", files / name], capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""), name)

    def test_hdf5s_own_tool_finds_the_same_values(self):
        dump = ["h5dump", "-d", "/node/memory_anon_bytes", "-m", "%.17g", "-y", "-w", "1", "-O", files / "out.txt", "-o", files / "data.txt"]
        subprocess.run([*dump, files / "jobledger.h5"], check=True, capture_output=True)
        found = [float(value) for value in (files / "data.txt").read_text().replace(",", " ").split()]
        expected = [value for node in (0, 1) for value in curves["memory_anon_bytes", node, None]]
        self.assertEqual(gaps(found), expected)


if __name__ == "__main__":
    unittest.main()
